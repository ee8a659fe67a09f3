"""The database port: the Redis protocol, over the same engine as the REST interface."""
