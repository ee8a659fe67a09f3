"""Consumer groups: membership, assignment, committed offsets, and delivery to instances."""
