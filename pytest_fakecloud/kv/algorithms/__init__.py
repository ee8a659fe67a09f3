"""Algorithms that know nothing of keys and commands: patterns, hashes, ordered blocks, geohashes."""
