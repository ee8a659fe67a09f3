"""The parameters CONFIG knows, with the server's defaults."""

from __future__ import annotations

__all__ = ["defaults"]


def defaults() -> dict[str, str]:
    """Every parameter with its default, as CONFIG GET shows it."""
    return dict(_DEFAULTS)


_DEFAULTS = {
    "databases": "16",
    "hash-max-listpack-entries": "512",
    "hash-max-listpack-value": "64",
    "hll-sparse-max-bytes": "3000",
    "list-compress-depth": "0",
    "list-max-listpack-size": "-2",
    "lua-time-limit": "5000",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
    "notify-keyspace-events": "",
    "proto-max-bulk-len": "536870912",
    "set-max-intset-entries": "512",
    "set-max-listpack-entries": "128",
    "set-max-listpack-value": "64",
    "slowlog-log-slower-than": "10000",
    "slowlog-max-len": "128",
    "stream-node-max-bytes": "4096",
    "stream-node-max-entries": "100",
    "zset-max-listpack-entries": "128",
    "zset-max-listpack-value": "64",
}
