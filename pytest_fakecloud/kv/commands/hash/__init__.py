"""Hash commands: reading and changing fields, and expiry of fields."""

from . import expiry, fields

__all__ = ["expiry", "fields"]
