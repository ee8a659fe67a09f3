"""Generic key commands, which rename, copy, expire, inspect and sort keys."""

from . import generic, sort

__all__ = ["generic", "sort"]
