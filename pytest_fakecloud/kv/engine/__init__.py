"""The in-memory engine: takes commands, runs them on the keyspaces, gives replies."""
