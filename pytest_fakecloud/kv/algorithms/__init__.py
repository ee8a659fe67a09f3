"""Algorithms that do not depend on keys or commands, such as patterns, geohashes and HyperLogLog."""
