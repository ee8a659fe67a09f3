"""Compare the scores of dense vectors and their order with a simple reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_fakecloud.similarity import dense
from pytest_fakecloud.similarity.dense import (
    DenseSearch,
    Floats,
    Matrix,
    Ranking,
    Similarity,
    lower_bound,
    rank_dense,
)
from tests.vector.building import floats

NOTHING = np.empty(0, np.intp)
EVERY_SIMILARITY = st.sampled_from(list(Similarity))
# Few distinct numbers create many equal scores; the large ones exceed the comfortable range of
# float32.
COARSE = st.integers(-3, 3).map(float)
WIDE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def matrix_of(vectors: Floats) -> Matrix:
    matrix = Matrix(vectors.shape[1])
    for vector in vectors:
        matrix.append(vector)
    return matrix


def reference(name: Similarity, vectors: Floats, query: Floats) -> list[np.float32]:
    """Compute the published formulas, row by row in float64."""
    scores = []
    for row in vectors.astype(np.float64):
        asked = query.astype(np.float64)
        if name is Similarity.EUCLIDEAN:
            score = 1 / (1 + float(np.sum((row - asked) ** 2)))
        else:
            dot = float(np.sum(row * asked))
            norm = float(np.sqrt(np.sum(row**2)) * np.sqrt(np.sum(asked**2)))
            score = (1 + dot) / 2 if name is Similarity.DOT_PRODUCT else None
            if score is None:
                score = (1 + (dot / norm if norm else 0.0)) / 2
        scores.append(np.float32(np.clip(score, -3.4028235e38, 3.4028235e38)))
    return scores


def expected(
    name: Similarity, vectors: Floats, query: Floats, depth: int, rows: list[int] | None = None
) -> tuple[list[int], list[np.float32]]:
    rows = list(range(len(vectors))) if rows is None else rows
    return best_of(reference(name, vectors, query), depth, rows)


def best_of(
    scores: list[np.float32], depth: int, rows: Iterable[int]
) -> tuple[list[int], list[np.float32]]:
    best = sorted(rows, key=lambda row: (-scores[row], row))[:depth]
    return best, [scores[row] for row in best]


def unpacked(ranking: Ranking) -> tuple[list[int], list[np.float32]]:
    return ranking.rows.tolist(), list(ranking.scores)


def vector_sets(numbers: st.SearchStrategy[float], most: int = 60) -> st.SearchStrategy[Floats]:
    shapes = st.tuples(st.integers(1, most), st.integers(1, 4))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=numbers))


@given(vectors=vector_sets(COARSE), name=EVERY_SIMILARITY, depth=st.integers(1, 70), data=st.data())
def test_order_and_scores_are_those_of_the_formulas(
    vectors: Floats, name: Similarity, depth: int, data: st.DataObject
) -> None:
    query = data.draw(hnp.arrays(np.float32, vectors.shape[1], elements=COARSE))
    ranking = rank_dense(matrix_of(vectors), name, [DenseSearch(query, depth)], NOTHING)[0]
    assert unpacked(ranking) == expected(name, vectors, query, depth)


@given(vectors=vector_sets(WIDE, 20), name=EVERY_SIMILARITY, depth=st.integers(1, 20))
def test_numbers_at_the_ends_of_float32_are_scored_exactly(
    vectors: Floats, name: Similarity, depth: int
) -> None:
    query = vectors[-1]
    ranking = rank_dense(matrix_of(vectors), name, [DenseSearch(query, depth)], NOTHING)[0]
    rows, scores = expected(name, vectors, query, depth)
    assert np.isfinite(ranking.scores).all()
    assert np.allclose(ranking.scores, scores, rtol=1e-6)
    assert len(set(ranking.rows.tolist())) == len(rows)


@pytest.mark.slow
@given(name=EVERY_SIMILARITY, seed=st.integers(0, 2**32 - 1), rows=st.integers(400, 3000))
def test_many_rows_of_few_values_keep_insertion_order_among_ties(
    name: Similarity, seed: int, rows: int
) -> None:
    """Use enough rows for block maxima and for filters that are evaluated more than once."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-2, 3, (rows, 3)).astype(np.float32)
    query = generator.integers(-2, 3, 3).astype(np.float32)
    hidden = np.flatnonzero(generator.random(rows) < 0.2)
    wanted = generator.integers(1, 40)
    seen = set(range(rows)) - set(hidden.tolist())
    allowed = {row for row in seen if row % wanted == 0}
    searches = [
        DenseSearch(query, 7),
        DenseSearch(query, 7, accept=lambda row: row in allowed),
        DenseSearch(query, rows),
    ]
    plain, filtered, everything = rank_dense(matrix_of(vectors), name, searches, hidden)
    scores = reference(name, vectors, query)
    assert unpacked(plain) == best_of(scores, 7, seen)
    assert unpacked(filtered) == best_of(scores, 7, allowed)
    assert unpacked(everything) == best_of(scores, rows, seen)


@given(
    vector=hnp.arrays(
        np.float32, st.integers(1, 48), elements=st.floats(-1e6, 1e6, width=32)
    ).filter(np.any)
)
def test_a_vector_is_exactly_1_similar_to_itself(vector: Floats) -> None:
    matrix = matrix_of(np.stack([vector, vector * np.float32(2)]))
    ranking = rank_dense(matrix, Similarity.COSINE, [DenseSearch(vector, 2)], NOTHING)[0]
    assert ranking.scores[0] == 1
    assert ranking.rows[0] == 0


def test_collinear_vectors_tie_and_the_first_comes_first() -> None:
    matrix = matrix_of(np.array([[1, 1], [2, 2], [3, 3]], np.float32))
    ranking = rank_dense(matrix, Similarity.COSINE, [DenseSearch(floats(5, 5), 1)], NOTHING)[0]
    assert unpacked(ranking) == ([0], [np.float32(1)])


@pytest.mark.parametrize(
    ("name", "query", "score"),
    [
        (Similarity.COSINE, (1, 0), 0.5),
        (Similarity.COSINE, (0, 2), 1.0),
        (Similarity.COSINE, (0, -1), 0.0),
        (Similarity.COSINE, (0, 0), 0.5),
        (Similarity.DOT_PRODUCT, (0, 0.5), 0.75),
        (Similarity.EUCLIDEAN, (0, 3), 0.2),
        (Similarity.EUCLIDEAN, (0, 1), 1.0),
    ],
)
def test_scores_of_the_three_functions(name: Similarity, query: Any, score: float) -> None:
    matrix = matrix_of(np.array([[0, 1]], np.float32))
    ranking = rank_dense(matrix, name, [DenseSearch(floats(*query), 1)], NOTHING)[0]
    assert ranking.scores.tolist() == [np.float32(score)]


def test_a_batch_of_searches_answers_like_each_alone() -> None:
    generator = np.random.default_rng(5)
    vectors = generator.standard_normal((500, 8), np.float32)
    matrix = matrix_of(vectors)
    searches = [DenseSearch(generator.standard_normal(8, np.float32), 9) for _ in range(40)]
    for name in Similarity:
        together = rank_dense(matrix, name, searches, NOTHING)
        alone = [rank_dense(matrix, name, [search], NOTHING)[0] for search in searches]
        assert [unpacked(r) for r in together] == [unpacked(r) for r in alone]


def test_a_filter_is_asked_about_few_rows_when_many_pass() -> None:
    vectors = np.random.default_rng(1).standard_normal((5000, 8), np.float32)
    asked: list[int] = []

    def accept(row: int) -> bool:
        asked.append(row)
        return row % 2 == 0

    rank_dense(matrix_of(vectors), Similarity.COSINE, [DenseSearch(vectors[0], 5, accept)], NOTHING)
    assert len(asked) <= 2 * dense.FIRST_LOOK


@pytest.mark.parametrize("name", list(Similarity))
@pytest.mark.parametrize("period", [1, 8, 16, 32])
@pytest.mark.parametrize("passing", [0, 1, 3, 40])
def test_a_filter_is_asked_once_about_each_row(
    name: Similarity, period: int, passing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near rows at equal distances share blocks, so the bound for few rows is below that for many."""
    monkeypatch.setattr(dense, "FIRST_LOOK", 4)
    generator = np.random.default_rng(period)
    vectors = generator.standard_normal((2048, 4)).astype(np.float32) / 20
    vectors[:, 1] += 1
    vectors[::period, :2] = vectors[::period, 1::-1]
    passes = sorted(generator.choice(2048, passing, replace=False).tolist())
    asked: list[int] = []

    def accept(row: int) -> bool:
        asked.append(row)
        return row in passes

    search = DenseSearch(floats(1, 0, 0, 0), 1, accept)
    ranking = rank_dense(matrix_of(vectors), name, [search], NOTHING)[0]
    assert len(asked) == len(set(asked))
    best, scores = expected(name, vectors[passes], search.vector, 1)
    assert unpacked(ranking) == ([passes[row] for row in best], scores)


def test_a_budget_bounds_what_a_filter_is_asked_about() -> None:
    vectors = np.array([[1, row] for row in range(100)], np.float32)
    search = DenseSearch(floats(1, 0), 10, accept=lambda row: row % 10 == 9, budget=25)
    ranking = rank_dense(matrix_of(vectors), Similarity.COSINE, [search], NOTHING)[0]
    assert ranking.rows.tolist() == [9, 19]


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3000), depth=st.integers(1, 300))
def test_the_lower_bound_is_reached_by_enough_keys_and_few_others(
    seed: int, count: int, depth: int
) -> None:
    keys = np.random.default_rng(seed).integers(-50, 50, count).astype(np.float32)
    bound = lower_bound(keys, depth)
    if depth * dense.BLOCK * 4 > count:
        assert bound == (np.sort(keys)[-depth] if depth <= count else -np.inf)
    if depth > count:
        assert bound == -np.inf
    else:
        assert np.count_nonzero(keys >= bound) >= depth
        assert np.count_nonzero(keys > bound) < depth * dense.BLOCK


@pytest.mark.parametrize(
    ("count", "dimension"), [(1, 3), (127, 64), (128, 64), (300, 64), (5, 8192), (3, 8193)]
)
def test_many_small_products_are_one_product(count: int, dimension: int) -> None:
    generator = np.random.default_rng(count)
    vectors = generator.integers(-9, 10, (count, dimension)).astype(np.float32)
    query = generator.integers(-9, 10, dimension).astype(np.float32)
    assert dense._product(vectors, query).tolist() == (vectors.astype(int) @ query).tolist()


@pytest.mark.parametrize("name", list(Similarity))
@pytest.mark.parametrize("batch", [1, 2])
def test_rows_that_float32_products_put_in_a_wrong_order(name: Similarity, batch: int) -> None:
    """Hundreds of rows differ by a rounding error, so only exact scores give their order."""
    generator = np.random.default_rng(11)
    base = generator.standard_normal(96)
    base /= np.linalg.norm(base)
    noise = generator.standard_normal((600, 96)) * 3e-8
    vectors = (base + noise).astype(np.float32)
    query = base.astype(np.float32)
    matrix = matrix_of(vectors)
    for ranked in rank_dense(matrix, name, [DenseSearch(query, 5)] * batch, NOTHING):
        assert unpacked(ranked) == expected(name, vectors, query, 5)
    keeps = set(range(1, 600, 2))
    search = DenseSearch(query, 5, accept=keeps.__contains__)
    for ranked in rank_dense(matrix, name, [search] * batch, NOTHING):
        assert unpacked(ranked) == expected(name, vectors, query, 5, sorted(keeps))
