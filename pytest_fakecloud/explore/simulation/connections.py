"""Connections of explored code to the fakes, with counts of the bytes in transit."""

from __future__ import annotations

import select
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...core.timers import monotonic
from ...http.hub import Mount
from ...http.server import Connection
from .strands import CHECK, Gate, Strand

PATIENCE = 10.0
"""Wall-clock seconds to wait for a fake, which normally needs less than a millisecond."""
_LARGE = 64 * 1024
"""Size in bytes above which a fake may have to wait until the client reads."""


class ClientConnection:
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
        self._server_end: Connection | None = None
        server_end = self.server_end()
        self._received_before = 0 if server_end is None else server_end.received

    def server_end(self) -> Connection | None:
        """Return the fake's end of the connection, or None if the fake has not accepted it yet."""
        if self._server_end is None:
            live = list(self.mount.live)
            self._server_end = next((one for one in live if one.address[1] == self.port), None)
        return self._server_end

    def is_quiet(self) -> bool:
        """Return whether the fake has handled all bytes, and the client has read all answers."""
        if self.is_at_end or self.fileno() < 0:
            return True
        server_end = self.server_end()
        if server_end is None:
            return self.sent == 0
        if server_end.ended or server_end not in self.mount.live:
            return False  # The client still has to read the end of the connection.
        return not (self.has_unhandled() or self.is_sending() or self.has_unread())

    def has_unhandled(self) -> bool:
        """Return whether the fake is still working on what the client has sent."""
        server_end = self.server_end()
        if server_end is None:
            # If the socket is readable, the fake has already closed its end.
            return self.sent > 0 and not self.is_at_end and not self.is_readable(0)
        if server_end.ended or not self.is_served():
            return False
        if self.fileno() < 0:
            return True
        return server_end.inside or server_end.handled - self._received_before < self.sent

    def is_served(self) -> bool:
        return self.server_end() in self.mount.live

    def is_sending(self) -> bool:
        """Return whether the fake, which executes no command, still has messages to send."""
        server_end = self.server_end()
        if server_end is None or server_end.ended or server_end.unsent is None:
            return False
        return server_end.unsent() and not server_end.inside

    def has_unread(self) -> bool:
        """Return whether the fake has sent bytes that the client can still read."""
        return self.got < self.answered and not self.is_at_end and self.fileno() >= 0

    def has_news(self) -> bool:
        """Return whether the client can still read bytes, or the end of the connection."""
        server_end = self._server_end
        has_ended = server_end is not None and (server_end.ended or not self.is_served())
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


class Connections:
    """The connections of one run to the fakes, with the strand that uses each, by local port."""

    def __init__(self, handles: Sequence[Any], is_over: Callable[[], bool]) -> None:
        self._handles = handles
        self._is_over = is_over
        self.owners: dict[int, Strand] = {}
        self._by_host: dict[Strand, tuple[int, list[ClientConnection]]] = {}
        """The connections of each thread, as of a number of changes."""
        self._changes = 0
        self.by_socket: weakref.WeakKeyDictionary[socket.socket, ClientConnection | None] = (
            weakref.WeakKeyDictionary()
        )
        """The connections of sockets that explored code has used, which may be closed."""
        # Use no lock. A finalizer can send at any time, also in the middle of these methods, so they
        # only use operations that other code cannot interrupt.
        self._by_port: dict[int, ClientConnection] = {}
        self._progress = Gate()

    def _all(self) -> list[ClientConnection]:
        connections = list(self._by_port.values())
        return [one for one in connections if one._sock() is not None or one.is_served()]

    def settle(self) -> None:
        """Wait, in wall-clock time, until no fake has anything left to send."""
        connections = self._all()
        self.wait_while(lambda: any(one.is_sending() for one in connections))

    def wait_while(self, is_busy: Callable[[], bool]) -> bool:
        """Wait, in wall-clock time, while the fakes are busy; return False if they remain busy."""
        deadline = monotonic() + PATIENCE
        while is_busy():
            if monotonic() > deadline:
                return False
            # A fake's thread may change the condition after its last use of a socket.
            self._progress.acquire(CHECK)
        return True

    def progresses(self) -> None:
        self._progress.release()

    def of(self, sock: socket.socket) -> ClientConnection | None:
        """Return the connection of a socket, or None if the socket is not connected to a fake."""
        if sock in self.by_socket:
            return self.by_socket[sock]
        connection = None
        try:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                peer, own = sock.getpeername(), sock.getsockname()
                mount = self.mount_at(peer[1])
                if mount is not None:
                    connection = ClientConnection(sock, own[1], mount)
        except OSError:
            return None
        self.by_socket[sock] = connection
        if connection is not None:
            self._by_port[connection.port] = connection
            self._changes += 1
        return connection

    def use(self, port: int, strand: Strand) -> None:
        """Record that a strand uses the connection with a local port."""
        if self.owners.get(port) is not strand:
            self.owners[port] = strand
            self._changes += 1

    def answers(self, sock: socket.socket, size: int) -> ClientConnection | None:
        """Count the bytes that a fake is about to send, and return the connection."""
        if not self._by_port:
            return None
        try:
            connection = self._by_port.get(sock.getpeername()[1])
        except (OSError, IndexError):
            return None
        if connection is None or getattr(connection.server_end(), "sock", None) is not sock:
            return None
        connection.answered += size
        connection.is_answering = size > _LARGE
        return connection

    def mount_at(self, port: int) -> Any:
        """Return the mount of the fake that listens on a port without TLS, or None."""
        mounts = (mount for handle in self._handles for mount in handle._mounts)
        return next((one for one in mounts if one.port == port and one.tls is None), None)

    # -- the connections of a strand

    def of_host(self, host: Strand) -> list[ClientConnection]:
        """Return the connections of a strand with a thread, and of the tasks in that thread."""
        changes, found = self._by_host.get(host, (-1, []))
        if changes != self._changes:
            changes, found = self._changes, self._of(lambda owner: owner.host is host)
            self._by_host[host] = changes, found
        return found

    def cut(self, concerned: Callable[[Strand], bool]) -> None:
        """Close the connections of strands that have ended, as if their clients had died."""
        for connection in self._of(concerned):
            if (server_end := connection.server_end()) is not None:
                server_end.end()

    def _of(self, concerned: Callable[[Strand], bool]) -> list[ClientConnection]:
        return [
            one
            for one in self._all()
            if (owner := self.owners.get(one.port)) is not None and concerned(owner)
        ]

    def finish_calls(self, strand: Strand, but: int = 0) -> None:
        """Wait until the fakes have handled what a strand has sent, except on the port ``but``."""
        if strand.host.loop.running is not None:
            return
        own = [
            one
            for one in self.of_host(strand.host)
            if one.port != but and self.owners[one.port] is strand
        ]

        def is_handling() -> bool:
            is_alive = not (self._is_over() or strand.root.crashed)
            is_blocking = strand.is_waiting_for("wait")
            return is_alive and not is_blocking and any(one.has_unhandled() for one in own)

        self.wait_while(is_handling)

    def await_handling(self, host: Strand) -> None:
        """Wait until the fakes have handled a thread's requests, if their strands have the turn."""
        connections = self.of_host(host)

        def is_handling(connection: ClientConnection) -> bool:
            owner = self.owners[connection.port]
            if owner.state != "running" and owner.turn.port == connection.port:
                return False
            if connection.is_answering and connection.is_readable(0):
                return False  # The fake may wait until the client reads.
            return connection.has_unhandled() or connection.is_sending()

        self.wait_while(lambda: not self._is_over() and any(map(is_handling, connections)))

    def await_answers(self, host: Strand) -> None:
        """Wait until a thread can read the bytes that the fakes have sent to it."""
        for connection in self.of_host(host):
            if connection.has_news():
                connection.is_readable()
