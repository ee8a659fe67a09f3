"""The table of commands, and the parsers of their arguments."""
