"""The REST interface: commands in HTTP requests, answered with JSON or event streams."""
