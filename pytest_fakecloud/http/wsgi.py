"""Serves plain WSGI applications on a connection, with an environment made by werkzeug."""

from __future__ import annotations

import io
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from werkzeug.datastructures import Headers
from werkzeug.serving import WSGIRequestHandler

from .encoding import (
    LAST_CHUNK,
    chunk,
    connection_header,
    head_bytes,
    header,
    http_date,
)
from .parsing import Message

if TYPE_CHECKING:
    from .connection import Connection


def run_wsgi_app(held: Connection, message: Message) -> bool:
    """Respond to a request with the mounted application; return False to close the connection."""
    return _WSGICall(held, message).run()


class _Environ(WSGIRequestHandler):
    """The attributes of a request that werkzeug's ``make_environ()`` reads from its handler."""

    def __init__(self, held: Connection, message: Message) -> None:
        # The base class's constructor is not called, because it serves a connection and closes it.
        self.connection = held.sock
        self.request = held.sock
        self.client_address = held.address
        self.command = message.method
        self.path = message.target
        self.request_version = f"HTTP/{message.version}"
        self.headers = Headers(  # type: ignore[assignment]
            (n, v) for n, v in message.headers.pairs if n.lower() != "transfer-encoding"
        )
        self.rfile = io.BytesIO(message.body)
        self.server = _Origin(held.mount)  # type: ignore[assignment]


def _environ(held: Connection, message: Message) -> dict[str, Any]:
    """Return the WSGI environment of a request as werkzeug makes it, plus raw values.

    ``RAW_URI`` is the raw target, ``fakecloud.headers`` the raw header list. The body is complete,
    so ``CONTENT_LENGTH`` is always set.
    """
    environ = _Environ(held, message).make_environ()
    environ["wsgi.input_terminated"] = True
    environ["fakecloud.headers"] = message.headers.pairs
    environ["REMOTE_PORT"] = str(environ["REMOTE_PORT"])
    if message.body:
        environ["CONTENT_LENGTH"] = str(len(message.body))
    return environ


class _Origin:
    """The attributes that werkzeug's ``make_environ()`` reads from its server."""

    multithread = True
    multiprocess = False
    _server_version = "pytest-fakecloud"

    def __init__(self, mount: Any) -> None:
        self.ssl_context = mount.tls
        self.server_address = mount.address

    def log(self, kind: str, message: str, *args: object) -> None:
        """Log nothing, because the journal records the requests."""


class _ClientGone(ConnectionError):
    """Raised if a part of the response cannot be sent, unlike an error of the application's own
    connections.
    """


class _WSGICall:
    """One call of a WSGI application: collects the application's output and writes it."""

    def __init__(self, held: Connection, message: Message) -> None:
        self.held = held
        self.message = message
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.head_sent = False
        self.chunked = False
        self.bodiless = message.method == "HEAD"

    def run(self) -> bool:
        held = self.held
        try:
            result = held.mount.app(_environ(held, self.message), self.start_response)
            try:
                self.send(result)
            finally:
                close = getattr(result, "close", None)
                if close is not None:
                    close()
        except _ClientGone:
            raise
        except BaseException as error:  # pytest.fail() raises a BaseException.
            held.mount.report(error)
            if self.head_sent:
                # A partial response must not look complete, so omit the last chunk and close the
                # connection.
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
            self._write(LAST_CHUNK)

    def _announced(self) -> str | None:
        return next((v for n, v in self.headers if n.lower() == "content-length"), None)

    def send_whole(self, body: bytes) -> None:
        """Write head and body in one call."""
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
            self._write(framed)

    def _framed(self, part: bytes) -> bytes:
        if self._no_body():
            return b""
        return chunk(part) if self.chunked else part

    def _no_body(self) -> bool:
        return self.bodiless or self.status[:3] in ("204", "304")

    def _send_head(self, after: bytes) -> None:
        if not self.status:
            raise AssertionError("the application did not call start_response")
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
            lines.append(header(name, value))
        lines.append(connection_header(self.message))
        lines.append("\r\n")
        head = head_bytes("".join(lines))
        self.head_sent = True
        self._write(head + after)

    def _write(self, data: bytes) -> None:
        try:
            self.held.sock.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise _ClientGone from error
