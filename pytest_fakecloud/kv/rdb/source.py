"""Reads lengths and strings from RDB data, with limits on decompression; LZF and CRC-64.

In LZF, a control byte below 32 announces that number of literals plus 1. In any other, the upper
three bits are the length of a match minus 2, or 7 if another byte extends it. The lower five bits
and a further byte are the distance of the match minus 1. The CRC-64 is the variant "Jones":
reflected, no initial value, no final XOR.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import xor
from struct import unpack_from
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


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

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "little", signed=True)

    def double(self) -> float:
        found: float = unpack_from("<d", self.take(8))[0]
        return found

    def length(self) -> int:
        """Return a length, or another number that is encoded like a length."""
        found, special = self._length()
        if special:
            raise RdbError(f"expected a length at byte {self.at - 1}, got string encoding {found}")
        return found

    def count(self, least: int = 0) -> int:
        """Return a number of elements that is at least ``least`` and fits into the remaining data."""
        found = self.length()
        if not least <= found <= len(self.data) - self.at:
            raise RdbError(
                f"{found} elements declared before byte {self.at}; expected {least} to {self.left()}"
            )
        return found

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
        found, special = self._length()
        if not special:
            return self.take(found)
        if found < 3:
            return b"%d" % int.from_bytes(self.take(1 << found), "little", signed=True)
        if found > 3:
            raise RdbError(f"byte {self.at - 1} begins a string with the unknown encoding {found}")
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
        try:
            return lzf_decompress(self.take(compressed), size)
        except RdbError:
            raise
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
            if start + length <= len(out):
                out += out[start : start + length]
            else:
                # The source and the target overlap, so the copied bytes repeat.
                piece = out[start:]
                out += (piece * (length // len(piece) + 1))[:length]
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
        if len(out) + _size_of_literals(at - literal) + 4 >= most:
            return None
        longest = min(_LONGEST, len(data) - at - 2)
        length = _common(data, start, at, longest)
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


def _size_of_literals(count: int) -> int:
    return count + -(-count // _LITERALS)


def _common(data: bytes, start: int, at: int, longest: int) -> int:
    """Return how many bytes are equal from two positions on, at most ``longest``.

    The first three bytes are known to be equal, and count even if ``longest`` is lower.
    """
    length = 3
    while length + 8 <= longest and (
        data[start + length : start + length + 8] == data[at + length : at + length + 8]
    ):
        length += 8
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
_LANES = 4096
"""Number of parts of a block that are computed in parallel."""
_LANE_BYTES = 64
_BLOCK_BYTES = _LANES * _LANE_BYTES
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

    The lanes of the block are computed in parallel and combined in pairs. A CRC without an initial
    value is linear: the checksum of two parts is the checksum of the first, advanced by as many
    zero bytes as the second has, XOR the checksum of the second.
    """
    import numpy as np

    table, operators = _tables()
    # Each step processes two bytes of every lane.
    columns = np.frombuffer(view, "<u2").reshape(_LANES, -1).T.astype(np.uint64)
    columns[:4, 0] ^= np.frombuffer(crc.to_bytes(8, "little"), "<u2")
    found = np.zeros(_LANES, np.uint64)
    for column in columns:
        found = table[(found ^ column) & np.uint64(0xFFFF)] ^ found >> np.uint64(16)
    for operator in operators:
        found = _advanced(operator, found[::2]) ^ found[1::2]
    return int(found[0])


def _advanced(operator: Any, crcs: np.ndarray[Any, Any]) -> Any:
    """Apply an operator, which has a lookup table for each byte, to an array of checksums."""
    pieces = crcs.astype("<u8").view("u1").reshape(-1, 8)
    return reduce(xor, (operator[place][pieces[:, place]] for place in range(8)))


@cache
def _tables() -> tuple[Any, list[Any]]:
    """Return the lookup table for two bytes, and the operators that advance by 1, 2, 4, … lanes."""
    import numpy as np

    table = np.array(_TABLE, np.uint64)

    def advance(crcs: Any, zero_bytes: int) -> Any:
        for _ in range(zero_bytes):
            crcs = table[crcs & np.uint64(255)] ^ crcs >> np.uint64(8)
        return crcs

    # An operator has a table for each of the eight bytes of a checksum.
    values = np.arange(256, dtype=np.uint64)
    identity = np.stack([values << np.uint64(8 * place) for place in range(8)])
    operators = [advance(identity, _LANE_BYTES)]
    while len(operators) < _LANES.bit_length() - 1:
        last = operators[-1]
        operators.append(_advanced(last, last.reshape(-1)).reshape(8, 256))
    return advance(np.arange(1 << 16, dtype=np.uint64), 2), operators
