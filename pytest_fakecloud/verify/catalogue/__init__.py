"""The scenarios of each service."""
