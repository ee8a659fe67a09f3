"""The table of commands, and what follows from its rows."""
