"""The thread that delivers in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import time_machine

from pytest_fakecloud.kernel.clock import Clock
from pytest_fakecloud.kernel.dispatch import Dispatcher

NOON = "2026-01-01T12:00:00Z"


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON, "running")


@pytest.fixture
def dispatcher(clock: Clock) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(clock)
    yield dispatcher
    assert dispatcher.stop()


def dispatchers() -> int:
    return sum(thread.name == "fakecloud-dispatcher" for thread in threading.enumerate())


def test_it_starts_with_the_first_timer(clock: Clock, dispatcher: Dispatcher) -> None:
    before = dispatchers()
    clock.call_at(clock.now_us(), lambda at: None, lane="driven")
    clock.advance(1)
    assert dispatchers() == before
    done = threading.Event()
    clock.call_at(clock.now_us(), lambda at: done.set(), lane="background")
    assert done.wait(10)
    assert dispatchers() == before + 1


def test_it_delivers_when_due_and_in_order(clock: Clock, dispatcher: Dispatcher) -> None:
    fired: list[tuple[str, bool]] = []
    done = threading.Event()

    def fire(name: str, due_us: int) -> None:
        fired.append((name, clock.now_us() >= due_us))
        if len(fired) == 3:
            done.set()

    now = clock.now_us()
    for name, delay in (("c", 60_000), ("a", 20_000), ("b", 40_000)):
        due = now + delay
        clock.call_at(due, lambda at, n=name, d=due: fire(n, d), lane="background")  # type: ignore[misc]
    assert done.wait(10)
    assert fired == [("a", True), ("b", True), ("c", True)]


def test_an_advance_of_the_test_delivers_and_the_thread_does_not_again(
    clock: Clock, dispatcher: Dispatcher
) -> None:
    fired: list[str] = []
    clock.call_at(
        clock.now_us() + 3_600_000_000,
        lambda at: fired.append(threading.current_thread().name),
        lane="background",
    )
    assert len(clock.advance("1h")) == 1
    time.sleep(0.01)
    assert fired == [threading.current_thread().name]


def test_it_sees_a_tool_move_the_process_clock() -> None:
    with time_machine.travel("2030-01-01T00:00:00Z", tick=False) as traveller:
        clock = Clock()
        dispatcher = Dispatcher(clock)
        done = threading.Event()
        clock.call_at(clock.now_us() + 3_600_000_000, lambda at: done.set(), lane="background")
        traveller.shift(3601)
        assert done.wait(10)
        assert dispatcher.stop()


def test_stopping_waits_for_the_delivery_under_way(clock: Clock) -> None:
    dispatcher = Dispatcher(clock)
    begun, go_on = threading.Event(), threading.Event()
    finished: list[bool] = []

    def deliver(at_us: int) -> None:
        begun.set()
        go_on.wait(10)
        finished.append(True)

    clock.call_at(clock.now_us(), deliver, lane="background")
    clock.call_at(clock.now_us(), lambda at: finished.append(False), lane="background")
    assert begun.wait(10)
    assert not dispatcher.stop(0.01)
    go_on.set()
    assert dispatcher.stop()
    assert finished == [True]


def test_stopping_what_never_started_is_nothing(clock: Clock) -> None:
    dispatcher = Dispatcher(clock)
    assert dispatcher.stop()
    clock.call_at(clock.now_us(), lambda at: None, lane="background")


def test_a_delivery_may_stop_the_dispatcher(clock: Clock) -> None:
    dispatcher = Dispatcher(clock)
    stopped: list[bool] = []
    done = threading.Event()

    def deliver(at_us: int) -> None:
        stopped.append(dispatcher.stop())
        done.set()

    clock.call_at(clock.now_us(), deliver, lane="background")
    assert done.wait(10)
    assert stopped == [True]


def test_a_failing_delivery_is_reported_and_the_next_one_made(clock: Clock) -> None:
    failures: list[Exception] = []
    dispatcher = Dispatcher(clock, failures.append)
    done = threading.Event()
    now = clock.now_us()
    clock.call_at(now, lambda at: 1 // 0, lane="background")
    clock.call_at(now + 1, lambda at: done.set(), lane="background")
    assert done.wait(10)
    assert dispatcher.stop()
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
