"""Known differences between the fake and the servers, each with its reason.

They count as differences in the printed rate.
"""

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
    for rule in KNOWN:
        if rule.applies(line, ours, theirs):
            return rule.reason
    return None


@dataclass(frozen=True)
class Known:
    """A known difference, and why it is not fixed."""

    reason: str
    applies: Callable[[list[bytes], Any, dict[str, Any]], bool]


_ODD_BOUND = re.compile(rb"\(?(?:\s|[+-]?0[xX])")


def _is_encoding(line: list[bytes]) -> bool:
    return [word.upper() for word in line[:2]] == [b"OBJECT", b"ENCODING"]


def _as_numbers(reply: Any) -> Any:
    """Convert strings that contain numbers to floats, recursively."""
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


def _of_valkey(
    name: bytes, applies: Callable[[list[bytes], Any, Any], bool]
) -> Callable[[list[bytes], Any, dict[str, Any]], bool]:
    """Return the condition for commands with a name or a pattern if Valkey's is the only reply."""
    return lambda line, ours, theirs: (
        set(theirs) == {"valkey"}
        and re.fullmatch(name, line[0].upper()) is not None
        and applies(line, ours, theirs["valkey"])
    )


def _error_with(text: bytes, reply: Any) -> bool:
    return isinstance(reply, Error) and text in reply.text


def _without_producers(reply: Any) -> Any:
    """Return a reply to XINFO STREAM without the fields about idempotent producers (Redis 8.6)."""
    if not isinstance(reply, list) or b"idmp-duration" not in reply:
        return reply
    first = reply.index(b"idmp-duration")
    return [*reply[:first], *reply[first + 12 :]]


def _without_counts(reply: Any) -> Any:
    """Return a reply to XINFO GROUPS without the values of ``entries-read``."""
    if not isinstance(reply, list):
        return reply
    at = reply.index(b"entries-read") + 1 if b"entries-read" in reply else None
    return [
        None if position == at else _without_counts(item) for position, item in enumerate(reply)
    ]


KNOWN: tuple[Known, ...] = (
    Known(
        "BITCOUNT and BITPOS: Valkey checks their arguments in another order than Redis 7.0 and the "
        "fake",
        _of_valkey(b"BITCOUNT|BITPOS", lambda line, ours, reply: True),
    ),
    Known(
        "GETEX of a missing key with an invalid TTL: Valkey returns an error, Redis 7.0 and the fake "
        "nil",
        _of_valkey(b"GETEX", lambda line, ours, reply: ours is None and isinstance(reply, Error)),
    ),
    Known(
        "SCAN, HSCAN, SSCAN and ZSCAN: Valkey rejects a negative cursor and an unknown type, and "
        "accepts white space before a cursor; the fake follows Redis 7.0",
        _of_valkey(b".*SCAN", lambda line, ours, reply: (
            _error_with(b"invalid cursor", reply)
            or _error_with(b"unknown type name", reply)
            or (_error_with(b"invalid cursor", ours) and any(word[:1].isspace() for word in line[1:3]))
        )),
    ),
    Known(
        "LSET with an index of more than 32 bits: Valkey truncates the index, so it may find an "
        "element; Redis 7.0 and the fake return an error",
        _of_valkey(b"LSET", lambda line, ours, reply: _error_with(b"index out of range", ours)
        and not -(2**31) <= int(line[2]) < 2**31),
    ),
    Known(
        "LREM with the smallest 64-bit integer as its count: Valkey rejects it, Redis 7.0 and the "
        "fake do not",
        _of_valkey(b"LREM", lambda line, ours, reply: line[2] == b"-9223372036854775808"),
    ),
    Known(
        "SORT of an empty string: Redis 7.0 and the fake count it as 0, Valkey returns an error",
        _of_valkey(b"SORT|SORT_RO", lambda line, ours, reply: isinstance(ours, list) and b"" in ours
        and _error_with(b"can't be converted into double", reply)),
    ),
    Known(
        "LIMIT with a negative offset: Redis 7.0 and the fake return nothing; in large sorted sets, "
        "Valkey counts from the end of the range",
        _of_valkey(b"Z.*", lambda line, ours, reply: any(
            word.upper() == b"LIMIT" and offset.startswith(b"-")
            for word, offset in itertools.pairwise(line)
        ) and not isinstance(ours, Error) and not isinstance(reply, Error)),
    ),
    Known(
        "score bounds: Valkey rejects leading white space and hexadecimal numbers, Redis 7.0 and the "
        "fake accept them",
        _of_valkey(b"Z.*", lambda line, ours, reply: _error_with(b"min or max is not a float", reply)
        and any(_ODD_BOUND.match(word) for word in line[2:])),
    ),
    Known(
        "a few error and help texts: Valkey has reworded them, the fake has those of Redis 7.0",
        _of_valkey(b"(?s).*", lambda line, ours, reply: (
            _error_with(b"could not decode requested zset member", ours)
            or _error_with(b"Unbalanced XREAD list", ours)
            or line[-1].upper() == b"HELP"
        )),
    ),
    Known(
        "XINFO STREAM: Valkey has no idempotent producers, which the fake has from version 8.6 on",
        _of_valkey(b"XINFO", lambda line, ours, reply: normalise(line, _without_producers(ours))
        == normalise(line, reply)),
    ),
    Known(
        "XINFO GROUPS: Valkey reports an ENTRIESREAD that exceeds the entries added, which the fake "
        "limits to these in its later versions",
        _of_valkey(b"XINFO", lambda line, ours, reply: line[1].upper() == b"GROUPS"
        and normalise(line, _without_counts(ours)) == normalise(line, _without_counts(reply))),
    ),
    Known(
        "OBJECT ENCODING and REFCOUNT: Redis 7.0 and the fake report a short string that was modified "
        "as raw, and share small integers; Valkey does neither",
        _of_valkey(b"OBJECT", lambda line, ours, reply: _is_encoding(line)
        or line[:2] == [b"OBJECT", b"REFCOUNT"]),
    ),
    Known(
        "numbers of more than 16 digits in scripts: Valkey prints them in full",
        _of_valkey(b"EVAL", lambda line, ours, reply: b"'n', 123456789012345678" in line[1]),
    ),
    Known(
        "the order of a Lua table: Valkey seeds its hashes, so it differs each time",
        _of_valkey(b"EVAL", lambda line, ours, reply: re.search(
            rb"for i = 1, \d+ do t\['\w'.*cjson.encode\(t\)", line[1]
        ) is not None),
    ),
    Known(
        "OBJECT ENCODING of a list that has shrunk: in a server it stays a quicklist while its "
        "elements are in two nodes, which the fake does not have",
        lambda line, ours, theirs: _is_encoding(line) and ours == b"listpack"
        and b"quicklist" in theirs.values(),
    ),
    Known(
        "pages of an incomplete scan: their content depends on the server's hash table",
        lambda line, ours, theirs: line[0].upper().endswith(b"SCAN")
        and all(isinstance(reply, list) for reply in (ours, *theirs.values()))
        and (
            any(reply[0] != b"0" for reply in (ours, *theirs.values()))
            or line[1 if line[0].upper() == b"SCAN" else 2] != b"0"
        ),
    ),
    Known(
        "the same score in another notation: Valkey does not always print the shortest form, and the "
        "sign of a zero depends on when a server changed the encoding",
        lambda line, ours, theirs: line[0].upper().startswith(b"Z")
        and _same_numbers(line, ours, theirs),
    ),
)  # fmt: skip
