"""Answers queries: ranks dense and sparse vectors, applies filters and fuses the rankings.

Decided here: a hybrid query that is not resumable fuses the 1000 best rows of each component, or
the top_k best if top_k is larger, because the service is known to examine more than top_k rows. A
dense score is clamped to 0..1 when it is returned, after ranking by the unclamped score. Sparse and
fused scores are returned unchanged.

A record's fused score is the sum of its contributions from both rankings. RRF contributes 1 / (60 +
rank), where ranks start at 0. DBSF contributes (s - (m - 3d)) / 6d, where s is the record's score,
m the mean and d the sample standard deviation of all scores of the ranking; it contributes 0.5 if
there is only one candidate or if all scores are equal. The sums are float32, because only then do
they equal the vendor's published numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import NamedTuple

import numpy as np

from ...core.ids import RandomStream
from ...similarity.dense import (
    Accept,
    DenseSearch,
    Floats,
    Ranking,
    Rows,
    best_first,
    float32_scores,
    lower_bound,
    rank_dense,
)
from ..model import Fusion, Predicate, VectorHit, VectorQuery
from ..settings import VectorConfig
from .namespace import VectorNamespace

HYBRID_DEPTH = 1000
RANK_CONSTANT = 60
# Number of extra rows to rank, because `recall` below 1 is expected to drop some rows.
SPARE = 32
EMPTY = Ranking(np.empty(0, np.intp), np.empty(0, np.float32))


class PreparedQuery(NamedTuple):
    """A query with its compiled filter.

    ``exclude`` contains the ids that earlier batches returned. ``depth`` is the number of rows that
    each component contributes if the query has a dense and a sparse vector.
    """

    query: VectorQuery
    predicate: Predicate | None
    depth: int
    exclude: Set[str] = frozenset()

    @property
    def rows_wanted(self) -> int:
        is_fused = self.query.vector is not None and self.query.sparse is not None
        return self.depth if is_fused else self.query.top_k


class Ranker:
    """Finds the hits of queries, as inexactly as the settings in ``config`` specify."""

    def __init__(self, config: VectorConfig, random: RandomStream) -> None:
        self._config = config
        self._random = random

    def answer(
        self, namespace: VectorNamespace, queries: Sequence[PreparedQuery]
    ) -> list[list[VectorHit]]:
        """Return the hits of each query, best first. Dense vectors must have the index's dimension."""
        dense = iter(self._dense(namespace, [q for q in queries if q.query.vector is not None]))
        answers = []
        for prepared in queries:
            query = prepared.query
            if query.vector is None:
                rows, scores = self._sparse(namespace, prepared)
            elif query.sparse is None:
                rows, scores = next(dense)
                scores = scores.clip(0, 1)
            else:
                rows, scores = self._fused(namespace, prepared, next(dense))
            records = namespace.records(rows.tolist(), with_vectors=query.include.vectors)
            answers.append([*map(VectorHit, scores, records)])
        return answers

    def _dense(self, namespace: VectorNamespace, queries: Sequence[PreparedQuery]) -> list[Ranking]:
        matrix = namespace.matrix
        if matrix is None or not matrix.count:
            return [EMPTY for _ in queries]
        searches = [
            self._search(namespace, prepared, self._depth_with_spare(namespace, prepared))
            for prepared in queries
        ]
        rankings = rank_dense(matrix, self._config.similarity, searches, namespace.hidden)
        if self._config.recall == 1:
            return rankings
        return [
            self._lossy(namespace, prepared, ranking)
            for prepared, ranking in zip(queries, rankings, strict=True)
        ]

    def _search(
        self, namespace: VectorNamespace, prepared: PreparedQuery, depth: int
    ) -> DenseSearch:
        vector = prepared.query.vector
        assert vector is not None
        return DenseSearch(
            vector, depth, _accept(namespace, prepared), self._order, self._budget(prepared)
        )

    def _sparse(self, namespace: VectorNamespace, prepared: PreparedQuery) -> Ranking:
        query = prepared.query
        assert query.sparse is not None
        depth = prepared.rows_wanted
        rows, scores = namespace.sparse_index.scores(
            query.sparse, len(namespace.stored), query.weighting
        )
        accept = _accept(namespace, prepared)
        if accept is None:
            near = scores >= lower_bound(scores, depth)
            return best_first(rows[near], scores[near], depth, self._order)
        ranking = best_first(rows, scores, len(rows), self._order)
        tested = enumerate(ranking.rows[: self._budget(prepared)].tolist())
        accepted = list(islice((position for position, row in tested if accept(row)), depth))
        return Ranking(ranking.rows[accepted], ranking.scores[accepted])

    def _fused(
        self, namespace: VectorNamespace, prepared: PreparedQuery, dense: Ranking
    ) -> Ranking:
        query = prepared.query
        if query.fusion is Fusion.DBSF and len(dense.rows):
            assert namespace.matrix is not None
            assert query.vector is not None
            scores: Floats = float32_scores(
                namespace.matrix, self._config.similarity, query.vector, dense.rows
            )
            dense = Ranking(dense.rows, np.nan_to_num(scores))
        sparse = self._sparse(namespace, prepared)
        return fuse([dense, sparse], query.fusion, query.top_k, self._order)

    def _order(self, rows: Rows) -> Rows:
        if not self._config.shuffle_ties:
            return rows
        order = list(range(len(rows)))
        self._random.shuffle(order)
        return np.array(order, np.intp)

    def _budget(self, prepared: PreparedQuery) -> int | None:
        return None if prepared.predicate is None else self._config.filter_budget

    def _depth_with_spare(self, namespace: VectorNamespace, prepared: PreparedQuery) -> int:
        depth, recall = prepared.rows_wanted, self._config.recall
        if recall == 1:
            return depth
        expected = math.ceil(depth / recall) if recall else len(namespace.stored)
        return min(expected + SPARE, len(namespace.stored))

    def _lossy(
        self, namespace: VectorNamespace, prepared: PreparedQuery, ranking: Ranking
    ) -> Ranking:
        """Keep each row with the probability ``recall``. If too few rows remain, rank all rows of the
        namespace, and draw from the additional ones in the same way.
        """
        indexes = self._kept(len(ranking.rows))
        depth = prepared.rows_wanted
        if len(indexes) < depth and len(ranking.rows) < len(namespace.stored):
            assert namespace.matrix is not None
            search = self._search(namespace, prepared, len(namespace.stored))
            [whole] = rank_dense(
                namespace.matrix, self._config.similarity, [search], namespace.hidden
            )
            more = self._kept(len(whole.rows) - len(ranking.rows), first=len(ranking.rows))
            ranking, indexes = whole, indexes + more
        return Ranking(ranking.rows[indexes[:depth]], ranking.scores[indexes[:depth]])

    def _kept(self, count: int, first: int = 0) -> list[int]:
        """Return the positions that ``recall`` keeps, of ``count`` from ``first`` on."""
        safe = 0 if self._config.lose_first else 1
        return [
            position
            for position in range(first, first + count)
            if position < safe or self._random.random() < self._config.recall
        ]


def _accept(namespace: VectorNamespace, prepared: PreparedQuery) -> Accept | None:
    predicate, exclude, stored = prepared.predicate, prepared.exclude, namespace.stored
    if predicate is None:
        return (lambda row: stored[row].id not in exclude) if exclude else None
    if not exclude:
        return lambda row: predicate(stored[row].metadata)
    return lambda row: stored[row].id not in exclude and predicate(stored[row].metadata)


def reciprocal_ranks(ranking: Ranking) -> Floats:
    return (1 / (np.arange(len(ranking.rows)) + RANK_CONSTANT)).astype(np.float32)


def normalised(ranking: Ranking) -> Floats:
    """Scale scores so that mean - 3 standard deviations is 0 and mean + 3 deviations is 1."""
    scores = ranking.scores
    if len(scores) > 1:
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.float32(3) * scores.std(ddof=1, dtype=np.float32)
            middle = scores.mean(dtype=np.float32)
            low, high = middle - spread, middle + spread
            if 0 < high - low < np.inf:
                return np.asarray((scores - low) / (high - low))
    return np.full(len(scores), 0.5, np.float32)


def fuse(
    rankings: Sequence[Ranking],
    fusion: Fusion,
    depth: int,
    order: Callable[[Rows], Rows] | None = None,
) -> Ranking:
    """Return the ``depth`` best rows of several rankings; equal scores as in ``best_first()``."""
    weigh = reciprocal_ranks if fusion is Fusion.RRF else normalised
    rows = np.unique(np.concatenate([ranking.rows for ranking in rankings]))
    total = np.zeros(len(rows), np.float32)
    for ranking in rankings:
        total[np.searchsorted(rows, ranking.rows)] += weigh(ranking)
    return best_first(rows, total, depth, order)
