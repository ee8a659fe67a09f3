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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ..core.clock import Target, Timekeeper
from ..core.timers import Occupied, monotonic

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
        self._sleeping: dict[Sleeper, None] = {}
        """The sleeps that have not ended. One ends by a call of ``pop()``, which no handler of a signal
        can interrupt.
        """
        self._known = {threading.get_ident()}
        self._shown_us = clock.now_us()
        self._signal = clock.signal()
        self._carried: dict[object, Callable[[int], None]] = {}
        # A bound method is a new object each time, and listeners are removed by identity.
        self._listener = self._follow

    def start(self) -> None:
        self.clock.listeners.add(self._listener)

    def stop(self) -> None:
        """End all sleeps. Each continues for its remaining time in real time. Can be repeated."""
        self.over = True
        self.clock.listeners.remove(self._listener)
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

    def remaining(self, until_us: int) -> float:
        return max(0.0, (until_us - self.clock.now_us()) / 1e6)

    @contextmanager
    def asleep(self, until_us: int, loop: object | None = None) -> Iterator[Sleeper]:
        """Register a sleep for the duration of the block."""
        sleeper = Sleeper(until_us, loop)
        try:
            self._begin(sleeper)
            yield sleeper
        finally:
            self._sleeping.pop(sleeper, None)
            if loop is not None and (first := self.first_of(loop)) is not None:
                first.wake()

    def _begin(self, sleeper: Sleeper) -> None:
        with self._lock:
            self._known.add(sleeper.thread)
            self._sleeping[sleeper] = None
        self._signal.notify()

    def first_of(self, loop: object) -> Sleeper | None:
        """Return the waiting sleeper of a loop that wakes first, or None."""
        mine = [other for other in self._all() if other.loop is loop and not other.moving]
        return min(mine, key=lambda other: other.until_us, default=None)

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
            sleeping = list(self._sleeping)
            busy = self._known - {
                other.thread for other in sleeping if other.settled or other.moving
            }
            # Threads whose sleep has ended, and which are about to run.
            waking = {other.thread for other in sleeping if other.until_us <= now_us}
            waking.discard(sleeper.thread)
            waiting = [other for other in sleeping if not other.moving and other.until_us > now_us]
            is_first = all(other.until_us >= sleeper.until_us for other in waiting)
            return is_first and not busy and not waking

    def next_us(self, sleeper: Sleeper) -> int:
        """Return the time in microseconds at which the next sleep ends."""
        now_us = self.clock.now_us()
        ends = [
            other.until_us for other in self._all() if not other.moving and other.until_us > now_us
        ]
        return min(ends, default=sleeper.until_us)

    # -- sleeping in a thread --------------------------------------------------------------------

    def sleep(self, seconds: float, really: Callable[[float], object]) -> None:
        """Sleep in this thread. If the patches end first, use ``really`` for the remaining time."""
        until_us = self.until_us(seconds)
        sleeper = Sleeper(until_us, None)
        # Not with asleep(): the exception of a signal's handler could keep it from ending.
        try:
            self._begin(sleeper)
            while not self.over and self.clock.now_us() < until_us:
                if self._wait_for_turn(sleeper):
                    with self.moving(sleeper, self.next_us(sleeper)) as target:
                        self.clock.fire(target, yielding=True)
        finally:
            self._sleeping.pop(sleeper, None)
        if (remaining := self.remaining(until_us)) > 0:
            really(remaining)

    def _wait_for_turn(self, sleeper: Sleeper) -> bool:
        """Wait until a sleeper may move the clock; return False if another sleeper has moved it."""
        now_us, give_up = self.clock.now_us(), monotonic() + GRACE
        while True:
            seen = self._signal.version
            if self.over or self.clock.now_us() != now_us:
                return False
            remaining = give_up - monotonic()
            if remaining <= 0 or self.is_turn(sleeper):
                return True
            self._signal.sleep(seen, remaining)

    @contextmanager
    def moving(self, sleeper: Sleeper, target_us: int) -> Iterator[Target]:
        """Let a sleeper move the clock in the block. If something else is moving it, only the time
        changes.
        """
        sleeper.moving = True
        try:
            yield lambda: max(target_us, self.clock.now_us())
        except Occupied:
            self.clock.spend_until(target_us)
        finally:
            sleeper.moving = False


PATIENCE = 0.05
"""Real seconds to wait for a response from outside the loop before the clock moves."""
OUTSIDE = 2.0
"""Real seconds to wait before the clock moves to a timeout while no task sleeps.

A blocking call waits in a fake for less than this, so a timeout around it does not end first.
"""
SHORTEST = 0.05
"""Shortest timeout in seconds that the clock moves to; shorter ones take real time."""
LONGEST = 3.2e9
"""Longest timeout in seconds that the clock moves to, a century; longer ones are endless waits."""
SHORT_SLEEP = 0.002
"""Real seconds to sleep before another thread or task is looked at again."""


class Loop(Protocol):
    """An event loop in which tasks sleep.

    ``key`` identifies the loop, ``cancelled`` is the exception raised in a cancelled task.
    ``sleep_really()`` sleeps in real time; other tasks can run even if the time is 0.
    """

    key: object
    cancelled: type[BaseException]
    sleep_really: Callable[[float], Any]

    async def wait_until_idle(self, patience: float, ends: Callable[[], bool]) -> bool:
        """Return True when nothing else in the loop can run.

        If a response may arrive from outside, first wait up to ``patience`` real seconds for it.
        Returns False if the loop does not become idle in time, or as soon as ``ends()`` is true.
        """

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        """Return ``(set, wait)``: ``wait()`` returns after any thread has called ``set()``."""

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that nobody awaits."""

    def has_timeouts(self) -> bool:
        """Return whether the clock may move to one of the loop's timeouts while no task sleeps."""

    def next_timeout(self) -> float | None:
        """Return the seconds until the loop's next timeout, in the loop's time, or None."""


async def sleep_in(loop: Loop, sleepers: Sleepers, seconds: float) -> None:
    """Sleep in an event loop. If the patches end first, sleep for the remaining time in real time."""
    until_us = sleepers.until_us(seconds)
    with sleepers.asleep(until_us, loop.key) as sleeper:
        while not sleepers.over and sleepers.clock.now_us() < until_us:
            if sleepers.first_of(loop.key) is not sleeper:
                sleeper.wake, wait = loop.event()
                # Look again: before it could be woken, this sleeper may have become the first.
                if not sleepers.over and sleepers.first_of(loop.key) is not sleeper:
                    await wait()
                continue
            # Go on even if the loop does not become idle: it may wait for this sleep in a loop of its
            # own, as in `while not task.done(): await asyncio.sleep(0)`.
            await loop.wait_until_idle(PATIENCE, lambda: False)
            sleepers.settle(sleeper)
            try:
                await _move_clock_on_turn(loop, sleepers, sleeper)
            finally:
                sleeper.settled = False
    if sleepers.first_of(loop.key) is None and loop.has_timeouts():
        watch(loop, sleepers)
    # Sleep even if no time is left, so that other tasks can run.
    await loop.sleep_really(sleepers.remaining(until_us))


def watch(loop: Loop, sleepers: Sleepers) -> None:
    """Move the clock to the timeouts of a loop while no task in it sleeps. Call this in the loop's
    thread, after a timeout was set or the last sleeper has finished.
    """
    if loop.key not in sleepers.watched and not sleepers.over:
        sleepers.watched.add(loop.key)
        loop.spawn(lambda: _watch(loop, sleepers))


async def _watch(loop: Loop, sleepers: Sleepers) -> None:
    def ends() -> bool:
        return sleepers.over or sleepers.first_of(loop.key) is not None

    try:
        # End when a task sleeps: its sleeper moves the clock, and starts a new watcher at its end.
        while not ends() and loop.has_timeouts():
            is_idle = await loop.wait_until_idle(OUTSIDE, ends)
            if not is_idle or (remaining := loop.next_timeout()) is None:
                continue
            with sleepers.asleep(sleepers.until_us(remaining), loop.key) as watcher:
                sleepers.settle(watcher)
                try:
                    await _move_clock_on_turn(loop, sleepers, watcher, loop.has_timeouts)
                except loop.cancelled:
                    raise
                except BaseException as error:
                    # Keep the exception, e.g. of a handler, for stop(): no task awaits this one.
                    sleepers.failure = error
                    return
    finally:
        sleepers.watched.discard(loop.key)


async def _move_clock_on_turn(
    loop: Loop,
    sleepers: Sleepers,
    sleeper: Sleeper,
    still_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until a sleeper may move the clock, and move it, unless another sleeper has moved it."""
    now_us = sleepers.clock.now_us()
    if not await _wait_for_turn(loop, sleepers, sleeper, now_us):
        return
    if sleepers.first_of(loop.key) is not sleeper or not still_wanted():
        return
    target_us = sleepers.next_us(sleeper)
    timeout = loop.next_timeout()
    if timeout is not None:
        target_us = min(target_us, now_us + max(0, round(timeout * 1_000_000)))
    if target_us > now_us:
        with sleepers.moving(sleeper, target_us) as target:
            await sleepers.clock.fire_async(target, yielding=True)
    else:
        # Let the task of the expired timeout run; a timeout below a microsecond needs real time.
        await loop.sleep_really(0 if timeout is not None and timeout <= 0 else 1e-6)


async def _wait_for_turn(loop: Loop, sleepers: Sleepers, sleeper: Sleeper, now_us: int) -> bool:
    """Wait until a sleeper may move the clock; return False if another sleeper has moved it."""
    give_up = monotonic() + GRACE
    while not sleepers.is_turn(sleeper) and monotonic() < give_up:
        await loop.sleep_really(SHORT_SLEEP)
        if sleepers.over or sleepers.clock.now_us() != now_us:
            return False
    return True
