"""Tracks the sleeps of a process, and decides which of them moves the clock.

The rule, decided here: as soon as all known threads sleep, the clock moves to the time at which the
next sleep ends. Known threads are the thread that started the patches and every thread that has
slept. A busy thread gets ``GRACE`` real seconds to sleep; after that the clock moves without it. So
every sleep ends, whatever other threads do, and no two threads wait for each other forever.

Moving works like ``Clock.advance``: timers that become due fire on the way, in order. During an
advance or a background delivery, only the time changes, and the timers fire afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..core.concurrency.turns import Occupied
from ..core.timekeeper import Timekeeper
from ..core.timeparse import monotonic

GRACE = 0.01
"""Real seconds that a busy thread gets to begin a sleep before the clock moves without it."""


class Sleeper:
    """One sleep: its end, its thread and its loop.

    ``settled`` is True if the thread has nothing else to run (which is not certain for an event
    loop), ``moving`` while the sleeper moves the clock. ``wake()`` ends a wait in an event loop.
    """

    __slots__ = ("loop", "moving", "settled", "thread", "until_us", "wake")

    def __init__(self, until_us: int, loop: object | None) -> None:
        self.until_us = until_us
        self.loop = loop
        self.thread = threading.get_ident()
        self.settled = loop is None
        self.moving = False
        self.wake: Callable[[], None] = lambda: None


class Sleepers:
    """All sleeps of a process that move one clock."""

    def __init__(self, clock: Timekeeper) -> None:
        self.clock = clock
        self.over = False
        self.ahead_us = 0
        """Microseconds since the start, by which monotonic time runs ahead of real time."""
        self.failure: BaseException | None = None
        """An exception raised while the clock moved to a timeout; ``ProcessTime.stop()`` raises it."""
        self.watched: set[object] = set()
        """Keys of the loops whose timeouts move the clock while no task in them sleeps."""
        self._lock = threading.Lock()
        self._sleeping: list[Sleeper] = []
        self._known = {threading.get_ident()}
        self._shown_us = clock.now_us()
        self._signal = clock.signal()
        self._carried: dict[object, Callable[[int], None]] = {}
        self._unlisten = clock.on_move(self._follow)

    def stop(self) -> None:
        """End all sleeps. Each continues for its remaining time in real time."""
        self.over = True
        self._unlisten()
        self._signal.close()
        for sleeper in self._all():
            sleeper.wake()

    def carry(self, key: object, move: Callable[[int], None]) -> None:
        """Call ``move`` with a number of microseconds each time the clock moves."""
        with self._lock:
            self._carried[key] = move

    def _follow(self) -> None:
        with self._lock:
            now_us = self.clock.now_us()
            moved_us = max(0, now_us - self._shown_us)
            self._shown_us = now_us
            self.ahead_us += moved_us
            carried = list(self._carried.values())
        if moved_us:
            for move in carried:
                move(moved_us)
        for sleeper in self._all():
            if sleeper.until_us <= now_us:
                sleeper.wake()

    def _all(self) -> list[Sleeper]:
        with self._lock:
            return list(self._sleeping)

    # -- one sleep -------------------------------------------------------------------------------

    def until_us(self, seconds: float) -> int:
        """Return the clock's time in microseconds, a number of seconds from now."""
        return self.clock.now_us() + max(1, round(seconds * 1_000_000))

    def left(self, until_us: int) -> float:
        return max(0.0, (until_us - self.clock.now_us()) / 1e6)

    @contextmanager
    def asleep(self, until_us: int, loop: object | None = None) -> Iterator[Sleeper]:
        """Register a sleep for the duration of the block."""
        sleeper = Sleeper(until_us, loop)
        with self._lock:
            self._known.add(sleeper.thread)
            self._sleeping.append(sleeper)
        self._signal.notify()
        try:
            yield sleeper
        finally:
            with self._lock:
                self._sleeping.remove(sleeper)
            if loop is not None and (first := self.first_of(loop)) is not None:
                first.wake()

    def first_of(self, loop: object) -> Sleeper | None:
        """Return the waiting sleeper of a loop that wakes first, or None."""
        mine = [one for one in self._all() if one.loop is loop and not one.moving]
        return min(mine, key=lambda one: one.until_us, default=None)

    def settle(self, sleeper: Sleeper) -> None:
        """Record that nothing else can run in a sleeper's loop."""
        if not sleeper.settled:
            sleeper.settled = True
            self._signal.notify()

    def is_turn(self, sleeper: Sleeper) -> bool:
        """Return whether a sleeper may move the clock: it wakes first, and all other threads sleep."""
        now_us = self.clock.now_us()
        alive = {thread.ident for thread in threading.enumerate()}
        with self._lock:
            self._known &= alive
            busy = self._known - {one.thread for one in self._sleeping if one.settled or one.moving}
            # Threads whose sleep has ended, and which are about to run.
            waking = {one.thread for one in self._sleeping if one.until_us <= now_us}
            waking.discard(sleeper.thread)
            waiting = [one for one in self._sleeping if not one.moving and one.until_us > now_us]
            is_first = all(one.until_us >= sleeper.until_us for one in waiting)
            return is_first and not busy and not waking

    def next_us(self, sleeper: Sleeper) -> int:
        """Return the time in microseconds at which the next sleep ends."""
        now_us = self.clock.now_us()
        ends = [one.until_us for one in self._all() if not one.moving and one.until_us > now_us]
        return min(ends, default=sleeper.until_us)

    # -- sleeping in a thread --------------------------------------------------------------------

    def sleep(self, seconds: float, really: Callable[[float], object]) -> None:
        """Sleep in this thread. If the patches end first, use ``really`` for the remaining time."""
        until_us = self.until_us(seconds)
        with self.asleep(until_us) as sleeper:
            while not self.over and self.clock.now_us() < until_us:
                if self._wait_for_turn(sleeper):
                    self._move(sleeper)
        if (left := self.left(until_us)) > 0:
            really(left)

    def _wait_for_turn(self, sleeper: Sleeper) -> bool:
        """Wait until a sleeper may move the clock; return False if another sleeper has moved it."""
        now_us, give_up = self.clock.now_us(), monotonic() + GRACE
        while True:
            seen = self._signal.version
            if self.over or self.clock.now_us() != now_us:
                return False
            left = give_up - monotonic()
            if left <= 0 or self.is_turn(sleeper):
                return True
            self._signal.sleep(seen, left)

    def _move(self, sleeper: Sleeper) -> None:
        target_us = self.next_us(sleeper)
        sleeper.moving = True
        try:
            self.clock._fire(lambda: max(target_us, self.clock.now_us()), yielding=True)
        except Occupied:
            self.clock.spend_until(target_us)
        finally:
            sleeper.moving = False
