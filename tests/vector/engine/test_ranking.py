"""Test approximate results: lost, missing and shuffled hits, all derived from the seed."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.engine.ranking import HYBRID_DEPTH
from pytest_fakecloud.vector.model import (
    Kind,
    Similarity,
    VectorQuery,
    VectorRecord,
)
from pytest_fakecloud.vector.settings import Approximation

from ..building import (
    ask,
    engine,
    floats,
    ids,
    put,
    scored,
    sparse,
)


def line_of(count: int, seed: int = 0, **approximation: float | bool | int) -> VectorEngine:
    """Return an index with records 0, 1, 2, … in the order of their distance to (1, 0)."""
    index = engine(seed=seed, approximation=Approximation(**approximation))  # type: ignore[arg-type]
    index.upsert(
        "",
        [
            VectorRecord(str(n), floats(1, n / 100), metadata={"even": n % 2 == 0})
            for n in range(count)
        ],
    )
    return index


def test_recall_loses_some_but_never_the_best() -> None:
    index = line_of(100, recall=0.5)
    found = [[int(id) for id in ids(ask(index, 1, 0, top_k=10))] for _ in range(50)]
    assert all(len(hits) == 10 for hits in found)
    assert all(hits == sorted(hits) for hits in found)
    assert all(hits[0] == 0 for hits in found)
    kept = np.mean([len(set(hits) & set(range(1, 10))) / 9 for hits in found])
    assert 0.4 < kept < 0.6
    assert len({tuple(hits) for hits in found}) > 40


def test_the_best_may_be_lost_when_asked() -> None:
    index = line_of(100, recall=0.5, lose_first=True)
    firsts = [ids(ask(index, 1, 0, top_k=5))[0] for _ in range(50)]
    assert 10 < firsts.count("0") < 40


def test_the_same_seed_loses_the_same() -> None:
    one, same, other = (line_of(100, seed, recall=0.5) for seed in (1, 1, 2))
    asked = [[ids(ask(index, 1, 0)) for _ in range(5)] for index in (one, same, other)]
    assert asked[0] == asked[1] != asked[2]


def test_a_recall_of_nothing_finds_the_best_only() -> None:
    index = line_of(50, recall=0.0)
    assert ids(ask(index, 1, 0, top_k=20)) == ["0"]
    assert ids(ask(line_of(50, recall=0.0, lose_first=True), 1, 0, top_k=20)) == []


def test_a_small_recall_fills_up_from_the_whole_index() -> None:
    index = line_of(2000, recall=0.05)
    for _ in range(20):
        hits = [int(id) for id in ids(ask(index, 1, 0, top_k=40))]
        assert len(hits) == 40
        assert hits == sorted(set(hits))


def test_lossy_queries_still_filter() -> None:
    index = line_of(200, recall=0.5)
    hits = [int(id) for id in ids(ask(index, 1, 0, top_k=20, filter="even = true"))]
    assert len(hits) == 20
    assert all(n % 2 == 0 for n in hits)


def test_a_filter_budget_answers_fewer() -> None:
    index = line_of(100, filter_budget=10)
    assert ids(ask(index, 1, 0, top_k=10, filter="even = true")) == ["0", "2", "4", "6", "8"]
    assert len(ask(index, 1, 0, top_k=20)) == 20


def test_a_filter_budget_bounds_sparse_queries_too() -> None:
    index = engine(kind=Kind.SPARSE, approximation=Approximation(filter_budget=3))
    index.upsert(
        "",
        [
            VectorRecord(str(n), None, sparse({0: 10.0 - n}), {"even": n % 2 == 0})
            for n in range(10)
        ],
    )
    query = VectorQuery(None, sparse({0: 1.0}), 10, "even = true")
    assert ids(index.query("", [query])[0]) == ["0", "2"]


def tied(kind: Kind, **approximation: bool) -> VectorEngine:
    index = engine(kind=kind, approximation=Approximation(**approximation))  # type: ignore[arg-type]
    index.upsert(
        "",
        [
            VectorRecord(
                str(n),
                floats(1, 1) if kind.has_dense else None,
                sparse({1: 1.0}) if kind.has_sparse else None,
            )
            for n in range(30)
        ],
    )
    return index


@pytest.mark.parametrize(
    "query",
    [
        VectorQuery(floats(1, 1), None, 5),
        VectorQuery(None, sparse({1: 1.0}), 5),
    ],
)
def test_ties_are_in_insertion_order_unless_they_are_shuffled(query: VectorQuery) -> None:
    plain, shuffled = tied(Kind.HYBRID), tied(Kind.HYBRID, shuffle_ties=True)
    assert {tuple(ids(plain.query("", [query])[0])) for _ in range(5)} == {
        ("0", "1", "2", "3", "4")
    }
    orders = {tuple(ids(shuffled.query("", [query])[0])) for _ in range(20)}
    assert len(orders) > 15
    assert len({id for order in orders for id in order}) > 20
    assert all(len(set(order)) == 5 for order in orders)


def test_shuffling_ties_leaves_other_scores_in_order() -> None:
    index = line_of(30, shuffle_ties=True)
    assert ids(ask(index, 1, 0, top_k=30)) == [str(n) for n in range(30)]


def test_fused_ties_are_shuffled() -> None:
    index = engine(kind=Kind.HYBRID, approximation=Approximation(shuffle_ties=True))
    dense_first = VectorRecord("d", floats(1, 0), sparse({1: 1.0}))
    index.upsert("", [dense_first, VectorRecord("s", floats(1, 1), sparse({1: 2.0}))])
    query = VectorQuery(floats(1, 0), sparse({1: 1.0}), 2)
    answers = [index.query("", [query])[0] for _ in range(30)]
    assert {ids(hits)[0] for hits in answers} == {"d", "s"}
    assert all(hits[0].score == hits[1].score for hits in answers)


def test_a_plain_hybrid_query_fuses_a_fixed_depth() -> None:
    """A record below the depth of the dense ranking has no dense part in its fused score."""
    count = HYBRID_DEPTH + 5
    index = engine(kind=Kind.HYBRID)
    index.upsert(
        "", [VectorRecord(str(n), floats(1, n / count), sparse({n: 1.0})) for n in range(count)]
    )
    inside, outside = HYBRID_DEPTH - 1, HYBRID_DEPTH
    scores = [
        dict(scored(index.query("", [VectorQuery(floats(1, 0), sparse({n: 1.0}), 1000)])[0]))[
            str(n)
        ]
        for n in (inside, outside)
    ]
    assert scores == [
        str(np.float32(1 / (60 + inside)) + np.float32(1 / 60)),
        str(np.float32(1 / 60)),
    ]


def test_dense_scores_are_clamped_after_ranking() -> None:
    index = engine(similarity=Similarity.DOT_PRODUCT)
    put(index, a=(2, 0), b=(5, 0), c=(-9, 0))
    assert scored(ask(index, 1, 0)) == [("b", "1.0"), ("a", "1.0"), ("c", "0.0")]
