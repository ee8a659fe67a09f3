"""Facts about single commands that no column of ``commands.txt`` can say. Most have none of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..syntax import option_places
from .keys import KeySpec

ARITIES = {"COMMAND": -1, "PSYNC": -3, "QUIT": -1}
"""The arities of commands that accept other numbers of words than their synopsis shows."""
FREE_ARITIES = frozenset({"UNLINK"})
"""Commands that the vendor's service accepts with any number of words, according to users of its
clients.
"""

PROTECTIONS = {
    "DEBUG": "enable-debug-command",
    **dict.fromkeys(("MODULE LOAD", "MODULE LOADEX", "MODULE UNLOAD"), "enable-module-command"),
}
"""The commands that a parameter has to allow, with the parameter."""

AVAILABLE_OVER_REST = frozenset({"CLIENT SETINFO", "ECHO", "PING", "WAIT", "WAITAOF"})
"""Commands that are available over REST, although they block or others of their group are not."""
UNAVAILABLE_OVER_REST = frozenset({
    "DISCARD", "MONITOR", "PSUBSCRIBE", "PUNSUBSCRIBE", "SPUBLISH", "SSUBSCRIBE", "SUBSCRIBE",
    "SUNSUBSCRIBE", "UNSUBSCRIBE", "UNWATCH", "WATCH",
})  # fmt: skip
"""Commands that are not, although they do not block and others of their group are available."""
OPTIONS_OF_READS = {b"GROUP": 3, b"COUNT": 2, b"BLOCK": 2, b"CLAIM": 2}
"""Options with arguments, and their numbers of words with the name, that servers look for in XREAD and
XREADGROUP alike. Over REST, these commands are available without BLOCK.
"""

OTHER_TTLS = frozenset({"COPY", "MOVE", "RENAME", "RENAMENX", "RESTORE", "RESTORE-ASKING"})
"""Commands that set a TTL that is no argument, e.g. that of another key. Tests ask for a new one."""

REMOVES_TTLS = frozenset({"PERSIST"})
"""Commands that do nothing but remove the TTL of a key."""

READ_OTHERS = frozenset({"ARSEEK", "GEORADIUSBYMEMBER_RO", "ZRANK", "ZREVRANK"})
"""Commands with fields, members or indexes as arguments that access others. Tests ask for a new one."""

PUBLISHES = frozenset({"PUBLISH", "SPUBLISH"})
"""Commands whose first argument is a channel, and no other."""

RELEASES_ENTRIES = frozenset({"XNACK"})
"""Commands that return pending entries of a stream to its group, where other consumers claim them."""

DELETES_RANGES = frozenset({"ARDELRANGE"})
"""Commands that overwrite indexes between their arguments. Explorations do not compare these."""


_READS, _CHANGES = KeySpec("RO access 1"), KeySpec("RW access update 1")
_REPLACES, _TAKES = KeySpec("OW update 1"), KeySpec("RW access delete 1")


def _keys_of_set(line: list[bytes]) -> Iterator[tuple[int, KeySpec]]:
    """Yield the key of SET, which returns the former value with GET."""
    has_get = any(word.upper() == b"GET" for word in line[3:])
    yield 1, _CHANGES if has_get else _REPLACES


def _keys_of_bitfield(line: list[bytes]) -> Iterator[tuple[int, KeySpec]]:
    """Yield the key of BITFIELD. Only a line of complete GET and OVERFLOW operations does not write."""
    at = 2
    while at < len(line):
        at += {b"GET": 3, b"OVERFLOW": 2}.get(line[at].upper(), len(line))
    yield 1, _READS if at == len(line) else _CHANGES


def _keys_of_sort(line: list[bytes]) -> Iterator[tuple[int, KeySpec]]:
    """Yield the key of SORT and its destination, which is after the last STORE."""
    yield 1, _READS
    options = option_places(line[:-1], 2, {b"LIMIT": 3, b"BY": 2, b"GET": 2})
    stores = [at for at, word in options if word == b"STORE"]
    if stores:
        yield stores[-1] + 1, _REPLACES


def _keys_of_migrate(line: list[bytes]) -> Iterator[tuple[int, KeySpec]]:
    """Yield the keys of MIGRATE: argument 3, or those after KEYS if that is empty."""
    places = range(3, 4)
    for at, word in option_places(line[:-1], 6, {b"AUTH": 2, b"AUTH2": 3}):
        if word == b"KEYS":
            places = range(0) if line[3] else range(at + 1, len(line))
            break
    for place in places:
        yield place, _TAKES


KEYS = {
    "BITFIELD": _keys_of_bitfield,
    "MIGRATE": _keys_of_migrate,
    "SET": _keys_of_set,
    "SORT": _keys_of_sort,
}
"""For commands of whose keys real servers report less than they know of a command line, functions that
yield the position of each key in a line, and what the line does to the key.
"""
