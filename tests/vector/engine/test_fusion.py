"""Test fusion, including the numbers that the vendor published."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.engine.fusion import fuse, normalised, reciprocal_ranks
from pytest_fakecloud.vector.engine.similarity import Ranking
from pytest_fakecloud.vector.model import (
    Fusion,
    Kind,
    Similarity,
    VectorQuery,
    VectorRecord,
    Weighting,
)

from ..building import (
    engine,
    floats,
    ids,
    scored,
    sparse,
)


def ranking(scores: dict[int, float]) -> Ranking:
    return Ranking(np.array(list(scores), np.intp), np.array(list(scores.values()), np.float32))


@pytest.fixture
def published() -> VectorEngine:
    """Return an index with the three records of the vendor's example."""
    index = engine(kind=Kind.HYBRID)
    index.upsert(
        "",
        [
            VectorRecord("id0", floats(0.1, 0.2), sparse({0: 0.1, 1: 0.2})),
            VectorRecord("id1", floats(0.2, 0.3), sparse({1: 0.2, 2: 0.3})),
            VectorRecord("id2", floats(0.3, 0.4), sparse({2: 0.3, 3: 0.4})),
        ],
    )
    return index


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        (
            VectorQuery(floats(0.1, 0.1), sparse({3: 0.1, 4: 0.2}), 1),
            [("id2", "0.033333335")],
        ),
        (
            VectorQuery(floats(0.5, 0.1), sparse({0: 0.5, 1: 0.1}), 1),
            [("id0", "0.032795697")],
        ),
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
    assert scored(published.query("", [query])[0]) == hits


def test_published_numbers_of_a_resumable_query(published: VectorEngine) -> None:
    query = VectorQuery(
        floats(0.1, 0.1), sparse({0: 0.1}), 2, weighting=Weighting.IDF, fusion=Fusion.DBSF
    )
    uuid, first = published.resumable.start("", query, 3_600_000_000)
    assert scored(first) == [("id2", "0.617851"), ("id0", "0.5")]
    assert scored(published.resumable.next(uuid, 1)[0]) == [("id1", "0.5")]
    assert published.resumable.next(uuid, 1)[0] == []


def test_one_component_of_a_hybrid_index_gives_its_raw_scores(published: VectorEngine) -> None:
    dense = published.query("", [VectorQuery(floats(0.3, 0.4))])[0]
    assert scored(dense)[0] == ("id2", "1.0")
    alone = published.query("", [VectorQuery(None, sparse({3: 2.0}))])[0]
    assert scored(alone) == [("id2", "0.8")]


def test_reciprocal_ranks_start_at_60() -> None:
    assert reciprocal_ranks(ranking({4: 9.0, 2: 1.0})).tolist() == [
        np.float32(1 / 60),
        np.float32(1 / 61),
    ]


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
    assert ids(published.query("", [query])[0])[0] == "id0"


@pytest.mark.parametrize("similarity", ["EUCLIDEAN", "DOT_PRODUCT"])
def test_dbsf_fuses_every_similarity(similarity: str) -> None:
    index = engine(kind=Kind.HYBRID, similarity=Similarity(similarity))
    index.upsert(
        "",
        [VectorRecord(str(row), floats(row, 1), sparse({row % 2: 1.0 + row})) for row in range(6)],
    )
    hits = index.query("", [VectorQuery(floats(5, 1), sparse({1: 1.0}), 6, fusion=Fusion.DBSF)])[0]
    assert ids(hits)[0] == "5"
    assert all(np.isfinite(hit.score) for hit in hits)


@pytest.mark.parametrize("similarity", list(Similarity))
def test_dbsf_of_numbers_at_the_ends_of_float32(similarity: Similarity) -> None:
    index = engine(kind=Kind.HYBRID, similarity=similarity)
    values = (3e38, -3e38, 1e-45, 0.0, 1.0)
    index.upsert(
        "",
        [
            VectorRecord(f"{x} {y}", floats(x, y), sparse({0: x, 1: y}))
            for x in values
            for y in values
        ],
    )
    for x in values:
        query = VectorQuery(floats(x, -x), sparse({0: x, 1: -x}), 25, fusion=Fusion.DBSF)
        hits = index.query("", [query])[0]
        assert len(hits) == 25
        assert all(np.isfinite(hit.score) for hit in hits)
