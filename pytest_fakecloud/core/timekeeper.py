"""The clock's implementation: running or frozen time, timers in order of due time, bounded waits.

Tests see a ``Timekeeper`` as a ``Clock``, which has fewer methods.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

from .clock import Clock
from .concurrency.turns import Turns
from .errors import ContractError, shown
from .timeparse import (
    LAST_US,
    Duration,
    Instant,
    check_seconds,
    duration_us,
    instant_us,
    monotonic,
    to_datetime,
)
from .timers import LANES, Begin, Fired, Lane, Signal, Timer, Timers

T = TypeVar("T")
Mode = Literal["running", "frozen"]
Reads: TypeAlias = deque[tuple[int, int]]
"""A log of clock readings: pairs of a thread's ID and the time that it read. In a pair with a
negative number, the second item is the negated number of a journal entry, to which the thread's
later readings belong.
"""
STANDS = (
    "with process_time=True the process's time follows it, and both are frozen until the test "
    "moves them. Use advance() or move_to(), or leave out process_time"
)
_STANDS = 0.02  # real seconds in which a running clock must move; otherwise it is treated as frozen


class Timekeeper(Clock):
    """The time that all fakes of a cloud share.

    A *running* clock is the process's ``time.time()`` plus an offset, so it follows tools that
    change the process's time. A *frozen* clock moves only when a caller moves it. ``now`` is an
    aware datetime or an ISO string with an offset; it freezes the clock unless ``mode`` says
    otherwise. Internally, times are integers: microseconds since the Unix epoch.

    Timers fire in (due, sequence) order inside ``advance`` and ``move_to``, each at its own due
    time; timers that a timer creates join the same advance. Timers of the lane ``"state"`` (pure
    changes of an engine) also fire in ``settle()``, those of ``"driven"`` only in moving calls,
    those of ``"background"`` also in the dispatcher's thread.

    The clock ends with the year 9999, as datetimes do (decided here): a running clock stops there,
    a move beyond it raises an error, and later timers never fire.
    """

    _wait_cap = 1.0
    reads: Reads | None = None
    """A log of the running clock's readings, for reports that replay the journal; None if not
    recorded.
    """
    was_driven = False
    """Whether a caller has ever fired due timers: by an advance, a move or a delivering call."""

    def __init__(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        self._lock = threading.Lock()
        self._settling = threading.RLock()
        self.timers = Timers()
        self._turns = Turns()
        self._frozen_us: int | None
        self._held_us: int | None = None
        self._offset_us: int
        self._live_us: int | None
        self._anchored = False
        self._signals: weakref.WeakSet[Signal] | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._ties: tuple[str, ...] = ()
        self.on_background: Callable[[], object] | None = None
        """A function called before the listeners when a timer of lane ``"background"`` is planned."""
        self._start_us, self._starts_frozen = _start(now, mode)
        self._begin_at(self._start_us, self._starts_frozen)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def wait_cap(self) -> float:
        return self._wait_cap

    @wait_cap.setter
    def wait_cap(self, seconds: float) -> None:
        check_seconds("wait_cap", seconds)
        self._wait_cap = seconds

    @property
    def mode(self) -> Mode:
        return "running" if self._frozen_us is None else "frozen"

    @property
    def anchored(self) -> bool:
        """Whether the process's time follows the clock, which therefore cannot run."""
        return self._anchored

    @property
    def driving(self) -> bool:
        """Whether an advance is in progress."""
        return self._turns.moving

    def now(self) -> datetime:
        return to_datetime(self.now_us())

    def now_us(self) -> int:
        # Read without the lock, because every request does. A running clock's value is used only if
        # the clock still runs afterwards; otherwise it could be later than the time at which
        # another thread stopped the clock.
        offset = self._live_us
        if offset is not None:
            running = int(time.time() * 1_000_000) + offset
            if self._live_us is offset:
                if self.reads is not None:
                    self.reads.append((threading.get_ident(), running))
                return running if running < LAST_US else LAST_US
        held = self._held_us
        if held is not None:
            return held
        frozen = self._frozen_us
        if frozen is not None:
            return frozen
        with self._lock:
            return self._there_us()

    def now_ms(self) -> int:
        return self.now_us() // 1000

    # -- moving ----------------------------------------------------------------------------------

    def tie_to_real_time(self, reason: str) -> Callable[[], None]:
        """Forbid stopping or moving the clock, for the given reason; return a function that lifts
        the ban.

        For fakes that depend on real time, because their engines are real servers.
        """
        with self._lock:
            self._ties = (*self._ties, reason)

        def untie() -> None:
            with self._lock:
                ties = list(self._ties)
                if reason in ties:
                    ties.remove(reason)
                self._ties = tuple(ties)

        return untie

    def _there_us(self) -> int:
        """Return the current time; the caller holds the lock."""
        if self._held_us is not None:
            return self._held_us
        if self._frozen_us is not None:
            return self._frozen_us
        return min(_process_us() + self._offset_us, LAST_US)

    def _stand_us(self) -> int:
        """Return the time at which the clock is about to stop. No thread has read a later time."""
        self._live_us = None
        return self._there_us()

    def _begin_at(self, start_us: int | None, frozen: bool) -> None:
        """Start at a time (None: the process's time), running or frozen."""
        self._live_us = None
        process_us = _process_us()
        first_us = process_us if start_us is None else start_us
        self._offset_us = 0 if frozen else first_us - process_us
        self._frozen_us = first_us if frozen else None
        self._go_live()

    def _go_live(self) -> None:
        self._live_us = self._offset_us if self._frozen_us is None else None

    def check_real_time(self) -> None:
        """Raise ``ContractError`` unless the clock is running and shows the process's own time."""
        frozen = self._frozen_us is not None
        if frozen or abs(self.now_us() - _process_us()) > 1_000_000:
            state = "frozen" if frozen else "not at the process's time"
            raise ContractError(
                f"this clock is {state}, but a real server uses real time: use the in-memory "
                "engine (leave out engine=), or a running clock"
            )

    def _check_free(self) -> None:
        if self._ties:
            raise ContractError(f"this clock cannot be stopped or moved: {self._ties[0]}")

    def _check_can_run(self) -> None:
        if self._anchored:
            raise ContractError(f"this clock cannot run: {STANDS}")

    def freeze(self) -> None:
        self._check_free()
        with self._lock:
            if self._frozen_us is None:
                self._frozen_us = self._stand_us()
        self._moved()

    def anchor(self) -> Callable[[], None]:
        """Stop the clock and make its current time the one that ``rewind()`` returns to; return a
        function that undoes this.

        For a clock that the process's time follows: until that function is called, it cannot run
        and moves only when a caller moves it. Afterwards a clock that ran before runs from its
        current time.
        """
        before = self.mode, self._anchored, self._start_us, self._starts_frozen
        self.freeze()
        with self._lock:
            self._start_us, self._starts_frozen = self._there_us(), True
            self._anchored = True

        def weigh() -> None:
            with self._lock:
                mode, self._anchored, self._start_us, self._starts_frozen = before
            if mode == "running":
                self.resume()

        return weigh

    def resume(self) -> None:
        self._check_can_run()
        with self._lock:
            if self._frozen_us is not None:
                self._offset_us = self._frozen_us - _process_us()
                self._frozen_us = None
                if self._held_us is None:
                    self._go_live()
        self._moved()

    def advance(self, duration: Duration) -> list[Fired]:
        return self.fire(self.after(duration))

    def move_to(self, instant: Instant) -> list[Fired]:
        return self.fire(self.until(instant))

    def spend_until(self, instant_us: int) -> None:
        """Move the clock to a time without firing timers; they fire at the next opportunity.

        For work that takes time itself, inside an advance or a background delivery. Does not affect
        a running clock.
        """
        self._check_free()
        self._within_reach(instant_us)
        with self._lock:
            if self._held_us is not None:
                self._held_us = max(self._held_us, instant_us)
            elif self._frozen_us is not None:
                self._frozen_us = max(self._frozen_us, instant_us)
        self._moved()

    def after(self, duration: Duration) -> Callable[[], int]:
        """Return a function that computes the target of an advance by a duration when the advance
        begins.
        """
        self._check_free()
        span = duration_us(duration)
        return lambda: self.now_us() + span

    def until(self, instant: Instant) -> Callable[[], int]:
        """Return a function that returns a time as the target of a move; it raises
        ``ContractError`` if that time is then in the past.
        """
        self._check_free()
        target = instant_us(instant)
        return lambda: self._forward(target)

    def onward(self) -> Callable[[], int] | None:
        """Return a function that returns the next due time as a move's target; None if nothing is
        planned.
        """
        self._check_free()
        due = self.next_due_us()
        return None if due is None else lambda: max(due, self.now_us())

    def rewind(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        """Return to the clock's initial mode and time, or to the given ones, which do not become
        the initial ones.

        Called between two tests that use the same cloud; nothing else moves time back. Timers stay
        planned; their owners replace them. Raises ``ContractError`` while an advance is in
        progress, for another start time if the clock cannot be moved, and for a running mode if the
        process's time follows the clock.
        """
        start_us, frozen = self._start_us, self._starts_frozen
        if now is not None or mode is not None:
            self._check_free()
            start_us, frozen = _start(now, mode)
            if not frozen:
                self._check_can_run()
        with self._turns.move(), self._lock:
            self._begin_at(start_us, frozen)
        self._moved()

    def next_due(self) -> datetime | None:
        due = self.next_due_us()
        return None if due is None else to_datetime(due)

    def next_due_us(self, lanes: tuple[Lane, ...] = LANES) -> int | None:
        """Return when the next timer is due, or None if none is planned."""
        return self.timers.next_due_us(lanes)

    def advance_to_next(self) -> list[Fired]:
        target = self.onward()
        return [] if target is None else self.fire(target)

    def run_due(self, lanes: tuple[Lane, ...] = LANES) -> list[Fired]:
        """Fire the timers that are due now, in order, without moving the clock."""
        return self.fire(self.now_us, lanes)

    def dispatch(
        self,
        lanes: tuple[Lane, ...] = ("background",),
        stopped: Callable[[], bool] = lambda: False,
        hand_over: Callable[[Callable[[], object]], None] | None = None,
    ) -> int:
        """Fire due timers of the lanes without moving the clock; return how many fired.

        Called by the thread that delivers in the background. The function that a timer's ``begin``
        returns is passed to ``hand_over``, which may run it in any thread; without ``hand_over``,
        callbacks run in this thread. Waits for an advance in progress; an advance waits for this
        call and for the functions handed over. Fires no more timers once ``stopped()`` is true.
        """
        fired = 0
        while (
            not stopped() and (due := self.next_due_us(lanes)) is not None and due <= self.now_us()
        ):
            rest: Callable[[], object] | None = None
            with self._turns.dispatch() as free:
                if not free:
                    return fired
                timer = self.timers.pop(lanes, self.now_us())
                if timer is not None:
                    fired += 1
                    if hand_over is None or timer.begin is None:
                        timer.callback(timer.due_us)
                    elif (rest := timer.begin(timer.due_us)) is not None:
                        # Register the function before the turn ends, so that no advance starts
                        # before another thread runs it.
                        rest = self._turns.hand_over(rest)
            if rest is not None and hand_over is not None:
                hand_over(rest)
        return fired

    def settle(self) -> int:
        """Fire the due timers of lane ``"state"``, before an engine is read; return the current
        time.
        """
        now = self.now_us()
        # Every request calls this, so check without the lock first.
        if not self.timers.is_due("state", now) or self.driving:
            return now
        with self._settling:
            while (timer := self.timers.pop(("state",), self.now_us())) is not None:
                timer.callback(timer.due_us)
        return self.now_us()

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each move of the clock; return a function that removes it."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return stop

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
    ) -> Timer:
        """Call ``callback(due_us)`` at a time; a due time in the past fires at the next
        opportunity.

        A timer that is due after the end of the year 9999 never fires. Moving calls of the
        asynchronous API await ``async_callback`` instead, and ``dispatch()`` uses ``begin`` if it
        can hand over work. Callbacks run without holding any lock of the clock.
        """
        timer = self.timers.add(due_us, callback, lane, label, async_callback, begin)
        if due_us > LAST_US:
            return timer
        if lane == "background":
            if self.on_background is not None:
                self.on_background()
            for listener in self._listeners:
                listener()
        return timer

    # -- waiting ---------------------------------------------------------------------------------

    def signal(self) -> Signal:
        """Return a new signal that also wakes waiting calls at every move of the clock."""
        signal = Signal()
        with self._lock:
            if self._signals is None:
                self._signals = weakref.WeakSet()
            self._signals.add(signal)
        return signal

    def wait(self, signal: Signal, poll: Callable[[], T | None], deadline_us: int) -> T | None:
        """Wait until ``poll()`` returns something other than None and return it; None if the wait
        ends first.

        The wait ends at the deadline on this clock, when the signal is closed, and, while the clock
        is frozen or held, after ``wait_cap`` real seconds. ``poll`` is called without holding any
        lock.
        """
        # Limit the real time of the wait to the time left now, because the process's clock may be
        # set back.
        running_left = max(0.0, (deadline_us - self.now_us()) / 1e6) + 0.01
        standing_left = self._wait_cap
        while True:
            seen = signal.version
            found = poll()
            if found is not None or signal.closed:
                return found
            now_us = self.now_us()
            left = (deadline_us - now_us) / 1e6
            standing = self._frozen_us is not None or self._held_us is not None
            patience = standing_left if standing else min(running_left, left)
            if left <= 0 or patience <= 0 or standing_left <= 0:
                return None
            started = monotonic()
            signal.sleep(seen, min(patience, _nap()))
            slept = monotonic() - started
            # If a running clock did not move, the process's clock is frozen, so count the wait as
            # one on a frozen clock.
            if standing or (slept >= _STANDS and self.now_us() == now_us):
                standing_left -= slept
            else:
                running_left -= slept

    # -- firing timers ---------------------------------------------------------------------------

    def steps(
        self, target: Callable[[], int], lanes: tuple[Lane, ...] = LANES, *, yielding: bool = False
    ) -> Generator[Timer, None, None]:
        """Yield the timers due up to a target time, holding the clock at each timer's due time.

        The caller fires each timer before it takes the next, so the synchronous and the
        asynchronous API share this loop. If another advance is in progress, raises
        ``ContractError``, which also fails that advance, or with ``yielding`` only ``Occupied``.
        Also raises ``ContractError`` for a later time if the clock cannot be moved.
        """
        with self._turns.move(yielding) as turn:
            self.was_driven = True
            try:
                with self._lock:
                    self._held_us = now = self._stand_us()
                target_us = self._within_reach(target())
                moved = target_us > now
                if moved:
                    self._check_free()
                while (timer := self.timers.pop(lanes, target_us)) is not None:
                    if timer.due_us > self._held_us:
                        self._hold(timer.due_us)
                    yield timer
                    if turn.breach is not None:
                        break
                else:
                    if moved and target_us > self._held_us:
                        self._hold(target_us)
            finally:
                self._release()
            if turn.breach is not None:
                raise turn.breach

    def fire(self, target: Callable[[], int], lanes: tuple[Lane, ...] = LANES) -> list[Fired]:
        """Fire the timers due on the way to a target time in this thread; return those that fired."""
        __tracebackhide__ = True
        fired = []
        steps = self.steps(target, lanes)
        try:
            for timer in steps:
                at_us = self.now_us()
                fired.append(Fired(at_us, timer.label, timer.callback(timer.due_us)))
        finally:
            steps.close()
        return fired

    def _forward(self, target_us: int) -> int:
        now = self.now_us()
        if target_us < now:
            raise ContractError(
                f"time cannot go back: it is {to_datetime(now).isoformat()} on this clock, "
                f"and {to_datetime(target_us).isoformat()} is earlier"
            )
        return target_us

    def _within_reach(self, target_us: int) -> int:
        if target_us > LAST_US:
            raise ContractError(
                f"it is {self.now().isoformat()} on this clock, which ends with the year "
                "9999: start earlier (now=), or advance by less"
            )
        return target_us

    def _hold(self, instant: int) -> None:
        self._held_us = instant
        self._moved()

    def _release(self) -> None:
        with self._lock:
            held = self._held_us
            if held is not None:
                if self._frozen_us is not None:
                    self._frozen_us = max(held, self._frozen_us)
                else:
                    self._offset_us += max(0, held - (_process_us() + self._offset_us))
            self._go_live()
            # Set this last, because now_us() reads without the lock and must never go back.
            self._held_us = None
        self._moved()

    def _moved(self) -> None:
        with self._lock:
            signals = list(self._signals or ())
        for signal in signals:
            signal.notify()
        for listener in self._listeners:
            listener()


def _nap() -> float:
    # Wake often while a tool that can move the process's clock is loaded: such a tool does not
    # notify its users.
    return 0.05 if "time_machine" in sys.modules or "freezegun" in sys.modules else 1.0


def _start(now: Instant | None, mode: Mode | None) -> tuple[int | None, bool]:
    """Return the time at which a clock starts (None: the process's time), and whether it is frozen."""
    if mode not in (None, "running", "frozen"):
        raise ContractError(f"clock={shown(mode)} is not a mode: pass 'running' or 'frozen'")
    frozen = mode == "frozen" or (mode is None and now is not None)
    return (None if now is None else instant_us(now)), frozen


def _process_us() -> int:
    return int(time.time() * 1_000_000)
