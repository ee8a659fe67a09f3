"""The in-memory engine: executes commands on databases of keys and returns replies."""
