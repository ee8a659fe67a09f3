"""Delivery of messages: over HTTP, to applications and functions, to mocks, to prepared answers."""
