"""Sorted set commands: members and scores, ranges, and operations on several sets."""
