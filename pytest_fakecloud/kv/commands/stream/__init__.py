"""Stream commands for entries, consumer groups, and pending entries."""

from . import entries, groups, info, pending, read

__all__ = ["entries", "groups", "info", "pending", "read"]
