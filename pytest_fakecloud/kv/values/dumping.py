"""DUMP and RESTORE payloads: this engine's own format, versioned and checksummed.

A type byte, the value's own fields (``values.packing``), two bytes of version, eight bytes of
BLAKE2b over all before. Nothing but this format is ever read: payloads of real servers and
anything made by hand are refused, and no payload can name code.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from .hashes import HashValue
from .lists import QuickList
from .packing import Reader, Writer
from .sets import SetValue
from .stream import Stream
from .zset import SortedSet

__all__ = ["VERSION", "dump", "load", "register", "verify"]

VERSION = 1
_FOOTER = 10
_STRING = 0
_KINDS: dict[int, Any] = {1: QuickList, 2: SetValue, 3: SortedSet, 4: HashValue, 5: Stream}


def register(tag: int, kind: Any) -> None:
    """Add a value class with ``dump(writer)`` and ``load(reader)`` under a type byte of its own."""
    _KINDS[tag] = kind


def dump(value: Any) -> bytes:
    """The payload for a stored value."""
    if isinstance(value, bytes | bytearray):
        body = bytes([_STRING]) + bytes(value)
    else:
        tag = next(tag for tag, kind in _KINDS.items() if type(value) is kind)
        writer = Writer()
        value.dump(writer)
        body = bytes([tag]) + writer.payload()
    body += VERSION.to_bytes(2, "little")
    return body + blake2b(body, digest_size=8).digest()


def verify(payload: bytes) -> bool:
    """Whether the payload is of this format: long enough, right version, right checksum."""
    return (
        len(payload) > _FOOTER
        and payload[-_FOOTER:-8] == VERSION.to_bytes(2, "little")
        and blake2b(payload[:-8], digest_size=8).digest() == payload[-8:]
    )


def load(payload: bytes) -> Any:
    """The value of a verified payload; ``ValueError`` when its body makes no sense."""
    tag, body = payload[0], payload[1:-_FOOTER]
    if tag == _STRING:
        return body
    if tag not in _KINDS:
        raise ValueError(f"type {tag} is unknown")
    reader = Reader(body)
    value = _KINDS[tag].load(reader)
    if not reader.at_end():
        raise ValueError("bytes are left over")
    return value
