"""Sleeps in event loops of asyncio and trio; anyio uses the same sleeps.

A loop's time follows the clock, so timeouts (``wait_for``, ``asyncio.timeout``, ``move_on_after``)
end at the expected time. In each loop, the sleeper that wakes first waits until nothing else in the
loop can run. If a response may still arrive from outside (a socket is being read, a worker thread
is busy), it waits ``PATIENCE`` real seconds more. Then it moves the clock to the time at which the
next sleep ends, or to an earlier timeout. While no task of a loop sleeps, a watcher moves the clock
to the loop's timeouts, with more patience (``OUTSIDE``). A loop's time never goes back, even after
the patches end.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from ..core.concurrency.aio import drive
from ..core.concurrency.turns import Occupied
from ..core.errors import ContractError, shown
from ..core.timeparse import monotonic
from .sleepers import GRACE, Sleeper, Sleepers

PATIENCE = 0.05
"""Real seconds to wait for a response from outside the loop before the clock moves."""
OUTSIDE = 2.0
"""Real seconds to wait before the clock moves to a timeout while no task sleeps.

A blocking call waits in a fake for less than this, so a timeout around it does not end first.
"""
SHORTEST = 0.05
"""Shortest timeout in seconds that the clock moves to; shorter ones take real time."""
LONGEST = 3.2e9
"""Longest timeout in seconds that the clock moves to (a century). trio and other libraries use
longer timeouts for endless waits.
"""
_CALM = 3  # consecutive turns of a loop in which nothing else ran, after which it counts as idle
_NOISE = 0.25  # maximum real seconds to wait for a loop to become idle
_NAP = 0.002
_INTERVAL = 0.05  # real seconds for which a trio run must be idle


async def sleep_in(loop: Loop, sleepers: Sleepers, seconds: float) -> None:
    """Sleep in an event loop. If the patches end first, sleep for the remaining time in real time."""
    until_us = sleepers.until_us(seconds)
    with sleepers.asleep(until_us, loop.key) as sleeper:
        while not sleepers.over and sleepers.clock.now_us() < until_us:
            if sleepers.first_of(loop.key) is not sleeper:
                await _wait(loop, sleepers, sleeper)
                continue
            # Go on even if the loop does not become idle: it may wait for this sleep in a loop of its
            # own, as in `while not task.done(): await asyncio.sleep(0)`.
            await loop.rest(PATIENCE)
            sleepers.settle(sleeper)
            try:
                await _go_on(loop, sleepers, sleeper)
            finally:
                sleeper.settled = False
    if sleepers.first_of(loop.key) is None and loop.has_timeouts():
        watch(loop, sleepers)
    # Call nap() even if no time is left, so that other tasks can run.
    await loop.nap(sleepers.left(until_us))


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
        # End when a task sleeps: its sleeper also moves the clock to timeouts, and starts a new
        # watcher when it finishes.
        while not ends() and loop.has_timeouts():
            if not await loop.rest(OUTSIDE, ends) or (left := loop.next_timeout()) is None:
                continue
            with sleepers.asleep(sleepers.until_us(left), loop.key) as watcher:
                sleepers.settle(watcher)
                try:
                    await _go_on(loop, sleepers, watcher, loop.has_timeouts)
                except loop.cancelled:
                    raise
                except BaseException as error:
                    # Keep the exception, e.g. of a handler, for stop() to raise, because no task
                    # awaits this one.
                    sleepers.failure = error
                    return
    finally:
        sleepers.watched.discard(loop.key)


async def _wait(loop: Loop, sleepers: Sleepers, sleeper: Sleeper) -> None:
    sleeper.wake, wait = loop.event()
    if not sleepers.over and sleepers.first_of(loop.key) is not sleeper:
        await wait()


async def _go_on(
    loop: Loop,
    sleepers: Sleepers,
    sleeper: Sleeper,
    wants: Callable[[], bool] = lambda: True,
) -> None:
    clock = sleepers.clock
    now_us, give_up = clock.now_us(), monotonic() + GRACE
    while not sleepers.is_turn(sleeper) and monotonic() < give_up:
        await loop.nap(_NAP)
        if sleepers.over or clock.now_us() != now_us:
            return
    if sleepers.first_of(loop.key) is not sleeper or not wants():
        return
    target_us = sleepers.next_us(sleeper)
    timeout = loop.next_timeout()
    if timeout is not None:
        target_us = min(target_us, now_us + max(0, round(timeout * 1_000_000)))
    if target_us <= now_us:
        # A timeout has expired, so let its task run.
        await loop.nap(0 if timeout is not None and timeout <= 0 else 1e-6)
        return
    sleeper.moving = True
    try:
        await drive(clock, lambda: max(target_us, clock.now_us()), yielding=True)
    except Occupied:
        clock.spend_until(target_us)
    finally:
        sleeper.moving = False


_loops: weakref.WeakKeyDictionary[Any, AsyncioLoop] = weakref.WeakKeyDictionary()
"""The asyncio loops whose time is controlled."""


class AsyncioLoop:
    """An asyncio event loop in which tasks sleep; ``key`` identifies the loop, and ``cancelled`` is
    the exception raised in a cancelled task.
    """

    cancelled: type[BaseException] = asyncio.CancelledError

    def __init__(self, loop: asyncio.AbstractEventLoop, really: Callable[[float], Any]) -> None:
        self.key = object()
        self._loop: Any = weakref.proxy(loop)
        self._really = really
        self._ahead = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timeouts: weakref.WeakSet[asyncio.TimerHandle] = weakref.WeakSet()
        read, me = type(loop).time, weakref.ref(loop)

        def time() -> float:
            running = me()
            return read(running) + self._ahead if running is not None else self._ahead

        try:
            loop.time = time  # type: ignore[method-assign]
        except AttributeError:
            raise ContractError(
                f"the sleeps of a {type(loop).__module__}.{type(loop).__name__} cannot move the "
                "clock, because the loop's time cannot be moved: run the test in asyncio's own loop"
            ) from None

    @classmethod
    def running(cls, sleepers: Sleepers, really: Callable[[float], Any]) -> AsyncioLoop:
        """Return the ``AsyncioLoop`` for the event loop that runs in this thread."""
        loop = asyncio.get_running_loop()
        found = _loops.get(loop)
        if found is None:
            found = _loops[loop] = cls(loop, really)
        sleepers.carry(found.key, found.move)
        return found

    def move(self, moved_us: int) -> None:
        """Move the loop's time forward and wake the loop."""
        self._ahead += moved_us / 1e6
        self._call(lambda: None)

    def _call(self, function: Callable[[], object]) -> None:
        # Ignore the errors of a loop that has been closed or garbage-collected.
        with contextlib.suppress(ReferenceError, RuntimeError):
            self._loop.call_soon_threadsafe(function)

    async def rest(self, patience: float, ends: Callable[[], bool] = lambda: False) -> bool:
        """Return True when nothing else in the loop can run.

        If a response may arrive from outside, first wait up to ``patience`` real seconds for it.
        Returns False if the loop does not become idle in time, or as soon as ``ends()`` is true.
        """
        calm, began = 0, monotonic()
        patient_since = began
        while calm < _CALM:
            await self._really(0)
            if ends():
                return False
            if self._loop._ready:
                calm, patient_since = 0, monotonic()
                if patient_since - began > _NOISE:
                    return False
                continue
            calm += 1
            if calm == _CALM and self._awaits_others() and monotonic() - patient_since < patience:
                await self._really(_NAP)
                calm = _CALM - 1
        return True

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work(), name="fakecloud autojump")
        # Keep a reference to the task, because the loop itself has only weak references.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _awaits_others(self) -> bool:
        """Return whether a response may arrive from outside: through a socket or from a worker
        thread.
        """
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
        """Allow the clock to move to a timeout. Not called for timeouts of the package's own
        servers.
        """
        self._timeouts.add(handle)

    def has_timeouts(self) -> bool:
        """Return whether the clock may move to one of the loop's timeouts while no task sleeps."""
        now = self._loop.time()
        return any(not one.cancelled() and one.when() > now for one in list(self._timeouts))

    def next_timeout(self) -> float | None:
        """Return the seconds until the loop's next timeout, in the loop's time, or None."""
        ends = [one.when() for one in self._loop._scheduled if not one.cancelled()]
        return min(ends) - self._loop.time() if ends else None

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        """Return ``(set, wait)``: ``wait()`` returns after any thread has called ``set()``."""
        event = asyncio.Event()
        return (lambda: self._call(event.set)), event.wait

    async def nap(self, seconds: float) -> None:
        await self._really(seconds)


class TrioRun:
    """A trio run (one call of ``trio.run()``) in which tasks sleep, with the methods of
    ``AsyncioLoop``.
    """

    def __init__(self, trio: Any, really: Callable[[float], Any]) -> None:
        self._trio = trio
        self._really = really
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
    def running(cls, sleepers: Sleepers, really: Callable[[float], Any]) -> TrioRun:
        """Return the ``TrioRun`` for the trio run of this thread."""
        found = cls(sys.modules["trio"], really)
        sleepers.carry(found.key, found.move)
        return found

    def move(self, moved_us: int) -> None:
        self._call(lambda: self._jump(moved_us / 1e6))

    def _jump(self, seconds: float) -> None:
        if hasattr(self._clock, "offset"):
            # Bypass the frozen class's __setattr__; trio reads the attribute at each use.
            object.__setattr__(self._clock, "offset", self._clock.offset + seconds)
        else:
            self._clock.jump(seconds)

    def _call(self, function: Callable[[], object]) -> None:
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

    async def rest(self, patience: float, ends: Callable[[], bool] = lambda: False) -> bool:
        import trio.testing

        with self._trio.move_on_after(_NOISE) as scope:
            await trio.testing.wait_all_tasks_blocked(0.0)
            began = monotonic()
            while self._awaits_others() and monotonic() - began < patience:
                # Wait in short intervals, because a sleeper also waits until all other tasks are
                # blocked.
                await trio.testing.wait_all_tasks_blocked(_INTERVAL)
                scope.deadline = self._trio.current_time() + _NOISE
                if ends():
                    return False
        return not scope.cancelled_caught and not ends()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._trio.lowlevel.spawn_system_task(work)

    def _awaits_others(self) -> bool:
        io = self._trio.lowlevel.current_statistics().io_statistics
        waiting = getattr(io, "tasks_waiting_read", 1) + getattr(io, "tasks_waiting_write", 1)
        # Do not count trio's internal task, which waits for wake-ups from other threads.
        limiter = self._trio.to_thread.current_default_thread_limiter()
        return waiting > 1 or limiter.borrowed_tokens > 0

    def has_timeouts(self) -> bool:
        return self.next_timeout() is not None

    def next_timeout(self) -> float | None:
        left: float = self._trio.lowlevel.current_statistics().seconds_to_next_deadline
        return None if left == float("inf") else left

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        event = self._trio.Event()
        return (lambda: self._call(event.set)), event.wait

    async def nap(self, seconds: float) -> None:
        await self._really(seconds)


Loop: TypeAlias = AsyncioLoop | TrioRun


class TrioTimeouts:
    """A trio instrument that lets the clock move to timeouts while no task of the run sleeps."""

    def __init__(self, sleepers: Sleepers, really: Callable[[float], Any]) -> None:
        self._sleepers = sleepers
        self._really = really
        self._token: Any = None

    def before_io_wait(self, timeout: float) -> None:
        """Start a watcher if the run would be idle until a timeout."""
        if self._sleepers.over or not SHORTEST < timeout < LONGEST:
            return
        if self._token is None:
            self._token = sys.modules["trio"].lowlevel.current_trio_token()
        if self._token not in self._sleepers.watched:
            # Start the watcher through the token: a task started directly would not run before the
            # wait ends.
            self._token.run_sync_soon(self._watch, idempotent=True)

    def _watch(self) -> None:
        # Ignore a run whose clock cannot be moved, and one that is ending and accepts no more
        # tasks.
        with contextlib.suppress(ContractError, RuntimeError):
            loop = TrioRun.running(self._sleepers, self._really)
            if self._sleepers.first_of(loop.key) is None:
                watch(loop, self._sleepers)
