"""Data structures without commands: what is kept under a key besides strings."""
