"""Sets of commands by which reports and explorations judge what clients did: for example, one of
``LOSES_UPDATES`` after a read by the same client may have lost the update of another client.

They are derived from the command table. A new command belongs to the kinds that its row implies: by its
group, its flags, the flags of its keys, its arguments and its effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .exceptions import DELETES_RANGES, READ_OTHERS, RELEASES_ENTRIES
from .groups import GROUPS
from .keys import KeySpec
from .registry import COMMANDS, CommandSpec
from .synopsis import all_arguments


def _all(condition: Callable[[CommandSpec], bool]) -> frozenset[str]:
    return frozenset(name for name, spec in COMMANDS.items() if condition(spec))


def _takes_many(spec: CommandSpec) -> bool:
    """Return whether a command takes any number of its last argument."""
    return bool(spec.arguments) and spec.arguments[-1].multiple


def _removes(spec: CommandSpec) -> bool:
    """Return whether a command removes data of its first key, without returning them."""
    return bool(spec.keys) and spec.keys[0].only_deletes and not spec.keys[0].reads


def _stores(spec: CommandSpec) -> bool:
    """Return whether a command stores its arguments: values, elements, fields or members."""
    if "denyoom" not in spec.flags or spec.repetition == "derives":
        return False
    return spec.has_fields or not spec.roles.isdisjoint({"value", "element"})


# -- reads -----------------------------------------------------------------------------------------

SEARCHES = _all(lambda spec: spec.synopsis.startswith("index filter"))
"""Commands that search an index."""
RUNS_SCRIPT = _all(lambda spec: "no_mandatory_keys" in spec.flags)
"""Commands that run scripts and functions."""

SCRIPTS = _all(lambda spec: "no_mandatory_keys" in spec.flags and not spec.readonly)
"""Commands that run scripts and functions that may write."""

BLOCKING = _all(lambda spec: "blocking" in spec.flags)
"""Commands that may wait, some of them only with the option BLOCK."""

# -- what a repetition does (`CommandSpec.repetition`) ---------------------------------------------

LOSES_UPDATES = _all(
    lambda spec: (
        spec.repetition == "overwrites"
        and GROUPS[spec.group].compares_values
        and spec.name not in DELETES_RANGES
    )
)
"""Commands that replace or delete whole values of keys or fields, whatever these are, so that an update
by another client can be lost: those that overwrite values which explorations compare.
"""
CHANGES_AGAIN = _all(lambda spec: spec.repetition == "again")
"""Commands that change the data again each time they are repeated."""
TAKES = _all(lambda spec: spec.repetition == "takes")
"""Commands that take an element away, which another client then cannot take."""
MOVES = _all(lambda spec: spec.repetition == "moves")
"""Commands that move an element from their first key to the second."""
IF_NEW = _all(lambda spec: spec.repetition == "if-new")
"""Commands that only write what does not exist."""
IF_EQUAL = _all(lambda spec: spec.repetition == "if-equal")
"""Commands that only change a value that is equal to an argument."""
CONDITIONS = frozenset({
    "NX", "XX", "GT", "LT", "FNX", "FXX", "IFEQ", "IFNE", "IFDEQ", "IFDNE",
})  # fmt: skip
"""Options of writes that have no effect unless a condition holds."""
REPEATABLE = _all(
    lambda spec: spec.repetition in ("overwrites", "if-new", "if-equal", "idempotent")
)
"""Commands that change nothing when they are repeated."""

# -- additions -------------------------------------------------------------------------------------

APPENDS = _all(lambda spec: spec.name in CHANGES_AGAIN and _takes_many(spec))
"""Commands that add elements beside those that a key has."""
CREATES = _all(
    lambda spec: _stores(spec) and spec.name in REPEATABLE and GROUPS[spec.group].compares_creations
)
"""Commands that can create a key, a field or a member, and need not change an existing one."""
SCORES = _all(lambda spec: _stores(spec) and GROUPS[spec.group].has_scores and spec.has_fields)
"""Commands that give a member of a sorted set a score."""
EXPIRIES = _all(lambda spec: spec.changes_only_ttl and spec.ttl_unit is not None)
"""Commands that only set the TTL of a key."""

# -- removals --------------------------------------------------------------------------------------

ONLY_DELETES = _all(
    lambda spec: spec.changes_keys and all(key.only_deletes or not key.writes for key in spec.keys)
)
"""Commands that delete data of their keys and change nothing else."""
DELETES_ANY = _all(lambda spec: spec.name in LOSES_UPDATES and spec.keys[0].only_deletes)
"""Commands that delete the keys or fields in their arguments, whatever values these have."""
DELETIONS = _all(lambda spec: spec.name in DELETES_ANY and not spec.has_fields)
"""Commands that delete keys unconditionally."""
REMOVALS = _all(lambda spec: _removes(spec) and (spec.has_fields or "element" in spec.roles))
"""Commands that remove the fields, members or elements in their arguments, without returning them."""
CLAIMS = _all(lambda spec: "idle time" in spec.roles)
"""Commands that look for entries which a consumer of a stream has read and not acknowledged."""
FINISHES = _all(
    lambda spec: (
        spec.changes_keys
        and any(arg.role == "entry" and arg.multiple for arg in all_arguments(spec.arguments))
        and spec.name not in CLAIMS | RELEASES_ENTRIES
    )
)
"""Commands that acknowledge or delete entries of a stream, whose IDs are arguments."""
CONSUMES = TAKES | FINISHES
"""Commands that take elements or entries for good."""

# -- fields ----------------------------------------------------------------------------------------

FIELDS = _all(lambda spec: spec.has_fields and spec.only_key > 0) - READ_OTHERS
"""Commands that access only the fields, members or indexes in their arguments."""

# -- what a write leaves of the value before it ----------------------------------------------------

_ROOTS = frozenset({"$", "."})
"""The paths of whole documents."""


def adds_to(spec: CommandSpec, key: KeySpec, words: Sequence[str], part: str) -> bool:
    """Return whether a write changes the value of a key, or of a part of it, as RPUSH and INCR do, and
    neither replaces nor removes all of it, as SET, DEL and HSET do.
    """
    if part:
        # HEXPIRE changes a field, of which SADD has nothing else than that it is there.
        is_kept = spec.repetition == "idempotent" and "update" in key.flags
        return is_kept or spec.repetition == "again"
    if "RW" not in key.flags or spec.value_at or spec.other_ttl:
        return False
    if spec.repetition == "derives":
        return "insert" in key.flags  # PFMERGE
    if "path" in spec.roles and (spec.repetition == "overwrites" or key.only_deletes):
        return not _ROOTS.issuperset(spec.bound(words).with_role("path"))
    return spec.name not in DELETIONS | IF_EQUAL
