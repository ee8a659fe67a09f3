"""Fake of the HTTP message queue: messages are delivered later, retried, ordered and scheduled."""
