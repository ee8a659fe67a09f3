"""What a strand that rests waits for, and what holds its code until it goes on."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from ..fakes.gate import Aside, Gate
from ..values.limits import TURN_CHECK
from ..values.plan import SwitchKind


@dataclass(frozen=True, slots=True)
class Waiting:
    """The condition or the time that ends the wait of a strand."""

    ready: Callable[[], bool] | None = None
    wake_us: int | None = None
    is_for_other_thread: bool = False
    """Whether it waits for a lock, or for the end of a thread."""
    is_of_loop: bool = False
    """Whether the event loop of the thread has nothing to do, so that its tasks can have the turn."""


NOT_WAITING = Waiting()
Rest: TypeAlias = SwitchKind | Waiting
"""How a strand gives up its turn: at a point from which it can go on at any time, or in a wait."""


class Carrier(ABC):
    """Holds the code of a strand from when it gives up its turn until ``resume()``."""

    lets_loop_run: ClassVar[bool]
    """Whether the event loop of a task goes on meanwhile, with its other tasks."""

    @abstractmethod
    def resume(self) -> None:
        """Let the code go on. One that does not wait yet will not wait, so that no turn is lost."""


@dataclass(slots=True)
class StrandThread(Carrier):
    """The thread of a strand. It carries a task of its event loop if that blocks the loop."""

    lets_loop_run = False
    ident: int = 0
    """Its identifier; 0 without a thread."""
    starting: threading.Thread | None = None
    """The thread itself, until the code of the strand begins there."""
    real_waits: int = 0
    """Number of waits for threads of the fakes or other processes that are in progress."""
    _gate: Gate = field(default_factory=Gate)

    def begin(self) -> None:
        """Note that the code of the strand begins in the current thread."""
        self.ident, self.starting = threading.get_ident(), None

    def wait(self) -> None:
        """Wait in the thread for ``resume()``."""
        self._gate.acquire()

    def resume(self) -> None:
        self._gate.release()


@dataclass(slots=True)
class RequestThread(Carrier):
    """A thread of a fake that handles the request of a task, and waits for the turn of the task.

    If it is a thread ``aside``, it lets the event loop go on before it waits, which blocks again while
    this thread has the turn.
    """

    lets_loop_run = True
    aside: Aside | None
    _gate: Gate = field(default_factory=Gate)

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for ``resume()``, or until ``is_over()``."""
        if self.aside is not None:
            self.aside.step_back()
        while not (is_over() or self._gate.acquire(TURN_CHECK)):
            pass

    def resume(self) -> None:
        if self.aside is None:
            self._gate.release()
        else:
            self.aside.resume(self._gate.release)


class Wakeup(Carrier):
    """What a task awaits, without blocking its event loop: its turn, or the end of its sleep."""

    lets_loop_run = True

    @abstractmethod
    def __await__(self) -> Generator[Any, None, None]: ...

    @abstractmethod
    def resume(self) -> None:
        """Let the task go on, if it still waits. Called in the thread of its event loop."""

    @abstractmethod
    def wake_elsewhere(self, is_over: Callable[[], bool]) -> None:
        """Let the task go on, called in another thread; cancel it if ``is_over()`` by then."""
