"""Generic key commands: names, copies, expiry, sorting."""

from . import expiry, generic, sort

__all__ = ["expiry", "generic", "sort"]
