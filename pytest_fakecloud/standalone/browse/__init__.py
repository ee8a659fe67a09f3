"""Paged lists of a fake's data for the console; the server searches, filters and counts."""
