"""Compare the inverted index and its weights with explicit sums."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.engine.sparse import SparseIndex, merged
from pytest_fakecloud.vector.model import SparseVector

from ..building import sparse

SMALL = st.dictionaries(
    st.integers(-3, 8), st.sampled_from([-2.0, -1.0, 0.5, 1.0, 3.0]), max_size=6
)


@given(documents=st.lists(SMALL, max_size=12), query=SMALL, removed=st.sets(st.integers(0, 11)))
def test_scores_are_inner_products_over_shared_dimensions(
    documents: list[dict[int, float]], query: dict[int, float], removed: set[int]
) -> None:
    index = SparseIndex()
    for row, document in enumerate(documents):
        index.add(row, sparse(document))
    for row in removed & set(range(len(documents))):
        index.remove(row, sparse(documents[row]))
    left = {row: doc for row, doc in enumerate(documents) if row not in removed}
    rows, scores = index.scores(sparse(query), len(documents), None)
    wanted = {
        row: sum(query[d] * doc[d] for d in query if d in doc)
        for row, doc in left.items()
        if query.keys() & doc.keys()
    }
    assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == wanted
    assert rows.tolist() == sorted(wanted)
    assert index.count == len(left)
    assert index.entries == sum(map(len, left.values()))
    assert index.values.keys() == {dimension for doc in left.values() for dimension in doc}
    for dimension in range(-3, 9):
        having = sum(dimension in doc for doc in left.values())
        total = len(left)
        assert index.idf(dimension) == np.float32(
            math.log((total - having + 0.5) / (having + 0.5) + 1)
        )


def test_duplicates_add_up_and_zeros_are_no_entries() -> None:
    vector = SparseVector(np.array([5, 5, 7], np.int32), np.array([1, 2, 0], np.float32))
    assert merged(vector) == {5: 3.0}
    none = SparseVector(np.array([5, 5], np.int32), np.array([1, -1], np.float32))
    assert merged(none) == {}
    index = SparseIndex()
    index.add(0, vector)
    assert index.scores(sparse({7: 1.0}), 1, None)[0].tolist() == []
    assert index.scores(sparse({5: 2.0}), 1, None)[1].tolist() == [6.0]
    twice = SparseVector(np.array([5, 5], np.int32), np.array([1, 1], np.float32))
    assert index.scores(twice, 1, None)[1].tolist() == [6.0]


def test_sums_beyond_float32_stay_numbers() -> None:
    index = SparseIndex()
    index.add(0, sparse({1: 3e38}))
    scores = index.scores(sparse({1: 3e38}), 1, None)[1]
    assert scores.tolist() == [float(np.finfo(np.float32).max)]


def test_duplicates_beyond_float32_are_stored_without_a_warning() -> None:
    index = SparseIndex()
    twice = SparseVector(np.array([1, 1], np.int32), np.array([3e38, 3e38], np.float32))
    index.add(0, twice)
    index.add(1, sparse({1: 1.0}))
    rows, scores = index.scores(sparse({1: 1.0}), 2, None)
    assert rows.tolist() == [0, 1]
    assert scores.tolist() == [float(np.finfo(np.float32).max), 1]
    index.remove(0, twice)
    assert index.scores(sparse({1: 1.0}), 2, None)[0].tolist() == [1]


def test_a_copy_is_independent() -> None:
    index = SparseIndex()
    index.add(0, sparse({1: 1.0}))
    clone = index.copy()
    index.remove(0, sparse({1: 1.0}))
    clone.add(1, sparse({1: 2.0}))
    assert index.scores(sparse({1: 1.0}), 2, None)[0].tolist() == []
    assert clone.scores(sparse({1: 1.0}), 2, None)[0].tolist() == [0, 1]
