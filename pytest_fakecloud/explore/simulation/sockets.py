"""Sockets of explored code: a strand that waits for an answer lets other strands run."""

from __future__ import annotations

import contextlib
import math
import sys
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING

from ..runtime.strands import Strand
from .state import RunState
from .waits import LOOK, Waits

if TYPE_CHECKING:
    import socket

    from ..runtime.wires import Wire


class SocketHooks:
    """Called when explored code uses a socket that is connected to a fake."""

    def __init__(self, state: RunState, waits: Waits) -> None:
        self._state = state
        self._waits = waits
        self._world = state.world
        self._record = state.record
        self._turns = state.turns
        self._connections = state.connections

    def sends(self, port: int, *, is_blocking: bool) -> None:
        """Called before the code sends to a fake from a local port.

        ``is_blocking`` tells whether the code will block its thread until the answer arrives.
        """
        connections = self._connections
        connections.note_source(port)
        strand = self._state.here()
        if strand is None:
            return
        if (self._turns.has_ended or strand.root.crashed) and _is_finalizer(sys._getframe(1)):
            raise ConnectionResetError("the process has ended")
        self._state.check_alive(strand)
        if strand.host.loop is None:
            connections.finish_calls(strand, but=port)
        else:
            # The fakes handle requests in the order in which the tasks send them.
            if not strand.host.is_settled:
                connections.await_handling(strand.host)
            strand.host.is_settled = False
            strand.is_blocking = is_blocking
        if strand is not strand.host or strand.loop is None:
            connections.owners[port] = strand

    def sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread that is not explored sends, such as the loop of an ASGI application."""
        if self._record.stacks:
            with contextlib.suppress(OSError, IndexError):
                self._connections.note_source(sock.getsockname()[1])

    def reads(self, wire: Wire, timeout: float | None) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._state.here()
        if strand is None:
            return True
        # After the last bytes, the end of the connection may follow.
        strand.host.is_settled = False
        if timeout == 0:
            return True
        while not self._wait_for_fake(wire, strand):
            if not self._wait_for_strands(wire, strand, timeout):
                return False
        self._state.check_alive(strand)
        return True

    def _wait_for_fake(self, wire: Wire, strand: Strand) -> bool:
        """Wait, in wall-clock time, while the fake handles a call; return whether its answer can be
        read. It cannot if the call waits for another strand, or for an event.
        """
        while not wire.is_readable(0):
            self._state.check_alive(strand)
            # Another strand may share this connection, and its call cannot proceed while this
            # strand has the turn.
            owner = self._connections.owners.get(wire.port, strand)
            if (owner is not strand and owner.state == "parked") or wire.is_quiet():
                return wire.is_readable(0)  # The answer may have arrived after the first check.
            wire.is_readable(0.01)
        return True

    def _wait_for_strands(self, wire: Wire, strand: Strand, timeout: float | None) -> bool:
        """Let other strands run until a fake has sent something; return False when the timeout
        expires.
        """

        def has_arrived() -> bool:
            self._world.wires.settle()
            return wire.is_readable(LOOK if wire.has_unread() else 0)

        until = None if timeout is None else self._world.now_us() + math.ceil(timeout * 1e6)
        self._waits.wait_for(strand, has_arrived, until, "answer")
        return wire.is_readable(0)


def _is_finalizer(frame: FrameType) -> bool:
    """Return whether a stack is inside ``__del__``, where exceptions are ignored."""
    return any(each.f_code.co_name == "__del__" for each, _ in walk_stack(frame))
