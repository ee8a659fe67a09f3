"""Event loops of explored code, and the libraries that they are of, such as asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.clock import in_thread
from ...process.replace import Patch

if TYPE_CHECKING:
    from .strand import Strand
    from .turns import Wakeup

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
        """Return whether something has happened for which a task waits, at most some seconds later,
        which are real.
        """

    @abstractmethod
    def has_strangers(self) -> bool:
        """Return whether a task waits for a socket of the system, which does not lead to a fake."""

    @abstractmethod
    def wake(self) -> None:
        """Let the loop look for events, if it is not explored. Called in any thread."""


class AsyncLibrary(ABC):
    """A library with event loops. ``World.async_libraries`` has one object for each library."""

    def run(self, coroutine: Any) -> Any:
        """Return the result of a coroutine of a client, a delivery or a check, which runs in a new loop
        on fake time. Only the first of ``World.async_libraries`` has to do this.
        """
        raise NotImplementedError

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

    def own_loop(self) -> EventLoop | None:
        """Return the running loop if it is one of explored code or of a check."""
        return None

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, for a loop that is not explored and that it would block."""
        return await in_thread(function)
