"""Hash commands, which read and change fields and their expiry."""
