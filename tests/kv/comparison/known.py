"""Known differences, each with its reason. They count in the rate."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .normalise import normalise
from .wire import Error, Typed


def reason_for(line: list[bytes], ours: Any, theirs: dict[str, Any]) -> str | None:
    """Return the reason for a known difference, or None."""
    for known in KNOWN:
        if known.applies(line, ours, theirs):
            return known.reason
    return None


@dataclass(frozen=True)
class Known:
    """A difference that was examined, and why it stays."""

    reason: str
    applies: Callable[[list[bytes], Any, dict[str, Any]], bool]


def _words(*words: bytes) -> Callable[[list[bytes]], bool]:
    return lambda line: [word.upper() for word in line[: len(words)]] == list(words)


_ODD_BOUND = re.compile(rb"\(?(?:\s|[+-]?0[xX])")
_encoding = _words(b"OBJECT", b"ENCODING")


def _as_numbers(reply: Any) -> Any:
    """Return strings that are numbers by value; zero has no sign then."""
    if isinstance(reply, Typed):
        return Typed(reply.kind, _as_numbers(reply.value))
    if isinstance(reply, list):
        return [_as_numbers(item) for item in reply]
    try:
        return float(reply)
    except (TypeError, ValueError):
        return reply


def _same_numbers(line: list[bytes], ours: Any, theirs: dict[str, Any]) -> bool:
    ours = normalise(line, _as_numbers(ours))
    return any(normalise(line, _as_numbers(reply)) == ours for reply in theirs.values())


def _only_valkey(*commands: bytes) -> Callable[[list[bytes], Any, dict[str, Any]], bool]:
    return lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper() in commands


def _error_with(text: bytes, reply: Any) -> bool:
    return isinstance(reply, Error) and text in reply.text


KNOWN: tuple[Known, ...] = (
    Known(
        "BITCOUNT and BITPOS as in Redis 7.0: Valkey reads their arguments in another order",
        _only_valkey(b"BITCOUNT", b"BITPOS"),
    ),
    Known(
        "GETEX of a key that is not there: Valkey looks at the expiry first",
        lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper() == b"GETEX"
        and ours is None and isinstance(theirs["valkey"], Error),
    ),
    Known(
        "SCAN and its like as in Redis 7.0: Valkey refuses a cursor below zero and a type it has not, "
        "and takes a cursor with white space before it",
        lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper().endswith(b"SCAN")
        and (
            _error_with(b"invalid cursor", theirs["valkey"])
            or _error_with(b"unknown type name", theirs["valkey"])
            or (_error_with(b"invalid cursor", ours) and any(word[:1].isspace() for word in line[1:3]))
        ),
    ),
    Known(
        "LSET beyond 32 bits as in Redis 7.0: Valkey leaves out what is above them, and may find an "
        "element there",
        lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper() == b"LSET"
        and _error_with(b"index out of range", ours) and not -(2**31) <= int(line[2]) < 2**31,
    ),
    Known(
        "LREM at the least integer as in Redis 7.0: Valkey refuses it",
        lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper() == b"LREM"
        and line[2] == b"-9223372036854775808",
    ),
    Known(
        "SORT takes an empty text for 0 as in Redis 7.0: for Valkey it is no number",
        lambda line, ours, theirs: set(theirs) == {"valkey"}
        and line[0].upper() in (b"SORT", b"SORT_RO") and isinstance(ours, list) and b"" in ours
        and _error_with(b"can't be converted into double", theirs["valkey"]),
    ),
    Known(
        "LIMIT with an offset below zero as in Redis 7.0, which finds nothing: of large sorted sets, "
        "Valkey counts it from the end of what is between the bounds",
        lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper().startswith(b"Z")
        and any(
            word.upper() == b"LIMIT" and offset.startswith(b"-")
            for word, offset in itertools.pairwise(line)
        )
        and not isinstance(ours, Error) and not isinstance(theirs["valkey"], Error),
    ),
    Known(
        "bounds of scores as in Redis 7.0: Valkey refuses white space before them, and hexadecimals",
        lambda line, ours, theirs: set(theirs) == {"valkey"} and line[0].upper().startswith(b"Z")
        and _error_with(b"min or max is not a float", theirs["valkey"])
        and any(_ODD_BOUND.match(word) for word in line[2:]),
    ),
    Known(
        "the words of Redis 7.0, which differ in Valkey",
        lambda line, ours, theirs: set(theirs) == {"valkey"}
        and (
            _error_with(b"could not decode requested zset member", ours)
            or _error_with(b"Unbalanced XREAD list", ours)
            or line[-1].upper() == b"HELP"
        ),
    ),
    Known(
        "Redis 7.0 calls a short string that was changed raw and shares small integers; "
        "Valkey does neither",
        lambda line, ours, theirs: set(theirs) == {"valkey"}
        and (_encoding(line) or line[:2] == [b"OBJECT", b"REFCOUNT"]),
    ),
    Known(
        "a shrunken list stays a quicklist while its elements lie in two of the server's nodes, "
        "which the engine does not model",
        lambda line, ours, theirs: _encoding(line) and ours == b"listpack"
        and b"quicklist" in theirs.values(),
    ),
    Known(
        "a page of a scan that is not all of it is whatever the server's hash table has there",
        lambda line, ours, theirs: line[0].upper().endswith(b"SCAN")
        and all(isinstance(reply, list) for reply in (ours, *theirs.values()))
        and (
            any(reply[0] != b"0" for reply in (ours, *theirs.values()))
            or line[1 if line[0].upper() == b"SCAN" else 2] != b"0"
        ),
    ),
    Known(
        "the same score, printed differently: Valkey's printer does not always find the shortest "
        "text, and the sign of a zero depends on when a server changed its encoding",
        lambda line, ours, theirs: line[0].upper().startswith(b"Z")
        and _same_numbers(line, ours, theirs),
    ),
)  # fmt: skip
