"""Strings: bytes, numbers, bits, and estimates of cardinality."""
