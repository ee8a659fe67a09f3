"""The timers of a clock, its deliveries in the background, and registries."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core import timers
from pytest_fakecloud.core.clock import Clock, Timekeeper
from pytest_fakecloud.core.registry import Registry
from pytest_fakecloud.core.timers import Fired, Lane, Occupied, instant_us, to_datetime

from ..harness import error_of, in_threads
from .test_clock import UNDER_WAY

NOON = "2026-01-01T12:00:00Z"
NOON_US = instant_us(NOON)
SECOND = 1_000_000


# -- timers ----------------------------------------------------------------------------------------


def test_timers_fire_in_order_each_at_its_own_instant(clock: Timekeeper) -> None:
    seen: list[tuple[str, int, int]] = []

    def note(name: str) -> Callable[[int], str]:
        def fire(at_us: int) -> str:
            seen.append((name, at_us - NOON_US, clock.now_us() - NOON_US))
            return name.upper()

        return fire

    for name, due, lane in [
        ("c", 30, "driven"),
        ("a", 10, "state"),
        ("b1", 20, "background"),
        ("b2", 20, "state"),
        ("late", 90, "state"),
    ]:
        clock.call_at(NOON_US + due * SECOND, note(name), lane=lane, label=name)  # type: ignore[arg-type]
    assert clock.next_due_us() == NOON_US + 10 * SECOND
    fired = clock.advance(60)
    assert seen == [
        ("a", 10 * SECOND, 10 * SECOND), ("b1", 20 * SECOND, 20 * SECOND),
        ("b2", 20 * SECOND, 20 * SECOND), ("c", 30 * SECOND, 30 * SECOND),
    ]  # fmt: skip
    assert [(f.label, f.result) for f in fired] == [(n, n.upper()) for n in ("a", "b1", "b2", "c")]
    assert [f.at.second for f in fired] == [10, 20, 20, 30]
    assert clock.now_us() == NOON_US + 60 * SECOND


def test_what_a_timer_plans_joins_the_same_advance(clock: Timekeeper) -> None:
    seen = []

    def again(at_us: int) -> None:
        seen.append(clock.now_us() - NOON_US)
        clock.call_at(at_us + 10 * SECOND, again)

    clock.call_at(NOON_US + 10 * SECOND, again)
    clock.advance(35)
    assert seen == [10 * SECOND, 20 * SECOND, 30 * SECOND]
    assert clock.next_due_us() == NOON_US + 40 * SECOND


def test_a_due_time_in_the_past_fires_at_the_next_chance_at_the_present(clock: Timekeeper) -> None:
    seen: list[tuple[int, int]] = []
    clock.call_at(NOON_US - SECOND, lambda at: seen.append((at, clock.now_us())))
    clock.advance(0)
    assert seen == [(NOON_US - SECOND, NOON_US)]


def test_a_cancelled_timer_does_not_fire(clock: Timekeeper) -> None:
    seen: list[int] = []
    first = clock.call_at(NOON_US + SECOND, seen.append)
    second = clock.call_at(NOON_US + 2 * SECOND, lambda at: third.cancel())
    third = clock.call_at(NOON_US + 2 * SECOND, seen.append)
    first.cancel()
    first.cancel()
    assert clock.next_due_us() == second.due_us
    assert Clock(clock).next_due() == to_datetime(second.due_us)
    clock.advance(10)
    assert seen == []
    assert Clock(clock).next_due() is clock.next_due_us() is None


def test_a_cancelled_timer_does_not_keep_its_callback(clock: Timekeeper) -> None:
    def callback(at: int) -> None: ...

    timer = clock.call_at(NOON_US + SECOND, callback)
    reference = weakref.ref(callback)
    del callback
    timer.cancel()
    assert reference() is None


def test_cancelled_timers_do_not_pile_up(clock: Timekeeper) -> None:
    keep = clock.call_at(NOON_US + SECOND, lambda at: None)
    for _ in range(10_000):
        clock.call_at(NOON_US + SECOND, lambda at: None).cancel()
    assert len(clock._lanes["state"]) < 200
    assert [fired.at for fired in clock.advance(2)] == [clock.now() - timedelta(seconds=1)]
    assert keep.due_us == NOON_US + SECOND


def test_advance_to_next_and_to_the_same_time(clock: Timekeeper) -> None:
    seen: list[int] = []
    for second in (5, 5, 9):
        clock.call_at(NOON_US + second * SECOND, seen.append, lane="driven")
    assert clock.advance(0) == []
    assert len(clock.advance_to_next()) == 2
    assert clock.now_us() == NOON_US + 5 * SECOND
    clock.call_at(NOON_US + 5 * SECOND, seen.append, lane="background")
    clock.call_at(NOON_US + 5 * SECOND, seen.append, lane="driven")
    assert len(clock.fire(clock.now_us, ("background",))) == 1
    assert len(clock.advance(0)) == 1
    assert clock.now_us() == NOON_US + 5 * SECOND
    assert len(clock.advance_to_next()) == 1
    assert clock.advance_to_next() == []
    assert clock.now_us() == NOON_US + 9 * SECOND


def test_settle_inside_a_timer_leaves_the_order_to_the_advance(clock: Timekeeper) -> None:
    seen: list[str] = []

    def first(at_us: int) -> None:
        clock.settle()
        seen.append("first")

    clock.call_at(NOON_US + SECOND, first)
    clock.call_at(NOON_US + SECOND, lambda at: seen.append("second"))
    clock.advance(1)
    assert seen == ["first", "second"]


def test_a_failing_timer_ends_the_advance_where_it_is(clock: Timekeeper) -> None:
    seen: list[int] = []
    clock.call_at(NOON_US + 5 * SECOND, lambda at: 1 // 0)
    clock.call_at(NOON_US + 7 * SECOND, seen.append)
    with pytest.raises(ZeroDivisionError):
        clock.advance(10)
    assert clock.now_us() == NOON_US + 5 * SECOND
    assert not clock.is_moving
    clock.advance(5)
    assert seen == [NOON_US + 7 * SECOND]


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from(["state", "driven", "background"])),
        max_size=30,
    ),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_any_timers_fire_once_in_order(timers: list[tuple[int, Lane]], steps: list[int]) -> None:
    clock = Timekeeper(NOON)
    fired: list[tuple[int, int]] = []
    for number, (second, lane) in enumerate(timers):
        due = NOON_US + second * SECOND

        def fire(at_us: int, number: int = number) -> None:
            assert clock.now_us() == at_us
            fired.append((at_us, number))

        clock.call_at(due, fire, lane=lane)
    for step in steps:
        clock.advance(step)
    reached = NOON_US + sum(steps) * SECOND
    expected = [(NOON_US + s * SECOND, n) for n, (s, _) in enumerate(timers)]
    assert fired == (sorted(e for e in expected if e[0] <= reached) if steps else [])


# -- what is planned -------------------------------------------------------------------------------


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
    assert clock.due_times() == {NOON_US + 1, NOON_US + 3}


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
        clock.call_at(NOON_US, lambda at: driven.append(clock.is_moving), lane=lane)  # type: ignore[arg-type]
    clock.dispatch(print)
    clock.advance(1)
    assert driven == [False, True]
    assert clock.is_moving is False


def test_timers_tell_what_they_are_and_when(clock: Timekeeper) -> None:
    assert repr(clock.call_at(NOON_US, print, label="retry")) == (
        "<Timer 'retry' due 2026-01-01T12:00:00+00:00>"
    )
    assert repr(clock.call_at(NOON_US, print)).startswith("<Timer <built-in function print> due ")
    assert Fired(NOON_US + 1, "x", None).at.isoformat() == "2026-01-01T12:00:00.000001+00:00"


# -- the background --------------------------------------------------------------------------------


def test_an_advance_waits_for_a_delivery_in_the_background(background: ThreadPoolExecutor) -> None:
    clock = Timekeeper(NOON)
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def deliver(at_us: int) -> None:
        begun.set()
        assert go_on.wait(10)
        order.append("delivered")

    clock.call_at(NOON_US, deliver, lane="background")
    dispatched = background.submit(clock.dispatch, print)
    assert begun.wait(10)
    assert not clock.is_moving

    def advance() -> None:
        clock.advance(1)
        order.append("advanced")

    advanced = background.submit(advance)
    time.sleep(0.01)
    go_on.set()
    advanced.result(10)
    dispatched.result(10)
    assert order == ["delivered", "advanced"]


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
    jobs: list[Callable[[], object]] = []

    def begin(at_us: int) -> Callable[[], object]:
        assert at_us == NOON_US
        made.append("begun")
        return lambda: made.append("done")

    clock.call_at(clock.now_us(), lambda at: made.append("whole"), lane="background", begin=begin)
    clock.dispatch(jobs.append)
    assert made == ["begun"]
    assert not clock.is_moving
    jobs[0]()
    assert made == ["begun", "done"]
    clock.advance(1)  # The advance is over, so this one is allowed.


def test_an_advance_that_waits_in_vain_says_for_what(
    clock: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "_PATIENCE", 0.01)
    jobs: list[Callable[[], object]] = []
    clock.call_at(NOON_US, print, lane="background", begin=lambda at: lambda: None)
    clock.dispatch(jobs.append)
    assert error_of(clock.advance, 1) == (
        "the clock cannot be moved, because within 0.01 s of real time 1 attempt in the background "
        "did not end, and their effects belong before the move. Let their destinations answer, or "
        "end them sooner with a lower attempt_cap="
    )
    jobs[0]()
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
    jobs: list[Callable[[], object]] = []
    clock.call_at(NOON_US, print, lane="background", begin=lambda at: lambda: None)
    clock.dispatch(jobs.append)
    with pytest.raises(Occupied):
        list(clock.steps(clock.now_us, yielding=True))
    jobs[0]()
    assert list(clock.steps(clock.now_us, yielding=True)) == []


def test_a_delivery_that_fails_is_over(clock: Timekeeper) -> None:
    def fail(value: Any = None) -> None:
        raise KeyError("typo")

    jobs: list[Callable[[], object]] = []
    clock.call_at(NOON_US, fail, lane="background")
    with pytest.raises(KeyError):
        clock.dispatch(print)
    clock.call_at(NOON_US, fail, lane="background", begin=lambda at: fail)
    clock.dispatch(jobs.append)
    with pytest.raises(KeyError):
        jobs[0]()
    clock.advance(1)
    assert clock.now_us() == NOON_US + SECOND


def test_an_advance_of_another_thread_breaks_the_one_under_way(clock: Timekeeper) -> None:
    errors: list[str] = []

    def other(at_us: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            errors.append(pool.submit(lambda: error_of(clock.advance, 1)).result(10))

    clock.call_at(NOON_US + SECOND, other)
    later = clock.call_at(NOON_US + 2 * SECOND, print)
    assert error_of(clock.advance, 3) == UNDER_WAY
    assert errors == [UNDER_WAY]
    assert clock.planned(1) == (1, [later])
    assert len(clock.advance(3)) == 1


# -- registries ------------------------------------------------------------------------------------


def test_registered_objects_may_leave_while_others_are_called() -> None:
    registry = Registry[str]()
    stops = {name: registry.add(name) for name in "abc"}
    called = []
    for name in registry:
        called.append(name)
        stops["b"]()
    assert called == ["a", "b", "c"]
    assert list(registry) == ["a", "c"]
