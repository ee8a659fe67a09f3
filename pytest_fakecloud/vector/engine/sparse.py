"""An inverted index of sparse vectors, and their scores.

Scores are inner products with optional IDF weights. They equal the vendor's published numbers only
if they are computed in float32 in this order: round the IDF to float32, multiply the query value by
the IDF and then by the stored value, and add the products in the order of the query.

Decided here: the values of a repeated dimension of a sparse vector are added up; a value of 0 does
not count as an entry of its dimension, neither for matching nor for IDF.
"""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from ...similarity.dense import Floats, Rows
from ..model import SparseVector, Weighting


def merged(vector: SparseVector) -> dict[int, float]:
    """Return a vector's non-zero values by dimension, with repeated dimensions added in float32."""
    entries: dict[int, float] = {}
    with np.errstate(over="ignore"):
        for dimension, value in zip(vector.indices.tolist(), vector.values, strict=True):
            if value:
                entries[dimension] = float(np.float32(entries.get(dimension, 0.0)) + value)
    return {dimension: value for dimension, value in entries.items() if value}


class SparseIndex:
    """An inverted index from dimensions to rows.

    ``values`` are the non-zero values by dimension and row, ``entries`` is their number, and
    ``count`` the number of rows with a sparse vector.
    """

    def __init__(self) -> None:
        self.values: dict[int, dict[int, float]] = {}
        self.count = 0
        self.entries = 0
        self._arrays: dict[int, tuple[Rows, Floats]] = {}
        """Rows and values of the dimensions that have not changed since a query read them."""

    def add(self, row: int, vector: SparseVector) -> None:
        self.count += 1
        for dimension, value in merged(vector).items():
            self.values.setdefault(dimension, {})[row] = value
            self._arrays.pop(dimension, None)
            self.entries += 1

    def remove(self, row: int, vector: SparseVector) -> None:
        self.count -= 1
        for dimension in merged(vector):
            del self.values[dimension][row]
            self._arrays.pop(dimension, None)
            self.entries -= 1
            if not self.values[dimension]:
                del self.values[dimension]

    def idf(self, dimension: int) -> np.float32:
        """Return ln((N - n + 0.5) / (n + 0.5) + 1), where n of the N rows have the dimension."""
        having = len(self.values.get(dimension, ()))
        return np.float32(math.log((self.count - having + 0.5) / (having + 0.5) + 1))

    def scores(
        self, query: SparseVector, rows: int, weighting: Weighting | None
    ) -> tuple[Rows, Floats]:
        """Return the rows that share a dimension with the query, in ascending order, and their
        scores.

        ``rows`` is the number of rows of the namespace.
        """
        total = np.zeros(rows, np.float32)
        touched = np.zeros(rows, bool)
        with np.errstate(over="ignore", invalid="ignore"):
            for dimension, value in zip(query.indices.tolist(), query.values, strict=True):
                if dimension not in self.values or not value:
                    continue
                weight = value if weighting is None else value * self.idf(dimension)
                if dimension not in self._arrays:
                    self._arrays[dimension] = _as_arrays(self.values[dimension])
                having, values = self._arrays[dimension]
                total[having] += weight * values
                touched[having] = True
        scored_rows = np.flatnonzero(touched)
        # JSON has no form for sums beyond float32's range, so the largest float32 replaces them.
        return scored_rows, np.nan_to_num(total[scored_rows])

    def copy(self) -> SparseIndex:
        clone = copy(self)
        clone.values = {dimension: dict(values) for dimension, values in self.values.items()}
        clone._arrays = dict(self._arrays)
        return clone


def _as_arrays(values: dict[int, float]) -> tuple[Rows, Floats]:
    count = len(values)
    return np.fromiter(values, np.intp, count), np.fromiter(values.values(), np.float32, count)
