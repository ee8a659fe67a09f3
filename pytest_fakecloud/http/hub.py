"""The thread that accepts connections on all listening sockets of the process, and its workers.

One daemon thread waits on all listening sockets and passes accepted connections to idle workers.
The pool grows without a limit, because a handler may block for long (a long poll, a callback into
the same process) and a keep-alive connection occupies its worker.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import selectors
import socket
import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError, print_error
from ..core.threads import WorkerPool
from ..core.timers import give_way
from .mount import Acceptor, Mount
from .ports import PortAllocator, kept, listen

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from .connection import ConnectionHandler, Watch

_NO_SOCKET = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_gone_already = contextlib.suppress(KeyError, ValueError, OSError)
SCARCE_SECONDS = 0.05
"""Real seconds to wait after the system ran out of file descriptors or memory."""


class Hub:
    """The listening sockets of the process and the thread that accepts connections on all of them.

    The thread starts with the first mount and stops at exit. ``default_hub()`` is the usual hub.
    """

    def __init__(self) -> None:
        self._reset()
        _hubs.add(self)

    def _reset(self) -> None:
        """Set the state of a hub without mounts: at first, and in a forked process."""
        self._lock = threading.Lock()
        self._mounts: weakref.WeakSet[Mount] = weakref.WeakSet()
        self._later: deque[Callable[[], object]] = deque()
        self.ports = PortAllocator()
        self._selector: selectors.BaseSelector | None = None
        self._wakes = False
        self._wake: socket.socket | None = None
        self._scarce = False
        self._thread: threading.Thread | None = None
        self.workers = WorkerPool()

    def mount(
        self,
        app: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        protocol: ConnectionHandler | None = None,
    ) -> Mount:
        """Serve an ``http.app.App`` or any WSGI callable at its own address.

        ``port`` 0 takes the next free port. With ``tls``, a server's TLS context, connections use
        TLS. ``protocol`` replaces HTTP: it is called with each ``Connection`` in a separate thread,
        and the connection is closed when it returns. The mount closes when the caller drops its last
        reference. Raises ``ContractError`` if the address is not available.
        """
        if protocol is None:
            # Imported here, so that using the hub without HTTP does not import the HTTP server.
            from .server import serve_http

            protocol = serve_http
        if self._selector is None:
            self._start()
        # Remove the final dot of "localhost.", because clients compare host names as strings.
        mount = Mount(self, app, host.rstrip(".") or host, port, tls, protocol)
        self._mounts.add(mount)
        self.register(mount.listener, mount.acceptor)
        return mount

    def stop(self) -> None:
        """Close every mount and end the hub's thread. The next mount starts it again."""
        for mount in list(self._mounts):
            mount.close()
        with self._lock:
            thread, self._thread = self._thread, None
            wake, self._wake = self._wake, None
            self._selector = None  # The hub's thread closes it.
        if wake is not None:
            wake.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    # -- for mounts and connections --------------------------------------------------------------

    def bind(self, host: str, port: int) -> tuple[socket.socket, int]:
        """Return a listening socket and its port. For port 0, use the next free port."""
        if (sock := kept(host, port)) is not None:
            return sock, port
        try:
            return listen(host, port or functools.partial(self._bind_next, host))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # the system is out of file descriptors, so another port would not help
            wanted = f"port {port} of {host}" if port else f"any port of {host}"
            raise ContractError(
                f"cannot listen on {wanted}: {error.strerror or error}. "
                "Omit the port to use a free one, or stop the program that uses this port"
            ) from error

    def _bind_next(self, host: str, sock: socket.socket) -> int:
        with self._lock:
            for port in self.ports:
                try:
                    sock.bind((host, port))
                    return port
                except OSError as error:
                    # The port is in use, or reserved by Windows, so try the next port.
                    if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                        raise
        raise OSError(errno.EADDRINUSE, "every port of the range is in use")

    def register(self, sock: socket.socket, data: Acceptor | Watch) -> bool:
        """Call ``data.ready()`` whenever the socket is readable; return False if not running."""
        selector = self._selector
        if selector is None:
            return False
        try:
            selector.register(sock, selectors.EVENT_READ, data)
        except KeyError:
            # Other code closed a socket of the hub, whose file descriptor the new socket received.
            selector.unregister(sock.fileno())
            selector.register(sock, selectors.EVENT_READ, data)
        if self._wakes:
            self._nudge()
        return True

    def unregister(self, sock: socket.socket) -> None:
        """Stop watching a socket. Call this before closing it."""
        selector = self._selector
        if selector is None:
            return
        with _gone_already:
            selector.unregister(sock)
        if self._wakes:
            self._nudge()

    def later(self, function: Callable[[], object]) -> None:
        """Call a function in the hub's thread. Takes no lock, so it can be called from ``__del__``."""
        self._later.append(function)
        self._nudge()

    def forget(self, mount: Mount) -> None:
        """Remove a mount that has been closed."""
        self._mounts.discard(mount)

    # -- the thread ------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._selector is not None:
                return
            selector = selectors.DefaultSelector()
            inner, self._wake = socket.socketpair()
            inner.setblocking(False)
            self._wake.setblocking(False)
            selector.register(inner, selectors.EVENT_READ, None)
            # epoll and kqueue notice sockets added while they wait; others must be woken.
            self._wakes = type(selector).__name__ not in ("EpollSelector", "KqueueSelector")
            self._thread = threading.Thread(
                target=self._run, args=(selector, inner), name="fakecloud-hub", daemon=True
            )
            self._thread.start()
            self._selector = selector

    def _nudge(self) -> None:
        wake = self._wake
        if wake is not None:
            # Ignore a full buffer: the thread is then about to wake anyway.
            with contextlib.suppress(OSError):
                wake.send(b"\0")

    def _run(self, selector: selectors.BaseSelector, inner: socket.socket) -> None:
        try:
            while True:
                try:
                    ready = selector.select()
                except (OSError, ValueError):
                    _drop_closed(selector)
                    continue
                # Remove each key from the list before handling it: a reference to a mount would
                # keep the test's data alive while this thread waits.
                while ready:
                    if not self._attend(selector, inner, ready.pop(0)[0]):
                        return
        finally:
            selector.close()
            inner.close()

    def _attend(
        self, selector: selectors.BaseSelector, inner: socket.socket, key: selectors.SelectorKey
    ) -> bool:
        """Handle one ready socket; return whether the thread continues."""
        if key.data is None:
            return self._catch_up(inner)
        try:
            key.data.ready()
            self._scarce = False
        except OSError as error:
            if error.errno in _NO_SOCKET:
                _drop(selector, key)
            else:
                # The system is out of file descriptors or memory. Clients stay in the backlog and
                # can be accepted after others disconnect.
                self._report_scarce(key.data, error)
                give_way(SCARCE_SECONDS)
        except Exception as error:
            # Continue, because a failing socket must not affect the others. It may work again
            # later, e.g. when a tool that forbids creating sockets is switched off.
            print_error(error)
            give_way(0.01)
        return True

    def _catch_up(self, inner: socket.socket) -> bool:
        """Call the functions of ``later()``; return False if ``stop()`` has closed the other end."""
        try:
            if not inner.recv(4096):
                return False
        except BlockingIOError:
            pass
        except OSError:
            return False
        while self._later:
            try:
                self._later.popleft()()
            except BaseException as error:
                print_error(error)
        return True

    def _report_scarce(self, data: object, error: OSError) -> None:
        if self._scarce:
            return  # report each shortage only once
        self._scarce = True
        advice = ""
        if error.errno in _SCARCE:
            advice = ". Close unused clients, or raise the limit (ulimit -n)"
        print(
            f"pytest-fakecloud: {data!r} cannot accept a connection: {error.strerror or error}; "
            f"clients wait until others disconnect{advice}",
            file=sys.stderr,
        )

    # -- fork and exit ---------------------------------------------------------------------------

    def _after_fork(self) -> None:
        mounts, selector, wake = self._mounts, self._selector, self._wake
        for mount in mounts:
            mount.after_fork()
        if selector is not None:
            keys = list((selector.get_map() or {}).values())
            # Close only this process's copy of the socket; the parent's stays open.
            selector.close()
            for key in keys:
                if key.data is None and isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
        if wake is not None:
            wake.close()
        self._reset()


def _drop(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    with _gone_already:
        selector.unregister(key.fileobj)


def _drop_closed(selector: selectors.BaseSelector) -> None:
    for key in list((selector.get_map() or {}).values()):
        try:
            # Check with the socket's method, because Windows has no file descriptors of sockets.
            key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)  # type: ignore[union-attr]
        except OSError:
            _drop(selector, key)


_hubs: weakref.WeakSet[Hub] = weakref.WeakSet()
_shared: Hub | None = None
_shared_lock = threading.Lock()


def default_hub() -> Hub:
    """Return the hub of this process."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Hub()
            atexit.register(_shared.stop)
        return _shared


def _after_fork_in_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for hub in list(_hubs):
        hub._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
