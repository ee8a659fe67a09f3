"""Differences that stay, each with its reason. They count in the rate all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def reason_for(line: list[bytes], ours: Any, theirs: dict[str, Any]) -> str | None:
    """Why this difference stays, or None when nobody knows."""
    for known in KNOWN:
        if known.applies(line, ours, theirs):
            return known.reason
    return None


@dataclass(frozen=True)
class Known:
    """A difference somebody looked at, and why it stays."""

    reason: str
    applies: Callable[[list[bytes], Any, dict[str, Any]], bool]


def _words(*words: bytes) -> Callable[[list[bytes]], bool]:
    return lambda line: [word.upper() for word in line[: len(words)]] == list(words)


_encoding = _words(b"OBJECT", b"ENCODING")


def _as_numbers(reply: Any) -> Any:
    """Texts that are numbers by value; zero has no sign then."""
    if isinstance(reply, list):
        return [_as_numbers(item) for item in reply]
    try:
        return float(reply)
    except (TypeError, ValueError):
        return reply


def _same_numbers(line: list[bytes], ours: Any, theirs: dict[str, Any]) -> bool:
    return any(_as_numbers(reply) == _as_numbers(ours) for reply in theirs.values())



KNOWN: tuple[Known, ...] = (
    Known(
        "INCRBYFLOAT leaves a whole number as text until it is set again; the engine keeps no "
        "mark of that and calls it an integer",
        lambda line, ours, theirs: _encoding(line) and ours == b"int"
        and all(reply in (b"embstr", b"raw") for reply in theirs.values()),
    ),
    Known(
        "a shrunken list stays a quicklist while its elements lie in two of the server's nodes, "
        "which the engine does not model",
        lambda line, ours, theirs: _encoding(line) and ours == b"listpack"
        and b"quicklist" in theirs.values(),
    ),
    Known(
        "a page of a scan that does not end is whatever the server's hash table has there",
        lambda line, ours, theirs: line[0].upper().endswith(b"SCAN")
        and all(isinstance(reply, list) for reply in (ours, *theirs.values()))
        and any(reply[0] != b"0" for reply in (ours, *theirs.values())),
    ),
    Known(
        "the same score, printed differently: Valkey's printer does not always find the shortest "
        "text, and the sign of a zero depends on when a server changed its encoding",
        lambda line, ours, theirs: line[0].upper().startswith(b"Z")
        and _same_numbers(line, ours, theirs),
    ),
)  # fmt: skip
