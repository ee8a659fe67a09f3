"""Sorted sets: members by score, ranges, and the algebra of several sets."""

from . import algebra, members, pop

__all__ = ["algebra", "members", "pop"]
