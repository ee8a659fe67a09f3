"""Findings about writes of several clients to the same key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...model import Finding
from ..look import Look, about_key
from .commands import UNKNOWN, Command, by_execution

_RACE_US = 1_000_000
"""Maximum time in microseconds from the first check to the second write of a race."""
_CHECKS = {"GET": 2, "EXISTS": 2, "HGET": 3, "HEXISTS": 3}
"""Commands that check for a value, with the number of words up to the key or field."""
_UNCHECKED = {"SET": 2, "HSET": 3}
"""Unconditional writes, with the number of words up to the key or field."""


def lost_update(look: Look, handle: Any) -> Iterator[Finding]:
    """Find SET commands that replaced a value which another connection wrote after this
    connection's GET.
    """
    read: dict[tuple[object, str], tuple[int, Any]] = {}
    watched: dict[tuple[object, str], int] = {}
    written: dict[str, tuple[int, object, str]] = {}
    for at, command in enumerate(by_execution(look, handle)):
        key, mine = command.key, (command.client, command.key)
        if command.name == "WATCH":
            watched.update(((command.client, one), at) for one in command.arguments)
        elif command.name == "GET":
            read[mine] = at, command.result
        elif command.name == "SET" and len(command.words) == 3 and command.succeeded:
            since, was = read.pop(mine, (at, None))
            after, whose, value = written.get(key, (-1, None, ""))
            # `check_then_set` reports keys that did not exist.
            if after > since and whose != command.client and was not in (None, value):
                late = watched.get(mine, -1) > after
                values = {"written": command.words[2], "overwritten": value, "read": was}
                yield about_key("lost_update", command.entry, key, watch_late=late, **values)
            if command.client is not None:
                written[key] = at, command.client, command.words[2]
        elif command.changes_any:
            written.clear()
        elif command.changes:
            for one in command.arguments:
                written.pop(one, None)


def check_then_set(look: Look, handle: Any) -> Iterator[Finding]:
    """Find clients that both found a value missing, within a second, and then both wrote it.

    Example: client A sends ``GET k``, client B sends ``GET k``, A sends ``SET k 1``, B sends
    ``SET k 2``.
    """
    checks: dict[tuple[str, ...], list[Command]] = {}
    writes: dict[tuple[str, ...], Command] = {}
    for command in by_execution(look, handle):
        count = _CHECKS.get(command.name) or _UNCHECKED.get(command.name, 0)
        item = tuple(command.words[1:count])
        before = checks.setdefault(item, []) if count else []
        is_check = command.name in _CHECKS and len(command.words) == count
        if is_check and not command.result and len(before) < 2:
            before.append(command)
        elif command.name in _UNCHECKED and len(before) == 2 and _overwrites(command):
            first = writes.setdefault(item, command)
            if first is command:
                continue
            if _is_race(before[0], first, command):
                evidence = [one.entry.number for one in (*before, first)]
                yield about_key(
                    "check_then_set", command.entry, command.key, evidence,
                    read=before[1].name, write=command.name, item=" ".join(item),
                )  # fmt: skip
            del checks[item]
            del writes[item]
        elif command.changes_any:
            checks.clear()
            writes.clear()
        else:
            for one in [one for one in checks if one and one[0] in command.arguments]:
                del checks[one]
                writes.pop(one, None)


def _overwrites(command: Command) -> bool:
    return command.result is not UNKNOWN and not command.options & {"NX", "XX"}


def _is_race(check: Command, first: Command, second: Command) -> bool:
    until = first.deadline_us()
    existed = until is None or second.at_us < until
    return existed and second.at_us - check.at_us <= _RACE_US
