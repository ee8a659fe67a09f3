"""Stream commands."""
