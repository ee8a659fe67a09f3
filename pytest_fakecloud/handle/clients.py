"""Official clients that a fake creates and closes."""

from __future__ import annotations

from typing import Any


def close_client(client: Any) -> None:
    """Close the connections of an official client, if it has a method for that."""
    attributes = getattr(client, "__dict__", {})  # a class with __slots__ has none
    for owner in (client, *attributes.values()):
        connections = getattr(owner, "_client", None)
        close = getattr(connections, "close", None)
        # Skip asynchronous clients: they have aclose() instead, which needs their event loop.
        if close is not None and not hasattr(connections, "aclose"):
            close()
