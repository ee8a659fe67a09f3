"""Event loops of explored code, whose tasks are strands."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from ..footprint import READS_CLOCK
from ..runtime.strands import Strand
from .state import RunState, nothing

if TYPE_CHECKING:
    from ..runtime.loops import OwnLoop


class EventLoops:
    """Lets other strands run while an event loop of explored code waits."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._world = state.world
        self._record = state.record
        self._turns = state.turns
        self._connections = state.connections

    def on_start(self, loop: OwnLoop) -> None:
        """Called when an event loop starts in this thread. Turns its tasks into strands."""
        host = self._turns.here()
        if host is None or host.loop is loop:
            return
        host.loop = loop
        loop.strand = host
        if host.role != "task" and host.main_task is None:
            main = Strand(host.title, "task", nothing, parent=host, points=host.points)
            main.state = "running"
            self._state.add(main)
            host.main_task = main
            host.name = f"{host.title}:loop"
            for task in asyncio.all_tasks(loop):
                self._state.tasks[task] = main

    def on_end(self, loop: OwnLoop) -> None:
        """Called after an event loop has ended in this thread."""
        host = self._turns.here()
        if host is None or host.loop is not loop:
            return
        host.loop = None
        host.name = host.title
        if host.main_task is not None:
            host.points = host.main_task.points
            host.main_task = None
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
        sockets = [wire.fileno() for wire in self._connections.of_host(host)]
        if loop.has_sockets(sockets) and loop.has_soon():
            return True
        now = self._world.now_us()
        if timeout is not None and self._record.records:
            self._record.touch([READS_CLOCK])
        host.wake_us = None if timeout is None else now + math.ceil(timeout * 1e6)

        def arrived() -> bool:
            self._world.wires.settle()
            self._connections.await_answers(host)
            return loop.selector.has_events()

        host.ready = arrived
        host.place, host.why = "wake", "loop"
        host.points = host.main_task.points if host.main_task is not None else 0
        self._turns.idle(host)
        self._state.check_alive(host)
        host.is_settled = False
        return True

    def await_answers(self, loop: OwnLoop) -> None:
        """Wait, in wall-clock time, until the loop can read the answers to all requests of its tasks.

        Otherwise the order in which several answers arrive would influence the run. Requests that
        wait for the turn of their strand are skipped.
        """
        host = loop.strand
        if host is None or self._record.aside_depth or self._turns.here() is not host:
            return
        if host.is_settled:
            return
        self._connections.await_handling(host)
        self._connections.await_answers(host)
        host.is_settled = True

    def on_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        """Assign an inner task to the strand that created it, and note the line that created it."""
        creator = self._state.here()
        if is_inner and creator is not None and creator.role == "task":
            self._state.tasks[task] = creator
        self._connections.note_task(task)
