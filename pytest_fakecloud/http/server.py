"""HTTP/1.1 on one connection: requests read whole, answers sent whole, kept open in between.

A subclass of werkzeug's request handler owns the connection and serves both the fakes' own apps,
without any WSGI environment in between, and plain WSGI applications.
"""

from __future__ import annotations

import contextlib
import http
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from werkzeug.datastructures import Headers
from werkzeug.serving import WSGIRequestHandler

from ..core.timeparse import monotonic
from .app import App
from .messages import Answer, Effect, Stream
from .parsing import BODY_LIMIT, Message, Refusal, RequestReader

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["http_date", "serve_http"]

DRAIN_SECONDS = 0.2
HANG_SECONDS = 60.0

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_BODILESS = frozenset({204, 304})
_FRAMES = frozenset({"content-length", "transfer-encoding", "date"})
_CLEAN = str.maketrans({"\r": " ", "\n": " ", "\0": " "})
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in http.HTTPStatus
}


def serve_http(connection: Connection, begun: bytes = b"") -> None:
    """Serve HTTP on the connection until either side ends it.

    ``begun`` is what has been read from it already, to find out what it speaks.
    """
    HTTPHandler(connection).handle(begun)


class HTTPHandler(WSGIRequestHandler):
    """Owns one connection: reads requests, has them answered, writes the answers in order."""

    def __init__(self, connection: Connection) -> None:
        # Not the base class's constructor, which serves and closes before it returns.
        self.connection = connection.sock
        self.request = connection.sock
        self.client_address = connection.address
        self.held = connection
        self.mount = connection.mount
        self.app = connection.mount.app
        limit = connection.mount.body_limit
        self.reader = RequestReader(
            connection.address, body_limit=BODY_LIMIT if limit is None else limit
        )
        self.native = isinstance(self.app, App)

    def handle(self, begun: bytes = b"") -> None:
        sock, reader = self.connection, self.reader
        messages = reader.messages
        answer = self.run_app if self.native else self.run_wsgi_app
        # A request that has only half come when the client leaves is nobody's: it never reaches the
        # engine.
        data = begun or sock.recv(16_384)
        while data:
            reader.feed(data)
            while messages:
                message = messages.popleft()
                if message.expects:
                    sock.sendall(_CONTINUE)
                if not answer(message) or not message.keep_alive:
                    return
            if reader.refusal is not None:
                self.refuse(reader.refusal)
                return
            if reader.pending is not None and reader.pending.expects:
                reader.pending.expects = False
                sock.sendall(_CONTINUE)
            data = self.held.early
            if data:
                self.held.early = b""
            else:
                data = sock.recv(16_384 if reader.pending is None else 1_048_576)

    # -- the fakes' own apps ---------------------------------------------------------------------

    def run_app(self, message: Message) -> bool:
        held = self.held
        if not held.enter(message):
            return False
        try:
            response = self.app.answer(message)
            if type(response) is Stream:
                return self.stream(message, response)
        finally:
            held.leave()
        if type(response) is Answer:
            self.connection.sendall(encode(message, response))
            return True
        return self.perform(message, response)

    def perform(self, message: Message, effect: Effect) -> bool:
        """Do to the connection what a fault says; it is never kept."""
        if effect.kind == "truncate" and effect.answer is not None:
            whole = encode(message, effect.answer)
            body = effect.answer.body
            size = len(body) if isinstance(body, bytes) else 0
            self.connection.sendall(whole[: len(whole) - max(0, size - effect.keep)])
        elif effect.kind == "hang":
            self.wait_for_goodbye(HANG_SECONDS)
        if effect.reset:
            self.held.close_with_reset()
        return False

    def stream(self, message: Message, stream: Stream) -> bool:
        """Send chunks as they are made; a failure on the way ends without the last chunk."""
        sock = self.connection
        chunked = message.version == "1.1"
        framing = "Transfer-Encoding: chunked\r\n" if chunked else "Connection: close\r\n"
        head = [
            _status_line(stream.status),
            f"Date: {http_date()}\r\nContent-Type: {stream.content_type}\r\n",
            "Cache-Control: no-cache\r\n",
            framing,
            *(_header(name, value) for name, value in stream.headers),
            "\r\n",
        ]
        chunks = stream.chunks
        on_close = stream.on_close or (lambda: None)
        try:
            with self.held.watched(on_close, reads=True):
                sock.sendall(_bytes("".join(head)))
                if message.method == "HEAD":
                    return True
                for chunk in chunks:
                    if self.held.ended:
                        return False
                    if chunk:
                        sock.sendall(_chunk(chunk) if chunked else chunk)
                if chunked:
                    sock.sendall(_LAST_CHUNK)
        except (ConnectionError, ssl.SSLError):
            return False
        except Exception as error:
            self.app.stream_failed(message, error)
            return False
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
            on_close()
        return chunked

    # -- plain WSGI applications -----------------------------------------------------------------

    def run_wsgi_app(self, message: Message) -> bool:
        if not self.held.enter(message):
            return False
        try:
            return _WSGICall(self, message).run()
        finally:
            self.held.leave()

    def wsgi_environ(self, message: Message) -> dict[str, Any]:
        """The environment of a request, by werkzeug's rules, plus what they lose.

        ``RAW_URI`` is the raw target, ``fakecloud.headers`` the raw header list. The body is whole,
        so ``CONTENT_LENGTH`` is always given.
        """
        self.command = message.method
        self.path = message.target
        self.request_version = f"HTTP/{message.version}"
        self.headers = Headers(  # type: ignore[assignment]
            (n, v) for n, v in message.headers if n.lower() != "transfer-encoding"
        )
        self.rfile = io.BytesIO(message.body)
        self.server = _Origin(self.mount)  # type: ignore[assignment]
        environ = self.make_environ()
        environ["wsgi.input_terminated"] = True
        environ["fakecloud.headers"] = message.headers
        environ["REMOTE_PORT"] = str(environ["REMOTE_PORT"])
        if message.body:
            environ["CONTENT_LENGTH"] = str(len(message.body))
        return environ

    # -- ending ----------------------------------------------------------------------------------

    def refuse(self, refusal: Refusal) -> None:
        """Say why the connection ends, and let the client read it."""
        status = refusal.status
        message = Message(refusal.method or "GET", refusal.target, client=self.client_address)
        message.version, message.keep_alive = "1.1", False
        if self.native and refusal.method:
            answer = self.app.foreign(message)
        else:
            if self.native:
                self.app.refused(status, refusal.reason)
            phrase = _status_line(status)[9:-2]
            answer = Answer(f"{phrase}: {refusal.reason}\n".encode(), status, (), "text/plain")
        self.connection.sendall(encode(message, answer))
        # Closing now, with bytes of the client unread, would reset the connection and take the
        # answer away from it.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
        self.wait_for_goodbye(DRAIN_SECONDS)

    def wait_for_goodbye(self, seconds: float) -> None:
        """Read and forget until the client closes, at most so many real seconds."""
        deadline = monotonic() + seconds
        with contextlib.suppress(OSError):
            while (left := deadline - monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(1_048_576):
                    return


class _Origin:
    """What werkzeug's ``make_environ`` asks of its server."""

    multithread = True
    multiprocess = False
    _server_version = "pytest-fakecloud"

    def __init__(self, mount: Any) -> None:
        self.ssl_context = mount.tls
        self.server_address = mount.address

    def log(self, kind: str, message: str, *args: object) -> None:
        """Requests are in the journal, not in a log."""


class _WSGICall:
    """One call of a WSGI application: collects what it says and writes it."""

    def __init__(self, handler: HTTPHandler, message: Message) -> None:
        self.handler = handler
        self.message = message
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.head_sent = False
        self.chunked = False
        self.bodiless = message.method == "HEAD"

    def run(self) -> bool:
        handler = self.handler
        try:
            result = handler.app(handler.wsgi_environ(self.message), self.start_response)
            try:
                self.send(result)
            finally:
                close = getattr(result, "close", None)
                if close is not None:
                    close()
        except (ConnectionError, ssl.SSLError):
            raise
        except BaseException as error:  # what pytest.fail() raises is no Exception
            handler.mount.report(error)
            if self.head_sent:
                # Half an answer must not look whole: no last chunk, and the connection ends.
                return False
            self.status, self.headers = "500 Internal Server Error", []
            self.headers.append(("Content-Type", "text/plain"))
            self.send([b"the application failed\n"])
        return self.message.keep_alive

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        if exc_info is not None:
            try:
                if self.head_sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.status:
            raise AssertionError("start_response was called twice")
        self.status, self.headers = status, list(headers)
        return self.write

    def send(self, result: Iterable[bytes]) -> None:
        if not self.head_sent and (
            isinstance(result, list | tuple) or self._announced() is not None
        ):
            self.send_whole(b"".join(result))
            return
        for part in result:
            self.write(part)
        if not self.head_sent:
            self.send_whole(b"")
        elif self.chunked:
            self.handler.connection.sendall(_LAST_CHUNK)

    def _announced(self) -> str | None:
        return next((v for n, v in self.headers if n.lower() == "content-length"), None)

    def send_whole(self, body: bytes) -> None:
        """One write for head and body."""
        announced = self._announced()
        if announced is None and not self._no_body():
            self.headers.append(("Content-Length", str(len(body))))
        elif announced is not None and not self._no_body() and int(announced) != len(body):
            self.message.keep_alive = False
        self._send_head(b"" if self._no_body() else body)

    def write(self, part: bytes) -> None:
        if not part:
            return
        if not self.head_sent:
            if self._announced() is None and not self._no_body():
                self.chunked = self.message.version == "1.1"
                if self.chunked:
                    self.headers.append(("Transfer-Encoding", "chunked"))
                else:
                    self.message.keep_alive = False
            self._send_head(self._framed(part))
        elif framed := self._framed(part):
            self.handler.connection.sendall(framed)

    def _framed(self, part: bytes) -> bytes:
        if self._no_body():
            return b""
        return _chunk(part) if self.chunked else part

    def _no_body(self) -> bool:
        return self.bodiless or self.status[:3] in ("204", "304")

    def _send_head(self, after: bytes) -> None:
        if not self.status:
            raise AssertionError("the application did not call start_response")
        self.head_sent = True
        given = {name.lower() for name, _ in self.headers}
        lines = [f"HTTP/1.1 {self.status}\r\n"]
        if "date" not in given:
            lines.append(f"Date: {http_date()}\r\n")
        for name, value in self.headers:
            if name.lower() == "connection":
                if value.lower() == "close":
                    self.message.keep_alive = False
                continue
            if self.status[:3] == "204" and name.lower() == "content-length":
                continue
            lines.append(_header(name, value))
        lines.append(_connection_header(self.message))
        lines.append("\r\n")
        self.handler.connection.sendall(_bytes("".join(lines)) + after)


def encode(message: Message, answer: Answer) -> bytes:
    """The bytes of a whole answer, framed for the request it answers."""
    body = answer.body
    assert isinstance(body, bytes)
    status = answer.status
    head = _opening(status)
    if answer.headers:
        head += _own_headers(message, answer.headers)
    if answer.content_type is not None:
        head += f"Content-Type: {answer.content_type}\r\n"
    if status not in _BODILESS:
        head += f"Content-Length: {len(body)}\r\n"
    if status in _BODILESS or message.method == "HEAD":
        body = b""
    if not message.keep_alive or message.version != "1.1":
        head += _connection_header(message)
    return _bytes(head + "\r\n") + body


def _own_headers(message: Message, headers: Iterable[tuple[str, str]]) -> str:
    """The headers an answer brings along; how it is framed is not theirs to say."""
    lines = []
    for name, value in headers:
        lower = name.lower()
        if lower == "connection":
            message.keep_alive = message.keep_alive and "close" not in value.lower()
        elif lower not in _FRAMES:
            lines.append(_header(name, value))
    return "".join(lines)


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def _connection_header(message: Message) -> str:
    if not message.keep_alive:
        return "Connection: close\r\n"
    return "" if message.version == "1.1" else "Connection: keep-alive\r\n"


def _header(name: str, value: str) -> str:
    # What a service echoes must not become a header of its own.
    return f"{name}: {value.translate(_CLEAN)}\r\n"


def _status_line(status: int) -> str:
    return _STATUS_LINES.get(status) or f"HTTP/1.1 {status} Status {status}\r\n"


def _bytes(head: str) -> bytes:
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError:
        return head.encode("utf-8", "surrogateescape")


# Of the present second: the openings of answers, by status.
_openings: tuple[int, str, dict[int, str]] = (-1, "", {})


def _opening(status: int) -> str:
    """Status line and Date header, made once a second for each status."""
    now = int(time.time())
    second, _, made = _openings
    found = made.get(status) if second == now else None
    if found is None:
        date = http_date()
        found = f"{_status_line(status)}Date: {date}\r\n"
        _, present, made = _openings
        if present == date:
            made[status] = found
    return found


def http_date() -> str:
    """The present second of the process's clock as a Date header has it."""
    global _openings
    now = int(time.time())
    second, date, _ = _openings
    if second != now:
        # Not by email.utils: its datetime fails at the end of the year 9999 in frozen process time.
        t = time.gmtime(now)
        date = (
            f"{_DAYS[t.tm_wday]}, {t.tm_mday:02} {_MONTHS[t.tm_mon - 1]} {t.tm_year} "
            f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"
        )
        _openings = (now, date, {})
    return date
