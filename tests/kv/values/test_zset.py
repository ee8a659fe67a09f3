"""Sorted sets as values: order, ranges, and the choice of the encoding."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.zset import LexRange, ScoreRange, SortedSet

SCORES = st.sampled_from([-math.inf, -2.5, -1.0, 0.0, 1.0, 1.5, 3.0, 1e300, math.inf])
MEMBERS = st.sampled_from([b"", b"a", b"aa", b"ab", b"b", b"\xff", b"a\x00"])


@given(st.lists(st.tuples(MEMBERS, SCORES)), SCORES, SCORES, st.booleans(), st.booleans())
def test_spans_hold_what_lies_between(
    pairs: list[tuple[bytes, float]], low: float, high: float, after: bool, before: bool
) -> None:
    members = SortedSet()
    for member, score in pairs:
        members.set(member, score)
    model = sorted((score, member) for member, score in dict(pairs).items())
    assert list(members) == model
    start, stop = members.span(ScoreRange(low, high, after, before))
    assert members.slice(start, stop) == [
        item
        for item in model
        if (item[0] > low if after else item[0] >= low)
        and (item[0] < high if before else item[0] <= high)
    ]
    for rank, (_, member) in enumerate(model):
        assert members.rank(member) == rank
        assert members.rank(member, reverse=True) == len(model) - 1 - rank


ENDS = st.none() | MEMBERS


@given(st.sets(MEMBERS), ENDS, ENDS, st.booleans(), st.booleans(), st.booleans())
def test_names_between_two_ends(
    names: set[bytes], low: bytes | None, high: bytes | None, after: bool, before: bool, back: bool
) -> None:
    members = SortedSet(dict.fromkeys(names, 0.0))
    interval = LexRange(low, high, after, before)
    expected = [
        name for name in sorted(names) if interval.above_low(name) and interval.below_high(name)
    ]
    found = members.slice(*members.lex_span(interval, reverse=back))
    assert [member for _, member in found] == expected


def test_nothing_is_between_plus_and_minus() -> None:
    members = SortedSet({b"a": 0.0})
    assert members.lex_span(LexRange(None, None, True, True, reversed_infinity=True)) == (0, 0)


def test_minus_zero_is_zero() -> None:
    members = SortedSet()
    members.set(b"a", -0.0)
    score = members.score(b"a")
    assert score is not None
    assert math.copysign(1, score) == 1


def test_a_copy_is_independent() -> None:
    members = SortedSet({b"a": 1.0})
    twin = members.copy()
    twin.set(b"b", 2.0)
    members.remove(b"a")
    assert list(twin) == [(1.0, b"a"), (2.0, b"b")]
    assert len(members) == 0
