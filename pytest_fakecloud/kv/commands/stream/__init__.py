"""Stream commands for entries, consumer groups, and pending entries."""
