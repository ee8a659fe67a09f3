"""Estimates the memory that Redis would allocate for a key, as MEMORY USAGE reports it."""

from __future__ import annotations

from typing import Any

from ..table.syntax import try_int

# Sizes of allocations in Redis, in bytes.
ENTRY = 24
"""Size of an entry in a dictionary, such as those of keys and of their expiry times."""
_OBJECT = 16
_HEADER = 56
_SKIP_NODE = 40
_ID = 16


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


def usage(key: bytes, value: Any) -> int:
    """Return the number of bytes used by a key, its dictionary entry and its complete value."""
    total = ENTRY + _text(len(key))
    if isinstance(value, bytes | bytearray):
        packed = len(value) <= 20 and not isinstance(value, UnpackedInteger)
        if packed and try_int(bytes(value)) is not None:
            return total + _OBJECT
        if len(value) <= 44:
            return total + _allocated(_OBJECT + 3 + len(value) + 1)
        return total + _OBJECT + _text(len(value))
    return total + _OBJECT + _HEADER + _elements(value)


def _elements(value: Any) -> int:
    match value.type_name:
        case "hash":
            pairs = value.fields.items()
            return sum(ENTRY + _text(len(field)) + _text(len(text)) for field, text in pairs)
        case "list":
            # Items are packed in nodes. A few bytes before each item contain its length.
            return sum(len(item) + 3 for item in value)
        case "set":
            return sum(ENTRY + _text(len(member)) for member in value)
        case "zset":
            return sum(ENTRY + _SKIP_NODE + _text(len(member)) for _, member in value)
        case "stream":
            return sum(_ID + sum(len(word) + 3 for word in words) for _, words in value.range())
    return int(value.size)
