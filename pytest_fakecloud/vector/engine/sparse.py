"""An inverted index of sparse vectors, scored by inner product with optional IDF weights.

The scores equal the vendor's published numbers only if they are computed in float32 in this order:
round the IDF to float32, multiply the query value by the IDF and then by the stored value, and add
the products in the order of the query.

Decided here: for scoring, the values of a repeated dimension are added up; a value of 0 does not
count as an entry of its dimension, neither for matching nor for IDF.
"""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from ..model import Floats, Rows, SparseVector, Weighting


def merged(vector: SparseVector) -> dict[int, float]:
    """Return a vector's non-zero values by dimension, with repeated dimensions added in float32."""
    entries: dict[int, float] = {}
    with np.errstate(over="ignore"):
        for dimension, value in zip(vector.indices.tolist(), vector.values, strict=True):
            if value:
                entries[dimension] = float(np.float32(entries.get(dimension, 0.0)) + value)
    return {dimension: value for dimension, value in entries.items() if value}


class Posting:
    """The rows with a non-zero value in one dimension, and these values."""

    __slots__ = ("_arrays", "values")

    def __init__(self) -> None:
        self.values: dict[int, float] = {}
        self._arrays: tuple[Rows, Floats] | None = None

    def put(self, row: int, value: float) -> None:
        self.values[row] = value
        self._arrays = None

    def drop(self, row: int) -> None:
        del self.values[row]
        self._arrays = None

    def copy(self) -> Posting:
        clone = copy(self)
        clone.values = dict(self.values)
        return clone

    def arrays(self) -> tuple[Rows, Floats]:
        """Return rows and values as two arrays, which are cached until the next change."""
        if self._arrays is None:
            count = len(self.values)
            self._arrays = (
                np.fromiter(self.values, np.intp, count),
                np.fromiter(self.values.values(), np.float32, count),
            )
        return self._arrays


class SparseIndex:
    """An inverted index from dimensions to rows.

    ``count`` is the number of rows with a sparse vector, ``entries`` the number of their non-zero
    values.
    """

    def __init__(self) -> None:
        self.postings: dict[int, Posting] = {}
        self.count = 0
        self.entries = 0

    def add(self, row: int, vector: SparseVector) -> None:
        self.count += 1
        for dimension, value in merged(vector).items():
            posting = self.postings.get(dimension)
            if posting is None:
                posting = self.postings[dimension] = Posting()
            posting.put(row, value)
            self.entries += 1

    def remove(self, row: int, vector: SparseVector) -> None:
        self.count -= 1
        for dimension in merged(vector):
            posting = self.postings[dimension]
            posting.drop(row)
            self.entries -= 1
            if not posting.values:
                del self.postings[dimension]

    def idf(self, dimension: int) -> np.float32:
        """Return ln((N - n + 0.5) / (n + 0.5) + 1), where n of the N rows have the dimension."""
        posting = self.postings.get(dimension)
        having = len(posting.values) if posting else 0
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
                posting = self.postings.get(dimension)
                if posting is None or not value:
                    continue
                weight = value if weighting is None else value * self.idf(dimension)
                having, values = posting.arrays()
                total[having] += weight * values
                touched[having] = True
        found = np.flatnonzero(touched)
        # JSON has no form for sums beyond float32's range, so the largest float32 replaces them.
        return found, np.nan_to_num(total[found])

    def copy(self) -> SparseIndex:
        clone = copy(self)
        clone.postings = {dimension: posting.copy() for dimension, posting in self.postings.items()}
        return clone
