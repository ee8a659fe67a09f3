"""Event loops of asyncio and runs of trio whose time follows the clock, and the sleeps that move it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.abc
import importlib.machinery
import math
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import FrameType, ModuleType
from typing import Any

from ..core.errors import ContractError, shown
from ..core.exits import Exits
from ..core.timers import LAST_US, monotonic
from .clocks import (
    RealClock,
    as_coroutine_function,
    clocks_of,
    is_infrastructure,
    keeps_originals,
    sleeps_of,
    sleeps_really,
    times_out_really,
)
from .replace import Everywhere, Function, original_of, swap
from .sleepers import LONGEST, SHORT_SLEEP, SHORTEST, Sleepers, sleep_in, watch

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
        self.timeouts: weakref.WeakSet[asyncio.TimerHandle] = weakref.WeakSet()
        """Timeouts of the code under test, to which the clock may move."""
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
        wrapper = _loops.get(loop)
        if wrapper is None:
            wrapper = _loops[loop] = cls(loop, real_sleep)
        sleepers.carry(wrapper.key, wrapper.move)
        return wrapper

    def move(self, moved_us: int) -> None:
        seconds = moved_us / 1e6
        self._ahead += seconds
        # In its debug mode, the loop reports callbacks that take long. The running one did not.
        with contextlib.suppress(ReferenceError, AttributeError):
            self._loop.slow_callback_duration += seconds
        self._call_in_loop(lambda: self._forget_moved(seconds))

    def _forget_moved(self, seconds: float) -> None:
        with contextlib.suppress(ReferenceError, AttributeError):
            self._loop.slow_callback_duration -= seconds

    def _call_in_loop(self, function: Callable[[], object]) -> None:
        # Ignore the errors of a loop that has been closed or garbage-collected.
        with contextlib.suppress(ReferenceError, RuntimeError):
            self._loop.call_soon_threadsafe(function)

    async def wait_until_idle(self, patience: float, ends: Callable[[], bool]) -> bool:
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

    def has_timeouts(self) -> bool:
        now = self._loop.time()
        return any(
            not timeout.cancelled() and timeout.when() > now for timeout in list(self.timeouts)
        )

    def next_timeout(self) -> float | None:
        ends = [fake.when() for fake in self._loop._scheduled if not fake.cancelled()]
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
        run = cls(sys.modules["trio"], real_sleep)
        sleepers.carry(run.key, run.move)
        return run

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

    async def wait_until_idle(self, patience: float, ends: Callable[[], bool]) -> bool:
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
        seconds: float = self._trio.lowlevel.current_statistics().seconds_to_next_deadline
        return None if seconds == float("inf") else seconds

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        event = self._trio.Event()
        return (lambda: self._call_in_loop(event.set)), event.wait


class TrioTimeouts:
    """A trio instrument that lets the clock move to timeouts while no task of the run sleeps."""

    def __init__(self, sleepers: Sleepers, real_sleep: Callable[[float], Any]) -> None:
        self._sleepers = sleepers
        self._real_sleep = real_sleep

    def before_io_wait(self, timeout: float) -> None:
        """Start a watcher if the run would be idle until a timeout."""
        if self._sleepers.over or not SHORTEST < timeout < LONGEST:
            return
        token = sys.modules["trio"].lowlevel.current_trio_token()
        if token not in self._sleepers.watched:
            # Start the watcher through the token: a direct task would not run before the wait ends.
            token.run_sync_soon(self._watch, idempotent=True)

    def _watch(self) -> None:
        # Ignore a run whose clock cannot be moved, and one that is ending.
        with contextlib.suppress(ContractError, RuntimeError):
            loop = TrioRun.running(self._sleepers, self._real_sleep)
            if self._sleepers.first_of(loop.key) is None:
                watch(loop, self._sleepers)


# -- the policy of a process whose sleeps move a clock ---------------------------------------------

MOMENT = 1e-6
"""Seconds by which ``time.sleep(0)`` advances the clock."""


class Autojump:
    """Lets the sleeps of this process move a clock, between ``start()`` and ``stop()``.

    It replaces the functions of ``clocks``, ``trio.sleep``, ``trio.sleep_until`` and ``trio.run``,
    and ``call_at()`` of asyncio's loops, so that the clock may move to timeouts. The replaced clocks
    run ahead of the real clocks by the time slept. Sleeps of infrastructure and impossible times
    take real time. So does every call after ``stop()``.
    """

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers = sleepers
        self._everywhere = Everywhere(keeps_originals)
        self._exits = Exits()
        self._asyncio_sleep = original_of(asyncio.sleep)
        self._finder = _OnTrioImport(self._replace_trio)

    def start(self) -> None:
        """Replace the functions. This takes some milliseconds. The caller calls ``stop()``, also after
        an exception.
        """
        self._exits.callback(self._everywhere.restore)
        replaced = [*sleeps_of(self), *clocks_of(self)]
        if "trio" in sys.modules:
            self._watch_trio()
            replaced += self._of_trio()
        else:
            self._exits.callback(self._remove_finder)
            sys.meta_path.insert(0, self._finder)
        # Replace all of them together, because each search looks at every module.
        self._everywhere.add(replaced)
        swap(self._exits, asyncio.BaseEventLoop, "call_at", self._call_at_of_loops())

    def stop(self) -> None:
        """Restore the originals wherever a replacement is still in place. Can be repeated."""
        self._exits.close()

    def _remove_finder(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def _takes_real_time(self, seconds: object) -> bool:
        """Return whether a sleep must take real time: after the sleepers have ended, and for a time
        that is zero, infinite, invalid or after the year 9999.
        """
        return (
            self._sleepers.over
            or not isinstance(seconds, int | float)
            or not 0 < seconds < math.inf
            or self._sleepers.clock.now_us() + seconds * 1e6 >= LAST_US
        )

    def sleep(self, seconds: float, really: Callable[[float], None], caller: FrameType) -> None:
        # Let sleep(0) take a moment too, because a loop around it expects time to pass.
        span = MOMENT if seconds == 0 else seconds
        if self._takes_real_time(span) or sleeps_really(caller):
            really(seconds)
        else:
            self._sleepers.sleep(span, really)

    def sleep_in_asyncio(
        self, delay: float, result: Any, really: Callable[..., Awaitable[Any]], caller: FrameType
    ) -> Awaitable[Any]:
        if self._takes_real_time(delay) or sleeps_really(caller):
            return really(delay, result)
        return self._sleep_in_asyncio(delay, result)

    async def _sleep_in_asyncio(self, delay: float, result: Any) -> Any:
        loop = AsyncioLoop.running(self._sleepers, self._asyncio_sleep)
        await sleep_in(loop, self._sleepers, delay)
        return result

    def read(self, clock: RealClock, caller: FrameType) -> Any:
        if self._sleepers.over or is_infrastructure(caller):
            return clock.read()
        ahead_us = self._sleepers.ahead_us
        return clock.read() + (ahead_us / 1e6 if clock.per_second == 1 else ahead_us * 1000)

    def _call_at_of_loops(self) -> Any:
        sleepers, asyncio_sleep = self._sleepers, self._asyncio_sleep
        really: Any = original_of(asyncio.BaseEventLoop.call_at)

        @functools.wraps(really)
        def call_at(loop: Any, when: float, *args: Any, **kwargs: Any) -> Any:
            fake = really(loop, when, *args, **kwargs)
            if (
                not sleepers.over
                and SHORTEST < when - loop.time() < LONGEST
                # Since Python 3.12, asyncio limits the time for ending its worker threads, which is
                # real.
                and not loop._executor_shutdown_called
                and asyncio._get_running_loop() is loop
                and not times_out_really(sys._getframe(1))
            ):
                running = AsyncioLoop.running(sleepers, asyncio_sleep)
                running.timeouts.add(fake)
                watch(running, sleepers)
            return fake

        return call_at

    # -- trio ------------------------------------------------------------------------------------

    def _replace_trio(self) -> None:
        self._watch_trio()
        self._everywhere.add(self._of_trio())

    def _watch_trio(self) -> None:
        """Let the clock move to the timeouts of a trio run that has already started. Called before
        trio's functions are replaced.
        """
        trio = sys.modules["trio"]
        with contextlib.suppress(RuntimeError):
            trio.lowlevel.add_instrument(TrioTimeouts(self._sleepers, original_of(trio.sleep)))

    def _of_trio(self) -> list[tuple[Function, Function]]:
        """Return trio's functions, each with the function to put in its place."""
        trio = sys.modules["trio"]
        originals = (trio.sleep, trio.sleep_until, trio.run)
        trio_sleep, trio_sleep_until, trio_run = map(original_of, originals)

        async def sleep_in_trio(seconds: float) -> None:
            loop = TrioRun.running(self._sleepers, trio_sleep)
            await sleep_in(loop, self._sleepers, seconds)

        @functools.wraps(trio_sleep)
        def sleep(seconds: float) -> Any:
            if self._takes_real_time(seconds) or sleeps_really(sys._getframe(1)):
                return trio_sleep(seconds)
            return sleep_in_trio(seconds)

        async def sleep_until_fake_time(deadline: float) -> None:
            seconds = deadline - trio.current_time()
            is_real = self._takes_real_time(seconds)
            await (trio_sleep_until(deadline) if is_real else sleep_in_trio(seconds))

        @functools.wraps(trio_sleep_until)
        def sleep_until(deadline: float) -> Any:
            if sleeps_really(sys._getframe(1)):
                return trio_sleep_until(deadline)
            return sleep_until_fake_time(deadline)

        @functools.wraps(trio_run)
        def run(*args: Any, instruments: Sequence[Any] = (), **kwargs: Any) -> Any:
            if not self._sleepers.over:
                instruments = (*instruments, TrioTimeouts(self._sleepers, trio_sleep))
            return trio_run(*args, instruments=instruments, **kwargs)

        return [
            (trio_sleep, as_coroutine_function(sleep)),
            (trio_sleep_until, as_coroutine_function(sleep_until)),
            (trio_run, run),
        ]


class _OnTrioImport(importlib.abc.MetaPathFinder):
    """An import hook that calls a function whenever trio has been imported."""

    def __init__(self, on_import: Callable[[], None]) -> None:
        self._on_import = on_import

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return trio's spec, with a loader that also calls the function; None for other modules."""
        if name != "trio":
            return None
        specs = (
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if finder is not self and hasattr(finder, "find_spec")
        )
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            # The code may have looked for trio only, and import it after the hook was removed.
            if self in sys.meta_path:
                self._on_import()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
