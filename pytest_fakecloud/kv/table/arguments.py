"""The names of arguments in synopses. A name means the same in every command, and decides what becomes
of the words of command lines. A synopsis with another name is an error at import.
"""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """The unit of a TTL: its length, and whether numbers are Unix times and not durations."""

    milliseconds: int
    is_absolute: bool = False


class ArgumentName(NamedTuple):
    """What the arguments with a name are.

    - ``type`` is their type in ``COMMAND DOCS``; ``string`` if servers say different ones of different
      commands. A ``key`` is a string in commands whose rows have no position for it.
    - ``is_field``: they are fields, members or indexes of a value, in the groups with ``has_fields``
      (`groups.py`). Reports and explorations compare them.
    - ``ttl_unit`` is the unit if they are TTLs, unless an option is before them. The options that set a
      TTL are in `ttl.py`.
    """

    type: str
    is_field: bool = False
    ttl_unit: Unit | None = None


def _all(type: str, names: str) -> dict[str, ArgumentName]:
    return dict.fromkeys(names.split(), ArgumentName(type))


ARGUMENTS = {
    "seconds": ArgumentName("integer", ttl_unit=Unit(1_000)),
    "milliseconds": ArgumentName("integer", ttl_unit=Unit(1)),
    "unix-time-seconds": ArgumentName("unix-time", ttl_unit=Unit(1_000, is_absolute=True)),
    "unix-time-milliseconds": ArgumentName("unix-time", ttl_unit=Unit(1, is_absolute=True)),
    "field": ArgumentName("string", is_field=True),
    "member": ArgumentName("string", is_field=True),
    "member1": ArgumentName("string", is_field=True),
    "member2": ArgumentName("string", is_field=True),
    "index": ArgumentName("key", is_field=True),  # of an array, or the name of a search index
    # The new value of a key with OW, or of a string that is overwritten (`CommandSpec.value_at`).
    **_all("string", "value serialized-value"),
    # `kinds.py` asks for these: elements of a list, entries of a stream, and how long another
    # consumer has had the entries that the command claims.
    **_all("string", "element id min-idle-time"),
    # A part of a JSON document, which explorations compare as they do fields.
    **_all("string", "path"),
    **_all(
        "key",
        "destination destkey dst key key1 key2 newkey shardchannel source sourcekey src storedistkey "
        "storekey",
    ),
    **_all("double", "height latitude longitude radius score width"),
    **_all(
        "integer",
        "bit bits client-id cluster-bus-port config-epoch count cursor db decrement destination-db "
        "end-slot entries-added frequency index1 index2 len limit ms num-matches numfields numids "
        "numkeys numlocal numreplicas offset port protover rank slot start-slot ttl version weight",
    ),
    **_all("pattern", "pattern"),
    **_all(
        "string",
        "aggregations alias arg blob capability category channel clientname close command command-name "
        "connection-name consumer digest dimension encoding end entries-read event factor filter "
        "function function-code group host increment indent ip ip:port language last-id lastid length "
        "libname library-name library-name-pattern libver max max-deleted-id message min mode modifier "
        "module-name name newline node-id number numprefixes open option parameter password pivot "
        "prefix regex replicationid rule script section sha1 size space start stop stream subcommand "
        "substring text threshold timeout type username yes/no",
    ),
}
"""The names of arguments in synopses."""

FIELD_NAMES = tuple(name for name, argument in ARGUMENTS.items() if argument.is_field)
"""The names of arguments that are fields, members or indexes."""
UNITS = {name: argument.ttl_unit for name, argument in ARGUMENTS.items() if argument.ttl_unit}
"""The names of arguments that are TTLs, with their units."""
