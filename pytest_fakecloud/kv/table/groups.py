"""The groups of commands, the headings of ``commands.txt``."""

from __future__ import annotations

from typing import NamedTuple


class CommandGroup(NamedTuple):
    """What the commands of a group have in common, as far as it does not follow from their rows.

    - ``category`` is their ACL category, or empty.
    - ``has_data``: they access values of keys themselves, so that tests run each of them on filled keys.
    - ``runs_commands``: they run other commands, or prepare it, so that replies depend on data.
    - ``over_rest``: they are available over REST, but for those that `over_rest.py` excludes.
    - ``has_fields``: the arguments ``field``, ``member`` and ``index`` are parts of a value that do not
      depend on each other.
    - ``expires_fields``: the TTLs that they set are those of fields, and not of the key.
    - ``has_scores``: each member has a score, or coordinates that are one.
    - ``compares_values``: explorations compare the values that its commands overwrite. They do not
      compare elements of lists, whose indexes change, scores, for which they have other rules
      (``SCORES`` of `kinds.py`), and vectors.
    - ``compares_creations``: explorations notice which keys, fields or members its commands create.
    """

    category: str
    has_data: bool = True
    runs_commands: bool = False
    over_rest: bool = True
    has_fields: bool = False
    expires_fields: bool = False
    has_scores: bool = False
    compares_values: bool = True
    compares_creations: bool = False


GROUPS = {
    "string": CommandGroup("@string", compares_creations=True),
    "bitmap": CommandGroup("@bitmap"),
    "hash": CommandGroup("@hash", has_fields=True, expires_fields=True, compares_creations=True),
    "list": CommandGroup("@list", compares_values=False),
    "set": CommandGroup("@set", has_fields=True, compares_creations=True),
    "sorted-set": CommandGroup(
        "@sortedset", has_fields=True, has_scores=True,
        compares_values=False, compares_creations=True,
    ),
    "geo": CommandGroup("@geo", has_fields=True, has_scores=True, compares_values=False),
    "hyperloglog": CommandGroup("@hyperloglog"),
    "stream": CommandGroup("@stream"),
    "json": CommandGroup("@json"),
    "array": CommandGroup("@array", has_fields=True),
    "search": CommandGroup("@search"),
    "vector": CommandGroup("@vector", compares_values=False),
    "vector-set": CommandGroup("", has_fields=True, compares_values=False),
    "generic": CommandGroup("@keyspace"),
    "scripting": CommandGroup("@scripting", has_data=False, runs_commands=True),
    "transactions": CommandGroup("@transaction", has_data=False, runs_commands=True),
    "pubsub": CommandGroup("@pubsub", has_data=False),
    "connection": CommandGroup("@connection", has_data=False, over_rest=False),
    "server": CommandGroup("", has_data=False),
    "cluster": CommandGroup("", has_data=False, over_rest=False),
}  # fmt: skip
"""The groups by name."""
