"""Event loops of explored code, and the libraries that they are of, such as asyncio. A loop that waits
lets other strands run, and its tasks are strands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ...core.clock import in_thread
from ...core.touches import READS_CLOCK
from ...process.replace import Patch
from ..values.limits import OTHER_SERVERS
from .part import Part
from .rest import Waiting, Wakeup
from .strand import Strand

T = TypeVar("T")


class EventLoop(ABC):
    """An event loop that runs in the thread of a strand, on fake time, and whose tasks are strands.

    It calls ``Loops`` when it starts, creates a task, idles, meets an unhandled error, and ends.
    """

    strand: Strand | None = None
    """The strand in whose thread it runs, once it has started there."""

    @abstractmethod
    def current_task(self) -> object | None:
        """Return the task that runs now, or None between two tasks."""

    @abstractmethod
    def pending_tasks(self) -> Iterable[object]:
        """Return the tasks that have not ended."""

    @abstractmethod
    def function_of(self, task: Any) -> str:
        """Return the name of a task's function, or an empty string."""

    @abstractmethod
    def new_wakeup(self) -> Wakeup:
        """Return what the current task can await."""

    @abstractmethod
    def has_events(self, seconds: float = 0.0) -> bool:
        """Return whether something for which a task waits has happened, within some real seconds."""

    @abstractmethod
    def has_strangers(self) -> bool:
        """Return whether a task waits for a socket of the system, which does not lead to a fake."""

    @abstractmethod
    def wake(self) -> None:
        """Let the loop look for events, if it is not explored. Called in any thread."""


class AsyncLibrary(ABC):
    """A library with event loops. ``World.async_libraries`` has one object for each library."""

    portal: str
    """How the names of the threads begin in which a running TestClient has its event loop."""

    async def sleep(self, seconds: float) -> bool:
        """Sleep in fake time in a loop that is not explored; return False in other loops."""
        return False

    @abstractmethod
    def patches(self) -> Iterator[Patch]:
        """Yield the functions of the library that are replaced, as owner, name and value."""

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether this thread runs an event loop of the library, explored or not."""

    @abstractmethod
    def current_task(self) -> object | None:
        """Return the current task of the running loop, or None between two tasks."""

    def fake_time_loop(self) -> EventLoop | None:
        """Return the running loop if it is one of explored code or of a check."""
        return None

    def is_of_another_loop(self, error: BaseException) -> bool:
        """Return whether a connection or a lock raises an error because another loop has used it."""
        return False

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, for a loop that is not explored and that it would block."""
        return await in_thread(function)


class Loops(Part):
    """What happens in the event loops of a trial."""

    def start(self, loop: EventLoop) -> None:
        """Called when a loop starts: its strand gets a main task, to which its present tasks belong."""
        host = self._turns.host()
        if host is None or host.loop is loop:
            return
        loop.strand = host
        main = host.start_loop(loop)
        if main is not None:
            self._strands.add(main)
            for task in loop.pending_tasks():
                self._strands.tasks[task] = main

    def end(self, loop: EventLoop) -> None:
        """Called when a loop ends, and with it all its tasks."""
        host = self._turns.host()
        if host is None or host.loop is not loop:
            return
        host.end_loop()
        tasks = [
            strand for strand in self._strands if strand.type == "task" and strand.host is host
        ]
        for strand in sorted(tasks, key=lambda strand: strand.rest_number):
            while strand.state == "parked":
                # A request may still wait for its turn after its task has ended, e.g. because of a
                # timeout. The fake handles it, because it has already been sent.
                strand.go_on()
                strand.release()
            strand.end()
            strand.release()

    def idle(self, loop: EventLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits; return False if it is not explored here."""
        host = loop.strand
        is_explored = self._current_thread.role().is_explored
        if host is None or not is_explored or self._turns.host() is not host:
            return False
        self._turns.check_alive(host)
        if self._fakes.clock.is_moving:
            return True
        if loop.has_strangers() and loop.has_events(OTHER_SERVERS):
            return True
        wake_us = None
        if timeout is not None:
            wake_us = self._fakes.time_after(timeout)
            self._access_log.touch([READS_CLOCK])
        # A switch names this place in the loop by the last point of its main task.
        host.points = 0 if host.main_task is None else host.main_task.points
        self._turns.yield_turn_of_loop(host, Waiting(loop.has_events, wake_us, is_of_loop=True))
        return True

    def add_task(self, task: object, is_inner: bool) -> None:
        """Called when a task is created. An *inner* one belongs to the task that creates it."""
        creator = self._current_thread.strand()
        if is_inner and creator is not None and creator.type == "task":
            self._strands.tasks[task] = creator

    def note_unhandled(self, error: BaseException) -> None:
        if not self._log.note_error(error):
            self._log.note(f"a task raised {error!r}, which no code awaited")
