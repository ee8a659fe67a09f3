"""The clock of a cloud, as the fakes use it: timers, waiting calls, and rules for moving it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .clock import Clock, Mode, process_us, start_of
from .errors import ContractError
from .timeparse import Instant, monotonic
from .timers import LANES, Begin, Lane, Signal, Timer

T = TypeVar("T")
_STALLED = 0.02
"""Real seconds in which a running clock must move; otherwise it is treated as frozen."""
BACKGROUND: tuple[Lane, ...] = ("background",)


class Timekeeper(Clock):
    """A ``Clock`` with the methods that only the fakes use.

    ``now`` is an aware datetime or an ISO string with an offset; it freezes the clock unless
    ``mode`` says otherwise. Internally, times are integers: microseconds since the Unix epoch.

    Timers fire in (due, sequence) order inside ``advance`` and ``move_to``, each at its own due
    time; timers that a timer creates join the same advance. Timers of the lane ``"state"`` (pure
    changes of an engine) also fire in ``settle()``, timers of ``"background"`` in ``dispatch()``.
    """

    on_background: Callable[[], object] | None = None
    """A function called before the listeners when a timer of lane ``"background"`` is planned."""

    def __init__(self, now: Instant | None = None, mode: Mode | None = None) -> None:
        super().__init__(now, mode)
        self._settling = threading.RLock()

    # -- state -----------------------------------------------------------------------------------

    @property
    def anchored(self) -> bool:
        """Whether the process's time follows the clock, which therefore cannot run."""
        return self._anchored

    @property
    def driving(self) -> bool:
        """Whether an advance is in progress."""
        return self._turns.moving

    def tie_to_real_time(self, reason: str) -> Callable[[], None]:
        """Forbid moving the clock, whose fakes are real servers; return a function to allow it."""
        return self._ties.add((reason,))

    def check_real_time(self) -> None:
        """Raise ``ContractError`` unless the clock is running and shows the process's own time."""
        frozen = self._frozen_us is not None
        if frozen or abs(self.now_us() - process_us()) > 1_000_000:
            state = "frozen" if frozen else "not at the process's time"
            raise ContractError(
                f"this clock is {state}, but a real server uses real time: use the in-memory "
                "engine (leave out engine=), or a running clock"
            )

    def anchor(self) -> Callable[[], None]:
        """Stop the clock, which the process's time follows; return a function to undo this.

        Until then, the clock cannot run, and ``rewind()`` returns to its current time.
        """
        before = self.mode, self._anchored, self._start_us, self._starts_frozen
        self.freeze()
        with self._lock:
            self._start_us, self._starts_frozen = self._current_us(), True
            self._anchored = True

        def undo() -> None:
            with self._lock:
                mode, self._anchored, self._start_us, self._starts_frozen = before
            if mode == "running":
                self.resume()

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

        Called between two tests that use the same cloud; nothing else moves time back. Timers stay
        planned; their owners replace them. Raises ``ContractError`` during an advance, for another
        start if the clock cannot be moved, and for a running mode if the process's time follows it.
        """
        start_us, frozen = self._start_us, self._starts_frozen
        if now is not None or mode is not None:
            self._check_free()
            start_us, frozen = start_of(now, mode)
            if not frozen:
                self._check_can_run()
        with self._turns.move(), self._lock:
            self._begin_at(start_us, frozen)
        self._moved()

    def next_due_us(self, lanes: tuple[Lane, ...] = LANES) -> int | None:
        """Return when the next timer is due, or None if none is planned."""
        return self._timers.next_due_us(lanes)

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
            rest: Callable[[], object] | None = None
            with self._turns.dispatch() as free:
                if not free:
                    return
                timer = self._timers.pop(BACKGROUND, self.now_us())
                if timer is not None:
                    if timer.begin is None:
                        timer.callback(timer.due_us)
                    elif (rest := timer.begin(timer.due_us)) is not None:
                        # Register it now, so that no advance starts before it runs.
                        rest = self._turns.hand_over(rest)
            if rest is not None:
                hand_over(rest)

    def settle(self) -> int:
        """Fire the due timers of lane ``"state"``, for a reading engine; return the current time."""
        now = self.now_us()
        # Every request calls this, so check without the lock first.
        if not self._timers.is_due("state", now) or self.driving:
            return now
        with self._settling:
            while (timer := self._timers.pop(("state",), self.now_us())) is not None:
                timer.callback(timer.due_us)
        return self.now_us()

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each move of the clock; return a function that removes it."""
        return self._listeners.add(listener)

    def on_drive_end(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each call of a test that moved the clock or triggered due events;
        return a function that removes it.
        """
        return self._drive_ends.add(listener)

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
        """Call ``callback(due_us)`` at a time, or soon if the time has passed.

        A timer that is due after the end of the year 9999 never fires. Moving calls of the
        asynchronous API await ``async_callback`` instead, and ``dispatch()`` uses ``begin`` if it
        can hand over work. Callbacks run without holding any lock of the clock.
        """
        timer = Timer(due_us, callback, lane, label, async_callback, begin)
        self._timers.add(timer)
        if lane == "background":
            if self.on_background is not None:
                self.on_background()
            for listener in self._listeners.items:
                listener()
        return timer

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
        real seconds in which the clock is frozen or held. ``poll`` is called without any lock.
        """
        # Limit the wait to the real time left now: the process's clock may be set back.
        running_left = max(0.0, (deadline_us - self.now_us()) / 1e6) + 0.01
        frozen_left = self._wait_cap
        while True:
            seen = signal.version
            found = poll()
            if found is not None or signal.closed:
                return found
            now_us = self.now_us()
            left = (deadline_us - now_us) / 1e6
            frozen = self._frozen_us is not None or self._held_us is not None
            patience = frozen_left if frozen else min(running_left, left)
            if left <= 0 or patience <= 0 or frozen_left <= 0:
                return None
            started = monotonic()
            signal.sleep(seen, min(patience, _nap()))
            slept = monotonic() - started
            # If a running clock did not move, the process's clock is frozen.
            if frozen or (slept >= _STALLED and self.now_us() == now_us):
                frozen_left -= slept
            else:
                running_left -= slept


def _nap() -> float:
    # Wake often while a tool is loaded that can move the process's clock without notice.
    return 0.05 if "time_machine" in sys.modules or "freezegun" in sys.modules else 1.0
