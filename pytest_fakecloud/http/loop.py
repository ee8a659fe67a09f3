"""Serves connections in the thread that waits for all of them, as a real Redis server does.

The thread reads what has arrived and passes it to the connection's handler. It never waits for a client:
what a socket does not take at once is sent when it can be. It does not wait for anything else either.
Code that may wait calls ``step_aside()`` first, and goes on in a thread of its own: its connection
is *aside* until the handler returns. In the meantime, the connection is only read.
"""

from __future__ import annotations

import socket
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any

from ..core.threads import step_aside
from .arrivals import LEFT
from .server import HANG_SECONDS, READ_BYTES, Connection, Handler

if TYPE_CHECKING:
    from .hub import Mount

SEND_BYTES = 256 * 1024
"""Maximum number of bytes of small messages that are sent together, and number of bytes to send above
which no further requests of a connection are handled: a few bytes can ask for any number of responses.
"""
EARLY_BYTES = 16 * 1024 * 1024
"""Number of bytes that are read of a connection that is aside."""
_MOST_SENT = 1024 * 1024
"""Number of bytes after which other connections get their turn, before more is sent."""
_PER_MESSAGE = 64
"""Estimated size in bytes of a message apart from its contents."""
_NOT_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class LoopConnection(Connection):
    """A connection that the hub's thread serves. Only this thread uses the socket.

    ``write()`` and ``cut()`` can be called in any thread. Whoever calls ``write()`` orders the messages.
    """

    doing = "a command of the database port"

    def __init__(self, sock: socket.socket, address: Any, mount: Mount) -> None:
        super().__init__(sock, address, mount)
        self.reference = weakref.ref(self)
        """The reference through which the hub finds the connection, which its mount keeps alive."""
        self.is_aside = False
        """Whether a thread that has stepped aside handles requests of the connection."""
        self._shakes_hands = False
        """Whether the handshake of TLS is in progress."""
        self._events = 0
        """The events that the hub watches."""
        self._messages: deque[bytes | memoryview] = deque()
        """The messages to send, in order; of the first one, the rest. Any thread adds messages, and only
        the hub's thread removes them.
        """
        self._written_bytes = 0
        """The size of all messages that were ever written; only threads that write change it."""
        self._sent_bytes = 0
        """The size of those that were sent; only the hub's thread changes it."""
        self._has_more = False
        """Whether unread bytes may remain that the hub does not report again."""
        self._is_stalled = False
        """Whether further requests wait until the client has taken what was sent."""
        self._has_left = False
        """Whether the client sends nothing more."""
        self._ends = False
        """Whether the connection is closed as soon as all messages are sent."""
        self._is_closed = False
        self._end_of_hang = threading.Event()

    # -- in the hub's thread -----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to serve the connection."""
        tls = self.mount.tls
        try:
            self.sock.setblocking(False)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                with self.mount.lock:  # Another thread may be ending the connection.
                    self.sock = tls.wrap_socket(
                        self.sock, server_side=True, do_handshake_on_connect=False
                    )
                self._shakes_hands = True
            self.handler = self.mount.protocol(self)
            self._watch(EVENT_READ)
        except (OSError, ValueError):
            self.close()

    def ready(self, events: int) -> None:
        """Send and read what is possible without waiting."""
        if self._shakes_hands:
            self._shake_hands()
            return
        if events & EVENT_WRITE:
            self.flush()
        if events & EVENT_READ:
            if events & LEFT:
                self._has_more = True
            self._receive()

    def _shake_hands(self) -> None:
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except ssl.SSLWantWriteError:
            self._watch(EVENT_WRITE)
        except ssl.SSLWantReadError:
            self._watch(EVENT_READ)
        except (OSError, ValueError):
            self.close()
        else:
            self._shakes_hands = False
            self._watch(EVENT_READ)
            self._receive()  # The last bytes of the handshake can have arrived with a request.

    def _receive(self) -> None:
        """Read what has arrived, and have it handled, unless earlier requests come first."""
        handler = self.handler
        if handler is None:
            return  # The connection is closed.
        if self.is_aside:
            self._read_early()
        elif self.early or handler.is_unfinished:
            self._has_more = True  # ``go_on()`` follows.
        elif (data := self._read_arrived()) is not None:
            if data:
                self._handle(handler, data)
            else:
                self.close()

    def _read_arrived(self) -> bytes | None:
        """Return bytes that have arrived, an empty string at the end, or None."""
        try:
            data = self.sock.recv(READ_BYTES)
        except _NOT_YET:
            self._has_more = False
            return None
        except OSError:
            return b""
        if len(data) == READ_BYTES or self.mount.tls is not None:
            self._has_more = True
        return data

    def _read_early(self) -> None:
        """Keep what has arrived while a thread handles requests, and end what waits if the client has
        left.
        """
        while len(self.early) <= EARLY_BYTES and (data := self._read_arrived()) is not None:
            self.early += data
            if not data:
                self._leave_aside()
                break
        self._update_events()

    def _leave_aside(self) -> None:
        self._has_left = True
        self._end_of_hang.set()
        if self.handler is not None:
            self.handler.end()

    def _handle(self, handler: Handler, data: bytes) -> None:
        self.worker = threading.get_ident()
        is_open = False
        self.inside = True
        try:
            is_open = not self.ended and handler.receive(data)
        except (TimeoutError, ConnectionError):
            pass  # The client has disconnected.
        except BaseException as error:
            # pytest.fail() in a function of the test must not end this thread.
            self.mount.report(error)
        finally:
            self.inside = False
            if self.ended:
                self.leave()
        if self.is_aside:
            self.mount.hub.later(partial(self._come_back, is_open))
        else:
            self._go_on(is_open)

    def _come_back(self, is_open: bool) -> None:
        """Serve the connection again, after the thread that has stepped aside has returned."""
        self.is_aside = False
        self._go_on(is_open)

    def _go_on(self, is_open: bool) -> None:
        """Plan what follows after requests were handled."""
        if self.handler is None:
            return
        if not is_open:
            self._ends = True
            self.mount.hub.send_soon(self)
        elif self._has_more or self.early or self._has_left or self.handler.is_unfinished:
            self.mount.hub.go_on_later(self)

    def go_on(self) -> None:
        """Send and read further, and handle further requests, unless there is too much to send."""
        self.flush()
        handler = self.handler
        if self.is_aside or handler is None:
            self._receive()
            return
        self._is_stalled = self.unsent_bytes > SEND_BYTES
        if self._is_stalled:
            self._update_events()
        elif handler.is_unfinished:
            self._handle(handler, b"")
        elif self.early:
            early, self.early = self.early, b""
            self._update_events()
            self._handle(handler, early)
        elif self._has_left:
            self.close()
        else:
            self._receive()

    def flush(self) -> None:
        """Send as much as the client takes without waiting."""
        if self._is_closed or self._shakes_hands:
            return
        messages, sent = self._messages, 0
        try:
            while messages and sent < _MOST_SENT:
                if len(messages) > 1:
                    self._join_messages()
                message = messages[0]
                size = self.sock.send(message)
                sent += size
                if size == len(message):
                    self._sent_bytes += size + _PER_MESSAGE
                    messages.popleft()
                else:
                    self._sent_bytes += size
                    messages[0] = memoryview(message)[size:]
        except _NOT_YET:
            pass
        except OSError:
            self._drop()
            return
        if messages:
            if sent >= _MOST_SENT:
                self.mount.hub.go_on_later(self)
            else:
                self._update_events()
        elif self._ends:
            self.close()
        elif self._events != EVENT_READ:
            was_stalled, self._is_stalled = self._is_stalled, False
            self._update_events()
            if was_stalled:
                self.mount.hub.go_on_later(self)

    def _join_messages(self) -> None:
        """Join the first message with the small ones that follow it, to send them together."""
        messages = self._messages
        first = messages.popleft()
        joined, size = [first], len(first)
        while messages and size + len(messages[0]) <= SEND_BYTES:
            joined.append(messages.popleft())
            size += len(joined[-1])
        # Do not copy the rest of a large message, to which nothing is joined.
        messages.appendleft(b"".join(joined) if len(joined) > 1 else first)
        self._sent_bytes += (len(joined) - 1) * _PER_MESSAGE

    def _drop(self) -> None:
        """Close the connection without sending the rest."""
        self._messages.clear()
        if self.is_aside:
            self._leave_aside()
            self._update_events()
        else:
            self.close()

    def _update_events(self) -> None:
        """Watch what the connection waits for."""
        reads = not (self._is_stalled or self._has_left or len(self.early) > EARLY_BYTES)
        sends = bool(self._messages)
        self._watch((EVENT_READ if reads else 0) | (EVENT_WRITE if sends else 0))

    def _watch(self, events: int) -> None:
        if events != self._events and not self._is_closed:
            self.mount.hub.watch(self, self._events, events)
            self._events = events

    def close(self) -> None:
        """Close the connection, of which no request is being handled."""
        if self._is_closed:
            return
        self._watch(0)
        self._is_closed = True
        handler, self.handler = self.handler, None
        try:
            if handler is not None:
                handler.close()
        finally:
            self.mount.forget(self)

    # -- in any thread -----------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """The size of what was written and is not sent yet."""
        return self._written_bytes - self._sent_bytes

    def write(self, data: bytes) -> None:
        """Send a message soon, after those that were written before."""
        self._messages.append(data)
        self._written_bytes += len(data) + _PER_MESSAGE
        self.mount.hub.send_soon(self)

    def cut(self) -> None:
        self.mount.hub.later(self._drop)

    def end(self) -> None:
        super().end()
        self._end_of_hang.set()

    # -- in the thread that handles a request ------------------------------------------------------

    def hang(self) -> None:
        step_aside()
        self._end_of_hang.wait(HANG_SECONDS)

    def switch(self, protocol: Callable[[Connection], Handler], begun: bytes) -> bool:
        """Have a thread of the pool serve the connection with another protocol, whose first bytes have
        been received.
        """
        mount = self.mount
        self._watch(0)
        self._is_closed, self.handler = True, None
        connection = Connection(self.sock, self.address, mount, protocol)
        connection.early = begun
        with mount.lock:
            mount.live.discard(self)
            mount.live.add(connection)
            connection.ended = self.ended
        connection.begin()
        return True
