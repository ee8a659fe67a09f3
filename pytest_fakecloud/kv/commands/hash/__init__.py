"""Hash commands: fields, and expiry of fields."""

from . import expiry, fields

__all__ = ["expiry", "fields"]
