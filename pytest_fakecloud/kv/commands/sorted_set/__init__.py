"""Sorted set commands: members and scores, ranges, and operations on several sets."""

from . import algebra, members, ranges

__all__ = ["algebra", "members", "ranges"]
