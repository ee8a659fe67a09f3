"""Sets of distinct members."""
