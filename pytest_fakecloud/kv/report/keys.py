"""Findings about keys: their TTL, and clients that compete for them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.timers import process_seconds, to_datetime
from ...reporting.calls import QUEUED, lines_of
from ...reporting.model import Finding
from ...reporting.report import ObservedTest
from .history import (
    UNKNOWN,
    Command,
    Database,
    ServerOrDatabase,
    by_execution,
    clients_of,
    commands,
    has_no_ttl,
    with_expiries,
)

# -- TTL -------------------------------------------------------------------------------------------

_FAR_US = 24 * 3600 * 1_000_000
"""Difference in microseconds below which two times are taken to come from the same clock."""


def ttl_removed(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find SETs that removed the TTL of their key, which has none by now."""
    for command, expiries in with_expiries(test, fake):
        has_ttl = command.key in expiries and not expiries.expired(command.key, command.at_us)
        removes = (
            command.name == "SET"
            and command.succeeded
            and command.deadline_us is None
            and "KEEPTTL" not in command.options
        )
        if has_ttl and removes and has_no_ttl(fake, command.key):
            yield command.finding("ttl_removed")


_TIMES = {"seconds": range(10**8, 10**11), "milliseconds": range(10**11, 10**14)}
"""Numbers that are Unix time in each unit, from 1973 on."""
_UNITS_US = {"seconds": 1_000_000, "milliseconds": 1000}
_NEAR_US = 5 * 366 * _FAR_US
"""Difference in microseconds from the fake clock below which a number is taken for Unix time."""


def wrong_time(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find absolute expiries computed from the wall clock while the fake clock shows another time,
    and Unix time in another unit in expiries, TTLs and ranges of scores.
    """
    real_us = int(process_seconds() * 1e6)
    scores: dict[str, list[str]] = {}
    for command in commands(test, fake):
        ttl, deadline = command.ttl, command.deadline_us
        if command.name == "ZADD":
            scores_and_members = command.words[2 + len(command.zadd_options) :: 2]
            scores.setdefault(command.key, []).extend(scores_and_members)
        elif ttl is not None and deadline is not None:
            now_us = command.at_us
            is_real = abs(deadline - real_us) < _FAR_US <= abs(now_us - real_us)
            if ttl.unit.is_absolute and is_real and abs(deadline - now_us) > _FAR_US:
                at, now = (
                    f"{to_datetime(time_us):%Y-%m-%d %H:%M:%SZ}" for time_us in (deadline, now_us)
                )
                yield command.finding("expires_by_wall_clock", command=ttl.word, at=at, now=now)
            own = "milliseconds" if ttl.unit.milliseconds == 1 else "seconds"
            units = _UNITS_US.keys() - ({own} if ttl.unit.is_absolute else set())
            units = {
                unit for unit in units
                if abs(int(ttl.number) * _UNITS_US[unit] - now_us) < _NEAR_US
            }  # fmt: skip
            for unit in units:
                values = {"given": str(ttl), "unit": own, "is_time": ttl.unit.is_absolute}
                yield command.finding("ttl_in_other_unit", meant=unit, **values)
            if not units and not ttl.unit.is_absolute and _is_unlikely(int(ttl.number), own):
                values = {"given": str(ttl), "seconds": (deadline - now_us) / 1e6}
                yield command.finding("unlikely_ttl", **values)
        elif earlier_scores := scores.get(command.key):
            by_score = command.name.endswith(("BYSCORE", "ZCOUNT")) or "BYSCORE" in command.options
            bounds = command.words[2:4] if by_score else []
            for unit, in_unit in _TIMES.items():
                bound = next((edge for edge in bounds if _whole(edge) in in_unit), "")
                (other,) = _TIMES.keys() - {unit}
                if bound and all(_whole(score) in _TIMES[other] for score in earlier_scores):
                    values = {"command": command.name, "bound": bound, "unit": unit, "other": other}
                    yield command.finding("score_in_other_unit", score=earlier_scores[-1], **values)


def _is_unlikely(number: int, unit: str) -> bool:
    """Return whether a duration is a usual one in the other unit: minutes, as a number of it."""
    if unit == "seconds":
        # Ten years, for example, are a multiple of a day.
        return number % 60_000 == 0 and (number % 86_400 > 0 or number in (86_400_000, 604_800_000))
    return number <= 3600 and number % 60 == 0


def _whole(text: str) -> int:
    digits = text.removeprefix("(").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0


# -- clients that compete for a key ----------------------------------------------------------------

_RACE_US = 1_000_000
"""Maximum time in microseconds from the first check to the second write of a race."""
_CHECKS = {"GET": 2, "EXISTS": 2, "HGET": 3, "HEXISTS": 3}
"""Commands that check for a value, with the number of words up to the key or field."""
_UNCHECKED = {"SET", "HSET"}
"""Writes that are unconditional without options."""


@dataclass(slots=True)
class _Updates:
    """The last write of a key or field, and the reads and WATCHes of clients around it."""

    last: tuple[object, Command, str] | None = None
    """With the client and the value; None if another command may have changed the value since."""
    current: dict[object, Command] = field(default_factory=dict)
    """The last read of each client, if after the last write."""
    outdated: dict[object, Command] = field(default_factory=dict)
    """The last read of each client, if before the last write."""
    late_watchers: set[object] = field(default_factory=set)
    """Clients that have sent WATCH since the last write."""
    race: list[tuple[Command, Command]] = field(default_factory=list)
    """The check and the write of each client that found no value, since the first such write."""

    def note_write(
        self, client: object, command: Command, item: Iterable[str], value: str
    ) -> Finding | None:
        """Note a write; return a finding if it loses a write by another client."""
        before, self.last = self.last, (client, command, value)
        first, read = self.current.pop(client, None), self.outdated.pop(client, None)
        late = client in self.late_watchers
        self.outdated |= self.current
        self.current.clear()
        self.late_watchers.clear()
        if read is None or before is None or before[0] == client:
            if first or before is None or before[0] != client:
                self.race = [(first, command)] if first and first.result in (None, 0) else []
            return None
        _, lost, overwritten = before
        if read.result in (None, 0):
            self.race += [(read, command)] if self.race else []
            is_over = all(write.result not in (None, 0) for write in self.outdated.values())
            return _check_then_set(self.race, item) if self.race and is_over else None
        if read.result == overwritten or (lost.deadline_us or math.inf) <= command.at_us:
            return None
        values = {"written": value, "overwritten": overwritten, "read": read.result}
        values |= {"write": command.name, "check": read.name, "item": " ".join(item)}
        values["own"] = "connection" if client == command.client else "task"
        values["other"] = "connection" if before[0] == lost.client else "task"
        return command.finding("lost_update", watch_late=late, **values)


def races(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find writes that replaced what another client wrote after this client's read, and clients that
    all found a value missing, within a second, and then all wrote it.

    Examples: client A sends ``GET k``, client B sends ``SET k 1``, A sends ``SET k 2``. Both send
    ``GET k``, which does not exist, and then ``SET k``.
    """
    client_of = clients_of(test, fake)
    updates = defaultdict[str, Any](lambda: defaultdict[tuple[str, ...], _Updates](_Updates))
    for command in by_execution(test, fake):
        client, of_key = client_of(command), updates[command.key]
        is_write = command.name in _UNCHECKED and not command.options & {"NX", "XX"}
        written = _written(command) if is_write and command.result is not UNKNOWN else {}
        if command.name == "WATCH":
            for key in updates.keys() & command.arguments:
                for update in updates[key].values():
                    update.late_watchers.add(client)
        elif len(command.words) == _CHECKS.get(command.name):
            if command.name.endswith("GET") or command.result == 0:
                update = of_key[tuple(command.arguments)]
                update.outdated.pop(client, None)
                update.current[client] = command
        elif client is not None and written:
            for item, value in written.items():
                if finding := of_key[item].note_write(client, command, item, value):
                    yield finding
        elif command.changes:
            for key in updates if command.changes_any else updates.keys() & command.arguments:
                for update in updates[key].values():
                    update.last = None


def _check_then_set(race: Sequence[tuple[Command, Command]], item: Iterable[str]) -> Finding | None:
    """Return a finding if all happened within a second, and each write replaced the one before it."""
    checks = sorted((check for check, _ in race), key=lambda check: check.entry.number)
    writes = [write for _, write in race]
    replaced = all(
        (deadline := earlier.deadline_us) is None or later.at_us < deadline
        for earlier, later in itertools.pairwise(writes)
    )
    if not replaced or writes[-1].at_us - checks[0].at_us > _RACE_US:
        return None
    evidence = [command.entry.number for command in (*checks, *writes)]
    reads = " or ".join(dict.fromkeys(check.name for check in checks))
    values: dict[str, Any] = {"read": reads, "write": writes[-1].name, "item": " ".join(item)}
    values |= {"many": len(race) if len(race) > 2 else 0, "of_field": writes[-1].name == "HSET"}
    return writes[-1].finding("check_then_set", evidence, **values)


def expire_not_executed(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find keys that have no TTL because the command that sets it failed: a fault prevented it, or it
    was rejected.
    """
    for command in _missed_expires(test, fake).values():
        yield command.finding("expire_not_executed", command=command.name)


def _missed_expires(test: ObservedTest, fake: ServerOrDatabase) -> dict[str, Command]:
    """Return the last command such as EXPIRE of each key that was not executed, if its key has no TTL
    and no later command replaced the key.
    """
    number = fake.number if isinstance(fake, Database) else None
    executed = {(command.entry.number, *command.words) for command in commands(test, fake)}
    later = {command.key: command for command in commands(test, fake) if command.replaces}
    missed: dict[str, Command] = {}
    for call in test.calls_of(fake):
        database = call.facts.get("database", 0)
        if number not in (None, database) or call.response_body == QUEUED:
            continue
        for name, *arguments in lines_of(call):
            command = Command(call, [name.upper(), *arguments], UNKNOWN, database)
            sets = len(arguments) > 1 and command.changes_only_ttl and command.ttl is not None
            if sets and (call.number, *command.words) not in executed:
                missed[command.key] = command
    return {
        key: command
        for key, command in missed.items()
        if has_no_ttl(fake, key)
        and (key not in later or later[key].entry.number <= command.entry.number)
    }


def lock_of_another(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find locks that were deleted while they held a value set after another one had expired."""
    holders: dict[str, list[str]] = {}
    for command, expiries in with_expiries(test, fake):
        key = command.key
        for removed in holders.keys() - expiries.keys():
            del holders[removed]
        if command.name == "SET" and command.sets_nx and command.succeeded:
            earlier = holders.get(key, []) if expiries.expired(key, command.at_us) else []
            holders[key] = [*earlier, command.words[2]]
            continue
        values = holders.get(key, [])
        deletes = command.name == "DEL" and command.result == 1 and len(command.words) == 2
        if deletes and len(set(values)) > 1 and not expiries.expired(key, command.at_us):
            yield command.finding("lock_of_another", holder=values[-1], earlier=values[0])
        command.drop_replaced(holders)


def _written(command: Command) -> dict[tuple[str, ...], str]:
    """Return the values that a command wrote to a key, to fields or to members with its scores."""
    key, words = command.key, command.words
    if command.name == "SET" and command.succeeded:
        return {(key,): words[2]}
    if command.name == "HSET":
        return {(key, name): value for name, value in zip(words[2::2], words[3::2], strict=False)}
    if command.name == "ZADD" and not command.zadd_options:
        return {(key, name): score for score, name in zip(words[2::2], words[3::2], strict=False)}
    return {}
