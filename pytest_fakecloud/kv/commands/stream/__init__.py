"""Stream commands for entries, consumer groups, and pending entries."""

from . import append, delete, groups, info, pending, read

__all__ = ["append", "delete", "groups", "info", "pending", "read"]
