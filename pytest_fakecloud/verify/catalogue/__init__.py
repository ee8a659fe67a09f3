"""The scenarios of each service, as data."""
