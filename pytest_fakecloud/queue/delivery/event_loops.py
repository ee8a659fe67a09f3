"""The event loops in which the applications and coroutine functions of a queue run."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from ...core.errors import ends_the_test
from .applications import AsgiApp
from .deadlines import Deadlines
from .lifespans import AsyncioHost, Host, Lifespan, RunningLifespan, find_running_lifespan

T = TypeVar("T")
_SHUTDOWN_SECONDS = 1.0
"""Maximum time for the shutdown of the applications."""


class LoopEnded(RuntimeError):
    """Raised if an event loop ends while a coroutine runs in it."""


class AsgiRunner:
    """An event loop in its own thread, for coroutines that no running loop awaits.

    Like a server, it starts each application's lifespan before the first request and ends it in
    ``close()``. Applications without lifespan support are called without one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lifespans: dict[int, Lifespan] = {}
        self._host = AsyncioHost(self._loop)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fakecloud queue loop", daemon=True
        )
        self._thread.start()

    def run(
        self, work: Coroutine[Any, Any, T], deadlines: Deadlines, host: Host | None = None
    ) -> T | None:
        """Return the coroutine's result, or None if it takes longer than the real-time cap.

        The coroutine runs in ``host`` if that loop is running in another thread, otherwise in this
        runner's own loop. Raises ``LoopEnded`` if the loop ends first.
        """
        if host is None or not host.is_running or host.runs_in_this_thread:
            host = self._host
        future = host.submit(_catching_test_end(work))
        try:
            # result() waits in C code, so tools that freeze time do not change its timeout.
            result, ending = future.result(deadlines.cap)
            if ending is not None:
                raise ending
            return result
        except CancelledError:
            raise LoopEnded("the application's event loop ended before the response") from None
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            return None

    def has(self, app: AsgiApp) -> bool:
        return id(app) in self._lifespans

    async def lifespan(self, app: AsgiApp) -> Mapping[str, Any]:
        """Return the application's lifespan state. The first call starts the lifespan."""
        if id(app) not in self._lifespans:
            self._lifespans[id(app)] = Lifespan(app)
        return await self._lifespans[id(app)].started()

    def close(self) -> None:
        """End all lifespans, then the loop. Waits at most two real seconds for each of these steps."""
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        with contextlib.suppress(TimeoutError):
            ending.result(2)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        # Stop all of them at once, so that an application that hangs does not keep others running.
        stopping = [asyncio.create_task(one.stop()) for one in self._lifespans.values()]
        if stopping:
            await asyncio.wait(stopping, timeout=_SHUTDOWN_SECONDS)
        me = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not me]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _catching_test_end(work: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """Return a coroutine's result, or the exception by which it ends the test.

    If the coroutine raised such an exception, it would also end the event loop.
    """
    try:
        return await work, None
    except BaseException as error:
        ending = None if _is_cancellation(error) else ends_the_test(error)
        if ending is None:
            raise
        return None, ending


def _is_cancellation(error: BaseException) -> bool:
    trio = sys.modules.get("trio")
    cancelled = (
        (asyncio.CancelledError,) if trio is None else (asyncio.CancelledError, trio.Cancelled)
    )
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1] is None
    return isinstance(error, cancelled)


class EventLoops:
    """The event loops in which applications and coroutine functions of one table run."""

    def __init__(self) -> None:
        self._runner: AsgiRunner | None = None
        self._running: dict[int, RunningLifespan] = {}
        self._lock = threading.Lock()

    def runner(self) -> AsgiRunner:
        """Return the loop for coroutines that no running loop awaits, starting it on first use."""
        with self._lock:
            if self._runner is None:
                self._runner = AsgiRunner()
            return self._runner

    def running_lifespan(self, app: AsgiApp) -> RunningLifespan | None:
        """Return the application's lifespan if code other than the queue runs it, else None."""
        if self._runner is not None and self._runner.has(app):
            return None
        found = self._running.get(id(app))
        if found is None or not found.is_running:
            found = find_running_lifespan(app)
            if found is not None:
                self._running[id(app)] = found
        return found

    def close(self) -> None:
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
