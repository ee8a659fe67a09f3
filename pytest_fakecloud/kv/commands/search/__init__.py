"""Search commands: indexes, their aliases, and searches."""

from . import definitions, searches

__all__ = ["definitions", "searches"]
