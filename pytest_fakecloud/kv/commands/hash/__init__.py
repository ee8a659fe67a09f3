"""Hashes: fields, and fields that expire."""
