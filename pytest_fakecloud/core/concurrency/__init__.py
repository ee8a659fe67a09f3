"""Worker threads, background deliveries, and awaitable versions of blocking calls."""
