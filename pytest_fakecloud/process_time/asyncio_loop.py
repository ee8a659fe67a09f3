"""An asyncio event loop whose time follows the clock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.errors import ContractError
from ..core.timeparse import monotonic
from .moving import SHORT_SLEEP
from .sleepers import Sleepers

_IDLE_TURNS = 3
"""Consecutive turns of a loop in which nothing else ran, after which the loop counts as idle."""
_IDLE_TIMEOUT = 0.25
"""Maximum real seconds to wait for a loop to become idle."""

_loops: weakref.WeakKeyDictionary[Any, AsyncioLoop] = weakref.WeakKeyDictionary()
"""The asyncio loops whose time is controlled."""


class AsyncioLoop:
    """An asyncio event loop in which tasks sleep, as a ``Loop``."""

    cancelled: type[BaseException] = asyncio.CancelledError

    def __init__(self, loop: asyncio.AbstractEventLoop, real_sleep: Callable[[float], Any]) -> None:
        self.key = object()
        self._loop: Any = weakref.proxy(loop)
        self._real_sleep = real_sleep
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
            await self._real_sleep(0)
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
                await self._real_sleep(SHORT_SLEEP)
                idle_turns -= 1
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
        now = self._loop.time()
        return any(not one.cancelled() and one.when() > now for one in list(self._timeouts))

    def next_timeout(self) -> float | None:
        ends = [one.when() for one in self._loop._scheduled if not one.cancelled()]
        return min(ends) - self._loop.time() if ends else None

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        event = asyncio.Event()
        return (lambda: self._call_in_loop(event.set)), event.wait

    async def sleep_really(self, seconds: float) -> None:
        await self._real_sleep(seconds)
