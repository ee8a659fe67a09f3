"""HTTP endpoints of the queue, and the parsing of their requests."""
