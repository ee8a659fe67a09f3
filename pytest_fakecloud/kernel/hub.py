"""One acceptor for every listening socket of the process, and the workers that serve connections.

Mounting an application costs a socket, a bind and a registration; no thread is started or joined.
One daemon thread waits on all listening sockets; an accepted connection goes to an idle worker of
a pool that grows without a bound, since a handler may block for as long as it likes (a long poll,
a callback into the same process) and a keep-alive connection owns its worker. Only the worker
that serves a connection closes it: everybody else shuts it down at most, so that no descriptor
can change its owner under a thread's feet.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import secrets
import selectors
import socket
import ssl
import struct
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .errors import ContractError
from .instants import monotonic
from .ports import PortAllocator
from .workers import WorkerPool

__all__ = ["Connection", "Hub", "Mount", "default_hub"]

BACKLOG = 1024
LEAVE_SECONDS = 1.0
_RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
# Where a clean way to refuse connections while keeping the port exists.
_CAN_STOP_LISTENING = sys.platform.startswith("linux")
_ACCEPTS = 64  # of one listener, before the others have their turn
_NO_SOCKET = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}


class ConnectionHandler(Protocol):
    """What a mount does with a connection: serve it until it ends, in a worker's thread."""

    def __call__(self, connection: Connection, /) -> None: ...


class Connection:
    """One accepted connection, held by the mount it came in at and by no other.

    ``sock`` is the blocking socket (a TLS one where the mount has a context), ``address`` the
    client's, ``mount`` where it came in. A protocol calls ``enter()`` before it goes into the
    engine and ``leave()`` after.
    """

    __slots__ = ("__weakref__", "address", "doing", "ended", "inside", "mount", "sock", "worker")

    def __init__(self, sock: socket.socket, address: Any, mount: Mount) -> None:
        self.sock = sock
        self.address = address
        self.mount = mount
        self.inside = False
        self.doing: object = ""
        self.ended = False
        self.worker: threading.Thread | None = None

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
    def watched(self, gone: Callable[[], None]) -> Iterator[None]:
        """Have ``gone`` called, from the hub's thread, when the client closes its side meanwhile."""
        watch = _Watch(self.sock, gone, self.mount.hub)
        if self.mount.hub.register(self.sock, watch):
            try:
                yield
            finally:
                watch.stop()
        else:
            yield

    def __repr__(self) -> str:
        return f"<Connection from {self.address} to {self.mount.address}>"

    def _serve(self) -> None:
        self.worker = threading.current_thread()
        mount = self.mount
        try:
            if self._prepare():
                mount.protocol(self)
        except (ConnectionError, ssl.SSLError, TimeoutError):
            # The client went away, or the mount was closed while it was served.
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
            if _CAN_STOP_LISTENING:
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
            self.sock = tls.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        assert isinstance(self.sock, ssl.SSLSocket)
        self.sock.do_handshake()

    def _abandon(self) -> None:
        self.mount.forget(self)

    def close_with_reset(self) -> None:
        """Have the closing of this connection be a TCP reset."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def _end(self) -> None:
        # Called with the mount's lock held, so the descriptor cannot be closed meanwhile. The raw
        # socket's shutdown, because that of a TLS socket changes state its reader relies on.
        self.ended = True
        # No TIME_WAIT for a port that is given up; the peer sees the end either way.
        self.close_with_reset()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class _Watch:
    """Tells when the peer of a connection closes its side while nobody reads from it."""

    def __init__(self, sock: socket.socket, gone: Callable[[], None], hub: Hub) -> None:
        self._sock = sock
        self._gone = gone
        self._hub = hub
        self._lock = threading.Lock()
        self._over = False

    def ready(self) -> None:
        with self._lock:
            if self._over:
                return
            try:
                # A TLS connection cannot be looked into without reading; a client that sends
                # anything while an answer is on its way to it is saying goodbye.
                going = isinstance(self._sock, ssl.SSLSocket) or not self._sock.recv(
                    1, socket.MSG_PEEK
                )
            except BlockingIOError:  # pragma: no cover - a spurious wake-up
                return
            except OSError:
                going = True
            self._over = True
            self._hub.unregister(self._sock)
        if going:
            self._gone()

    def stop(self) -> None:
        with self._lock:
            if not self._over:
                self._over = True
                self._hub.unregister(self._sock)


class Mount:
    """An application at an address: what ``Hub.mount`` gives.

    ``url`` has no trailing slash, ``token`` is random and new for each mount. Functions appended to
    ``on_close`` are called while the mount closes, after its connections were shut down: there an
    application wakes those of its handlers that wait. ``on_reset`` is the same for
    ``reset_connections()``, and ``on_error`` receives what escaped a plain application.
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
        self._token: str | None = None
        self._live: set[Connection] = set()
        self._listening = True
        self._listener, self.port = hub.bind(host, port)

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
    def token(self) -> str:
        """A random credential of this mount, 48 hexadecimal digits."""
        if self._token is None:
            self._token = secrets.token_hex(24)
        return self._token

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
                self.hub.unregister(self._listener)
            self._listener.close()
            live = self._shut_down()
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
            self.hub.unregister(self._listener)
            if _CAN_STOP_LISTENING:
                self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._listener.shutdown(socket.SHUT_RDWR)
            else:  # pragma: no cover - not Linux
                self._listener.close()
        self.reset_connections()

    def accept(self) -> None:
        """Listen again after ``refuse()``."""
        with self.lock:
            if self.closed or self._listening:
                return
            if _CAN_STOP_LISTENING:
                self._listener.listen(BACKLOG)
            else:  # pragma: no cover - not Linux
                self._listener, _ = self.hub.bind(self.host, self.port)
            self._listening = True
            self.hub.register(self._listener, self)

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
        for take in self.on_error:
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
                    sock, address = self._listener.accept()
                except (BlockingIOError, InterruptedError, ConnectionError):
                    return
                connection = Connection(sock, address, self)
                self._live.add(connection)
            self.hub.workers.submit(connection._serve, connection._abandon)

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
            connection._end()
        return live

    def _let_go(self, live: list[Connection], callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
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
                for connection in busy:
                    warnings.warn(_still_here(connection), RuntimeWarning, stacklevel=4)
                return
            self.left.wait(left)
            self.left.clear()
            busy = [c for c in busy if c.inside]

    def _after_fork(self) -> None:
        # The parent serves on; here, descriptors are given back and nothing is shut down.
        self.lock = threading.Lock()
        self.closed = True
        for sock in (self._listener, *(connection.sock for connection in self._live)):
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


class Hub:
    """The listening sockets of the process and the thread that accepts on all of them.

    Starts with the first mount and stops at exit, both without delay. One is enough for a process
    (``default_hub()``); it is safe to use from any thread.
    """

    def __init__(self) -> None:
        self._reset()
        _hubs.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._mounts: set[Mount] = set()
        self._ports = PortAllocator()
        self._selector: selectors.BaseSelector | None = None
        self._wakes = False
        self._wake: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self.workers = WorkerPool()

    @property
    def mounts(self) -> int:
        """How many applications are mounted now."""
        return len(self._mounts)

    def mount(
        self,
        app: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        protocol: ConnectionHandler | None = None,
    ) -> Mount:
        """Serve an application at an address of its own, from now on.

        ``app`` is a ``kernel.app.App`` or any WSGI callable. ``port`` 0 takes the next free one.
        ``tls`` serves HTTPS (or whatever the protocol is) with that context. ``protocol`` replaces
        HTTP: it is called with each ``Connection``, in a thread of its own, and the connection is
        closed when it returns. Raises ``ContractError`` when a given address cannot be had.
        """
        if protocol is None:
            protocol = _http()
        if self._selector is None:
            self._start()
        mount = Mount(self, app, host, port, tls, protocol)
        self._mounts.add(mount)
        self.register(mount._listener, mount)
        return mount

    def stop(self) -> None:
        """Close every mount and end the hub's thread; the next mount starts it again."""
        for mount in list(self._mounts):
            mount.close()
        with self._lock:
            thread, self._thread = self._thread, None
            selector, self._selector = self._selector, None
            wake, self._wake = self._wake, None
        if wake is not None:
            wake.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        del selector

    # -- for mounts and connections --------------------------------------------------------------

    def bind(self, host: str, port: int) -> tuple[socket.socket, int]:
        """A listening socket on the port, or on the next free one when it is 0; and which it is."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol is named because libraries look for it before they set TCP_NODELAY.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setblocking(False)
            if sys.platform == "win32":  # pragma: no cover - Windows
                # There SO_REUSEADDR would let a second process take the port away.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            elif port:
                # A chosen port must be usable again right after a restart.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port:
                sock.bind((host, port))
            bound = port or self._bind_next(sock, host)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            wanted = f"port {port} of {host}" if port else f"any port of {host}"
            raise ContractError(
                f"cannot listen on {wanted}: {error.strerror or error}. "
                "Leave the port out for a free one, or stop what uses it"
            ) from error
        except BaseException:
            sock.close()
            raise
        return sock, bound

    def _bind_next(self, sock: socket.socket, host: str) -> int:
        with self._lock:
            for port in self._ports:
                try:
                    sock.bind((host, port))
                    return port
                except OSError as error:
                    # Taken, or (Windows) reserved by the system: the next one.
                    if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                        raise
        raise OSError(errno.EADDRINUSE, "every port of the range is taken")

    def register(self, sock: socket.socket, data: Mount | _Watch) -> bool:
        """Have ``data.ready()`` called in the hub's thread whenever the socket is readable."""
        selector = self._selector
        if selector is None:
            return False
        try:
            selector.register(sock, selectors.EVENT_READ, data)
        except KeyError:
            # Somebody closed a socket of ours behind our back, and this one got its descriptor.
            selector.unregister(sock.fileno())
            selector.register(sock, selectors.EVENT_READ, data)
        if self._wakes:
            self._nudge()
        return True

    def unregister(self, sock: socket.socket) -> None:
        """Take a socket off again; to be called before it is closed."""
        selector = self._selector
        if selector is None:
            return
        with contextlib.suppress(KeyError, ValueError, OSError):
            selector.unregister(sock)
        if self._wakes:
            self._nudge()

    def forget(self, mount: Mount) -> None:
        """Drop a closed mount."""
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
            # epoll and kqueue see what other threads add while they wait; the others must be woken.
            self._wakes = type(selector).__name__ not in ("EpollSelector", "KqueueSelector")
            self._thread = threading.Thread(
                target=self._run, args=(selector, inner), name="fakecloud-hub", daemon=True
            )
            self._thread.start()
            self._selector = selector

    def _nudge(self) -> None:
        wake = self._wake
        if wake is not None:
            # A full buffer means that the thread is about to wake anyway.
            with contextlib.suppress(OSError):
                wake.send(b"\0")

    def _run(self, selector: selectors.BaseSelector, inner: socket.socket) -> None:
        breath = threading.Event()
        try:
            while True:
                try:
                    ready = selector.select()
                except (OSError, ValueError):
                    _drop_closed(selector)
                    continue
                # Nothing of it stays behind here while the thread sleeps: a mount would keep the
                # data of its test.
                while ready:
                    if not self._attend(selector, inner, ready.pop(0)[0], breath):
                        return
        finally:
            selector.close()
            inner.close()

    def _attend(
        self,
        selector: selectors.BaseSelector,
        inner: socket.socket,
        key: selectors.SelectorKey,
        breath: threading.Event,
    ) -> bool:
        """See to one socket that something came to; whether the thread goes on."""
        if key.data is None:
            return _drained(inner)
        try:
            key.data.ready()
        except OSError as error:
            if error.errno in _NO_SOCKET:
                _drop(selector, key)
            else:
                # Out of descriptors or memory, most likely: whoever waits in the backlog can be
                # accepted when others have left.
                breath.wait(0.01)
        except Exception as error:
            # Whatever is wrong with one socket, even a tool that forbids to make any, the others go
            # on, and this one may get well.
            traceback.print_exception(error, file=sys.stderr)
            breath.wait(0.01)
        return True

    # -- the process -----------------------------------------------------------------------------

    def _after_fork(self) -> None:
        mounts, selector, wake = self._mounts, self._selector, self._wake
        for mount in mounts:
            mount._after_fork()
        if selector is not None:
            keys = list((selector.get_map() or {}).values())
            # Only this process's copy is closed; the parent's waits on.
            selector.close()
            for key in keys:
                if key.data is None and isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
        if wake is not None:
            wake.close()
        self._reset()


def _drained(inner: socket.socket) -> bool:
    try:
        return bool(inner.recv(4096))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _drop(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    with contextlib.suppress(KeyError, ValueError, OSError):
        selector.unregister(key.fileobj)


def _drop_closed(selector: selectors.BaseSelector) -> None:
    for key in list((selector.get_map() or {}).values()):
        try:
            # Asked of the socket, because on Windows it is no file descriptor.
            key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)  # type: ignore[union-attr]
        except OSError:
            _drop(selector, key)


@functools.cache
def _http() -> ConnectionHandler:
    # Only here, so that the hub alone does not import the HTTP server.
    from .server import serve_http

    return serve_http


_hubs: weakref.WeakSet[Hub] = weakref.WeakSet()
_shared: Hub | None = None
_shared_lock = threading.Lock()


def default_hub() -> Hub:
    """The hub of this process."""
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
