"""Findings about keys: their TTL, and locks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...core.timers import clock_time, process_seconds, to_datetime
from ...reporting.model import Finding
from .calls import QUEUED, lines_of
from .history import UNKNOWN, Command, Database, Expiries

_DAY_US = 24 * 3600 * 1_000_000
_SAME_CLOCK_US = _DAY_US
"""Difference below which two times are taken to come from the same clock."""


def ttl_removed(database: Database) -> Iterator[Finding]:
    """Find commands that left a key without its TTL, if no later one has given it another."""
    removed: dict[str, Command] = {}
    expiries = Expiries()
    for command in database.history:
        had_ttl = [key for key in command.keys_kept
                   if key in expiries and not expiries.expired(key, command.entry.at_us)]  # fmt: skip
        expiries.follow(command)
        removed |= {key: command for key in had_ttl if key not in expiries}
        removed = {key: command for key, command in removed.items() if key not in expiries}
    for key, command in removed.items():
        finding = command.finding("ttl_removed", key, command=command.name)
        yield replace(finding, no_answer_shows_it=True)


def expired(database: Database) -> Iterator[Finding]:
    """Find keys of a failed test that had expired when a command accessed them, or have at its end."""
    if database.test.raised is None:
        return
    setters: dict[tuple[str, int], Command] = {}
    expiries = Expiries()
    for command, expiries in database.with_expiries():
        for key in command.keys:
            if expiries.expired(key, command.entry.at_us):
                setters.setdefault((key, expiries[key].deadline_us or 0), expiries[key])
    now_us = database.test.cloud.clock.now_us()
    for key in [key for key in expiries if expiries.expired(key, now_us)]:
        setters.setdefault((key, expiries[key].deadline_us or 0), expiries[key])
    for (key, at_us), setter in setters.items():
        yield setter.finding("expired", key, at=clock_time(at_us, setter.entry.at_us))


_TIMES = {"seconds": range(10**8, 10**11), "milliseconds": range(10**11, 10**14)}
"""Numbers that are Unix time in each unit, from 1973 on."""
_UNITS_US = {"seconds": 1_000_000, "milliseconds": 1000}
_NEAR_US = 5 * 366 * _DAY_US
"""Difference in microseconds from the fake clock below which a number is taken for Unix time."""


def wrong_time(database: Database) -> Iterator[Finding]:
    """Find absolute expiries computed from the wall clock while the fake clock shows another time,
    and Unix time in another unit in expiries, TTLs and ranges of scores.
    """
    real_us = int(process_seconds() * 1e6)
    scores: dict[str, list[str]] = {}
    for command in database.known_commands:
        ttl, deadline = command.ttl, command.deadline_us
        if command.name == "ZADD":
            scores.setdefault(command.key, []).extend(command.bound.named("score"))
        elif ttl is not None and deadline is not None:
            now_us = command.entry.at_us
            is_real = abs(deadline - real_us) < _SAME_CLOCK_US <= abs(now_us - real_us)
            if ttl.unit.is_absolute and is_real and abs(deadline - now_us) > _SAME_CLOCK_US:
                times_us = deadline, now_us
                at, now = (f"{to_datetime(us):%Y-%m-%d %H:%M:%SZ}" for us in times_us)
                yield command.finding("expires_by_wall_clock", command=ttl.word, at=at, now=now)
            own_unit = "milliseconds" if ttl.unit.milliseconds == 1 else "seconds"
            units = _UNITS_US.keys() - ({own_unit} if ttl.unit.is_absolute else set())
            units = {unit for unit in units
                     if abs(int(ttl.number) * _UNITS_US[unit] - now_us) < _NEAR_US}  # fmt: skip
            for unit in units:
                values = {"given": str(ttl), "unit": own_unit, "is_time": ttl.unit.is_absolute}
                yield command.finding("ttl_in_other_unit", meant=unit, **values)
            if not units and not ttl.unit.is_absolute and _is_unlikely(int(ttl.number), own_unit):
                values = {"given": str(ttl), "seconds": (deadline - now_us) / 1e6}
                yield command.finding("unlikely_ttl", **values)
        elif earlier_scores := scores.get(command.key):
            by_score = command.name.endswith(("BYSCORE", "ZCOUNT"))
            by_score |= "BYSCORE" in command.bound.options
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


def expire_not_executed(database: Database) -> Iterator[Finding]:
    """Find keys without a TTL because a fault prevented the command that sets it, or it was rejected:
    the last one of each key that no later command replaced.
    """
    executed = {(command.entry.number, *command.words) for command in database.known_commands}
    later = {command.key: command for command in database.known_commands if command.replaces}
    missed: dict[str, Command] = {}
    for call in database.test.calls_of(database.fake):
        selected = call.facts.get("database", 0)
        if selected != database.number or call.response_body == QUEUED:
            continue
        for name, *arguments in lines_of(call):
            command = Command(call, [name.upper(), *arguments], UNKNOWN, selected)
            sets = len(arguments) > 1 and command.changes_only_ttl and command.ttl is not None
            if sets and (call.number, *command.words) not in executed:
                missed[command.key] = command
    for key, command in missed.items():
        is_kept = key not in later or later[key].entry.number <= command.entry.number
        if database.ttl_ms(key) == -1 and is_kept:
            yield command.finding("expire_not_executed", command=command.name)


def lock_of_another(database: Database) -> Iterator[Finding]:
    """Find locks that were deleted while they held a value set after another one had expired."""
    holders: dict[str, list[str]] = {}
    for command, expiries in database.with_expiries():
        key = command.key
        for removed in holders.keys() - expiries.keys():
            del holders[removed]
        if command.name == "SET" and "NX" in command.bound.options and command.succeeded:
            earlier = holders.get(key, []) if expiries.expired(key, command.entry.at_us) else []
            holders[key] = [*earlier, command.words[2]]
            continue
        values = holders.get(key, [])
        deletes = command.name == "DEL" and command.result == 1 and len(command.words) == 2
        if deletes and len(set(values)) > 1 and not expiries.expired(key, command.entry.at_us):
            yield command.finding("lock_of_another", holder=values[-1], earlier=values[0])
        command.drop_replaced(holders)


DETECTORS = (wrong_time, expire_not_executed, lock_of_another, ttl_removed, expired)
