"""What runs the code of a strand, and holds it until its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..fakes.connections import MemoryLink
from ..fakes.gate import Gate
from ..values.limits import TURN_CHECK
from .event_loop import Wakeup


@dataclass(slots=True)
class StrandThread:
    """The thread of a strand. It carries a task of its event loop if that blocks the loop."""

    ident: int = 0
    """Its identifier; 0 without a thread."""
    starting: threading.Thread | None = None
    """The thread itself, until the code of the strand begins there."""
    gate: Gate = field(default_factory=Gate)
    real_waits: int = 0
    """Number of waits for threads of the fakes or other processes that are in progress."""

    def begin(self) -> None:
        """Note that the code of the strand begins in the current thread."""
        self.ident, self.starting = threading.get_ident(), None

    def resume(self) -> None:
        self.gate.release()


@dataclass(slots=True)
class RequestThread:
    """A thread of a fake that handles the request of a task, and waits for the turn of the task.

    If it is a thread aside, it handles the requests of a connection in memory (``link``): it lets the
    event loop go on before it waits, which blocks again while this thread has the turn.
    """

    link: MemoryLink | None
    _gate: Gate = field(default_factory=Gate)

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for ``resume()``, also one that has come before, or until ``is_over()``."""
        if self.link is not None:
            self.link.step_back()
        while not (is_over() or self._gate.acquire(TURN_CHECK)):
            pass

    def resume(self) -> None:
        if self.link is None:
            self._gate.release()
        else:
            self.link.resume_aside(self._gate.release)


Carrier: TypeAlias = StrandThread | RequestThread | Wakeup
"""Waits for the turn of a strand; ``resume()`` lets the code go on. A task awaits its ``Wakeup``."""
