"""Serves HTTP/1.1 on one connection: reads complete requests, and writes complete responses or
streams.

A handler owns the connection. It serves the fakes' own apps, without a WSGI environment, and plain
WSGI applications.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from ..core.timeparse import monotonic
from .app import App
from .connection import tls_error
from .encoding import (
    LAST_CHUNK,
    chunk,
    encode,
    encode_parts,
    head_bytes,
    header,
    http_date,
    phrase,
    status_line,
)
from .messages import Answer, Effect, Stream
from .parsing import BODY_LIMIT, Message, Refusal, RequestReader

if TYPE_CHECKING:
    from .connection import Connection

DRAIN_SECONDS = 0.2
HANG_SECONDS = 60.0

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def serve_http(connection: Connection, begun: bytes = b"") -> None:
    """Serve HTTP on the connection until either side closes it.

    ``begun`` is data that was already read in order to detect the protocol.
    """
    HTTPHandler(connection).handle(begun)


class HTTPHandler:
    """Owns one connection: reads its requests and writes their responses in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection.sock
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
        # A request that is incomplete when the client disconnects is dropped and never reaches the
        # engine.
        data = begun or sock.recv(16_384)
        while data:
            self.held.received += len(data)
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
            self.held.handled += len(data)
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
            try:
                response = self.app.answer(message)
            except Exception:
                raise
            except BaseException as error:
                # Respond to the client even if a callback called pytest.fail(); the test fails for
                # the violation that is recorded here.
                response = self.app.broken_off(message, error)
            if type(response) is Stream:
                return self.stream(message, response)
        finally:
            held.leave()
        if type(response) is Answer:
            self.connection.sendall(encode(message, response))
            return True
        return self.perform(message, response)

    def perform(self, message: Message, effect: Effect) -> bool:
        """Apply a fault's effect to the connection; return False, because the connection ends."""
        if effect.kind == "truncate" and effect.answer is not None:
            head, body = encode_parts(message, effect.answer)
            self.connection.sendall(head + body[: effect.keep])
        elif effect.kind == "hang":
            self.wait_for_goodbye(HANG_SECONDS)
        if effect.reset:
            self.held.close_with_reset()
        return False

    def stream(self, message: Message, stream: Stream) -> bool:
        """Send chunks as they are produced. After a failure, omit the last chunk, so that the
        client notices.
        """
        sock = self.connection
        chunked = message.version == "1.1"
        framing = "Transfer-Encoding: chunked\r\n" if chunked else "Connection: close\r\n"
        head = [
            status_line(stream.status),
            f"Date: {http_date()}\r\nContent-Type: {stream.content_type}\r\n",
            "Cache-Control: no-cache\r\n",
            framing,
            *(header(name, value) for name, value in stream.headers),
            "\r\n",
        ]
        chunks = stream.chunks
        on_close = stream.on_close or (lambda: None)
        try:
            with self.held.watched(on_close, reads=True):
                sock.sendall(head_bytes("".join(head)))
                if message.method == "HEAD":
                    return chunked
                for part in chunks:
                    if self.held.ended:
                        return False
                    if part:
                        sock.sendall(chunk(part) if chunked else part)
                if chunked:
                    sock.sendall(LAST_CHUNK)
        except ConnectionError:
            return False
        except tls_error():
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
        # Imported here because werkzeug takes 25 ms to import, and most fakes have no WSGI
        # application.
        from .wsgi import run_wsgi_app

        if not self.held.enter(message):
            return False
        try:
            return run_wsgi_app(self.held, message)
        finally:
            self.held.leave()

    # -- ending ----------------------------------------------------------------------------------

    def refuse(self, refusal: Refusal) -> None:
        """Send the reason for closing the connection, and give the client time to read the
        response.
        """
        status = refusal.status
        message = Message(refusal.method or "GET", refusal.target, client=self.client_address)
        message.version, message.keep_alive = "1.1", False
        if self.native and refusal.method:
            answer = self.app.foreign(message)
        else:
            if self.native:
                self.app.refused(status, refusal.reason)
            text = f"{status} {phrase(status)}: {refusal.reason}\n"
            answer = Answer(text.encode(), status, (), "text/plain")
        self.connection.sendall(encode(message, answer))
        # Close only the sending side: closing the socket while the client's bytes are unread would
        # reset the connection and discard the response.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
        self.wait_for_goodbye(DRAIN_SECONDS)

    def wait_for_goodbye(self, seconds: float) -> None:
        """Read and discard data until the client closes, for at most ``seconds`` real seconds."""
        deadline = monotonic() + seconds
        with contextlib.suppress(OSError):
            while (left := deadline - monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(1_048_576):
                    return
