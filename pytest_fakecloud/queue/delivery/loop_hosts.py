"""Event loops of asyncio and trio, which may run in other threads.

Neither library has a public function that finds the loops of other threads. ``running_hosts()``
finds them through local variables in the stacks of the threads. Importing this module imports
asyncio.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any, TypeAlias, TypeVar

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
