"""An application at an address: its listening socket and its connections."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError, print_error
from ..core.timers import give_way, monotonic
from .connection import Connection, ConnectionHandler
from .ports import BACKLOG

if TYPE_CHECKING:
    import ssl

    from .hub import Hub

# On Linux, a socket can stop listening, so that connections are refused, and still keep its port.
CAN_STOP_LISTENING = sys.platform.startswith("linux")
LEAVE_SECONDS = 1.0
_ACCEPTS = 64  # maximum connections accepted from one listener before the others get their turn


class Acceptor:
    """Accepts connections for a mount without keeping the mount alive."""

    def __init__(self, mount: Mount) -> None:
        self._mount = weakref.ref(mount)

    def ready(self) -> None:
        """Accept waiting connections. Called by the hub's thread."""
        mount = self._mount()
        if mount is not None:
            mount.ready()

    def __repr__(self) -> str:
        return repr(self._mount())


class Mount:
    """An application at an address. ``Hub.mount()`` returns it.

    ``url`` has no trailing slash. The functions in ``on_close`` are called while the mount closes,
    after its connections were shut down, so that an application can wake its waiting handlers.
    ``reset_connections()`` calls the functions in ``on_reset`` for the same reason. The functions
    in ``on_error`` receive exceptions from an application that is not an ``App``. ``body_limit`` is
    the maximum size of a request's body in bytes, or None for the server's limit.
    """

    body_limit: int | None = None

    def __init__(
        self,
        hub: Hub,
        app: Any,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        protocol: ConnectionHandler,
    ) -> None:
        self.hub = hub
        self.app = app
        self.tls = tls
        self.protocol = protocol
        self.host = host
        self.lock = threading.Lock()
        self.handler_returned = threading.Condition()
        self.closed = False
        self.on_close: list[Callable[[], None]] = []
        self.on_reset: list[Callable[[], None]] = []
        self.on_error: list[Callable[[BaseException], None]] = []
        self._live: set[Connection] = set()
        self._listening = True
        self.listener, self.port = hub.bind(host, port)
        self.address = host, self.port
        self.origin = "http" if tls is None else "https", host, self.port
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{self.origin[0]}://{shown}:{self.port}"
        self.acceptor = Acceptor(self)

    def __del__(self) -> None:
        # Take no lock here: the garbage collector may run in code that holds it.
        if hasattr(self, "acceptor") and not self.closed:
            self.hub.unregister(self.listener)
            self.listener.close()

    def __repr__(self) -> str:
        return f"<Mount {self.url}{' closed' if self.closed else ''}>"

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the address and all connections. Return immediately unless a handler is busy.

        Handlers that are in the engine get one real second to return; for each handler that does
        not, a ``RuntimeWarning`` names it and shows its stack. Idle connections are closed without
        waiting. Can be called repeatedly and from any thread, including a handler's.
        """
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if self._listening:
                self.hub.unregister(self.listener)
            self.listener.close()
            live = self._end_connections() if self._live else []
        self.hub.forget(self)
        self._await_handlers(live, self.on_close)

    def reset_connections(self) -> None:
        """Close all connections but keep the address. Waits like ``close()`` for busy handlers."""
        with self.lock:
            live = self._end_connections()
        self._await_handlers(live, self.on_reset)

    def refuse(self) -> None:
        """Close all connections and stop listening until ``accept()`` is called, but keep the port."""
        with self.lock:
            if self.closed or not self._listening:
                return
            self._listening = False
            self.hub.unregister(self.listener)
            if CAN_STOP_LISTENING:
                self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.listener.shutdown(socket.SHUT_RDWR)
            else:
                self.listener.close()
        self.reset_connections()

    def accept(self) -> None:
        """Listen again after ``refuse()``."""
        deadline = monotonic() + LEAVE_SECONDS
        while True:
            try:
                self._listen_again()
                return
            except ContractError:
                # On Windows, the port is free only after its last connection was closed: try again.
                if monotonic() > deadline:
                    raise
            give_way(0.01)

    def _listen_again(self) -> None:
        with self.lock:
            if self.closed or self._listening:
                return
            if CAN_STOP_LISTENING:
                self.listener.listen(BACKLOG)
            else:
                self.listener, _ = self.hub.bind(self.host, self.port)
            self._listening = True
            self.hub.register(self.listener, self.acceptor)

    def gate(self, shut: bool) -> None:
        """Call ``refuse()`` if ``shut``, otherwise ``accept()``."""
        if shut:
            self.refuse()
        else:
            self.accept()

    def report(self, error: BaseException) -> None:
        """Pass an exception from a handler to ``on_error``, or print it to standard error."""
        if not self.on_error:
            print_error(error)
        for take in tuple(self.on_error):
            take(error)

    def ready(self) -> None:
        """Accept waiting connections. Called by the hub's thread."""
        for _ in range(_ACCEPTS):
            # Hold the lock: between check and call, another mount could get the file descriptor.
            with self.lock:
                if self.closed or not self._listening:
                    return
                try:
                    sock, address = self.listener.accept()
                except (BlockingIOError, InterruptedError, ConnectionError):
                    return
                connection = Connection(sock, address, self)
                self._live.add(connection)
            self.hub.workers.submit(connection.serve, partial(self.forget, connection))

    def forget(self, connection: Connection) -> None:
        """Close a connection after a worker has served it. Called by that worker."""
        with self.lock:
            self._live.discard(connection)
            with contextlib.suppress(OSError):
                connection.sock.close()

    def _end_connections(self) -> list[Connection]:
        live = list(self._live)
        for connection in live:
            connection.end()
        return live

    def _await_handlers(self, ended: list[Connection], callbacks: list[Callable[[], None]]) -> None:
        """Call the callbacks, which wake handlers, and warn of handlers that stay in the engine."""
        errors: list[Exception] = []
        for callback in tuple(callbacks):
            # The other callbacks wake handlers, which would otherwise wait in vain.
            try:
                callback()
            except Exception as error:
                errors.append(error)
        me = threading.current_thread()
        deadline = monotonic() + LEAVE_SECONDS
        busy = ended
        with self.handler_returned:
            while busy := [c for c in busy if c.inside and c.worker is not me]:
                remaining = deadline - monotonic()
                if remaining <= 0:
                    break
                self.handler_returned.wait(remaining)
        for connection in busy:
            warnings.warn(_describe_busy(connection), RuntimeWarning, stacklevel=4)
        if errors:
            raise errors[0]

    def after_fork(self) -> None:
        """Close the copies of the sockets in a child process; its parent keeps serving."""
        self.lock = threading.Lock()
        self.closed = True
        for sock in (self.listener, *(connection.sock for connection in self._live)):
            with contextlib.suppress(OSError):
                socket.socket.close(sock)
        self._live.clear()


def _describe_busy(connection: Connection) -> str:
    worker = connection.worker
    text = (
        f"a handler of {connection.mount.url} was still busy {LEAVE_SECONDS:g} s after its server "
        f"was closed: {connection.doing}"
    )
    if worker is None:
        return text
    # Imported here, because a handler is rarely still busy.
    import traceback

    frame = sys._current_frames().get(worker.ident or 0)
    where = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else ""
    return f"{text}, in thread {worker.name}\n{where}"
