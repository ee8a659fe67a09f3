"""HTTP endpoints of the queue, one module per family, and the parsing of their requests."""
