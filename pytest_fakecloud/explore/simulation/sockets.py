"""Sockets of explored code: a strand that waits for an answer lets other strands run."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import sys
from collections.abc import Callable
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any

from .state import Part, RunState
from .strands import Strand
from .waits import LOOK, Waits
from .wires import PATIENCE, Wire, Wires

if TYPE_CHECKING:
    from .simulation import Simulation

_REQUESTS: dict[str, Callable[..., tuple[int, int]]] = {
    "recv": lambda size, flags=0: (size, flags),
    "recv_into": lambda buffer, nbytes=0, flags=0: (nbytes or memoryview(buffer).nbytes, flags),
}
"""The requested number of bytes and the flags of each method that reads, by its arguments."""


class SocketHooks(Part):
    """Called when explored code uses a socket that is connected to a fake."""

    def __init__(self, state: RunState, waits: Waits) -> None:
        super().__init__(state)
        self._waits = waits

    def sends(self, port: int, *, is_blocking: bool) -> None:
        """Called before the code sends to a fake from a local port.

        ``is_blocking`` tells whether the code will block its thread until the answer arrives.
        """
        connections = self._connections
        self._state.sources.note(port)
        strand = self._state.here()
        if strand is None:
            return
        if (self._turns.has_ended or strand.root.crashed) and _is_finalizer(sys._getframe(1)):
            raise ConnectionResetError("the process has ended")
        self._state.check_alive(strand)
        if strand.host.loop.running is None:
            connections.finish_calls(strand, but=port)
        else:
            # The fakes handle requests in the order in which the tasks send them.
            if not strand.host.loop.is_settled:
                connections.await_handling(strand.host)
            strand.host.loop.is_settled = False
            strand.turn.is_blocking = is_blocking
        if strand is not strand.host or strand.loop.running is None:
            connections.owners[port] = strand

    def sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread that is not explored sends, such as the loop of an ASGI application."""
        if self._record.stacks:
            with contextlib.suppress(OSError, IndexError):
                self._state.sources.note(sock.getsockname()[1])

    def reads(self, wire: Wire, timeout: float | None) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._state.here()
        if strand is None:
            return True
        # After the last bytes, the end of the connection may follow.
        strand.host.loop.is_settled = False
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
            # A strand that shares this connection cannot proceed without the turn.
            owner = self._connections.owners.get(wire.port, strand)
            if (owner is not strand and owner.state == "parked") or wire.is_quiet():
                return wire.is_readable(0)  # The answer may have arrived after the first check.
            wire.is_readable(0.01)
        return True

    def _wait_for_strands(self, wire: Wire, strand: Strand, timeout: float | None) -> bool:
        """Let other strands run until a fake has sent something; return False after the timeout."""

        def has_arrived() -> bool:
            self._world.wires.settle()
            return wire.is_readable(LOOK if wire.has_unread() else 0)

        until = None if timeout is None else self._world.now_us() + math.ceil(timeout * 1e6)
        self._waits.wait_for(strand, has_arrived, until, "answer")
        return wire.is_readable(0)


def _is_finalizer(frame: FrameType) -> bool:
    """Return whether a stack is inside ``__del__``, where exceptions are ignored."""
    return any(each.f_code.co_name == "__del__" for each, _ in walk_stack(frame))


class SocketPatches:
    """Replaces the methods of sockets, and counts the bytes of explored connections."""

    def __init__(self, wires: Wires, simulation: Callable[[], Simulation | None]) -> None:
        self._wires = wires
        self._simulation = simulation

    def methods(self) -> dict[str, Callable[..., Any]]:
        original = socket.socket
        methods: dict[str, Callable[..., Any]] = {
            "connect": self._connecting(original.connect),
            "shutdown": self._shutting_down(original.shutdown),
            "close": self._closing(original.close),
            "send": self._sending(original.send),
            "sendall": self._sending_all(original.sendall),
        }
        if hasattr(original, "sendmsg"):
            methods["sendmsg"] = self._sending(original.sendmsg)
        for name in _REQUESTS:
            methods[name] = self._reading(name, getattr(original, name))
        return methods

    def _connecting(self, original: Callable[..., None]) -> Callable[..., None]:
        def connect(sock: socket.socket, address: Any, /) -> None:
            simulation = self._simulation()
            is_fake = isinstance(address, tuple) and self._wires.mount_at(address[1]) is not None
            if simulation is None or not is_fake or not simulation.state.is_here():
                original(sock, address)
                return
            try:
                original(sock, address)
            except (BlockingIOError, InterruptedError):
                # Wait for the kernel, because the next strand must not depend on its speed.
                select.select([], [sock], [sock], PATIENCE)
                error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, f"Connect call failed {address}") from None
            self._wires.of(sock)

        return connect

    def _is_outside(self) -> bool:
        """Return whether this thread is not explored while a run is in progress."""
        simulation = self._simulation()
        return simulation is not None and not simulation.state.is_here()

    def _explored_wire(self, sock: socket.socket) -> Wire | None:
        """Return the connection to which explored code is about to send, or None."""
        simulation = self._simulation()
        if simulation is None:
            return None
        if not simulation.state.is_here():
            simulation.sockets.sends_elsewhere(sock)
            return None
        wire = self._wires.of(sock)
        if wire is not None:
            simulation.sockets.sends(wire.port, is_blocking=sock.gettimeout() != 0)
        return wire

    def _sending(self, original: Callable[..., int]) -> Callable[..., int]:
        def send(sock: socket.socket, *args: Any) -> int:
            wire = self._explored_wire(sock)
            sent = original(sock, *args)
            if wire is not None:
                wire.sent += sent
            return sent

        return send

    def _sending_all(self, original: Callable[..., None]) -> Callable[..., None]:
        def sendall(sock: socket.socket, data: Any, *args: Any) -> None:
            size = memoryview(data).nbytes
            wire = self._explored_wire(sock)
            if wire is not None:
                wire.sent += size
            answering = self._wires.answers(sock, size) if self._is_outside() else None
            try:
                original(sock, data, *args)
            finally:
                if answering is not None:
                    answering.is_answering = False
                    self._wires.progresses()

        return sendall

    def _reading(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        request, wires = _REQUESTS[name], self._wires

        def read(sock: socket.socket, *args: Any, **options: Any) -> Any:
            simulation = self._simulation()
            if simulation is None:
                return original(sock, *args, **options)
            if not simulation.state.is_here():
                # A fake's thread reads again after it has handled all earlier bytes.
                wires.progresses()
                return original(sock, *args, **options)
            wire = wires.of(sock)
            if wire is None:
                return original(sock, *args, **options)
            if not simulation.sockets.reads(wire, sock.gettimeout()):
                raise TimeoutError("timed out")
            try:
                found = original(sock, *args, **options)
            except ConnectionError:
                wire.is_at_end = True
                raise
            size = found if isinstance(found, int) else len(found)
            requested, flags = request(*args, **options)
            if not flags & socket.MSG_PEEK:
                wire.got += size
            wire.is_at_end = wire.is_at_end or (not size and requested > 0)
            return found

        return read

    def _closing(self, original: Callable[..., None]) -> Callable[..., None]:
        def close(sock: socket.socket) -> None:
            wire = self._wires.known(sock)
            original(sock)
            if wire is not None and sock.fileno() < 0:
                self._await_end(wire)
            else:
                self._wires.progresses()

        return close

    def _shutting_down(self, original: Callable[..., None]) -> Callable[..., None]:
        def shutdown(sock: socket.socket, how: int, /) -> None:
            wire = self._wires.known(sock)
            original(sock, how)
            if wire is not None and how != socket.SHUT_RD:
                self._await_end(wire)

        return shutdown

    def _await_end(self, wire: Wire) -> None:
        simulation = self._simulation()
        if simulation is not None and simulation.state.is_here():
            self._wires.wait_while(lambda: wire.is_served() and not wire.is_inside())
