"""LCS: the longest common subsequence of two strings."""

from __future__ import annotations

from dataclasses import dataclass

from ... import errors
from ...algorithms.lcs import common_length, common_matches
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Map, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ..arguments import options


@dataclass(slots=True)
class _Options:
    length: bool = False
    ranges: bool = False
    min_length: int = 0
    """Minimum length of a range in the reply."""
    with_lengths: bool = False


def _parse_options(args: Args) -> _Options:
    given = _Options()
    sizes = {b"IDX": 0, b"LEN": 0, b"WITHMATCHLEN": 0, b"MINMATCHLEN": 1}
    for word, values in options(args, 2, sizes):
        if word == b"IDX":
            given.ranges = True
        elif word == b"LEN":
            given.length = True
        elif word == b"WITHMATCHLEN":
            given.with_lengths = True
        else:
            given.min_length = max(0, parse_int(values[0]))
    if given.length and given.ranges:
        raise CommandError(errors.LCS_LEN_AND_IDX)
    return given


def _ranges_reply(matches: list[tuple[int, int, int]], given: _Options) -> Reply:
    ranges: list[Reply] = []
    for i, j, length in matches:
        if length >= given.min_length:
            entry: list[Reply] = [[i, i + length - 1], [j, j + length - 1]]
            ranges.append([*entry, length] if given.with_lengths else entry)
    total = sum(length for _, _, length in matches)
    return Map([b"matches", ranges, b"len", total])


@command("LCS")
def lcs(session: Session, args: Args) -> Reply:
    """Return the longest common subsequence of two strings, its length, or the ranges it matches."""
    values = [session.db.lookup(key) for key in args[:2]]
    if any(value is not None and not isinstance(value, bytes | bytearray) for value in values):
        raise CommandError(errors.LCS_NOT_STRINGS)
    given = _parse_options(args)
    lengths = [len(value or b"") + 1 for value in values]
    if lengths[0] * lengths[1] * 4 > session.engine.config.number("proto-max-bulk-len"):
        raise CommandError(errors.LCS_TOO_LONG)
    first, second = (bytes(value or b"") for value in values)
    if given.length:
        return common_length(first, second)
    matches = common_matches(first, second)
    if given.ranges:
        return _ranges_reply(matches, given)
    return b"".join(first[i : i + length] for i, _, length in reversed(matches))
