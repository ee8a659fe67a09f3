"""Find the lifespan of an ASGI application that other code runs, such as a test client.

The ASGI protocol offers no way to find it. While a lifespan runs, however, a coroutine of the
application is suspended in a task of an event loop and has a scope of type "lifespan". The event
loops are found in the stacks of the threads. Importing this module imports asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine, Iterator, Mapping, MutableMapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from types import CellType, CoroutineType, FrameType, FunctionType
from typing import Any, TypeAlias, TypeVar

from .applications import AsgiApp

T = TypeVar("T")
_MAX_TRIES = 20
"""Maximum number of attempts to copy a set of tasks that another thread changes."""


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
    """Return the lifespan of an application that is running in asyncio or trio, or None."""
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
    """Return the event loops that run in the threads of this process."""
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
