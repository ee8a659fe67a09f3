"""Stream commands: entries, consumer groups, pending entries."""

from . import entries, groups, info, pending

__all__ = ["entries", "groups", "info", "pending"]
