"""Encodes large replies as JSON in pieces, so that memory never contains a second copy of a reply."""

from __future__ import annotations

import codecs
from base64 import b64encode
from collections.abc import Iterable, Iterator

import orjson

from ..errors import CommandError
from ..reply import Reply, to_json

_PIECE = 3 * 2**16
"""Number of string bytes per piece: a multiple of three, so that base64 pieces can be joined."""


def pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of all parts in pieces of limited size."""
    for part in parts:
        for at in range(0, len(part), _PIECE):
            yield part[at : at + _PIECE]


def result(reply: Reply, base64: bool) -> Iterator[bytes]:
    """Yield the JSON body of the response to a single command."""
    yield b'{"result":'
    yield from _value(reply, base64)
    yield b"}"


def envelopes(replies: list[Reply], base64: bool) -> Iterator[bytes]:
    """Yield the JSON body of the response to several commands."""
    separator = b"["
    for reply in replies:
        yield separator
        separator = b","
        if isinstance(reply, CommandError):
            yield orjson.dumps({"error": str(reply)})
        else:
            yield from result(reply, base64)
    yield b"]"


def _value(reply: Reply, base64: bool) -> Iterator[bytes]:
    if isinstance(reply, bytes | bytearray) and len(reply) > _PIECE:
        yield b'"'
        yield from _encoded(reply) if base64 else _escaped(reply)
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


def _encoded(text: bytes | bytearray) -> Iterator[bytes]:
    with memoryview(text) as view:
        for at in range(0, len(view), _PIECE):
            yield b64encode(view[at : at + _PIECE])


def _escaped(text: bytes | bytearray) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with memoryview(text) as view:
        for at in range(0, len(view), _PIECE):
            piece = decoder.decode(view[at : at + _PIECE], final=at + _PIECE >= len(view))
            yield orjson.dumps(piece)[1:-1]
