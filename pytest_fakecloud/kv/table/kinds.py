"""Kinds of commands that reports and explorations distinguish, derived from the command table.

A new command belongs to the kinds that its row implies: by its group, its flags, the flags of its keys,
its arguments and its effects.
"""

from __future__ import annotations

from collections.abc import Callable

from .groups import GROUPS
from .registry import COMMANDS, CommandSpec


def _all(condition: Callable[[CommandSpec], bool]) -> frozenset[str]:
    return frozenset(name for name, spec in COMMANDS.items() if condition(spec))


def _declared(effect: str) -> frozenset[str]:
    """Return the commands whose rows declare an effect."""
    return _all(lambda spec: effect in spec.effects.words)


def _takes_many(spec: CommandSpec) -> bool:
    """Return whether a command takes any number of its last argument."""
    return bool(spec.arguments) and spec.arguments[-1].multiple


def _flags(spec: CommandSpec, index: int = 0) -> frozenset[str]:
    """Return the flags of the key at an index of a command's key specs; none if there is no such key."""
    return frozenset(spec.keys[index].flags) if index < len(spec.keys) else frozenset()


def _stores(spec: CommandSpec) -> bool:
    """Return whether a command stores data that its client sends."""
    return spec.write and "denyoom" in spec.flags and bool(spec.keys) and not spec.derives


# -- reads -----------------------------------------------------------------------------------------

READS = _all(lambda spec: spec.readonly and bool(spec.keys) and spec.group != "scripting")
"""Commands that read keys."""
COUNTS = _declared("count")
"""Commands that return a number of elements, or a length."""
ASKS_FOR_NAMES = _declared("names")
"""Commands that read the names of keys or fields and not their values."""
SCRIPTS = _all(lambda spec: "no_mandatory_keys" in spec.flags and not spec.readonly)
"""Commands that run scripts and functions that may write."""

BLOCKING = _all(lambda spec: "blocking" in spec.flags)
"""Commands that may wait, some of them only with the option BLOCK."""

# -- what a repetition does ------------------------------------------------------------------------


def repetition(spec: CommandSpec) -> str:
    """Return what a command does to its keys when it is repeated: a word of its row, which
    ``commands.txt`` explains; an empty string if it changes no keys. Without a word, it

    - ``derives`` the data again: denyoom, and a key that it only reads;
    - ``takes`` another element: one key with access and delete, of a list, a set or a sorted set;
    - ``moves`` another element: such a key, and a second one with RW and insert;
    - or changes ``nothing``.
    """
    if not (spec.write and any(key.writes for key in spec.keys)):
        return ""
    if spec.effects.repetition:
        return spec.effects.repetition
    if spec.derives:
        return "derives"
    if {"access", "delete"} <= _flags(spec):
        if len(spec.keys) == 1 and GROUPS[spec.group].is_collection:
            return "takes"
        if {"RW", "insert"} <= _flags(spec, 1):
            return "moves"
    return "nothing"


OVERWRITES = _all(lambda spec: repetition(spec) == "overwrites")
"""Commands whose effect does not depend on the data that they overwrite or delete."""
CHANGES_AGAIN = _all(lambda spec: repetition(spec) == "again")
"""Commands that change the data again each time they are repeated."""
TAKES = _all(lambda spec: repetition(spec) == "takes")
"""Commands that take an element away, which another client then cannot take."""
MOVES = _all(lambda spec: repetition(spec) == "moves")
"""Commands that move an element from their first key to the second."""
REPEATABLE = OVERWRITES | _all(lambda spec: repetition(spec) == "nothing")
"""Commands that change nothing when they are repeated."""

# -- additions -------------------------------------------------------------------------------------

IF_NEW = _declared("if-new")
"""Commands that only write what does not exist."""
ADDS = _all(lambda spec: _stores(spec) and GROUPS[spec.group].is_collection and _takes_many(spec))
"""Commands that add any number of elements to a key."""
APPENDS = _all(lambda spec: spec.name in CHANGES_AGAIN and _takes_many(spec))
"""Commands that add elements beside those that a key has."""
CREATES = _all(
    lambda spec: (
        _stores(spec)
        and spec.name in REPEATABLE
        and spec.group in ("string", "hash", "set", "sorted-set")
    )
)
"""Commands that can create a key, a field or a member, and need not change an existing one."""
SCORES = _all(
    lambda spec: _stores(spec) and spec.group in ("sorted-set", "geo") and spec.has_fields
)
"""Commands that give a member of a sorted set a score."""
EXPIRIES = _all(lambda spec: spec.group == "generic" and spec.effects.ttl_unit is not None)
"""Commands that only set the TTL of a key."""

# -- removals --------------------------------------------------------------------------------------

DELETIONS = _all(
    lambda spec: (
        spec.name in OVERWRITES and spec.group in ("generic", "string") and "delete" in _flags(spec)
    )
)
"""Commands that delete keys unconditionally."""
REMOVALS = _declared("removes")
"""Commands that remove the fields, members or elements that their words name."""
CLAIMS = _declared("claims")
"""Commands that look for entries which a consumer of a stream has read and not acknowledged."""
FINISHES = _declared("finishes")
"""Commands that acknowledge or delete entries of a stream."""
CONSUMES = TAKES | FINISHES
"""Commands that take elements or entries for good."""
OF_QUEUES = CLAIMS | _all(
    lambda spec: (
        spec.name in CONSUMES | MOVES
        or (spec.group in ("list", "stream") and _flags(spec) == {"RW", "delete"})
        or (spec.group == "stream" and spec.write and _flags(spec) == {"RO", "access"})
    )
)
"""Commands that take certain elements from a list or a stream, whatever others append to it."""

# -- fields ----------------------------------------------------------------------------------------

FIELDS = _all(lambda spec: spec.has_fields and spec.only_key > 0 and not spec.effects.whole)
"""Commands that access only the fields, members or indexes in their arguments."""
