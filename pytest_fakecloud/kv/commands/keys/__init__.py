"""Keys of any type: names, copies, expiry, sorting."""
