"""The second engine, whose commands a real Redis or Valkey server runs (extra ``redis``)."""
