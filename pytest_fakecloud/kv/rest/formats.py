"""Formats of REST responses: RESP2, or JSON with plain or base64-encoded strings.

Large replies are encoded in pieces, so that memory never contains a second copy of a reply.
"""

from __future__ import annotations

import codecs
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import orjson

from ...http.messages import Answer, Request, Stream
from .. import errors
from ..errors import CommandError, RestError
from ..reply import LARGEST, OK, STREAMED, Reply, resp_parts, size_of, to_json, to_resp

Headers = list[tuple[str, str]]
_BINARY = "application/octet-stream"
_PIECE = 3 * 2**16
"""Number of string bytes per piece: a multiple of three, so that base64 pieces can be joined."""


class Format(NamedTuple):
    """The response format that a request asks for."""

    base64: bool
    resp2: bool

    def reply(self, reply: Reply, headers: Headers) -> Answer | Stream:
        if _is_large(size_of(reply)):
            parts = resp_parts(reply) if self.resp2 else json_of(reply, self.base64)
            return self._in_pieces(parts, headers)
        body = to_resp(reply) if self.resp2 else {"result": to_json(reply, self.base64)}
        return self._whole(body, headers)

    def replies(self, replies: list[Reply], size: int, headers: Headers) -> Answer | Stream:
        """Return the response to several commands, which have ``size`` bytes of strings."""
        if _is_large(size):
            encoded = chain.from_iterable(map(resp_parts, replies))
            parts = encoded if self.resp2 else json_of_each(replies, self.base64)
            return self._in_pieces(parts, headers)
        body = b"".join(map(to_resp, replies)) if self.resp2 else self._envelopes(replies)
        return self._whole(body, headers)

    def error(self, error: CommandError) -> Answer:
        if self.resp2:
            return Answer(to_resp(error), 400, (), _BINARY)
        return Answer({"error": str(error)}, 400)

    def _envelopes(self, replies: list[Reply]) -> list[dict[str, object]]:
        base64 = self.base64
        found: list[dict[str, object]] = []
        for reply in replies:
            # Nearly all replies are of the first two kinds, so convert them without a call.
            if reply is OK:
                found.append({"result": "OK"})
            elif type(reply) is bytes and not base64:
                found.append({"result": reply.decode("utf-8", "replace")})
            elif isinstance(reply, CommandError):
                found.append({"error": str(reply)})
            else:
                found.append({"result": to_json(reply, base64)})
        return found

    def _whole(self, body: object, headers: Headers) -> Answer:
        return Answer(body, 200, headers, self._content_type)

    def _in_pieces(self, parts: Iterable[bytes], headers: Headers) -> Stream:
        pieces = (part[at : at + _PIECE] for part in parts for at in range(0, len(part), _PIECE))
        return Stream(pieces, self._content_type, 200, headers)

    @property
    def _content_type(self) -> str:
        return _BINARY if self.resp2 else "application/json"


def _is_large(size: int) -> bool:
    """Return whether to send a reply in pieces; raise ``RestError`` above the size limit."""
    if size > LARGEST:
        raise RestError(400, errors.MAX_REQUEST_SIZE.decode())
    return size > STREAMED


def format_of(request: Request) -> Format:
    """Return the response format of a request; raise ``RestError`` if it does not exist."""
    base64 = option(request, "encoding").lower() == "base64"
    name = option(request, "response-format").lower()
    if name not in ("", "json", "resp2"):
        raise RestError(400, errors.BAD_FORMAT)
    if base64 and name == "resp2":
        raise RestError(400, errors.FORMAT_WITH_BASE64)
    return Format(base64, name == "resp2")


def option(request: Request, name: str) -> str:
    """Return the header ``upstash-<name>`` or ``service-<name>``, or an empty string."""
    fields = request.fields
    return (fields.get(f"upstash-{name}") or fields.get(f"service-{name}") or "").strip()


def json_of(reply: Reply, base64: bool) -> Iterator[bytes]:
    yield b'{"result":'
    yield from _value(reply, base64)
    yield b"}"


def json_of_each(replies: list[Reply], base64: bool) -> Iterator[bytes]:
    separator = b"["
    for reply in replies:
        yield separator
        separator = b","
        if isinstance(reply, CommandError):
            yield orjson.dumps({"error": str(reply)})
        else:
            yield from json_of(reply, base64)
    yield b"]"


def _value(reply: Reply, base64: bool) -> Iterator[bytes]:
    if isinstance(reply, bytes | bytearray) and len(reply) > _PIECE:
        yield b'"'
        yield from _long_string(reply, base64)
        yield b'"'
    elif isinstance(reply, list):
        separator = b"["
        for item in reply:
            yield separator
            separator = b","
            yield from _value(item, base64)
        yield b"]" if reply else b"[]"
    else:
        yield orjson.dumps(to_json(reply, base64))


def _long_string(text: bytes | bytearray, base64: bool) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with memoryview(text) as view:
        for at in range(0, len(view), _PIECE):
            piece = view[at : at + _PIECE]
            if base64:
                yield b64encode(piece)
            else:
                is_last = at + _PIECE >= len(view)
                yield orjson.dumps(decoder.decode(piece, final=is_last))[1:-1]
