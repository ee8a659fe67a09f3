"""The event loops of asyncio in explored code and its checks, on fake time."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable, Generator, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...core.errors import is_crash
from ...core.libraries import is_library
from ..fakes.connections import Connections
from ..fakes.memory_link import MemoryLink
from ..simulation.current_thread import PROMISE
from ..simulation.loops import EventLoop, Loops
from ..simulation.rest import Wakeup

if TYPE_CHECKING:
    from .world import World


class _Selector(selectors.DefaultSelector):
    """A selector with connections in memory, which lets other strands run when nothing is ready."""

    loop: FakeTimeLoop

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self._links: dict[int, tuple[MemoryLink, selectors.SelectorKey]] = {}
        self.has_threads = False
        """Whether a thread has ever woken the loop, which it does through a socket of the system."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        link = self._connections.at(fileobj)
        if link is None:
            return super().register(fileobj, events, data)
        key = selectors._BaseSelectorImpl.register(self, fileobj, events, data)
        self._links[key.fd] = link, key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self.get_map()[fileobj]
        if self._links.pop(key.fd, None) is None:
            return super().unregister(fileobj)
        return selectors._BaseSelectorImpl.unregister(self, fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map()[fileobj].fd not in self._links:
            return super().modify(fileobj, events, data)
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> Any:
        ready = self.find_ready(0)
        if not ready and (timeout is None or timeout > 0):
            if self.loop.idle(timeout):
                timeout = 0
            ready = self.find_ready(timeout)
        if len(ready) > 1:
            # Sort by registration: the order of arrival differs from trial to trial.
            registered = list(self.get_map())
            ready.sort(key=lambda entry: registered.index(entry[0].fd))
        return ready

    def find_ready(self, timeout: float | None) -> Any:
        """Wait, in wall-clock time, for events; do not wait if a connection in memory has one."""
        ready = []
        for link, key in self._links.values():
            events = key.events & (selectors.EVENT_WRITE | link.has_news() * selectors.EVENT_READ)
            if events:
                ready.append((key, events))
        if (ready or timeout == 0) and not (self.has_threads or self.has_strangers()):
            return ready
        return super().select(0 if ready else timeout) + ready

    def has_strangers(self) -> bool:
        """Return whether the loop waits for a socket of the system, apart from its own."""
        return len(self.get_map()) > len(self._links) + 1


class LoopWakeup(Wakeup):
    """A future of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()

    def resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def wake_elsewhere(self, is_over: Callable[[], bool]) -> None:
        self._loop.call_soon_threadsafe(
            lambda: self._future.cancel() if is_over() else self.resume()
        )


class FakeTimeLoop(asyncio.SelectorEventLoop, EventLoop):
    """The event loop of one strand, which runs on fake time."""

    def __init__(self, world: World) -> None:
        self._world = world
        # The loop of a promise is no part of the trial whose steps the promise checks.
        self._is_of_promise = world.current_thread.role() is PROMISE
        self._in_threads: set[asyncio.Future[Any]] = set()
        """The calls that threads of executors have not ended."""
        # Measure times from the start: a float of the full time cannot tell microseconds apart.
        self._began_us = world.fakes.now_us()
        self.selector = _Selector(world.fakes.connections)
        self.selector.loop = self
        super().__init__(self.selector)
        self.set_exception_handler(self._handle)

    def time(self) -> float:
        return (self._world.fakes.now_us() - self._began_us) / 1e6

    def idle(self, timeout: float | None) -> bool:
        """Called when the loop has nothing to run; return False if nothing else can run."""
        trial = self._trial()
        if trial is not None:
            return trial.idle(self, timeout)
        # The time of a check waits for a thread that works for the loop.
        return not self._in_threads and self._world.waits.wait_in_check(self.has_events, timeout)

    def current_task(self) -> asyncio.Task[Any] | None:
        return asyncio.current_task(self)

    def pending_tasks(self) -> Iterable[asyncio.Task[Any]]:
        return asyncio.all_tasks(self)

    def function_of(self, task: asyncio.Task[Any]) -> str:
        return str(getattr(task.get_coro(), "__name__", ""))

    def new_wakeup(self) -> Wakeup:
        return LoopWakeup(self)

    def has_events(self, seconds: float = 0.0) -> bool:
        return bool(self.selector.find_ready(seconds))

    def has_strangers(self) -> bool:
        return self.selector.has_strangers()

    def _trial(self) -> Loops | None:
        simulation = None if self._is_of_promise else self._world.simulation
        return None if simulation is None else simulation.loops

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._in_threads.add(future)
        future.add_done_callback(self._in_threads.discard)
        return future

    def wake(self) -> None:
        if self.strand is None and not self.is_closed():
            self.call_soon_threadsafe(lambda: None)

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        self.selector.has_threads = True
        return super().call_soon_threadsafe(*args, **options)

    def run_forever(self) -> None:
        if (trial := self._trial()) is not None:
            trial.start(self)
        try:
            super().run_forever()
        finally:
            if (trial := self._trial()) is not None:
                trial.end(self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        if (trial := self._trial()) is not None:
            trial.add_task(task, _is_inner(coro, sys._getframe(1)))
        return task

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            trial = self._trial()
            if not is_crash(error) and trial is not None:
                trial.note_unhandled(error)
        elif "was destroyed" not in str(context.get("message")):
            self.default_exception_handler(context)


_RUNNERS = ("asyncio.", "anyio.")
"""Packages that create tasks for their callers."""


def _is_inner(coroutine: Any, frame: FrameType | None) -> bool:
    """Return whether the code in ``frame``, which creates a task, only awaits it, as ``wait_for()``
    and libraries do. The task is then a part of the strand that creates it.
    """
    code = getattr(coroutine, "cr_code", None)
    if code is None:
        return True
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_RUNNERS):
        if frame.f_code is asyncio.wait_for.__code__:
            return True
        frame = frame.f_back
    # The application may pass coroutines of a library to gather(), which runs them concurrently.
    is_created_by_library = frame is None or is_library(frame.f_code.co_filename)
    return is_library(code.co_filename) and is_created_by_library
