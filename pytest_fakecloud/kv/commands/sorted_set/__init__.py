"""Sorted sets, and the positions on earth that are kept in them."""
