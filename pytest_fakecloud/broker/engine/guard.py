"""The engine's lock, which reports events and wakes waiting calls after its release."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ...core.timekeeper import Timekeeper
from ...core.timers import Signal
from .groups.members import Happening
from .groups.table import GroupTable

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
