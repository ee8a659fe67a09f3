"""Storage of dense vectors, their scores, and the selection of the best.

Vectors are rows of a matrix. A float32 matrix product selects candidates, and float64 scores
rank them. The scores are the vendor's: COSINE (1 + cos) / 2, DOT_PRODUCT (1 + dot) / 2, EUCLIDEAN
1 / (1 + squared distance). They are computed in float64 and rounded to float32, so a vector's
similarity to itself is exactly 1. The float32 product is used only to exclude rows that cannot be
among the best: every row within the worst-case rounding error of the threshold is scored exactly.

Decided here: the zero vector has cosine 0 with every vector (score 0.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Without numpy.typing, whose import would take longer than that of this module.
Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = np.ndarray[Any, np.dtype[np.intp]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]
Accept = Callable[[int], bool]
Slack = Callable[[float], float]
"""Returns how far a row's key can be below a key while the scores of the two rows are equal."""

UNIT = 2.0**-24  # Half the distance from 1 to the next float32.
BLOCK = 64  # Number of keys per block in `lower_bound()`; they are evenly spaced, not adjacent.
EXACT_CHUNK = 1 << 20  # Number of values that exact scoring converts to float64 at a time.
BATCH = 32  # Maximum number of queries in one matrix product.
# Up to this many numbers, one thread multiplies as fast as several threads, and ten times as fast
# if other processes keep the cores busy, as in parallel test runs.
ONE_THREAD = 1 << 22
SMALL_PRODUCT = 1 << 13  # Up to this many numbers, no BLAS library splits a product among threads.
LARGEST = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float64).tiny)  # Below the product of the norms of any two vectors but 0.
FIRST_LOOK = 256  # Number of rows that a filtered search tests against the filter first.


class Similarity(StrEnum):
    """The function that measures how similar two dense vectors are."""

    COSINE = "COSINE"
    EUCLIDEAN = "EUCLIDEAN"
    DOT_PRODUCT = "DOT_PRODUCT"


class Ranking(NamedTuple):
    """Row numbers and their float32 scores, best first; both arrays have the same length."""

    rows: Rows
    scores: Floats


class DenseSearch(NamedTuple):
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
    matrix: Matrix, similarity: Similarity, searches: Sequence[DenseSearch], hidden: Rows
) -> list[Ranking]:
    """Return the best rows for each search by score, then row number, without ``hidden`` rows."""
    batches = (searches[start : start + BATCH] for start in range(0, len(searches), BATCH))
    return [
        _rank(matrix, similarity, search, dots, hidden)
        for batch in batches
        for search, dots in zip(batch, _products(matrix, batch), strict=True)
    ]


def _products(matrix: Matrix, batch: Sequence[DenseSearch]) -> Iterable[Floats]:
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
    matrix: Matrix, similarity: Similarity, search: DenseSearch, dots: Floats, hidden: Rows
) -> Ranking:
    scorer = _Scorer(matrix, similarity, search.vector)
    keys, slack = scorer.keys(dots)
    if len(hidden):
        keys[hidden] = -np.inf
    candidates = _candidates(keys, search, slack)
    return best_first(candidates, scorer.scores(candidates), search.depth, search.order)


class _Scorer:
    """Computes the scores of the rows of a matrix for one query vector.

    ``keys()`` returns quick keys that increase with the scores, but have rounding errors. A row
    whose key is below another row's by more than that key's slack has a lower score. For example,
    the five best rows are among those whose key is at least the fifth largest key minus its slack.
    """

    def __init__(self, matrix: Matrix, similarity: Similarity, vector: Floats) -> None:
        self._matrix = matrix
        self._similarity = similarity
        self._query = vector.astype(np.float64)
        self._norm: float = float(self._query @ self._query) ** 0.5

    def keys(self, dots: Floats) -> tuple[NDArray[Any], Slack]:
        """Return a key for each row, given the float32 products, and the slack of a key.

        If the products may be imprecise, the keys are the scores, without any slack.
        """
        matrix, norm = self._matrix, self._norm
        if not (matrix.tame and (norm == 0 or is_tame(norm))):
            return self.scores(np.arange(matrix.count)), lambda least: 0.0
        relative, rounding = (matrix.dimension + 8) * UNIT, 8 * UNIT
        largest = matrix.largest_norm
        if self._similarity is Similarity.COSINE:
            error = relative * norm
            return dots * matrix.inverse_norms, lambda least: 2 * error + rounding * norm
        if self._similarity is Similarity.DOT_PRODUCT:
            error = relative * norm * largest
            # `dots` may be a row of a batched product, which nothing else uses afterwards.
            return dots, lambda least: 2 * error + rounding * (1 + abs(least))
        error = relative * (2 * norm * largest + 2 * largest * largest)
        return (
            2 * dots - matrix.squares,
            lambda least: 2 * error + rounding * (1 + abs(norm * norm - least)),
        )

    def scores(self, rows: Rows) -> Floats:
        """Return the float64 scores of the rows, rounded to float32."""
        step = max(1, EXACT_CHUNK // self._matrix.dimension)
        if len(rows) <= step:
            return self._exact(rows).astype(np.float32)
        chunks = [self._exact(rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate(chunks).astype(np.float32)

    def _exact(self, rows: Rows) -> Doubles:
        vectors = self._matrix.values.take(rows, axis=0).astype(np.float64)
        if self._similarity is Similarity.EUCLIDEAN:
            distances = vectors - self._query
            return np.asarray(1 / (1 + np.add.reduce(distances * distances, axis=1)))
        # Not a matrix product: equal rows must have equal scores anywhere in the matrix.
        dots = np.add.reduce(vectors * self._query, axis=1)
        if self._similarity is Similarity.DOT_PRODUCT:
            return np.asarray(np.clip((1 + dots) / 2, -LARGEST, LARGEST))
        # The product with a zero vector is 0, whatever it is divided by.
        norms = np.maximum(self._matrix.norms[rows] * self._norm, TINY)
        return np.asarray((1 + dots / norms) / 2)


def best_first(
    rows: Rows, scores: Floats, depth: int, order: Callable[[Rows], Rows] | None = None
) -> Ranking:
    """Return the best rows by score; equal scores are sorted by row number or by ``order``."""
    tiebreak = rows if order is None else order(rows)
    best = np.lexsort((tiebreak, -scores))[:depth]
    return Ranking(rows[best], scores[best])


def _candidates(keys: NDArray[np.floating], search: DenseSearch, slack: Slack) -> Rows:
    if search.accept is None:
        least = lower_bound(keys, search.depth)
        near = keys >= least - slack(least) if math.isfinite(least) else keys > -math.inf
        return near.nonzero()[0]
    if search.budget is not None:
        least = lower_bound(keys, search.budget)
        best = np.flatnonzero(keys >= least if math.isfinite(least) else keys > -math.inf)
        return _accepted(best_first(best, keys[best], search.budget).rows, search.accept)
    return _accepted_candidates(keys, search.depth, search.accept, slack)


def _accepted_candidates(
    keys: NDArray[np.floating], depth: int, accept: Accept, slack: Slack
) -> Rows:
    """Test the best rows first, and further rows only if too few were accepted."""
    depth_tested = max(FIRST_LOOK, 4 * depth)
    tested_from = math.inf
    accepted: Rows = np.empty(0, np.intp)
    while True:
        least = lower_bound(keys, depth_tested)
        floor = least if math.isfinite(least) else float(np.finfo(keys.dtype).min)
        # The bound for more rows can be above that for fewer. Then there are no new rows yet.
        floor = min(floor, tested_from)
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


def lower_bound(keys: NDArray[np.floating], depth: int) -> float:
    """Return a number that at least ``depth`` keys reach, and usually few others; minus infinity if
    there are fewer keys.

    If there are many keys, it is the ``depth``-th largest of the maxima of blocks of keys, so fewer
    than ``depth`` blocks have keys above it. For ten of a million keys, that takes a ninth of the
    time of ``np.partition``.
    """
    count = len(keys)
    if depth >= count:
        return -np.inf if depth > count or count == 0 else float(keys.min())
    if depth * BLOCK * 4 <= count:
        whole = count - count % BLOCK
        chosen = keys[:whole].reshape(BLOCK, -1).max(axis=0)
    else:
        chosen = keys.copy()
    index = len(chosen) - depth
    chosen.partition(index)
    return float(chosen[index])


def float32_scores(matrix: Matrix, similarity: Similarity, vector: Floats, rows: Rows) -> Floats:
    """Return the rows' scores in float32, as the service computes them before fusion."""
    vectors = matrix.values[rows]
    half, unity = np.float32(0.5), np.float32(1)
    # Products beyond float32's range become infinite or NaN here; the caller replaces them.
    with np.errstate(over="ignore", invalid="ignore"):
        if similarity is Similarity.EUCLIDEAN:
            distances = vectors - vector
            return np.asarray(unity / (unity + np.einsum("ij,ij->i", distances, distances)))
        dots = vectors @ vector
        if similarity is Similarity.DOT_PRODUCT:
            return np.asarray((unity + dots) * half)
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) * np.sqrt(vector @ vector)
        cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
        return np.asarray((unity + cosines) * half)


FIRST_CAPACITY = 16
# Between norms of this size, a float32 product neither overflows nor loses relative precision.
SMALLEST_TAME_NORM = 1e-15
LARGEST_TAME_NORM = 1e15


class _Columns(NamedTuple):
    """Arrays with one item for each row of a matrix, of equal capacity.

    ``norms`` are float64. ``inverse_norms`` and ``squares`` (of the norms) are 0 for the zero
    vector, and for norms that are not tame.
    """

    values: Floats
    norms: NDArray[np.float64]
    inverse_norms: Floats
    squares: Floats


class Matrix:
    """Rows of equal dimension. The capacity doubles when it is full, so appending takes amortised
    constant time.

    ``values`` has shape (count, dimension); ``norms``, ``inverse_norms`` and ``squares`` have shape
    (count,). ``largest_norm`` is at least as large as every norm. ``tame`` is False if float32
    products with some row may overflow or be imprecise.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.count = 0
        self.largest_norm = 0.0
        self.tame = True
        self._columns = _Columns(
            np.empty((FIRST_CAPACITY, dimension), np.float32),
            np.empty(FIRST_CAPACITY),
            np.empty(FIRST_CAPACITY, np.float32),
            np.empty(FIRST_CAPACITY, np.float32),
        )

    @property
    def values(self) -> Floats:
        return self._columns.values[: self.count]

    @property
    def norms(self) -> NDArray[np.float64]:
        return self._columns.norms[: self.count]

    @property
    def inverse_norms(self) -> Floats:
        return self._columns.inverse_norms[: self.count]

    @property
    def squares(self) -> Floats:
        return self._columns.squares[: self.count]

    def vector(self, row: int) -> Floats:
        """Return a copy of a row."""
        copied: Floats = self._columns.values[row].copy()
        return copied

    def append(self, vector: Floats | None) -> None:
        """Add a row; None adds a zero row."""
        row = self.count
        if row == len(self._columns.values):
            self._grow()
        self.count = row + 1
        self.replace(row, vector)

    def replace(self, row: int, vector: Floats | None) -> None:
        """Overwrite a row; None makes it a zero row."""
        values, norms, inverse_norms, squares = self._columns
        if vector is None:
            values[row] = 0
            norms[row] = inverse_norms[row] = squares[row] = 0
            return
        values[row] = vector
        exact = vector.astype(np.float64)
        square = float(exact @ exact)
        norm = square**0.5
        norms[row] = norm
        if norm > self.largest_norm:
            self.largest_norm = norm
        if is_tame(norm):
            inverse_norms[row] = 1 / norm
            squares[row] = square
        else:
            inverse_norms[row] = squares[row] = 0
            self.tame = self.tame and norm == 0

    def keep(self, rows: Rows) -> None:
        """Keep only the given rows, which must be in ascending order."""
        self._columns = _Columns._make(column[rows] for column in self._columns)
        self.count = len(rows)
        self.largest_norm = float(self.norms.max(initial=0))
        smallest = float(self.norms.min(initial=1, where=self.norms > 0))
        self.tame = self.largest_norm <= LARGEST_TAME_NORM and smallest >= SMALLEST_TAME_NORM

    def copy(self) -> Matrix:
        clone = copy(self)
        clone._columns = _Columns._make(column[: self.count].copy() for column in self._columns)
        return clone

    def _grow(self) -> None:
        capacity = max(FIRST_CAPACITY, 2 * self.count)
        grown = []
        for column in self._columns:
            new = np.empty((capacity, *column.shape[1:]), column.dtype)
            new[: self.count] = column[: self.count]
            grown.append(new)
        self._columns = _Columns._make(grown)


def is_tame(norm: float) -> bool:
    """Return whether float32 products with a vector of this norm are precise."""
    return SMALLEST_TAME_NORM <= norm <= LARGEST_TAME_NORM
