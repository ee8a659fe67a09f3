"""The engine's lock, and the calls that wait on the fake clock until a change wakes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.timekeeper import Timekeeper
from ...core.timers import Lane, Signal
from .groups.members import Happening
from .groups.table import GroupTable

T = TypeVar("T")
_STATE: tuple[Lane, ...] = ("state",)
_AGAIN: Any = object()
GroupListener = Callable[..., object]
"""Callback for events of consumer groups.

Its arguments are the kind of the event, a readable description, the time in microseconds, and
details.
"""


class Guard:
    """A lock that reports events and wakes waiting calls after its release.

    Entering it returns the current time in microseconds. It is a class, because a context manager
    written as a generator would slow down every call.
    """

    __slots__ = ("_clock", "_lock", "_table", "tell")

    def __init__(self, table: GroupTable, clock: Timekeeper, tell: GroupListener | None) -> None:
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self.tell = tell

    def __enter__(self) -> int:
        self._lock.acquire()
        return self._clock.now_us()

    def __exit__(self, *error: object) -> None:
        table = self._table
        woken: Sequence[Signal] = ()
        happened: Sequence[Happening] = ()
        if table.woken:
            woken = list(table.woken)
            table.woken.clear()
        if table.happened:
            happened = list(table.happened)
            table.happened.clear()
        self._lock.release()
        if self.tell is not None:
            for event in happened:
                self.tell(event.kind, event.text, at_us=event.at_us, **event.data)
        for signal in woken:
            signal.notify()


class Waits:
    """The waiting calls. A call that began in an earlier ``epoch`` returns an empty result.

    ``waiting`` contains the signals of the calls. Concurrent calls for one instance share a signal.
    """

    def __init__(self, table: GroupTable, guard: Guard, clock: Timekeeper) -> None:
        self.waiting: list[Signal] = []
        self.epoch = 0
        self._table = table
        self._guard = guard
        self._clock = clock
        self._closed = False

    def wait(self, signal: Signal, poll: Callable[[], T | None], timeout_ms: int) -> T | None:
        clock = self._clock
        deadline = clock.now_us() + timeout_ms * 1000
        self.waiting.append(signal)
        try:
            while not self._closed:
                # Wake up when the next timer is due, too. With a running clock, there may be no
                # other thread that fires a timer which changes a group.
                until = self._next_change(deadline)

                def look(until: int = until) -> T | None:
                    found = poll()
                    return (
                        _AGAIN if found is None and self._next_change(deadline) < until else found
                    )

                found = clock.wait(signal, look, until)
                if found is _AGAIN:
                    continue
                if found is not None or until == deadline or clock.now_us() < until:
                    return found
                clock.settle()
            return None
        finally:
            self.waiting.remove(signal)

    def _next_change(self, deadline: int) -> int:
        due = None if self._clock.driving else self._clock.next_due_us(_STATE)
        return deadline if due is None else min(due, deadline)

    def end_all(self) -> None:
        """End every waiting call when the lock, which the caller holds, is released."""
        self.epoch += 1
        self._table.woken.update(self.waiting)

    def interrupt(self) -> None:
        """Make every waiting call return an empty result immediately."""
        with self._guard:
            self.end_all()

    def close(self) -> None:
        """Make current and future waiting calls return immediately."""
        self._closed = True
        self.interrupt()
