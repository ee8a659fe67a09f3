"""Findings about writes of several clients to the same key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...model import Finding
from ..look import Look, about_key
from .commands import by_execution

if TYPE_CHECKING:
    from ....core.calls import Call


def lost_update(look: Look, handle: Any) -> Iterator[Finding]:
    """Find SET commands that replaced a value which another connection wrote after this
    connection's GET.
    """
    read: dict[tuple[object, str], tuple[int, Any]] = {}
    watched: dict[tuple[object, str], int] = {}
    written: dict[str, tuple[int, object, str]] = {}
    for at, (call, line, result) in enumerate(by_execution(look, handle)):
        if call.client is None or len(line) < 2:
            continue
        mine = call.client, line[1]
        if line[0] == "WATCH":
            watched.update(((call.client, key), at) for key in line[1:])
        elif line[0] == "GET":
            read[mine] = at, result
        elif line[0] == "SET" and len(line) == 3:
            since, was = read.pop(mine, (at, None))
            after, whose, value = written.get(line[1], (-1, None, ""))
            # `check_then_set` reports keys that did not exist.
            raced = after > since and whose != call.client and was not in (None, value)
            if raced:
                late = watched.get(mine, -1) > after
                values = {"written": line[2], "overwritten": value, "read": was}
                yield about_key("lost_update", call, line[1], watch_late=late, **values)
            written[line[1]] = at, call.client, line[2]


_CHECKS = {"GET": 2, "EXISTS": 2, "HGET": 3, "HEXISTS": 3}
"""Commands that check for a value, with the number of words up to the key or field."""
_UNCHECKED = {"SET": 2, "HSET": 3}
"""Unconditional writes, with the number of words up to the key or field."""


def check_then_set(look: Look, handle: Any) -> Iterator[Finding]:
    """Find clients that both found a value missing, within a second, and then both wrote it."""
    seen: dict[tuple[str, ...], list[tuple[Call, str]]] = {}
    for call, line, result in by_execution(look, handle):
        name, options = line[0], set(map(str.upper, line[3:]))
        words = _CHECKS.get(name) or _UNCHECKED.get(name, 0)
        steps = seen.setdefault(tuple(line[1:words]), []) if words else []
        if name in _CHECKS and len(line) == words and not result and len(steps) < 2:
            steps.append((call, name))
        elif name in _UNCHECKED and len(steps) > 1 and not options & {"NX", "XX"}:
            steps.append((call, name))
            if len(steps) == 4 and call.at_us - steps[0][0].at_us <= 1_000_000:
                yield about_key(
                    "check_then_set", call, line[1], [one.number for one, _ in steps],
                    times=2, read=steps[0][1], write=name, item=" ".join(line[1:words]),
                )  # fmt: skip
        else:
            for item in [one for one in seen if one and one[0] in line[1:]]:
                del seen[item]
