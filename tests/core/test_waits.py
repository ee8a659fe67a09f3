"""Waits on a clock and their signals: what ends them, and situations that must never hang."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import freezegun
import pytest
import time_machine

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.signals import Signal
from pytest_fakecloud.core.timers import instant_us, monotonic

from ..harness import wait_until

NOON = "2026-01-01T12:00:00Z"
NOON_US = instant_us(NOON)
SECOND = 1_000_000
DAY = 86_400 * SECOND


def parked_wait(
    pool: ThreadPoolExecutor, clock: Timekeeper, poll: Callable[[], Any], deadline_us: int
) -> tuple[Any, Any]:
    """Start a wait in another thread and return when it has begun."""
    signal = clock.signal()
    begun = threading.Event()

    def poll_once() -> Any:
        begun.set()
        return poll()

    future = pool.submit(clock.wait, signal, poll_once, deadline_us)
    assert begun.wait(10)
    return future, signal


# -- waits -----------------------------------------------------------------------------------------


def test_falsy_data_is_data(clock: Timekeeper) -> None:
    assert clock.wait(clock.signal(), lambda: 0, NOON_US + SECOND) == 0
    assert clock.wait(clock.signal(), lambda: [], NOON_US - SECOND) == []


def test_a_wait_ends_at_its_deadline_on_this_clock(
    clock: Timekeeper, background: ThreadPoolExecutor
) -> None:
    clock.wait_cap = 30.0
    future, _ = parked_wait(background, clock, lambda: None, NOON_US + 60 * SECOND)
    clock.advance(59)
    assert not future.done()
    clock.advance(1)
    assert future.result(10) is None


def test_a_wait_sees_what_an_advance_does_on_the_way(
    clock: Timekeeper, background: ThreadPoolExecutor
) -> None:
    clock.wait_cap = 30.0
    results: list[int] = []
    future, signal = parked_wait(
        background, clock, lambda: results[0] if results else None, NOON_US + 60 * SECOND
    )

    def produce(at_us: int) -> None:
        results.append(at_us)
        signal.notify()
        # The waiting thread continues while this timer fires.
        assert future.result(10) == at_us

    clock.call_at(NOON_US + 30 * SECOND, produce)
    clock.advance(90)


def test_a_wait_ends_when_its_signal_is_closed(
    clock: Timekeeper, background: ThreadPoolExecutor
) -> None:
    clock.wait_cap = 30.0
    future, signal = parked_wait(background, clock, lambda: None, NOON_US + 60 * SECOND)
    signal.close()
    assert future.result(10) is None
    assert clock.wait(signal, lambda: None, NOON_US + 60 * SECOND) is None


def test_a_wait_while_time_is_held_ends_at_the_cap() -> None:
    clock = Timekeeper(NOON, "running")
    clock.wait_cap = 0.05
    waited: list[Any] = []

    def fire(at_us: int) -> None:
        waited.append(clock.wait(clock.signal(), lambda: None, at_us + 3600 * SECOND))

    clock.call_at(NOON_US + 10 * SECOND, fire)
    started = time.perf_counter()
    clock.advance(60)
    assert waited == [None]
    assert time.perf_counter() - started < 5


def test_a_wait_goes_on_when_the_clock_is_resumed(background: ThreadPoolExecutor) -> None:
    clock = Timekeeper(NOON)
    clock.wait_cap = 30.0
    deadline = NOON_US + 60 * SECOND
    future, _ = parked_wait(background, clock, lambda: None, deadline)
    clock.resume()
    clock.advance(59.95)
    assert future.result(10) is None
    assert clock.now_us() >= deadline - 1000


def test_poll_is_called_without_a_lock(clock: Timekeeper, background: ThreadPoolExecutor) -> None:
    signal = clock.signal()

    def poll() -> Any:
        background.submit(signal.notify).result(10)
        background.submit(clock.advance, 1).result(10)
        return "seen"

    assert clock.wait(signal, poll, NOON_US + 60 * SECOND) == "seen"


def test_a_notification_between_look_and_sleep_is_not_lost(clock: Timekeeper) -> None:
    clock.wait_cap = 30.0
    signal = clock.signal()
    looks: list[None] = []

    def poll() -> Any:
        looks.append(None)
        if len(looks) == 1:
            signal.notify()
            return None
        return "seen"

    started = time.perf_counter()
    assert clock.wait(signal, poll, NOON_US + 60 * SECOND) == "seen"
    assert time.perf_counter() - started < 5


def test_signals_come_and_go_while_the_clock_moves(background: ThreadPoolExecutor) -> None:
    clock = Timekeeper(NOON)
    stop = threading.Event()

    def make() -> int:
        count = 0
        while not stop.is_set():
            signals = [clock.signal() for _ in range(20)]
            count += len(signals)
        return count

    makers = [background.submit(make) for _ in range(3)]
    for _ in range(100):
        clock.advance("1ms")
    stop.set()
    assert all(maker.result(10) > 0 for maker in makers)
    gc.collect()
    assert len(clock._signals) == 0


def test_with_no_cap_a_wait_on_a_frozen_clock_looks_once(clock: Timekeeper) -> None:
    clock.wait_cap = 0
    looks: list[int] = []
    assert clock.wait(clock.signal(), lambda: looks.append(1), NOON_US + DAY) is None
    assert looks == [1]


@pytest.mark.parametrize("mode", ["frozen", "running"])
def test_a_wait_whose_deadline_is_past_looks_once(mode: Any) -> None:
    clock = Timekeeper(NOON, mode)
    looks: list[int] = []
    assert clock.wait(clock.signal(), lambda: looks.append(1), NOON_US) is None
    assert looks == [1]
    assert clock.wait(clock.signal(), lambda: "there", NOON_US) == "there"


def waited(clock: Timekeeper, poll: Callable[[], object], deadline_us: int) -> float:
    """Return the real seconds that an unsuccessful wait takes."""
    started = monotonic()
    assert clock.wait(clock.signal(), poll, deadline_us) is None
    return monotonic() - started


@pytest.mark.parametrize(
    ("mode", "cap", "left_us"),
    [("frozen", 0.05, DAY), ("frozen", 30.0, SECOND // 20), ("running", 30.0, SECOND // 20)],
)
def test_a_wait_sleeps_no_longer_than_it_may(
    mode: Any, cap: float, left_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Let a wait wake only every ten seconds, as if no tool could move the process's time.
    monkeypatch.setattr("pytest_fakecloud.core.clock._nap", lambda: 10.0)
    clock = Timekeeper(NOON, mode)
    clock.wait_cap = cap
    assert waited(clock, lambda: None, clock.now_us() + left_us) < 5


def test_the_cap_is_none_for_a_clock_that_runs() -> None:
    clock = Timekeeper(NOON, "running")
    clock.wait_cap = 0.02
    assert waited(clock, lambda: None, clock.now_us() + SECOND // 5) > 0.15


@pytest.mark.parametrize(
    ("tools", "seconds"),
    [
        ([], 1.0), (["time_machine"], 0.05), (["freezegun"], 0.05),
        (["time_machine", "freezegun"], 0.05),
    ],
)  # fmt: skip
def test_a_wait_looks_up_often_where_a_tool_may_move_the_process_s_time(
    tools: list[str], seconds: float, clock: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    class Once(Signal):
        def sleep(self, seen: int, seconds: float) -> None:
            slept.append(seconds)
            self.close()

    for tool in ("time_machine", "freezegun"):
        monkeypatch.delitem(sys.modules, tool, raising=False)
    for tool in tools:
        monkeypatch.setitem(sys.modules, tool, ModuleType(tool))
    clock.wait_cap = 30.0
    assert clock.wait(Once(), lambda: None, NOON_US + DAY) is None
    assert slept == [seconds]


def test_a_wait_on_a_running_clock_that_is_set_back_takes_what_was_left_at_its_start() -> None:
    clock = Timekeeper()
    clock.wait_cap = 30.0
    with ExitStack() as tools:

        def set_back() -> None:
            if not looks:
                past = datetime.now(UTC) - timedelta(hours=1)
                tools.enter_context(time_machine.travel(past, tick=True))
            looks.append(1)

        looks: list[int] = []
        assert waited(clock, set_back, clock.now_us() + SECOND // 20) < 0.9
        assert len(looks) > 1


# -- tools that steer the process's time -----------------------------------------------------------


@pytest.mark.parametrize("freeze", [freezegun.freeze_time, time_machine.travel])
def test_waits_end_at_the_cap_while_a_tool_stops_the_process_clock(freeze: Any) -> None:
    options = {"tick": False} if freeze is time_machine.travel else {}
    for clock in (Timekeeper(), Timekeeper(NOON)):
        clock.wait_cap = 0.1
        started = time.perf_counter_ns()
        true_start = monotonic()
        with freeze("2030-05-05T00:00:00Z", **options):
            assert clock.wait(clock.signal(), lambda: None, clock.now_us() + 3600 * SECOND) is None
        assert monotonic() - true_start >= 0.08
        assert time.perf_counter_ns() - started < 5e9


def test_a_wait_sees_that_a_tool_has_moved_the_process_clock(
    background: ThreadPoolExecutor,
) -> None:
    clock = Timekeeper()
    clock.wait_cap = 30.0
    with time_machine.travel("2030-05-05T00:00:00Z", tick=False) as traveller:
        future, _ = parked_wait(background, clock, lambda: None, clock.now_us() + 3600 * SECOND)
        traveller.shift(3601)
        assert future.result(10) is None


# -- signals ---------------------------------------------------------------------------------------


def asleep(pool: ThreadPoolExecutor, signal: Signal, others: int = 0) -> Future[None]:
    """Wait for up to ten seconds until another thread sleeps on the signal."""
    sleeper = pool.submit(signal.sleep, signal.version, 10)
    wait_until(lambda: len(signal._sleepers) > others)
    return sleeper


def test_a_notification_wakes_all_who_sleep() -> None:
    signal = Signal()
    started = monotonic()
    with ThreadPoolExecutor(2) as pool:
        sleepers = [asleep(pool, signal, others) for others in range(2)]
        signal.notify()
        for sleeper in sleepers:
            sleeper.result(10)
    assert monotonic() - started < 5


def test_who_has_slept_long_enough_leaves_the_others_asleep() -> None:
    signal = Signal()
    started = monotonic()
    with ThreadPoolExecutor(1) as pool:
        sleeper = asleep(pool, signal)
        signal.sleep(signal.version, 0.01)
        signal.notify()
        sleeper.result(10)
    assert monotonic() - started < 5


def test_who_has_missed_a_notification_does_not_sleep() -> None:
    signal = Signal()
    started = monotonic()
    for _ in range(3):
        seen = signal.version
        signal.notify()
        assert signal.version > seen
        signal.sleep(seen, 10)
    assert monotonic() - started < 5


def test_a_signal_is_closed_once_and_for_all() -> None:
    signal = Signal()
    assert signal.closed is False
    seen = signal.version
    signal.close()
    assert signal.closed is True
    started = monotonic()
    signal.sleep(signal.version, 10)
    assert monotonic() - started < 5
    assert signal.version > seen
