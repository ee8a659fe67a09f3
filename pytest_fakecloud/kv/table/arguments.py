"""The names of arguments in synopses. A name means the same in every command, and decides what becomes
of the words of command lines. A synopsis with another name is an error at import.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Unit(NamedTuple):
    """The unit of a TTL: its length, and whether numbers are Unix times and not durations."""

    milliseconds: int
    is_absolute: bool = False


ArgumentRole = Literal["field", "value", "element", "entry", "idle time", "path"]
"""The roles of arguments.

- ``field``: a field, member or index of a value, in the groups with ``has_fields`` (`groups.py`).
- ``value``: a new value of a key, a field or an index.
- ``element``: an element of a list.
- ``entry``: an entry of a stream, by its ID.
- ``idle time``: how long another consumer has had the entries that the command claims.
- ``path``: a part of a JSON document, which explorations compare as they do fields.
"""


class ArgumentName(NamedTuple):
    """What the arguments with a name are.

    - ``type`` is their type in ``COMMAND DOCS``; ``string`` if servers say different ones of different
      commands. A ``key`` is a string in commands whose rows have no position for it.
    - ``role`` is what they are for limits, reports and explorations; None if these do not ask.
    - ``ttl_unit`` is the unit if they are TTLs, unless an option is before them. The options that set a
      TTL are in `ttl.py`.
    """

    type: str
    role: ArgumentRole | None = None
    ttl_unit: Unit | None = None


def _all(type: str, names: str, role: ArgumentRole | None = None) -> dict[str, ArgumentName]:
    return dict.fromkeys(names.split(), ArgumentName(type, role))


ARGUMENTS = {
    "seconds": ArgumentName("integer", ttl_unit=Unit(1_000)),
    "milliseconds": ArgumentName("integer", ttl_unit=Unit(1)),
    "unix-time-seconds": ArgumentName("unix-time", ttl_unit=Unit(1_000, is_absolute=True)),
    "unix-time-milliseconds": ArgumentName("unix-time", ttl_unit=Unit(1, is_absolute=True)),
    **_all("string", "field member member1 member2", role="field"),
    "index": ArgumentName("key", role="field"),  # of an array, or the name of a search index
    **_all("string", "value serialized-value", role="value"),
    "element": ArgumentName("string", role="element"),
    "id": ArgumentName("string", role="entry"),
    "min-idle-time": ArgumentName("string", role="idle time"),
    "path": ArgumentName("string", role="path"),
    **_all(
        "key",
        "destination destkey dst key key1 key2 newkey shardchannel source sourcekey src storedistkey "
        "storekey",
    ),
    **_all("double", "dim height latitude longitude radius score width"),
    **_all(
        "integer",
        "bit bits client-id cluster-bus-port config-epoch count cursor db decrement destination-db "
        "end-slot entries-added frequency index1 index2 len limit maxage ms num-matches numdims "
        "numfields numids numkeys numlocal numreplicas offset port protover rank slot start-slot ttl "
        "version weight",
    ),
    **_all("pattern", "pattern"),
    **_all(
        "string",
        "aggregations alias arg attributes blob capability category channel clientname close command "
        "command-name connection-name consumer digest dimension duration ef encoding end entries-read "
        "epsilon event factor filter function function-code group host iid increment indent ip ip:port "
        "language last-id lastid length libname library-name library-name-pattern libver max "
        "max-deleted-id message min mode modifier module-name name newline node-id number numlinks "
        "numprefixes open option parameter password pid pivot prefix regex replicationid rule script "
        "section sha1 size space start stop stream subcommand substring text threshold timeout type "
        "username yes/no",
    ),
}
"""The names of arguments in synopses."""

ROLES = {name: argument.role for name, argument in ARGUMENTS.items() if argument.role}
"""The names of arguments that have a role, with their roles."""
UNITS = {name: argument.ttl_unit for name, argument in ARGUMENTS.items() if argument.ttl_unit}
"""The names of arguments that are TTLs, with their units."""
