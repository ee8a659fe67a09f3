"""The CRC-64 of RDB data, in the variant "Jones": reflected, no initial value, no final XOR."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_POLYNOMIAL = 0x95AC9329AC4BC9B5
"""The polynomial 0xad93d23594c935a9 with its bits reversed."""
_LANES = 4096
_LANE = 64
_BLOCK = _LANES * _LANE
"""Size of a block in bytes. From this size on, numpy is faster than a loop over bytes."""


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]


def crc64(data: bytes | memoryview, crc: int = 0) -> int:
    """Return the CRC-64 of ``data``. ``crc`` is the checksum of the data that precedes it."""
    view = memoryview(data)
    whole = len(view) - len(view) % _BLOCK
    for start in range(0, whole, _BLOCK):
        crc = _block(view[start : start + _BLOCK], crc)
    table = _TABLE
    for byte in view[whole:]:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def _block(view: memoryview, crc: int) -> int:
    """Return the checksum of one block, computed with numpy.

    The lanes of the block are computed in parallel and combined in pairs: the checksum of two parts
    is that of the first, advanced by as many zero bytes as the second has, XOR that of the second.
    """
    import numpy as np

    table, shifts = _tables()
    # Each step processes two bytes of every lane.
    columns = np.frombuffer(view, "<u2").reshape(_LANES, -1).T.astype(np.uint64)
    columns[:4, 0] ^= np.frombuffer(crc.to_bytes(8, "little"), "<u2")
    found = np.zeros(_LANES, np.uint64)
    for column in columns:
        found = table[(found ^ column) & np.uint64(0xFFFF)] ^ found >> np.uint64(16)
    for shift in shifts:
        found = _moved(shift, found[::2]) ^ found[1::2]
    return int(found[0])


def _moved(shift: Any, found: np.ndarray[Any, Any]) -> Any:
    """Apply an operator, which has a lookup table for each byte, to an array of checksums."""
    pieces = found.astype("<u8").view("u1").reshape(-1, 8)
    moved = shift[0][pieces[:, 0]]
    for place in range(1, 8):
        moved = moved ^ shift[place][pieces[:, place]]
    return moved


@cache
def _tables() -> tuple[Any, list[Any]]:
    """Return the lookup table for two bytes, and the operators that advance by 1, 2, 4, … lanes."""
    import numpy as np

    table = np.array(_TABLE, np.uint64)
    # The operator for one lane. It starts as the identity, and has a table for each of the eight
    # bytes of a checksum.
    values = np.arange(256, dtype=np.uint64)
    shift = np.stack([values << np.uint64(8 * place) for place in range(8)])
    for _ in range(_LANE):
        shift = table[shift & np.uint64(255)] ^ shift >> np.uint64(8)
    shifts = [shift]
    while len(shifts) < _LANES.bit_length() - 1:
        last = shifts[-1]
        shifts.append(_moved(last, last.reshape(-1)).reshape(8, 256))
    pairs = np.arange(1 << 16, dtype=np.uint64)
    for _ in range(2):
        pairs = table[pairs & np.uint64(255)] ^ pairs >> np.uint64(8)
    return pairs, shifts
