"""Sorted set commands: members and scores, ranges, and operations on several sets."""

from . import algebra, members, pop

__all__ = ["algebra", "members", "pop"]
