"""Generic key commands, which rename, copy, expire, inspect and sort keys."""

from . import expiry, generic, sort

__all__ = ["expiry", "generic", "sort"]
