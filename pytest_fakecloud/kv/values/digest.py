"""Digests of values and keys: DEBUG DIGEST of Redis 7.0 returns the same for the same data."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from .stream import format_id

EMPTY = 0
"""The digest of no data. Digests are 20-byte big-endian integers."""


_TYPES = {"list": 1, "set": 2, "zset": 3, "hash": 4, "stream": 6}


_MODULE = 5


def _sum(data: bytes) -> int:
    return int.from_bytes(sha1(data, usedforsecurity=False).digest())


def joined(digest: int, element: int) -> int:
    """Combine ``digest`` with the digest of an element. The order of elements does not matter."""
    return digest ^ _sum(element.to_bytes(20))


def mixed(digest: int, *pieces: bytes) -> int:
    """Combine ``digest`` with byte strings. The order of the strings matters."""
    for piece in pieces:
        digest = _sum((digest ^ _sum(piece)).to_bytes(20))
    return digest


def key_digest(key: bytes, value: Any, expires: bool) -> int:
    """Return the digest of a key with its value. It also depends on whether the key expires."""
    return value_digest(value, expires, mixed(EMPTY, key))


def value_digest(value: Any, expires: bool, digest: int = EMPTY) -> int:
    """Combine ``digest`` with a value and with whether its key expires."""
    if isinstance(value, bytes | bytearray):
        digest = mixed(digest, (0).to_bytes(4), bytes(value))
    else:
        kind = value.type_name
        digest = mixed(digest, _TYPES.get(kind, _MODULE).to_bytes(4))
        match kind:
            case "list":
                digest = mixed(digest, *value)
            case "set":
                for member in value:
                    digest ^= _sum(member)
            case "zset":
                for score, member in value:
                    digest = joined(digest, mixed(EMPTY, member, b"%.17g" % score))
            case "hash":
                for pair in value.fields.items():
                    digest = joined(digest, mixed(EMPTY, *pair))
            case "stream":
                for entry_id, words in value.range():
                    digest = mixed(digest, format_id(entry_id).replace(b"-", b"."), *words)
    return digest ^ _sum(b"!!expire!!") if expires else digest
