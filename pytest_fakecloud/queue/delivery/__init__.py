"""Delivery of messages over HTTP, to applications, functions and mocks, and to prepared answers."""
