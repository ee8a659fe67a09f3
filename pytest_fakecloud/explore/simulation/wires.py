"""Connections over which explored code reaches the fakes."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..runtime.frames import Source, source_of
from ..runtime.strands import Strand

if TYPE_CHECKING:
    from ..runtime.wires import Wire, Wires


class Connections:
    """The connections of one run, by local port, with the strand and the source lines that use each.

    All waits are in wall-clock time, and end when ``is_over()`` returns True.
    """

    def __init__(self, wires: Wires, is_over: Callable[[], bool], *, stacks: bool) -> None:
        self._wires = wires
        self._is_over = is_over
        self._stacks = stacks
        self.owners: dict[int, Strand] = {}
        self.sources: dict[int, Source] = {}
        self._task_sources: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()

    def of_host(self, host: Strand) -> list[Wire]:
        """Return the connections of a strand with a thread, and of the tasks in that thread."""
        return self._of(lambda owner: owner.host is host)

    def cut(self, concerned: Callable[[Strand], bool]) -> None:
        """Close the connections of strands that have ended, so that the server notices their end."""
        for wire in self._of(concerned):
            wire.cut()

    def _of(self, concerned: Callable[[Strand], bool]) -> list[Wire]:
        return [
            wire
            for wire in self._wires.all()
            if (owner := self.owners.get(wire.port)) is not None and concerned(owner)
        ]

    def finish_calls(self, strand: Strand, but: int = 0) -> None:
        """Wait until the fakes have handled the requests whose answers a strand has not read.

        Does not wait for tasks, or for blocking commands, such as BLPOP. ``but`` is the port of a
        connection to ignore.
        """
        if strand.host.loop is not None:
            return
        own = [wire for wire in self._of(lambda owner: owner is strand) if wire.port != but]

        def is_handling() -> bool:
            is_blocking = strand.state == "waiting" and strand.why == "wait"
            is_alive = not (self._is_over() or strand.root.crashed)
            return is_alive and not is_blocking and any(wire.has_unhandled() for wire in own)

        self._wires.wait_while(is_handling)

    def await_handling(self, host: Strand) -> None:
        """Wait until the fakes have handled all requests of a thread, except those that wait for
        the turn of their strand.
        """
        wires = self.of_host(host)

        def is_handling(wire: Wire) -> bool:
            owner = self.owners[wire.port]
            if owner.state != "running" and owner.port == wire.port:
                return False
            if wire.is_answering and wire.is_readable(0):
                return False  # The fake may wait until the client reads.
            return wire.has_unhandled() or (wire.has_unsent() and not wire.is_inside())

        self._wires.wait_while(
            lambda: not self._is_over() and any(is_handling(wire) for wire in wires)
        )

    def await_answers(self, host: Strand) -> None:
        """Wait until a thread can read the bytes that the fakes have sent to it."""
        for wire in self.of_host(host):
            if wire.has_news():
                wire.is_readable()

    def note_source(self, port: int) -> None:
        """Note the lines that are about to send."""
        if not self._stacks:
            return
        source = self.source_here()
        # A loop can send the end of a request outside of a task.
        if source or asyncio._get_running_loop() is None or asyncio.current_task() is not None:
            self.sources[port] = source

    def note_task(self, task: asyncio.Task[Any]) -> None:
        """Note the lines that create a task."""
        if self._stacks:
            self._task_sources[task] = self.source_here()

    def source_here(self) -> Source:
        """Return the application's lines that lead here, or that created the current task."""
        source = source_of(sys._getframe())
        if not source and asyncio._get_running_loop() is not None:
            task = asyncio.current_task()
            source = () if task is None else self._task_sources.get(task, ())
        return source
