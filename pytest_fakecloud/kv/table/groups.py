"""The groups of commands, the headings of ``commands.txt``."""

from __future__ import annotations

from typing import NamedTuple


class CommandGroup(NamedTuple):
    """What the commands of a group have in common.

    - ``category`` is their ACL category, or empty.
    - ``has_fields``: the arguments ``field``, ``member`` and ``index`` are parts of a value that do not
      depend on each other.
    - ``is_collection``: clients add and pop elements.
    """

    category: str
    has_fields: bool = False
    is_collection: bool = False


GROUPS = {
    "string": CommandGroup("@string"),
    "bitmap": CommandGroup("@bitmap"),
    "hash": CommandGroup("@hash", has_fields=True),
    "list": CommandGroup("@list", is_collection=True),
    "set": CommandGroup("@set", has_fields=True, is_collection=True),
    "sorted-set": CommandGroup("@sortedset", has_fields=True, is_collection=True),
    "geo": CommandGroup("@geo", has_fields=True),
    "hyperloglog": CommandGroup("@hyperloglog"),
    "stream": CommandGroup("@stream"),
    "json": CommandGroup("@json"),
    "array": CommandGroup("@array", has_fields=True),
    "search": CommandGroup("@search"),
    "vector": CommandGroup("@vector"),
    "generic": CommandGroup("@keyspace"),
    "scripting": CommandGroup("@scripting"),
    "transactions": CommandGroup("@transaction"),
    "pubsub": CommandGroup("@pubsub"),
    "connection": CommandGroup("@connection"),
    "server": CommandGroup(""),
    "cluster": CommandGroup(""),
}
"""The groups by name."""
