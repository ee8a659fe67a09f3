"""Test tables of vectors by id: the order of the nearest ones, conditions, and copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.similarity.dense import Similarity
from pytest_fakecloud.similarity.table import VectorTable
from tests.vector.building import floats

EVERYTHING = 100


def names(table: VectorTable[str]) -> list[str]:
    return [name for name, _ in table.nearest(floats(1, 0), EVERYTHING)]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 2))))
def test_ids_with_equal_scores_are_in_the_order_of_addition(changes: list[tuple[str, int]]) -> None:
    table: VectorTable[str] = VectorTable(2, Similarity.EUCLIDEAN)
    expected: dict[str, int] = {}
    for name, number in changes:
        if number < 0:
            assert table.remove(name) == (expected.pop(name, None) is not None)
        else:
            assert table.put(name, floats(number, 0)) == (name not in expected)
            expected[name] = number
    ranked = sorted(expected, key=lambda name: (expected[name] - 1) ** 2)
    assert names(table) == ranked
    assert [*table] == [*expected]
    assert len(table) == len(expected)


def test_only_accepted_ids_are_found() -> None:
    table: VectorTable[int] = VectorTable(1, Similarity.EUCLIDEAN)
    for number in range(1000):
        table.put(number, floats(number))
    even = table.nearest(floats(500), 3, lambda number: number % 2 == 0)
    assert even == [(500, 1.0), (498, 0.2), (502, 0.2)]


def test_a_copy_is_independent() -> None:
    table: VectorTable[str] = VectorTable(2, Similarity.COSINE)
    table.put("a", floats(1, 0))
    copied = table.copy()
    copied.put("b", floats(1, 0))
    copied.remove("a")
    table.put("c", floats(1, 0))
    assert (names(table), names(copied)) == (["a", "c"], ["b"])


def test_a_table_is_mended_after_an_interrupted_change() -> None:
    table: VectorTable[str] = VectorTable(2, Similarity.COSINE)
    for name in ("a", "b"):
        table.put(name, floats(1, 0))
    # As if an exception had ended `put()` before it stored the row, and `remove()` in its middle.
    table._matrix.append(floats(1, 0))
    del table._rows["a"]
    table.mend()
    assert names(table) == ["b"]
    for name in ("c", "d"):
        table.put(name, floats(1, 0))
    assert names(table) == ["b", "c", "d"]
