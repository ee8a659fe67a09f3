"""Consumer groups: membership, assignment, committed offsets, and what an instance reads next."""
