"""Sockets between explored code and the fakes, with counts of the bytes in transit."""

from __future__ import annotations

import select
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.timeparse import monotonic
from .strands import pause

if TYPE_CHECKING:
    from ..simulation.scheduler import Simulation

_PATIENCE = 5.0
"""Wall-clock seconds to wait for a fake to finish sending."""


class Wire:
    """One connection to a fake, seen from the client, with the bytes in both directions.

    ``sent`` and ``got`` count the bytes that the client has sent and read, ``answered`` those that
    the fake has sent. The counts show whether an answer is on its way, however slow the machine is.
    """

    def __init__(self, sock: socket.socket, port: int, mount: Any) -> None:
        self._sock = weakref.ref(sock)
        self.port = port
        self.mount = mount
        self.sent = self.got = self.answered = 0
        self.is_over = False
        self._base: int | None = None
        self._connection: Any = None
        connection = self.connection()
        if connection is not None:
            self._base = connection.received

    def connection(self) -> Any:
        """Return the fake's end of the connection, or None if the fake has not accepted it yet."""
        if self._connection is None:
            for each in list(self.mount._live):
                if each.address[1] == self.port:
                    self._connection = each
        return self._connection

    def is_open(self) -> bool:
        """Return whether the client still has the socket."""
        return self._sock() is not None

    def cut(self) -> None:
        """End the connection, as if the client had died."""
        connection = self.connection()
        if connection is not None:
            connection.end()

    def is_quiet(self) -> bool:
        """Return whether the fake has handled all bytes, and the client has read all answers."""
        if self.is_over or self.fileno() < 0:
            return True
        connection = self.connection()
        if connection is None:
            return self.sent == 0
        if connection.ended or connection not in self.mount._live:
            return False  # The client still has to read the end of the connection.
        return not (self.has_unhandled() or self.has_unsent() or self.has_unread())

    def has_unhandled(self) -> bool:
        """Return whether the fake is still working on what the client has sent."""
        connection = self.connection()
        if connection is None:
            return self.sent > 0 and not self.is_over
        if connection.ended or connection not in self.mount._live:
            return False
        return connection.handled - (self._base or 0) < self.sent or bool(connection.inside)

    def await_end(self) -> None:
        """Wait, in wall-clock time, until the fake has noticed that the client closed the
        connection.
        """
        connection = self.connection()
        deadline = monotonic() + _PATIENCE
        while connection in self.mount._live and not connection.inside and monotonic() < deadline:
            pause(0.0001)

    def has_unsent(self) -> bool:
        """Return whether the fake still has messages to send."""
        connection = self.connection()
        if connection is None or connection.ended or connection.unsent is None:
            return False
        return bool(connection.unsent())

    def is_inside(self) -> bool:
        """Return whether the fake is executing commands of this connection."""
        connection = self.connection()
        return connection is not None and bool(connection.inside)

    def has_unread(self) -> bool:
        """Return whether the fake has sent bytes that the client can still read."""
        return self.got < self.answered and not self.is_over and self.fileno() >= 0

    def fileno(self) -> int:
        """Return the client's file descriptor, or -1 if the client has closed the connection."""
        sock = self._sock()
        return -1 if sock is None else sock.fileno()


class Wires:
    """All connections of explored code. A context manager that patches sockets."""

    def __init__(self, handles: Sequence[Any], stage: Callable[[], Simulation | None]) -> None:
        self._handles = handles
        self._stage = stage
        self._of: weakref.WeakKeyDictionary[socket.socket, Wire | None] = (
            weakref.WeakKeyDictionary()
        )
        # Use no lock. A finalizer can send at any time, also in the middle of these methods, so they
        # only use operations that other code cannot interrupt.
        self._by_port: dict[int, Wire] = {}
        self._real_close = socket.socket.close

    def __enter__(self) -> Wires:
        self._patch()
        return self

    def __exit__(self, *error: object) -> None:
        for name in ("send", "sendall", "sendmsg", "recv", "recv_into", "shutdown"):
            vars_ = vars(socket.socket)
            if name in vars_ and getattr(vars_[name], "_is_wire", False):
                delattr(socket.socket, name)
        socket.socket.close = self._real_close  # type: ignore[method-assign]

    def forget(self) -> None:
        """Forget the connections of earlier runs."""
        self._of = weakref.WeakKeyDictionary()
        self._by_port = {}

    def all(self) -> list[Wire]:
        """Return the connections that this run has used."""
        return [wire for wire in list(self._by_port.values()) if wire.is_open()]

    def settle(self) -> None:
        """Wait, in wall-clock time, until no fake has anything left to send.

        Connections whose command waits for its strand's turn are skipped, because they send only
        after that turn.
        """
        deadline = monotonic() + _PATIENCE
        for wire in self.all():
            while wire.has_unsent() and not wire.is_inside() and monotonic() < deadline:
                pause(0.0001)

    def _wire(self, sock: socket.socket) -> Wire | None:
        try:
            return self._of[sock]
        except KeyError:
            pass
        wire = None
        try:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                peer, own = sock.getpeername(), sock.getsockname()
                mount = self._mount_at(peer[1])
                if mount is not None:
                    wire = Wire(sock, own[1], mount)
        except OSError:
            return None
        self._of[sock] = wire
        if wire is not None:
            self._by_port[wire.port] = wire
        return wire

    def _answers(self, sock: socket.socket, size: int) -> None:
        """Count the bytes that a fake is about to send."""
        if not self._by_port:
            return
        try:
            wire = self._by_port.get(sock.getpeername()[1])
        except (OSError, IndexError):
            return
        if wire is not None and getattr(wire.connection(), "sock", None) is sock:
            wire.answered += size

    def _mount_at(self, port: int) -> Any:
        for handle in self._handles:
            opened: Any = getattr(handle, "_port", None)
            for mount in (handle._mount, getattr(opened, "mount", None)):
                if mount is not None and mount.port == port and mount.tls is None:
                    return mount
        return None

    def _patch(self) -> None:
        real = {
            name: getattr(socket.socket, name)
            for name in ("send", "sendall", "sendmsg", "recv", "recv_into")
            if hasattr(socket.socket, name)
        }

        def sends(name: str, size: Callable[..., int]) -> Callable[..., Any]:
            original = real[name]

            def sending(sock: socket.socket, *args: Any) -> Any:
                stage = self._stage()
                is_here = stage is not None and stage.is_here()
                wire = self._wire(sock) if is_here else None
                if wire is None or stage is None:
                    if stage is not None and not is_here:
                        if name == "sendall":
                            self._answers(sock, size(*args))
                        stage.sends_elsewhere(sock)
                    return original(sock, *args)
                stage.sends(wire.port)
                if name == "sendall":
                    wire.sent += size(*args)
                    return original(sock, *args)
                done = original(sock, *args)
                wire.sent += done
                return done

            sending._is_wire = True  # type: ignore[attr-defined]
            return sending

        def reads(name: str) -> Callable[..., Any]:
            original = real[name]

            def reading(sock: socket.socket, *args: Any, **options: Any) -> Any:
                stage = self._stage()
                wire = self._wire(sock) if stage is not None and stage.is_here() else None
                if wire is not None and stage is not None:
                    timeout = sock.gettimeout()

                    def is_readable(seconds: float) -> bool:
                        # If another thread has closed the socket, let the read report it.
                        return sock.fileno() < 0 or bool(select.select([sock], [], [], seconds)[0])

                    if timeout != 0 and not stage.reads(is_readable, wire, timeout):
                        raise TimeoutError("timed out")
                if wire is None:
                    return original(sock, *args, **options)
                try:
                    found = original(sock, *args, **options)
                except ConnectionError:
                    wire.is_over = True
                    raise
                size = found if isinstance(found, int) else len(found)
                flags = options.get("flags", 0)
                if len(args) > 1 + (name == "recv_into"):
                    flags = args[-1]
                if not flags & socket.MSG_PEEK:
                    wire.got += size
                wire.is_over = wire.is_over or (not size and bool(args and args[0] != 0))
                return found

            reading._is_wire = True  # type: ignore[attr-defined]
            return reading

        real_close, real_shutdown = self._real_close, socket.socket.shutdown

        def close(sock: socket.socket) -> None:
            wire = self._of.get(sock)
            real_close(sock)
            if wire is not None and sock.fileno() < 0:
                ends(wire)

        def shutdown(sock: socket.socket, how: int, /) -> None:
            wire = self._of.get(sock)
            real_shutdown(sock, how)
            if wire is not None and how != socket.SHUT_RD:
                ends(wire)

        def ends(wire: Wire) -> None:
            stage = self._stage()
            if stage is not None and stage.is_here():
                wire.await_end()

        shutdown._is_wire = True  # type: ignore[attr-defined]
        socket.socket.close = close  # type: ignore[method-assign, assignment]
        socket.socket.shutdown = shutdown  # type: ignore[method-assign, assignment]
        socket.socket.send = sends("send", lambda data, *_: len(data))  # type: ignore[method-assign]
        socket.socket.sendall = sends("sendall", lambda data, *_: memoryview(data).nbytes)  # type: ignore[method-assign]
        if "sendmsg" in real:
            socket.socket.sendmsg = sends("sendmsg", lambda *_: 0)  # type: ignore[method-assign]
        socket.socket.recv = reads("recv")  # type: ignore[method-assign]
        socket.socket.recv_into = reads("recv_into")  # type: ignore[method-assign]
