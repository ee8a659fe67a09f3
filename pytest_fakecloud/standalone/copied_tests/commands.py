"""Commands that make keys again and read them, and replies as a client of RESP2 gets them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...inspect.data import read_time

OF_SERVER = re.compile(
    r"(?i)KEYS|SCAN|DBSIZE|RANDOMKEY|INFO|TIME|CLIENT|CONFIG|COMMAND|ACL|FUNCTION|FCALL|FCALL_RO"
    r"|SCRIPT|EVALSHA|EVALSHA_RO|PUBSUB|SPUBLISH|P?SUBSCRIBE|P?UNSUBSCRIBE|MONITOR|MULTI|EXEC|WATCH"
    r"|HELLO|AUTH|SELECT|WAIT|LASTSAVE|SLOWLOG|LATENCY|MEMORY|CLUSTER|SEARCH\.\w+|FT\.\w+"
)
"""Commands whose reply depends on more than the data of their keys."""
RANDOM = re.compile(r"(?i)SPOP|SRANDMEMBER|HRANDFIELD|ZRANDMEMBER")
"""Commands whose reply differs each time."""
_MADE_BY: Mapping[str, Callable[[str, Any], list[str]]] = {
    "string": lambda key, value: ["SET", key, value],
    "list": lambda key, value: ["RPUSH", key, *value],
    "set": lambda key, value: ["SADD", key, *value],
    "hash": lambda key, value: ["HSET", key, *_flat(value)],
    "zset": lambda key, value: [
        "ZADD", key, *(word for member, score in value.items() for word in (_score(score), member))
    ],
    "ReJSON-RL": lambda key, value: ["JSON.SET", key, "$", json.dumps(value, ensure_ascii=False)],
}  # fmt: skip
"""The command that makes a key of each type with a value, as the state of a fake has it."""
_READ_BY: Mapping[str, Callable[[str, Any], tuple[list[str], Any]]] = {
    "string": lambda key, value: (["GET", key], value),
    "list": lambda key, value: (["LRANGE", key, "0", "-1"], value),
    "set": lambda key, value: (["SCARD", key], len(value)),
    "hash": lambda key, value: (["HGETALL", key], _flat(value)),
    "zset": lambda key, value: (
        ["ZRANGE", key, "0", "-1"],
        sorted(value, key=lambda member: (value[member], member.encode())),
    ),
}
"""A command that reads a key of each type, and its reply."""
_LONGEST = 100_000
"""Maximum number of characters of a value in the text of a test."""


def made_again(key: str, item: Mapping[str, Any]) -> list[list[str]] | None:
    """Return commands that make a key with its value and its TTLs; None for a type without one."""
    make = _MADE_BY.get(item["type"])
    if make is None:
        return None
    lines = [make(key, item["value"])]
    for name, at in item.get("fields expire", {}).items():
        lines.append(["HPEXPIREAT", key, _milliseconds(at), "FIELDS", "1", name])
    if item["expires"]:
        lines.append(["PEXPIREAT", key, _milliseconds(item["expires"])])
    return lines


def reading(key: str, item: Mapping[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """Yield the command that reads a key, with its reply; nothing for other types, or a long value."""
    read = _READ_BY.get(item["type"])
    if read is not None and not is_long(item):
        yield read(key, item["value"])


def is_text(key: str, item: Mapping[str, Any]) -> bool:
    r"""Return whether a key is text: bytes that are not UTF-8 are shown as ``\xff``."""
    return not key.startswith(("b'", 'b"')) and "\\x" not in json.dumps([key, item["value"]])


def is_long(item: Mapping[str, Any]) -> bool:
    """Return whether the value of a key is too long for the text of a test."""
    return len(json.dumps(item["value"])) > _LONGEST


def as_resp2(reply: Any) -> Any:
    """Return a reply as RESP2 has it: a map is a list of names and values."""
    if isinstance(reply, bool):
        return int(reply)
    if isinstance(reply, dict):
        return [as_resp2(part) for pair in reply.items() for part in pair]
    return [as_resp2(part) for part in reply] if isinstance(reply, list) else reply


def has_fraction(reply: Any) -> bool:
    """Return whether a reply has floating-point numbers, which clients read in different ways."""
    if isinstance(reply, dict | list):
        return any(map(has_fraction, reply.values() if isinstance(reply, dict) else reply))
    return isinstance(reply, float)


def _flat(value: Mapping[str, str]) -> list[str]:
    return [word for pair in value.items() for word in pair]


def _score(score: float) -> str:
    return repr(score).removesuffix(".0") if isinstance(score, float) else str(score)


def _milliseconds(shown: str) -> str:
    """Return the milliseconds since 1970 of a time such as ``2026-01-01 00:15:00.000 UTC``."""
    return str(round(read_time(shown).timestamp() * 1000))
