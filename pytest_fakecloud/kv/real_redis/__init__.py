"""The second engine, which lets a real Redis or Valkey server run the commands."""
