"""Event loops of explored code, which run on fake time and whose tasks are strands."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import selectors
import sys
from asyncio import events
from collections.abc import Callable, Collection
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...core.recorder import is_library
from ..footprint import READS_CLOCK
from .state import Part
from .strands import Crash, Strand, Waiting

if TYPE_CHECKING:
    from ..world import World


_SOON = 0.005
"""Wall-clock seconds to wait for other servers to answer."""


class _Selector(selectors.DefaultSelector):
    """A selector that lets other strands run when no socket is ready."""

    loop: OwnLoop

    def __init__(self) -> None:
        super().__init__()
        self._since: dict[int, int] = {}
        self._registered = itertools.count()

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        key = super().register(fileobj, events, data)
        self._since[key.fd] = next(self._registered)
        return key

    def select(self, timeout: float | None = None) -> Any:
        self.loop.await_answers()
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            if self.loop.world.idle(self.loop, timeout):
                timeout = 0
                self.loop.await_answers()
            ready = super().select(timeout)
        # Sort by registration: the order of arrival differs from run to run.
        return sorted(ready, key=lambda one: self._since[one[0].fd])

    def has_events(self, seconds: float = 0.0) -> bool:
        """Return whether a socket or another thread has an event for the loop."""
        return bool(super().select(seconds))


class OwnLoop(asyncio.SelectorEventLoop):
    """The event loop of one strand, which runs on fake time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.strand: Strand | None = None
        # Measure times from the start: a float of the full time cannot tell microseconds apart.
        self._began_us = world.now_us()
        self.selector = _Selector()
        self.selector.loop = self
        super().__init__(self.selector)
        self.set_exception_handler(self._handle)

    def time(self) -> float:
        return (self.world.now_us() - self._began_us) / 1e6

    def await_answers(self) -> None:
        if self.world.simulation is not None:
            self.world.simulation.loops.await_answers(self)

    def run_forever(self) -> None:
        if self.world.simulation is not None:
            self.world.simulation.loops.on_start(self)
        try:
            super().run_forever()
        finally:
            if self.world.simulation is not None:
                self.world.simulation.loops.on_end(self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        if self.world.simulation is not None:
            self.world.simulation.loops.on_task(task, _is_inner(coro, sys._getframe(1)))
        return task

    def has_sockets(self, known: Collection[int]) -> bool:
        """Return whether the loop waits for sockets other than its own and the known ones."""
        own = self._ssock.fileno()  # type: ignore[attr-defined]
        return any(fd != own and fd not in known for fd in self.selector.get_map())

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            if not isinstance(error, Crash) and self.world.simulation is not None:
                self.world.simulation.lifecycle.unhandled(error)
        elif "was destroyed" not in str(context.get("message")):
            self.default_exception_handler(context)


def _is_inner(coroutine: Any, frame: FrameType | None) -> bool:
    """Return whether the code in ``frame``, which creates a task, only awaits it, as ``wait_for()``
    and libraries do. The task is then a part of the strand that creates it.
    """
    code = getattr(coroutine, "cr_code", None)
    if code is None:
        return True
    while frame is not None and frame.f_globals.get("__name__", "").startswith("asyncio."):
        if frame.f_code is asyncio.wait_for.__code__:
            return True
        frame = frame.f_back
    # The application may pass coroutines of a library to gather(), which runs them concurrently.
    is_created_by_library = frame is None or is_library(frame.f_code.co_filename)
    return is_library(code.co_filename) and is_created_by_library


def explored_loops(world: World) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a replacement for ``new_event_loop()`` that makes loops on fake time in strands."""
    real = events.new_event_loop
    return lambda: OwnLoop(world) if world.is_here() else real()


def awaited(world: World, value: Any) -> Any:
    """Return a value or, if it is a coroutine, its result in a loop that runs on fake time."""
    if not inspect.iscoroutine(value):
        return value
    with asyncio.Runner(loop_factory=lambda: OwnLoop(world)) as runner:
        return runner.run(value)


class EventLoops(Part):
    """Lets other strands run while an event loop of explored code waits."""

    def on_start(self, loop: OwnLoop) -> None:
        """Called when an event loop starts in this thread. Turns its tasks into strands."""
        host = self._turns.here()
        if host is None or host.loop.running is loop:
            return
        host.loop.running = loop
        loop.strand = host
        if host.role != "task" and host.loop.main_task is None:
            main = Strand(host.title, "task", parent=host, points=host.points)
            main.state = "running"
            self._state.add(main)
            host.loop.main_task = main
            for task in asyncio.all_tasks(loop):
                self._state.tasks[task] = main

    def on_end(self, loop: OwnLoop) -> None:
        host = self._turns.here()
        if host is None or host.loop.running is not loop:
            return
        host.loop.running = None
        if host.loop.main_task is not None:
            host.points = host.loop.main_task.points
            host.loop.main_task = None
        tasks = [one for one in self._state.strands if one.role == "task" and one.host is host]
        for strand in sorted(tasks, key=lambda one: one.parked_at):
            while strand.state == "parked":
                # A request may still wait for its turn after its task has ended, e.g. because of a
                # timeout. The fake handles it, because it has already been sent.
                strand.state = "running"
                strand.gate.release()
                self._connections.await_handling(host)
            strand.state = "ended"
            strand.gate.release()

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits.

        Return True if the loop may have events now, and False for a loop that is not explored here.
        """
        host = loop.strand
        if host is None or self._record.aside_depth or self._turns.here() is not host:
            return False
        self._state.check_alive(host)
        if self._world.clock.driving:
            return True
        sockets = [one.fileno() for one in self._connections.of_host(host)]
        if loop.has_sockets(sockets) and loop.selector.has_events(_SOON):
            return True
        wake_us = None
        if timeout is not None:
            wake_us = self._world.now_us() + math.ceil(timeout * 1e6)
            self._record.touch([READS_CLOCK])

        def arrived() -> bool:
            self._world.connections.settle()
            self._connections.await_answers(host)
            return loop.selector.has_events()

        host.place = "wake"
        host.points = 0 if host.loop.main_task is None else host.loop.main_task.points
        self._turns.idle(host, Waiting("loop", arrived, wake_us))
        self._state.check_alive(host)
        host.loop.is_settled = False
        return True

    def await_answers(self, loop: OwnLoop) -> None:
        """Wait, in wall-clock time, until the loop can read the answers to all requests of its tasks.

        Otherwise the order in which several answers arrive would influence the run. Requests that
        wait for the turn of their strand are skipped.
        """
        host = loop.strand
        if host is None or host.loop.is_settled:
            return
        if self._record.aside_depth or self._turns.here() is not host:
            return
        self._connections.await_handling(host)
        self._connections.await_answers(host)
        host.loop.is_settled = True

    def on_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        """Assign an inner task to the strand that created it, and note the line that created it."""
        creator = self._state.here()
        if is_inner and creator is not None and creator.role == "task":
            self._state.tasks[task] = creator
        self._state.sources.note_task(task)
