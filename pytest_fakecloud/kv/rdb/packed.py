"""Packed structures: listpacks, and the ziplists, zipmaps and intsets of older servers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from sys import byteorder

from ..table.syntax import try_int
from ..values.measures import back_length_size
from .source import RdbError

Entry = bytes | int
"""An element of a listpack or ziplist."""

_LISTPACK_WIDTHS = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}
_BY_WIDTH = tuple(
    (-(1 << 8 * width - 1), 1 << 8 * width - 1, width, bytes([first]))
    for first, width in _LISTPACK_WIDTHS.items()
)
_HEADER = 6
_UNKNOWN = 0xFFFF
"""The declared number of entries if a listpack or ziplist has at least as many."""


def _wrong_end(what: str) -> RdbError:
    why = "does not end after its last entry, or declares a wrong number of entries"
    return RdbError(f"a {what} {why}")


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
                size = _LISTPACK_WIDTHS[first] + 1
                entry = int.from_bytes(blob[at + 1 : at + size], "little", signed=True)
            at += size
            if size <= 127:
                if blob[at] != size:
                    raise RdbError("the length after a listpack entry is wrong")
                at += 1
            else:
                back = _back_length(size)
                if not blob.startswith(back, at):
                    raise RdbError("the length after a listpack entry is wrong")
                at += len(back)
            found.append(entry)
    except (IndexError, KeyError):
        raise RdbError("a listpack contains an invalid entry") from None
    count = int.from_bytes(blob[4:6], "little")
    if at != end or count not in (len(found), _UNKNOWN):
        raise _wrong_end("listpack")
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
        number = try_int(entry)
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


def _back_length(size: int) -> bytes:
    """Encode the length after an entry: groups of seven bits, all but the first with the top bit."""
    width = back_length_size(size)
    groups = [size >> 7 * (width - 1 - place) & 127 for place in range(width)]
    return bytes([groups[0], *(group | 128 for group in groups[1:])])


_ZIPLIST_WIDTHS = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}
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
                width = _ZIPLIST_WIDTHS[first]
                found.append(int.from_bytes(blob[at : at + width], "little", signed=True))
                at += width
            before = at - start
    except (IndexError, KeyError):
        raise RdbError("a ziplist contains an invalid entry") from None
    count = int.from_bytes(blob[8:10], "little")
    tail = int.from_bytes(blob[4:8], "little")
    if at != end or tail != start or count not in (len(found), _UNKNOWN):
        raise _wrong_end("ziplist")
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
        raise _wrong_end("zipmap")
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
