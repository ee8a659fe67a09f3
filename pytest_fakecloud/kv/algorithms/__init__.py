"""Algorithms that do not depend on keys or commands: patterns, hashes, ordered blocks, geohashes."""
