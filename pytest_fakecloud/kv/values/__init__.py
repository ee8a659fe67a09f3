"""The data structures that are the values of keys, apart from strings."""
