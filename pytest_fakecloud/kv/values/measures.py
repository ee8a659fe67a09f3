"""Sizes and digests of values: MEMORY USAGE, the sizes of listpack entries, and DEBUG DIGEST.

The sizes of listpack entries determine encodings and the nodes of streams. The digests equal those
of Redis 7.0 for the same data.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import sha1
from typing import Any

from ..syntax import try_int

# Sizes of allocations in Redis, in bytes.
ENTRY = 24
"""Size of an entry in a dictionary, such as those of keys and of their expiry times."""
_OBJECT = 16
"""Size of the object that refers to a value."""
_HEADER = 56
"""Size of a collection without elements."""
_STRING = 8
"""Average size that the header, the terminator and the allocator add to a string in a collection."""
_ELEMENT = {
    "array": 8 + _STRING,
    "hash": ENTRY + 2 * _STRING,
    "list": 3,
    "set": ENTRY + _STRING,
    "stream": 16,
    "zset": 64,
}
"""Average size of each element, in addition to its content."""
PENDING = 546
"""Size of an entry that is pending in a consumer group, as measured on Redis 7.0."""
NUMBER = 8
"""Size of a score or a stream ID as part of a value's content."""


class UnpackedInteger(bytes):
    """An integer that Redis stores as a string, such as the result of INCRBYFLOAT."""

    __slots__ = ()


def _allocated(size: int) -> int:
    """Return the number of bytes that the allocator reserves for a block of ``size`` bytes."""
    if size <= 8:
        return 8
    if size <= 128:
        return (size + 15) // 16 * 16
    step = 1 << (size - 1).bit_length() - 3
    return (size + step - 1) // step * step


def _text(length: int) -> int:
    """Return the size of a Redis string: a header of 1 to 5 bytes, the content, and a terminator."""
    header = 1 if length < 32 else 3 if length < 256 else 5
    return _allocated(length + header + 1)


def content_size(value: Any) -> int:
    """Return the bytes of a value's strings, plus eight bytes for each score or stream ID.

    Collections keep their size up to date, and JSON is formatted to measure it. A search index has
    no contents beyond those of its keys (decided here).
    """
    if isinstance(value, bytes | bytearray):
        return len(value)
    return 0 if value.type_name == "search" else int(value.size)


def usage(key: bytes, value: Any) -> int:
    """Return the number of bytes used by a key, its dictionary entry and its complete value.

    For a collection, this is an estimate from the number of elements and their content.
    """
    total = ENTRY + _text(len(key))
    if isinstance(value, bytes | bytearray):
        packed = len(value) <= 20 and not isinstance(value, UnpackedInteger)
        if packed and try_int(bytes(value)) is not None:
            return total + _OBJECT
        if len(value) <= 44:
            return total + _allocated(_OBJECT + 3 + len(value) + 1)
        return total + _OBJECT + _text(len(value))
    element_size = _ELEMENT.get(value.type_name)
    elements = element_size * len(value) if element_size else 0
    if value.type_name == "stream":
        elements += PENDING * sum(len(group.pending) for group in value.groups.values())
    return total + _OBJECT + _HEADER + elements + content_size(value)


# -- listpacks -----------------------------------------------------------------------------------

LISTPACK_OVERHEAD = 7
"""Size of an empty listpack in bytes: the total length, the number of elements and the end marker."""
_BACK_LENGTH_BOUNDS = (128, 16383, 2097151, 268435455)
"""Sizes of entries from which on the length that follows an entry takes one more byte."""


def back_length_size(size: int) -> int:
    """Return the number of bytes of the length that follows an entry of ``size`` bytes."""
    return bisect_right(_BACK_LENGTH_BOUNDS, size) + 1


_INTEGER_SIZES = (3,) * 13 + (4,) * 3 + (5,) * 8 + (6,) * 8 + (10,) * 33
"""The sizes in bytes of integer entries by the bits of the integers without their sign."""


def integer_size(number: int) -> int:
    """Return the size in bytes of an integer entry, including the length that follows it."""
    if 0 <= number <= 127:
        return 2
    return _INTEGER_SIZES[(number if number >= 0 else ~number).bit_length()]


def entry_size(item: bytes) -> int:
    """Return the size in bytes of an entry. A canonical integer is stored as an integer."""
    length = len(item)
    if 0 < length <= 20 and item[0] <= b"9"[0]:  # Only a digit or a sign can begin an integer.
        number = try_int(item)
        if number is not None:
            return integer_size(number)
    if length < 64:
        return length + 2
    size = length + (2 if length < 4096 else 5)
    return size + back_length_size(size)


# -- digests ---------------------------------------------------------------------------------------

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
                for entry_id, words in value.written():
                    digest = mixed(digest, entry_id.replace(b"-", b"."), *words)
            case "array":
                for index, item in value:
                    digest = mixed(digest, b"%d" % index, item)
    return digest ^ _sum(b"!!expire!!") if expires else digest
