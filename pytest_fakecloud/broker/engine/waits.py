"""Calls that wait for records, for a rebalance, or for their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...core.timekeeper import Timekeeper
from ...core.timers import Lane, Signal

T = TypeVar("T")
_STATE: tuple[Lane, ...] = ("state",)
_EARLIER: Any = object()
"""Result of polling if a timer has been started that is due before the next known change."""


class Waits:
    """The waiting calls, with their signals. Calls for one instance share a signal.

    A call that began in an earlier ``epoch`` returns an empty result.
    """

    def __init__(self) -> None:
        self.waiting: list[Signal] = []
        self.epoch = 0

    def interrupt(self) -> None:
        """Make every waiting call return an empty result immediately."""
        self.epoch += 1
        for signal in list(self.waiting):
            signal.notify()


class ClockWaits(Waits):
    """Calls that wait on the fake clock."""

    def __init__(self, clock: Timekeeper) -> None:
        super().__init__()
        self._clock = clock
        self._closed = False

    def wait(self, signal: Signal, poll: Callable[[], T | None], timeout_ms: int) -> T | None:
        """Call ``poll`` after each notification until it returns a result, or until the timeout."""
        clock = self._clock
        until = deadline = clock.now_us() + timeout_ms * 1000

        def look() -> T | None:
            found = poll()
            return _EARLIER if found is None and self._next_change(deadline) < until else found

        self.waiting.append(signal)
        try:
            while not self._closed:
                until = self._next_change(deadline)
                found = clock.wait(signal, look, until)
                if found is _EARLIER:
                    continue
                if found is not None or until == deadline or clock.now_us() < until:
                    return found
                # With a running clock, there may be no other thread that fires a timer of a group.
                clock.settle()
            return None
        finally:
            self.waiting.remove(signal)

    def _next_change(self, deadline: int) -> int:
        due = None if self._clock.driving else self._clock.next_due_us(_STATE)
        return deadline if due is None else min(due, deadline)

    def close(self) -> None:
        """Make current and future waiting calls return immediately."""
        self._closed = True
        self.interrupt()
