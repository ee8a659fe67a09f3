"""Connections over which explored code reaches the fakes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from ..runtime.frames import source_of
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

    def sends(self, port: int) -> None:
        """Called before the code sends to a fake from a local port."""
        self._note_source(port)
        strand = self._here()
        if strand is not None:
            if (self._turns.over or strand.is_over) and _is_finalizer(sys._getframe(1)):
                raise ConnectionResetError("the process has ended")
            self._check_alive(strand)
            self._finish_calls(strand, but=port)
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
        source = source_of(sys._getframe())
        if not source and self._turns.here() is not None:
            with contextlib.suppress(RuntimeError):
                source = self._inner_sources.get(asyncio.current_task(), ())
        if source:
            self._sources[port] = source

    def reads(
        self,
        is_readable: Callable[[float], bool],
        wire: Wire,
        timeout: float | None,
    ) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._here()
        if strand is None or strand.host.loop is not None:
            return True
        while not is_readable(0):
            self._check_alive(strand)
            owner = self._owners.get(wire.port, strand)
            # Another strand may share this connection, and its call cannot proceed while this
            # strand has the turn.
            is_other_waiting = owner is not strand and owner.state == "parked"
            if not is_other_waiting and not wire.is_quiet():
                is_readable(0.01)
                continue
            if is_readable(0):
                break
            now = self._world.now_us()
            until = None if timeout is None else now + math.ceil(timeout * 1e6)

            def arrived() -> bool:
                self._world.wires.settle()
                return is_readable(LOOK if wire.has_unread() else 0)

            self.wait_for(strand, arrived, until, "push")
            if not is_readable(0):
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
