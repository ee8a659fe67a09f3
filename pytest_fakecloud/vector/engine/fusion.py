"""Fusion of the dense and the sparse ranking of a hybrid query.

RRF adds 1 / (60 + rank) with ranks from 0; DBSF adds (s - (m - 3d)) / 6d, where m is the mean and d
the sample standard deviation of the component's scores, or 0.5 for a single candidate or without
spread. Both add in float32, which the vendor's published numbers require.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..model import Floats, Fusion, Rows
from .similarity import Ranking, best_first

RANK_CONSTANT = 60


def reciprocal_ranks(ranking: Ranking) -> Floats:
    """Return 1 / (60 + rank) for each row, rank from 0."""
    ranks = np.arange(len(ranking.rows)) + RANK_CONSTANT
    return (1 / ranks).astype(np.float32)


def normalised(ranking: Ranking) -> Floats:
    """Return scores relative to three standard deviations below and above their mean."""
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
    """Return the ``depth`` best rows of several rankings combined; ties in row order."""
    weigh = reciprocal_ranks if fusion is Fusion.RRF else normalised
    rows = np.unique(np.concatenate([ranking.rows for ranking in rankings]))
    total = np.zeros(len(rows), np.float32)
    for ranking in rankings:
        total[np.searchsorted(rows, ranking.rows)] += weigh(ranking)
    return best_first(rows, total, depth, order)
