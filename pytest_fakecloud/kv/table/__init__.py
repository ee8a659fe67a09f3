"""The command table, and parsers for command arguments."""
