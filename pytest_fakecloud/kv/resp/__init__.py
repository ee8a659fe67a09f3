"""The database port: the Redis protocol for the same engine as the REST interface."""
