"""The time of a clock: its modes, moves and returns, and the errors when they are not allowed."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import freezegun
import pytest
import time_machine

from pytest_fakecloud.core.clock import STANDS, Clock, Timekeeper
from pytest_fakecloud.core.errors import ContractError, shown
from pytest_fakecloud.core.timers import LAST_US, instant_us, monotonic

from ..harness import error_of, wait_until

NOON = "2026-01-01T12:00:00Z"
NOON_US = instant_us(NOON)
SECOND = 1_000_000
DAY = 86_400 * SECOND
UNDER_WAY = (
    "the clock is already being advanced: it cannot be advanced again from inside a handler or from "
    "a second thread. Let the outer call return first; to make an answer take time, give the "
    "destination a duration instead"
)


def process_us() -> int:
    return Timekeeper().now_us()


# -- modes -----------------------------------------------------------------------------------------


def test_a_clock_runs_by_default_with_the_process() -> None:
    clock = Timekeeper()
    assert clock.mode == "running"
    before = time.time()
    assert before - 0.001 <= clock.now().timestamp() <= time.time() + 0.001
    assert clock.now().tzinfo is UTC


@pytest.mark.parametrize("value", [None, "noon", float("nan"), float("inf"), -1e30, 1e30])
def test_a_replaced_process_clock_that_returns_no_time_is_ignored(
    monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    real, clock = time.time, Timekeeper()
    monkeypatch.setattr(time, "time", lambda: value)
    assert abs(clock.now_us() / SECOND - real()) < 5
    assert clock.replaced == f"time.time() returned {shown(value)}, because a test has replaced it"


def test_a_replaced_process_clock_that_raises_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> float:
        raise LookupError("no time")

    real, clock = time.time, Timekeeper()
    monkeypatch.setattr(time, "time", fail)
    assert abs(clock.now_us() / SECOND - real()) < 5
    raised = shown(LookupError("no time"))
    assert clock.replaced == f"time.time() raised {raised}, because a test has replaced it"


def test_a_clock_runs_before_the_epoch() -> None:
    start = "1900-01-01T00:00:00Z"
    clock = Timekeeper(start, "running")
    assert 0 <= clock.now_us() - instant_us(start) < 5 * SECOND


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


# -- moving ----------------------------------------------------------------------------------------


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


# -- what may not be done --------------------------------------------------------------------------


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


# -- what is held ----------------------------------------------------------------------------------


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


# -- anchored --------------------------------------------------------------------------------------


def test_an_anchored_clock_stands_until_its_anchor_is_weighed() -> None:
    clock = Timekeeper(NOON, "running")
    clock.advance(DAY / SECOND)
    assert (clock.mode, clock.anchored) == ("running", False)
    weigh = clock.anchor()
    at_us = clock.now_us()
    assert (clock.mode, clock.anchored) == ("frozen", True)
    assert error_of(clock.resume) == f"this clock cannot run: {STANDS}"
    assert error_of(lambda: clock.rewind(mode="running")) == f"this clock cannot run: {STANDS}"
    clock.advance(5)
    assert clock.now_us() == at_us + 5 * SECOND
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


# -- returning -------------------------------------------------------------------------------------


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


# -- time that passes by the way -------------------------------------------------------------------


def test_time_that_is_spent_makes_nothing_happen(clock: Timekeeper) -> None:
    fired: list[int] = []
    clock.call_at(NOON_US + SECOND, fired.append)
    clock.spend_until(NOON_US + 5 * SECOND)
    assert (clock.now_us(), fired) == (NOON_US + 5 * SECOND, [])
    clock.spend_until(NOON_US + 2 * SECOND)
    assert clock.now_us() == NOON_US + 5 * SECOND
    assert [timer.at_us for timer in clock.advance(0)] == [NOON_US + 5 * SECOND]


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


# -- tools that steer the process's time -----------------------------------------------------------


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


def test_the_true_monotonic_clock_is_not_moved_by_tools() -> None:
    first = monotonic()
    with freezegun.freeze_time("2030-05-05T00:00:00Z"):
        assert 0 <= monotonic() - first < 60
    with time_machine.travel("1990-05-05T00:00:00Z"):
        assert 0 <= monotonic() - first < 60


# -- the end of time -------------------------------------------------------------------------------


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
    assert [timer.label for timer in clock.advance(0)] == ["the last"]
