"""Strings: bytes, numbers, bits, and estimates of cardinality."""

from . import bitmap, hyperloglog, numbers, values

__all__ = ["bitmap", "hyperloglog", "numbers", "values"]
