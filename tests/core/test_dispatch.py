"""The thread that makes background deliveries."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import time_machine

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.threads import Dispatcher
from pytest_fakecloud.core.timers import ClockTurns

NOON = "2026-01-01T12:00:00Z"


@pytest.fixture
def clock() -> Timekeeper:
    return Timekeeper(NOON, "running")


@pytest.fixture
def dispatcher(clock: Timekeeper) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(clock)
    yield dispatcher
    assert dispatcher.stop()


def dispatchers() -> int:
    return sum(thread.name == "fakecloud-dispatcher" for thread in threading.enumerate())


def test_it_starts_with_the_first_timer(clock: Timekeeper, dispatcher: Dispatcher) -> None:
    before = dispatchers()
    clock.call_at(clock.now_us(), lambda at: None, lane="driven")
    clock.advance(1)
    assert dispatchers() == before
    done = threading.Event()
    clock.call_at(clock.now_us(), lambda at: done.set(), lane="background")
    assert done.wait(10)
    assert dispatchers() == before + 1


def test_a_stop_just_before_timers_fire_is_not_missed(clock: Timekeeper) -> None:
    planned = threading.Event()

    class Stopping(Dispatcher):
        def fire_due(self) -> float | None:
            assert planned.wait(10)
            # As another thread can do between the check whether it is stopped and this call.
            assert not self.stopped
            self.stopped = True
            self._wake.set()
            return super().fire_due()

    dispatcher = Stopping(clock)
    clock.call_at(clock.now_us(), lambda at: None, lane="background")
    planned.set()
    thread = dispatcher._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    assert dispatcher.stop()


def test_it_delivers_when_due_and_in_order(clock: Timekeeper, dispatcher: Dispatcher) -> None:
    fired: list[tuple[str, bool]] = []
    done = threading.Event()

    def fire(name: str, due_us: int) -> None:
        fired.append((name, clock.now_us() >= due_us))
        if len(fired) == 3:
            done.set()

    # Freeze the clock, so that no timer is due before all are planned.
    clock.freeze()
    now = clock.now_us()
    for name, delay in (("c", 60_000), ("a", 20_000), ("b", 40_000)):
        due = now + delay
        clock.call_at(due, lambda at, n=name, d=due: fire(n, d), lane="background")  # type: ignore[misc]
    clock.resume()
    assert done.wait(10)
    assert fired == [("a", True), ("b", True), ("c", True)]


def test_an_advance_of_the_test_delivers_and_the_thread_does_not_again(
    clock: Timekeeper, dispatcher: Dispatcher
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
        clock = Timekeeper()
        dispatcher = Dispatcher(clock)
        done = threading.Event()
        clock.call_at(clock.now_us() + 3_600_000_000, lambda at: done.set(), lane="background")
        traveller.shift(3601)
        assert done.wait(10)
        assert dispatcher.stop()


def test_stopping_waits_for_the_delivery_under_way(clock: Timekeeper) -> None:
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


def test_stopping_what_never_started_is_nothing(clock: Timekeeper) -> None:
    dispatcher = Dispatcher(clock)
    assert dispatcher.stop()
    clock.call_at(clock.now_us(), lambda at: None, lane="background")


def test_a_failing_delivery_is_reported_and_the_next_one_made(clock: Timekeeper) -> None:
    failures: list[BaseException] = []
    dispatcher = Dispatcher(clock, failures.append)
    done = threading.Event()
    now = clock.now_us()
    clock.call_at(now, lambda at: 1 // 0, lane="background")
    clock.call_at(now + 1, lambda at: done.set(), lane="background")
    assert done.wait(10)
    assert dispatcher.stop()
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


# -- side by side ----------------------------------------------------------------------------------


def plan(clock: Timekeeper, begin: Callable[[int], Callable[[], object] | None]) -> None:
    """Plan a background delivery that is due now."""

    def whole(at_us: int) -> None:
        rest = begin(at_us)
        if rest is not None:
            rest()

    clock.call_at(clock.now_us(), whole, lane="background", begin=begin)


def begun_delivery(clock: Timekeeper) -> threading.Event:
    """Begin a background delivery that lasts until the returned event is set."""
    begun, go_on = threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        go_on.wait(10)

    plan(clock, lambda at_us: hangs)
    assert begun.wait(10)
    return go_on


def test_deliveries_begin_in_order_and_are_made_side_by_side(
    clock: Timekeeper, dispatcher: Dispatcher
) -> None:
    begun: list[int] = []
    together = threading.Barrier(10, timeout=10)
    done = [threading.Event() for _ in range(10)]

    def begin(number: int, at_us: int) -> Callable[[], object]:
        begun.append(number)
        return partial(rest, number)

    def rest(number: int) -> None:
        together.wait()
        done[number].set()

    for number in range(10):
        plan(clock, partial(begin, number))
    assert all(event.wait(10) for event in done)
    assert begun == list(range(10))


def test_what_is_due_beyond_the_bound_waits_for_one_to_end(clock: Timekeeper) -> None:
    dispatcher = Dispatcher(clock, at_once=2)
    go_on = [threading.Event() for _ in range(3)]
    begun = [threading.Event() for _ in range(3)]

    def begin(number: int, at_us: int) -> Callable[[], object]:
        begun[number].set()
        return partial(go_on[number].wait, 10)

    for number in range(3):
        plan(clock, partial(begin, number))
    assert begun[0].wait(10)
    assert begun[1].wait(10)
    assert not begun[2].wait(0.05)
    assert dispatcher.fire_due() is None  # there is nothing to do before a delivery ends
    go_on[1].set()
    assert begun[2].wait(10)
    for event in go_on:
        event.set()
    assert dispatcher.stop()


def test_the_bound_holds_after_any_number_of_deliveries(clock: Timekeeper) -> None:
    dispatcher = Dispatcher(clock, at_once=1)
    made: list[int] = []
    under_way: list[int] = []

    def begin(number: int, at_us: int) -> Callable[[], object]:
        return partial(rest, number)

    def rest(number: int) -> None:
        assert under_way == []
        under_way.append(number)
        made.append(under_way.pop())
        if number == 9:
            last.set()

    last = threading.Event()
    for number in range(8):
        plan(clock, partial(begin, number))
    go_on, begun = threading.Event(), threading.Event()
    plan(clock, lambda at_us: lambda: (begun.set(), go_on.wait(10)))
    plan(clock, partial(begin, 9))
    assert begun.wait(10)
    assert not last.wait(0.05)
    go_on.set()
    assert last.wait(10)
    assert made == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert dispatcher.stop()


def test_its_threads_have_names_and_keep_no_process_alive(
    clock: Timekeeper, dispatcher: Dispatcher
) -> None:
    threads: list[threading.Thread] = []
    done = threading.Event()

    def begin(at_us: int) -> Callable[[], object]:
        threads.append(threading.current_thread())
        return lambda: threads.append(threading.current_thread()) or done.set()

    plan(clock, begin)
    assert done.wait(10)
    assert [thread.name for thread in threads] == ["fakecloud-dispatcher", "fakecloud-delivery-1"]
    assert all(thread.daemon for thread in threads)


def test_it_says_where_a_delivery_stands_that_does_not_end(
    clock: Timekeeper, dispatcher: Dispatcher
) -> None:
    assert dispatcher.place == ""
    go_on, ended = begun_delivery(clock), threading.Event()
    assert "in hangs\n    go_on.wait(10)" in dispatcher.place
    go_on.set()
    plan(clock, lambda at_us: ended.set)
    assert ended.wait(10)
    clock.advance(1)  # waits for the functions that were handed over
    assert "in hangs" not in dispatcher.place
    assert "worker.wake" not in dispatcher.place


def test_at_the_end_of_the_process_deliveries_have_a_second(
    clock: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Callable[[], object]] = []
    monkeypatch.setattr("atexit.register", ends.append)
    monkeypatch.setattr("atexit.unregister", ends.remove)
    dispatcher = Dispatcher(clock)
    done = threading.Event()
    plan(clock, lambda at_us: done.set)
    assert done.wait(10)
    stops: list[float] = []
    with monkeypatch.context() as at_exit:
        at_exit.setattr(dispatcher, "stop", stops.append)
        for end in ends:
            end()
    assert stops == [1.0]
    assert dispatcher.stop()
    assert ends == []


def test_an_advance_waits_for_what_was_handed_over_and_no_new_one_begins(
    clock: Timekeeper, dispatcher: Dispatcher
) -> None:
    order: list[str] = []
    begun, go_on, later = threading.Event(), threading.Event(), threading.Event()

    def rest() -> None:
        begun.set()
        assert go_on.wait(10)
        order.append("delivered")

    plan(clock, lambda at_us: rest)
    assert begun.wait(10)
    assert not clock.is_moving

    def advance() -> None:
        clock.advance(1)
        order.append("advanced")
        later.set()

    driving = threading.Thread(target=advance)
    driving.start()
    assert not later.wait(0.05)
    go_on.set()
    driving.join(10)
    assert order == ["delivered", "advanced"]


def test_a_function_that_was_handed_over_twice_counts_twice() -> None:
    turns = ClockTurns()
    first, second = turns.hand_over(list), turns.hand_over(list)
    first()
    assert len(turns._jobs) == 1
    second()
    assert not turns._jobs


def test_what_was_handed_over_cannot_move_the_clock(
    clock: Timekeeper, dispatcher: Dispatcher
) -> None:
    errors: list[str] = []
    done = threading.Event()

    def rest() -> None:
        with pytest.raises(ContractError) as caught:
            # Use a context of its own, like a coroutine that a handler awaits.
            contextvars.copy_context().run(clock.advance, 1)
        errors.append(str(caught.value))
        done.set()

    plan(clock, lambda at_us: rest)
    assert done.wait(10)
    assert "the clock is already being advanced" in errors[0]


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_end_nothing_runs_and_no_thread_is_left(clock: Timekeeper, fails: bool) -> None:
    failures: list[BaseException] = []
    dispatcher = Dispatcher(clock, failures.append)
    begun, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    def rest() -> None:
        begun.set()
        go_on.wait(10)
        ended.append("first")
        if fails:
            raise KeyboardInterrupt

    plan(clock, lambda at_us: rest)
    assert begun.wait(10)
    threading.Timer(0.02, go_on.set).start()
    assert dispatcher.stop()
    plan(clock, lambda at_us: lambda: ended.append("second"))
    assert ended == ["first"]
    assert [type(failure) for failure in failures] == ([KeyboardInterrupt] if fails else [])
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("fakecloud-d")]


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_delivery_may_stop_the_dispatcher(clock: Timekeeper, handed_over: bool) -> None:
    dispatcher = Dispatcher(clock)
    stopped: list[bool] = []
    done = threading.Event()

    def deliver() -> None:
        stopped.append(dispatcher.stop())
        done.set()

    begin = (lambda at_us: deliver) if handed_over else None
    clock.call_at(clock.now_us(), lambda at: deliver(), lane="background", begin=begin)
    assert done.wait(10)
    assert stopped == [True]


def test_without_a_thread_to_be_had_it_is_delivered_all_the_same(
    clock: Timekeeper, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("fakecloud-delivery"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr("pytest_fakecloud.core.threads.start_thread", refuse)
    done = threading.Event()
    plan(clock, lambda at_us: done.set)
    assert done.wait(10)
