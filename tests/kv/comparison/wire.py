"""RESP2 as values that keep what JSON would lose: status, error, nil and nil array are different."""

from __future__ import annotations

from typing import Any, BinaryIO, NamedTuple


class Status(NamedTuple):
    """A simple string."""

    text: bytes


class Error(NamedTuple):
    """An error reply."""

    text: bytes


class NilArray(NamedTuple):
    """The nil of arrays, `*-1`."""


def pack(argv: list[bytes]) -> bytes:
    """A command line as a client sends it."""
    parts = [b"*%d\r\n" % len(argv)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in argv]
    return b"".join(parts)


def read(stream: BinaryIO) -> Any:
    """The next reply."""
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
    raise ValueError(f"not a RESP2 reply: {line!r}")
