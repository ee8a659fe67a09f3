"""Serves HTTP/1.1 on one connection, for the fakes' own apps and for plain WSGI applications."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from ..core.timers import monotonic
from .app import App
from .connection import tls_error
from .encoding import LAST_CHUNK, chunk, encode, encode_parts, phrase, stream_head
from .messages import Answer, AnyResponse, Effect, Stream
from .parsing import BODY_LIMIT, Message, Refusal, RequestReader

if TYPE_CHECKING:
    from .connection import Connection

DRAIN_SECONDS = 0.2
"""Seconds that a client gets to read the response to invalid data before its connection closes."""
HANG_SECONDS = 60.0
"""Maximum seconds for which the ``hang()`` fault keeps a connection open."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def serve_http(connection: Connection, begun: bytes = b"") -> None:
    """Serve HTTP until either side closes. ``begun`` was read already, to detect the protocol."""
    HTTPHandler(connection).handle(begun)


class HTTPHandler:
    """Owns one connection: reads its requests and writes their responses in order."""

    def __init__(self, connection: Connection) -> None:
        self.sock = connection.sock
        self.connection = connection
        self.mount = connection.mount
        self.app = connection.mount.app
        limit = connection.mount.body_limit
        self.reader = RequestReader(
            connection.address, body_limit=BODY_LIMIT if limit is None else limit
        )
        self.native = isinstance(self.app, App)

    def handle(self, begun: bytes = b"") -> None:
        sock, reader = self.sock, self.reader
        messages = reader.messages
        # A request that is incomplete at the end is dropped and never reaches the engine.
        data = begun or sock.recv(16_384)
        while data:
            self.connection.received += len(data)
            reader.feed(data)
            while messages:
                message = messages.popleft()
                if message.expects:
                    sock.sendall(_CONTINUE)
                if not self._answer(message) or not message.keep_alive:
                    return
            if reader.refusal is not None:
                self._refuse(reader.refusal)
                return
            if reader.pending is not None and reader.pending.expects:
                reader.pending.expects = False
                sock.sendall(_CONTINUE)
            self.connection.handled += len(data)
            data = self.connection.early
            if data:
                self.connection.early = b""
            else:
                data = sock.recv(16_384 if reader.pending is None else 1_048_576)

    def _answer(self, message: Message) -> bool:
        """Respond to a request; return False if the connection must be closed."""
        if not self.connection.enter(message):
            return False
        try:
            if not self.native:
                # Imported here, because werkzeug takes 25 ms, and few fakes are WSGI applications.
                from .wsgi import WSGICall

                return WSGICall(self.connection, message).run()
            response = self._response(message)
            if isinstance(response, Stream):
                return self._stream(message, response)
        finally:
            self.connection.leave()
        if isinstance(response, Answer):
            self.sock.sendall(encode(message, response))
            return True
        return self._perform(message, response)

    def _response(self, message: Message) -> AnyResponse:
        response: AnyResponse
        try:
            response = self.app.answer(message)
        except Exception:
            raise
        except BaseException as error:
            # Respond even if a callback called pytest.fail(): the violation fails the test.
            response = self.app.broken_off(message, error)
        return response

    def _perform(self, message: Message, effect: Effect) -> bool:
        """Apply a fault's effect to the connection; return False, because the connection ends."""
        if effect.kind == "truncate" and effect.answer is not None:
            head, body = encode_parts(message, effect.answer)
            self.sock.sendall(head + body[: effect.keep])
        elif effect.kind == "hang":
            self._discard_until_closed(HANG_SECONDS)
        if effect.reset:
            self.connection.reset_when_closed()
        return False

    def _stream(self, message: Message, stream: Stream) -> bool:
        """Send chunks as they are produced. After a failure, omit the last chunk."""
        sock = self.sock
        chunked = message.version == "1.1"
        try:
            with self.connection.watched(stream.on_close or (lambda: None), reads=True):
                sock.sendall(stream_head(message, stream))
                if message.method == "HEAD":
                    return chunked
                for part in stream.chunks:
                    if self.connection.ended:
                        return False
                    if part:
                        sock.sendall(chunk(part) if chunked else part)
                if chunked:
                    sock.sendall(LAST_CHUNK)
        except (ConnectionError, tls_error()):
            return False
        except Exception as error:
            self.app.stream_failed(message, error)
            return False
        finally:
            stream.end()
        return chunked

    def _refuse(self, refusal: Refusal) -> None:
        """Send the reason for closing the connection, and let the client read it."""
        status = refusal.status
        message = Message(refusal.method or "GET", refusal.target, client=self.connection.address)
        message.version, message.keep_alive = "1.1", False
        if self.native and refusal.method:
            answer = self.app.foreign(message)
        else:
            if self.native:
                self.app.refused(status, refusal.reason)
            text = f"{status} {phrase(status)}: {refusal.reason}\n"
            answer = Answer(text.encode(), status, (), "text/plain")
        self.sock.sendall(encode(message, answer))
        # Close only the sending side: a reset would discard the response before it is read.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_WR)
        self._discard_until_closed(DRAIN_SECONDS)

    def _discard_until_closed(self, seconds: float) -> None:
        """Read and discard data until the client closes, for at most ``seconds`` real seconds."""
        deadline = monotonic() + seconds
        with contextlib.suppress(OSError):
            while (left := deadline - monotonic()) > 0:
                self.sock.settimeout(left)
                if not self.sock.recv(1_048_576):
                    return
