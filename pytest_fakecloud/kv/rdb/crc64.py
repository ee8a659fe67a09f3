"""The CRC-64 of RDB data, in the variant "Jones": reflected, no initial value, no final XOR."""

from __future__ import annotations

from functools import cache, reduce
from operator import xor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

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
