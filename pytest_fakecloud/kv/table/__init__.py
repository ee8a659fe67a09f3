"""The declared table of commands, and how their arguments are read."""
