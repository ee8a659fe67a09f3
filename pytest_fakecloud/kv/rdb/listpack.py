"""Reads and writes listpacks: byte strings that contain a list of strings and integers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ..values.listpack import canonical_integer
from .source import RdbError

Entry = bytes | int
"""An element of a listpack or ziplist."""

_WIDTHS = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}
_BY_WIDTH = tuple(
    (-(1 << 8 * width - 1), 1 << 8 * width - 1, width, bytes([first]))
    for first, width in _WIDTHS.items()
)
_HEADER = 6
_UNKNOWN = 0xFFFF


def texts(entries: Iterable[Entry]) -> list[bytes]:
    """Convert elements to strings, the form in which clients receive them."""
    return [entry if isinstance(entry, bytes) else b"%d" % entry for entry in entries]


def read_listpack(blob: bytes) -> list[Entry]:
    """Return the elements of a listpack; raise ``RdbError`` if any byte is invalid."""
    end = len(blob) - 1
    if end < _HEADER or int.from_bytes(blob[:4], "little") != len(blob) or blob[end] != 0xFF:
        raise RdbError("a listpack has the wrong size or no end marker")
    found: list[Entry] = []
    at = _HEADER
    try:
        while at < end:
            first = blob[at]
            entry: Entry
            if first < 0x80:
                entry, size = first, 1
            elif first < 0xC0:
                size = (first & 63) + 1
                entry = blob[at + 1 : at + size]
            elif first < 0xE0:
                entry = (first & 31) << 8 | blob[at + 1]
                entry, size = (entry - 8192 if entry >= 4096 else entry), 2
            elif first < 0xF0:
                size = ((first & 15) << 8 | blob[at + 1]) + 2
                entry = blob[at + 2 : at + size]
            elif first == 0xF0:
                size = int.from_bytes(blob[at + 1 : at + 5], "little") + 5
                entry = blob[at + 5 : at + size]
            else:
                size = _WIDTHS[first] + 1
                entry = int.from_bytes(blob[at + 1 : at + size], "little", signed=True)
            at += size
            if size <= 127:
                if blob[at] != size:
                    raise RdbError("the length after a listpack entry is wrong")
                at += 1
            else:
                back = _back_length(size)
                if blob[at : at + len(back)] != back:
                    raise RdbError("the length after a listpack entry is wrong")
                at += len(back)
            found.append(entry)
    except (IndexError, KeyError):
        raise RdbError("a listpack contains an invalid entry") from None
    count = int.from_bytes(blob[4:6], "little")
    if at != end or count not in (len(found), _UNKNOWN):
        raise RdbError(
            "a listpack does not end after its last entry, or declares a wrong number of entries"
        )
    return found


def write_listpack(entries: Iterable[Entry]) -> bytes:
    """Encode a listpack. Strings that are canonical integers are stored as integers."""
    out = bytearray(_HEADER)
    count = 0
    for entry in entries:
        count += 1
        out += packed(entry)
    out.append(0xFF)
    out[:4] = len(out).to_bytes(4, "little")
    out[4:6] = min(count, _UNKNOWN).to_bytes(2, "little")
    return bytes(out)


def packed(entry: Entry) -> bytes:
    """Encode one entry of a listpack."""
    if isinstance(entry, int):
        return _integer(entry)
    size = len(entry)
    if size <= 20 and entry[:1] <= b"9":
        number = canonical_integer(entry)
        if number is not None:
            return _integer(number)
    if size < 64:
        return b"%c%b%c" % (0x80 | size, entry, size + 1)
    if size < 4096:
        body = bytes((0xE0 | size >> 8, size & 255)) + entry
    else:
        body = b"\xf0" + size.to_bytes(4, "little") + entry
    return body + _back_length(len(body))


def _integer(number: int) -> bytes:
    if 0 <= number < 128:
        return bytes((number, 1))
    if -4096 <= number < 4096:
        number &= 0x1FFF
        return bytes((0xC0 | number >> 8, number & 255, 2))
    for low, high, width, first in _BY_WIDTH:
        if low <= number < high:
            return first + number.to_bytes(width, "little", signed=True) + bytes([width + 1])
    raise ValueError(f"{number} does not fit into 64 bits")


_BOUNDS = (0, 128, 16383, 2097151, 268435455, 1 << 62)
"""Sizes of entries from which on the length that follows an entry takes one more byte."""


def _back_length(size: int) -> bytes:
    """Encode the length after an entry: groups of seven bits, all but the first with the top bit."""
    width = next(
        width for width, (low, high) in enumerate(pairwise(_BOUNDS), 1) if low <= size < high
    )
    groups = [size >> 7 * (width - 1 - place) & 127 for place in range(width)]
    return bytes([groups[0], *(group | 128 for group in groups[1:])])
