"""The order in which bytes arrive at the connections of a mount.

A real server has one thread, which reads its connections in the order in which bytes arrive. Here each
connection has a thread, because its commands may wait, and threads that are woken together run in any
order. A client that sends a command without waiting for the reply relies on the order, as ``PubSub`` of
redis-py does: ``pubsub.subscribe("news"); client.publish("news", "text")``.
"""

from __future__ import annotations

import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .server import Connection


PATIENCE_SECONDS = 0.1
"""Maximum real seconds to wait for the end of one turn: its client may read no replies."""
_epoll: Any = getattr(select, "epoll", None)
"""``select.epoll``, also while a test has replaced it; None on systems without it."""


class _Call:
    """A REST request or a call of a fixture: it waits for earlier arrivals, and nothing waits for it."""


Waiting: TypeAlias = "Connection | _Call"


class Arrivals:
    """Gives the threads of connections turns to handle bytes, in the order of arrival.

    epoll lists connections in this order. On systems without it, connections do not wait for each other.
    A turn ends when the thread has handled all complete requests. It ends earlier if the thread is about
    to wait for something, or to call the test's code, which may wait. The connection is then *aside*
    until the thread has handled these requests: no other connection waits for it.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Set the state of an object without connections: at first, and in a forked process."""
        self._lock = threading.RLock()
        """The lock of all attributes. No thread waits while it holds it. A signal's handler can call the
        fake in a thread that holds it.
        """
        self._poll: Any = None
        """Lists arrivals; None without connections."""
        self._connections: dict[int, Connection] = {}
        """All connections of which arrivals are listed, by file descriptor."""
        self._order: dict[Waiting, None] = {}
        """The connections of arrivals that no thread handles yet, and calls, in order of arrival. The
        values mean nothing.
        """
        self._holder: Connection | None = None
        """The connection whose turn it is."""
        self._holding_thread = 0
        self._aside: set[Waiting] = set()
        """The connections whose turn has ended before they have handled all requests."""
        self._sleepers: dict[Waiting, threading.Lock] = {}
        """A taken lock for each thread that sleeps."""

    def add(self, connection: Connection) -> None:
        if _epoll is None:
            return
        fileno = connection.sock.fileno()
        # Without free file descriptors, serve the connection, but do not list its arrivals.
        with self._lock, suppress(OSError):
            if self._poll is None:
                self._poll = _epoll()
            self._poll.register(fileno, select.EPOLLIN | select.EPOLLET)
            self._connections[fileno] = connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection. Call this before its socket is closed."""
        with self._lock:
            for fileno in [at for at, other in self._connections.items() if other is connection]:
                del self._connections[fileno]
                with suppress(OSError):  # Other code may have closed the socket.
                    self._poll.unregister(fileno)
            self._set_aside(connection)
            self._aside.discard(connection)
            if self._poll is not None and not self._connections:
                self._poll.close()
                self._poll = None

    def catch_up(self) -> None:
        """Wait until the bytes that have arrived are handled, unless the calling thread handles them."""
        if self._poll is not None and self._holding_thread != threading.get_ident():
            call = _Call()
            try:
                self.await_turn(call)
            finally:
                with self._lock:
                    self._order.pop(call, None)
                    self._sleepers.pop(call, None)

    def await_turn(self, waiting: Waiting) -> None:
        """Wait until earlier arrivals are handled, and begin the turn of a connection."""
        while True:
            with self._lock:
                self._sleepers.pop(waiting, None)
                if self._poll is None:
                    return
                self._list_arrivals()
                self._aside.discard(waiting)
                self._order.setdefault(waiting)
                first = self._first(waiting)
                if first is waiting:
                    del self._order[waiting]
                    if not isinstance(waiting, _Call):
                        self._holder, self._holding_thread = waiting, threading.get_ident()
                    return
                sleeper = threading.Lock()
                sleeper.acquire()  # Before any other code can find it, and release it.
                self._sleepers[waiting] = sleeper
            if not sleeper.acquire(timeout=PATIENCE_SECONDS):
                with self._lock:
                    if waiting in self._order and self._first(waiting) is first:
                        self._set_aside(first)

    def end_turn(self, connection: Connection) -> None:
        """End the turn of a connection, because its thread has handled all complete requests."""
        with self._lock:
            self._aside.discard(connection)
            if self._holder is connection:
                self._holder, self._holding_thread = None, 0
            # The arrival of bytes that the thread has read may have been listed after the turn began.
            if connection in self._order and not connection.has_arrived():
                del self._order[connection]
            self._wake()

    def step_aside(self) -> None:
        """End the turn of the calling thread, if it has one, because it may wait for something."""
        with self._lock:
            if self._holder is not None and self._holding_thread == threading.get_ident():
                self._set_aside(self._holder)

    # -- with the lock ---------------------------------------------------------------------------

    def _list_arrivals(self) -> None:
        """List the connections at which bytes have arrived since the last call."""
        for fileno, _ in self._poll.poll(0):
            connection = self._connections.get(fileno)
            if connection is not None and connection not in self._aside:
                self._order.setdefault(connection)

    def _first(self, waiting: Waiting) -> Waiting:
        """Return the connection whose turn comes before, or the connection or call that waits itself."""
        if self._holder is not None:
            return self._holder
        # The list is a copy, because a signal's handler can change the order during the loop.
        order = [*self._order]
        return next(other for other in order if other is waiting or not isinstance(other, _Call))

    def _set_aside(self, waiting: Waiting) -> None:
        self._aside.add(waiting)
        if self._holder is waiting:
            self._holder, self._holding_thread = None, 0
        self._order.pop(waiting, None)
        self._wake()

    def _wake(self) -> None:
        """Wake the connection whose turn is next, and the calls that have waited for earlier ones."""
        if self._holder is not None:
            return
        for waiting in [*self._order]:
            sleeper = self._sleepers.pop(waiting, None)
            if sleeper is not None:
                sleeper.release()
            if not isinstance(waiting, _Call):
                return
