"""Connections of explored code to the fakes, with counts of the bytes in transit."""

from __future__ import annotations

import select
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...core.timeparse import monotonic
from ...http.connection import Connection
from ...http.mount import Mount
from .strands import Gate, Strand

PATIENCE = 10.0
"""Wall-clock seconds to wait for a fake, which normally needs less than a millisecond."""
_CHECK = 0.001
"""Wall-clock seconds after which a waiting thread checks its condition again, because a fake's
thread may have changed it after its last use of a socket.
"""
_LARGE = 64 * 1024
"""Size in bytes above which a fake may have to wait until the client reads."""


class Wire:
    """One connection to a fake, seen from the client, with the bytes in both directions.

    ``sent`` and ``got`` count the bytes that the client has sent and read, ``answered`` those that
    the fake has sent. The counts show whether an answer is on its way, however slow the machine is.
    """

    def __init__(self, sock: socket.socket, port: int, mount: Mount) -> None:
        self._sock = weakref.ref(sock)
        self.port = port
        self.mount = mount
        self.sent = self.got = self.answered = 0
        self.is_at_end = False
        self.is_answering = False
        """Whether the fake is sending an answer that may not fit into the socket's buffers."""
        self._connection: Connection | None = None
        connection = self.connection()
        self._received_before = 0 if connection is None else connection.received

    def connection(self) -> Connection | None:
        """Return the fake's end of the connection, or None if the fake has not accepted it yet."""
        if self._connection is None:
            for each in list(self.mount._live):
                if each.address[1] == self.port:
                    self._connection = each
        return self._connection

    def has_client(self) -> bool:
        return self._sock() is not None

    def cut(self) -> None:
        """End the connection, as if the client had died."""
        connection = self.connection()
        if connection is not None:
            connection.end()

    def is_quiet(self) -> bool:
        """Return whether the fake has handled all bytes, and the client has read all answers."""
        if self.is_at_end or self.fileno() < 0:
            return True
        connection = self.connection()
        if connection is None:
            return self.sent == 0
        if connection.ended or connection not in self.mount._live:
            return False  # The client still has to read the end of the connection.
        return not (self.has_unhandled() or self.is_sending() or self.has_unread())

    def has_unhandled(self) -> bool:
        """Return whether the fake is still working on what the client has sent."""
        connection = self.connection()
        if connection is None:
            # If the socket is readable, the fake has already closed its end.
            return self.sent > 0 and not self.is_at_end and not self.is_readable(0)
        if connection.ended or not self.is_served():
            return False
        if self.fileno() < 0:
            return True
        return connection.inside or connection.handled - self._received_before < self.sent

    def is_served(self) -> bool:
        return self.connection() in self.mount._live

    def is_inside(self) -> bool:
        """Return whether the fake is executing commands of this connection."""
        connection = self.connection()
        return connection is not None and connection.inside

    def is_sending(self) -> bool:
        """Return whether the fake, which executes no command, still has messages to send."""
        connection = self.connection()
        if connection is None or connection.ended or connection.unsent is None:
            return False
        return connection.unsent() and not connection.inside

    def has_unread(self) -> bool:
        """Return whether the fake has sent bytes that the client can still read."""
        return self.got < self.answered and not self.is_at_end and self.fileno() >= 0

    def has_news(self) -> bool:
        """Return whether the client can still read bytes, or the end of the connection."""
        connection = self._connection
        has_ended = connection is not None and (connection.ended or not self.is_served())
        return (has_ended or self.got < self.answered) and not self.is_at_end and self.fileno() >= 0

    def is_readable(self, seconds: float = PATIENCE) -> bool:
        """Wait, in wall-clock time, until the client's socket is readable."""
        sock = self._sock()
        # If another thread has closed the socket, let the read report it.
        return sock is None or sock.fileno() < 0 or bool(select.select([sock], [], [], seconds)[0])

    def fileno(self) -> int:
        """Return the client's file descriptor, or -1 if the client has closed the connection."""
        sock = self._sock()
        return -1 if sock is None else sock.fileno()


class Wires:
    """All connections of explored code to fakes."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles
        self._by_socket: weakref.WeakKeyDictionary[socket.socket, Wire | None] = (
            weakref.WeakKeyDictionary()
        )
        # Use no lock. A finalizer can send at any time, also in the middle of these methods, so they
        # only use operations that other code cannot interrupt.
        self._by_port: dict[int, Wire] = {}
        self._progress = Gate()

    def forget(self) -> None:
        self._by_socket = weakref.WeakKeyDictionary()
        self._by_port = {}

    def all(self) -> list[Wire]:
        return [w for w in list(self._by_port.values()) if w.has_client() or w.is_served()]

    def settle(self) -> None:
        """Wait, in wall-clock time, until no fake has anything left to send.

        A connection whose command waits for its strand's turn sends nothing before that turn.
        """
        wires = self.all()
        self.wait_while(lambda: any(wire.is_sending() for wire in wires))

    def wait_while(self, is_busy: Callable[[], bool]) -> bool:
        """Wait, in wall-clock time, while the fakes are busy; return False if they remain busy."""
        deadline = monotonic() + PATIENCE
        while is_busy():
            if monotonic() > deadline:
                return False
            self._progress.acquire(_CHECK)
        return True

    def progresses(self) -> None:
        """Make ``wait_while()`` check again. Called by the fakes' threads."""
        self._progress.release()

    def of(self, sock: socket.socket) -> Wire | None:
        """Return the connection of a socket, or None if the socket is not connected to a fake."""
        if sock in self._by_socket:
            return self._by_socket[sock]
        wire = None
        try:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                peer, own = sock.getpeername(), sock.getsockname()
                mount = self.mount_at(peer[1])
                if mount is not None:
                    wire = Wire(sock, own[1], mount)
        except OSError:
            return None
        self._by_socket[sock] = wire
        if wire is not None:
            self._by_port[wire.port] = wire
        return wire

    def answers(self, sock: socket.socket, size: int) -> Wire | None:
        """Count the bytes that a fake is about to send, and return the connection."""
        if not self._by_port:
            return None
        try:
            wire = self._by_port.get(sock.getpeername()[1])
        except (OSError, IndexError):
            return None
        if wire is None or getattr(wire.connection(), "sock", None) is not sock:
            return None
        wire.answered += size
        wire.is_answering = size > _LARGE
        return wire

    def known(self, sock: socket.socket) -> Wire | None:
        """Return the connection of a socket that explored code has used, which may be closed."""
        return self._by_socket.get(sock)

    def mount_at(self, port: int) -> Any:
        """Return the mount of the fake that listens on a port without TLS, or None."""
        for handle in self._handles:
            opened: Any = getattr(handle, "_port", None)
            for mount in (handle._mount, getattr(opened, "mount", None)):
                if mount is not None and mount.port == port and mount.tls is None:
                    return mount
        return None


class Connections:
    """The connections of one run. ``owners`` contains the strand that uses each, by local port.

    All waits are in wall-clock time, and end when ``is_over()`` returns True.
    """

    def __init__(self, wires: Wires, is_over: Callable[[], bool]) -> None:
        self._wires = wires
        self._is_over = is_over
        self.owners: dict[int, Strand] = {}

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

        Ignores tasks, blocking commands such as BLPOP, and the connection with the port ``but``.
        """
        if strand.host.loop.running is not None:
            return
        own = [wire for wire in self._of(lambda owner: owner is strand) if wire.port != but]

        def is_handling() -> bool:
            is_alive = not (self._is_over() or strand.root.crashed)
            is_blocking = strand.is_waiting_for("wait")
            return is_alive and not is_blocking and any(wire.has_unhandled() for wire in own)

        self._wires.wait_while(is_handling)

    def await_handling(self, host: Strand) -> None:
        """Wait until the fakes have handled a thread's requests, if their strands have the turn."""
        wires = self.of_host(host)

        def is_handling(wire: Wire) -> bool:
            owner = self.owners[wire.port]
            if owner.state != "running" and owner.turn.port == wire.port:
                return False
            if wire.is_answering and wire.is_readable(0):
                return False  # The fake may wait until the client reads.
            return wire.has_unhandled() or wire.is_sending()

        self._wires.wait_while(
            lambda: not self._is_over() and any(is_handling(wire) for wire in wires)
        )

    def await_answers(self, host: Strand) -> None:
        """Wait until a thread can read the bytes that the fakes have sent to it."""
        for wire in self.of_host(host):
            if wire.has_news():
                wire.is_readable()
