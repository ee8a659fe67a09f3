"""The in-memory engine: runs commands on keyspaces and returns replies."""
