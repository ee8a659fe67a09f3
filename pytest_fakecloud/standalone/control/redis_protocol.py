"""A connection over the Redis protocol (RESP2), for commands that are sent again."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from .endpoints import Refused

_SECONDS = 10.0
"""Real seconds to wait for a reply. A command that blocks for longer has none."""


class RedisConnection:
    """A connection to the server of a ``redis://`` or ``rediss://`` URL, for a with-block."""

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        self._socket = socket.create_connection((split.hostname, split.port), _SECONDS)
        if split.scheme == "rediss":
            # The server is of this process; its certificate is made for tests.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._socket = context.wrap_socket(self._socket)
        self._reader = self._socket.makefile("rb")
        name: tuple[Any, ...] = self._socket.getsockname()
        self.address = (str(name[0]), int(name[1]))
        user = [unquote(split.username)] if split.username else []
        self._credentials = [*user, unquote(split.password)] if split.password else []

    def __enter__(self) -> Self:
        if self._credentials:
            self.run(["AUTH", *self._credentials])
        return self

    def __exit__(self, *exc: object) -> None:
        self._reader.close()
        self._socket.close()

    def run(self, command: Sequence[str]) -> Any:
        """Send a command and return its reply; an error is ``{"error": text}``.

        In a word, a byte that is not UTF-8 is a lone surrogate. Raises ``Refused`` without a reply.
        """
        words = [word.encode("utf-8", "surrogateescape") for word in command]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        try:
            self._socket.sendall(b"".join(parts))
            return self._reply()
        except TimeoutError:
            raise Refused(422, f"no reply within {_SECONDS:g} s: the command may block") from None
        except OSError as error:
            raise Refused(422, f"the connection was broken: {error.strerror or error}") from None

    def _reply(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed it")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return _text(rest)
        if kind == b"-":
            return {"error": _text(rest)}
        count = int(rest)
        if kind == b":":
            return count
        if count < 0:
            return None
        if kind == b"$":
            return _text(self._reader.read(count + 2)[:-2])
        return [self._reply() for _ in range(count)]


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")
