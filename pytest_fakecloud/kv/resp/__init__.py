"""The database port, which serves the same data as the REST interface, over the Redis protocol."""
