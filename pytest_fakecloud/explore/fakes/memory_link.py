"""One connection in memory between explored code and a fake: no socket of the system carries a byte.

A request is handled where it is sent, in the thread of the code. A thread with an event loop must go
on, so its requests are handled in a thread aside, which the event loop lets run like a coroutine: one
of the two waits for the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...http.hub import Mount
from ...http.server import RESET_ON_CLOSE, Connection
from ..values.limits import CHECKS_OF_STREAM
from .gate import Aside, wait_really

if TYPE_CHECKING:
    from .connections import Connections


class FakeEnd:
    """The fake's end of a connection, with the methods of a socket that the fakes' servers call."""

    def __init__(self) -> None:
        self.received = bytearray()
        """What the client has sent and the fake has not read."""
        self.sent = bytearray()
        """What the fake has sent and the client has not read."""
        self.is_hung_up = False
        """Whether the client sends nothing more."""
        self.is_ended = False
        """Whether the fake sends nothing more."""
        self.is_closed = False
        self.is_reset = False
        """Whether the client gets an error instead of the end of the connection."""
        self.has_failed = False
        """Whether the client has got that error."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return what has arrived, without waiting, and nothing at the end."""
        if not (self.received or self.is_hung_up or self.is_closed):
            raise BlockingIOError
        data = bytes(self.received[:size])
        if not flags & socket.MSG_PEEK:
            del self.received[: len(data)]  # Another thread may have added more.
        return data

    def sendall(self, data: bytes) -> None:
        if self.is_ended or self.is_hung_up:
            raise BrokenPipeError("the client has gone")
        self.sent += data

    def setsockopt(self, level: int, option: int, value: object) -> None:
        self.is_reset = self.is_reset or value == RESET_ON_CLOSE

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing, because no method waits."""

    def close(self) -> None:
        if self.received:  # as the system does if data was not read
            self.is_reset = True
        self.is_ended = self.is_closed = True


class MemoryLink(Connection):
    """A connection in memory of explored code, seen from the fake."""

    sock: Any

    def __init__(
        self,
        client: socket.socket,
        address: tuple[str, int],
        mount: Mount,
        connections: Connections,
    ) -> None:
        super().__init__(FakeEnd(), address, mount)  # type: ignore[arg-type]
        self.port = address[1]
        self.fileno = client.fileno()
        self.client = weakref.ref(client)
        self._connections = connections
        self.handler: Any = mount.protocol(self)
        self._is_served = False
        """Whether a thread handles requests of this connection."""
        self._hangs = False
        """Whether no request is handled any more, and the connection stays open."""
        self._streams = False
        """Whether a stream is being sent, after which further requests are handled."""
        self.looks = 0
        """How often the thread of a stream has looked for something to send."""
        self._gone: Callable[[], None] | None = None
        """Called when the client closes its side during a call that watches it."""
        self._aside = Aside()

    # -- the client's side

    def send(self, data: bytes) -> None:
        """Take bytes of the client. Raises ``ConnectionError`` for a connection that was reset."""
        if self.sock.is_closed:
            if self.sock.is_reset:
                raise self._error() or error_of(errno.EPIPE)
            return
        self.sock.received += data

    def take(self, size: int, flags: int = 0) -> bytes:
        """Return bytes for the client, without waiting, and nothing at the end of the connection."""
        sent = self.sock.sent
        if not sent and (error := self._error()):
            raise error
        if size and not self.has_news():
            raise error_of(errno.EAGAIN)
        data = bytes(sent[:size])
        if not flags & socket.MSG_PEEK:
            del sent[: len(data)]  # Another thread may have added more.
        return data

    def _error(self) -> OSError | None:
        """Return the error of a connection that was reset, at its first use after that."""
        if not self.sock.is_closed or not self.sock.is_reset or self.sock.has_failed:
            return None
        self.sock.has_failed = True
        return error_of(errno.ECONNRESET)

    def has_news(self) -> bool:
        """Return whether the client can read bytes, or the end of the connection."""
        until = self.looks + 2  # The first of two looks may have begun before now.
        if self._streams:
            wait_really(
                lambda: self._can_read() or self.looks >= until or not self._streams,
                CHECKS_OF_STREAM,
            )
        return self._can_read()

    def _can_read(self) -> bool:
        return bool(self.sock.sent or self.sock.is_ended)

    def hang_up(self) -> None:
        """Called when the client sends nothing more."""
        self.sock.is_hung_up = True
        if self._gone is not None:
            self._gone()
        elif self._is_served and self.handler is not None:
            self.handler.end()
        self.serve()

    # -- the fake's side

    def serve(self) -> None:
        """Serve all requests that have arrived, unless a thread is doing that, or sends a stream."""
        if self._is_served or self._streams or self.sock.is_closed:
            return
        self._is_served, self.worker = True, threading.get_ident()
        try:
            is_open = self._handle_all()
        except (TimeoutError, ConnectionError):
            is_open = False
        except BaseException as error:
            is_open = False
            self.mount.report(error)
        finally:
            self._is_served, self.worker = False, 0
        if not is_open:
            handler, self.handler = self.handler, None
            handler.close()
            self.mount.forget(self)

    def _handle_all(self) -> bool:
        """Serve all requests that have arrived; return whether the connection stays open."""
        while not self._streams:
            try:
                data = self.sock.recv(1_048_576)
            except BlockingIOError:
                return True
            if not data:
                return False
            if not (self._hangs or self._receive(data) or self._hangs):
                return False
        return True

    def _receive(self, data: bytes) -> bool:
        """Have all requests handled that these bytes complete."""
        is_open: bool = self.handler.receive(data)
        while is_open and self.handler.is_unfinished:
            is_open = self.handler.receive(b"")
        return is_open

    def stream(self, send: Callable[[], bool]) -> bool:
        def run() -> None:
            me = threading.get_ident()
            self._connections.streams[me] = self
            try:
                going_on = send()
            finally:
                del self._connections.streams[me]
                self._streams = False
            if not going_on:
                self.shut_down()
            self.serve()

        # A thread of its own, because explored code has to go on while the stream waits.
        self._streams = True
        self.mount.hub.workers.submit(run, self.shut_down)
        return True

    def look(self, poll: Callable[[], Any], is_over: Callable[[], bool]) -> Any:
        """Poll for something to send on a stream until ``is_over()``, in the thread of the stream: the
        clock stands still, so a wait in real time would be over at once.
        """
        result = None

        def has_ended() -> bool:
            nonlocal result
            result = poll()
            ends = result is not None or is_over() or self.sock.is_ended
            self.looks += not ends
            return ends

        wait_really(has_ended, None)
        return result

    def after_fork(self) -> None:
        """Do nothing, because the copy of the connection works, too."""

    def end(self) -> None:
        self.ended = True
        self.sock.received.clear()
        self.reset_when_closed()
        self.shut_down()
        if self._gone is not None:
            self._gone()
        if self.handler is not None:
            self.handler.end()

    def shut_down(self, how: int = socket.SHUT_RDWR) -> None:
        self.sock.is_ended = True
        if how != socket.SHUT_WR:
            self.sock.is_hung_up = True
            self._connections.ended.append(self)

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # ``serve()`` notices that the client has gone.
            self.sock.sendall(data)

    def discard_until_closed(self, seconds: float) -> None:
        self.sock.received.clear()

    def hang(self) -> None:
        self._hangs = True

    def has_hung_up(self) -> bool:
        return bool(self.sock.is_hung_up)

    @contextlib.contextmanager
    def watched(self, gone: Callable[[], None]) -> Iterator[None]:
        before, self._gone = self._gone, gone
        if self.sock.is_hung_up:
            gone()
        try:
            yield
        finally:
            self._gone = before

    # -- a thread aside

    def serve_aside(self, wake: Callable[[], None]) -> None:
        """Serve the requests in a thread aside, until it waits or has handled them all. ``wake()``
        wakes an event loop that did not wait for the end.
        """
        if self._is_served or self.sock.is_closed:
            return

        def serve() -> None:
            me = threading.get_ident()
            self._connections.aside[me] = self._aside
            try:
                self.serve()
            finally:
                del self._connections.aside[me]
                self._aside.step_back()
                wake()

        self._aside.resume(lambda: self.mount.hub.workers.submit(serve, self._aside.step_back))


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))
