"""Findings about the TTL of keys: removed, renewed, never set, set by another clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ....core.timeparse import to_datetime
from ...calls import executed_at, lines_of
from ...model import Finding
from ..detectors import ObservedTest
from .commands import COUNTING, READS, UNKNOWN, Command, Expiry
from .history import commands, history, with_expiries

_FAR_US = 24 * 3600 * 1_000_000
"""Difference in microseconds below which two times are taken to come from the same clock."""


def ttl_removed(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find SET commands that removed the TTL of a key that was never given another."""
    for command, expiries in with_expiries(test, handle):
        plain = command.deadline_us() is None and "KEEPTTL" not in command.options
        if command.name != "SET" or not command.succeeded or not plain:
            continue
        had_ttl = command.key in expiries and not expiries.expired(command.key, command.at_us)
        if had_ttl and handle._ttl_ms(command.key) == -1:
            yield command.finding("ttl_removed")


def ttl_renewed(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find counters whose TTL was renewed repeatedly before it expired."""
    counted: set[str] = set()
    # The first of a key's commands set its TTL, and the others renewed it.
    setters: dict[str, list[Command]] = {}
    for command, expiries in with_expiries(test, handle):
        key = command.key
        if command.name in ("INCR", "INCRBY"):
            counted.add(key)
        renews = command.name in ("EXPIRE", "PEXPIRE") and len(command.words) == 3
        if not renews or not command.succeeded or key not in counted:
            continue
        if key not in expiries or expiries.expired(key, command.at_us):
            setters[key] = [command]
            continue
        chain = setters.get(key, [])
        if expiries[key].setter not in chain[-1:]:
            chain = [expiries[key].setter]  # another command has set the TTL since then
        setters[key] = [*chain, command]
    for first, *renewals in setters.values():
        end_us = first.deadline_us() or 0
        if len(renewals) > 1 and renewals[-1].at_us >= end_us:
            span = f"{(end_us - first.at_us) / 1e6:g}"
            yield renewals[-1].finding("ttl_renewed", seconds=span, times=len(renewals))


def ttl_not_set(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find keys without a TTL whose EXPIRE was not executed, and that got no other TTL."""
    others = {
        key: one.entry.number
        for one in history(test, handle)
        if one.deadline_us()
        for key in one.keys
    }
    for call in test.calls_of(handle):
        if call.facts.get("database", 0) != getattr(handle, "number", 0):
            continue
        rejected = call.status == 400 and call.fault is None
        for line in lines_of(call) if rejected or not call.reached else ():
            command = Command(call, [line[0].upper(), *line[1:]], UNKNOWN)
            sets_span = command.spec is not None and command.spec.effects.ttl_unit is not None
            if not sets_span or command.ttl is None or command.ttl.unit.is_absolute:
                continue
            if others.get(command.key, 0) < call.number and handle._ttl_ms(command.key) == -1:
                yield command.finding("ttl_not_set", command=command.name)


def expires_by_wall_clock(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find absolute expiries computed from the wall clock while the fake clock shows another time."""
    real_us = int(time.time() * 1e6)
    for command in commands(test, handle):
        ttl, deadline = command.ttl, command.deadline_us()
        if ttl is None or deadline is None or not ttl.unit.is_absolute:
            continue
        is_real = abs(deadline - real_us) < _FAR_US <= abs(command.at_us - real_us)
        if is_real and abs(deadline - command.at_us) > _FAR_US:
            at, now = map(_shown_time, (deadline, command.at_us))
            yield command.finding("expires_by_wall_clock", command=ttl.word, at=at, now=now)


def _shown_time(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%d %H:%M:%SZ}"


def counter_recreated(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find counters that were recreated without a TTL after they had expired."""
    recreated: dict[str, Command] = {}
    for command, expiries in with_expiries(test, handle):
        ended = expiries.expired(command.key, command.at_us)
        # If a fault's function ran first, the time of the execution is unknown.
        was_held_up = executed_at(command.entry) > command.entry.number
        ended = ended or (command.key in expiries and was_held_up)
        if command.deadline_us() is not None and command.succeeded:
            for key in command.keys:
                recreated.pop(key, None)
        elif ended and command.name in COUNTING and _starts_at_zero(command):
            recreated[command.key] = command
    for key, command in recreated.items():
        if handle._ttl_ms(key) == -1:
            yield command.finding("counter_recreated", command=command.name)


def _starts_at_zero(command: Command) -> bool:
    """Return whether a counter did not exist before a command, so that it is now one step."""
    step = command.words[2] if len(command.words) > 2 else "1"
    try:
        return abs(float(command.result)) == abs(float(step))
    except (TypeError, ValueError):
        return False


def read_after_expiry(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find keys that were read after they had expired."""
    late: dict[str, tuple[Command, Expiry]] = {}
    for command, expiries in with_expiries(test, handle):
        missing = command.name in READS and not command.result
        if missing and expiries.expired(command.key, command.at_us):
            late[command.key] = command, expiries[command.key]
    for command, (until_us, setter) in late.values():
        values = {"seconds": (command.at_us - until_us) / 1e6, "ttl": str(setter.ttl)}
        number = setter.entry.number
        yield command.finding("read_after_expiry", [number], severity="hint", **values)
