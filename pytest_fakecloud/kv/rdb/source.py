"""Reads lengths and strings from RDB data, with limits on decompression."""

from __future__ import annotations

from struct import unpack_from

from . import lzf

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
        if size > compressed * lzf.MOST_GROWTH:
            raise RdbError(
                f"{compressed} compressed bytes before byte {self.at} cannot expand to {size} bytes"
            )
        self._spare[packed] -= size
        if self._spare[packed] < 0:
            raise RdbError(
                f"the compressed strings up to byte {self.at} decompress to too many bytes"
            )
        try:
            return lzf.decompress(self.take(compressed), size)
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
