"""Applications at their addresses, the thread that accepts connections, and its workers.

One daemon thread waits on all listening sockets and passes accepted connections to idle workers.
The pool grows without a limit, because a handler may block for long (a long poll, a callback into
the same process) and a keep-alive connection occupies its worker.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import selectors
import socket
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError, print_error
from ..core.exits import call_all
from ..core.signals import Signal
from ..core.threads import DaemonThread, WorkerPool, place_of
from ..core.timers import give_way, monotonic
from .arrivals import Arrivals
from .parsing import BODY_LIMIT
from .ports import BACKLOG, PortAllocator, listen
from .server import Connection, Handler, HTTPHandler, Watch

if TYPE_CHECKING:
    import ssl


# On Linux, a socket can stop listening, so that connections are refused, and still keep its port.
CAN_STOP_LISTENING = sys.platform.startswith("linux")
LEAVE_SECONDS = 1.0
_ACCEPTS = 64  # maximum connections accepted from one listener before the others get their turn


class Mount:
    """An application at an address. ``Hub.mount()`` returns it.

    ``url`` has no trailing slash. ``stop()`` calls the functions in ``on_stop`` after it has shut the
    connections down, so that an application can wake its waiting handlers. ``reset_connections()``
    and ``renew_connections()`` call the functions in ``on_reset`` for the same reason. The functions
    in ``on_error`` receive exceptions of connections; an ``App`` turns those of its endpoints into
    responses. ``body_limit`` is the maximum size of a request's body in bytes.
    """

    body_limit: int = BODY_LIMIT
    closed = False
    _listening = True

    def __init__(
        self,
        hub: Hub,
        app: Any,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        protocol: Callable[[Connection], Handler],
        listener: socket.socket | None,
        arrivals: Arrivals | None,
    ) -> None:
        self.hub = hub
        self.app = app
        self.tls = tls
        self.protocol = protocol
        self.arrivals = arrivals
        self.host = host
        self.lock = threading.Lock()
        self.on_stop: list[Callable[[], None]] = []
        self.on_reset: list[Callable[[], None]] = []
        self.on_error: list[Callable[[BaseException], None]] = []
        self.live: set[Connection] = set()
        self.listener, self.port = hub.bind(host, port) if listener is None else (listener, port)
        hub.add_listener(self)
        self.address = host, self.port
        self.origin = "http" if tls is None else "https", host, self.port
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{self.origin[0]}://{shown}:{self.port}"

    def __repr__(self) -> str:
        return f"<Mount {self.url}{' closed' if self.closed else ''}>"

    def close(self) -> None:
        """Close the address and all connections. Return immediately unless a handler is busy.

        Handlers that are in the engine get one real second to return; for each handler that does
        not, a ``RuntimeWarning`` names it and shows its stack. Idle connections are closed without
        waiting. Can be called repeatedly and from any thread, including a handler's.
        """
        try:
            self.stop()
        finally:
            self.await_handlers()

    def stop(self) -> None:
        """Close the address and shut all connections down, without waiting for handlers."""
        # Each part can be repeated, because a signal's handler can interrupt any of them.
        with self.lock:
            self.closed = True
            self._close_listener()
            self._end_connections(self.live)
        self.hub.forget_listener(self)
        # If one raises, the others still wake handlers, which would otherwise wait in vain.
        call_all(tuple(self.on_stop))

    def await_handlers(self) -> None:
        """Wait for the handlers of a stopped mount, and warn of those that stay in the engine."""
        self._warn_of_busy(list(self.live))

    def reset_connections(self) -> None:
        """Close all connections but keep the address. Waits like ``close()`` for busy handlers."""
        with self.lock:
            live = self._end_connections(self.live)
        self._wake_handlers(live)

    def renew_connections(self) -> None:
        """Close the connections with a request in progress. Idle ones stay, as at a real server that
        runs for many tests, and lose the state of the test before.
        """
        busy = [connection for connection in self.live.copy() if not connection.renew()]
        with self.lock:
            busy = self._end_connections(self.live.intersection(busy))
        if busy:
            self._wake_handlers(busy)

    def refuse(self) -> None:
        """Close all connections, and keep the port without listening until ``listen_again()``. Both can
        be repeated, also after an exception at any place in one of them.
        """
        with self.lock:
            if self.closed:
                return
            self._listening = False
            if CAN_STOP_LISTENING:
                # ready() then unregisters it. A second shutdown would also end later connections.
                if self.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    self.listener.shutdown(socket.SHUT_RDWR)
            else:
                self._close_listener()
        self.reset_connections()

    @property
    def is_listening(self) -> bool:
        return self._listening and not self.closed

    def listen_again(self) -> None:
        """Listen again after ``refuse()``."""
        deadline = monotonic() + LEAVE_SECONDS
        while True:
            try:
                self._try_to_listen()
                return
            except ContractError:
                # On Windows, the port is free only after its last connection was closed: try again.
                if monotonic() > deadline:
                    raise
            give_way(0.01)

    def _try_to_listen(self) -> None:
        with self.lock:
            if self.closed:
                return
            if CAN_STOP_LISTENING:
                self.listener.listen(BACKLOG)
            elif not self._listening:
                self._close_listener()
                self.listener, _ = self.hub.bind(self.host, self.port)
                self.hub.add_listener(self)
            self._listening = True
        # In the hub's thread, which no signal's handler interrupts: the selector has two lists of its
        # sockets, and one that is in only one of them can be neither registered nor unregistered.
        self.hub.later(self._register)

    def _register(self) -> None:
        with self.lock:
            if self._listening and not self.closed:
                self.hub.register(self.listener, weakref.ref(self))

    def _close_listener(self) -> None:
        self.hub.unregister(self.listener)
        self.listener.close()

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
                    self.hub.unregister(self.listener)
                    return
                try:
                    sock, address = self.listener.accept()
                except (BlockingIOError, InterruptedError, ConnectionError):
                    return
                connection = Connection(sock, address, self)
                self.live.add(connection)
            self.hub.workers.submit(connection.serve, partial(self.forget, connection))

    def forget(self, connection: Connection) -> None:
        """Close a connection after a worker has served it. Called by that worker."""
        with self.lock:
            self.live.discard(connection)
            with contextlib.suppress(OSError):
                connection.sock.close()

    def _end_connections(self, connections: Iterable[Connection]) -> list[Connection]:
        ended = list(connections)
        for connection in ended:
            connection.end()
        return ended

    def _wake_handlers(self, ended: list[Connection]) -> None:
        """Wake the handlers of ended connections, and warn of those that stay in the engine."""
        try:
            call_all(tuple(self.on_reset))
        finally:
            self._warn_of_busy(ended)

    def _warn_of_busy(self, ended: list[Connection]) -> None:
        for connection in self._still_busy(ended) if ended else ():
            warnings.warn(_describe_busy(connection), RuntimeWarning, stacklevel=4)

    def _still_busy(self, busy: list[Connection]) -> list[Connection]:
        """Wait for handlers in the engine; return the connections of those that stay there."""
        me = threading.current_thread()
        deadline = monotonic() + LEAVE_SECONDS
        handler_returned = self.hub.handler_returned
        while True:
            seen = handler_returned.version
            busy = [c for c in busy if c.inside and c.worker is not me]
            remaining = deadline - monotonic()
            if not busy or remaining <= 0:
                return busy
            handler_returned.sleep(seen, remaining)

    def after_fork(self) -> None:
        """Close the copies of the sockets in a child process; its parent keeps serving."""
        self.lock = threading.Lock()
        self.closed = True
        if self.arrivals is not None:
            self.arrivals.forget_all()
        with contextlib.suppress(OSError):
            self.listener.close()
        for connection in self.live:
            connection.after_fork()
        self.live.clear()

    def reopen(self) -> None:
        """Serve again in a forked process, at the port of a new ``listener``."""
        self.closed, self._listening = False, True
        self.listener = listen(self.host, 0)
        self.hub.add_listener(self)
        self.hub.add_mount(self)


def _describe_busy(connection: Connection) -> str:
    worker = connection.worker
    text = (
        f"a handler of {connection.mount.url} was still busy {LEAVE_SECONDS:g} s after its server "
        f"was closed: {connection.doing}"
    )
    if worker is None:
        return text
    return f"{text}, in thread {worker.name}\n{place_of(worker.ident or 0)}"


_NO_SOCKET = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_GONE_ALREADY = (KeyError, ValueError, OSError)
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
        self._listeners: dict[weakref.ref[Mount], socket.socket] = {}
        """The listening sockets of the mounts that are not closed. The hub keeps no mount alive."""
        self._later: deque[Callable[[], object]] = deque()
        self.ports = PortAllocator()
        self._selector: selectors.BaseSelector | None = None
        self._wakes = False
        self._wake: socket.socket | None = None
        self._scarce = False
        self._thread: threading.Thread | None = None
        self.workers = WorkerPool()
        self.handler_returned = Signal()
        """Wakes mounts that close when a handler of an ended connection has returned."""

    def mount(
        self,
        app: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        protocol: Callable[[Connection], Handler] | None = None,
        prepare: Callable[[Mount], object] | None = None,
        listener: socket.socket | None = None,
        arrivals: Arrivals | None = None,
    ) -> Mount:
        """Serve an ``http.app.App`` at its own address.

        ``port`` 0 takes the next free port. With ``tls``, a server's TLS context, connections use
        TLS. ``protocol`` replaces HTTP: it returns the ``Handler`` of a ``Connection``, which is closed
        with the connection. ``prepare`` is called with the mount before it accepts connections.
        ``listener`` is a socket that listens at the address already. ``arrivals`` gives its connections
        turns in the order in which bytes arrive. The mount closes when the caller drops its last
        reference. Raises ``ContractError`` if the address is not available.
        """
        # Remove the final dot of "localhost.", because clients compare host names as strings.
        mount = Mount(
            self,
            app,
            host=host.rstrip(".") or host,
            port=port,
            tls=tls,
            protocol=protocol or HTTPHandler,
            listener=listener,
            arrivals=arrivals,
        )
        if prepare is not None:
            prepare(mount)
        self.add_mount(mount)
        return mount

    def add_mount(self, mount: Mount) -> None:
        """Accept connections of a mount that listens."""
        if self._selector is None:
            self._start()
        self.register(mount.listener, weakref.ref(mount))

    def stop(self) -> None:
        """Close every mount and end the hub's thread. The next mount starts it again."""
        for mount in self.open_mounts():
            mount.close()
        with self._lock:
            thread, self._thread = self._thread, None
            wake, self._wake = self._wake, None
            self._selector = None  # The hub's thread closes it.
        if wake is not None:
            wake.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def open_mounts(self) -> list[Mount]:
        references = self._listeners.copy()
        return [mount for reference in references if (mount := reference()) is not None]

    def add_listener(self, mount: Mount) -> None:
        """Close the listening socket when the mount is garbage-collected, unless it has closed."""
        # Not by a __del__() of the mount: it would run for closed mounts, too, and Python ignores the
        # exception of a signal's handler that arrives there.
        self._listeners[weakref.ref(mount, self._close_listener)] = mount.listener

    def forget_listener(self, mount: Mount) -> None:
        """Forget the listening socket of a mount that has closed it."""
        self._listeners.pop(weakref.ref(mount), None)

    def _close_listener(self, reference: weakref.ref[Mount]) -> None:
        # Take no lock here: the garbage collector may run in code that holds it.
        listener = self._listeners.pop(reference, None)
        if listener is not None:
            self.unregister(listener)
            listener.close()

    # -- for mounts and connections --------------------------------------------------------------

    def bind(self, host: str, port: int) -> tuple[socket.socket, int]:
        """Return a listening socket and its port. For port 0, use the next free port."""
        try:
            return (listen(host, port), port) if port else self._listen_at_next(host)
        except TypeError as error:
            raise ContractError(f"host={host!r} is not a host name: {error}") from error
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # the system is out of file descriptors, so another port would not help
            wanted = f"port {port} of {host}" if port else f"any port of {host}"
            raise ContractError(
                f"cannot listen on {wanted}: {error.strerror or error}. "
                "Omit the port to use a free one, or stop the program that uses this port"
            ) from error

    def _listen_at_next(self, host: str) -> tuple[socket.socket, int]:
        with self._lock:
            for _ in self.ports.ports:
                port = self.ports.take()
                try:
                    return listen(host, port, is_given=False), port
                except OSError as error:
                    # The port is in use, or reserved by Windows, so try the next port.
                    if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                        raise
        raise OSError(errno.EADDRINUSE, "every port of the range is in use")

    def register(self, sock: socket.socket, owner: weakref.ref[Mount] | weakref.ref[Watch]) -> bool:
        """Call ``ready()`` of the owner whenever the socket is readable; return False if not running.
        The hub does not keep the owner alive.
        """
        selector = self._selector
        if selector is None:
            return False
        try:
            selector.register(sock, selectors.EVENT_READ, owner)
        except KeyError:
            # Other code closed a socket of the hub, whose file descriptor the new socket received.
            selector.unregister(sock.fileno())
            selector.register(sock, selectors.EVENT_READ, owner)
        if self._wakes:
            self._nudge()
        return True

    def unregister(self, sock: socket.socket) -> None:
        """Stop watching a socket. Call this before closing it."""
        selector = self._selector
        if selector is None:
            return
        try:
            selector.unregister(sock)
        except _GONE_ALREADY:
            return
        if self._wakes:
            self._nudge()

    def later(self, function: Callable[[], object]) -> None:
        """Call a function in the hub's thread. Takes no lock, so finalizers can call it."""
        self._later.append(function)
        self._nudge()

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
            self._thread = DaemonThread("hub", self._run, (selector, inner))
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
                    if not self._handle_ready(selector, inner, ready.pop(0)[0]):
                        return
        finally:
            selector.close()
            inner.close()

    def _handle_ready(
        self, selector: selectors.BaseSelector, inner: socket.socket, key: selectors.SelectorKey
    ) -> bool:
        """Handle one ready socket; return whether the thread continues."""
        if key.data is None:
            return self._run_later(inner)
        owner: Mount | Watch | None = key.data()
        if owner is None:
            return True
        try:
            owner.ready()
            self._scarce = False
        except OSError as error:
            if error.errno in _NO_SOCKET:
                _drop(selector, key)
            else:
                # The system is out of file descriptors or memory. Clients stay in the backlog and
                # can be accepted after others disconnect.
                self._report_scarce(owner, error)
                give_way(SCARCE_SECONDS)
        except Exception as error:
            # Continue, because a failing socket must not affect the others. It may work again
            # later, e.g. when a tool that forbids creating sockets is switched off.
            print_error(error)
            give_way(0.01)
        return True

    def _run_later(self, inner: socket.socket) -> bool:
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

    def _report_scarce(self, owner: object, error: OSError) -> None:
        if self._scarce:
            return  # report each shortage only once
        self._scarce = True
        advice = ""
        if error.errno in _SCARCE:
            advice = ". Close unused clients, or raise the limit (ulimit -n)"
        print(
            f"pytest-fakecloud: {owner!r} cannot accept a connection: {error.strerror or error}; "
            f"clients wait until others disconnect{advice}",
            file=sys.stderr,
        )

    # -- fork and exit ---------------------------------------------------------------------------

    def after_fork(self) -> None:
        mounts, selector, wake = self.open_mounts(), self._selector, self._wake
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
    with contextlib.suppress(*_GONE_ALREADY):
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
        hub.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
