"""The REST interface: commands in HTTP requests, and event streams."""
