"""Search commands, which manage indexes and aliases and search the indexes."""
