"""The event loop in which applications and coroutine functions of a queue run, and their lifespans."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Mapping
from concurrent.futures import CancelledError
from inspect import signature
from typing import Any

from ...core.clock import loop_is_running
from ...core.errors import ends_the_test
from ...core.threads import DaemonThread
from .applications import AsgiApp, CapReached, Deadlines, Event

_SHUTDOWN_SECONDS = 1.0
"""Maximum real time for the shutdown of the applications."""
_STEP_SECONDS = 2.0
"""Maximum real time to end the lifespans and all tasks, and then the loop."""


class Lifespan:
    """A lifespan that the queue runs in the running loop. ``state`` is the application's state."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.state: dict[str, Any] = {}
        self._startup = asyncio.Event()
        self._shutdown = asyncio.Event()
        self._done = asyncio.Event()
        self._startup_sent = False
        self._error: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def started(self) -> Mapping[str, Any]:
        """Return the application's state after its start-up; raise its error if that failed."""
        await self._startup.wait()
        if self._error is not None:
            raise self._error
        return self.state

    async def stop(self) -> None:
        self._shutdown.set()
        await self._done.wait()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        try:
            await self.app(scope, self._receive, self._send)
        except Exception as error:
            # Ignore the exception, unless the start-up failed: the protocol allows an application
            # without lifespan support to raise one.
            if self._error is not None:
                self._error.__cause__ = error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._startup.set()
            self._done.set()

    async def _receive(self) -> Event:
        if not self._startup_sent:
            self._startup_sent = True
            return {"type": "lifespan.startup"}
        await self._shutdown.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, event: Event) -> None:
        if event["type"] == "lifespan.startup.failed":
            text = event.get("message") or "no reason given"
            self._error = RuntimeError(f"the application's lifespan did not start: {text}")
        if event["type"].startswith("lifespan.startup"):
            self._startup.set()
        else:
            self._done.set()


class AsgiRunner:
    """An event loop in its own thread, for coroutines that no running loop awaits.

    Like a server, it starts each application's lifespan before the first request and ends it in
    ``close()``. Applications without lifespan support are called without one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lifespans: dict[int, Lifespan] = {}
        self._thread = DaemonThread("queue-loop", self._loop.run_forever)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Awaitable[Any], deadlines: Deadlines) -> Any:
        """Await work in the loop; raise ``CapReached``, or ``RuntimeError`` if the loop ends first.

        Synchronous code that asgiref moves out of the loop, such as Django's views and its database
        access, runs in the calling thread, as with Django's own asynchronous client.
        """
        asgiref = None if loop_is_running() else sys.modules.get("asgiref.sync")
        if asgiref is not None:
            executor = _executor_of_this_thread()
            work = _with_executor(work, asgiref.AsyncToSync.executors, executor)
        future = asyncio.run_coroutine_threadsafe(_catching_test_end(work), self._loop)
        try:
            if asgiref is not None:
                planned = deadlines.start(future.cancel)
                executor.run_until_future(future)
                if not deadlines.cancel(planned) and future.cancelled():
                    raise CapReached(deadlines.timeout_text())
            # result() waits in C code, so tools that freeze time do not change its timeout.
            result, ending = future.result(deadlines.cap)
            if ending is not None:
                raise ending
            return result
        except CancelledError:
            raise RuntimeError("the queue was closed before the response") from None
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            why = "the destination ran in a loop of its own"
            raise CapReached(deadlines.timeout_text(why)) from None

    async def lifespan(self, app: AsgiApp) -> Mapping[str, Any]:
        if id(app) not in self._lifespans:
            self._lifespans[id(app)] = Lifespan(app)
        return await self._lifespans[id(app)].started()

    def close(self) -> None:
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        with contextlib.suppress(TimeoutError):
            ending.result(_STEP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STEP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        # Stop all of them at once, so that an application that hangs does not keep others running.
        stopping = [asyncio.create_task(lifespan.stop()) for lifespan in self._lifespans.values()]
        if stopping:
            await asyncio.wait(stopping, timeout=_SHUTDOWN_SECONDS)
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _executor_of_this_thread() -> Any:
    """Return an executor of asgiref that runs functions in this thread while it waits."""
    from asgiref import current_thread_executor

    # asgiref before 3.9 has no outer executors.
    kind: Any = current_thread_executor.CurrentThreadExecutor
    return kind(None) if signature(kind).parameters else kind()


async def _with_executor(work: Awaitable[Any], executors: Any, executor: object) -> Any:
    """Await work whose synchronous parts run in an executor of asgiref."""
    executors.current = executor
    return await work


async def _catching_test_end(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return a coroutine's result, or the exception by which it ends the test.

    If the coroutine raised such an exception, it would also end the event loop.
    """
    try:
        return await work, None
    except BaseException as error:
        is_cancelled = isinstance(error, asyncio.CancelledError)
        ending = None if is_cancelled else ends_the_test(error)
        if ending is None:
            raise
        return None, ending
