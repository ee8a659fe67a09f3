"""DUMP and RESTORE payloads: this engine's own format, versioned and checksummed.

A type byte, the value's own fields and the seal of ``values.packing``. Nothing but this format is
ever read: payloads of real servers and anything made by hand are refused, and no payload can name
code.
"""

from __future__ import annotations

from typing import Any

from .hashes import HashValue
from .lists import QuickList
from .packing import FOOTER, Reader, Writer, sealed
from .sets import SetValue
from .stream import Stream
from .zset import SortedSet

__all__ = ["dump", "load", "register"]

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
    return sealed(body)


def load(payload: bytes) -> Any:
    """The value of a verified payload; ``ValueError`` when its body makes no sense."""
    tag, body = payload[0], payload[1:-FOOTER]
    if tag == _STRING:
        return body
    if tag not in _KINDS:
        raise ValueError(f"type {tag} is unknown")
    reader = Reader(body)
    value = _KINDS[tag].load(reader)
    if not reader.at_end():
        raise ValueError("bytes are left over")
    return value
