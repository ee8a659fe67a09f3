"""Arrays as values: changes of many indexes at a time, and copies."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.array import MAX_INDEX, ArrayValue

INDEXES = st.integers(0, 40) | st.integers(0, 2**63) | st.just(MAX_INDEX)
PAIRS = st.lists(st.tuples(INDEXES, st.binary(max_size=3)), max_size=30)
RANGES = st.lists(st.tuples(INDEXES, INDEXES).map(sorted).map(tuple), max_size=30)


def parts(array: ArrayValue) -> dict[str, Any]:
    return {name: getattr(array, name) for name in ArrayValue.__slots__}


@given(st.lists(st.tuples(PAIRS, RANGES), max_size=5))
def test_all_parts_agree_with_the_values(changes: list[Any]) -> None:
    array = ArrayValue()
    model: dict[int, bytes] = {}
    for pairs, ranges in changes:
        new = {index for index, _ in pairs} - model.keys()
        assert array.set(pairs) == len(new)
        model.update(pairs)
        doomed = {index for index in model for first, last in ranges if first <= index <= last}
        assert array.remove(ranges) == len(doomed)
        for index in doomed:
            del model[index]
        assert list(array) == sorted(model.items())
        assert parts(array) == parts(ArrayValue(model.items()))


@given(PAIRS, INDEXES, INDEXES)
def test_values_between_two_indexes(pairs: list[Any], first: int, last: int) -> None:
    array = ArrayValue(pairs)
    expected = [item for item in sorted(dict(pairs).items()) if first <= item[0] <= last]
    assert list(array.between(first, last)) == expected
    assert list(array.between(first, last, reverse=True)) == expected[::-1]
    assert array.count_between(first, last) == len(expected)


def test_a_copy_is_independent() -> None:
    array = ArrayValue([(7, b"x")])
    array.put_in_ring([b"a"], 3)
    before = parts(array)
    copy = array.copy()
    assert parts(copy) == before
    copy.append([b"b"] * 9)
    copy.remove([(0, 0)])
    assert parts(array) == before
