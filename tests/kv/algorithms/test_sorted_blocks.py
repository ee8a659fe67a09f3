"""Sorted blocks against a sorted list, with blocks small enough to split and merge all the time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fakecloud.kv.algorithms import sorted_blocks
from pytest_fakecloud.kv.algorithms.positions import Positions
from pytest_fakecloud.kv.algorithms.sorted_blocks import SortedBlocks


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_blocks, "LOAD", 4)


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "cut"]), st.integers(0, 60),
              st.integers(0, 20)),
    max_size=120,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(STEPS)
def test_it_is_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    blocks: SortedBlocks[int] = SortedBlocks()
    model: list[int] = []
    for what, number, width in steps:
        if what == "add" and number not in model:
            blocks.add(number)
            model = sorted([*model, number])
        elif what == "remove" and number in model:
            blocks.remove(number)
            model.remove(number)
        elif what == "cut":
            start = min(number, len(model))
            stop = min(start + width, len(model))
            assert blocks.remove_slice(start, stop) == model[start:stop]
            del model[start:stop]
        assert len(blocks) == len(model)
        assert blocks.position(number) == sum(each < number for each in model)
    assert list(blocks) == model
    assert list(reversed(blocks)) == model[::-1]
    assert [blocks.at(i) for i in range(len(model))] == model
    for start in range(len(model) + 1):
        assert list(blocks.iterate(start)) == model[start:]
        for stop in (start, start + 1, start + 5, len(model)):
            assert blocks.slice(start, min(stop, len(model))) == model[start:stop]


def test_what_is_not_there_cannot_be_removed() -> None:
    blocks = SortedBlocks([1, 3])
    for number in (0, 2, 4):
        with pytest.raises(ValueError, match="not in the sequence"):
            blocks.remove(number)


def test_a_copy_goes_its_own_way() -> None:
    blocks = SortedBlocks(range(40))
    twin = blocks.copy()
    twin.remove(20)
    blocks.add(100)
    assert list(blocks) == [*range(40), 100]
    assert list(twin) == [*range(20), *range(21, 40)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.data())
def test_positions_are_prefix_sums(lengths: list[int], data: st.DataObject) -> None:
    positions = Positions(lengths)
    grown = data.draw(st.integers(0, len(lengths) - 1))
    positions.add(grown, 3)
    lengths = [length + 3 * (i == grown) for i, length in enumerate(lengths)]
    places = [(i, j) for i, length in enumerate(lengths) for j in range(length)]
    assert [positions.find(p) for p in range(len(places))] == places
    assert [positions.before(i) for i in range(len(lengths))] == [
        sum(lengths[:i]) for i in range(len(lengths))
    ]
