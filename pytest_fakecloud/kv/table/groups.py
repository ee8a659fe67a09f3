"""The groups of commands, the headings of ``commands.txt``."""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """What the commands of a group have in common.

    - ``category`` is their ACL category, or empty.
    - ``has_data``: they access values of keys themselves. The others access none, or run commands.
    - ``has_fields``: the arguments ``field``, ``member`` and ``index`` are parts of a value that do not
      depend on each other.
    - ``is_collection``: clients add and pop elements.
    """

    category: str
    has_data: bool = True
    has_fields: bool = False
    is_collection: bool = False


GROUPS = {
    "string": Group("@string"),
    "bitmap": Group("@bitmap"),
    "hash": Group("@hash", has_fields=True),
    "list": Group("@list", is_collection=True),
    "set": Group("@set", has_fields=True, is_collection=True),
    "sorted-set": Group("@sortedset", has_fields=True, is_collection=True),
    "geo": Group("@geo", has_fields=True),
    "hyperloglog": Group("@hyperloglog"),
    "stream": Group("@stream"),
    "json": Group("@json"),
    "array": Group("@array", has_fields=True),
    "search": Group("@search"),
    "vector": Group("@vector"),
    "generic": Group("@keyspace"),
    "scripting": Group("@scripting", has_data=False),
    "transactions": Group("@transaction", has_data=False),
    "pubsub": Group("@pubsub", has_data=False),
    "connection": Group("@connection", has_data=False),
    "server": Group("", has_data=False),
    "cluster": Group("", has_data=False),
}
"""The groups by name."""
