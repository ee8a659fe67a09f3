"""Length-prefixed fields, the body of a DUMP payload; and the seal at the end of each payload."""

from __future__ import annotations

import math
import struct
from hashlib import blake2b

__all__ = ["FOOTER", "Reader", "Writer", "sealed", "verify"]

FOOTER = 10
"""The bytes of a seal: two of the format's version, eight of BLAKE2b over all before."""
_VERSION = (1).to_bytes(2, "little")


def sealed(body: bytes) -> bytes:
    """The payload of a body."""
    body += _VERSION
    return body + blake2b(body, digest_size=8).digest()


def verify(payload: bytes) -> bool:
    """Whether the payload is of this format: long enough, right version, right checksum."""
    return (
        len(payload) > FOOTER
        and payload[-FOOTER:-8] == _VERSION
        and blake2b(payload[:-8], digest_size=8).digest() == payload[-8:]
    )


class Writer:
    """Collects fields into one byte string."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def integer(self, number: int) -> None:
        """A signed integer of any size."""
        self.blob(b"%d" % number)

    def double(self, number: float) -> None:
        """A 64-bit float, exactly."""
        self._parts.append(struct.pack("<d", number))

    def blob(self, data: bytes) -> None:
        """A byte string with its length before it."""
        self._parts.append(struct.pack("<I", len(data)))
        self._parts.append(bytes(data))

    def payload(self) -> bytes:
        """Everything written so far."""
        return b"".join(self._parts)


class Reader:
    """Reads fields in the order they were written; ``ValueError`` when the payload is not one."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def _take(self, length: int) -> bytes:
        piece = self._payload[self._at : self._at + length]
        if len(piece) != length:
            raise ValueError(f"the payload ends after {len(self._payload)} bytes")
        self._at += length
        return piece

    def integer(self) -> int:
        """The next signed integer."""
        return int(self.blob())

    def number(self, low: int, high: int) -> int:
        """The next integer, which must lie in a range."""
        number = self.integer()
        if not low <= number <= high:
            raise ValueError(f"{number} is not within {low} and {high}")
        return number

    def count(self, least: int = 0) -> int:
        """The next integer, a number of elements that the rest of the payload can hold."""
        return self.number(least, len(self._payload) - self._at)

    def double(self) -> float:
        """The next 64-bit float, which must be a number."""
        number: float = struct.unpack("<d", self._take(8))[0]
        if math.isnan(number):
            raise ValueError("a score is not a number")
        return number

    def blob(self) -> bytes:
        """The next byte string."""
        length = int.from_bytes(self._take(4), "little")
        return self._take(length)

    def at_end(self) -> bool:
        """Whether every byte has been read."""
        return self._at == len(self._payload)
