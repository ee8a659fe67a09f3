"""The ranking of dense vectors by similarity.

A float32 matrix product selects candidates, and float64 scores rank them. The scores are the
vendor's: COSINE (1 + cos) / 2, DOT_PRODUCT (1 + dot) / 2, EUCLIDEAN 1 / (1 + squared distance). They
are computed in float64 and rounded to float32, so a vector's similarity to itself is exactly 1. The
float32 product is used only to exclude rows that cannot be among the best: every row within the
worst-case rounding error of the threshold is scored exactly.

Decided here: the zero vector has cosine 0 with every vector (score 0.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model import Floats, Rows, Similarity
from .matrix import Matrix, is_tame

Doubles = NDArray[np.float64]
Accept = Callable[[int], bool]

UNIT = 2.0**-24  # Half the distance from 1 to the next float32.
BLOCK = 64  # Number of keys per block in `threshold()`; they are evenly spaced, not adjacent.
EXACT_CHUNK = 1 << 20  # Number of values that exact scoring converts to float64 at a time.
BATCH = 32  # Maximum number of queries in one matrix product.
# Up to this many numbers, one thread multiplies as fast as several threads, and ten times as fast
# if other processes keep the cores busy, as in parallel test runs.
ONE_THREAD = 1 << 22
SMALL_PRODUCT = 1 << 13  # Up to this many numbers, no BLAS library splits a product among threads.
LARGEST = float(np.finfo(np.float32).max)
FIRST_LOOK = 256  # Number of rows that a filtered search tests against the filter first.


class Ranking(NamedTuple):
    """Row numbers and their float32 scores, best first; both arrays have the same length."""

    rows: Rows
    scores: Floats


class Search(NamedTuple):
    """A search by a dense vector: the vector, the number of rows to return, and a condition.

    If ``accept`` is None, every row is accepted. Rows with equal scores are sorted by row number
    or, if given, by the numbers that ``order`` returns for them. ``budget`` is the maximum number
    of rows, best first, that ``accept`` is called for.
    """

    vector: Floats
    depth: int
    accept: Accept | None = None
    order: Callable[[Rows], Rows] | None = None
    budget: int | None = None


def rank_dense(
    matrix: Matrix, similarity: Similarity, searches: Sequence[Search], hidden: Rows
) -> list[Ranking]:
    """Return the best rows for each search by score, then row number, without ``hidden`` rows."""
    rankings: list[Ranking] = []
    for start in range(0, len(searches), BATCH):
        batch = searches[start : start + BATCH]
        for search, dots in zip(batch, _products(matrix, batch), strict=True):
            rankings.append(_rank(matrix, similarity, search, dots, hidden))
    return rankings


def _products(matrix: Matrix, batch: Sequence[Search]) -> Iterable[Floats]:
    """Return the float32 products of all rows with the vector of each search."""
    # Ignore overflow: exact scoring replaces any row of infinities or NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        if len(batch) == 1:
            return [_product(matrix.values, batch[0].vector)]
        queries = np.stack([search.vector for search in batch])
        return queries @ matrix.values.T


def _product(values: Floats, vector: Floats) -> Floats:
    # BLAS libraries split even a small matrix-vector product among threads. Compute many smaller
    # products instead, which numpy computes one after the other.
    count, dimension = values.shape
    step = SMALL_PRODUCT // dimension
    if values.size > ONE_THREAD or not step:
        return values @ vector
    product: Floats = np.empty(count, np.float32)
    whole = count - count % step
    blocks = values[:whole].reshape(-1, step, dimension)
    np.matmul(blocks, vector, out=product[:whole].reshape(-1, step))
    np.matmul(values[whole:], vector, out=product[whole:])
    return product


def _rank(
    matrix: Matrix, similarity: Similarity, search: Search, dots: Floats, hidden: Rows
) -> Ranking:
    scorer = _Scorer(matrix, similarity, search.vector)
    keys, error = scorer.keys(dots)
    if len(hidden):
        keys[hidden] = -np.inf

    def slack(least: float) -> float:
        return scorer.slack(error, least) if error else 0.0

    candidates = _candidates(keys, search, slack)
    return best_first(candidates, scorer.scores(candidates), search.depth, search.order)


class _Scorer:
    """Computes the scores of the rows of a matrix for one query vector.

    ``keys()`` returns quick keys that increase with the scores, but have rounding errors. A row
    whose key is below another row's by more than ``slack()`` has a lower score. For example, the
    five best rows are among the rows whose key is at least the fifth largest key minus its slack.
    """

    def __init__(self, matrix: Matrix, similarity: Similarity, vector: Floats) -> None:
        self._matrix = matrix
        self._similarity = similarity
        self._query = vector.astype(np.float64)
        self._norm: float = float(self._query @ self._query) ** 0.5

    def keys(self, dots: Floats) -> tuple[NDArray[Any], float]:
        """Return a key for each row, given the float32 products, and the keys' maximum error.

        If the products may be imprecise, the keys are the scores, without an error.
        """
        matrix, norm = self._matrix, self._norm
        if not (matrix.tame and (norm == 0 or is_tame(norm))):
            return self.scores(np.arange(matrix.count)), 0.0
        relative = (matrix.dimension + 8) * UNIT
        largest = matrix.largest_norm
        if self._similarity is Similarity.COSINE:
            return dots * matrix.inverse_norms, relative * norm
        if self._similarity is Similarity.DOT_PRODUCT:
            # `dots` may be a row of a batched product, which nothing else uses afterwards.
            return dots, relative * norm * largest
        return 2 * dots - matrix.squares, relative * (2 * norm * largest + 2 * largest * largest)

    def slack(self, error: float, least: float) -> float:
        """Return how far a row's key can be below ``least`` while the two scores are equal."""
        norm = self._norm
        if self._similarity is Similarity.COSINE:
            rounding = 8 * UNIT * norm
        elif self._similarity is Similarity.DOT_PRODUCT:
            rounding = 8 * UNIT * (1 + abs(least))
        else:
            rounding = 8 * UNIT * (1 + abs(norm * norm - least))
        return 2 * error + rounding

    def scores(self, rows: Rows) -> Floats:
        """Return the float64 scores of the rows, rounded to float32."""
        step = max(1, EXACT_CHUNK // self._matrix.dimension)
        if len(rows) <= step:
            return self._exact(rows).astype(np.float32)
        chunks = [self._exact(rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate(chunks).astype(np.float32)

    def _exact(self, rows: Rows) -> Doubles:
        vectors = self._matrix.values[rows].astype(np.float64)
        if self._similarity is Similarity.EUCLIDEAN:
            distances = vectors - self._query
            return np.asarray(1 / (1 + np.einsum("ij,ij->i", distances, distances)))
        # Not a matrix product: equal rows must have equal scores anywhere in the matrix.
        dots = np.einsum("ij,j->i", vectors, self._query)
        if self._similarity is Similarity.DOT_PRODUCT:
            return np.asarray(np.clip((1 + dots) / 2, -LARGEST, LARGEST))
        norms = self._matrix.norms[rows] * self._norm
        if not norms.all():
            norms[norms == 0] = 1
        return np.asarray((1 + dots / norms) / 2)


def best_first(
    rows: Rows, scores: Floats, depth: int, order: Callable[[Rows], Rows] | None = None
) -> Ranking:
    """Return the best rows by score; equal scores are sorted by row number or by ``order``."""
    tiebreak = rows if order is None else order(rows)
    best = np.lexsort((tiebreak, -scores))[:depth]
    return Ranking(rows[best], scores[best])


def _candidates(
    keys: NDArray[np.floating], search: Search, slack: Callable[[float], float]
) -> Rows:
    if search.accept is None:
        least = threshold(keys, search.depth)
        near = keys >= least - slack(least) if math.isfinite(least) else keys > -math.inf
        return near.nonzero()[0]
    if search.budget is not None:
        least = threshold(keys, search.budget)
        best = np.flatnonzero(keys >= least if math.isfinite(least) else keys > -math.inf)
        best = best[np.lexsort((best, -keys[best]))][: search.budget]
        return _accepted(best, search.accept)
    return _accepted_candidates(keys, search.depth, search.accept, slack)


def _accepted_candidates(
    keys: NDArray[np.floating], depth: int, accept: Accept, slack: Callable[[float], float]
) -> Rows:
    """Test the best rows first, and further rows only if too few were accepted."""
    depth_tested = max(FIRST_LOOK, 4 * depth)
    tested_from = np.inf
    accepted: Rows = np.empty(0, np.intp)
    while True:
        least = threshold(keys, depth_tested)
        floor = least if math.isfinite(least) else float(np.finfo(keys.dtype).min)
        fresh = np.flatnonzero((keys >= floor) & (keys < tested_from))
        accepted = np.concatenate((accepted, _accepted(fresh, accept)))
        tested_from = floor
        if not math.isfinite(least):
            return accepted
        if len(accepted) >= depth:
            worst = np.sort(keys[accepted])[-depth]
            needed = worst - slack(float(worst))
            if needed >= floor:
                close: Rows = accepted[keys[accepted] >= needed]
                return close
        depth_tested *= 8


def _accepted(rows: Rows, accept: Accept) -> Rows:
    return np.array([row for row in rows.tolist() if accept(row)], np.intp)


def threshold(keys: NDArray[np.floating], depth: int) -> float:
    """Return the ``depth``-th largest key, or minus infinity if there are fewer keys.

    The maxima of blocks are compared first: for ten of a million keys this takes 620 us, while
    ``np.partition`` alone takes 1,050 us; for ten of 10,000 keys both take 7 us.
    """
    count = len(keys)
    if depth >= count:
        return -np.inf if depth > count or count == 0 else float(keys.min())
    if depth * BLOCK * 4 <= count:
        # No more than ``depth`` blocks have a maximum above the result, so the ``depth``-th largest
        # maximum does not exceed it. Only the few keys from that maximum on need to be compared.
        whole = count - count % BLOCK
        maxima = keys[:whole].reshape(BLOCK, -1).max(axis=0)
        keys = keys[keys >= _largest(maxima, depth)]
    else:
        keys = keys.copy()
    return _largest(keys, depth)


def _largest(keys: NDArray[np.floating], depth: int) -> float:
    """Return the ``depth``-th largest of the keys; reorders them in place."""
    index = len(keys) - depth
    keys.partition(index)
    return float(keys[index])


def float32_scores(matrix: Matrix, similarity: Similarity, vector: Floats, rows: Rows) -> Floats:
    """Return the rows' scores in float32, as the service computes them before fusion."""
    vectors = matrix.values[rows]
    half, one = np.float32(0.5), np.float32(1)
    # Products beyond float32's range become infinite or NaN here; the caller replaces them.
    with np.errstate(over="ignore", invalid="ignore"):
        if similarity is Similarity.EUCLIDEAN:
            distances = vectors - vector
            return np.asarray(one / (one + np.einsum("ij,ij->i", distances, distances)))
        dots = vectors @ vector
        if similarity is Similarity.DOT_PRODUCT:
            return np.asarray((one + dots) * half)
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) * np.sqrt(vector @ vector)
        cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
        return np.asarray((one + cosines) * half)
