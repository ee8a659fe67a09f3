"""Ways from a client to a fake that avoid its socket, and savings in client libraries."""
