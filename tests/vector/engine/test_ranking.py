"""Test approximate results, which are derived from the seed, and fusion with the vendor's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_fakecloud.similarity.dense import Ranking, Similarity
from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.engine.ranking import HYBRID_DEPTH, fuse, normalised, reciprocal_ranks
from pytest_fakecloud.vector.model import (
    Fusion,
    IndexKind,
    VectorHit,
    VectorQuery,
    VectorRecord,
    Weighting,
)

from ..building import ask, engine, floats, ids, put, scored, sparse


def line_of(count: int, seed: int = 0, **approximation: float | bool | int) -> VectorEngine:
    """Return an index with records 0, 1, 2, … in the order of their distance to (1, 0)."""
    index = engine(seed=seed, **approximation)
    records = [
        VectorRecord(str(n), floats(1, n / 100), metadata={"even": n % 2 == 0})
        for n in range(count)
    ]
    index.upsert("", records)
    return index


def answer(index: VectorEngine, query: VectorQuery) -> list[VectorHit]:
    [hits] = index.query("", [query])
    return hits


def test_recall_loses_some_but_never_the_best() -> None:
    index = line_of(100, recall=0.5)
    results = [[int(id) for id in ids(ask(index, 1, 0, top_k=10))] for _ in range(50)]
    assert all(len(hits) == 10 for hits in results)
    assert all(hits == sorted(hits) for hits in results)
    assert all(hits[0] == 0 for hits in results)
    recall = np.mean([len(set(hits) & set(range(1, 10))) / 9 for hits in results])
    assert 0.4 < recall < 0.6
    assert len({tuple(hits) for hits in results}) > 40


def test_the_best_may_be_lost_when_asked() -> None:
    index = line_of(100, recall=0.5, lose_first=True)
    firsts = [ids(ask(index, 1, 0, top_k=5))[0] for _ in range(50)]
    assert 10 < firsts.count("0") < 40


def test_the_same_seed_loses_the_same() -> None:
    first, same, other = (line_of(100, seed, recall=0.5) for seed in (1, 1, 2))
    asked = [[ids(ask(index, 1, 0)) for _ in range(5)] for index in (first, same, other)]
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
    index = engine(kind=IndexKind.SPARSE, filter_budget=3)
    records = [
        VectorRecord(str(n), None, sparse({0: 10.0 - n}), {"even": n % 2 == 0}) for n in range(10)
    ]
    index.upsert("", records)
    query = VectorQuery(None, sparse({0: 1.0}), 10, "even = true")
    assert ids(answer(index, query)) == ["0", "2"]


def tied(kind: IndexKind, **approximation: bool) -> VectorEngine:
    index = engine(kind=kind, **approximation)
    records = [
        VectorRecord(
            str(n),
            floats(1, 1) if kind.has_dense else None,
            sparse({1: 1.0}) if kind.has_sparse else None,
        )
        for n in range(30)
    ]
    index.upsert("", records)
    return index


@pytest.mark.parametrize(
    "query", [VectorQuery(floats(1, 1), None, 5), VectorQuery(None, sparse({1: 1.0}), 5)]
)
def test_ties_are_in_insertion_order_unless_they_are_shuffled(query: VectorQuery) -> None:
    plain, shuffled = tied(IndexKind.HYBRID), tied(IndexKind.HYBRID, shuffle_ties=True)
    assert {tuple(ids(answer(plain, query))) for _ in range(5)} == {("0", "1", "2", "3", "4")}
    orders = {tuple(ids(answer(shuffled, query))) for _ in range(20)}
    assert len(orders) > 15
    assert len({id for order in orders for id in order}) > 20
    assert all(len(set(order)) == 5 for order in orders)


def test_shuffling_ties_leaves_other_scores_in_order() -> None:
    index = line_of(30, shuffle_ties=True)
    assert ids(ask(index, 1, 0, top_k=30)) == [str(n) for n in range(30)]


def test_fused_ties_are_shuffled() -> None:
    index = engine(kind=IndexKind.HYBRID, shuffle_ties=True)
    dense_first = VectorRecord("d", floats(1, 0), sparse({1: 1.0}))
    index.upsert("", [dense_first, VectorRecord("s", floats(1, 1), sparse({1: 2.0}))])
    query = VectorQuery(floats(1, 0), sparse({1: 1.0}), 2)
    answers = [answer(index, query) for _ in range(30)]
    assert {ids(hits)[0] for hits in answers} == {"d", "s"}
    assert all(hits[0].score == hits[1].score for hits in answers)


def test_a_plain_hybrid_query_fuses_a_fixed_depth() -> None:
    """A record below the depth of the dense ranking has no dense part in its fused score."""
    count = HYBRID_DEPTH + 5
    index = engine(kind=IndexKind.HYBRID)
    index.upsert(
        "", [VectorRecord(str(n), floats(1, n / count), sparse({n: 1.0})) for n in range(count)]
    )
    inside, outside = HYBRID_DEPTH - 1, HYBRID_DEPTH
    fused = {
        inside: np.float32(1 / (60 + inside)) + np.float32(1 / 60),
        outside: np.float32(1 / 60),
    }
    for n, score in fused.items():
        hits = scored(answer(index, VectorQuery(floats(1, 0), sparse({n: 1.0}), 1000)))
        assert (str(n), str(score)) in hits


def test_dense_scores_are_clamped_after_ranking() -> None:
    index = engine(similarity=Similarity.DOT_PRODUCT)
    put(index, a=(2, 0), b=(5, 0), c=(-9, 0))
    assert scored(ask(index, 1, 0)) == [("b", "1.0"), ("a", "1.0"), ("c", "0.0")]


# -- fusion --------------------------------------------------------------------------------------


def ranking(scores: dict[int, float]) -> Ranking:
    return Ranking(np.array(list(scores), np.intp), np.array(list(scores.values()), np.float32))


@pytest.fixture
def published() -> VectorEngine:
    """Return an index with the three records of the vendor's example."""
    index = engine(kind=IndexKind.HYBRID)
    records = [
        VectorRecord("id0", floats(0.1, 0.2), sparse({0: 0.1, 1: 0.2})),
        VectorRecord("id1", floats(0.2, 0.3), sparse({1: 0.2, 2: 0.3})),
        VectorRecord("id2", floats(0.3, 0.4), sparse({2: 0.3, 3: 0.4})),
    ]
    index.upsert("", records)
    return index


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        (VectorQuery(floats(0.1, 0.1), sparse({3: 0.1, 4: 0.2}), 1), [("id2", "0.033333335")]),
        (VectorQuery(floats(0.5, 0.1), sparse({0: 0.5, 1: 0.1}), 1), [("id0", "0.032795697")]),
        (
            VectorQuery(
                None, sparse({2: 0.5, 3: 0.5}), 1, weighting=Weighting.IDF, fusion=Fusion.DBSF
            ),
            [("id2", "0.26666638")],
        ),
        (
            VectorQuery(None, sparse({0: 0.1, 1: 0.2}), 10, weighting=Weighting.IDF),
            [("id0", "0.028608438"), ("id1", "0.018800145")],
        ),
    ],
)
def test_published_numbers(
    published: VectorEngine, query: VectorQuery, hits: list[tuple[str, str]]
) -> None:
    assert scored(answer(published, query)) == hits


def test_published_numbers_of_a_resumable_query(published: VectorEngine) -> None:
    query = VectorQuery(
        floats(0.1, 0.1), sparse({0: 0.1}), 2, weighting=Weighting.IDF, fusion=Fusion.DBSF
    )
    uuid, first = published.start_query("", query, 3_600_000_000)
    assert scored(first) == [("id2", "0.617851"), ("id0", "0.5")]
    assert scored(published.next_hits(uuid, 1)[0]) == [("id1", "0.5")]
    assert published.next_hits(uuid, 1)[0] == []


def test_one_component_of_a_hybrid_index_gives_its_raw_scores(published: VectorEngine) -> None:
    dense = answer(published, VectorQuery(floats(0.3, 0.4)))
    assert scored(dense)[0] == ("id2", "1.0")
    alone = answer(published, VectorQuery(None, sparse({3: 2.0})))
    assert scored(alone) == [("id2", "0.8")]


def test_reciprocal_ranks_start_at_60() -> None:
    ranks = reciprocal_ranks(ranking({4: 9.0, 2: 1.0})).tolist()
    assert ranks == [np.float32(1 / 60), np.float32(1 / 61)]


@pytest.mark.parametrize("scores", [{}, {0: 3.0}, {0: 2.0, 1: 2.0, 2: 2.0}, {0: 3e38, 1: -3e38}])
def test_without_a_spread_every_score_is_a_half(scores: dict[int, float]) -> None:
    assert normalised(ranking(scores)).tolist() == [0.5] * len(scores)


def test_fused_ties_keep_row_order() -> None:
    both = fuse([ranking({5: 1.0, 3: 0.5}), ranking({3: 1.0, 5: 0.5})], Fusion.RRF, 10)
    assert both.rows.tolist() == [3, 5]
    assert both.scores[0] == both.scores[1]
    apart = fuse([ranking({7: 1.0}), ranking({1: 1.0})], Fusion.DBSF, 1)
    assert apart.rows.tolist() == [1]


def test_a_hybrid_query_looks_deeper_than_top_k(published: VectorEngine) -> None:
    query = VectorQuery(floats(0.5, 0.1), sparse({0: 0.5, 1: 0.1}), 3)
    assert ids(answer(published, query))[0] == "id0"


@pytest.mark.parametrize("similarity", ["EUCLIDEAN", "DOT_PRODUCT"])
def test_dbsf_fuses_every_similarity(similarity: str) -> None:
    index = engine(kind=IndexKind.HYBRID, similarity=Similarity(similarity))
    index.upsert(
        "",
        [VectorRecord(str(row), floats(row, 1), sparse({row % 2: 1.0 + row})) for row in range(6)],
    )
    hits = answer(index, VectorQuery(floats(5, 1), sparse({1: 1.0}), 6, fusion=Fusion.DBSF))
    assert ids(hits)[0] == "5"
    assert all(np.isfinite(hit.score) for hit in hits)


@pytest.mark.parametrize("similarity", list(Similarity))
def test_dbsf_of_numbers_at_the_ends_of_float32(similarity: Similarity) -> None:
    index = engine(kind=IndexKind.HYBRID, similarity=similarity)
    values = (3e38, -3e38, 1e-45, 0.0, 1.0)
    records = [
        VectorRecord(f"{x} {y}", floats(x, y), sparse({0: x, 1: y})) for x in values for y in values
    ]
    index.upsert("", records)
    for x in values:
        query = VectorQuery(floats(x, -x), sparse({0: x, 1: -x}), 25, fusion=Fusion.DBSF)
        hits = answer(index, query)
        assert len(hits) == 25
        assert all(np.isfinite(hit.score) for hit in hits)
