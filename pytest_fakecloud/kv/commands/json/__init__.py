"""JSON commands, which read, change and describe the values at a path of a document."""

from . import about, change, documents

__all__ = ["about", "change", "documents"]
