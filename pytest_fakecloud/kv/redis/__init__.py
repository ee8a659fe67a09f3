"""The second engine: a real Redis or Valkey server runs the commands (extra ``redis``)."""
