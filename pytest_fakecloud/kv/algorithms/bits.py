"""Ranges of bits in a string, in which bit 0 is the highest bit of the first byte."""

from __future__ import annotations

BLOCK_SIZE = 1 << 16
"""Number of bytes converted to an integer at a time, which bounds the memory for a huge value."""


def clamp_range(start: int, end: int, length: int) -> tuple[int, int]:
    """Return the first and last position of a range, which is empty if the first is greater."""
    start = max(start + length, 0) if start < 0 else start
    end = max(end + length, 0) if end < 0 else end
    return start, min(end, length - 1)


def count_set_bits(value: bytes | bytearray, start: int, end: int) -> int:
    """Return the number of set bits from byte ``start`` to byte ``end``, both inclusive."""
    blocks = range(start, end + 1, BLOCK_SIZE)
    return sum(
        int.from_bytes(value[at : min(at + BLOCK_SIZE, end + 1)], "big").bit_count()
        for at in blocks
    )


def find_bit(value: bytes | bytearray, bit: int, start: int, end: int) -> int | None:
    """Return the position of the first bit equal to ``bit`` in an inclusive range, or None."""
    without = (b"\0" if bit else b"\xff") * BLOCK_SIZE
    for low in range(start & ~7, end + 1, BLOCK_SIZE * 8):
        if value[low >> 3 : (low >> 3) + BLOCK_SIZE] == without:
            continue
        first, last = max(low, start), min(low + BLOCK_SIZE * 8 - 1, end)
        width = last - first + 1
        number = extract_bits(value, first, last)
        if not bit:
            number ^= (1 << width) - 1
        if number:
            return first + width - number.bit_length()
    return None


def extract_bits(value: bytes | bytearray, start: int, end: int) -> int:
    """Return the bits from ``start`` to ``end``, both inclusive, as an integer."""
    first, last = start >> 3, end >> 3
    number = int.from_bytes(value[first : last + 1], "big")
    number >>= 7 - (end & 7)
    return number & ((1 << (end - start + 1)) - 1)
