"""Serves HTTP/1.1 on the connections that a mount has accepted.

Only the worker that serves a connection closes its socket. All other threads only shut it down, so
that no file descriptor is reused while a thread still works with it.
"""

from __future__ import annotations

import contextlib
import functools
import http
import select
import socket
import ssl
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from time import gmtime, time
from typing import TYPE_CHECKING, Any, Protocol

from ..core.timers import monotonic
from .messages import Answer, ConnectionEffect, Stream, asks_to_close
from .parsing import MalformedRequest, ReceivedRequest, RequestReader
from .ports import below_tls

if TYPE_CHECKING:
    from .app import App
    from .hub import Mount


MOST_EARLY = 1024 * 1024
"""Maximum number of bytes that a client may send while a response is being sent to it."""
DRAIN_SECONDS = 0.2
"""Seconds that a client gets to read the response to invalid data before its connection closes."""
HANG_SECONDS = 60.0
"""Maximum seconds for which the ``hang()`` fault keeps a connection open."""

READ_BYTES = 64 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SHORT_BODY = 16 * 1024
"""Maximum bytes of a body that is read, and recorded, whether its request is rejected or not (decided
here).
"""
UNREAD_SECONDS = 5.0
"""Maximum seconds for which a client may send a body after the response to its head."""
_LINGER_BYTES = 2 if sys.platform == "win32" else 4
RESET_ON_CLOSE = (1).to_bytes(_LINGER_BYTES, sys.byteorder) + bytes(_LINGER_BYTES)
"""The value of SO_LINGER (two integers, on and 0 seconds) with which closing resets a connection."""
_poll: Any = getattr(select, "poll", None)
"""The class of the standard library, which a test may replace; None on Windows."""


def has_arrived(sock: socket.socket) -> bool:
    """Return whether bytes or the end of a connection can be read from a socket without waiting.

    Sockets that gevent or eventlet have patched would wait in spite of the flag MSG_DONTWAIT.
    """
    if _poll is None:
        return bool(select.select([sock], [], [], 0)[0])  # Windows
    poll = _poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class Handler(Protocol):
    """Handles what a client sends over one connection."""

    is_unfinished: bool
    """Whether ``receive()`` has returned before it has handled all requests, so that other connections
    get their turn. It has to be called again, without bytes.
    """

    def receive(self, data: bytes) -> bool:
        """Respond to the requests that these bytes complete; return False to close the connection."""

    def renew(self) -> bool:
        """Forget the state of a connection that is idle, because another test begins; return False if
        it must be closed, because its client is sending a request or waiting for something.
        """

    def end(self) -> None:
        """End what waits, because the server has shut the connection down. Called in another thread."""

    def close(self) -> None:
        """Called once, after the last request."""


class Connection:
    """One accepted connection, owned by the mount that accepted it.

    ``sock`` is the blocking socket (a TLS socket if the mount has a context), ``address`` the
    client's address. A protocol calls ``enter()`` before it has a request answered, then ``leave()``.
    Those that the hub's thread serves (``LoopConnection``) and those in memory of explorations
    (``MemoryLink``) override what uses the socket itself, and what needs a thread of its own.
    """

    def __init__(
        self,
        sock: socket.socket,
        address: Any,
        mount: Mount,
        protocol: Callable[[Connection], Handler] | None = None,
    ) -> None:
        self._protocol = protocol
        self.sock = sock
        self.address = address
        self.mount = mount
        self.inside = False
        self.doing: object = ""
        self.ended = False
        self.worker = 0
        """The thread that serves the connection."""
        self.handler: Handler | None = None
        """The protocol's part that serves the connection; None until the first bytes are awaited."""
        self.early = b""
        """The beginning of the client's next requests, received while a response was being sent, or
        before a thread served the connection.
        """

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

    def begin(self) -> None:
        """Have the connection served, by a thread of the pool."""
        self.mount.hub.workers.submit(self.serve, partial(self.mount.forget, self))

    def leave(self) -> None:
        self.inside = False
        if self.ended:
            self.mount.hub.handler_returned.notify()

    @contextlib.contextmanager
    def watched(self, gone: Callable[[], None]) -> Iterator[None]:
        """Call ``gone`` from the hub's thread if the client closes its side during the block.

        Data hides the end. It is read and appended to ``early``.
        """
        watch = Watch(self, gone)
        watch.begin()
        try:
            yield
        finally:
            watch.stop()

    def has_hung_up(self) -> bool:
        """Return whether the client has closed its side, without waiting and without reading.
        Without POLLRDHUP (macOS, Windows) unread data hides the end.
        """
        try:
            if hung_up := getattr(select, "POLLRDHUP", 0):
                poll = _poll()
                poll.register(self.sock, hung_up)
                return bool(poll.poll(0))
            return has_arrived(self.sock) and not below_tls(self.sock).recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    @property
    def unsent_bytes(self) -> int:
        """The size of what was written and is not sent yet."""
        return 0

    def write(self, data: bytes) -> None:
        """Send data."""
        self.sock.sendall(data)

    def cut(self) -> None:
        """Close the connection, without sending the rest, but not before the response to a request that
        is being handled. Called in any thread.
        """
        if not self.inside:
            self.shut_down()

    def switch(self, protocol: Callable[[Connection], Handler], begun: bytes) -> bool:
        """Serve the connection with another protocol, whose first bytes have been received; return False
        to close it.
        """
        self.handler = handler = protocol(self)
        return handler.receive(begun)

    def serve(self) -> None:
        """Serve the connection to its end with the mount's protocol, in the calling worker thread."""
        self.worker = threading.get_ident()
        mount = self.mount
        try:
            if self._prepare():
                self.handler = handler = (self._protocol or mount.protocol)(self)
                with contextlib.closing(handler):
                    # An incomplete request at the end is dropped, and never reaches the engine.
                    while (data := self._read()) and handler.receive(data):
                        pass
        except (TimeoutError, ConnectionError, ssl.SSLError):
            # The client disconnected, or the mount was closed while serving.
            pass
        except BaseException as error:
            # pytest.fail() in a handler must not end this thread, which belongs to a pool. When a
            # connection is shut down, the sockets of gevent raise an OSError in its reader.
            if not (self.ended and isinstance(error, OSError)):
                mount.report(error)
        finally:
            mount.forget(self)
            self.worker, self.handler = 0, None

    def _prepare(self) -> bool:
        sock = self.sock
        try:
            # The test may have set a default timeout for sockets, but this socket must block.
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (tls := self.mount.tls) is not None and not isinstance(sock, ssl.SSLSocket):
                with self.mount.lock:
                    if self.ended:
                        return False
                    secured = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                    self.sock = secured
                secured.do_handshake()
        except (OSError, ValueError):
            return False
        return True

    def _read(self) -> bytes:
        """Wait for bytes, and return them; return an empty string at the end of the connection."""
        early, self.early = self.early, b""
        return early or self.sock.recv(READ_BYTES)

    def shut_down(self, how: int = socket.SHUT_RDWR) -> None:
        # A TLS socket's own shutdown() breaks its reader.
        with contextlib.suppress(OSError):
            below_tls(self.sock).shutdown(how)

    def stream(self, send: Callable[[], bool]) -> bool:
        """Send a response that may never end; return False if the connection must be closed."""
        return send()

    def discard_until_closed(self, seconds: float) -> None:
        """Read and discard data until the client closes, for at most ``seconds`` real seconds."""
        deadline = monotonic() + seconds
        with contextlib.suppress(OSError):
            while (remaining := deadline - monotonic()) > 0:
                self.sock.settimeout(remaining)
                if not self.sock.recv(1_048_576):
                    return

    def hang(self) -> None:
        """Answer nothing until the client closes, but not forever."""
        self.discard_until_closed(HANG_SECONDS)

    def reset_when_closed(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    def renew(self) -> bool:
        """Forget the state of an idle connection; return False if the connection must be closed."""
        handler = self.handler
        return not self.inside and (handler is None or handler.renew())

    def after_fork(self) -> None:
        """Close the copy of the socket in a child process."""
        with contextlib.suppress(OSError):
            self.sock.close()

    def end(self) -> None:
        """Shut the connection down. The caller holds the mount's lock, so the socket is open."""
        self.ended = True
        # Reset the connection to avoid TIME_WAIT, so that the port can be reused.
        self.reset_when_closed()
        self.shut_down()
        # A handler that does not exist yet reads ``ended`` in enter().
        if self.handler is not None:
            self.handler.end()


class Watch:
    """Detects that the peer of a connection has closed its side while no thread reads from it."""

    def __init__(self, connection: Connection, gone: Callable[[], None]) -> None:
        self._connection = connection
        self._gone = gone
        self._lock = threading.Lock()
        self._over = True

    def begin(self) -> None:
        """Watch the connection, if the hub is running."""
        connection = self._connection
        with self._lock:
            self._over = not connection.mount.hub.register(connection.sock, weakref.ref(self))

    def ready(self, events: int) -> None:
        with self._lock:
            if self._over:
                return
            with contextlib.suppress(OSError):
                if not self._has_ended():
                    return
            self._end()
        self._gone()

    def _has_ended(self) -> bool:
        """Return whether the client has closed its side, or has sent too much."""
        # A TLS connection cannot be inspected without reading it. During a response, treat any data
        # as the end: a client that sends data then is probably closing the connection.
        if self._connection.mount.tls is not None:
            return True
        if not has_arrived(self._connection.sock):
            return False  # Another thread has read the data.
        # Read the data, because the end of the connection would be hidden behind it.
        data = self._connection.sock.recv(65_536)
        self._connection.early += data
        return not data or len(self._connection.early) > MOST_EARLY

    def stop(self) -> None:
        with self._lock:
            if not self._over:
                self._end()

    def _end(self) -> None:
        self._over = True
        self._connection.mount.hub.unregister(self._connection.sock)


class HTTPHandler:
    """Owns one connection to an ``App``: reads its requests and writes their responses in order."""

    is_unfinished = False

    def __init__(self, connection: Connection) -> None:
        self.sock = connection.sock
        self.connection = connection
        self.app: App = connection.mount.app
        limit = connection.mount.body_limit
        self.reader = RequestReader(connection.address, body_limit=limit)

    def receive(self, data: bytes) -> bool:
        """Respond to all requests that are complete, and to bytes that are not one."""
        reader = self.reader
        reader.feed(data)
        while reader.requests:
            request = reader.requests.popleft()
            if request.expects:
                self.sock.sendall(_CONTINUE)
            if not self._respond(request) or not request.keep_alive:
                return False
        if reader.malformed is not None:
            self._send_malformed(reader.malformed)
            return False
        pending = reader.pending
        if pending is not None and not pending.is_admitted and _has_large_body(pending):
            return self._admit_or_reject(pending)
        return True

    def renew(self) -> bool:
        return self.reader.pending is None

    def end(self) -> None:
        """Do nothing: a request that waits belongs to an application, which ends it (``on_stop``)."""

    def close(self) -> None:
        self.reader.close()

    def _admit_or_reject(self, request: ReceivedRequest) -> bool:
        """Let a large body follow; return False if its request was rejected without it."""
        if not self.connection.enter(request):
            return False
        try:
            rejection = self.app.reject_head(request)
        finally:
            self.connection.leave()
        if rejection is not None:
            request.keep_alive = False
            self.sock.sendall(b"".join(encode(request, rejection)))
            # Let the client read the response, although it may still be sending the body.
            self.connection.shut_down(socket.SHUT_WR)
            self.connection.discard_until_closed(UNREAD_SECONDS)
            return False
        if request.expects:
            request.expects = False
            self.sock.sendall(_CONTINUE)
        request.is_admitted = True
        return True

    def _respond(self, request: ReceivedRequest) -> bool:
        """Respond to a request; return False if a stream or a fault has ended the connection."""
        if not self.connection.enter(request):
            return False
        try:
            response = self.app.respond(request)
            if isinstance(response, Stream):
                return self.connection.stream(partial(self._stream, request, response))
        finally:
            self.connection.leave()
        if isinstance(response, Answer):
            self.sock.sendall(b"".join(encode(request, response)))
            return True
        return self._apply(request, response)

    def _apply(self, request: ReceivedRequest, effect: ConnectionEffect) -> bool:
        """Apply a fault's effect to the connection; return False, because the connection ends."""
        if effect.kind == "truncate" and effect.answer is not None:
            head, body = encode(request, effect.answer)
            self.sock.sendall(head + body[: effect.keep])
        elif effect.kind == "hang":
            self.connection.hang()
        if effect.reset:
            self.connection.reset_when_closed()
        return False

    def _stream(self, request: ReceivedRequest, stream: Stream) -> bool:
        """Send chunks as they are produced. After a failure, omit the last chunk."""
        sock = self.sock
        chunked = request.version == "1.1"
        try:
            with self.connection.watched(stream.on_close or (lambda: None)):
                sock.sendall(stream_head(request, stream))
                if request.method == "HEAD":
                    return chunked
                for part in stream.chunks:
                    if self.connection.ended:
                        return False
                    if part:
                        sock.sendall(chunk(part) if chunked else part)
                if chunked:
                    sock.sendall(LAST_CHUNK)
        except (ConnectionError, ssl.SSLError):
            return False
        except Exception as error:
            self.app.stream_failed(request, error)
            return False
        finally:
            stream.end()
        return chunked

    def _send_malformed(self, malformed: MalformedRequest) -> None:
        """Send the reason for closing the connection, and let the client read it."""
        request = ReceivedRequest(
            malformed.method or "GET", malformed.target, client=self.connection.address
        )
        answer = self._malformed_answer(malformed, request)
        self.sock.sendall(b"".join(encode(request, answer)))
        # Close only the sending side: a reset would discard the response before it is read.
        self.connection.shut_down(socket.SHUT_WR)
        self.connection.discard_until_closed(DRAIN_SECONDS)

    def _malformed_answer(self, malformed: MalformedRequest, request: ReceivedRequest) -> Answer:
        """Record a malformed request in the app's journal; return the response."""
        if malformed.method:
            return self.app.unknown_method(request)
        self.app.record_malformed(malformed.status, malformed.reason)
        return malformed_text(malformed)


def _has_large_body(request: ReceivedRequest) -> bool:
    """Return whether the body is large, of unknown size, or the client asks before it sends it."""
    length = int(request.fields.get("content-length", SHORT_BODY + 1))
    return length > SHORT_BODY or request.expects


LAST_CHUNK = b"0\r\n\r\n"
BODILESS = frozenset({204, 304})
SET_BY_SERVER = frozenset({"content-length", "transfer-encoding", "date"})
_LINE_BREAKS_TO_SPACES = str.maketrans({"\r": " ", "\n": " ", "\0": " "})
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def encode(request: ReceivedRequest, answer: Answer) -> tuple[bytes, bytes]:
    """Return a response's head and body, which is empty if none may be sent. The header
    ``Connection: close`` ends the request's connection.
    """
    body = answer.body
    status = answer.status
    head = _opening(status, int(time()))
    for name, value in answer.headers:
        lower_name = name.lower()
        if lower_name == "connection":
            request.keep_alive = request.keep_alive and not asks_to_close(value)
        elif lower_name not in SET_BY_SERVER:
            head += header(name, value)
    if answer.content_type is not None:
        head += f"Content-Type: {answer.content_type}\r\n"
    if status not in BODILESS:
        head += f"Content-Length: {len(body)}\r\n"
    if status in BODILESS or request.method == "HEAD":
        body = b""
    if not request.keep_alive or request.version != "1.1":
        head += connection_header(request)
    return head_bytes(head + "\r\n"), body


def stream_head(request: ReceivedRequest, stream: Stream) -> bytes:
    """Return the head of a streamed response; with HTTP/1.0, it ends when the connection closes."""
    head = _opening(stream.status, int(time()))
    head += f"Content-Type: {stream.content_type}\r\nCache-Control: no-cache\r\n"
    chunked = request.version == "1.1"
    head += "Transfer-Encoding: chunked\r\n" if chunked else "Connection: close\r\n"
    return head_bytes(f"{head}{''.join(header(*pair) for pair in stream.headers)}\r\n")


def malformed_text(malformed: MalformedRequest) -> Answer:
    """Return the response to bytes that are not a valid request."""
    text = f"{malformed.status} {phrase(malformed.status)}: {malformed.reason}\n"
    return Answer(text.encode(), malformed.status, (), "text/plain")


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def connection_header(request: ReceivedRequest) -> str:
    if not request.keep_alive:
        return "Connection: close\r\n"
    return "" if request.version == "1.1" else "Connection: keep-alive\r\n"


def header(name: str, value: str) -> str:
    # Replace line breaks, because a value that a service echoes must not start a new header.
    return f"{name}: {value.translate(_LINE_BREAKS_TO_SPACES)}\r\n"


@functools.lru_cache
def phrase(status: int) -> str:
    """Return the reason phrase that the server sends with a status."""
    if status == 200:
        return "OK"
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def head_bytes(head: str) -> bytes:
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError:
        return head.encode("utf-8", "surrogateescape")


def http_date() -> str:
    """Return the current second of the process's clock in the format of a Date header."""
    return _date_of(int(time()))


@functools.lru_cache(maxsize=64)
def _opening(status: int, second: int) -> str:
    return f"HTTP/1.1 {status} {phrase(status)}\r\nDate: {_date_of(second)}\r\n"


@functools.lru_cache(maxsize=64)
def _date_of(second: int) -> str:
    # Format the date here: email.utils fails at the end of the year 9999 in frozen process time.
    t = gmtime(second)
    return (
        f"{_DAYS[t.tm_wday]}, {t.tm_mday:02} {_MONTHS[t.tm_mon - 1]} {t.tm_year} "
        f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"
    )
