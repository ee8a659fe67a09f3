"""What keeps the time of a cloud: running or frozen, with timers in due order and bounded waits.

The fakes hold the ``Timekeeper``; a test holds the ``Clock`` in front of it.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

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
from .timers import LANES, Begin, Lane, Signal, Timer, Timers

T = TypeVar("T")
Mode = Literal["running", "frozen"]
Reads: TypeAlias = deque[tuple[int, int]]
"""Threads, each with the time that it read, or with a negative number of the journal: what was
recorded under that number read the times that follow in the same thread."""
STANDS = (
    "with process_time=True the process's time follows it, and both stand until they are told to move. "
    "Move them with advance() or move_to(), or leave out process_time"
)
_STANDS = 0.02  # real seconds after which an unmoved clock is seen to stand
_PATIENCE = 10.0  # real seconds one who moves time waits for another to finish
_COURTESY = 0.01  # and one who only sleeps, who can do without


@dataclass(frozen=True, slots=True)
class Fired:
    """One timer that fell due: when, what it was, and what its callback returned."""

    at_us: int
    label: str
    result: Any

    @property
    def at(self) -> datetime:
        """The instant it fired at, as an aware UTC datetime."""
        return to_datetime(self.at_us)


class Occupied(Exception):
    """Raised when another thread is advancing this clock and does not finish in time."""


class Timekeeper:
    """Time as every fake of one cloud sees it.

    *Running* is the process's own ``time.time()`` plus an offset, so tools that steer process time
    steer it too; *frozen* moves only when told. ``now`` is an aware datetime or ISO text with an
    offset, and freezes the clock unless ``mode`` says otherwise. Instants inside are whole
    microseconds since the Unix epoch.

    Timers fire in (due, sequence) order inside ``advance`` and ``move_to``, each seeing its own due
    time; work that a timer creates joins the same advance. Timers of lane ``"state"`` (pure changes
    of an engine) also fire in ``settle()``; those of lane ``"driven"`` only in driving calls; those
    of lane ``"background"`` also in the dispatcher's thread.

    Time ends with the year 9999, as datetimes do (decided here): a running clock stands there, a move
    beyond is refused, and what would fall due later never does.
    """

    _wait_cap = 1.0
    reads: Reads | None = None
    """Each reading of the clock while it runs, where a report may replay the journal."""
    was_driven = False
    """Whether anything due was ever asked for: by an advance, a move or a delivering call."""
    _carrying: frozenset[object] = frozenset()

    def __init__(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        self._lock = threading.Lock()
        self._settling = threading.RLock()
        self.timers = Timers()
        self._frozen_us: int | None
        self._held_us: int | None = None
        self._offset_us: int
        self._live_us: int | None
        self._driver: int | None = None
        self._dispatching = False
        self._wanted = 0
        self._idle: threading.Condition | None = None
        self._anchored = False
        self._breach: ContractError | None = None
        self._signals: weakref.WeakSet[Signal] | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._ties: tuple[str, ...] = ()
        self.on_background: Callable[[], object] | None = None
        """Called when a timer of lane ``"background"`` is planned, before those who listen to moves."""
        self._start_us, self._starts_frozen = _start(now, mode)
        self._begin_at(self._start_us, self._starts_frozen)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def wait_cap(self) -> float:
        """Real seconds a wait may last while time is frozen or held; may be set."""
        return self._wait_cap

    @wait_cap.setter
    def wait_cap(self, seconds: float) -> None:
        check_seconds("wait_cap", seconds)
        self._wait_cap = seconds

    @property
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""
        return "running" if self._frozen_us is None else "frozen"

    @property
    def anchored(self) -> bool:
        """Whether it stands for good, since the process's time follows it."""
        return self._anchored

    @property
    def driving(self) -> bool:
        """Whether an advance is under way."""
        return self._driver is not None and not self._dispatching

    def now(self) -> datetime:
        """The present instant as an aware UTC datetime."""
        return to_datetime(self.now_us())

    def now_us(self) -> int:
        """The present instant in microseconds since the Unix epoch."""
        # Without the lock, for everybody asks. What was read of a running clock counts only if that
        # still ran afterwards: it would be ahead of where the clock was made to stand meanwhile.
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
        """The present instant in milliseconds since the Unix epoch."""
        return self.now_us() // 1000

    # -- moving ----------------------------------------------------------------------------------

    def tie_to_real_time(self, reason: str) -> Callable[[], None]:
        """Refuse to stop or to move from now on, for that reason; return what ends the refusal.

        For whatever lives in real time and cannot follow: engines that are real servers.
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
        """The present instant, for whoever has the lock."""
        if self._held_us is not None:
            return self._held_us
        if self._frozen_us is not None:
            return self._frozen_us
        return min(_process_us() + self._offset_us, LAST_US)

    def _stand_us(self) -> int:
        """The instant at which a clock is about to stand: nobody reads a later one before it does."""
        self._live_us = None
        return self._there_us()

    def _begin_at(self, start_us: int | None, frozen: bool) -> None:
        """Begin at an instant (None: at the process's time), running or frozen."""
        self._live_us = None
        process_us = _process_us()
        first_us = process_us if start_us is None else start_us
        self._offset_us = 0 if frozen else first_us - process_us
        self._frozen_us = first_us if frozen else None
        self._go_live()

    def _go_live(self) -> None:
        self._live_us = self._offset_us if self._frozen_us is None else None

    def check_real_time(self) -> None:
        """Raise ``ContractError`` unless this clock runs and shows the process's own time."""
        frozen = self._frozen_us is not None
        if frozen or abs(self.now_us() - _process_us()) > 1_000_000:
            state = "frozen" if frozen else "not at the process's time"
            raise ContractError(
                f"this clock is {state}, and a real server lives in real time: use the in-memory "
                "engine (leave out engine=), or a running clock"
            )

    def _check_free(self) -> None:
        if self._ties:
            raise ContractError(f"this clock cannot be stopped or moved: {self._ties[0]}")

    def _check_can_run(self) -> None:
        if self._anchored:
            raise ContractError(f"this clock cannot run: {STANDS}")

    def freeze(self) -> None:
        """Stop the clock where it is."""
        self._check_free()
        with self._lock:
            if self._frozen_us is None:
                self._frozen_us = self._stand_us()
        self._moved()

    def anchor(self) -> Callable[[], None]:
        """Stop the clock where it is, and make this what ``rewind()`` returns to; return what ends it.

        For a clock that the process's time follows, which then is nothing to run with: until the end
        it moves when it is told, and refuses to run. After it a clock that ran runs on from where it
        is.
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
        """Let the clock run on from where it is.

        Raises ``ContractError`` where the process's time follows it (``process_time=True``).
        """
        self._check_can_run()
        with self._lock:
            if self._frozen_us is not None:
                self._offset_us = self._frozen_us - _process_us()
                self._frozen_us = None
                if self._held_us is None:
                    self._go_live()
        self._moved()

    def advance(self, duration: Duration) -> list[Fired]:
        """Move forward by a span, firing all that falls due on the way; returns what fired.

        Raises ``ContractError`` when an advance is already under way (a handler that calls it, or
        another thread), in this call and in the outer one.
        """
        return self.fire(self.after(duration))

    def move_to(self, instant: Instant) -> list[Fired]:
        """Move forward to an instant, firing all that falls due on the way; returns what fired.

        Raises ``ContractError`` for an instant in the past of this clock.
        """
        return self.fire(self.until(instant))

    def spend_until(self, instant_us: int) -> None:
        """Let time pass without making what falls due on the way happen; that comes at its next chance.

        For work within an advance, or within a delivery in the background, that takes time itself. A
        clock that runs stays as it is.
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
        """The target of an advance: the instant that far from the moment it begins."""
        self._check_free()
        span = duration_us(duration)
        return lambda: self.now_us() + span

    def until(self, instant: Instant) -> Callable[[], int]:
        """The target of a move: the instant itself, refused when it is past by then."""
        self._check_free()
        target = instant_us(instant)
        return lambda: self._forward(target)

    def onward(self) -> Callable[[], int] | None:
        """The target of a move to the next due instant; None when nothing is planned."""
        self._check_free()
        due = self.next_due_us()
        return None if due is None else lambda: max(due, self.now_us())

    def rewind(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        """Return to how the clock was made: its mode, and its start or the process's time.

        Or, for this once, to how it would begin with ``now`` and ``mode``. For a cloud that serves
        many tests, between two of them: the only way back. Timers stay; whoever owns them replaces
        them. Raises ``ContractError`` while an advance is under way, for another beginning where time
        cannot be moved, and for a running one where the process's time follows.
        """
        start_us, frozen = self._start_us, self._starts_frozen
        if now is not None or mode is not None:
            self._check_free()
            start_us, frozen = _start(now, mode)
            if not frozen:
                self._check_can_run()
        with self._drive(), self._lock:
            self._begin_at(start_us, frozen)
        self._moved()

    def next_due_us(self, lanes: tuple[Lane, ...] = LANES) -> int | None:
        """Return when the next timer falls due, or None when none is planned."""
        return self.timers.next_due_us(lanes)

    def advance_to_next(self) -> list[Fired]:
        """Move to the next due instant and fire what is due there; ``[]`` when nothing is planned."""
        target = self.onward()
        return [] if target is None else self.fire(target)

    def run_due(self, lanes: tuple[Lane, ...] = LANES) -> list[Fired]:
        """Fire everything that is due now, in order, without moving time."""
        return self.fire(self.now_us, lanes)

    def dispatch(
        self,
        lanes: tuple[Lane, ...] = ("background",),
        stopped: Callable[[], bool] = lambda: False,
        hand_over: Callable[[Callable[[], object]], None] | None = None,
    ) -> int:
        """Fire what is due in the lanes while time goes on; how many timers fired.

        For the thread that delivers in the background. What a timer's ``begin`` leaves to do goes to
        ``hand_over``, which has it done in any thread; without it, everything is done here. Waits
        for an advance that is under way; an advance waits for this and for what was handed over.
        Fires nothing more once ``stopped()``.
        """
        fired = 0
        while (
            not stopped() and (due := self.next_due_us(lanes)) is not None and due <= self.now_us()
        ):
            with self._lock:
                if not self._wait_until(lambda: self._driver is None and not self._wanted):
                    return fired
                self._driver = threading.get_ident()
                self._dispatching = True
            rest: Callable[[], object] | None = None
            try:
                timer = self.timers.pop(lanes, self.now_us())
                if timer is not None:
                    fired += 1
                    if hand_over is None or timer.begin is None:
                        timer.callback(timer.due_us)
                    else:
                        rest = timer.begin(timer.due_us)
            finally:
                with self._lock:
                    if rest is not None:
                        # From here on, so that no advance slips in before it is taken up.
                        self._carrying |= {rest}
                    self._dispatching = False
                    self._go_idle()
            if rest is not None and hand_over is not None:
                hand_over(partial(self._carry, rest))
        return fired

    def _carry(self, rest: Callable[[], object]) -> None:
        token = _delivering.set(rest)
        try:
            rest()
        finally:
            _delivering.reset(token)
            with self._lock:
                self._carrying -= {rest}
                self._wake_idle()

    def settle(self) -> int:
        """Fire the due timers of lane ``"state"``, before anybody looks at an engine; the present."""
        now = self.now_us()
        # Every request calls this, so the first look takes no lock.
        if not self.timers.is_due("state", now) or self.driving:
            return now
        with self._settling:
            while (timer := self.timers.pop(("state",), self.now_us())) is not None:
                timer.callback(timer.due_us)
        return self.now_us()

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each move of this clock; returns what takes it off again."""
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
        """Plan ``callback(due_us)`` for an instant; a due time in the past fires at the next chance.

        One beyond the end of time is not even planned: nobody would see it pass.
        ``async_callback`` is used instead when an awaitable driver fires the timer, ``begin`` when
        ``dispatch()`` does and may hand over. Callbacks run without any lock of the clock held.
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
        """A new signal that also wakes at every move of this clock."""
        signal = Signal()
        with self._lock:
            if self._signals is None:
                self._signals = weakref.WeakSet()
            self._signals.add(signal)
        return signal

    def wait(self, signal: Signal, poll: Callable[[], T | None], deadline_us: int) -> T | None:
        """What ``poll()`` returns as soon as it is not None, or None when the wait is over.

        The wait ends at the deadline on this clock, when the signal is closed, and, while time is
        frozen or held, after ``wait_cap`` real seconds. ``poll`` is called without any lock held.
        """
        # Even a running clock never waits longer than the span that was left at the start: the
        # process clock it follows may be set back.
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
            # A clock that runs with a process clock that stands, stands.
            if standing or (slept >= _STANDS and self.now_us() == now_us):
                standing_left -= slept
            else:
                running_left -= slept

    # -- driving ---------------------------------------------------------------------------------

    def steps(
        self, target: Callable[[], int], lanes: tuple[Lane, ...] = LANES, *, yielding: bool = False
    ) -> Generator[Timer, None, None]:
        """The timers due on the way to an instant, one by one, time held at each one's due time.

        The driving loop itself: whoever iterates fires each timer before asking for the next, so a
        synchronous and an awaitable driver share the rules. Raises ``ContractError`` when another
        advance is under way (``yielding``: ``Occupied``, which does that advance no harm), and for an
        instant yet to come where time cannot be moved.
        """
        with self._drive(yielding):
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
                    if self._breach is not None:
                        break
                else:
                    if moved and target_us > self._held_us:
                        self._hold(target_us)
            finally:
                self._release()
            if self._breach is not None:
                raise self._breach

    def fire(self, target: Callable[[], int], lanes: tuple[Lane, ...] = LANES) -> list[Fired]:
        """Fire what falls due on the way to an instant, in this thread; ``steps`` in one call."""
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

    @contextmanager
    def _drive(self, yielding: bool = False) -> Iterator[None]:
        me = threading.get_ident()
        with self._lock:
            delivering = _delivering.get() in self._carrying
            in_background = self._dispatching and self._driver != me
            if not delivering and (in_background or self._carrying):
                self._wanted += 1
                try:
                    self._wait_until(
                        lambda: self._driver is None and not self._carrying,
                        _COURTESY if yielding else _PATIENCE,
                    )
                finally:
                    self._wanted -= 1
                    self._wake_idle()
            if yielding and (self._driver is not None or delivering or self._carrying):
                raise Occupied
            if self._driver is not None or delivering:
                self._breach = ContractError(
                    "the clock is already being advanced: an advance cannot be called from inside "
                    "a handler or from a second thread. Let the outer call return first; to have "
                    "an answer take time, give the destination a duration instead"
                )
                raise self._breach
            if self._carrying:
                raise ContractError(
                    f"the clock cannot be moved: {len(self._carrying)} attempt(s) in the background"
                    f" have not ended within {_PATIENCE:g} s of real time, and what they change"
                    " belongs before the move. Let their destinations answer, or end them sooner"
                    " with a lower attempt_cap="
                )
            self._driver = me
            self._breach = None
        try:
            yield
        finally:
            with self._lock:
                self._go_idle()

    def _wait_until(self, free: Callable[[], bool], patience_s: float = _PATIENCE) -> bool:
        if self._idle is None:
            self._idle = threading.Condition(self._lock)
        return self._idle.wait_for(free, patience_s)

    def _wake_idle(self) -> None:
        if self._idle is not None:
            self._idle.notify_all()

    def _go_idle(self) -> None:
        self._driver = None
        self._wake_idle()

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
                f"it is {self.now().isoformat()} on this clock, and time ends for it with the year "
                "9999: begin earlier (now=), or advance by less"
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
            # Last, because `now` is read without the lock and must not go back for a moment.
            self._held_us = None
        self._moved()

    def _moved(self) -> None:
        with self._lock:
            signals = list(self._signals or ())
        for signal in signals:
            signal.notify()
        for listener in self._listeners:
            listener()


# What was handed over and is being done here, in whatever thread or task of it.
_delivering: ContextVar[object] = ContextVar("delivering", default=None)


def _nap() -> float:
    # Tools that move the process's clock tell nobody, so where one is about, waits look up often.
    return 0.05 if "time_machine" in sys.modules or "freezegun" in sys.modules else 1.0


def _start(now: Instant | None, mode: Mode | None) -> tuple[int | None, bool]:
    """Where a clock starts (None: at the process's time), and whether frozen."""
    if mode not in (None, "running", "frozen"):
        raise ContractError(f"clock={shown(mode)} is not a mode: give 'running' or 'frozen'")
    frozen = mode == "frozen" or (mode is None and now is not None)
    return (None if now is None else instant_us(now)), frozen


def _process_us() -> int:
    return int(time.time() * 1_000_000)
