"""Fusion of the dense and the sparse ranking of a hybrid query.

A record's fused score is the sum of its contributions from both rankings. RRF contributes 1 / (60 +
rank), where ranks start at 0. DBSF contributes (s - (m - 3d)) / 6d, where s is the record's score,
m the mean and d the sample standard deviation of all scores of the ranking; it contributes 0.5 if
there is only one candidate or if all scores are equal. The sums are float32, because only then do
they equal the vendor's published numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..model import Floats, Fusion, Rows
from .similarity import Ranking, best_first

RANK_CONSTANT = 60


def reciprocal_ranks(ranking: Ranking) -> Floats:
    """Return 1 / (60 + rank) for each row, where ranks start at 0."""
    ranks = np.arange(len(ranking.rows)) + RANK_CONSTANT
    return (1 / ranks).astype(np.float32)


def normalised(ranking: Ranking) -> Floats:
    """Scale the scores so that three standard deviations below their mean is 0 and three above it
    is 1.
    """
    scores = ranking.scores
    if len(scores) < 2:
        return np.full(len(scores), 0.5, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.float32(3) * scores.std(ddof=1, dtype=np.float32)
        middle = scores.mean(dtype=np.float32)
        low, high = middle - spread, middle + spread
        if not 0 < high - low < np.inf:
            return np.full(len(scores), 0.5, np.float32)
        return np.asarray((scores - low) / (high - low))


def fuse(
    rankings: Sequence[Ranking],
    fusion: Fusion,
    depth: int,
    order: Callable[[Rows], Rows] | None = None,
) -> Ranking:
    """Combine several rankings and return the ``depth`` best rows.

    Rows with equal scores are sorted by row number or, if given, by ``order``.
    """
    weigh = reciprocal_ranks if fusion is Fusion.RRF else normalised
    rows = np.unique(np.concatenate([ranking.rows for ranking in rankings]))
    total = np.zeros(len(rows), np.float32)
    for ranking in rankings:
        total[np.searchsorted(rows, ranking.rows)] += weigh(ranking)
    return best_first(rows, total, depth, order)
