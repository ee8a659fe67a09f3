"""Reads replies of a real server as RESP2 defines them.

The REST interface returns replies in that form, and not as redis-py would convert them.
"""

from __future__ import annotations

import re
from typing import Any, cast

from redis._parsers.resp2 import _RESP2Parser
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import ResponseError

from ..errors import REPLY_TOO_DEEP, CommandError
from ..reply import NIL_ARRAY, OK, Reply, Status
from ..scripting.runs import LEVELS

LONGEST = 512 << 20
"""Maximum string length that a server accepts: the default of ``proto-max-bulk-len``."""


class _StatusLine(bytes):
    """A simple string in a reply. redis-py returns it as bytes, like a bulk string."""


class RawParser(_RESP2Parser):
    """A parser for RESP2 that keeps the text of errors and the types of strings, unlike its base
    class.

    If a reply is nested more than ``LEVELS`` deep, the parser returns the error that the in-memory
    engine would return.
    """

    def _read_response(self, *args: Any, levels: int = LEVELS, **options: Any) -> Any:
        buffer: Any = self._buffer
        line = buffer.readline()
        if not line:
            raise LostConnection("the server closed the connection")
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else buffer.read(_number(rest, 0, LONGEST))
        if kind == b"+":
            return _StatusLine(rest)
        if kind == b":":
            return _number(rest)
        if kind == b"*":
            if rest == b"-1":
                return NIL_ARRAY
            count = _number(rest, 0)
            if levels:
                return [self._read_response(levels=levels - 1) for _ in range(count)]
            self._skip(count)
            kind, rest = b"-", REPLY_TOO_DEEP
        if kind != b"-":
            raise LostConnection(f"the reply is not RESP2: {line[:40]!r}")
        error: Any = self.parse_error(rest.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]
        error.line = rest
        if isinstance(error, LostConnection):
            raise error
        return error

    def _skip(self, count: int) -> None:
        buffer: Any = self._buffer
        while count:
            line = buffer.readline()
            if not line:
                raise LostConnection("the server closed the connection")
            count -= 1
            length = _number(line[1:], -1) if line[:1] in b"$*" else 0
            if line[:1] == b"$" and length >= 0:
                buffer.read(length)
            elif length > 0:
                count += length


def _number(text: bytes, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    if not re.fullmatch(rb"[+-]?\d{1,19}", text) or not least <= int(text) <= most:
        raise LostConnection(
            f"the reply contains {text[:40]!r} instead of a number from {least} to {most}"
        )
    return int(text)


def reply_of(raw: Any) -> Reply:
    """Convert a reply of ``RawParser`` to the types of ``kv/reply``."""
    kind = type(raw)
    if kind is bytes or kind is int or raw is None or raw is NIL_ARRAY:
        return cast("Reply", raw)
    if kind is list:
        return [reply_of(item) for item in raw]
    if kind is _StatusLine:
        return OK if raw == b"OK" else Status(bytes(raw))
    return CommandError(_text(raw))


def read_reply(connection: Any) -> Reply:
    """Read one reply. An error reply is returned, not raised."""
    try:
        return reply_of(connection.read_response(disable_decoding=True))
    except ResponseError as error:
        return CommandError(_text(error))


def exchange(connection: Any, argv: list[bytes]) -> Reply:
    """Send a command line and return its reply; raise ``CommandError`` for an error reply."""
    connection.send_command(*argv, check_health=False)
    reply = read_reply(connection)
    if isinstance(reply, CommandError):
        raise reply
    return reply


def _text(error: Exception) -> bytes:
    line: bytes = getattr(error, "line", b"")
    return line or b"ERR " + str(error).encode()
