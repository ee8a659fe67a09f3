"""What a command did: whether it did something, as its result says, and whether it kept the value that
it changed. No other module decides this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..table import kinds
from ..table.keys import KeySpec
from ..table.registry import CommandSpec

_REMOVES = (kinds.ONLY_DELETES | kinds.TAKES | kinds.MOVES) - {"XGROUP DELCONSUMER"}
"""Commands that reply with a number of removed elements, or with what they removed."""
CLAIMS = {"XAUTOCLAIM", "XCLAIM", "XREADGROUP"}
"""Commands that make entries of streams those of a consumer, and return them."""
_COUNTS_CHANGES = kinds.IF_NEW | kinds.EXPIRIES | {
    "COPY", "LINSERT", "LPUSHX", "MOVE", "PERSIST", "PFADD", "RENAMENX", "RPUSHX", "SADD", "XACK",
}  # fmt: skip
"""Writes whose answer 0 says that nothing changed. That of others, such as HSET, is no such number."""
_ROOTS = frozenset({"$", "."})
"""The paths of whole documents."""
_ZERO_IS_FOUND = {"GETBIT", "JSON.ARRINDEX", "LPOS", "PTTL", "TTL", "ZRANK", "ZREVRANK"}
"""Reads whose answer 0 is a value or a position, and not the number of what they found."""


def did_something(spec: CommandSpec, words: Sequence[str], result: Any) -> bool | None:
    """Return False if a condition of a command, such as NX, was not met, or if there was nothing to
    read, to change or to remove; None if the result does not say it.
    """
    if spec.name in CLAIMS and isinstance(result, list | dict):
        return _has_entries(spec, result)
    if spec.name in _REMOVES:
        removed = result if isinstance(result, list) else [result or None]
        return any(item is not None for item in removed)
    if spec.write:
        return _has_written(spec, words, result)
    items = result if isinstance(result, list) else [result]
    is_zero = type(result) is int and result == 0 and spec.name not in _ZERO_IS_FOUND
    return not is_zero and any(item is not None for item in items)


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
    return spec.name not in kinds.DELETIONS | kinds.IF_EQUAL


def _has_written(spec: CommandSpec, words: Sequence[str], result: Any) -> bool | None:
    options = spec.bound(words).options
    if "GET" in options:
        # The result is the former value, also if NX or XX prevented the write.
        return True if options.isdisjoint(kinds.CONDITIONS) else None
    if spec.name == "INCREX" and isinstance(result, list):
        # It changes nothing, and adds 0, if the bounds exclude the new number.
        return result[1] not in (0, "0") or "SATURATE" in options
    if result is None:
        return spec.name == "GETSET"
    counts_changes = spec.name in _COUNTS_CHANGES or not options.isdisjoint({"NX", "XX"})
    return result != 0 or not counts_changes


def _has_entries(spec: CommandSpec, result: list[Any] | dict[str, Any]) -> bool:
    """Return whether the result of a command that delivers entries has any."""
    if isinstance(result, dict):
        return any(result.values())
    if spec.name == "XAUTOCLAIM":
        return any(result[1:])  # without the ID to continue from
    if spec.name == "XREADGROUP":
        return any(item[1:] != [[]] if isinstance(item, list) else item for item in result)
    return bool(result)
