"""Server and connection commands, such as ACL, CLIENT, COMMAND, CONFIG and INFO."""

from . import acl, client, connection, debugging, help, introspection, process, server, statistics

__all__ = [
    "acl",
    "client",
    "connection",
    "debugging",
    "help",
    "introspection",
    "process",
    "server",
    "statistics",
]
