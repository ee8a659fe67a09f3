"""Fusion of the dense and the sparse ranking of a hybrid query.

RRF adds 1 / (60 + rank), where ranks start at 0. DBSF adds (s - (m - 3d)) / 6d, where m is the mean
and d the sample standard deviation of the component's scores; if there is only one candidate or all
scores are equal, it adds 0.5. Both add in float32: only then do the results equal the vendor's
published numbers.
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
    """Return each score's position between three standard deviations below the mean (0) and three
    above it (1).
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
    """Combine several rankings and return the ``depth`` best rows; equal scores are in row order."""
    weigh = reciprocal_ranks if fusion is Fusion.RRF else normalised
    rows = np.unique(np.concatenate([ranking.rows for ranking in rankings]))
    total = np.zeros(len(rows), np.float32)
    for ranking in rankings:
        total[np.searchsorted(rows, ranking.rows)] += weigh(ranking)
    return best_first(rows, total, depth, order)
