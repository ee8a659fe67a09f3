"""Whether a command did something, as its result says: the only place that decides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..table import kinds
from ..table.registry import CommandSpec

_REMOVES = (kinds.ONLY_DELETES | kinds.TAKES | kinds.MOVES) - {"XGROUP DELCONSUMER"}
"""Commands that reply with a number of removed elements, or with what they removed."""
CLAIMS = {"XAUTOCLAIM", "XCLAIM", "XREADGROUP"}
"""Commands that make entries of streams those of a consumer, and return them."""
_COUNTS_CHANGES = kinds.IF_NEW | kinds.EXPIRIES | {
    "COPY", "LINSERT", "LPUSHX", "MOVE", "PERSIST", "PFADD", "RENAMENX", "RPUSHX", "SADD", "XACK",
}  # fmt: skip
"""Writes whose answer 0 says that nothing changed. That of others, such as HSET, is no such number."""
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
