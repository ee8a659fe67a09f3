"""The clock of the fakes: order of timers, waits, and situations that must never hang."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import freezegun
import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.clock import Clock, Timekeeper
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timers import LAST_US, Lane, instant_us, monotonic, to_datetime

from ..harness import error_of, wait_until

NOON = "2026-01-01T12:00:00Z"
NOON_US = instant_us(NOON)
SECOND = 1_000_000


@pytest.fixture
def clock() -> Timekeeper:
    return Timekeeper(NOON)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


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


# -- modes ---------------------------------------------------------------------------------------


def test_a_clock_runs_by_default_with_the_process() -> None:
    clock = Timekeeper()
    assert clock.mode == "running"
    before = time.time()
    assert before - 0.001 <= clock.now().timestamp() <= time.time() + 0.001
    assert clock.now().tzinfo is UTC


def test_now_freezes_unless_told_to_run() -> None:
    assert Timekeeper(NOON).mode == "frozen"
    assert Timekeeper(NOON).now() == datetime(2026, 1, 1, 12, tzinfo=UTC)
    running = Timekeeper(NOON, "running")
    assert running.mode == "running"
    first = running.now_us()
    assert 0 <= first - NOON_US < 5 * SECOND
    time.sleep(0.002)
    assert running.now_us() > first


def test_a_frozen_clock_without_now_stands_at_the_present() -> None:
    clock = Timekeeper(mode="frozen")
    assert abs(clock.now().timestamp() - time.time()) < 5
    assert clock.now_us() == clock.now_us()
    assert clock.now_ms() == clock.now_us() // 1000


def test_freeze_and_resume_leave_the_time_where_it_is() -> None:
    clock = Timekeeper(NOON, "running")
    clock.freeze()
    frozen = clock.now_us()
    time.sleep(0.005)
    clock.freeze()
    assert clock.now_us() == frozen
    clock.resume()
    clock.resume()
    assert 0 <= clock.now_us() - frozen < SECOND
    assert clock.mode == "running"


# -- moving --------------------------------------------------------------------------------------


def test_advance_and_move_to(clock: Timekeeper) -> None:
    assert clock.advance(90) == []
    assert clock.now_us() == NOON_US + 90 * SECOND
    clock.advance(timedelta(hours=1))
    clock.advance("1d2h")
    assert clock.now().isoformat() == "2026-01-02T15:01:30+00:00"
    clock.move_to("2026-01-03T00:00:00+01:00")
    assert clock.now().isoformat() == "2026-01-02T23:00:00+00:00"
    clock.move_to(clock.now())
    clock.advance(0)
    assert clock.now().isoformat() == "2026-01-02T23:00:00+00:00"


def test_a_running_clock_that_is_advanced_runs_on() -> None:
    clock = Timekeeper(NOON, "running")
    clock.advance("1h")
    assert clock.mode == "running"
    first = clock.now_us()
    assert 0 <= first - NOON_US - 3600 * SECOND < 5 * SECOND
    time.sleep(0.002)
    assert clock.now_us() > first


# -- timers --------------------------------------------------------------------------------------


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
    kept = weakref.ref(callback)
    del callback
    timer.cancel()
    assert kept() is None


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
    assert not clock.driving
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


# -- what is held --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["running", "frozen"])
def test_time_is_held_while_an_advance_runs(mode: Any, background: ThreadPoolExecutor) -> None:
    clock = Timekeeper(NOON, mode)
    due = NOON_US + 600 * SECOND
    inside: list[int] = []

    def fire(at_us: int) -> None:
        time.sleep(0.003)
        inside.append(clock.now_us())
        inside.append(background.submit(clock.now_us).result(10))

    clock.call_at(due, fire)
    clock.call_at(due, fire)
    clock.advance("1h")
    assert inside == [due] * 4


@pytest.mark.parametrize("mode", ["running", "frozen"])
def test_time_never_goes_back_for_any_thread(mode: Any, background: ThreadPoolExecutor) -> None:
    clock = Timekeeper(NOON, mode)
    stop = threading.Event()

    def watch() -> int:
        last = backward = 0
        while not stop.is_set():
            now = clock.now_us()
            backward += now < last
            last = now
        return backward

    watchers = [background.submit(watch) for _ in range(2)]
    for _ in range(300):
        clock.call_at(clock.now_us() + 500, lambda at: None)
        clock.advance("1ms")
    stop.set()
    assert [watcher.result(10) for watcher in watchers] == [0, 0]


class Watch:
    """A process clock that advances by a second, and runs a function, at its readings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds = itertools.count(1_000)
        self._before: list[Callable[[], object]] = []
        self._after: list[Callable[[], object]] = []
        works = SimpleNamespace(time=self.read)
        monkeypatch.setattr("pytest_fakecloud.core.clock.time", works)

    def read(self) -> float:
        if self._before:
            self._before.pop()()
        now = float(next(self._seconds))
        if self._after:
            self._after.pop()()
        return now

    def before_next(self, do: Callable[[], object]) -> None:
        self._before.append(do)

    def after_next(self, do: Callable[[], object]) -> None:
        self._after.append(do)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_time_that_is_frozen_while_it_is_read_does_not_go_back(
    watch: Watch, background: ThreadPoolExecutor
) -> None:
    clock = Timekeeper(mode="running")
    seen = [clock.now_us()]
    watch.before_next(lambda: background.submit(clock.freeze).result(10))
    seen += [clock.now_us(), clock.now_us()]
    assert clock.mode == "frozen"
    assert seen == sorted(seen)


def test_time_that_stood_for_a_while_as_it_was_read_does_not_go_back(
    watch: Watch, background: ThreadPoolExecutor
) -> None:
    clock = Timekeeper(mode="running")

    def stand_for_a_while() -> None:
        clock.freeze()
        for _ in range(10):
            watch.read()
        clock.resume()

    seen = [clock.now_us()]
    watch.after_next(lambda: background.submit(stand_for_a_while).result(10))
    seen += [clock.now_us(), clock.now_us()]
    assert clock.mode == "running"
    assert seen == sorted(seen)


def test_time_that_is_held_while_it_is_read_does_not_go_back(
    watch: Watch, background: ThreadPoolExecutor
) -> None:
    clock = Timekeeper(mode="running")
    inside, go_on = threading.Event(), threading.Event()

    def fire(at_us: int) -> None:
        inside.set()
        assert go_on.wait(10)

    clock.call_at(0, fire)
    advances: list[Future[Any]] = []

    def begin() -> None:
        advances.append(background.submit(clock.advance, "1s"))
        assert inside.wait(10)

    seen = [clock.now_us()]
    watch.before_next(begin)
    seen += [clock.now_us(), clock.now_us()]
    go_on.set()
    (advance,) = advances
    advance.result(10)
    seen.append(clock.now_us())
    assert seen == sorted(seen)


@pytest.mark.parametrize("stand", [Timekeeper.freeze, lambda clock: clock.advance(0)])
def test_time_that_is_read_just_before_it_stands_does_not_go_back(
    stand: Callable[[Timekeeper], object], watch: Watch, background: ThreadPoolExecutor
) -> None:
    clock = Timekeeper(mode="running")
    reads: list[Future[int]] = []
    seen: list[int] = []

    def read_elsewhere() -> None:
        reads.append(background.submit(clock.now_us))
        wait(reads, 0.05)  # The thread may have to wait until the clock is frozen.

    def look() -> None:
        seen.extend((reads[0].result(10), clock.now_us()))

    clock.call_at(0, lambda at: look())
    watch.after_next(read_elsewhere)
    stand(clock)
    look()
    assert seen == sorted(seen)


def test_freezing_and_resuming_during_an_advance(clock: Timekeeper) -> None:
    clock.call_at(NOON_US + SECOND, lambda at: clock.resume())
    clock.advance(10)
    assert clock.mode == "running"
    assert 0 <= clock.now_us() - NOON_US - 10 * SECOND < 5 * SECOND
    clock.call_at(clock.now_us() + SECOND, lambda at: clock.freeze())
    target = clock.now_us() + 10 * SECOND
    clock.advance(10)
    assert clock.mode == "frozen"
    assert target <= clock.now_us() < target + 5 * SECOND


def test_no_lock_is_held_in_a_callback(clock: Timekeeper, background: ThreadPoolExecutor) -> None:
    def fire(at_us: int) -> None:
        # Call every method that another thread may need during an advance.
        for call in (
            clock.now_us,
            clock.next_due_us,
            clock.signal,
            clock.settle,
            lambda: clock.call_at(NOON_US + 5 * SECOND, lambda at: None),
        ):
            background.submit(call).result(10)

    clock.call_at(NOON_US + SECOND, fire)
    assert len(clock.advance(10)) == 2


# -- the background ------------------------------------------------------------------------------


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
    assert not clock.driving

    def advance() -> None:
        clock.advance(1)
        order.append("advanced")

    advanced = background.submit(advance)
    time.sleep(0.01)
    go_on.set()
    advanced.result(10)
    dispatched.result(10)
    assert order == ["delivered", "advanced"]


# -- waiting -------------------------------------------------------------------------------------


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
    found: list[int] = []
    future, signal = parked_wait(
        background, clock, lambda: found[0] if found else None, NOON_US + 60 * SECOND
    )

    def produce(at_us: int) -> None:
        found.append(at_us)
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
    deadline = NOON_US + 100_000
    future, _ = parked_wait(background, clock, lambda: None, deadline)
    time.sleep(0.15)  # frozen time does not count towards the wait
    assert not future.done()
    clock.resume()
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
            kept = [clock.signal() for _ in range(20)]
            count += len(kept)
        return count

    makers = [background.submit(make) for _ in range(3)]
    for _ in range(100):
        clock.advance("1ms")
    stop.set()
    assert all(maker.result(10) > 0 for maker in makers)
    gc.collect()
    assert len(clock._signals) == 0


# -- tools that steer the process's time ---------------------------------------------------------


def test_time_machine_steers_a_running_clock() -> None:
    clock = Timekeeper()
    with time_machine.travel("2030-05-05T00:00:00Z", tick=False) as traveller:
        assert clock.now() == datetime(2030, 5, 5, tzinfo=UTC)
        traveller.shift(60)
        assert clock.now().minute == 1
        clock.advance("1h")
        assert clock.now().hour == 1
    assert abs(clock.now().timestamp() - 3600 - time.time()) < 5


def test_freezegun_steers_a_running_clock() -> None:
    clock = Timekeeper()
    with freezegun.freeze_time("2030-05-05T00:00:00Z") as frozen:
        assert clock.now() == datetime(2030, 5, 5, tzinfo=UTC)
        frozen.tick(60)
        assert clock.now().minute == 1


def test_a_frozen_clock_is_nobodys_but_its_own(clock: Timekeeper) -> None:
    with time_machine.travel("2030-05-05T00:00:00Z"):
        assert clock.now_us() == NOON_US
    with freezegun.freeze_time("2030-05-05T00:00:00Z"):
        assert clock.now_us() == NOON_US


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


def test_the_true_monotonic_clock_is_not_moved_by_tools() -> None:
    first = monotonic()
    with freezegun.freeze_time("2030-05-05T00:00:00Z"):
        assert 0 <= monotonic() - first < 60
    with time_machine.travel("1990-05-05T00:00:00Z"):
        assert 0 <= monotonic() - first < 60


def test_a_clock_tied_to_real_time_neither_stops_nor_moves() -> None:
    clock = Timekeeper()
    clock.check_real_time()
    fired: list[int] = []
    clock.call_at(clock.now_us(), fired.append)
    first = clock.tie_to_real_time("because of a server")
    second = clock.tie_to_real_time("because of another")
    third = clock.tie_to_real_time("because of another")
    first()
    third()
    third()
    for move in (
        lambda: clock.advance(0),
        lambda: clock.advance(1),
        lambda: clock.move_to("2100-01-01T00:00:00Z"),
        clock.advance_to_next,
        clock.freeze,
        lambda: clock.spend_until(clock.now_us()),
        lambda: clock.rewind(NOON),
        lambda: asyncio.run(Clock(clock).aio.advance(1)),
        lambda: asyncio.run(Clock(clock).aio.move_to("2100-01-01T00:00:00Z")),
        lambda: asyncio.run(Clock(clock).aio.advance_to_next()),
        lambda: list(clock.steps(lambda: clock.now_us() + 60_000_000)),
    ):
        assert error_of(move) == "this clock cannot be stopped or moved: because of another"
    assert clock.mode == "running"
    clock.fire(clock.now_us)
    assert len(fired) == 1
    second()
    clock.advance(3600)
    with pytest.raises(ContractError, match="not at the process's time"):
        clock.check_real_time()


def test_a_running_clock_stands_at_the_end_of_time() -> None:
    clock = Timekeeper("9999-12-31T23:59:59.999Z", "running")
    wait_until(lambda: clock.now_us() >= LAST_US)
    assert clock.now_us() == LAST_US
    clock.wait_cap = 0.05
    # A wait at the end of time ends as on a frozen clock.
    assert clock.wait(clock.signal(), lambda: None, LAST_US + 60 * SECOND) is None
    clock.freeze()
    clock.resume()
    with pytest.raises(ContractError, match="which ends with the year 9999"):
        clock.advance("1us")
    assert clock.advance(0) == []


def test_what_falls_due_after_the_end_of_time_never_does() -> None:
    fired: list[int] = []
    clock = Timekeeper("9999-12-31T23:00:00Z")
    timer = clock.call_at(LAST_US + 1, fired.append)
    assert clock.next_due_us() is None
    assert clock.advance_to_next() == []
    assert "9999" in repr(timer)
    assert clock.move_to("9999-12-31T23:59:59.999999Z") == []
    clock.settle()
    timer.cancel()
    assert fired == []
    clock.call_at(LAST_US, fired.append, label="the last")
    assert [one.label for one in clock.advance(0)] == ["the last"]
