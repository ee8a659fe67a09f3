"""Implementations of the commands, in one module or folder per command group."""
