"""Algorithms that are independent of keys and commands: patterns, hashes, ordered blocks,
geohashes.
"""
