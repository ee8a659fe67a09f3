"""Connections that a mount has accepted.

Only the worker that serves a connection closes its socket. All other threads only shut it down, so
that no file descriptor is reused while a thread still works with it.
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
"""Maximum number of bytes that a client may send while a response is being sent to it."""
RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
_DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
"""The flag that keeps one call of a blocking socket from waiting; 0 on Windows, which lacks it."""


def tls_error() -> type[OSError]:
    """Return the exception class of TLS errors, for an ``except`` clause that evaluates it lazily."""
    import ssl  # Importing ssl takes 3 ms, and most connections have no TLS.

    return ssl.SSLError


ConnectionHandler = Callable[["Connection"], None]
"""A function that serves a connection to its end, in a worker thread."""


class Connection:
    """One accepted connection, owned by the mount that accepted it.

    ``sock`` is the blocking socket (a TLS socket if the mount has a context), ``address`` the
    client's address. A protocol calls ``enter()`` before it calls the engine, then ``leave()``.
    """

    def __init__(self, sock: socket.socket, address: Any, mount: Mount) -> None:
        self.sock = sock
        self.address = address
        self.mount = mount
        self.inside = False
        self.doing: object = ""
        self.ended = False
        self.worker: threading.Thread | None = None
        self.early = b""
        """The beginning of the client's next requests, received while a response was being sent."""
        self.received = self.handled = 0
        """The number of bytes read from the client, and how many of them were processed."""
        self.unsent: Callable[[], bool] | None = None
        """Returns whether messages wait to be sent; only in protocols that push messages."""

    def enter(self, doing: object) -> bool:
        """Mark the beginning of a call into the engine; return False if the connection has been
        ended. If the call outlasts the end of the mount, a warning shows ``doing``.
        """
        # Set ``inside`` before reading ``ended``. A thread that ends the connection sets ``ended``
        # before it reads ``inside``, so at least one of the two notices the other.
        self.doing = doing
        self.inside = True
        if self.ended:
            self.leave()
            return False
        return True

    def leave(self) -> None:
        """Mark the end of a call into the engine."""
        self.inside = False
        if self.ended:
            with self.mount.handler_returned:
                self.mount.handler_returned.notify_all()

    @contextlib.contextmanager
    def watched(self, gone: Callable[[], None], *, reads: bool = False) -> Iterator[None]:
        """Call ``gone`` from the hub's thread if the client closes its side during the block. With
        ``reads``, data that hides the end is read and appended to ``early``.
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
        """Return whether the client has closed its side, without waiting and without reading.
        Without POLLRDHUP (macOS, Windows) unread data hides the end.
        """
        try:
            if hung_up := getattr(select, "POLLRDHUP", 0):
                poll = select.poll()
                poll.register(self.sock, hung_up)
                return bool(poll.poll(0))
            if not _DONT_WAIT and not select.select([self.sock], [], [], 0)[0]:
                return False
            return not socket.socket.recv(self.sock, 1, socket.MSG_PEEK | _DONT_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def __repr__(self) -> str:
        return f"<Connection from {self.address} to {self.mount.address}>"

    def serve(self) -> None:
        """Serve the connection to its end with the mount's protocol, in the calling worker thread."""
        self.worker = threading.current_thread()
        mount = self.mount
        try:
            if self._prepare():
                mount.protocol(self)
        except (TimeoutError, ConnectionError):
            # The client disconnected, or the mount was closed while serving.
            pass
        except tls_error():
            pass
        except BaseException as error:
            # pytest.fail() in a handler must not end this thread, which belongs to a pool.
            mount.report(error)
        finally:
            mount.forget(self)
            self.worker = None

    def _prepare(self) -> bool:
        sock = self.sock
        try:
            # The test may have set a default timeout for sockets, but this socket must block.
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform != "win32":
                # Otherwise, a closed connection would prevent listening on the port again.
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

    def reset_when_closed(self) -> None:
        """Make closing the socket send a TCP reset."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    def end(self) -> None:
        """Shut the connection down. The caller holds the mount's lock, so the socket is open."""
        self.ended = True
        # Reset the connection to avoid TIME_WAIT, so that the port can be reused.
        self.reset_when_closed()
        # Call the plain socket's method: a TLS socket's shutdown() breaks its reader.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class Watch:
    """Detects that the peer of a connection has closed its side while no thread reads from it."""

    def __init__(self, connection: Connection, gone: Callable[[], None], reads: bool) -> None:
        self._connection = connection
        self._gone = gone
        self._reads = reads
        self._lock = threading.Lock()
        self._over = False

    def ready(self) -> None:
        with self._lock:
            if self._over:
                return
            try:
                peer_closed = self._read()
            except BlockingIOError:  # pragma: no cover - a spurious wake-up
                return
            except OSError:
                peer_closed = True
            if peer_closed is None:
                return
            self._end()
        if peer_closed:
            self._gone()

    def _read(self) -> bool | None:
        """Return True if the peer has closed its side, None to go on watching, False to stop."""
        # A TLS connection cannot be inspected without reading it. Treat any data as the end: a
        # client that sends data during a response is probably closing the connection.
        if self._connection.mount.tls is not None:
            return True
        if not self._reads:
            # Unread data hides the end, so stop watching when there is some.
            return not self._connection.sock.recv(1, socket.MSG_PEEK | _DONT_WAIT)
        # Read the data, because the end of the connection would be hidden behind it.
        data = self._connection.sock.recv(65_536, _DONT_WAIT)
        self._connection.early += data
        return None if data and len(self._connection.early) <= MOST_EARLY else True

    def stop(self) -> None:
        with self._lock:
            if not self._over:
                self._end()

    def _end(self) -> None:
        self._over = True
        self._connection.mount.hub.unregister(self._connection.sock)
