"""Generic key commands, which rename, copy, expire, inspect and sort keys."""

from . import expiry, generic, objects, sort

__all__ = ["expiry", "generic", "objects", "sort"]
