"""The clock of a cloud: the ``Timekeeper`` with its timers, waiting calls and rules for moving it, the
``Clock`` as tests use it, and awaitable versions of blocking calls.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from math import floor
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from .errors import ContractError, shown
from .registry import Registry
from .signals import Signal
from .timers import (
    LANES,
    LAST_US,
    Begin,
    ClockTurns,
    Duration,
    Fired,
    Instant,
    Lane,
    Planned,
    Timer,
    duration_us,
    instant_us,
    monotonic,
    process_seconds,
    to_datetime,
)

P = ParamSpec("P")
T = TypeVar("T")
Mode = Literal["running", "frozen"]
Target: TypeAlias = Callable[[], int]
"""A function that returns the time to move to, in microseconds, when the move begins."""
Reads: TypeAlias = deque[tuple[int, int]]
"""A log of clock readings: pairs of a thread's ID and the time that it read. A pair with a negative
number holds the negated number of a journal entry, to which the later readings belong.
"""
STANDS = (
    "with process_time=True the process's time follows it, and both are frozen until the test "
    "moves them. Use advance() or move_to(), or leave out process_time"
)
_STALLED = 0.02
"""Real seconds in which a running clock must move; otherwise it is treated as frozen."""
BACKGROUND: tuple[Lane, ...] = ("background",)
_COMPACT = 64
"""Cancelled timers are removed only from lanes with at least this many timers."""


@dataclass
class Move:
    """An advance in progress: its start and its target in microseconds, and the number of events that
    became due so far. If ``stopped`` is set, it ends after the event in progress.
    """

    since_us: int
    until_us: int
    events: int = 0
    stopped: bool = False


class Timekeeper:
    """The clock of a cloud, as the fakes use it. Tests use the ``Clock`` that holds it and documents
    the methods of the same name.

    ``now`` is an aware datetime or an ISO string with an offset; it freezes the clock unless
    ``mode`` says otherwise. Internally, times are integers: microseconds since the Unix epoch.

    Timers fire in (due, sequence) order inside ``advance`` and ``move_to``, each at its own due
    time; timers that a timer creates join the same advance. Timers of the lane ``"state"`` (pure
    changes of an engine) also fire in ``settle()``, timers of ``"background"`` in ``dispatch()``.
    """

    on_background: Callable[[], object] | None = None
    """A function called before the listeners when a timer of lane ``"background"`` is planned."""

    wait_cap = 1.0
    """Maximum real seconds of a client's blocking call on a frozen clock. A call with a shorter timeout
    ends after as many real seconds.
    """
    anchored = False
    """Whether the process's time follows the clock, which therefore cannot run."""
    moving_calls = 0
    """The number of calls of tests that moved the clock or triggered due events."""
    replaced = ""
    """What a replacement of ``time.time()`` last did, if it gave no time that the clock can follow."""
    has_fired = False
    """Whether the test has fired due timers: by an advance, a move or a delivering call."""

    def __init__(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        self._lock = threading.Lock()
        """Protects the time and the planned timers."""
        self._lanes: Mapping[Lane, list[Planned]] = {"state": [], "driven": [], "background": []}
        """A heap of planned timers for each lane, always the same list object."""
        self.state_timers = self._lanes["state"]
        """The planned timers that change data; some may be cancelled."""
        self._compact_at: dict[Lane, int] = {}
        self._timer_numbers = itertools.count()
        self._settling = threading.RLock()
        self._frozen_us: int | None
        """The time of a frozen clock; None if the clock runs."""
        self._held_us: int | None = None
        """The time during an advance, which stands at the due time of the timer that fires."""
        self._firing: Planned | None = None
        """The timer that an advance fires, until its callback has returned."""
        self.move: Move | None = None
        """The advance in progress."""
        self._offset_us: int
        """The time of a running clock minus the process's."""
        self._live_us: int | None
        """``_offset_us`` while the clock runs outside an advance, otherwise None."""
        self.reads: Reads | None = None
        """The running clock's readings, for reports that replay the journal; None if not recorded."""
        self.listeners: Registry[Callable[[], None]] = Registry()
        """Functions that are called after each move of the clock."""
        self.moving_call_ends: Registry[Callable[[], None]] = Registry()
        """Functions that are called at the end of each call that ``moving_calls`` counts."""
        self._ties: Registry[tuple[str]] = Registry()
        """Reasons why the clock cannot be moved, each in a tuple, so that equal ones are distinct."""
        self._turns = ClockTurns()
        self._signals: weakref.WeakSet[Signal] = weakref.WeakSet()
        self._start_us, self._starts_frozen = start_of(now, mode)
        self._begin_at(self._start_us, self._starts_frozen)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        return "running" if self._frozen_us is None else "frozen"

    def now(self) -> datetime:
        return to_datetime(self.now_us())

    def now_ms(self) -> int:
        return self.now_us() // 1000

    def now_us(self) -> int:
        # Read without the lock, because every request does. A running clock's value is used only if
        # the clock still runs afterwards, because another thread may have stopped it earlier.
        offset = self._live_us
        if offset is not None:
            # Not by _process_us(), because a request reads the time several times.
            try:
                running = floor(time.time() * 1e6) + offset
                if not 0 <= running < LAST_US:
                    raise OverflowError
            except Exception:  # A test may have replaced the function by another.
                running = min(self._process_us() + offset, LAST_US)
            if self._live_us is offset:
                if self.reads is not None:
                    self.reads.append((threading.get_ident(), running))
                return running
        held = self._held_us
        if held is not None:
            return held
        frozen = self._frozen_us
        if frozen is not None:
            return frozen
        with self._lock:
            return self._current_us()

    # -- moving ----------------------------------------------------------------------------------

    def freeze(self) -> None:
        self._check_free()
        with self._lock:
            if self._frozen_us is None:
                self._frozen_us = self._stop_us()
        self._moved()

    def resume(self) -> None:
        self._check_can_run()
        with self._lock:
            if self._frozen_us is not None:
                self._offset_us = self._frozen_us - self._process_us()
                # No call between these, so that no handler of a signal runs there.
                if self._held_us is None:
                    self._live_us = self._offset_us
                self._frozen_us = None
        self._moved()

    def advance(self, duration: Duration) -> list[Fired]:
        __tracebackhide__ = True
        with self.moving_call():
            return self.fire(self.target_after(duration))

    def move_to(self, instant: Instant) -> list[Fired]:
        __tracebackhide__ = True
        with self.moving_call():
            return self.fire(self.target_at(instant))

    def advance_to_next(self) -> list[Fired]:
        __tracebackhide__ = True
        target = self.next_target()
        if target is None:
            return []
        with self.moving_call():
            return self.fire(target)

    def target_after(self, duration: Duration) -> Target:
        """Return the target of an advance by a duration."""
        self._check_free()
        span = duration_us(duration)
        return lambda: self.now_us() + span

    def target_at(self, instant: Instant) -> Target:
        """Return the target of a move to a time, which raises ``ContractError`` if that is past."""
        self._check_free()
        target_us = instant_us(instant)

        def target() -> int:
            now_us = self.now_us()
            if target_us < now_us:
                raise ContractError(
                    f"time cannot go back: it is {to_datetime(now_us).isoformat()} on this clock, "
                    f"and {to_datetime(target_us).isoformat()} is earlier"
                )
            return target_us

        return target

    def next_target(self) -> Target | None:
        """Return the target of a move to the next timer, or None if none is planned."""
        self._check_free()
        due = self.next_due_us()
        return None if due is None else lambda: max(due, self.now_us())

    @contextmanager
    def moving_call(self) -> Iterator[None]:
        """Enclose a call of the test that moves the clock, in one or several steps."""
        __tracebackhide__ = True
        self.moving_calls += 1
        try:
            yield
        finally:
            for listener in self.moving_call_ends:
                listener()

    def steps(
        self,
        target: Target,
        lanes: tuple[Lane, ...] = LANES,
        *,
        yielding: bool = False,
        done: Callable[[], bool] = lambda: False,
    ) -> Generator[Timer, None, None]:
        """Yield the timers due up to a target time, holding the clock at each timer's due time.

        The caller fires each timer before it takes the next, so the synchronous and the
        asynchronous API share this loop, which also ends once ``done()`` returns true or ``move`` is
        stopped. If another advance is in progress, raises ``ContractError``, which also fails that
        advance, or with ``yielding`` only ``Occupied``. Also raises ``ContractError`` for a later time
        if the clock cannot be moved.
        """
        turns, move = self._turns, object()
        try:
            turns.begin(move, yielding)
            self.has_fired = True
            try:
                with self._lock:
                    self._held_us = now = self._stop_us()
                target_us = target()
                self._check_reach(target_us)
                moved = target_us > now
                if moved:
                    self._check_free()
                self._firing = None
                self.move = in_progress = Move(now, target_us)
                while (timer := self._pop(lanes, target_us, keep=True)) is not None:
                    if timer.due_us > self._held_us:
                        self._held_us = timer.due_us
                        self._moved()
                    yield timer
                    self._firing = None
                    in_progress.events += 1
                    if turns.breach is not None or in_progress.stopped or done():
                        break
                else:
                    if moved and target_us > self._held_us:
                        self._held_us = target_us
            finally:
                self.move = None
                if (firing := self._firing) is not None:
                    self._firing = None
                    self._plan_again(firing)
                try:
                    self._release()
                except BaseException:
                    # A signal's handler may have interrupted it, and nothing else would end the hold.
                    self._release()
                    raise
            if turns.breach is not None:
                raise turns.breach
        finally:
            turns.moves.discard(move)
            turns.changed()

    def fire(
        self,
        target: Target,
        lanes: tuple[Lane, ...] = LANES,
        *,
        yielding: bool = False,
        done: Callable[[], bool] = lambda: False,
    ) -> list[Fired]:
        """Fire and return the timers due up to a target, or until ``done()`` returns true."""
        __tracebackhide__ = True
        fired = []
        steps = self.steps(target, lanes, yielding=yielding, done=done)
        try:
            for timer in steps:
                at_us = self.now_us()
                fired.append(Fired(at_us, timer.label, timer.callback(timer.due_us), timer.subject))
        except Exception:
            self._firing = None  # The callback has failed, and is not repeated.
            raise
        finally:
            # Close the iterator now, because an exception with a traceback would keep it alive.
            # Not with closing(), whose __exit__() is written in Python and can be interrupted.
            steps.close()
        return fired

    async def fire_async(
        self, target: Target, *, yielding: bool = False, done: Callable[[], bool] = lambda: False
    ) -> list[Fired]:
        """Awaitable ``fire()``, which awaits deliveries in the running event loop."""
        # Yield first, so that a caller that repeats this call in a loop can be cancelled.
        await checkpoint()
        fired = []
        steps = self.steps(target, yielding=yielding, done=done)
        try:
            for timer in steps:
                at_us = self.now_us()
                if timer.async_callback is not None:
                    result = await timer.async_callback(timer.due_us)
                else:
                    result = timer.callback(timer.due_us)
                fired.append(Fired(at_us, timer.label, result, timer.subject))
        except Exception:
            self._firing = None
            raise
        finally:
            steps.close()
        return fired

    # -- state -----------------------------------------------------------------------------------

    def _begin_at(self, start_us: int | None, frozen: bool) -> None:
        """Start at a time (None: the process's time), running or frozen."""
        self._live_us = self._frozen_us = None
        self.replaced = ""
        if frozen:
            self._frozen_us = self._process_us() if start_us is None else start_us
        else:
            self._offset_us = 0 if start_us is None else start_us - self._process_us()
            self._live_us = self._offset_us

    def _process_us(self) -> int:
        """Return the process's own time in microseconds since the Unix epoch."""
        try:
            microseconds = floor(time.time() * 1e6)
            if -LAST_US <= microseconds <= LAST_US:
                return microseconds
        except Exception:  # Not with suppress(), which takes as long as the rest.
            pass
        # A test has replaced the function by another that returns no time.
        return floor(process_seconds(self._note_replaced) * 1e6)

    def _note_replaced(self, text: str) -> None:
        self.replaced = text

    def _current_us(self) -> int:
        """Return the current time; the caller holds the lock."""
        if self._held_us is not None:
            return self._held_us
        if self._frozen_us is not None:
            return self._frozen_us
        return min(self._process_us() + self._offset_us, LAST_US)

    def _stop_us(self) -> int:
        """Return the time at which the clock is about to stop. No thread has read a later time."""
        self._live_us = None
        return self._current_us()

    def _go_live(self) -> None:
        self._live_us = self._offset_us if self._frozen_us is None else None

    def _check_free(self) -> None:
        if ties := list(self._ties):
            raise ContractError(f"this clock cannot be stopped or moved: {ties[0][0]}")

    def _check_can_run(self) -> None:
        if self.anchored:
            raise ContractError(f"this clock cannot run: {STANDS}")

    def _check_reach(self, target_us: int) -> None:
        if target_us > LAST_US:
            raise ContractError(
                f"it is {self.now().isoformat()} on this clock, which ends with the year "
                "9999: start earlier (now=), or advance by less"
            )

    def _release(self) -> None:
        with self._lock:
            held = self._held_us
            if held is not None:
                if self._frozen_us is not None:
                    self._frozen_us = held
                else:
                    self._offset_us += max(0, held - (self._process_us() + self._offset_us))
            self._go_live()
            # Set this last, because now_us() reads without the lock and must never go back.
            self._held_us = None
        self._moved()

    def _moved(self) -> None:
        with self._lock:
            # Without a signal, do not iterate over the WeakSet, which calls ten functions in Python.
            signals = list(self._signals or ())
        for signal in signals:
            signal.notify()
        for listener in self.listeners:
            listener()

    # -- rules -----------------------------------------------------------------------------------

    @property
    def is_moving(self) -> bool:
        return self._turns.moving

    def tie_to_real_time(self, reason: str) -> Callable[[], None]:
        """Forbid moving the clock, whose fakes are real servers; return a function to allow it."""
        return self._ties.add((reason,))

    def check_real_time(self) -> None:
        """Raise ``ContractError`` unless the clock is running and shows the process's own time."""
        frozen = self._frozen_us is not None
        if frozen or abs(self.now_us() - self._process_us()) > 1_000_000:
            state = "frozen" if frozen else "not at the process's time"
            raise ContractError(
                f"this clock is {state}, but a real server uses real time: use the in-memory "
                "engine (leave out engine=), or a running clock"
            )

    def anchor(self) -> Callable[[], None]:
        """Stop the clock, which the process's time follows, until the returned function is called.
        Until then it cannot run, and ``rewind()`` returns to its current time.
        """
        before = self.mode, self.anchored, self._start_us, self._starts_frozen

        def undo() -> None:
            with self._lock:
                mode, self.anchored, self._start_us, self._starts_frozen = before
            if mode == "running":
                self.resume()

        try:
            self.freeze()
            with self._lock:
                self._start_us, self._starts_frozen = self._current_us(), True
                self.anchored = True
        except BaseException:
            # A signal's handler may have interrupted it, and nothing else would undo it.
            undo()
            raise
        return undo

    def spend_until(self, instant_us: int) -> None:
        """Move a frozen clock to a time without firing timers, which fire at the next opportunity.
        For work that takes time itself, inside an advance or a delivery.
        """
        self._check_free()
        self._check_reach(instant_us)
        with self._lock:
            if self._held_us is not None:
                self._held_us = max(self._held_us, instant_us)
            elif self._frozen_us is not None:
                self._frozen_us = max(self._frozen_us, instant_us)
        self._moved()

    def rewind(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        """Return to the clock's initial mode and time, or once to the given ones.

        Called between two tests that use the same cloud, and before data of an earlier time is restored;
        nothing else moves time back. Timers stay planned; their owners replace them. Raises
        ``ContractError`` during an advance, for another start if the clock cannot be moved, and for a
        running mode if the process's time follows it.
        """
        start_us, frozen = self._start_us, self._starts_frozen
        if now is not None or mode is not None:
            self._check_free()
            start_us, frozen = start_of(now, mode)
            if not frozen:
                self._check_can_run()
        turns, move = self._turns, object()
        try:
            turns.begin(move)
            with self._lock:
                self._begin_at(start_us, frozen)
        finally:
            turns.moves.discard(move)
            turns.changed()
        self._moved()

    def next_due_us(self, lanes: tuple[Lane, ...] = LANES) -> int | None:
        """Return when the next timer of the lanes is due, or None if none is planned."""
        with self._lock:
            heads = [head[0] for lane in lanes if (head := self._head(lane)) is not None]
        return min(heads, default=None)

    def dispatch(
        self,
        hand_over: Callable[[Callable[[], object]], object],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fire due timers of the lane ``"background"`` without moving the clock.

        Called by the thread that delivers in the background. The function that a timer's ``begin``
        returns is passed to ``hand_over``, which may run it in any thread. Waits for an advance in
        progress; an advance waits for this call and for those functions. Ends once ``stopped()``.
        """
        while not stopped():
            due = self.next_due_us(BACKGROUND)
            if due is None or due > self.now_us():
                return
            work: Callable[[], object] | None = None
            with self._turns.dispatch() as free:
                if not free:
                    return
                timer = self._pop(BACKGROUND, self.now_us())
                if timer is not None:
                    if timer.begin is None:
                        timer.callback(timer.due_us)
                    elif (work := timer.begin(timer.due_us)) is not None:
                        # Register it now, so that no advance starts before it runs.
                        work = self._turns.hand_over(work)
            if work is not None:
                hand_over(work)

    def settle(self) -> int:
        """Fire the due timers that change data (lane ``"state"``), before somebody reads it; return the
        current time.
        """
        now = self.now_us()  # Every request calls this, so check without the lock first.
        # Take a slice, because another thread may remove the only timer.
        first = self.state_timers and self.state_timers[:1]
        if not first or first[0][0] > now or self.is_moving:
            return now
        with self._settling:
            while (timer := self._pop(("state",), self.now_us())) is not None:
                timer.callback(timer.due_us)
        return self.now_us()

    # -- timers ----------------------------------------------------------------------------------

    def call_at(
        self,
        due_us: int,
        callback: Callable[[int], object],
        *,
        lane: Lane = "state",
        label: str = "",
        async_callback: Callable[[int], Awaitable[object]] | None = None,
        begin: Begin | None = None,
        subject: str = "",
    ) -> Timer:
        """Call ``callback(due_us)`` at a time, or soon if the time has passed.

        A timer that is due after the end of the year 9999 never fires. Moving calls of the
        asynchronous API await ``async_callback`` instead, and ``dispatch()`` uses ``begin`` if it
        can hand over work. Callbacks run without holding any lock of the clock.
        """
        timer = Timer(due_us, callback, lane, label, async_callback, begin, subject)
        with self._lock:
            timer.sequence = next(self._timer_numbers)
            if due_us <= LAST_US:
                planned = self._lanes[lane]
                heapq.heappush(planned, (due_us, timer.sequence, timer))
                if len(planned) > self._compact_at.get(lane, _COMPACT):
                    # Remove cancelled timers, which pile up when a deadline is postponed repeatedly.
                    planned[:] = [timed for timed in planned if not timed[2].cancelled]
                    heapq.heapify(planned)
                    self._compact_at[lane] = max(_COMPACT, 2 * len(planned))
        if lane == "background":
            if self.on_background is not None:
                self.on_background()
            for listener in self.listeners:
                listener()
        return timer

    def planned(self, most: int | None = None) -> tuple[int, list[Timer]]:
        """Return how many timers are planned, and the first ``most`` of them (None: all) in order."""
        with self._lock:
            planned = [
                timed for lane in self._lanes.values() for timed in lane if not timed[2].cancelled
            ]
        return len(planned), [timer for _, _, timer in sorted(planned)[:most]]

    def due_times(self) -> set[int]:
        """Return the times, in microseconds, at which the planned timers are due."""
        due_times = set()
        with self._lock:
            for planned in self._lanes.values():
                for due_us, _, timer in planned:
                    if not timer.cancelled:
                        due_times.add(due_us)
        return due_times

    def forget_timers(self) -> None:
        """Forget the planned timers and ``on_background``, which refer to a closed cloud."""
        self.on_background = None
        with self._lock:
            for planned in self._lanes.values():
                planned.clear()

    def _pop(self, lanes: tuple[Lane, ...], until_us: int, keep: bool = False) -> Timer | None:
        """Remove and return the first timer of the lanes that is due by ``until_us``, or None.

        With ``keep``, it becomes ``_firing``.
        """
        with self._lock:
            heads = [head for lane in lanes if (head := self._head(lane)) is not None]
            first = min(heads, default=None)
            if first is None or first[0] > until_us:
                return None
            if keep:
                self._firing = first
            return heapq.heappop(self._lanes[first[2].lane])[2]

    def _plan_again(self, planned: Planned) -> None:
        """Plan a timer again that a signal's handler may have interrupted before its callback began.

        A callback that had begun finds that there is nothing left to do.
        """
        with self._lock:
            lane = self._lanes[planned[2].lane]
            if planned not in lane:
                heapq.heappush(lane, planned)

    def _head(self, lane: Lane) -> Planned | None:
        planned = self._lanes[lane]
        while planned and planned[0][2].cancelled:
            heapq.heappop(planned)
        return planned[0] if planned else None

    # -- waiting ---------------------------------------------------------------------------------

    def signal(self) -> Signal:
        """Return a new signal that also wakes waiting calls at every move of the clock."""
        signal = Signal()
        with self._lock:
            self._signals.add(signal)
        return signal

    def wait(self, signal: Signal, poll: Callable[[], T | None], deadline_us: int) -> T | None:
        """Wait until ``poll()`` returns something other than None, and return it.

        Return None at the deadline on this clock, when the signal is closed, and after ``wait_cap``
        real seconds in which the clock is frozen or held, or fewer if the deadline is closer.
        ``poll`` is called without any lock.
        """
        # Limit the wait to the real time left now: the process's clock may be set back.
        running_left = max(0.0, (deadline_us - self.now_us()) / 1e6) + 0.01
        frozen_left = min(self.wait_cap, running_left)
        while True:
            seen = signal.version
            result = poll()
            if result is not None or signal.closed:
                return result
            now_us = self.now_us()
            remaining = (deadline_us - now_us) / 1e6
            frozen = self._frozen_us is not None or self._held_us is not None
            patience = frozen_left if frozen else min(running_left, remaining)
            if remaining <= 0 or patience <= 0 or frozen_left <= 0:
                return None
            started = monotonic()
            signal.sleep(seen, min(patience, _nap()))
            slept = monotonic() - started
            # If a running clock did not move, the process's clock is frozen.
            if frozen or (slept >= _STALLED and self.now_us() == now_us):
                frozen_left -= slept
            else:
                running_left -= slept


def start_of(now: Instant | None, mode: Mode | None) -> tuple[int | None, bool]:
    """Return the time at which a clock starts (None: the process's time), and whether it is frozen."""
    if mode not in (None, "running", "frozen"):
        raise ContractError(f"clock={shown(mode)} is not a mode: pass 'running' or 'frozen'")
    frozen = mode == "frozen" or (mode is None and now is not None)
    return (None if now is None else instant_us(now)), frozen


def _nap() -> float:
    # Wake often while a tool is loaded that can move the process's clock without notice.
    return 0.05 if "time_machine" in sys.modules or "freezegun" in sys.modules else 1.0


# -- as tests use it -------------------------------------------------------------------------------


class Clock:
    """The time that all fakes of a cloud share.

    A *running* clock is the process's ``time.time()`` plus an offset, so it follows tools that
    change the process's time. A *frozen* clock moves only when the test moves it. Moving it
    triggers every event that is due on the way, in order and each at its own due time, including
    events that are planned on the way.

    The clock ends with the year 9999, as datetimes do (decided here): a running clock stops there,
    a move beyond it raises an error, and later events never happen.
    """

    __slots__ = ("_timekeeper",)

    def __init__(self, timekeeper: Timekeeper) -> None:
        self._timekeeper = timekeeper

    @property
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""
        return self._timekeeper.mode

    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""
        return self._timekeeper.now()

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""
        return self._timekeeper.now_ms()

    def now_us(self) -> int:
        """Return the current time in microseconds since the Unix epoch."""
        return self._timekeeper.now_us()

    def next_due(self) -> datetime | None:
        """Return the time at which the next event is due, or None if nothing is planned."""
        due = self._timekeeper.next_due_us()
        return None if due is None else to_datetime(due)

    def freeze(self) -> None:
        """Stop the clock at its current time."""
        self._timekeeper.freeze()

    def resume(self) -> None:
        """Let the clock run from its current time; ``ContractError`` with ``process_time=True``."""
        self._timekeeper.resume()

    def advance(self, duration: Duration) -> list[Fired]:
        """Move the clock forward by a duration; return what happened on the way.

        If another move is in progress (this call comes from a handler or a second thread), both
        calls raise ``ContractError``.
        """
        __tracebackhide__ = True
        return self._timekeeper.advance(duration)

    def move_to(self, instant: Instant) -> list[Fired]:
        """Move the clock forward to a time, which must not be past; return what happened."""
        __tracebackhide__ = True
        return self._timekeeper.move_to(instant)

    def advance_to_next(self) -> list[Fired]:
        """Move the clock to the next event and return what happened; ``[]`` if none is planned."""
        __tracebackhide__ = True
        return self._timekeeper.advance_to_next()

    @property
    def aio(self) -> AioClock:
        """Awaitable versions of the methods that move the clock, for asyncio and trio."""
        return AioClock(self._timekeeper)

    def __repr__(self) -> str:
        return f"<Clock {self.mode} {self.now().isoformat()}>"


class AioClock:
    """Awaitable versions of the methods that move the clock, for handlers in the event loop."""

    def __init__(self, timekeeper: Timekeeper) -> None:
        self._timekeeper = timekeeper

    async def advance(self, duration: Duration) -> list[Fired]:
        """Awaitable ``Clock.advance()``."""
        __tracebackhide__ = True
        with self._timekeeper.moving_call():
            return await self._timekeeper.fire_async(self._timekeeper.target_after(duration))

    async def move_to(self, instant: Instant) -> list[Fired]:
        """Awaitable ``Clock.move_to()``."""
        __tracebackhide__ = True
        with self._timekeeper.moving_call():
            return await self._timekeeper.fire_async(self._timekeeper.target_at(instant))

    async def advance_to_next(self) -> list[Fired]:
        """Awaitable ``Clock.advance_to_next()``."""
        __tracebackhide__ = True
        target = self._timekeeper.next_target()
        if target is None:
            return []
        with self._timekeeper.moving_call():
            return await self._timekeeper.fire_async(target)


# -- awaitable versions ----------------------------------------------------------------------------


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in a worker thread of the running event loop (asyncio or trio).

    A cancelled task does not wait for the call, whose result is then ignored.
    """
    call = functools.partial(function, *args, **kwargs)
    if (trio := _running_trio()) is not None:
        result: T = await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        return result
    return await asyncio.to_thread(call)


async def checkpoint() -> None:
    """Yield to the other tasks of the running event loop; a cancellation is raised here."""
    if (trio := _running_trio()) is not None:
        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


def asyncio_is_running() -> bool:
    return asyncio._get_running_loop() is not None


def loop_is_running() -> bool:
    """Return whether this thread runs an event loop (asyncio or trio), which nothing may block."""
    trio = sys.modules.get("trio")
    return asyncio_is_running() or (trio is not None and bool(trio.lowlevel.in_trio_run()))


def _running_trio() -> Any:
    """Return the module ``trio`` if its event loop runs this task, else None."""
    trio = sys.modules.get("trio")
    if trio is not None:
        with suppress(RuntimeError):
            trio.lowlevel.current_task()
            return trio
    return None
