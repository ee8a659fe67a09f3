"""Sockets from explored code to the fakes: whose they are, and whether an answer is on its way."""

from __future__ import annotations

import select
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...core.timeparse import monotonic
from .strands import pause

_PATIENCE = 5.0
"""Real seconds after which a fake that has not answered is taken to be silent."""


class Stage(Protocol):
    """Takes part in what explored code sends and reads."""

    def is_here(self) -> bool:
        """Whether this thread runs explored code."""

    def sends(self, port: int) -> None:
        """The code sends something from a local port to a fake."""

    def reads(
        self,
        is_readable: Callable[[float], bool],
        is_quiet: Callable[[], bool],
        timeout: float | None,
    ) -> bool:
        """The code waits for bytes of a fake; False when its timeout has passed."""


class Wire:
    """One connection to a fake, seen from the client: the bytes sent, and the fake's end of it."""

    def __init__(self, port: int, mount: Any) -> None:
        self.port = port
        self.mount = mount
        self.sent = 0
        self._base: int | None = None
        self._connection: Any = None
        connection = self.connection()
        if connection is not None:
            self._base = connection.received

    def connection(self) -> Any:
        """The fake's end; None before it has accepted the connection."""
        if self._connection is None:
            for each in list(self.mount._live):
                if each.address[1] == self.port:
                    self._connection = each
        return self._connection

    def cut(self) -> None:
        """End the connection, as if the client had died."""
        connection = self.connection()
        if connection is not None:
            connection.end()

    def is_quiet(self) -> bool:
        """Whether the fake has handled all that was sent, and has nothing left to send."""
        connection = self.connection()
        if connection is None:
            return self.sent == 0
        if connection.ended or connection not in self.mount._live:
            return True
        if connection.handled - (self._base or 0) < self.sent or connection.inside:
            return False
        return connection.unsent is None or not connection.unsent()


class Wires:
    """All connections of explored code; a context manager that watches the sockets meanwhile."""

    def __init__(self, handles: Sequence[Any], stage: Callable[[], Stage | None]) -> None:
        self._handles = handles
        self._stage = stage
        self._of: weakref.WeakKeyDictionary[socket.socket, Wire | None] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Wires:
        self._patch()
        return self

    def __exit__(self, *error: object) -> None:
        for name in ("send", "sendall", "sendmsg", "recv", "recv_into"):
            vars_ = vars(socket.socket)
            if name in vars_ and getattr(vars_[name], "_is_wire", False):
                delattr(socket.socket, name)

    def forget(self) -> None:
        """Forget what earlier runs have sent."""
        with self._lock:
            self._of = weakref.WeakKeyDictionary()

    def all(self) -> list[Wire]:
        """The connections over which something was sent in this run."""
        with self._lock:
            return [wire for wire in self._of.values() if wire is not None]

    def settle(self) -> None:
        """Wait, for real, until no fake has anything left to send."""
        deadline = monotonic() + _PATIENCE
        for wire in self.all():
            while True:
                connection = wire.connection()
                unsent = None if connection is None else connection.unsent
                if unsent is None or connection.ended or not unsent() or monotonic() > deadline:
                    break
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
                    wire = Wire(own[1], mount)
        except OSError:
            return None
        with self._lock:
            self._of[sock] = wire
        return wire

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
                wire = self._wire(sock) if stage is not None and stage.is_here() else None
                if wire is None:
                    return original(sock, *args)
                assert stage is not None
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

            def reading(sock: socket.socket, *args: Any) -> Any:
                stage = self._stage()
                wire = self._wire(sock) if stage is not None and stage.is_here() else None
                if wire is not None and stage is not None:
                    timeout = sock.gettimeout()

                    def is_readable(seconds: float) -> bool:
                        return bool(select.select([sock], [], [], seconds)[0])

                    if timeout != 0 and not stage.reads(is_readable, wire.is_quiet, timeout):
                        raise TimeoutError("timed out")
                return original(sock, *args)

            reading._is_wire = True  # type: ignore[attr-defined]
            return reading

        socket.socket.send = sends("send", lambda data, *_: len(data))  # type: ignore[method-assign]
        socket.socket.sendall = sends("sendall", lambda data, *_: memoryview(data).nbytes)  # type: ignore[method-assign]
        if "sendmsg" in real:
            socket.socket.sendmsg = sends("sendmsg", lambda *_: 0)  # type: ignore[method-assign]
        socket.socket.recv = reads("recv")  # type: ignore[method-assign]
        socket.socket.recv_into = reads("recv_into")  # type: ignore[method-assign]
