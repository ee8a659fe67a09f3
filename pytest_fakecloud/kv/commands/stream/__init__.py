"""Streams, consumer groups and pending entries."""
