"""An application at an address: its listening socket, its connections, and how both end."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError
from ..core.timeparse import monotonic
from .connection import Connection, ConnectionHandler
from .ports import BACKLOG

if TYPE_CHECKING:
    import ssl

    from .hub import Hub

# Where a clean way to refuse connections while keeping the port exists.
CAN_STOP_LISTENING = sys.platform.startswith("linux")
LEAVE_SECONDS = 1.0
_ACCEPTS = 64  # of one listener, before the others have their turn


class Acceptor:
    """Accepts connections for a mount, without keeping the mount alive."""

    def __init__(self, mount: Mount) -> None:
        self._mount = weakref.ref(mount)

    def ready(self) -> None:
        """Accept what waits; called by the hub's thread."""
        mount = self._mount()
        if mount is not None:
            mount.ready()

    def __repr__(self) -> str:
        return repr(self._mount())


class Mount:
    """An application at an address: what ``Hub.mount`` gives.

    ``url`` has no trailing slash. Functions appended to
    ``on_close`` are called while the mount closes, after its connections were shut down: there an
    application wakes those of its handlers that wait. ``on_reset`` is the same for
    ``reset_connections()``, and ``on_error`` receives what escaped a plain application. ``stuck`` has
    a text for each handler that did not leave when the mount was closed or reset.
    ``body_limit`` is the most bytes of a request's body, where it is not the server's own limit.
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
        self.left: threading.Event | None = None
        self.closed = False
        self.on_close: list[Callable[[], None]] = []
        self.on_reset: list[Callable[[], None]] = []
        self.on_error: list[Callable[[BaseException], None]] = []
        self.stuck: tuple[str, ...] = ()
        self._live: set[Connection] = set()
        self._listening = True
        self.listener, self.port = hub.bind(host, port)
        self.acceptor = Acceptor(self)

    def __del__(self) -> None:
        # No lock: the collector may come in the midst of code that has it.
        if hasattr(self, "bell") and not self.closed:
            self.hub.unregister(self.listener)
            self.listener.close()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return "http" if self.tls is None else "https", self.host, self.port

    @property
    def url(self) -> str:
        """The origin as text."""
        scheme, host, port = self.origin
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._live)

    def __repr__(self) -> str:
        return f"<Mount {self.url}{' closed' if self.closed else ''}>"

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the address up and end every connection; returns at once unless a handler is busy.

        Handlers inside the engine get one real second to leave; a ``RuntimeWarning`` names each
        that does not, with the place where it is. Idle connections are not waited for. Any number
        of calls, from any thread, a handler's included.
        """
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if self._listening:
                self.hub.unregister(self.listener)
            self.listener.close()
            live = self._shut_down() if self._live else []
        self.hub.forget(self)
        self._let_go(live, self.on_close)

    def reset_connections(self) -> None:
        """End the open connections and the requests in flight; the address stays.

        Waits like ``close()`` for handlers inside the engine.
        """
        with self.lock:
            live = self._shut_down()
        self._let_go(live, self.on_reset)

    def refuse(self) -> None:
        """Stop listening and end the connections, keeping the port, until ``accept()``."""
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
        breath = threading.Event()
        while True:
            try:
                self._listen_again()
                return
            except ContractError:
                # Windows gives the port back when the last of its old connections is closed, which
                # takes the lock.
                if monotonic() > deadline:
                    raise
            breath.wait(0.01)

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
        """``refuse()`` or ``accept()``."""
        if shut:
            self.refuse()
        else:
            self.accept()

    def report(self, error: BaseException) -> None:
        """Hand on what escaped a handler; printed to standard error when nobody takes it."""
        if not self.on_error:
            traceback.print_exception(error, file=sys.stderr)
        for take in tuple(self.on_error):
            take(error)

    def ready(self) -> None:
        """Accept what waits; called by the hub's thread."""
        for _ in range(_ACCEPTS):
            # With the lock, so that the listener cannot be closed, and its descriptor given to
            # another mount's, between the look at it and the call.
            with self.lock:
                if self.closed or not self._listening:
                    return
                try:
                    sock, address = self.listener.accept()
                except (BlockingIOError, InterruptedError, ConnectionError):
                    return
                connection = Connection(sock, address, self)
                self._live.add(connection)
            self.hub.workers.submit(connection.serve, connection.abandon)

    def forget(self, connection: Connection) -> None:
        """Close a connection whose serving has ended; called by the worker that served it."""
        with self.lock:
            self._live.discard(connection)
            with contextlib.suppress(OSError):
                connection.sock.close()

    def _shut_down(self) -> list[Connection]:
        live = list(self._live)
        if live and self.left is None:
            # Before any is ended: whoever leaves from then on looks for it.
            self.left = threading.Event()
        for connection in live:
            connection.end()
        return live

    def _let_go(self, live: list[Connection], callbacks: list[Callable[[], None]]) -> None:
        for callback in tuple(callbacks):
            callback()
        if not live:
            return
        assert self.left is not None
        self.left.clear()
        me = threading.current_thread()
        busy = [c for c in live if c.inside and c.worker is not me]
        deadline = monotonic() + LEAVE_SECONDS
        while busy:
            left = deadline - monotonic()
            if left <= 0:
                self.stuck += tuple(_still_here(connection) for connection in busy)
                for text in self.stuck[-len(busy) :]:
                    warnings.warn(text, RuntimeWarning, stacklevel=4)
                return
            self.left.wait(left)
            self.left.clear()
            busy = [c for c in busy if c.inside]

    def after_fork(self) -> None:
        """Give this process's descriptors back and shut nothing down: the parent serves on."""
        self.lock = threading.Lock()
        self.closed = True
        for sock in (self.listener, *(connection.sock for connection in self._live)):
            with contextlib.suppress(OSError):
                socket.socket.close(sock)
        self._live.clear()


def _still_here(connection: Connection) -> str:
    worker = connection.worker
    text = (
        f"a handler of {connection.mount.url} was still busy {LEAVE_SECONDS:g} s after its server "
        f"was closed: {connection.doing}"
    )
    if worker is None:
        return text
    frame = sys._current_frames().get(worker.ident or 0)
    where = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else ""
    return f"{text}, in thread {worker.name}\n{where}"
