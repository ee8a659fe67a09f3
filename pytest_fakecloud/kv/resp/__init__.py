"""The database port: the native protocol, over the same engine as the REST interface."""
