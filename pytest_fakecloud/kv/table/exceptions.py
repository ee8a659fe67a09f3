"""Facts about single commands that no column of ``commands.txt`` can say. Most have none of them."""

from __future__ import annotations

from ..syntax import option_places

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
OPTIONS_OF_READS = {b"GROUP": 3, b"COUNT": 2, b"BLOCK": 2}
"""Options with arguments, and their numbers of words with the name, that servers look for in XREAD and
XREADGROUP alike. Over REST, these commands are available without BLOCK.
"""

OTHER_TTLS = frozenset({"COPY", "MOVE", "RENAME", "RENAMENX", "RESTORE", "RESTORE-ASKING"})
"""Commands that set a TTL that is no argument, e.g. that of another key. Tests ask for a new one."""

READ_OTHERS = frozenset({"ARSEEK", "GEORADIUSBYMEMBER_RO", "ZRANK", "ZREVRANK"})
"""Commands with fields, members or indexes as arguments that access others. Tests ask for a new one."""

PUBLISHES = frozenset({"PUBLISH", "SPUBLISH"})
"""Commands whose first argument is a channel, and no other."""

ASSIGNS_ENTRIES = frozenset({"XREADGROUP"})
"""Commands that take entries from a stream for a consumer, but change no data of the user there."""

DELETES_RANGES = frozenset({"ARDELRANGE"})
"""Commands that overwrite indexes between their arguments. Explorations do not compare these."""


def _sort_keys(line: list[bytes]) -> dict[int, int]:
    """Return SORT's key, and the one after the last STORE, which it writes."""
    keys = {1: 0} if len(line) > 1 else {}
    stores = [
        at
        for at, word in option_places(line[:-1], 2, {b"LIMIT": 3, b"BY": 2, b"GET": 2})
        if word == b"STORE"
    ]
    return keys | {at + 1: -1 for at in stores[-1:]}


def _migrated_keys(line: list[bytes]) -> dict[int, int]:
    """Return MIGRATE's keys: argument 3, or those after KEYS if that is empty."""
    for at, word in option_places(line[:-1], 6, {b"AUTH": 2, b"AUTH2": 3}):
        if word == b"KEYS":
            return {} if line[3] else dict.fromkeys(range(at + 1, len(line)), 0)
    return {3: 0} if len(line) > 3 else {}


KEYS = {"MIGRATE": _migrated_keys, "SORT": _sort_keys}
"""For commands whose positions in the column *keys* are only those that real servers report, functions
that return the positions of all keys in a command line, each with the index of its spec in the column.
"""
