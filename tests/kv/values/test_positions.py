"""Prefix sums, compared with their definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.zset import Positions


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
