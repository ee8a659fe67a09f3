"""JSON commands, which read, change, and describe the values that match a path."""

from . import about, change, documents

__all__ = ["about", "change", "documents"]
