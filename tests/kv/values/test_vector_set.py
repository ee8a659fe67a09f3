"""Vector sets as values: what their forms keep of vectors, the nearest ones, and copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.vector_form import FORMS, Form
from pytest_fakecloud.kv.values.vector_set import VectorSet

NUMBERS = st.floats(-1000, 1000, width=32)
VECTORS = st.lists(NUMBERS, min_size=3, max_size=3)
NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])


def floats(numbers: list[float]) -> Any:
    return np.array(numbers, np.float32)


@given(st.lists(st.tuples(NAMES, st.none() | VECTORS), max_size=20), st.sampled_from(FORMS))
def test_elements_are_those_added_last(changes: list[Any], form: Form) -> None:
    vectors = VectorSet(form, 16, 3)
    model: dict[bytes, list[float]] = {}
    for name, numbers in changes:
        if numbers is None:
            assert vectors.remove(name) == (model.pop(name, None) is not None)
        else:
            assert vectors.add(name, floats(numbers)) == (name not in model)
            vectors.set_attributes(name, b"%d" % len(model))
            model[name] = numbers
    assert {*vectors} == {*model}
    size = vectors.size
    vectors.mend()
    assert vectors.size == size
    for name, numbers in model.items():
        stored = vectors.numbers(name)
        if form == "f32":
            assert stored == numbers
        elif form == "bin":
            assert stored == [1 if number > 0 else -1 for number in numbers]
        else:
            step = max(map(abs, numbers)) / 127
            assert stored == pytest.approx(numbers, abs=0.51 * step + 1e-30)


@given(st.lists(VECTORS, min_size=1, max_size=9), VECTORS, st.sampled_from(FORMS))
def test_the_nearest_vectors_have_the_greatest_cosines(
    added: list[list[float]], numbers: list[float], form: Form
) -> None:
    vectors = VectorSet(form, 16, 3)
    for at, vector in enumerate(added):
        vectors.add(b"%d" % at, floats(vector))
    searched = vectors.searched(floats(numbers))
    nearest = vectors.nearest(searched, 5)
    assert len(nearest) == min(5, len(added))
    cosines = {name: cosine(vectors.stored(name), searched) for name in vectors}
    for name, score in nearest:
        assert score == pytest.approx((1 + cosines[name]) / 2, abs=1e-6)
    others = cosines.keys() - dict(nearest)
    assert all(2 * nearest[-1][1] - 1 >= cosines[name] - 1e-6 for name in others)


def cosine(first: Any, second: Any) -> float:
    first, second = first.astype(np.float64), second.astype(np.float64)
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths else 0.0


def test_a_copy_is_independent() -> None:
    vectors = VectorSet("int8", 16, 2, 4, uid=7)
    vectors.add(b"a", floats([1, 2, 3, 4]))
    vectors.set_attributes(b"a", b"{}")
    before = vectors.to_python(), vectors.size, vectors.added
    copy = vectors.copy()
    assert (copy.to_python(), copy.size, copy.added) == before
    copy.add(b"b", floats([1, 2, 3, 4]))
    copy.remove(b"a")
    assert (vectors.to_python(), vectors.size, vectors.added) == before
    assert copy.numbers(b"b") == vectors.numbers(b"a")


def test_parts_of_vectors_that_were_not_added_are_removed() -> None:
    vectors = VectorSet("f32", 16, 1)
    vectors.add(b"a", floats([1]))
    vectors._norms[b"b"] = 1.0
    vectors.attributes[b"b"] = b"{}"
    vectors.mend()
    assert (vectors._norms, vectors.attributes) == ({b"a": 1.0}, {})
