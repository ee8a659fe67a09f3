"""RESP as values that distinguish what JSON does not: status, error, nil and nil array."""

from __future__ import annotations

import select
import socket
from shlex import split
from typing import Any, BinaryIO, NamedTuple


class Status(NamedTuple):
    """A simple string."""

    text: bytes


class Error(NamedTuple):
    """An error reply."""

    text: bytes


class NilArray(NamedTuple):
    """The nil of arrays, `*-1`."""


class Typed(NamedTuple):
    """A RESP3 value of a type that RESP2 does not have: its first byte and its content."""

    kind: bytes
    value: Any


def pack(argv: list[bytes]) -> bytes:
    """Encode a command line as a client does."""
    parts = [b"*%d\r\n" % len(argv)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in argv]
    return b"".join(parts)


def read(stream: BinaryIO) -> Any:
    """Read the next reply."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError("the server closed the connection")
    kind, text = line[:1], line[1:-2]
    if kind == b"+":
        return Status(text)
    if kind == b"-":
        return Error(text)
    if kind == b":":
        return int(text)
    if kind == b"$":
        if text == b"-1":
            return None
        data = stream.read(int(text) + 2)
        return data[:-2]
    if kind == b"*":
        return NilArray() if text == b"-1" else [read(stream) for _ in range(int(text))]
    if kind == b"_":
        return None
    if kind in b",#(":
        return Typed(kind, text)
    if kind == b"=":
        return Typed(kind, stream.read(int(text) + 2)[:-2])
    if kind in b"~>":
        return Typed(kind, [read(stream) for _ in range(int(text))])
    if kind == b"%":
        return Typed(kind, [read(stream) for _ in range(2 * int(text))])
    if kind == b"|":
        attribute = [read(stream) for _ in range(2 * int(text))]
        return Typed(kind, [attribute, read(stream)])
    raise ValueError(f"not a reply: {line!r}")


class Connection:
    """A connection to a server."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._stream = connected.makefile("rb")

    def call(self, argv: list[bytes]) -> Any:
        """Send one command line and read its reply."""
        self._socket.sendall(pack(argv))
        return read(self._stream)

    def send(self, argv: list[bytes]) -> BinaryIO:
        """Send one command line; return the stream, whose next item is the reply."""
        self._socket.sendall(pack(argv))
        return self._stream

    def next(self) -> Any:
        """Read a pushed message."""
        return read(self._stream)

    def answers(self, argv: list[bytes], patience: float) -> bool:
        """Send one command line; return whether a reply arrives within some seconds."""
        self._socket.sendall(pack(argv))
        return bool(select.select([self._socket], [], [], patience)[0])

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


def words(line: str) -> list[bytes]:
    """Split a line like a shell, and replace escapes such as ``\\n``."""
    return [word.encode().decode("unicode_escape").encode() for word in split(line)]
