"""Computes the sizes of listpack entries, which determine encodings and the nodes of streams."""

from __future__ import annotations

import re

LISTPACK_OVERHEAD = 7
"""Size of an empty listpack in bytes: the total length, the number of elements and the end marker."""


def _with_back_length(size: int) -> int:
    if size <= 127:
        return size + 1
    if size < 16383:
        return size + 2
    if size < 2097151:
        return size + 3
    if size < 268435455:
        return size + 4
    return size + 5


def integer_size(number: int) -> int:
    """Return the size in bytes of an integer entry, including the length that follows it."""
    if 0 <= number <= 127:
        return 2
    if -4096 <= number <= 4095:
        return 3
    if -(1 << 15) <= number < 1 << 15:
        return 4
    if -(1 << 23) <= number < 1 << 23:
        return 5
    if -(1 << 31) <= number < 1 << 31:
        return 6
    return 10


_CANONICAL = re.compile(rb"(?:0|-?[1-9][0-9]{0,18})\Z")


def canonical_integer(text: bytes) -> int | None:
    """Return the 64-bit integer of a canonical string (not ``01``, ``+1``, ``-0``), or None."""
    if not _CANONICAL.match(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def entry_size(item: bytes) -> int:
    """Return the size in bytes of an entry. A canonical integer is stored as an integer."""
    length = len(item)
    if length <= 20 and item[:1] <= b"9":
        number = canonical_integer(item)
        if number is not None:
            return integer_size(number)
    if length < 64:
        return length + 2
    if length < 4096:
        return _with_back_length(length + 2)
    return _with_back_length(length + 5)
