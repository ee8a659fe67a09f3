"""Strings: bytes, and numbers."""

from . import numbers, values

__all__ = ["numbers", "values"]
