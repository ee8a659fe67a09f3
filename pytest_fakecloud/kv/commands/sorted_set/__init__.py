"""Sorted sets, and the positions on earth that are kept in them."""

from . import algebra, geo, members, pop

__all__ = ["algebra", "geo", "members", "pop"]
