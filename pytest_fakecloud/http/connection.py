"""One accepted connection, and who may do what to it.

Only the worker that serves a connection closes it: everybody else shuts it down at most, so that no
descriptor can change its owner under a thread's feet.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    from .mount import Mount

MOST_EARLY = 1024 * 1024
"""The most bytes a client may send ahead while an answer is on its way to it."""
RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


def tls_error() -> type[OSError]:
    """What a TLS connection raises besides, for an ``except``: looked up when something was raised."""
    import ssl  # takes 3 ms, and most connections have no TLS

    return ssl.SSLError


ConnectionHandler = Callable[["Connection"], None]
"""Serves a connection until it ends, in a worker's thread."""


class Connection:
    """One accepted connection, held by the mount it came in at and by no other.

    ``sock`` is the blocking socket (a TLS one where the mount has a context), ``address`` the
    client's, ``mount`` where it came in. A protocol calls ``enter()`` before it goes into the
    engine and ``leave()`` after.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "doing",
        "early",
        "ended",
        "handled",
        "inside",
        "mount",
        "received",
        "sock",
        "unsent",
        "worker",
    )

    def __init__(self, sock: socket.socket, address: Any, mount: Mount) -> None:
        self.sock = sock
        self.address = address
        self.mount = mount
        self.inside = False
        self.doing: object = ""
        self.ended = False
        self.worker: threading.Thread | None = None
        self.early = b""
        """What the client sent while an answer was on its way: the next requests."""
        self.received = self.handled = 0
        """How many bytes of the client were read, and how many of them are dealt with."""
        self.unsent: Callable[[], bool] | None = None
        """Whether messages wait to be sent to the client, for a protocol that pushes some."""

    def enter(self, doing: object) -> bool:
        """Announce a call into the engine; False when the connection has been ended meanwhile.

        ``doing`` says what for, should the handler not leave in time when the mount is closed.
        """
        # Set first, look second; who ends connections does it the other way round, so one of the
        # two always sees the other.
        self.doing = doing
        self.inside = True
        if self.ended:
            self.leave()
            return False
        return True

    def leave(self) -> None:
        """Announce that the engine has been left."""
        self.inside = False
        if self.ended and self.mount.left is not None:
            self.mount.left.set()

    @contextlib.contextmanager
    def watched(self, gone: Callable[[], None], *, reads: bool = False) -> Iterator[None]:
        """Have ``gone`` called, from the hub's thread, when the client closes its side meanwhile.

        What it sends first hides that, unless the watch ``reads``: then it is in ``early`` after.
        """
        watch = Watch(self, gone, reads)
        if self.mount.hub.register(self.sock, watch):
            try:
                yield
            finally:
                watch.stop()
        else:
            yield

    def has_hung_up(self) -> bool:
        """Whether the client has closed its side; looks without waiting and without reading.

        Where the system has no POLLRDHUP (macOS, Windows), data that was not read hides the end.
        """
        try:
            if hung_up := getattr(select, "POLLRDHUP", 0):
                poll = select.poll()
                poll.register(self.sock, hung_up)
                return bool(poll.poll(0))
            at_once = getattr(socket, "MSG_DONTWAIT", 0)
            if not at_once and not select.select([self.sock], [], [], 0)[0]:
                return False
            return not socket.socket.recv(self.sock, 1, socket.MSG_PEEK | at_once)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def __repr__(self) -> str:
        return f"<Connection from {self.address} to {self.mount.address}>"

    def serve(self) -> None:
        """Have the mount's protocol serve it to its end, in the worker's thread that calls this."""
        self.worker = threading.current_thread()
        mount = self.mount
        try:
            if self._prepare():
                mount.protocol(self)
        except (TimeoutError, ConnectionError):
            # The client went away, or the mount was closed while it was served.
            pass
        except tls_error():
            pass
        except BaseException as error:
            # Anything at all, such as what pytest.fail() raises in a handler of the test's: the
            # thread belongs to the pool and must live on.
            mount.report(error)
        finally:
            mount.forget(self)
            self.worker = None

    def _prepare(self) -> bool:
        sock = self.sock
        try:
            # A test may have set a default timeout for its own sockets; ours block.
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform != "win32":
                # What remains of this connection must not be in the way of listening again.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.mount.tls is not None:
                self._secure(self.mount.tls)
        except (OSError, ValueError):
            return False
        return True

    def _secure(self, tls: ssl.SSLContext) -> None:
        with self.mount.lock:
            if self.ended:
                raise OSError("the mount is closed")
            secured = tls.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
            self.sock = secured
        secured.do_handshake()

    def abandon(self) -> None:
        """Close it unserved."""
        self.mount.forget(self)

    def close_with_reset(self) -> None:
        """Have the closing of this connection be a TCP reset."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    def end(self) -> None:
        """Shut it down; to be called with the mount's lock, so that nobody closes it meanwhile."""
        # The raw socket's shutdown: that of a TLS socket changes state its reader relies on.
        self.ended = True
        # No TIME_WAIT for a port that is given up; the peer sees the end either way.
        self.close_with_reset()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class Watch:
    """Tells when the peer of a connection closes its side while nobody reads from it."""

    def __init__(self, connection: Connection, gone: Callable[[], None], reads: bool) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._gone = gone
        self._reads = reads
        self._hub = connection.mount.hub
        self._lock = threading.Lock()
        self._over = False

    def ready(self) -> None:
        with self._lock:
            if self._over:
                return
            going = True
            try:
                # A TLS connection cannot be looked into without reading; a client that sends
                # anything while an answer is on its way to it is saying goodbye.
                if self._connection.mount.tls is not None:
                    pass
                elif not self._reads:
                    going = not self._sock.recv(1, socket.MSG_PEEK)
                elif data := self._sock.recv(65_536):
                    # Taken, because what is left there would hide the end that comes behind it.
                    self._connection.early += data
                    if len(self._connection.early) <= MOST_EARLY:
                        return
            except BlockingIOError:  # pragma: no cover - a spurious wake-up
                return
            except OSError:
                pass
            self._over = True
            self._hub.unregister(self._sock)
        if going:
            self._gone()

    def stop(self) -> None:
        with self._lock:
            if not self._over:
                self._over = True
                self._hub.unregister(self._sock)
