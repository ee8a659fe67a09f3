"""Timers that a clock fires, signals that wake waiting calls, and registries of listeners."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from .timeparse import LAST_US, to_datetime

T = TypeVar("T")
Lane = Literal["state", "driven", "background"]
LANES: tuple[Lane, ...] = ("state", "driven", "background")
_COMPACT = 64
"""Cancelled timers are removed only from lanes with at least this many timers."""

Begin = Callable[[int], Callable[[], object] | None]
"""Does the part of a timer's work that needs the order; returns a function for the rest."""


@dataclass(slots=True, eq=False, repr=False)
class Timer:
    """A callback that is due at a time of the clock.

    ``due_us`` is the time in microseconds, ``label`` the name in reports, ``sequence`` the number
    of the timer among the timers of its clock. ``cancel()`` is final and may be called repeatedly.
    """

    due_us: int
    callback: Callable[[int], object]
    lane: Lane = "state"
    label: str = ""
    async_callback: Callable[[int], Awaitable[object]] | None = None
    begin: Begin | None = None
    sequence: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True

    def __repr__(self) -> str:
        return f"<Timer {self.label or self.callback!r} due {to_datetime(self.due_us).isoformat()}>"


class _Planned(NamedTuple):
    """An entry of a heap. Tuples compare without calling Python code."""

    due_us: int
    sequence: int
    timer: Timer


class Timers:
    """The planned timers of a clock, by lane. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: Mapping[Lane, list[_Planned]] = {lane: [] for lane in LANES}
        self._compact_at: dict[Lane, int] = dict.fromkeys(LANES, _COMPACT)
        self._numbers = itertools.count()

    def add(self, timer: Timer) -> None:
        """Plan a timer. One that is due after the year 9999 never fires."""
        with self._lock:
            timer.sequence = next(self._numbers)
            if timer.due_us > LAST_US:
                return
            planned = self._lanes[timer.lane]
            heapq.heappush(planned, _Planned(timer.due_us, timer.sequence, timer))
            if len(planned) > self._compact_at[timer.lane]:
                # Remove cancelled timers, which pile up when a deadline is postponed repeatedly.
                planned[:] = [each for each in planned if not each.timer.cancelled]
                heapq.heapify(planned)
                self._compact_at[timer.lane] = max(_COMPACT, 2 * len(planned))

    def pop(self, lanes: tuple[Lane, ...], until_us: int) -> Timer | None:
        """Remove and return the first timer of the lanes that is due by ``until_us``, or None."""
        with self._lock:
            heads = [head for lane in lanes if (head := self._head(lane)) is not None]
            first = min(heads, default=None)
            if first is None or first.due_us > until_us:
                return None
            return heapq.heappop(self._lanes[first.timer.lane]).timer

    def next_due_us(self, lanes: tuple[Lane, ...] = LANES) -> int | None:
        """Return when the next timer of the lanes is due, or None if none is planned."""
        with self._lock:
            heads = [head.due_us for lane in lanes if (head := self._head(lane)) is not None]
        return min(heads, default=None)

    def is_due(self, lane: Lane, now_us: int) -> bool:
        """Return whether a timer of the lane may be due, without taking the lock."""
        # Slicing avoids an IndexError if another thread removes the only timer in between.
        first = self._lanes[lane][:1]
        return bool(first) and first[0].due_us <= now_us

    def planned(self, most: int) -> tuple[int, list[Timer]]:
        """Return how many timers are planned, and the first ``most`` of them in order."""
        with self._lock:
            planned = [
                one for lane in self._lanes.values() for one in lane if not one.timer.cancelled
            ]
        return len(planned), [one.timer for one in heapq.nsmallest(most, planned)]

    def _head(self, lane: Lane) -> _Planned | None:
        planned = self._lanes[lane]
        while planned and planned[0].timer.cancelled:
            heapq.heappop(planned)
        return planned[0] if planned else None


class Signal:
    """Wakes sleeping calls: at ``notify()``, when the clock moves, and at ``close()``."""

    __slots__ = ("__weakref__", "_condition", "_lock", "_sleeping", "_version", "closed")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._sleeping = 0
        self._version = 0
        self.closed = False

    def notify(self) -> None:
        """Wake all waiting calls, so that they check for changes."""
        with self._lock:
            self._version += 1
            if self._sleeping:
                self._condition.notify_all()

    def close(self) -> None:
        """End every current and future wait."""
        self.closed = True
        self.notify()

    @property
    def version(self) -> int:
        """A number that increases with each notification."""
        return self._version

    def sleep(self, seen: int, seconds: float) -> None:
        """Sleep until ``version`` exceeds ``seen``, but at most ``seconds`` real seconds."""
        with self._lock:
            if self._version == seen and not self.closed:
                self._sleeping += 1
                try:
                    self._condition.wait(seconds)
                finally:
                    self._sleeping -= 1


class Registry(Generic[T]):
    """Registered objects in ``items``, over which other threads may iterate during changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items: tuple[T, ...] = ()

    def add(self, item: T) -> Callable[[], None]:
        """Register an object; return a function that removes it and can be called repeatedly."""
        with self._lock:
            self.items = (*self.items, item)

        def remove() -> None:
            with self._lock:
                self.items = tuple(each for each in self.items if each is not item)

        return remove


class Fired(NamedTuple):
    """A timer that fired: its time, its label, and what its callback returned."""

    at_us: int
    label: str
    result: Any

    @property
    def at(self) -> datetime:
        """The time at which it fired, as an aware UTC datetime."""
        return to_datetime(self.at_us)
