"""The REST API of a vector index: its commands, their requests and their responses."""
