"""The clock as tests see it: its public surface, and that it moves one timekeeper."""

from __future__ import annotations

import asyncio

import pytest

from pytest_fakecloud.core.clock import Clock, timekeeper_of
from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.core.timeparse import instant_us

NOON = "2026-01-01T12:00:00Z"
NOON_US = instant_us(NOON)


@pytest.fixture
def time() -> Timekeeper:
    return Timekeeper(NOON)


@pytest.fixture
def clock(time: Timekeeper) -> Clock:
    return Clock(time)


def test_it_shows_what_a_tester_uses_and_nothing_else(clock: Clock) -> None:
    assert [name for name in dir(clock) if not name.startswith("_")] == [
        "advance", "advance_to_next", "aio", "freeze", "mode", "move_to", "next_due", "now",
        "now_ms", "now_us", "resume", "run_due", "wait_cap",
    ]  # fmt: skip


def test_it_reads_its_timekeeper(clock: Clock, time: Timekeeper) -> None:
    assert timekeeper_of(clock) is time
    assert clock.now().isoformat() == "2026-01-01T12:00:00+00:00"
    assert clock.now_us() == clock.now_ms() * 1000 == NOON_US
    assert (clock.mode, clock.next_due()) == ("frozen", None)
    time.call_at(NOON_US + 1_000_000, print)
    due = clock.next_due()
    assert due is not None
    assert due.isoformat() == "2026-01-01T12:00:01+00:00"


def test_each_way_to_move_fires_what_is_due(clock: Clock, time: Timekeeper) -> None:
    seen: list[int] = []
    for second in range(5):
        time.call_at(NOON_US + second * 1_000_000, seen.append, label=f"at {second}")
    assert [one.label for one in clock.run_due()] == ["at 0"]
    assert [one.label for one in clock.advance(1)] == ["at 1"]
    assert [one.label for one in clock.advance_to_next()] == ["at 2"]
    fired = clock.move_to("2026-01-01T12:00:03Z")
    assert [one.at.isoformat() for one in fired] == ["2026-01-01T12:00:03+00:00"]
    assert len(asyncio.run(clock.aio.advance(1))) == 1
    assert seen == [NOON_US + second * 1_000_000 for second in range(5)]


def test_it_stops_and_goes_on(clock: Clock) -> None:
    clock.resume()
    assert clock.mode == "running"
    clock.freeze()
    assert clock.mode == "frozen"
    clock.wait_cap = 0.5
    assert clock.wait_cap == 0.5
