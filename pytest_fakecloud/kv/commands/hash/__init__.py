"""Hashes: fields, and fields that expire."""

from . import expiry, fields

__all__ = ["expiry", "fields"]
