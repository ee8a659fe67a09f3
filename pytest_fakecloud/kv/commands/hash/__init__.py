"""Hash commands, which read and change fields and their expiry."""

from . import expiry, fields

__all__ = ["expiry", "fields"]
