"""Tracks the sleeps of a process, and decides which of them moves the clock.

The rule, decided here: as soon as all known threads sleep, the clock moves to the time at which the
next sleep ends. Known threads are the thread that started the patches and every thread that has
slept. A busy thread gets ``GRACE`` real seconds to sleep; after that the clock moves without it. So
every sleep ends, whatever other threads do, and no two threads wait for each other forever.

Moving works like ``Clock.advance``: timers that become due fire on the way, in order. During an
advance or a background delivery, only the time changes, and the timers fire afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ..core.clock import drive
from ..core.errors import ContractError, shown
from ..core.timekeeper import Timekeeper
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
            self.clock.fire(lambda: max(target_us, self.clock.now_us()), yielding=True)
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

    async def wait_until_idle(
        self, patience: float, ends: Callable[[], bool] = lambda: False
    ) -> bool:
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
                await _wait_to_be_first(loop, sleepers, sleeper)
                continue
            # Go on even if the loop does not become idle: it may wait for this sleep in a loop of its
            # own, as in `while not task.done(): await asyncio.sleep(0)`.
            await loop.wait_until_idle(PATIENCE)
            sleepers.settle(sleeper)
            try:
                await _move_clock_on_turn(loop, sleepers, sleeper)
            finally:
                sleeper.settled = False
    if sleepers.first_of(loop.key) is None and loop.has_timeouts():
        watch(loop, sleepers)
    # Sleep even if no time is left, so that other tasks can run.
    await loop.sleep_really(sleepers.left(until_us))


async def _wait_to_be_first(loop: Loop, sleepers: Sleepers, sleeper: Sleeper) -> None:
    sleeper.wake, wait = loop.event()
    if not sleepers.over and sleepers.first_of(loop.key) is not sleeper:
        await wait()


def watch(loop: Loop, sleepers: Sleepers) -> None:
    """Move the clock to the timeouts of a loop while no task in it sleeps.

    Call this in the loop's thread, after a timeout was set or the last sleeper has finished.
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
            if not is_idle or (left := loop.next_timeout()) is None:
                continue
            with sleepers.asleep(sleepers.until_us(left), loop.key) as watcher:
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
        await _move_clock(sleepers, sleeper, target_us)
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


async def _move_clock(sleepers: Sleepers, sleeper: Sleeper, target_us: int) -> None:
    clock = sleepers.clock
    sleeper.moving = True
    try:
        await drive(clock, lambda: max(target_us, clock.now_us()), yielding=True)
    except Occupied:
        clock.spend_until(target_us)
    finally:
        sleeper.moving = False


_IDLE_TURNS = 3
"""Consecutive turns of a loop in which nothing else ran, after which the loop counts as idle."""
_IDLE_TIMEOUT = 0.25
"""Maximum real seconds to wait for a loop or run to become idle."""
_IDLE_INTERVAL = 0.05
"""Real seconds for which all other tasks of a trio run must be blocked."""

_loops: weakref.WeakKeyDictionary[Any, AsyncioLoop] = weakref.WeakKeyDictionary()
"""The asyncio loops whose time is controlled."""


class AsyncioLoop:
    """An asyncio event loop in which tasks sleep, as a ``Loop``.

    Reads private names of Python 3.11 to 3.14 for planned calls, selectors and worker threads.
    """

    cancelled: type[BaseException] = asyncio.CancelledError

    def __init__(self, loop: asyncio.AbstractEventLoop, real_sleep: Callable[[float], Any]) -> None:
        self.key = object()
        self._loop: Any = weakref.proxy(loop)
        self.sleep_really = real_sleep
        self._ahead = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timeouts: weakref.WeakSet[asyncio.TimerHandle] = weakref.WeakSet()
        original, reference = type(loop).time, weakref.ref(loop)

        def time() -> float:
            running = reference()
            return original(running) + self._ahead if running is not None else self._ahead

        try:
            loop.time = time  # type: ignore[method-assign]
        except AttributeError:
            raise ContractError(
                f"the sleeps of a {type(loop).__module__}.{type(loop).__name__} cannot move the "
                "clock, because the loop's time cannot be moved: run the test in asyncio's own loop"
            ) from None

    @classmethod
    def running(cls, sleepers: Sleepers, real_sleep: Callable[[float], Any]) -> AsyncioLoop:
        """Return the ``AsyncioLoop`` for the event loop that runs in this thread."""
        loop = asyncio.get_running_loop()
        found = _loops.get(loop)
        if found is None:
            found = _loops[loop] = cls(loop, real_sleep)
        sleepers.carry(found.key, found.move)
        return found

    def move(self, moved_us: int) -> None:
        """Move the loop's time forward and wake the loop."""
        self._ahead += moved_us / 1e6
        self._call_in_loop(lambda: None)

    def _call_in_loop(self, function: Callable[[], object]) -> None:
        # Ignore the errors of a loop that has been closed or garbage-collected.
        with contextlib.suppress(ReferenceError, RuntimeError):
            self._loop.call_soon_threadsafe(function)

    async def wait_until_idle(
        self, patience: float, ends: Callable[[], bool] = lambda: False
    ) -> bool:
        began = idle_since = monotonic()
        idle_turns = 0
        while idle_turns < _IDLE_TURNS:
            await self.sleep_really(0)
            if ends():
                return False
            if self._loop._ready:
                idle_turns, idle_since = 0, monotonic()
                if idle_since - began > _IDLE_TIMEOUT:
                    return False
                continue
            idle_turns += 1
            is_patient = monotonic() - idle_since < patience
            if idle_turns == _IDLE_TURNS and is_patient and self._awaits_others():
                await self.sleep_really(SHORT_SLEEP)
                idle_turns -= 1
        return True

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work(), name="fakecloud autojump")
        # Keep a reference to the task, because the loop itself has only weak references.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _awaits_others(self) -> bool:
        """Return whether a response may arrive through a socket or from a worker thread."""
        executor = getattr(self._loop, "_default_executor", None)
        threads = getattr(executor, "_threads", ())
        idle = getattr(getattr(executor, "_idle_semaphore", None), "_value", 0)
        if len(threads) > idle:
            return True
        if any(thread.name.startswith("AnyIO worker") for thread in threading.enumerate()):
            return True
        selector: Any = getattr(self._loop, "_selector", None)
        own = getattr(self._loop, "_ssock", None)
        if not hasattr(selector, "get_map") or own is None:
            return True
        return any(fd != own.fileno() for fd in list(selector.get_map()))

    def add_timeout(self, handle: asyncio.TimerHandle) -> None:
        """Allow the clock to move to a timeout of the code under test."""
        self._timeouts.add(handle)

    def has_timeouts(self) -> bool:
        now = self._loop.time()
        return any(not one.cancelled() and one.when() > now for one in list(self._timeouts))

    def next_timeout(self) -> float | None:
        ends = [one.when() for one in self._loop._scheduled if not one.cancelled()]
        return min(ends) - self._loop.time() if ends else None

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        event = asyncio.Event()
        return (lambda: self._call_in_loop(event.set)), event.wait


class TrioRun:
    """A trio run (one call of ``trio.run()``) in which tasks sleep, as a ``Loop``."""

    def __init__(self, trio: Any, real_sleep: Callable[[float], Any]) -> None:
        self._trio = trio
        self.sleep_really = real_sleep
        self.cancelled: type[BaseException] = trio.Cancelled
        self._token = trio.lowlevel.current_trio_token()
        self._clock = trio.lowlevel.current_clock()
        self.key = self._token
        if not hasattr(self._clock, "offset") and not hasattr(self._clock, "jump"):
            raise ContractError(
                f"the sleeps of this trio run cannot move the fakes' clock, because the run's clock "
                f"{shown(self._clock)} cannot be moved: run the test with trio's own clock"
            )

    @classmethod
    def running(cls, sleepers: Sleepers, real_sleep: Callable[[float], Any]) -> TrioRun:
        """Return a ``TrioRun`` for the trio run of this thread. It has no state, so it is not kept."""
        found = cls(sys.modules["trio"], real_sleep)
        sleepers.carry(found.key, found.move)
        return found

    def move(self, moved_us: int) -> None:
        self._call_in_loop(lambda: self._jump(moved_us / 1e6))

    def _jump(self, seconds: float) -> None:
        if hasattr(self._clock, "offset"):
            # Bypass the frozen class's __setattr__; trio reads the attribute at each use.
            object.__setattr__(self._clock, "offset", self._clock.offset + seconds)
        else:
            self._clock.jump(seconds)

    def _call_in_loop(self, function: Callable[[], object]) -> None:
        if self._is_here():
            function()
            return
        with contextlib.suppress(self._trio.RunFinishedError):
            self._token.run_sync_soon(function)

    def _is_here(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    async def wait_until_idle(
        self, patience: float, ends: Callable[[], bool] = lambda: False
    ) -> bool:
        import trio.testing

        with self._trio.move_on_after(_IDLE_TIMEOUT) as scope:
            await trio.testing.wait_all_tasks_blocked(0.0)
            began = monotonic()
            while self._awaits_others() and monotonic() - began < patience:
                # Wait in short intervals, because a sleeper also waits for all others.
                await trio.testing.wait_all_tasks_blocked(_IDLE_INTERVAL)
                scope.deadline = self._trio.current_time() + _IDLE_TIMEOUT
                if ends():
                    return False
        return not scope.cancelled_caught and not ends()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._trio.lowlevel.spawn_system_task(work)

    def _awaits_others(self) -> bool:
        io = self._trio.lowlevel.current_statistics().io_statistics
        waiting = getattr(io, "tasks_waiting_read", 1) + getattr(io, "tasks_waiting_write", 1)
        limiter = self._trio.to_thread.current_default_thread_limiter()
        # Do not count trio's internal task, which waits for wake-ups from other threads.
        return waiting > 1 or limiter.borrowed_tokens > 0

    def has_timeouts(self) -> bool:
        return self.next_timeout() is not None

    def next_timeout(self) -> float | None:
        left: float = self._trio.lowlevel.current_statistics().seconds_to_next_deadline
        return None if left == float("inf") else left

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        event = self._trio.Event()
        return (lambda: self._call_in_loop(event.set)), event.wait


class TrioTimeouts:
    """A trio instrument that lets the clock move to timeouts while no task of the run sleeps."""

    def __init__(self, sleepers: Sleepers, real_sleep: Callable[[float], Any]) -> None:
        self._sleepers = sleepers
        self._real_sleep = real_sleep
        self._token: Any = None

    def before_io_wait(self, timeout: float) -> None:
        """Start a watcher if the run would be idle until a timeout."""
        if self._sleepers.over or not SHORTEST < timeout < LONGEST:
            return
        if self._token is None:
            self._token = sys.modules["trio"].lowlevel.current_trio_token()
        if self._token not in self._sleepers.watched:
            # Start the watcher through the token: a direct task would not run before the wait ends.
            self._token.run_sync_soon(self._watch, idempotent=True)

    def _watch(self) -> None:
        # Ignore a run whose clock cannot be moved, and one that is ending.
        with contextlib.suppress(ContractError, RuntimeError):
            loop = TrioRun.running(self._sleepers, self._real_sleep)
            if self._sleepers.first_of(loop.key) is None:
                watch(loop, self._sleepers)
