"""Shared parts of the services: clock, journal, ids, errors, credentials, waiting."""
