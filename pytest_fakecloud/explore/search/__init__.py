"""The search for a schedule that breaks a promise."""
