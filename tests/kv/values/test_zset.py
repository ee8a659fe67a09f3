"""Sorted sets as values: order, ranges, and the choice of the encoding."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values import zset
from pytest_fakecloud.kv.values.zset import Positions, SortedSet


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zset, "LOAD", 4)


SCORES = st.sampled_from([-math.inf, -2.5, -1.0, 0.0, 1.0, 1.5, 3.0, 1e300, math.inf])
MEMBERS = st.sampled_from([b"", b"a", b"aa", b"ab", b"b", b"\xff", b"a\x00"])


@given(st.lists(st.tuples(MEMBERS, SCORES)), SCORES, st.none() | SCORES)
def test_spans_hold_what_lies_between(
    pairs: list[tuple[bytes, float]], first: float, stop: float | None
) -> None:
    members = SortedSet()
    for member, score in pairs:
        members.set(member, score)
    model = sorted((score, member) for member, score in dict(pairs).items())
    assert list(members) == model
    assert members.slice(*members.span(first, stop)) == [
        item for item in model if item[0] >= first and (stop is None or item[0] < stop)
    ]
    for rank, (_, member) in enumerate(model):
        assert members.rank(member) == rank
        assert members.rank(member, reverse=True) == len(model) - 1 - rank


@given(st.sets(MEMBERS), MEMBERS, st.none() | MEMBERS, st.booleans())
def test_names_between_two_ends(
    names: set[bytes], first: bytes, stop: bytes | None, back: bool
) -> None:
    members = SortedSet(dict.fromkeys(names, 0.0))
    pairs = members.slice(*members.lex_span(first, stop, reverse=back))
    expected = sorted(name for name in names if first <= name and (stop is None or name < stop))
    assert [member for _, member in pairs] == expected


def test_minus_zero_is_zero() -> None:
    members = SortedSet()
    members.set(b"a", -0.0)
    score = members.scores[b"a"]
    assert math.copysign(1, score) == 1


ITEMS = st.tuples(
    st.sampled_from([-math.inf, -1.0, 0.0, 0.0, 2.5, math.inf]),
    st.integers(0, 30).map(lambda n: b"m%02d" % n),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "cut"]), ITEMS, st.integers(0, 25)),
    max_size=120,
)


@given(STEPS)
def test_it_is_a_sorted_list(steps: list[tuple[str, tuple[float, bytes], int]]) -> None:
    members = SortedSet()
    scores: dict[bytes, float] = {}
    for what, (score, member), width in steps:
        model = sorted((score, member) for member, score in scores.items())
        if what == "add":
            assert members.set(member, score) == (scores.get(member) != score)
            scores[member] = score
        elif what == "remove":
            assert members.remove(member) == (scores.pop(member, None) is not None)
        else:
            start = min(width, len(model))
            stop = min(start + len(member) * width // 3, len(model))
            assert members.remove_span(start, stop) == model[start:stop]
            for _, gone in model[start:stop]:
                del scores[gone]
        model = sorted((score, member) for member, score in scores.items())
        assert len(members) == len(model)
        assert members.position(score, member) == sum(item < (score, member) for item in model)
        assert members.position(score) == sum(item[0] < score for item in model)
    assert members.scores == scores
    assert members.size == SortedSet(scores).size
    model = sorted((score, member) for member, score in scores.items())
    assert list(members) == list(members.copy()) == list(SortedSet(scores)) == model
    assert [members.at(i) for i in range(len(model))] == model
    for start in range(len(model) + 1):
        for stop in (start, start + 1, start + 5, len(model)):
            assert members.slice(start, min(stop, len(model))) == model[start:stop]


def test_ranks_follow_an_addition_inside_a_block() -> None:
    members = SortedSet({b"m%d" % n: float(n) for n in range(8)})
    assert members.position(6.0, b"m6") == 6
    members.set(b"new", 0.5)
    assert [members.position(score) for score in (0.5, 1.0, 6.0)] == [1, 2, 7]


def test_a_full_neighbour_takes_in_a_small_block_and_splits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zset, "LOAD", 8)
    members = SortedSet({b"m%d" % n: float(n) for n in range(16)})
    for n in range(8):
        members.set(b"half%d" % n, n + 0.5)
    for n in range(8, 15):
        members.remove(b"m%d" % n)
    assert [score for score, _ in members] == [n / 2 for n in range(16)] + [15.0]
    assert members.position(15.0) == 16


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.data())
def test_positions_are_prefix_sums(lengths: list[int], data: st.DataObject) -> None:
    positions = Positions(lengths)
    grown = data.draw(st.integers(0, len(lengths) - 1))
    positions.add(grown, 3)
    lengths = [length + 3 * (i == grown) for i, length in enumerate(lengths)]
    places = [(i, j) for i, length in enumerate(lengths) for j in range(length)]
    assert [positions.find(p) for p in range(len(places))] == places
    for i in range(len(lengths)):
        assert positions.before(i) == sum(lengths[:i])
