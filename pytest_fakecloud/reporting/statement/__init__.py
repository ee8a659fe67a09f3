"""The search for what a failing statement read."""
