"""The second engine: the same commands, run by a real Redis or Valkey server (extra ``redis``)."""
