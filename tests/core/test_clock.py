"""Moving, freezing, anchoring and rewinding a clock, and the errors when that is not allowed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
import time_machine

from pytest_fakecloud.core import timers
from pytest_fakecloud.core.clock import STANDS, Timekeeper
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timers import Fired, Occupied, Registry, Signal, instant_us, monotonic

from ..harness import error_of, in_threads, wait_until

NOON = "2026-01-01T12:00:00Z"
NOON_US = instant_us(NOON)
SECOND = 1_000_000
DAY = 86_400 * SECOND
UNDER_WAY = (
    "the clock is already being advanced: it cannot be advanced again from inside a handler or from "
    "a second thread. Let the outer call return first; to make an answer take time, give the "
    "destination a duration instead"
)


@pytest.fixture
def clock() -> Timekeeper:
    return Timekeeper(NOON)


def process_us() -> int:
    return Timekeeper().now_us()


# -- what may not be done ------------------------------------------------------------------------


def test_every_refusal_says_how_it_is_and_what_to_do(clock: Timekeeper) -> None:
    assert error_of(clock.move_to, "2026-01-01T11:59:59Z") == (
        "time cannot go back: it is 2026-01-01T12:00:00+00:00 on this clock, and "
        "2026-01-01T11:59:59+00:00 is earlier"
    )
    assert error_of(lambda: Timekeeper("9999-12-31T23:00:00Z").advance("1h")) == (
        "it is 9999-12-31T23:00:00+00:00 on this clock, which ends with the year 9999: "
        "start earlier (now=), or advance by less"
    )
    assert error_of(lambda: Timekeeper(mode="still")) == (  # type: ignore[arg-type]
        "clock='still' is not a mode: pass 'running' or 'frozen'"
    )
    clock.call_at(NOON_US, lambda at: clock.advance(1))
    assert error_of(lambda: clock.advance(0)) == UNDER_WAY


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda: Timekeeper(mode="frozen"), "frozen"),
        (lambda: Timekeeper(NOON, "running"), "not at the process's time"),
    ],
)
def test_a_real_server_lives_in_real_time(make: Callable[[], Timekeeper], state: str) -> None:
    assert error_of(make().check_real_time) == (
        f"this clock is {state}, but a real server uses real time: use the in-memory "
        "engine (leave out engine=), or a running clock"
    )


def test_half_a_second_beside_the_process_is_the_process_s_time() -> None:
    clock = Timekeeper()
    clock.advance("500ms")
    clock.check_real_time()


# -- anchored ------------------------------------------------------------------------------------


def test_an_anchored_clock_stands_until_its_anchor_is_weighed() -> None:
    clock = Timekeeper(NOON, "running")
    clock.advance(DAY / SECOND)
    assert (clock.mode, clock.anchored) == ("running", False)
    assert 0 <= process_us() // SECOND - clock.process_s() <= 60
    weigh = clock.anchor()
    at_us = clock.now_us()
    assert (clock.mode, clock.anchored) == ("frozen", True)
    assert error_of(clock.resume) == f"this clock cannot run: {STANDS}"
    assert error_of(lambda: clock.rewind(mode="running")) == f"this clock cannot run: {STANDS}"
    clock.advance(5)
    assert clock.now_us() == at_us + 5 * SECOND
    assert clock.process_s() == clock.now_us() // SECOND  # the process's time follows
    clock.rewind()
    assert (clock.now_us(), clock.mode) == (at_us, "frozen")
    clock.advance(7)
    weigh()
    assert (clock.mode, clock.anchored) == ("running", False)
    assert 0 <= clock.now_us() - (at_us + 7 * SECOND) < 60 * SECOND
    clock.rewind()
    assert clock.mode == "running"
    assert 0 <= clock.now_us() - NOON_US < 60 * SECOND


def test_a_frozen_clock_stays_frozen_when_its_anchor_is_weighed(clock: Timekeeper) -> None:
    clock.advance(5)
    weigh = clock.anchor()
    clock.advance(5)
    weigh()
    assert (clock.mode, clock.now_us()) == ("frozen", NOON_US + 10 * SECOND)
    clock.resume()
    clock.rewind()
    assert (clock.mode, clock.now_us()) == ("frozen", NOON_US)


def test_an_anchor_within_an_anchor_leaves_the_outer_one(clock: Timekeeper) -> None:
    outer, inner = clock.anchor(), clock.anchor()
    inner()
    assert clock.anchored
    outer()
    assert not clock.anchored


# -- returning -----------------------------------------------------------------------------------


def test_a_clock_may_return_to_another_beginning_for_once(clock: Timekeeper) -> None:
    clock.rewind("2030-01-01T00:00:00Z")
    assert (clock.mode, clock.now().year) == ("frozen", 2030)
    clock.rewind("2030-01-01T00:00:00Z", "running")
    assert (clock.mode, clock.now().year) == ("running", 2030)
    clock.rewind(mode="running")
    assert (clock.mode, abs(clock.now_us() - process_us()) < 60 * SECOND) == ("running", True)
    clock.rewind(mode="frozen")
    assert (clock.mode, abs(clock.now_us() - process_us()) < 60 * SECOND) == ("frozen", True)
    clock.rewind()
    assert (clock.mode, clock.now_us()) == ("frozen", NOON_US)


def test_a_clock_does_not_return_while_it_is_advanced(clock: Timekeeper) -> None:
    clock.call_at(NOON_US + SECOND, lambda at: clock.rewind())
    assert error_of(clock.advance, 2) == UNDER_WAY


def test_who_listens_hears_of_each_change_of_the_clock(clock: Timekeeper) -> None:
    heard: list[str] = []
    clock.listeners.add(lambda: heard.append("moved"))
    for change in (
        clock.resume,
        clock.freeze,
        clock.rewind,
        lambda: clock.spend_until(NOON_US + 1),
        lambda: clock.advance(1),
        lambda: clock.call_at(NOON_US + DAY, print, lane="background"),
    ):
        heard.clear()
        change()
        assert heard


def test_registered_objects_may_leave_while_others_are_called() -> None:
    registry = Registry[str]()
    stops = {name: registry.add(name) for name in "abc"}
    called = []
    for name in registry.items:
        called.append(name)
        stops["b"]()
    assert called == ["a", "b", "c"]
    assert registry.items == ("a", "c")


# -- time that passes by the way -----------------------------------------------------------------


def test_time_that_is_spent_makes_nothing_happen(clock: Timekeeper) -> None:
    fired: list[int] = []
    clock.call_at(NOON_US + SECOND, fired.append)
    clock.spend_until(NOON_US + 5 * SECOND)
    assert (clock.now_us(), fired) == (NOON_US + 5 * SECOND, [])
    clock.spend_until(NOON_US + 2 * SECOND)
    assert clock.now_us() == NOON_US + 5 * SECOND
    assert [one.at_us for one in clock.advance(0)] == [NOON_US + 5 * SECOND]


def test_time_may_be_spent_within_an_advance(clock: Timekeeper) -> None:
    seen: list[int] = []

    def spend(at_us: int) -> None:
        clock.spend_until(at_us + 3 * SECOND)
        clock.spend_until(at_us + SECOND)
        seen.append(clock.now_us() - NOON_US)

    clock.call_at(NOON_US + SECOND, spend)
    clock.call_at(NOON_US + 2 * SECOND, lambda at: seen.append(clock.now_us() - NOON_US))
    clock.advance(10)
    assert seen == [4 * SECOND, 4 * SECOND]
    assert clock.now_us() == NOON_US + 10 * SECOND


def test_time_that_was_spent_beyond_the_end_of_an_advance_stays_spent(clock: Timekeeper) -> None:
    clock.call_at(NOON_US + SECOND, lambda at: clock.spend_until(NOON_US + 5 * SECOND))
    clock.advance(2)
    assert clock.now_us() == NOON_US + 5 * SECOND


def test_a_running_clock_cannot_spend_time_and_no_clock_more_than_there_is() -> None:
    clock = Timekeeper(NOON, "running")
    clock.spend_until(NOON_US + DAY)
    assert clock.now_us() < NOON_US + DAY
    with pytest.raises(ContractError, match="which ends with the year 9999"):
        clock.spend_until(10**18)


# -- what is planned -----------------------------------------------------------------------------


def test_what_is_planned_is_told_in_its_order_and_counted_whole(clock: Timekeeper) -> None:
    assert clock.planned(5) == (0, [])
    late = clock.call_at(NOON_US + 3, print, lane="driven")
    soon = clock.call_at(NOON_US + 1, print, lane="background")
    gone = clock.call_at(NOON_US + 2, print)
    next_one = clock.call_at(NOON_US + 3, print)
    gone.cancel()
    assert clock.planned(5) == (3, [soon, late, next_one])
    assert clock.planned(2) == (3, [soon, late])
    assert clock.planned(0) == (3, [])


def test_the_next_due_of_some_lanes_is_told(clock: Timekeeper) -> None:
    clock.call_at(NOON_US + 2 * SECOND, print, lane="background")
    clock.call_at(NOON_US + SECOND, print, lane="state").cancel()
    clock.call_at(NOON_US + 3 * SECOND, print, lane="state")
    assert clock.next_due_us() == NOON_US + 2 * SECOND
    assert clock.next_due_us(("state",)) == NOON_US + 3 * SECOND
    assert clock.next_due_us(("driven",)) is None


def test_settling_does_what_is_due_by_now_and_changes_no_time(clock: Timekeeper) -> None:
    done: list[int] = []
    clock.call_at(NOON_US - 5, done.append)
    clock.call_at(NOON_US, done.append)
    clock.call_at(NOON_US + 1, done.append)
    clock.call_at(NOON_US, done.append, lane="driven")
    clock.call_at(NOON_US, done.append, lane="background")
    assert clock.settle() == NOON_US
    assert done == [NOON_US - 5, NOON_US]
    clock.call_at(NOON_US, done.append)
    clock.settle()
    assert done == [NOON_US - 5, NOON_US, NOON_US]


def test_a_clock_is_driven_by_an_advance_and_not_by_what_is_dispatched(clock: Timekeeper) -> None:
    driven: list[bool] = []
    for lane in ("background", "driven"):
        clock.call_at(NOON_US, lambda at: driven.append(clock.driving), lane=lane)  # type: ignore[arg-type]
    clock.dispatch(print)
    clock.advance(1)
    assert driven == [False, True]
    assert clock.driving is False


def test_timers_tell_what_they_are_and_when(clock: Timekeeper) -> None:
    assert repr(clock.call_at(NOON_US, print, label="retry")) == (
        "<Timer 'retry' due 2026-01-01T12:00:00+00:00>"
    )
    assert repr(clock.call_at(NOON_US, print)).startswith("<Timer <built-in function print> due ")
    assert Fired(NOON_US + 1, "x", None).at.isoformat() == "2026-01-01T12:00:00.000001+00:00"


# -- the background ------------------------------------------------------------------------------


def test_dispatching_fires_what_is_due(clock: Timekeeper) -> None:
    fired: list[int] = []
    for due in (1, 0, 5):
        clock.call_at(NOON_US + due, fired.append, lane="background")
    clock.call_at(NOON_US, fired.append)  # another lane
    clock.spend_until(NOON_US + 2)
    clock.dispatch(print)
    assert fired == [NOON_US, NOON_US + 1]
    clock.dispatch(print)
    assert len(fired) == 2


def test_dispatching_ends_when_it_is_stopped(clock: Timekeeper) -> None:
    fired: list[int] = []
    for _ in range(3):
        clock.call_at(NOON_US, fired.append, lane="background")
    clock.dispatch(print, lambda: len(fired) == 2)
    assert len(fired) == 2


def test_what_a_delivery_leaves_to_do_may_be_done_later(clock: Timekeeper) -> None:
    made: list[str] = []
    kept: list[Callable[[], object]] = []

    def begin(at_us: int) -> Callable[[], object]:
        assert at_us == NOON_US
        made.append("begun")
        return lambda: made.append("done")

    clock.call_at(clock.now_us(), lambda at: made.append("whole"), lane="background", begin=begin)
    clock.dispatch(kept.append)
    assert made == ["begun"]
    assert not clock.driving
    kept[0]()
    assert made == ["begun", "done"]
    clock.advance(1)  # The advance is over, so this one is allowed.


def test_an_advance_that_waits_in_vain_says_for_what(
    clock: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "_PATIENCE", 0.01)
    kept: list[Callable[[], object]] = []
    clock.call_at(NOON_US, print, lane="background", begin=lambda at: lambda: None)
    clock.dispatch(kept.append)
    assert error_of(clock.advance, 1) == (
        "the clock cannot be moved, because within 0.01 s of real time 1 attempt in the background "
        "did not end, and their effects belong before the move. Let their destinations answer, or "
        "end them sooner with a lower attempt_cap="
    )
    kept[0]()
    clock.advance(1)
    assert clock.now_us() == NOON_US + SECOND


def test_nothing_is_delivered_while_an_advance_does_not_end(
    clock: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "_PATIENCE", 0.01)
    delivered: list[int] = []

    def during_the_advance(at_us: int) -> None:
        clock.call_at(at_us, delivered.append, lane="background")
        in_threads(lambda: clock.dispatch(print))
        assert delivered == []

    clock.call_at(NOON_US + SECOND, during_the_advance)
    clock.advance(1)
    assert delivered == [NOON_US + SECOND]


def test_who_yields_to_others_does_no_harm_to_their_advance(clock: Timekeeper) -> None:
    def sleep(at_us: int) -> None:
        with pytest.raises(Occupied):
            list(clock.steps(clock.now_us, yielding=True))

    clock.call_at(NOON_US + SECOND, sleep)
    assert len(clock.advance(2)) == 1
    assert clock.now_us() == NOON_US + 2 * SECOND
    assert list(clock.steps(lambda: NOON_US + 3 * SECOND, yielding=True)) == []
    assert clock.now_us() == NOON_US + 3 * SECOND


def test_who_yields_does_not_wait_for_a_delivery_that_does_not_end(clock: Timekeeper) -> None:
    kept: list[Callable[[], object]] = []
    clock.call_at(NOON_US, print, lane="background", begin=lambda at: lambda: None)
    clock.dispatch(kept.append)
    with pytest.raises(Occupied):
        list(clock.steps(clock.now_us, yielding=True))
    kept[0]()
    assert list(clock.steps(clock.now_us, yielding=True)) == []


def test_a_delivery_that_fails_is_over(clock: Timekeeper) -> None:
    def fail(given: Any = None) -> None:
        raise KeyError("typo")

    kept: list[Callable[[], object]] = []
    clock.call_at(NOON_US, fail, lane="background")
    with pytest.raises(KeyError):
        clock.dispatch(print)
    clock.call_at(NOON_US, fail, lane="background", begin=lambda at: fail)
    clock.dispatch(kept.append)
    with pytest.raises(KeyError):
        kept[0]()
    clock.advance(1)
    assert clock.now_us() == NOON_US + SECOND


def test_an_advance_of_another_thread_breaks_the_one_under_way(clock: Timekeeper) -> None:
    told: list[str] = []

    def other(at_us: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            told.append(pool.submit(lambda: error_of(clock.advance, 1)).result(10))

    clock.call_at(NOON_US + SECOND, other)
    later = clock.call_at(NOON_US + 2 * SECOND, print)
    assert error_of(clock.advance, 3) == UNDER_WAY
    assert told == [UNDER_WAY]
    assert clock.planned(1) == (1, [later])
    assert len(clock.advance(3)) == 1


# -- waits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan"), "1", True, None])
def test_what_is_no_cap_of_waits(clock: Timekeeper, seconds: Any) -> None:
    told = f"wait_cap={seconds!r} must be a number of at least 0"
    assert error_of(setattr, clock, "wait_cap", seconds) == told
    assert clock.wait_cap == 1.0


@pytest.mark.parametrize("seconds", [0, 0.0, 1, 2.5, float("inf")])
def test_a_cap_of_waits_is_a_number_from_0_up(clock: Timekeeper, seconds: float) -> None:
    clock.wait_cap = seconds
    assert clock.wait_cap == seconds


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


@pytest.mark.parametrize(("mode", "cap"), [("frozen", 0.05), ("running", 30.0)])
def test_a_wait_sleeps_no_longer_than_it_may(
    mode: Any, cap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Let a wait wake only every ten seconds, as if no tool could move the process's time.
    monkeypatch.setattr("pytest_fakecloud.core.clock._nap", lambda: 10.0)
    clock = Timekeeper(NOON, mode)
    clock.wait_cap = cap
    left_us = DAY if mode == "frozen" else SECOND // 20
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


# -- signals -------------------------------------------------------------------------------------


def asleep(pool: ThreadPoolExecutor, signal: Signal, others: int = 0) -> Future[None]:
    """Wait for up to ten seconds until another thread sleeps on the signal."""
    sleeper = pool.submit(signal.sleep, signal.version, 10)
    wait_until(lambda: signal._sleeping > others)
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
