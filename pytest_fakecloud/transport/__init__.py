"""Ways from a client to a fake other than a plain socket, and what clients cost."""
