"""Stream commands for entries, consumer groups, and pending entries."""

from . import entries, groups, info, pending

__all__ = ["entries", "groups", "info", "pending"]
