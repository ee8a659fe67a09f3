"""The REST interface: commands in HTTP requests, and replies as JSON or event streams."""
