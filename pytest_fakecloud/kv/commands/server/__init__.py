"""The server and its connections: ACL, CLIENT, COMMAND, CONFIG, INFO and their kin."""

from . import (
    acl,
    client,
    configuration,
    connection,
    debugging,
    introspection,
    process,
    server,
    statistics,
)

__all__ = [
    "acl",
    "client",
    "configuration",
    "connection",
    "debugging",
    "introspection",
    "process",
    "server",
    "statistics",
]
