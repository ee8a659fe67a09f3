"""JSON commands: reading, changing, and describing the values that a path matches."""

from . import about, change, documents

__all__ = ["about", "change", "documents"]
