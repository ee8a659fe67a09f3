"""The database port, which provides the data of the REST interface over the Redis protocol."""
