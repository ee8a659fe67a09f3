"""Data structures for the values of keys, except strings."""
