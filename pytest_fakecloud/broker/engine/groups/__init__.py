"""Consumer groups of the broker in memory."""
