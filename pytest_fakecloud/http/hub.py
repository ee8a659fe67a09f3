"""Applications at their addresses, and the threads that serve them.

One thread, which *leads*, waits on all sockets of the hub. It accepts connections, and serves those of
the Redis protocol itself, in the order in which bytes arrive, as a real server does. A thread that is
about to wait for something steps aside first: another thread leads from then on.

Connections of HTTP are passed to workers. Their pool grows without a limit, because a handler may block
for long (a long poll, a callback into the same process) and a keep-alive connection occupies its worker.
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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.errors import ContractError, print_error
from ..core.exits import call_all
from ..core.signals import Signal
from ..core.threads import DaemonThread, WorkerPool, leading, place_of
from ..core.timers import give_way, monotonic
from .arrivals import ARRIVALS, ArrivalSelector, new_selector
from .loop import LoopConnection
from .parsing import BODY_LIMIT
from .ports import BACKLOG, PortAllocator, listen
from .server import Connection, Handler, HTTPHandler, Watch

if TYPE_CHECKING:
    import ssl


Owner: TypeAlias = "Mount | Watch | LoopConnection | _Loop"
"""An object whose socket the hub watches."""
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
        is_in_loop: bool,
    ) -> None:
        self.hub = hub
        self.app = app
        self.tls = tls
        self.protocol = protocol
        self._connection_type = LoopConnection if is_in_loop else Connection
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
            if self.live:
                self._end_connections(self.live)
        self.hub.forget_listener(self)
        # If one raises, the others still wake handlers, which would otherwise wait in vain.
        if self.on_stop:
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

    def ready(self, events: int) -> None:
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
                self.hub.is_scarce = False
                connection = self._connection_type(sock, address, self)
                self.live.add(connection)
            connection.begin()

    def forget(self, connection: Connection) -> None:
        """Close the socket of a connection. Called by the thread that has served it."""
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
        me = threading.get_ident()
        deadline = monotonic() + LEAVE_SECONDS
        handler_returned = self.hub.handler_returned
        while True:
            seen = handler_returned.version
            busy = [c for c in busy if c.inside and c.worker != me]
            remaining = deadline - monotonic()
            if not busy or remaining <= 0:
                return busy
            handler_returned.sleep(seen, remaining)

    def after_fork(self) -> None:
        """Close the copies of the sockets in a child process; its parent keeps serving."""
        self.lock = threading.Lock()
        self.closed = True
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
    text = (
        f"a handler of {connection.mount.url} was still busy {LEAVE_SECONDS:g} s after its server "
        f"was closed: {connection.doing}"
    )
    for thread in threading.enumerate():
        if thread.ident == connection.worker:
            return f"{text}, in thread {thread.name}\n{place_of(connection.worker)}"
    return text


_NO_SOCKET = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_GONE_ALREADY = (KeyError, ValueError, OSError)
SCARCE_SECONDS = 0.05
"""Real seconds to wait after the system ran out of file descriptors or memory."""
PATIENCE_SECONDS = 0.1
"""Maximum real seconds for which a call waits for commands that have arrived before it."""


class _Loop:
    """What the thread that leads waits on: the selector, and the socket by which others wake it."""

    def __init__(self, hub: Hub, selector: selectors.BaseSelector, inner: socket.socket) -> None:
        self._hub = hub
        self.selector = selector
        self.inner = inner
        self.over = threading.Event()
        """Set when the selector is closed."""
        inner.setblocking(False)
        selector.register(inner, selectors.EVENT_READ, weakref.ref(self))

    def ready(self, events: int) -> None:
        """Call the functions of ``Hub.later()``, or end if ``Hub.stop()`` has closed the other end."""
        try:
            is_over = not self.inner.recv(4096)
        except BlockingIOError:
            is_over = False
        except OSError:
            is_over = True
        if is_over:
            self._hub.stop_leading()
            self.close()
        else:
            self._hub.run_later()

    def close(self) -> None:
        for key in [*self.selector.get_map().values()]:
            owner = key.data()
            if isinstance(owner, LoopConnection):
                owner.close()
        self.selector.close()
        self.inner.close()
        self.over.set()


class _Pass(NamedTuple):
    """A call that waits until the connections have been read once: its taken lock, and its deadline."""

    lock: Any
    deadline: float


class Hub:
    """The sockets of the process's fakes, and the thread that waits on all of them.

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
        self._wakes = self._lists_arrivals = False
        self._wake: socket.socket | None = None
        self.is_scarce = False
        """Whether no connection could be accepted since this was reported."""
        self._loop: _Loop | None = None
        self._leader = 0
        """The thread that leads; 0 until the next one has begun."""
        self._current: Owner | None = None
        """The owner of the socket that the leading thread handles."""
        self._watched: set[LoopConnection] = set()
        """The connections whose sockets this hub watches, which it keeps alive."""
        self._ready: deque[tuple[selectors.SelectorKey, int]] = deque()
        """The sockets that are ready and not handled yet."""
        self._unsent: dict[LoopConnection, None] = {}
        """The connections with something to send, in order."""
        self._unfinished: deque[LoopConnection] = deque()
        """The connections with further commands, which have used up their turn."""
        self._awaited: deque[_Pass] = deque()
        """The calls that wait until the connections have been read."""
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
        is_in_loop: bool = False,
    ) -> Mount:
        """Serve an ``http.app.App`` at its own address.

        ``port`` 0 takes the next free port. With ``tls``, a server's TLS context, connections use
        TLS. ``protocol`` replaces HTTP: it returns the ``Handler`` of a ``Connection``, which is closed
        with the connection. ``prepare`` is called with the mount before it accepts connections.
        ``listener`` is a socket that listens at the address already. With ``is_in_loop``, the hub's
        thread serves the connections, in the order in which bytes arrive, instead of a thread for
        each. The mount closes when the caller drops its last reference. Raises ``ContractError`` if
        the address is not available.
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
            is_in_loop=is_in_loop,
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
            loop, self._loop = self._loop, None
            wake, self._wake = self._wake, None
            self._selector = None  # The thread that leads closes it.
        if wake is not None:
            wake.close()
        if loop is not None and not self.leads():
            loop.over.wait(1.0)

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

    def register(
        self,
        sock: socket.socket,
        owner: Callable[[], Owner | None],
        events: int = selectors.EVENT_READ,
    ) -> bool:
        """Call ``ready()`` of the owner whenever the socket is ready; return False if the hub does not
        run. It does not keep the owner alive.
        """
        selector = self._selector
        if selector is None:
            return False
        try:
            selector.register(sock, events, owner)
        except KeyError:
            # Other code closed a socket of the hub, whose file descriptor the new socket received.
            selector.unregister(sock.fileno())
            selector.register(sock, events, owner)
        if self._wakes:
            self._nudge()
        return True

    def watch(self, connection: LoopConnection, before: int, events: int) -> None:
        """Call ``ready()`` of a connection for other events than before; for none if they are 0."""
        if self._lists_arrivals and events & selectors.EVENT_READ:
            events ^= selectors.EVENT_READ | ARRIVALS
        if not events:
            self.unregister(connection.sock)
            self._watched.discard(connection)
        elif not before:
            self._watched.add(connection)
            self.register(connection.sock, connection.reference, events)
        elif (selector := self._selector) is not None:
            selector.modify(connection.sock, events, connection.reference)

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

    # -- the connections that the hub's thread serves ------------------------------------------------

    def leads(self) -> bool:
        """Return whether the calling thread waits on the sockets and serves connections."""
        return self._leader == threading.get_ident()

    def _pass_on(self) -> None:
        """Let another thread lead, if the calling thread does, which steps aside. It gives the
        connection that it serves back when it has handled the requests of it.
        """
        loop = self._loop
        if loop is None or not self.leads():
            return
        owner, self._current = self._current, None
        if isinstance(owner, LoopConnection):
            owner.is_aside = True
            self.go_on_later(owner)  # Its client may have left already.
        me, self._leader = self._leader, 0
        if self._later:
            self._nudge()  # This thread has read the bytes of these functions, and leaves them.

        def stay() -> None:
            """Go on leading, because the system has refused another thread."""
            self._leader, self._current = me, owner
            if isinstance(owner, LoopConnection):
                owner.is_aside = False

        self.workers.submit(partial(self._lead, loop), stay)

    def send_soon(self, connection: LoopConnection) -> None:
        """Have the thread that leads send what was written to a connection."""
        if self._leader == threading.get_ident():
            self._unsent[connection] = None
        else:
            self.later(connection.flush)

    def go_on_later(self, connection: LoopConnection) -> None:
        """Serve a connection again after those at which bytes have arrived."""
        self._unfinished.append(connection)

    def catch_up(self) -> None:
        """Wait until the requests that have arrived at connections of the loop are handled."""
        if not self._watched or self._loop is None or self.leads():
            return
        lock = threading.Lock()
        lock.acquire()
        awaited = _Pass(lock, monotonic() + PATIENCE_SECONDS)
        self.later(partial(self._awaited.append, awaited))
        lock.acquire(timeout=PATIENCE_SECONDS)

    # -- the thread ------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._selector is not None:
                return
            selector = new_selector()
            inner, self._wake = socket.socketpair()
            self._wake.setblocking(False)
            # epoll and kqueue notice sockets added while they wait; others must be woken.
            self._lists_arrivals = isinstance(selector, ArrivalSelector)
            is_kqueue = type(selector).__name__ == "KqueueSelector"
            self._wakes = not (self._lists_arrivals or is_kqueue)
            self._loop = _Loop(self, selector, inner)
            DaemonThread("hub", self._lead, (self._loop,)).start()
            self._selector = selector

    def _nudge(self) -> None:
        wake = self._wake
        if wake is not None:
            # Ignore a full buffer: the thread is then about to wake anyway.
            with contextlib.suppress(OSError):
                wake.send(b"\0")

    def _lead(self, loop: _Loop) -> None:
        """Wait on the sockets, and serve those that are ready, until the hub stops or this thread has
        stepped aside, which it may do wherever it serves or closes a connection.
        """
        me = self._leader = threading.get_ident()
        leading.pass_on = self._pass_on
        ready, unsent, unfinished = self._ready, self._unsent, self._unfinished
        while self._leader == me:
            # Keep no owner alive while waiting.
            self._current = owner = None
            if unsent:
                self._send_unsent(me)
                continue
            # Calls that begin to wait from now on wait until the sockets have been listed once more.
            awaited = len(self._awaited)
            try:
                ready.extend(loop.selector.select(0 if ready or unfinished or awaited else None))
            except (OSError, ValueError):
                _drop_closed(loop.selector)
            while ready and self._leader == me:
                key, events = ready.popleft()
                owner = self._current = key.data()
                if owner is not None:
                    try:
                        owner.ready(events)
                    except Exception as error:
                        self._go_on_after(error, loop, key, owner)
            if unfinished or awaited:
                self._go_on(me, awaited)
        # A traceback of an earlier request that somebody keeps refers to this frame and its variables.
        owner = None
        leading.pass_on = None

    def _send_unsent(self, me: int) -> None:
        """Send what the served requests have caused, after all of them, as a real server does. The
        failure of one connection affects no other.
        """
        while self._unsent and self._leader == me:
            try:
                self._unsent.popitem()[0].flush()
            except Exception as error:
                print_error(error)

    def _go_on(self, me: int, awaited: int) -> None:
        """Serve the connections with further commands once, and wake those of the first ``awaited``
        calls that need not wait any longer.
        """
        for _ in range(len(self._unfinished)):
            if self._leader != me:
                return
            connection = self._current = self._unfinished.popleft()
            try:
                connection.go_on()
            except Exception as error:
                print_error(error)
        if self._leader == me:
            for _ in range(awaited):
                call = self._awaited.popleft()
                if self._unfinished and monotonic() <= call.deadline:
                    self._awaited.append(call)
                else:
                    call.lock.release()

    def _go_on_after(
        self, error: Exception, loop: _Loop, key: selectors.SelectorKey, owner: Owner
    ) -> None:
        """Continue after an error of a socket, which must not affect the others."""
        if not isinstance(error, OSError):
            # It may work again later, e.g. when a tool that forbids creating sockets is switched off.
            print_error(error)
            give_way(0.01)
        elif error.errno in _NO_SOCKET:
            _drop(loop.selector, key)
        else:
            # The system is out of file descriptors or memory. Clients stay in the backlog and can be
            # accepted after others disconnect.
            self._report_scarce(owner, error)
            give_way(SCARCE_SECONDS)

    def stop_leading(self) -> None:
        self._leader = 0

    def run_later(self) -> None:
        """Call the functions of ``later()``."""
        me = self._leader
        while self._later and self._leader == me:
            try:
                self._later.popleft()()
            except BaseException as error:
                print_error(error)

    def _report_scarce(self, owner: object, error: OSError) -> None:
        if self.is_scarce:
            return  # report each shortage only once
        self.is_scarce = True
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
        mounts, loop, wake = self.open_mounts(), self._loop, self._wake
        for mount in mounts:
            mount.after_fork()
        if loop is not None:
            # Close only this process's copies; the parent's stay open.
            loop.selector.close()
            loop.inner.close()
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
