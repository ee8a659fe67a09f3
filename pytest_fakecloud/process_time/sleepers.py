"""Who of a process sleeps, until when, and who of them moves the clock there.

The rule, decided here: the clock goes to the nearest end of all sleeps, as soon as everybody sleeps
who is known to: the thread that began, and each that has slept. Where one of them is busy, it gets
``GRACE`` real seconds to come to its next sleep; after that the clock goes on without it. So any
sleeper goes on by itself, whatever the others do, and none can wait for another for ever.

Moving is what ``Clock.advance`` does: what falls due on the way happens, in order. Within an advance
(a handler that sleeps), and while a delivery in the background does not end by itself, time only
passes, and what falls due comes after.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core.timekeeper import Occupied, Timekeeper
from ..core.timeparse import monotonic

GRACE = 0.01
"""Real seconds that somebody who is busy may take to come to a sleep of its own."""


class Sleeper:
    """One sleep: until when, of which thread and loop.

    ``settled`` is whether its thread has nothing else to do (a loop may), ``moving`` whether it is
    moving the clock at this moment, ``wake`` what ends its waiting in a loop.
    """

    __slots__ = ("loop", "moving", "settled", "thread", "until_us", "wake")

    def __init__(self, until_us: int, loop: object | None) -> None:
        self.until_us = until_us
        self.loop = loop
        self.thread = threading.get_ident()
        self.settled = loop is None
        self.moving = False
        self.wake: Callable[[], None] = lambda: None


class Yielding:
    """A clock as one who sleeps moves it: never into another's advance."""

    def __init__(self, clock: Timekeeper) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def steps(self, target: Callable[[], int]) -> Any:
        """``Timekeeper.steps``, yielding."""
        return self._clock.steps(target, yielding=True)


class Sleepers:
    """All sleeps of a process that move one clock, and how far they have moved it."""

    def __init__(self, clock: Timekeeper) -> None:
        self.clock = clock
        self.yielding: Any = Yielding(clock)
        self.over = False
        self.ahead_us = 0
        """How far the clock has moved since the start: what a monotonic time is ahead of the real."""
        self.failure: BaseException | None = None
        """What was raised while the clock moved to a timeout, which nobody awaits."""
        self.watched: set[object] = set()
        """The loops whose timeouts move the clock while nobody in them sleeps, by their keys."""
        self._lock = threading.Lock()
        self._sleeping: list[Sleeper] = []
        self._known = {threading.get_ident()}
        self._shown_us = clock.now_us()
        self._signal = clock.signal()
        self._carried: dict[object, Callable[[int], None]] = {}
        self._unlisten = clock.on_move(self._follow)

    def stop(self) -> None:
        """End all sleeps; whoever is at one sleeps what is left of it in real time."""
        self.over = True
        self._unlisten()
        self._signal.close()
        for sleeper in self._all():
            sleeper.wake()

    def carry(self, key: object, move: Callable[[int], None]) -> None:
        """Take a loop along: ``move`` gets the microseconds of each move forward from now on."""
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
        """The instant that many seconds from now."""
        return self.clock.now_us() + max(1, round(seconds * 1_000_000))

    def left(self, until_us: int) -> float:
        """How many seconds there are until an instant."""
        return max(0.0, (until_us - self.clock.now_us()) / 1e6)

    @contextmanager
    def asleep(self, until_us: int, loop: object | None = None) -> Iterator[Sleeper]:
        """A sleep, as long as the block lasts."""
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
        """The one of a loop that is to wake first, of those who wait."""
        mine = [one for one in self._all() if one.loop is loop and not one.moving]
        return min(mine, key=lambda one: one.until_us, default=None)

    def settle(self, sleeper: Sleeper) -> None:
        """Know that the loop of a sleeper has nothing else to do."""
        if not sleeper.settled:
            sleeper.settled = True
            self._signal.notify()

    def is_turn(self, sleeper: Sleeper) -> bool:
        """Whether a sleeper may move the clock at once: it is the first, and all others sleep."""
        now_us = self.clock.now_us()
        alive = {thread.ident for thread in threading.enumerate()}
        with self._lock:
            self._known &= alive
            asleep = {one.thread for one in self._sleeping if one.settled or one.moving}
            # One whose time has come is about to get up.
            up = {one.thread for one in self._sleeping if one.until_us <= now_us}
            waiting = [one for one in self._sleeping if not one.moving and one.until_us > now_us]
            first = min((one.until_us for one in waiting), default=sleeper.until_us)
            return first >= sleeper.until_us and not (self._known - asleep) | (
                up - {sleeper.thread}
            )

    def next_us(self, sleeper: Sleeper) -> int:
        """The nearest end of a sleep that is yet to come, at most this one's."""
        now_us = self.clock.now_us()
        ends = [one.until_us for one in self._all() if not one.moving and one.until_us > now_us]
        return min(ends, default=sleeper.until_us)

    # -- in a thread -----------------------------------------------------------------------------

    def sleep(self, seconds: float, really: Callable[[float], object]) -> None:
        """Sleep in this thread; what is left when all is over is slept ``really``."""
        until_us = self.until_us(seconds)
        with self.asleep(until_us) as sleeper:
            while not self.over and self.clock.now_us() < until_us:
                if self._wait_for_turn(sleeper):
                    self._move(sleeper)
        if (left := self.left(until_us)) > 0:
            really(left)

    def _wait_for_turn(self, sleeper: Sleeper) -> bool:
        """Wait until a sleeper is to move the clock; False when somebody else has."""
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
            steps = self.yielding.steps(lambda: max(target_us, self.clock.now_us()))
            try:
                for timer in steps:
                    timer.callback(timer.due_us)
            finally:
                steps.close()
        except Occupied:
            self.clock.spend_until(target_us)
        finally:
            sleeper.moving = False
