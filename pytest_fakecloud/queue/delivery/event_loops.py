"""The event loops in which applications and coroutine functions of a queue run, and their lifespans.

Neither asyncio nor trio has a public function that finds the loops of other threads, nor ASGI one
that finds a running lifespan, so both are found through local variables in the stacks of threads.

Importing this module imports asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from types import CellType, CoroutineType, FrameType, FunctionType
from typing import Any, TypeAlias, TypeVar, cast

from ...core.errors import ends_the_test
from .applications import AsgiApp, CapReached, Deadlines, Event

T = TypeVar("T")


def running_hosts() -> list[Host]:
    """Return the event loops that run in the threads of this process."""
    frames = list(_frames())
    return [*map(AsyncioHost, _asyncio_loops(frames)), *map(TrioHost, _trio_runners(frames))]


def _frames() -> Iterator[FrameType]:
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            yield frame
            frame = frame.f_back


class AsyncioHost:
    """An event loop of asyncio."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop. The future is cancelled if the loop ends first."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def runs_elsewhere(self) -> bool:
        return self._loop.is_running() and asyncio._get_running_loop() is not self._loop

    def coroutines(self) -> Iterator[object]:
        return (task.get_coro() for task in asyncio.all_tasks(self._loop))


def _asyncio_loops(frames: list[FrameType]) -> set[asyncio.AbstractEventLoop]:
    loops = set()
    for frame in frames:
        if frame.f_code.co_name in ("run", "run_until_complete", "run_forever"):
            for value in list(frame.f_locals.values()):
                if isinstance(value, asyncio.AbstractEventLoop):
                    loops.add(value)
                elif isinstance(value, asyncio.Task):
                    # A loop implemented in C has no frame. Its caller's frame has the main task.
                    loops.add(value.get_loop())
    return loops


class TrioHost:
    """A run of trio."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._trio: Any = sys.modules["trio"]
        self._token: Any = runner.current_trio_token()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the run. The future is cancelled if the run ends first."""
        future: Future[T] = Future()
        scope = self._trio.CancelScope()

        async def run() -> None:
            # set_running_or_notify_cancel() returns False if the caller has cancelled the future.
            try:
                with scope:
                    result = await work
                    if future.set_running_or_notify_cancel():
                        future.set_result(result)
            except Exception as error:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            finally:
                # The future is still pending if trio has cancelled the work, because the run ends.
                future.cancel()

        def cancel_work(done: Future[T]) -> None:
            if done.cancelled():
                self._call_soon(scope.cancel)

        future.add_done_callback(cancel_work)
        if not self._call_soon(self._trio.lowlevel.spawn_system_task, run):
            work.close()
            future.cancel()
        return future

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> bool:
        """Call a function in the thread of the run; return False if the run has ended."""
        try:
            self._token.run_sync_soon(function, *arguments)
        except self._trio.RunFinishedError:
            return False
        return True

    @property
    def runs_elsewhere(self) -> bool:
        low = self._trio.lowlevel
        is_here = low.in_trio_run() and low.current_trio_token() is self._token
        return bool(self._runner.tasks) and not is_here

    def coroutines(self) -> Iterator[object]:
        # Copy the set first (in one step of the interpreter), because another thread changes it.
        return (task.coro for task in list(self._runner.tasks))


def _trio_runners(frames: list[FrameType]) -> set[Any]:
    # trio.run() and the generator that it runs have the runner in a variable of this name.
    trio_frames = (
        frame for frame in frames if frame.f_globals.get("__name__") == "trio._core._run"
    )
    runners = {frame.f_locals.get("runner") for frame in trio_frames}
    # Another version of trio may have other attributes. Then its lifespans are not found.
    return {one for one in runners if hasattr(one, "tasks") and hasattr(one, "current_trio_token")}


Host: TypeAlias = AsyncioHost | TrioHost


@dataclass(frozen=True)
class RunningLifespan:
    """A lifespan run by other code: the application, its coroutine, its state and its event loop.

    The reference to the application ensures that no other application gets the same ``id()``.
    """

    app: AsgiApp
    coroutine: CoroutineType[Any, Any, Any]
    state: Mapping[str, Any]
    host: Host

    @property
    def is_running(self) -> bool:
        return self.coroutine.cr_frame is not None


def find_running_lifespan(app: AsgiApp) -> RunningLifespan | None:
    for host in running_hosts():
        for coroutine in host.coroutines():
            while isinstance(coroutine, CoroutineType):
                frame = coroutine.cr_frame
                if frame is not None and _is_call(app, frame):
                    scope = _lifespan_scope(frame)
                    if scope is not None:
                        return RunningLifespan(app, coroutine, scope.get("state") or {}, host)
                coroutine = coroutine.cr_await
    return None


def _is_call(app: Any, frame: FrameType) -> bool:
    """Return whether a frame calls an application: a function, a method or a callable object."""
    function, owner = getattr(app, "__func__", app), getattr(app, "__self__", None)
    if not isinstance(function, FunctionType):
        function, owner = type(app).__call__, app
    if frame.f_code is not getattr(function, "__code__", None):
        return False
    inside = frame.f_locals
    if owner is not None and inside.get(frame.f_code.co_varnames[0]) is not owner:
        return False
    # Compare closure variables, in which applications created by the same function differ.
    cells = zip(frame.f_code.co_freevars, function.__closure__ or (), strict=False)
    return all(inside.get(name) is _content(cell) for name, cell in cells)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _lifespan_scope(frame: FrameType) -> Mapping[str, Any] | None:
    scopes = (value for value in list(frame.f_locals.values()) if isinstance(value, MutableMapping))
    return next((scope for scope in scopes if scope.get("type") == "lifespan"), None)


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
        if host is None or not host.runs_elsewhere:
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
        self._running: dict[int, RunningLifespan | None] = {}
        self._lock = threading.Lock()

    def runner(self) -> AsgiRunner:
        with self._lock:
            if self._runner is None:
                self._runner = AsgiRunner()
            return self._runner

    def running_lifespan(self, app: AsgiApp) -> RunningLifespan | None:
        """Return the application's lifespan if code other than the queue runs it, else None."""
        with self._lock:
            if self._runner is not None and self._runner.has(app):
                return None
            known = self._running.get(id(app))
            if known is None or not known.is_running:
                known = self._running[id(app)] = find_running_lifespan(app)
            return known

    def close(self) -> None:
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
