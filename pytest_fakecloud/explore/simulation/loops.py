"""Event loops of explored code, whose tasks are strands."""

from __future__ import annotations

import asyncio
import math
import sys
from typing import TYPE_CHECKING, Any

from ...core.timeparse import monotonic
from ..footprint import READS_CLOCK
from ..runtime.frames import source_of
from ..runtime.strands import Strand, pause
from .state import nothing
from .waits import LOOK, PATIENCE
from .wires import Connections

if TYPE_CHECKING:
    from ..runtime.loops import OwnLoop


class EventLoops(Connections):
    """Lets other strands run while an event loop of explored code waits."""

    def enters_loop(self, loop: OwnLoop) -> None:
        """Called when an event loop starts in this thread. Turns its tasks into strands."""
        host = self._turns.here()
        if host is None or host.loop is loop:
            return
        host.loop = loop
        loop.strand = host
        if host.role != "task" and not host.name.endswith(":loop"):
            main = Strand(host.title, "task", nothing, parent=host, points=host.points)
            main.state = "running"
            self._add(main)
            host.main = main
            host.name = f"{host.title}:loop"
            for task in asyncio.all_tasks(loop):
                self._tasks[task] = main

    def leaves_loop(self, loop: OwnLoop) -> None:
        """Called after an event loop has ended in this thread."""
        host = self._turns.here()
        if host is None or host.loop is not loop:
            return
        host.loop = None
        host.name = host.title
        if host.main is not None:
            host.points = host.main.points
        for strand in self._strands:
            if strand.role == "task" and strand.host is host:
                strand.state = "ended"
                strand.go.release()

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits."""
        host = loop.strand
        if host is None or self._aside or self._turns.here() is not host:
            return False
        self._check_alive(host)
        if self._world.clock.driving:
            return True
        if loop.selector.has_events():
            # Do not wait: the next strand must not depend on the time at which an answer arrives.
            return True
        if loop.has_sockets() and not self._wires_of(host) and loop.has_soon():
            return True
        now = self._world.now_us()
        if timeout is not None and self.records:
            self.touch([READS_CLOCK])
        host.wake_us = None if timeout is None else now + math.ceil(timeout * 1e6)

        def arrived() -> bool:
            self._world.wires.settle()
            is_coming = any(
                wire.has_unread() and loop.selector.reads(wire.fileno())
                for wire in self._wires_of(host)
            )
            return loop.selector.has_events(LOOK if is_coming else 0)

        host.ready = arrived
        host.place, host.why = "wake", "loop"
        host.points = host.main.points if host.main is not None else 0
        self._turns.idle(host)
        self._check_alive(host)
        return True

    def settles(self, loop: OwnLoop) -> None:
        """Wait, in wall-clock time, until the fakes have answered all requests of the loop's tasks.

        Otherwise the order in which several answers arrive would influence the run.
        """
        host = loop.strand
        if host is None or self._aside or self._turns.here() is not host:
            return
        deadline = monotonic() + PATIENCE
        while self._has_answers_to_come(host) and monotonic() < deadline:
            self._check_alive(host)
            pause(0.0001)

    def _has_answers_to_come(self, host: Strand) -> bool:
        """Return whether a fake is working on a request of the loop's tasks."""
        return any(
            self._owners[wire.port].state == "running"
            and (wire.has_unhandled() or wire.has_unsent())
            for wire in self._wires_of(host)
        )

    def creates_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        """Assign an inner task to the strand that created it."""
        creator = self._here()
        if is_inner and creator is not None and creator.role == "task":
            self._tasks[task] = creator
            if self._stacks:
                self._inner_sources[task] = source_of(sys._getframe())
