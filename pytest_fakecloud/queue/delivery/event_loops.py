"""The event loops in which applications and coroutine functions of a queue run, and their lifespans.

A lifespan is run by the queue or by other code, such as a test client. Importing this module imports
asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Mapping, MutableMapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass
from types import CellType, CoroutineType, FrameType, FunctionType
from typing import Any, TypeAlias, TypeVar, cast

from ...core.errors import ends_the_test
from .applications import AsgiApp, Event
from .deadlines import CapReached, Deadlines

T = TypeVar("T")
_MAX_TRIES = 20
"""Maximum number of attempts to copy a set of tasks that another thread changes."""
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


class AsyncioHost:
    """An asyncio event loop that may run a lifespan."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop. The future is cancelled if the loop ends first."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def is_running(self) -> bool:
        return self._loop.is_running()

    @property
    def runs_in_this_thread(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def coroutines(self) -> Iterator[object]:
        return (task.get_coro() for task in asyncio.all_tasks(self._loop))


class TrioHost:
    """A trio run that may run a lifespan."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._trio: Any = sys.modules["trio"]
        self._token: Any = runner.current_trio_token()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the run. The future is cancelled if the run ends first."""
        future: Future[T] = Future()
        trio, token = self._trio, self._token
        scope = trio.CancelScope()

        async def run() -> None:
            # Ignore the error of a cancelled future, which does not accept a result.
            with contextlib.suppress(InvalidStateError):
                try:
                    with scope:
                        future.set_result(await work)
                except Exception as error:
                    future.set_exception(error)
                finally:
                    # If the run ends, trio raises Cancelled, which is not an Exception.
                    future.cancel()

        def cancel(ended: Future[T]) -> None:
            if ended.cancelled():
                with contextlib.suppress(trio.RunFinishedError):
                    token.run_sync_soon(scope.cancel)

        future.add_done_callback(cancel)
        try:
            token.run_sync_soon(trio.lowlevel.spawn_system_task, run)
        except trio.RunFinishedError:
            work.close()
            future.cancel()
        return future

    @property
    def is_running(self) -> bool:
        return bool(self._runner.tasks)

    @property
    def runs_in_this_thread(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    def coroutines(self) -> Iterator[object]:
        for _ in range(_MAX_TRIES):
            # Try again if the set changes, because another thread owns the tasks.
            with contextlib.suppress(RuntimeError):
                return iter([task.coro for task in self._runner.tasks])
        return iter(())


Host: TypeAlias = AsyncioHost | TrioHost
"""An asyncio or trio event loop, which may run in another thread."""


@dataclass(frozen=True)
class RunningLifespan:
    """A lifespan run by other code: the application's coroutine, its state and its event loop."""

    coroutine: CoroutineType[Any, Any, Any]
    state: Mapping[str, Any]
    host: Host

    @property
    def is_running(self) -> bool:
        return self.coroutine.cr_frame is not None


def find_running_lifespan(app: AsgiApp) -> RunningLifespan | None:
    """Return the lifespan of an application that is running in asyncio or trio, or None.

    The ASGI protocol offers no way to find it. While a lifespan runs, however, a coroutine of the
    application is suspended in a task and has a scope of type "lifespan".
    """
    for host in _hosts():
        for coroutine in host.coroutines():
            while isinstance(coroutine, CoroutineType):
                frame = coroutine.cr_frame
                scope = None if frame is None else _lifespan_scope(app, frame)
                if scope is not None:
                    return RunningLifespan(coroutine, scope.get("state") or {}, host)
                coroutine = coroutine.cr_await
    return None


def _hosts() -> list[Host]:
    """Return the event loops running in this process, found in the stacks of its threads."""
    loops: set[asyncio.AbstractEventLoop] = set()
    runners: dict[int, Any] = {}
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            name = frame.f_code.co_name
            if name in ("run", "run_until_complete", "run_forever"):
                for value in list(frame.f_locals.values()):
                    if isinstance(value, asyncio.AbstractEventLoop):
                        loops.add(value)
                    elif isinstance(value, asyncio.Task):
                        # Find a loop implemented in C, which has no frame, through its tasks.
                        loops.add(value.get_loop())
            runner = frame.f_locals.get("runner") if name in ("run", "unrolled_run") else None
            if hasattr(runner, "tasks") and hasattr(runner, "current_trio_token"):
                runners[id(runner)] = runner
            frame = frame.f_back
    return [*map(AsyncioHost, loops), *map(TrioHost, runners.values())]


def _lifespan_scope(app: Any, frame: FrameType) -> Mapping[str, Any] | None:
    """Return the scope if a frame is the application's lifespan call, else None."""
    function = getattr(app, "__func__", app)
    code = getattr(function, "__code__", None) or getattr(type(app).__call__, "__code__", None)
    if frame.f_code is not code:
        return None
    inside = frame.f_locals
    owner = getattr(app, "__self__", None if function.__class__ is FunctionType else app)
    names = code.co_varnames
    if owner is not None and inside.get(names[0]) is not owner:
        return None
    # Compare closure variables, in which applications created by the same function differ.
    about = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
    if any(inside.get(name) is not _content(cell) for name, cell in about):
        return None
    for value in list(inside.values()):
        if isinstance(value, MutableMapping) and value.get("type") == "lifespan":
            return value
    return None


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


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

    def run(self, work: Awaitable[T], deadlines: Deadlines, host: Host | None = None) -> T:
        """Await work in an event loop of another thread, and return its result.

        It runs in ``host`` if that loop is running in another thread, otherwise in this runner's
        own loop. Raises ``CapReached`` after the real-time cap, and ``LoopEnded`` if the loop ends
        first.
        """
        if host is None or not host.is_running or host.runs_in_this_thread:
            host = self._host
        future = host.submit(_catching_test_end(work))
        try:
            # result() waits in C code, so tools that freeze time do not change its timeout.
            result, ending = future.result(deadlines.cap)
            if ending is not None:
                raise ending
            return cast(T, result)
        except CancelledError:
            raise LoopEnded("the application's event loop ended before the response") from None
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            why = "the destination ran in a loop of its own"
            raise CapReached(deadlines.timeout_text(why)) from None

    def has(self, app: AsgiApp) -> bool:
        return id(app) in self._lifespans

    async def lifespan(self, app: AsgiApp) -> Mapping[str, Any]:
        """Return the application's lifespan state. The first call starts the lifespan."""
        if id(app) not in self._lifespans:
            self._lifespans[id(app)] = Lifespan(app)
        return await self._lifespans[id(app)].started()

    def close(self) -> None:
        """End all lifespans, then the loop."""
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        with contextlib.suppress(TimeoutError):
            ending.result(_STEP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STEP_SECONDS)
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


async def _catching_test_end(work: Awaitable[T]) -> tuple[T | None, BaseException | None]:
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
        with self._lock:
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
