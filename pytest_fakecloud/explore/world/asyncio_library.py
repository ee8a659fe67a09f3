"""asyncio: the library, and what explored code and its checks use in its place."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.clock import asyncio_is_running
from ...core.errors import ContractError
from ...core.frames import thread_frames
from ...process.replace import Patch
from ..simulation.loops import AsyncLibrary
from .asyncio_loops import FakeTimeLoop, LoopWakeup
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
        return await self._world.waits.sleep_async(seconds, partial(LoopWakeup, loop))

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
