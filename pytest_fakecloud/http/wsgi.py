"""Serves plain WSGI applications on a connection, with an environment made by werkzeug."""

from __future__ import annotations

import io
import ssl
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

from werkzeug.datastructures import Headers
from werkzeug.serving import WSGIRequestHandler

from .messages import Answer, asks_to_close, close_chunks
from .parsing import MalformedRequest, ReceivedRequest
from .server import (
    LAST_CHUNK,
    Connection,
    HTTPHandler,
    chunk,
    connection_header,
    head_bytes,
    header,
    http_date,
    malformed_text,
)


def make_environ(connection: Connection, request: ReceivedRequest) -> dict[str, Any]:
    """Return the WSGI environment of a complete request as werkzeug makes it, plus
    ``CONTENT_LENGTH``, the raw target (``RAW_URI``) and the raw headers (``fakecloud.headers``).
    """
    mount = connection.mount
    # Set only the attributes that make_environ() reads: the constructor would serve the connection.
    handler = WSGIRequestHandler.__new__(WSGIRequestHandler)
    vars(handler).update(
        connection=connection.sock,
        client_address=connection.address,
        command=request.method,
        path=request.target,
        request_version=f"HTTP/{request.version}",
        headers=Headers(
            (n, v) for n, v in request.headers.pairs if n.lower() != "transfer-encoding"
        ),
        rfile=io.BytesIO(request.body),
        server=SimpleNamespace(
            ssl_context=mount.tls,
            server_address=mount.address,
            multithread=True,
            multiprocess=False,
            _server_version="pytest-fakecloud",
            log=lambda *args: None,  # the journal records the requests
        ),
    )
    environ = handler.make_environ()
    environ["wsgi.input_terminated"] = True
    environ["fakecloud.headers"] = request.headers.pairs
    environ["REMOTE_PORT"] = str(environ["REMOTE_PORT"])
    if request.body:
        environ["CONTENT_LENGTH"] = str(len(request.body))
    return environ


class _ClientGone(ConnectionError):
    """Raised if a part of the response cannot be sent."""


_Framing: TypeAlias = Literal["no body", "length", "chunked", "until close"]
"""The way in which a client finds the end of a body."""


class WSGIHandler(HTTPHandler):
    """Owns one connection to a WSGI application."""

    def _reject_head(self, request: ReceivedRequest) -> None:
        """Read every body, because only the application knows which requests it rejects."""

    def _respond(self, request: ReceivedRequest) -> bool:
        if not self.connection.enter(request):
            return False
        try:
            return WSGICall(self.connection, request).run()
        finally:
            self.connection.leave()

    def _malformed_answer(self, malformed: MalformedRequest, request: ReceivedRequest) -> Answer:
        return malformed_text(malformed)


class WSGICall:
    """One call of a WSGI application: collects the application's output and writes it."""

    def __init__(self, connection: Connection, request: ReceivedRequest) -> None:
        self.connection = connection
        self.request = request
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.head_sent = False
        self.framing: _Framing = "no body"
        self.unwritten = 0
        """The announced length of a body that is sent in parts, minus the bytes written."""

    def run(self) -> bool:
        """Respond to the request; return False to close the connection."""
        connection = self.connection
        try:
            result = connection.mount.app(
                make_environ(connection, self.request), self.start_response
            )
            try:
                self.send(result)
            finally:
                close_chunks(result)
        except _ClientGone:
            raise
        except BaseException as error:  # pytest.fail() raises a BaseException.
            connection.mount.report(error)
            if self.head_sent:
                # A partial response must not look complete: omit the last chunk and close.
                return False
            self.status = "500 Internal Server Error"
            self.headers = [("Content-Type", "text/plain")]
            self.send([b"the application failed\n"])
        return self.request.keep_alive

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        if exc_info is None and self.status:
            raise AssertionError("start_response was called twice")
        if exc_info is not None and self.head_sent:
            raise exc_info[1].with_traceback(exc_info[2])
        self.status, self.headers = status, list(headers)
        return self.write

    def send(self, result: Iterable[bytes]) -> None:
        """Write the application's result, in one call if its length is known."""
        if not self.head_sent and (
            isinstance(result, list | tuple) or self._announced_length() is not None
        ):
            self._send_whole(b"".join(result))
            return
        for part in result:
            self.write(part)
        if not self.head_sent:
            self._send_whole(b"")
        elif self.framing == "chunked":
            self._send_bytes(LAST_CHUNK)
        elif self.unwritten:
            # The client would take the next response for a part of this body, or the reverse.
            self.request.keep_alive = False

    def _send_whole(self, body: bytes) -> None:
        self.framing = self._choose_framing(len(body))
        self._send_head(b"" if self.framing == "no body" else body)

    def write(self, part: bytes) -> None:
        """Write a part of the body, after the head if it has not been sent."""
        if not part:
            return
        if not self.head_sent:
            self.framing = self._choose_framing(None)
            self._send_head(self._framed(part))
        elif framed := self._framed(part):
            self._send_bytes(framed)

    def _choose_framing(self, length: int | None) -> _Framing:
        """Choose the end of a body of ``length`` bytes (None: not known), and add its header."""
        if self.request.method == "HEAD" or self.status[:3] in ("204", "304"):
            return "no body"
        announced = self._announced_length()
        if announced is not None:
            if length is None:
                self.unwritten = int(announced)
            elif int(announced) != length:
                self.request.keep_alive = False
            return "length"
        if length is not None:
            self.headers.append(("Content-Length", str(length)))
            return "length"
        if self.request.version == "1.1":
            self.headers.append(("Transfer-Encoding", "chunked"))
            return "chunked"
        self.request.keep_alive = False
        return "until close"

    def _announced_length(self) -> str | None:
        return next((v for n, v in self.headers if n.lower() == "content-length"), None)

    def _framed(self, part: bytes) -> bytes:
        if self.framing == "no body":
            return b""
        if self.framing == "length":
            self.unwritten -= len(part)
        return chunk(part) if self.framing == "chunked" else part

    def _send_head(self, first_part: bytes) -> None:
        """Send the head and the first part of the framed body in one call."""
        if not self.status:
            raise AssertionError("the application did not call start_response")
        names = {name.lower() for name, _ in self.headers}
        lines = [f"HTTP/1.1 {self.status}\r\n"]
        if "date" not in names:
            lines.append(f"Date: {http_date()}\r\n")
        for name, value in self.headers:
            if name.lower() == "connection":
                if asks_to_close(value):
                    self.request.keep_alive = False
                continue
            if self.status[:3] == "204" and name.lower() == "content-length":
                continue
            lines.append(header(name, value))
        lines.append(connection_header(self.request))
        lines.append("\r\n")
        head = head_bytes("".join(lines))
        self.head_sent = True
        self._send_bytes(head + first_part)

    def _send_bytes(self, data: bytes) -> None:
        try:
            self.connection.sock.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise _ClientGone from error
