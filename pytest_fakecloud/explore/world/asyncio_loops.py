"""asyncio in explored code and its checks: the library, and its event loops on fake time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import selectors
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.clock import asyncio_is_running
from ...core.errors import ContractError, is_crash
from ...core.frames import thread_frames
from ...core.libraries import is_library
from ...process.replace import Patch
from ..fakes.connections import Connections, MemoryLink
from ..simulation.current_thread import PROMISE
from ..simulation.loops import AsyncLibrary, EventLoop, Loops
from ..simulation.rest import Wakeup
from .locks import is_of_a_fake

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
_OF_ANOTHER_LOOP = re.compile("Event loop is closed|different (?:event )?loop")


class Asyncio(AsyncLibrary):
    """asyncio, whose loops run on fake time in explored code and its checks."""

    portal = "asyncio-portal-"

    def __init__(self, world: World) -> None:
        self._world = world

    def patches(self) -> Iterator[Patch]:
        world = self._world
        really = asyncio.events.new_event_loop
        really_create_task = asyncio.BaseEventLoop.create_task

        def new_event_loop() -> asyncio.AbstractEventLoop:
            # A loop of a fake, such as that of an ASGI application, is not explored. Its code sleeps in
            # fake time, as in a loop that has started before.
            if not world.current_thread.role().has_fake_time or is_of_a_fake(sys._getframe(1)):
                return really()
            return self.new_loop()

        @functools.wraps(really_create_task)
        def create_task(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
            """Note the lines that create each task, in any event loop: before Python 3.12, for example,
            ``asyncio.wait_for()`` awaits its argument in a task of its own, whose stack lacks them.
            """
            task = really_create_task(loop, coro, **options)
            if world.simulation is not None:
                world.simulation.call_sites.note_task(task)
            return task

        yield asyncio, "new_event_loop", new_event_loop
        yield asyncio.events, "new_event_loop", new_event_loop
        yield asyncio.BaseEventLoop, "create_task", create_task

    def is_running(self) -> bool:
        return asyncio_is_running()

    def current_task(self) -> object | None:
        return asyncio.current_task()

    def fake_time_loop(self) -> FakeTimeLoop | None:
        loop = asyncio._get_running_loop()
        return loop if isinstance(loop, FakeTimeLoop) else None

    def is_of_another_loop(self, error: BaseException) -> bool:
        return isinstance(error, RuntimeError) and bool(_OF_ANOTHER_LOOP.search(str(error)))

    async def in_thread(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._world.request_pool, copy_context().run, function)

    async def sleep(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        if isinstance(loop, FakeTimeLoop):
            return False
        return await self._world.waits.sleep_async(seconds, partial(_Wakeup, loop))

    def run(self, coroutine: Any) -> Any:
        """Return the result of a coroutine of a client, a delivery or a check, in a new loop."""
        # A coroutine for which no loop can be created would warn that it was never awaited.
        with contextlib.closing(coroutine), asyncio.Runner(loop_factory=self.new_loop) as runner:
            return runner.run(coroutine)

    def new_loop(self) -> FakeTimeLoop:
        """Create an event loop that runs on fake time. Ends a trial whose threads cannot have one."""
        here = self._world.simulation_and_strand()
        if here is not None and threading.get_ident() not in thread_frames():
            simulation, strand = here
            library = threading.get_ident.__module__.partition(".")[0]
            simulation.turns.fail_trial(
                ContractError(
                    f"{strand.name} runs an event loop, but {library} has replaced the threads of this "
                    "process by its own, which share one thread of the system. explore() runs each "
                    "client in a thread, and only one event loop can run in a thread of the system. "
                    "Let the clients be functions without an event loop, or "
                    f"{without_patching(library)}"
                )
            )
        return FakeTimeLoop(self._world)


def without_patching(library: str) -> str:
    """Return the advice for a library that has replaced parts of the standard library."""
    return (
        f"run this test in a process in which {library} replaces nothing: leave its patching out of "
        "conftest.py and of the modules that the test imports"
    )


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


class _Wakeup(Wakeup):
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
        return _Wakeup(self)

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
