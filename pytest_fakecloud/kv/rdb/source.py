"""The parts of RDB values: lengths, strings with LZF and its limits, packed structures, CRC-64.

In LZF, a control byte below 32 announces that number of literals plus 1. In any other, the upper
three bits are the length of a match minus 2, or 7 if another byte extends it. The lower five bits
and a further byte are the distance of the match minus 1. The CRC-64 is the variant "Jones":
reflected, no initial value, no final XOR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from struct import pack, unpack, unpack_from
from typing import Any

from ..syntax import try_int
from ..values.measures import back_length_size, integer_size

MOST_UNPACKED = {False: 512 * 2**20, True: 16 * 2**20}
"""Number of bytes to which the strings in any data may be decompressed: ordinary strings (key
False) and packed structures (key True).

Packed structures have a lower limit, because their elements become objects, which need more memory.
"""
SPARE_PER_BYTE = 20
"""Decompressed bytes allowed in addition for each byte of data; servers write 2 to 6."""


class RdbError(ValueError):
    """Raised for data that is not RDB or has an unsupported format."""


class Source:
    """A byte string that is read sequentially.

    Every method raises ``RdbError`` for truncated or invalid data. No memory is allocated for a
    size that the data merely declares: the data must contain that many bytes.
    """

    __slots__ = ("_spare", "at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        spare = SPARE_PER_BYTE * len(data)
        self._spare = {packed: most + spare for packed, most in MOST_UNPACKED.items()}

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        at = self.at
        stop = at + size
        if stop > len(self.data):
            raise RdbError(f"the data ends at byte {len(self.data)}, within a value")
        self.at = stop
        return self.data[at:stop]

    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise RdbError(f"the data ends at byte {at}, within a value")
        self.at = at + 1
        return self.data[at]

    def uint(self, size: int) -> int:
        """Return an integer of ``size`` bytes, least significant byte first."""
        return int.from_bytes(self.take(size), "little")

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "little", signed=True)

    def double(self) -> float:
        number: float = unpack_from("<d", self.take(8))[0]
        return number

    def length(self) -> int:
        number, special = self._length()
        if special:
            raise RdbError(f"expected a length at byte {self.at - 1}, got string encoding {number}")
        return number

    def count(self, least: int = 0) -> int:
        """Return a number of elements that is at least ``least`` and fits into the remaining data."""
        count = self.length()
        if not least <= count <= len(self.data) - self.at:
            raise RdbError(
                f"{count} elements declared before byte {self.at}; expected {least} to {self.left()}"
            )
        return count

    def string(self, *, packed: bool = False) -> bytes:
        """Return a string, decompressed if necessary; ``packed`` if it contains a packed structure."""
        data, at = self.data, self.at
        # Fast path: nearly every string has a length that is encoded in one or two bytes.
        if at + 1 < len(data) and (first := data[at]) < 128:
            if first < 64:
                start, stop = at + 1, at + 1 + first
            else:
                start = at + 2
                stop = start + ((first & 63) << 8 | data[at + 1])
            if stop <= len(data):
                self.at = stop
                return data[start:stop]
        number, special = self._length()
        if not special:
            return self.take(number)
        if number < 3:
            return b"%d" % int.from_bytes(self.take(1 << number), "little", signed=True)
        if number > 3:
            raise RdbError(f"byte {self.at - 1} begins a string with the unknown encoding {number}")
        compressed, size = self.length(), self.length()
        if size > compressed * MOST_GROWTH:
            raise RdbError(
                f"{compressed} compressed bytes before byte {self.at} cannot expand to {size} bytes"
            )
        self._spare[packed] -= size
        if self._spare[packed] < 0:
            raise RdbError(
                f"the compressed strings up to byte {self.at} decompress to too many bytes"
            )
        body = self.take(compressed)
        try:
            return lzf_decompress(body, size)
        except ValueError as error:
            raise RdbError(f"{error} (before byte {self.at})") from None

    def _length(self) -> tuple[int, bool]:
        """Return a length and False, or the code of a special string encoding and True."""
        first = self.byte()
        kind = first >> 6
        if kind == 0:
            return first, False
        if kind == 1:
            return (first & 63) << 8 | self.byte(), False
        if kind == 3:
            return first & 63, True
        if first == 0x80:
            return int.from_bytes(self.take(4), "big"), False
        if first == 0x81:
            return int.from_bytes(self.take(8), "big"), False
        raise RdbError(f"expected a length at byte {self.at - 1}, got {first:#04x}")


MOST_GROWTH = 88
"""Maximum number of output bytes per compressed byte: 3 bytes encode a run of up to 264."""
# Maximum numbers of bytes: between a match and its source, in a match, and in a row of literals.
_FARTHEST = 8192
_LONGEST = 264
_LITERALS = 32
_SHORT_MATCH = 8  # the longest match whose length fits into its control byte


def lzf_decompress(data: bytes, size: int) -> bytes:
    """Decompress ``data`` to ``size`` bytes; raise ``ValueError`` for invalid data.

    The caller should first check that ``size`` is at most ``MOST_GROWTH`` times the length of
    ``data``. Otherwise all of ``data`` is decompressed before the error is found.
    """
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < _LITERALS:
                stop = at + control + 1
                out += data[at:stop]
                at = stop
                continue
            length = (control >> 5) + 2
            if length == _SHORT_MATCH + 1:
                length += data[at]
                at += 1
            start = len(out) - ((control & 31) << 8 | data[at]) - 1
            at += 1
            if start < 0:
                raise ValueError("LZF data refers to bytes before its start")
            # If the source and the target overlap, the copied bytes repeat.
            piece = out[start : start + length]
            out += (piece * -(-length // len(piece)))[:length]
            if len(out) > size:
                break
    except IndexError:
        at = -1  # The data end within a match.
    if at != end or len(out) != size:
        raise ValueError(f"LZF data does not decompress to the declared {size} bytes")
    return bytes(out)


def lzf_compress(data: bytes, most: int) -> bytes | None:
    """Compress ``data`` to at most ``most`` bytes; return None if the result would be larger.

    Matches are the same as in Redis: they never refer to the first byte, the last two bytes are
    literals unless a match ends there, and a result only a few bytes shorter than ``most`` is discarded.
    """
    out = bytearray()
    seen: dict[bytes, int] = {}
    at = literal = 0
    last = len(data) - 3
    while at <= last:
        three = data[at : at + 3]
        start = seen.get(three, -1)
        seen[three] = at
        if start < 1 or at - start > _FARTHEST:
            at += 1
            continue
        count = at - literal
        if len(out) + count + -(-count // _LITERALS) + 4 >= most:
            return None
        length = _common(data, start, at, min(_LONGEST, len(data) - at - 2))
        _literals(out, data, literal, at)
        distance = at - start - 1
        if length <= _SHORT_MATCH:
            out.append(length - 2 << 5 | distance >> 8)
        else:
            out += bytes((7 << 5 | distance >> 8, length - _SHORT_MATCH - 1))
        out.append(distance & 255)
        at += length
        literal = at
        # Index the end of this match, so that later matches can start there.
        for place in (at - 2, at - 1):
            seen[data[place : place + 3]] = place
    # Like the compressor of Redis, stop if three more bytes might not fit.
    literals = max(len(data) - 2 - literal, 0)
    if len(out) + literals + literals // _LITERALS + 1 + 3 > most:
        return None
    _literals(out, data, literal, len(data))
    return bytes(out)


def _common(data: bytes, start: int, at: int, longest: int) -> int:
    """Return how many bytes are equal from two positions on; the first three are known to be."""
    length = 3
    while length < longest and data[start + length] == data[at + length]:
        length += 1
    return length


def _literals(out: bytearray, data: bytes, start: int, stop: int) -> None:
    for at in range(start, stop, _LITERALS):
        piece = data[at : min(at + _LITERALS, stop)]
        out.append(len(piece) - 1)
        out += piece


_POLYNOMIAL = 0x95AC9329AC4BC9B5
"""The polynomial 0xad93d23594c935a9 with its bits reversed."""
_CHUNK_BYTES = 512
_BLOCK_BYTES = 512 * _CHUNK_BYTES
"""Size of a block. From this size on, numpy is faster than a loop over bytes."""


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]


def crc64(data: bytes | memoryview) -> int:
    view = memoryview(data)
    crc = 0
    whole = len(view) - len(view) % _BLOCK_BYTES
    for start in range(0, whole, _BLOCK_BYTES):
        crc = _block(view[start : start + _BLOCK_BYTES], crc)
    table = _TABLE
    for byte in view[whole:]:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def _block(view: memoryview, crc: int) -> int:
    """Return the checksum of one block after data with the checksum ``crc``, computed with numpy.

    A CRC without an initial value is linear: the checksum of a chunk is the XOR of the checksums of
    its bytes, each followed by as many zeros. The data before it is taken into account by XORing
    ``crc`` with its first eight bytes.
    """
    import numpy as np

    table = _places()
    chunks = np.frombuffer(view, np.uint8).reshape(-1, _CHUNK_BYTES)
    checksums = np.bitwise_xor.reduce(table[np.arange(_CHUNK_BYTES), chunks], axis=1)
    first = table[:8].tolist()
    for checksum in checksums.tolist():
        for place, byte in zip(first, crc.to_bytes(8, "little"), strict=True):
            checksum ^= place[byte]
        crc = checksum
    return crc


@cache
def _places() -> Any:
    """Return the checksum of each byte, by its place in a chunk, followed by the zeros after it."""
    import numpy as np

    places = [np.array(_TABLE, np.uint64)]
    while len(places) < _CHUNK_BYTES:
        last = places[-1]
        places.append(places[0][last & np.uint64(255)] ^ last >> np.uint64(8))
    return np.stack(places[::-1])


# -- packed structures: listpacks, and the ziplists, zipmaps and intsets of older servers -----------

Entry = bytes | int
"""An element of a listpack or ziplist."""

_LISTPACK_WIDTHS = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}
_FIRST_BYTES = {width: first for first, width in _LISTPACK_WIDTHS.items()}
_HEADER = 6
_UNKNOWN = 0xFFFF
"""The declared number of entries if a listpack or ziplist has at least as many."""


def _wrong_end(what: str) -> RdbError:
    why = "does not end after its last entry, or declares a wrong number of entries"
    return RdbError(f"a {what} {why}")


def texts(entries: Iterable[Entry]) -> list[bytes]:
    return [entry if isinstance(entry, bytes) else b"%d" % entry for entry in entries]


def read_listpack(blob: bytes) -> list[Entry]:
    """Return the elements of a listpack; raise ``RdbError`` if any byte is invalid."""
    end = len(blob) - 1
    if end < _HEADER or int.from_bytes(blob[:4], "little") != len(blob) or blob[end] != 0xFF:
        raise RdbError("a listpack has the wrong size or no end marker")
    entries: list[Entry] = []
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
            entries.append(entry)
    except (IndexError, KeyError):
        raise RdbError("a listpack contains an invalid entry") from None
    count = int.from_bytes(blob[4:6], "little")
    if at != end or count not in (len(entries), _UNKNOWN):
        raise _wrong_end("listpack")
    return entries


def write_listpack(entries: Iterable[Entry]) -> bytes:
    parts = list(map(packed, entries))
    count = min(len(parts), _UNKNOWN).to_bytes(2, "little")
    body = b"".join([count, *parts, b"\xff"])
    return (4 + len(body)).to_bytes(4, "little") + body


def packed(entry: Entry) -> bytes:
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
    size = integer_size(number)
    if size == 2:
        return bytes((number, 1))
    if size == 3:
        number &= 0x1FFF
        return bytes((0xC0 | number >> 8, number & 255, 2))
    width = size - 2
    body = number.to_bytes(width, "little", signed=True)
    return b"%c%b%c" % (_FIRST_BYTES[width], body, width + 1)


def _back_length(size: int) -> bytes:
    """Encode the length after an entry: groups of seven bits, all but the first with the top bit."""
    width = back_length_size(size)
    groups = [size >> 7 * (width - 1 - place) & 127 for place in range(width)]
    return bytes([groups[0], *(group | 128 for group in groups[1:])])


_ZIPLIST_WIDTHS = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}
_CODES = {2: "h", 4: "i", 8: "q"}


def read_ziplist(blob: bytes) -> list[Entry]:
    """Return the elements of a ziplist; raise ``RdbError`` if any byte is invalid."""
    source = Source(blob)
    size, tail, count = source.uint(4), source.uint(4), source.uint(2)
    entries: list[Entry] = []
    start, before = source.at, 0
    while (previous := source.byte()) != 0xFF:
        start = source.at - 1
        if (source.uint(4) if previous == 0xFE else previous) != before:
            raise RdbError("the length before a ziplist entry is wrong")
        first = source.byte()
        if first < 0x40:
            entries.append(source.take(first))
        elif first < 0x80:
            entries.append(source.take((first & 63) << 8 | source.byte()))
        elif first == 0x80:
            entries.append(source.take(int.from_bytes(source.take(4), "big")))
        elif 0xF1 <= first <= 0xFD:
            entries.append(first - 0xF1)
        elif first in _ZIPLIST_WIDTHS:
            width = _ZIPLIST_WIDTHS[first]
            entries.append(int.from_bytes(source.take(width), "little", signed=True))
        else:
            raise RdbError("a ziplist contains an invalid entry")
        before = source.at - start
    if size != source.at or source.left() or tail != start or count not in (len(entries), _UNKNOWN):
        raise _wrong_end("ziplist")
    return entries


def read_zipmap(blob: bytes) -> list[bytes]:
    """Return the alternating fields and values of a zipmap; raise ``RdbError`` if it is invalid."""
    source = Source(blob)
    count = source.byte()
    words: list[bytes] = []
    while (size := source.byte()) != 0xFF:
        if size == 254:
            size = source.uint(4)
        free = source.byte() if len(words) % 2 else 0
        words.append(source.take(size))
        source.take(free)
    pairs, odd = divmod(len(words), 2)
    if odd:
        raise RdbError("a zipmap has an end marker before its end")
    if source.left() or count not in (pairs, 254, 255) or count < min(pairs, 254):
        raise _wrong_end("zipmap")
    return words


def read_intset(blob: bytes) -> list[int]:
    """Return the integers of an intset; raise ``RdbError`` if they are not in ascending order."""
    width, count = int.from_bytes(blob[:4], "little"), int.from_bytes(blob[4:8], "little")
    code = _CODES.get(width)
    if code is None or not count or len(blob) != 8 + width * count:
        raise RdbError("an intset has an invalid width or size")
    integers = unpack(f"<{count}{code}", blob[8:])
    if any(low >= high for low, high in pairwise(integers)):
        raise RdbError("the integers of an intset are not in ascending order")
    return list(integers)


def write_intset(numbers: Sequence[int]) -> bytes:
    """Return an intset of at least one integer; the integers must be in ascending order."""
    widest = max(-numbers[0] - 1, numbers[-1])
    width = next(width for width in (2, 4, 8) if widest < 1 << 8 * width - 1)
    return pack(f"<II{len(numbers)}{_CODES[width]}", width, len(numbers), *numbers)
