"""Connections over which explored code reaches the fakes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING

from ..runtime.frames import Source, source_of
from ..runtime.strands import Strand
from .waits import LOOK, Waits

if TYPE_CHECKING:
    import socket

    from ..runtime.wires import Wire


class Connections(Waits):
    """Assigns connections to strands, and lets other strands run while one waits for an answer."""

    def _cut_wires(self, concerned: Callable[[Strand], bool]) -> None:
        """Close the connections of strands that have ended, so that the server notices their end."""
        for wire in self._world.wires.all():
            owner = self._owners.get(wire.port)
            if owner is not None and concerned(owner):
                wire.cut()

    def _wires_of(self, host: Strand) -> list[Wire]:
        return [
            w
            for w in self._world.wires.all()
            if (owner := self._owners.get(w.port)) is not None and owner.host is host
        ]

    def _await_handling(self, wires: Iterable[Wire]) -> None:
        """Wait, in wall-clock time, until the fakes have handled all bytes of connections, except
        requests that wait for the turn of their strand.
        """

        def is_handling(wire: Wire) -> bool:
            owner = self._owners[wire.port]
            if owner.state != "running" and owner.port == wire.port:
                return False
            if wire.is_answering and wire.is_readable(0):
                return False  # The fake may wait until the client reads.
            return wire.has_unhandled() or (wire.has_unsent() and not wire.is_inside())

        self._world.wires.wait_while(
            lambda: not self._turns.over and any(is_handling(wire) for wire in wires)
        )

    def sends(self, port: int, *, is_blocking: bool) -> None:
        """Called before the code sends to a fake from a local port.

        ``is_blocking`` tells whether the code will block its thread until the answer arrives.
        """
        self._note_source(port)
        strand = self._here()
        if strand is not None:
            if (self._turns.over or strand.is_over) and _is_finalizer(sys._getframe(1)):
                raise ConnectionResetError("the process has ended")
            self._check_alive(strand)
            if strand.host.loop is None:
                self._finish_calls(strand, but=port)
            else:
                # The fakes handle requests in the order in which the tasks send them.
                if not strand.host.is_settled:
                    self._await_handling(self._wires_of(strand.host))
                strand.host.is_settled = False
                strand.is_blocking = is_blocking
            if strand is not strand.host or strand.loop is None:
                self._owners[port] = strand

    def sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread that is not explored sends, such as the loop of an ASGI application."""
        if self._stacks:
            with contextlib.suppress(OSError, IndexError):
                self._note_source(sock.getsockname()[1])

    def _note_source(self, port: int) -> None:
        if not self._stacks:
            return
        source = self._source_here()
        # A loop can send the end of a request outside of a task.
        if source or asyncio._get_running_loop() is None or asyncio.current_task() is not None:
            self._sources[port] = source

    def _source_here(self) -> Source:
        """Return the application's lines that lead here, or that created the current task."""
        source = source_of(sys._getframe())
        if not source and asyncio._get_running_loop() is not None:
            task = asyncio.current_task()
            source = () if task is None else self._task_sources.get(task, ())
        return source

    def reads(self, wire: Wire, timeout: float | None) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._here()
        if strand is None:
            return True
        # After the last bytes, the end of the connection may follow.
        strand.host.is_settled = False
        if timeout == 0:
            return True
        while not wire.is_readable(0):
            self._check_alive(strand)
            owner = self._owners.get(wire.port, strand)
            # Another strand may share this connection, and its call cannot proceed while this
            # strand has the turn.
            is_other_waiting = owner is not strand and owner.state == "parked"
            if not is_other_waiting and not wire.is_quiet():
                wire.is_readable(0.01)
                continue
            if wire.is_readable(0):
                break
            now = self._world.now_us()
            until = None if timeout is None else now + math.ceil(timeout * 1e6)

            def arrived() -> bool:
                self._world.wires.settle()
                return wire.is_readable(LOOK if wire.has_unread() else 0)

            self.wait_for(strand, arrived, until, "push")
            if not wire.is_readable(0):
                return False
        self._check_alive(strand)
        return True


def _is_finalizer(frame: FrameType | None) -> bool:
    """Return whether a stack is inside ``__del__``, where exceptions are ignored."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
