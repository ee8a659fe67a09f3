"""The groups of commands, the headings of ``commands.txt``."""

from __future__ import annotations

from typing import NamedTuple


class CommandGroup(NamedTuple):
    """What the commands of a group have in common.

    - ``category`` is their ACL category, or empty.
    - ``has_fields``: the arguments ``field``, ``member`` and ``index`` are parts of a value that do not
      depend on each other.
    - ``expires_fields``: the TTLs that they set are those of fields, and not of the key.
    - ``is_collection``: clients add and pop elements.
    - ``compares_values``: explorations compare the values that its commands overwrite. They do not
      compare elements of lists, whose indexes change, scores, for which they have other rules
      (``SCORES`` of `kinds.py`), and vectors.
    """

    category: str
    has_fields: bool = False
    expires_fields: bool = False
    is_collection: bool = False
    compares_values: bool = True


GROUPS = {
    "string": CommandGroup("@string"),
    "bitmap": CommandGroup("@bitmap"),
    "hash": CommandGroup("@hash", has_fields=True, expires_fields=True),
    "list": CommandGroup("@list", is_collection=True, compares_values=False),
    "set": CommandGroup("@set", has_fields=True, is_collection=True),
    "sorted-set": CommandGroup(
        "@sortedset", has_fields=True, is_collection=True, compares_values=False
    ),
    "geo": CommandGroup("@geo", has_fields=True, compares_values=False),
    "hyperloglog": CommandGroup("@hyperloglog"),
    "stream": CommandGroup("@stream"),
    "json": CommandGroup("@json"),
    "array": CommandGroup("@array", has_fields=True),
    "search": CommandGroup("@search"),
    "vector": CommandGroup("@vector", compares_values=False),
    "generic": CommandGroup("@keyspace"),
    "scripting": CommandGroup("@scripting"),
    "transactions": CommandGroup("@transaction"),
    "pubsub": CommandGroup("@pubsub"),
    "connection": CommandGroup("@connection"),
    "server": CommandGroup(""),
    "cluster": CommandGroup(""),
}
"""The groups by name."""
