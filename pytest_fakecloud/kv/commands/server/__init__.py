"""Server and connection commands: ACL, CLIENT, COMMAND, CONFIG, INFO, and others."""

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
