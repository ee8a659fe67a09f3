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

from .clock import LOOK, Waits
from .connections import PATIENCE, ClientConnection, Connections
from .state import Part, RunState
from .strands import Strand

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

    def reads(self, connection: ClientConnection, timeout: float | None) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._state.here()
        if strand is None:
            return True
        # After the last bytes, the end of the connection may follow.
        strand.host.loop.is_settled = False
        if timeout == 0:
            return True
        while not self._wait_for_fake(connection, strand):
            if not self._wait_for_strands(connection, strand, timeout):
                return False
        self._state.check_alive(strand)
        return True

    def _wait_for_fake(self, connection: ClientConnection, strand: Strand) -> bool:
        """Wait, in wall-clock time, while the fake handles a call; return whether its answer can be
        read. It cannot if the call waits for another strand, or for an event.
        """
        while not connection.is_readable(0):
            self._state.check_alive(strand)
            # A strand that shares this connection cannot proceed without the turn.
            owner = self._connections.owners.get(connection.port, strand)
            if (owner is not strand and owner.state == "parked") or connection.is_quiet():
                # The answer may have arrived after the first check.
                return connection.is_readable(0)
            connection.is_readable(0.01)
        return True

    def _wait_for_strands(
        self, connection: ClientConnection, strand: Strand, timeout: float | None
    ) -> bool:
        """Let other strands run until a fake has sent something; return False after the timeout."""

        def has_arrived() -> bool:
            self._world.connections.settle()
            return connection.is_readable(LOOK if connection.has_unread() else 0)

        until = None if timeout is None else self._world.now_us() + math.ceil(timeout * 1e6)
        self._waits.wait_for(strand, has_arrived, until, "answer")
        return connection.is_readable(0)


def _is_finalizer(frame: FrameType) -> bool:
    """Return whether a stack is inside ``__del__``, where exceptions are ignored."""
    return any(each.f_code.co_name == "__del__" for each, _ in walk_stack(frame))


class SocketPatches:
    """Replaces the methods of sockets, and counts the bytes of explored connections."""

    def __init__(
        self, connections: Connections, simulation: Callable[[], Simulation | None]
    ) -> None:
        self._connections = connections
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
            mount = self._connections.mount_at(address[1]) if isinstance(address, tuple) else None
            if simulation is None or mount is None or not simulation.state.is_here():
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
            self._connections.of(sock)

        return connect

    def _is_outside(self) -> bool:
        """Return whether this thread is not explored while a run is in progress."""
        simulation = self._simulation()
        return simulation is not None and not simulation.state.is_here()

    def _explored_connection(self, sock: socket.socket) -> ClientConnection | None:
        """Return the connection to which explored code is about to send, or None."""
        simulation = self._simulation()
        if simulation is None:
            return None
        if not simulation.state.is_here():
            simulation.sockets.sends_elsewhere(sock)
            return None
        connection = self._connections.of(sock)
        if connection is not None:
            simulation.sockets.sends(connection.port, is_blocking=sock.gettimeout() != 0)
        return connection

    def _sending(self, original: Callable[..., int]) -> Callable[..., int]:
        def send(sock: socket.socket, *args: Any) -> int:
            connection = self._explored_connection(sock)
            sent = original(sock, *args)
            if connection is not None:
                connection.sent += sent
            return sent

        return send

    def _sending_all(self, original: Callable[..., None]) -> Callable[..., None]:
        def sendall(sock: socket.socket, data: Any, *args: Any) -> None:
            size = memoryview(data).nbytes
            connection = self._explored_connection(sock)
            if connection is not None:
                connection.sent += size
            answering = self._connections.answers(sock, size) if self._is_outside() else None
            try:
                original(sock, data, *args)
            finally:
                if answering is not None:
                    answering.is_answering = False
                    self._connections.progresses()

        return sendall

    def _reading(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        request, connections = _REQUESTS[name], self._connections

        def read(sock: socket.socket, *args: Any, **options: Any) -> Any:
            simulation = self._simulation()
            if simulation is None:
                return original(sock, *args, **options)
            if not simulation.state.is_here():
                # A fake's thread reads again after it has handled all earlier bytes.
                connections.progresses()
                return original(sock, *args, **options)
            connection = connections.of(sock)
            if connection is None:
                return original(sock, *args, **options)
            if not simulation.sockets.reads(connection, sock.gettimeout()):
                raise TimeoutError("timed out")
            try:
                found = original(sock, *args, **options)
            except ConnectionError:
                connection.is_at_end = True
                raise
            size = found if isinstance(found, int) else len(found)
            requested, flags = request(*args, **options)
            if not flags & socket.MSG_PEEK:
                connection.got += size
            connection.is_at_end = connection.is_at_end or (not size and requested > 0)
            return found

        return read

    def _closing(self, original: Callable[..., None]) -> Callable[..., None]:
        def close(sock: socket.socket) -> None:
            connection = self._connections.known(sock)
            original(sock)
            if connection is not None and sock.fileno() < 0:
                self._await_end(connection)
            else:
                self._connections.progresses()

        return close

    def _shutting_down(self, original: Callable[..., None]) -> Callable[..., None]:
        def shutdown(sock: socket.socket, how: int, /) -> None:
            connection = self._connections.known(sock)
            original(sock, how)
            if connection is not None and how != socket.SHUT_RD:
                self._await_end(connection)

        return shutdown

    def _await_end(self, connection: ClientConnection) -> None:
        simulation = self._simulation()
        if simulation is not None and simulation.state.is_here():
            self._connections.wait_while(
                lambda: connection.is_served() and not connection.is_inside()
            )
