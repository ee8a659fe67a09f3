"""Reads ziplists and zipmaps, which servers before Redis 7.0 wrote, and reads and writes intsets."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from sys import byteorder

from .listpack import Entry
from .source import RdbError

_WIDTHS = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}
_CODES = {2: "h", 4: "i", 8: "q"}


def read_ziplist(blob: bytes) -> list[Entry]:
    """Return the elements of a ziplist; raise ``RdbError`` if any byte is invalid."""
    end = len(blob) - 1
    if end < 10 or int.from_bytes(blob[:4], "little") != len(blob) or blob[end] != 0xFF:
        raise RdbError("a ziplist has the wrong size or no end marker")
    found: list[Entry] = []
    at = start = 10
    before = 0
    try:
        while at < end:
            start = at
            previous = blob[at]
            at += 1
            if previous == 0xFE:
                previous = int.from_bytes(blob[at : at + 4], "little")
                at += 4
            if previous != before:
                raise RdbError("the length before a ziplist entry is wrong")
            first = blob[at]
            at += 1
            if first < 0xC0:
                if first < 0x40:
                    size = first
                elif first < 0x80:
                    size = (first & 63) << 8 | blob[at]
                    at += 1
                elif first == 0x80:
                    size = int.from_bytes(blob[at : at + 4], "big")
                    at += 4
                else:
                    raise RdbError("a ziplist contains an invalid entry")
                found.append(blob[at : at + size])
                at += size
            elif 0xF1 <= first <= 0xFD:
                found.append(first - 0xF1)
            else:
                width = _WIDTHS[first]
                found.append(int.from_bytes(blob[at : at + width], "little", signed=True))
                at += width
            before = at - start
    except (IndexError, KeyError):
        raise RdbError("a ziplist contains an invalid entry") from None
    count = int.from_bytes(blob[8:10], "little")
    tail = int.from_bytes(blob[4:8], "little")
    if at != end or tail != start or count not in (len(found), 0xFFFF):
        raise RdbError(
            "a ziplist does not end after its last entry, or declares a wrong number of entries"
        )
    return found


def read_zipmap(blob: bytes) -> list[bytes]:
    """Return the alternating fields and values of a zipmap; raise ``RdbError`` if it is invalid."""
    found: list[bytes] = []
    at, end = 1, len(blob) - 1
    if end < 1 or blob[end] != 0xFF:
        raise RdbError("a zipmap has no end marker")
    try:
        while at < end:
            size = blob[at]
            at += 1
            if size == 254:
                size = int.from_bytes(blob[at : at + 4], "little")
                at += 4
            elif size == 255:
                raise RdbError("a zipmap has an end marker before its end")
            free = 0
            if len(found) % 2:
                free = blob[at]
                at += 1
            found.append(blob[at : at + size])
            at += size + free
    except IndexError:
        raise RdbError("a zipmap contains an invalid entry") from None
    pairs, odd = divmod(len(found), 2)
    if at != end or odd or blob[0] not in (pairs, 254, 255) or blob[0] < min(pairs, 254):
        raise RdbError(
            "a zipmap does not end after its last entry, or declares a wrong number of entries"
        )
    return found


def read_intset(blob: bytes) -> list[int]:
    """Return the integers of an intset; raise ``RdbError`` if they are not in ascending order."""
    width, count = int.from_bytes(blob[:4], "little"), int.from_bytes(blob[4:8], "little")
    code = _CODES.get(width)
    if code is None or not count or len(blob) != 8 + width * count:
        raise RdbError("an intset has an invalid width or size")
    numbers = array(code)
    numbers.frombytes(blob[8:])
    if byteorder == "big":
        numbers.byteswap()
    found = numbers.tolist()
    if any(low >= high for low, high in pairwise(found)):
        raise RdbError("the integers of an intset are not in ascending order")
    return found


def write_intset(numbers: Sequence[int]) -> bytes:
    """Return an intset of at least one integer; the integers must be in ascending order."""
    widest = max(-numbers[0] - 1, numbers[-1])
    width = next(width for width in (2, 4, 8) if widest < 1 << 8 * width - 1)
    found = array(_CODES[width], numbers)
    if byteorder == "big":
        found.byteswap()
    header = width.to_bytes(4, "little") + len(numbers).to_bytes(4, "little")
    return header + found.tobytes()
