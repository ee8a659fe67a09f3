"""The broker engine in memory: logs and consumer groups of one broker."""
