"""The broker engine in memory."""
