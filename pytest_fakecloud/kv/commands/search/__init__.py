"""Search commands, which manage indexes and aliases and search the indexes."""

from . import definitions, searches

__all__ = ["definitions", "searches"]
