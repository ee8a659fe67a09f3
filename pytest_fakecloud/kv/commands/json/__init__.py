"""JSON documents: reading, changing and describing what paths match."""

from . import about, change, documents

__all__ = ["about", "change", "documents"]
