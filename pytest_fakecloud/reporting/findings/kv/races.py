"""Findings about clients that compete for a key: locks, writes if absent, lost updates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ....core.calls import Event
from ...model import Finding
from ..detectors import ObservedTest
from .commands import COUNTING, UNKNOWN, Command
from .history import by_execution, commands, history, with_expiries

_RACE_US = 1_000_000
"""Maximum time in microseconds from the first check to the second write of a race."""
_CHECKS = {"GET": 2, "EXISTS": 2, "HGET": 3, "HEXISTS": 3}
"""Commands that check for a value, with the number of words up to the key or field."""
_UNCHECKED = {"SET": 2, "HSET": 3}
"""Unconditional writes, with the number of words up to the key or field."""
_LOCK_NAME = re.compile(
    r"(?i)(^|[^a-z])(locks?|locked|mutex|lease|idempoten\w*|dedup\w*|once|processed|seen)([^a-z]|$)"
)


def lost_update(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find SET commands that replaced what another connection wrote after this connection's GET."""
    # Values are the position of a command in the order of execution, and the command.
    read: dict[tuple[object, str], tuple[int, Command]] = {}
    written: dict[str, tuple[int, Command]] = {}
    watched: dict[tuple[object, str], int] = {}
    for at, command in enumerate(by_execution(test, handle)):
        key, mine = command.key, (command.client, command.key)
        if command.name == "WATCH":
            watched.update(((command.client, one), at) for one in command.arguments)
        elif command.name == "GET":
            read[mine] = at, command
        elif command.name == "SET" and len(command.words) == 3 and command.succeeded:
            read_at, get = read.pop(mine, (at, command))
            written_at, other = written.get(key, (-1, command))
            value = other.words[2]
            # `check_then_set` reports keys that did not exist.
            replaced = get.result not in (None, value) and other.client != command.client
            if written_at > read_at and replaced:
                late = watched.get(mine, -1) > written_at
                values = {"written": command.words[2], "overwritten": value, "read": get.result}
                yield command.finding("lost_update", watch_late=late, **values)
            if command.client is not None:
                written[key] = at, command
        elif command.changes_any:
            written.clear()
        elif command.changes:
            for one in command.arguments:
                written.pop(one, None)


@dataclass(slots=True)
class _Race:
    """Checks that found a key or field missing, and the unconditional writes after them."""

    checks: list[Command] = field(default_factory=list)
    writes: list[Command] = field(default_factory=list)

    @property
    def is_certain(self) -> bool:
        """Whether all happened within a second, and each write replaced the one before it."""
        deadlines = [one.deadline_us() for one in self.writes]
        replaced = all(
            until is None or later.at_us < until
            for until, later in zip(deadlines, self.writes[1:], strict=False)
        )
        return replaced and self.writes[-1].at_us - self.checks[0].at_us <= _RACE_US


def check_then_set(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find clients that all found a value missing, within a second, and then all wrote it.

    Example: client A sends ``GET k``, client B sends ``GET k``, A sends ``SET k 1``, B sends
    ``SET k 2``.
    """
    races: dict[tuple[str, ...], _Race] = {}
    for command in by_execution(test, handle):
        count = (_CHECKS | _UNCHECKED).get(command.name, 0)
        item = tuple(command.words[1:count])
        race = races.get(item, _Race())
        is_check = command.name in _CHECKS and len(command.words) == count
        if is_check and command.result in (None, 0) and not race.writes:
            race.checks.append(command)
            races[item] = race
        elif command.name in _UNCHECKED and len(race.checks) > 1 and _overwrites(command):
            race.writes.append(command)
            # With fewer writes than checks, one client may have made several of the checks.
            if len(race.writes) < len(race.checks):
                continue
            if race.is_certain:
                evidence = [one.entry.number for one in (*race.checks, *race.writes)]
                reads = " or ".join(dict.fromkeys(one.name for one in race.checks))
                yield command.finding(
                    "check_then_set", evidence, clients=len(race.checks),
                    read=reads, write=command.name, item=" ".join(item),
                )  # fmt: skip
            del races[item]
        elif command.changes_any:
            races.clear()
        else:
            for one in [one for one in races if one[0] in command.arguments]:
                del races[one]


def _overwrites(command: Command) -> bool:
    return command.result is not UNKNOWN and not command.options & {"NX", "XX"}


def lock_without_ttl(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find locks and idempotency keys that were set with NX and have no TTL."""
    deleted = {
        key: one.entry.number
        for one in commands(test, handle)
        if one.name in ("DEL", "UNLINK")
        for key in one.arguments
    }
    for command in commands(test, handle):
        key = command.key
        sets = command.sets_nx and command.succeeded and command.ttl is None
        stays = deleted.get(key, 0) <= command.entry.number
        if sets and stays and _LOCK_NAME.search(key) and handle.ttl(key) == -1:
            yield command.finding("lock_without_ttl")


def lock_of_another(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find locks that were deleted while they held a value that another client had set.

    Example: one client sets a lock with a TTL, which ends; a second client sets the lock; then the
    first client, or the second, deletes it.
    """
    holders: dict[str, list[str]] = {}
    for command, expiries in with_expiries(test, handle):
        key = command.key
        for known in [one for one in holders if one not in expiries]:
            del holders[known]
        if command.name == "SET" and command.sets_nx and command.succeeded:
            earlier = holders.get(key, []) if expiries.expired(key, command.at_us) else []
            holders[key] = [*earlier, command.words[2]]
            continue
        values = holders.get(key, [])
        deletes = command.name == "DEL" and command.result == 1 and len(command.words) == 2
        if deletes and len(set(values)) > 1 and not expiries.expired(key, command.at_us):
            yield command.finding("lock_of_another", holder=values[-1], earlier=values[0])
        command.drop_replaced(holders)


def changed_nothing(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find writes that had no effect because of NX or XX.

    Two cases are expected and not reported: a lock that is held, unless a failed attempt of the
    same message set it, and a counter that NX initializes.
    """
    every = history(test, handle)
    counted = {one.key for one in every if one.name in COUNTING}
    setters: dict[str, Event | None] = {}
    for command in every:
        command.drop_replaced(setters)
        during = test.attempt_around(command.entry)
        if command.sets_nx and command.succeeded:
            setters[command.key] = during
        if command.result is UNKNOWN or len(command.words) < 3 or command.key in counted:
            continue
        option, members = _prevented(command)
        left: dict[str, Any] = {}
        if command.sets_nx and not command.succeeded:
            left = _left_by(setters.get(command.key), during)
            option = option or ("NX" if left else "")
        is_held_lock = not left and _LOCK_NAME.search(command.key)
        if option and not is_held_lock:
            values = left or {"message": "", "attempt": 0}
            yield command.finding(
                "changed_nothing", **values,
                command=command.name, option=option, members=members,
            )  # fmt: skip


def _prevented(command: Command) -> tuple[str, list[str]]:
    """Return the option that prevented a write, and the affected members; empty if none did."""
    if command.name == "SET" and command.result is None and "GET" not in command.options:
        return next((one for one in ("NX", "XX") if one in command.options), ""), []
    if command.name == "HSETNX" and command.result == 0:
        return "HSETNX", [command.words[2]]
    if command.name == "ZADD" and command.result == 0:
        options = command.zadd_options
        if "NX" in options:
            return "ZADD", command.words[3 + len(options) :: 2]
    return "", []


def _left_by(setter: Event | None, during: Event | None) -> dict[str, Any]:
    """Describe the failed attempt of the same message that set the key; empty if there is none."""
    if setter is None or during is None or setter is during:
        return {}
    message, status = setter.data.get("message_id"), setter.data.get("status")
    if message != during.data.get("message_id") or (isinstance(status, int) and status < 300):
        return {}
    return {"message": str(message), "attempt": setter.data.get("number")}
