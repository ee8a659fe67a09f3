"""Rules that remove the parts of a reply in which two correct servers may differ.

A rule receives a command and one reply, and returns the reply without these parts. The same rules apply
to both sides. Each rule has a reason, which the documentation lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .templates import UNORDERED
from .wire import Error, NilArray, Status, Typed

Rule = Callable[[list[bytes], Any], Any]


@dataclass(frozen=True)
class Normalisation:
    """A rule, its commands, and its reason."""

    commands: frozenset[str]
    reason: str
    apply: Rule


def _rule(commands: str, reason: str, apply: Rule) -> Normalisation:
    return Normalisation(frozenset(commands.split()), reason, apply)


def _each(rule: Rule, line: list[bytes], reply: Any) -> Any:
    """Apply a rule to each item of a list or a RESP3 map."""
    if isinstance(reply, Typed):
        return Typed(reply.kind, _each(rule, line, reply.value))
    if isinstance(reply, list):
        return [rule(line, item) if not isinstance(item, Typed) else _each(rule, line, item)
                for item in reply]  # fmt: skip
    return reply


def _inside(rule: Rule) -> Rule:
    """Apply a rule to the content of a RESP3 set or map, if the reply is one."""

    def apply(line: list[bytes], reply: Any) -> Any:
        if isinstance(reply, Typed) and isinstance(reply.value, list):
            return Typed(reply.kind, apply(line, reply.value))
        return rule(line, reply)

    return apply


def _key(value: Any) -> str:
    return repr(value)


def _multiset(line: list[bytes], reply: Any) -> Any:
    if not isinstance(reply, list):
        return reply
    name = line[0].upper().decode()
    if name in ("SCAN", "SSCAN", "HSCAN", "ZSCAN") and len(reply) == 2:
        return [reply[0], _sorted(reply[1], 2 if name in ("HSCAN", "ZSCAN") else 1)]
    return _sorted(reply, 2 if name == "HGETALL" else 1)


def _sorted(items: Any, width: int) -> Any:
    if not isinstance(items, list) or len(items) % width:
        return items
    groups = [items[i : i + width] for i in range(0, len(items), width)]
    return sorted(groups, key=_key)


def _without_order_of_ties(line: list[bytes], reply: Any) -> Any:
    has_weights = b"BY" in (word.upper() for word in line[2:])
    return _sorted(reply, 1) if has_weights and isinstance(reply, list) else reply


class Near:
    """A time or duration that is equal to any other within a minute."""

    def __init__(self, value: int, minute: int) -> None:
        self.value = value
        self.minute = minute

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Near) and abs(self.value - other.value) <= self.minute

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"about {self.value}"


def _ttl(line: list[bytes], reply: Any) -> Any:
    """Replace TTLs by values that are equal if they differ by at most a minute."""
    if isinstance(reply, int) and reply > 1000:
        return Near(reply, 60_000 if line[0].upper().startswith((b"P", b"HP")) else 60)
    if isinstance(reply, list):
        return [_ttl(line, item) for item in reply]
    return reply


_AUTO_ID = re.compile(rb"\d{13}-\d+\Z")


def _clock_ids(line: list[bytes], reply: Any) -> Any:
    if isinstance(reply, bytes) and _AUTO_ID.match(reply):
        return b"<id of the clock>"
    return _each(_clock_ids, line, reply)


def _tree_nodes(line: list[bytes], reply: Any) -> Any:
    """Replace the number of nodes if an id comes from the clock: ids of one millisecond share one."""
    if isinstance(reply, Typed):
        return Typed(reply.kind, _tree_nodes(line, reply.value))
    if isinstance(reply, list) and b"radix-tree-nodes" in reply and _has_clock_id(reply):
        at = reply.index(b"radix-tree-nodes") + 1
        return [*reply[:at], b"<nodes>", *reply[at + 1 :]]
    return reply


def _has_clock_id(reply: Any) -> bool:
    if isinstance(reply, Typed):
        return _has_clock_id(reply.value)
    if isinstance(reply, list):
        return any(map(_has_clock_id, reply))
    return isinstance(reply, bytes) and _AUTO_ID.match(reply) is not None


def _milliseconds(line: list[bytes], reply: Any) -> Any:
    if isinstance(reply, int) and not isinstance(reply, bool) and reply > 1_600_000_000_000:
        return "<now>"
    return _each(_milliseconds, line, reply)


_IDLE = (b"idle", b"inactive")


def _idle(line: list[bytes], reply: Any) -> Any:
    """Replace values after idle and inactive in XINFO CONSUMERS, the third of four in XPENDING."""
    if not isinstance(reply, list):
        return reply
    if line[0].upper() == b"XPENDING":
        return [
            [*item[:2], "<idle>", item[3]] if isinstance(item, list) and len(item) == 4 else item
            for item in reply
        ]
    entries = []
    for item in reply:
        pairs = item.value if isinstance(item, Typed) else item
        pairs = list(pairs) if isinstance(pairs, list) else pairs
        if isinstance(pairs, list):
            for at in range(0, len(pairs) - 1, 2):
                if pairs[at] in _IDLE and isinstance(pairs[at + 1], int) and pairs[at + 1] >= 0:
                    pairs[at + 1] = "<idle>"
        entries.append(pairs)
    return entries


_WORDING = (
    (rb"script: [0-9a-f]{40}, on", b"script: on"),
    (rb" (Redis|Valkey) command", b" command"),
    (rb"(redis|server)\.(\w+)\(\)", rb"\2()"),
    (rb"Lua redis lib command arguments", b"Command arguments"),
    (rb"this redis lib call", b"this call"),
    (rb"Invalid debug level", b"Invalid log level"),
    (rb"set_repl\(\) requires two arguments", b"set_repl() requires one argument"),
)


def _wording(line: list[bytes], reply: Any) -> Any:
    if isinstance(reply, bytes):
        for pattern, wording in _WORDING:
            reply = re.sub(pattern, wording, reply)
        return reply
    if isinstance(reply, Error | Status):
        return type(reply)(_wording(line, reply.text))
    return _each(_wording, line, reply)


RULES: tuple[Normalisation, ...] = (
    _rule(
        "EVAL",
        "Valkey omits the digest of the script in errors, and has reworded some of them",
        _wording,
    ),
    Normalisation(
        UNORDERED, "the order of sets, hashes and scans depends on the hash table", _multiset
    ),
    _rule(
        "TTL PTTL HTTL HPTTL EXPIRETIME PEXPIRETIME HEXPIRETIME HPEXPIRETIME",
        "time passes between the requests to the two servers",
        _ttl,
    ),
    _rule(
        "XINFO",
        "ids of the clock that fall in one millisecond on one server need fewer nodes",
        _tree_nodes,
    ),
    _rule(
        "XADD XRANGE XREVRANGE XREAD XREADGROUP XINFO XPENDING XCLAIM XAUTOCLAIM",
        "ids contain the time, which passes between the requests to the two servers",
        _clock_ids,
    ),
    _rule(
        "SORT SORT_RO",
        "the order of elements with equal weights follows the random order of a server's tables",
        _without_order_of_ties,
    ),
    _rule("XINFO", "delivery times are read from each server's clock", _milliseconds),
    _rule("XINFO XPENDING", "idle times are measured on each server's clock", _idle),
)


def normalise(line: list[bytes], reply: Any) -> Any:
    """Return the reply without the parts that may differ."""
    if isinstance(reply, NilArray) or not line:
        return reply
    name = line[0].upper().decode("latin-1")
    for rule in RULES:
        if name in rule.commands and (rule.apply is _wording or not isinstance(reply, Error)):
            reply = _inside(rule.apply)(line, reply)
    return reply
