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
"""Maximum real seconds to wait for one handler, because it may wait itself, e.g. for a fault's delay."""
_epoll: Any = getattr(select, "epoll", None)
"""The class of the standard library, which a test may replace; None if the system has none."""


class _Call:
    """A call of the test, which waits for arrivals and is not one itself."""

    def has_arrived(self) -> bool:
        return False


Waiting: TypeAlias = "Connection | _Call"


class Arrivals:
    """Gives the threads of connections turns to handle bytes, in the order of arrival.

    epoll lists connections in this order. On systems without it, connections do not wait for each other.
    A turn ends when the thread has handled all complete requests, or when a handler waits.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Set the state of an object without connections: at first, and in a forked process."""
        self._lock = threading.Lock()
        """The lock of all attributes. No thread waits while it holds it."""
        self._poll: Any = None
        """Lists arrivals; None without connections."""
        self._connections: dict[int, Connection] = {}
        """All connections, by file descriptor."""
        self._order: list[Waiting] = []
        """The connections of arrivals that no thread handles yet, and the calls that wait for them."""
        self._holder: Waiting | None = None
        """The connection or the call whose turn it is."""
        self._holding_thread = 0
        self._aside: set[Waiting] = set()
        """Connections whose handlers wait. Others do not wait for them."""
        self._sleepers: dict[Waiting, threading.Lock] = {}
        """A taken lock for each thread that sleeps until its turn."""

    def add(self, connection: Connection) -> None:
        if _epoll is None:
            return
        fileno = connection.sock.fileno()
        with self._lock:
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
        if self._connections and self._holding_thread != threading.get_ident():
            call = _Call()
            try:
                self.await_turn(call)
            finally:
                self.end_turn(call)

    def await_turn(self, waiting: Waiting) -> None:
        """Wait until earlier arrivals are handled, and begin the turn of the calling thread."""
        while True:
            with self._lock:
                if self._poll is None:
                    return
                self._list_arrivals()
                self._aside.discard(waiting)
                if waiting not in self._order:
                    self._order.append(waiting)
                first = self._first()
                if first is waiting:
                    self._order.remove(waiting)
                    self._holder, self._holding_thread = waiting, threading.get_ident()
                    return
                sleeper = self._sleepers[waiting] = threading.Lock()
                sleeper.acquire()
            if not sleeper.acquire(timeout=PATIENCE_SECONDS):
                with self._lock:
                    if waiting in self._order and self._first() is first:
                        self._set_aside(first)

    def end_turn(self, waiting: Waiting) -> None:
        """End the turn of a connection or call, if it has one."""
        with self._lock:
            self._aside.discard(waiting)
            self._sleepers.pop(waiting, None)
            if self._holder is waiting:
                self._holder, self._holding_thread = None, 0
            # Bytes of later arrivals may have been read together with the first ones.
            if waiting in self._order and not waiting.has_arrived():
                self._order = [other for other in self._order if other is not waiting]
            self._wake_first()

    def set_aside(self, connection: Connection) -> None:
        """End the turn of a connection whose handler waits for something."""
        with self._lock:
            self._set_aside(connection)

    # -- with the lock ---------------------------------------------------------------------------

    def _list_arrivals(self) -> None:
        """Append the connections at which bytes have arrived since the last call."""
        for fileno, _ in self._poll.poll(0):
            connection = self._connections.get(fileno)
            if connection is not None and connection not in self._aside:
                self._order.append(connection)

    def _first(self) -> Waiting:
        """Return the connection or call whose turn it is, or should be next."""
        return self._order[0] if self._holder is None else self._holder

    def _set_aside(self, waiting: Waiting) -> None:
        self._aside.add(waiting)
        if self._holder is waiting:
            self._holder, self._holding_thread = None, 0
        self._order = [other for other in self._order if other is not waiting]
        self._wake_first()

    def _wake_first(self) -> None:
        if self._holder is None and self._order:
            sleeper = self._sleepers.pop(self._order[0], None)
            if sleeper is not None:
                sleeper.release()
