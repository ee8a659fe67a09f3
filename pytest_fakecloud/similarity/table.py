"""Vectors by id, and the search for those nearest to a vector."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from copy import copy
from typing import Generic, Self, TypeVar

import numpy as np

from .dense import DenseSearch, Floats, Matrix, Rows, Similarity, rank_dense

Id = TypeVar("Id", bound=Hashable)


class VectorTable(Generic[Id]):
    """Vectors of one dimension by id.

    Vectors with equal scores are found in the order in which their ids were added; a replaced vector
    keeps its place. The row of a removed vector is used for the next new id.
    """

    def __init__(self, dimension: int, similarity: Similarity) -> None:
        self.similarity = similarity
        self._matrix = Matrix(dimension)
        self._rows: dict[Id, int] = {}
        """The row of each id, in the order in which the ids were added."""
        self._entries: dict[int, tuple[Id, int]] = {}
        """For each row that is in use, its id and how many ids were added before."""
        self._free: list[int] = []
        self._added = 0

    @property
    def dimension(self) -> int:
        return self._matrix.dimension

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Id]:
        return iter(self._rows)

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    def get(self, id: Id) -> Floats | None:
        row = self._rows.get(id)
        return None if row is None else self._matrix.vector(row)

    def put(self, id: Id, vector: Floats) -> bool:
        """Add or replace a vector; return whether the id is new."""
        row = self._rows.get(id)
        if row is not None:
            self._matrix.replace(row, vector)
            return False
        if self._free:
            row = self._free.pop()
            self._matrix.replace(row, vector)
        else:
            row = self._matrix.count
            self._matrix.append(vector)
        self._entries[row] = id, self._added
        self._rows[id] = row
        self._added += 1
        return True

    def remove(self, id: Id) -> bool:
        """Remove a vector; return whether the id existed."""
        row = self._rows.pop(id, None)
        if row is None:
            return False
        del self._entries[row]
        self._free.append(row)
        return True

    def nearest(
        self,
        vector: Floats,
        count: int,
        accept: Callable[[Id], bool] | None = None,
        budget: int | None = None,
    ) -> list[tuple[Id, float]]:
        """Return the ids of the nearest vectors with their scores from 0 to 1, best first. ``budget`` is
        the maximum number of ids, best first, that ``accept`` is called for.

        Scores are rounded to float32. They are clamped to 0 to 1 after the vectors were ranked by the
        unclamped scores, because the product of two vectors can have any value.
        """
        if not self._rows:
            return []
        entries = self._entries
        search = DenseSearch(
            vector,
            count,
            None if accept is None else lambda row: accept(entries[row][0]),
            self._by_age,
            budget,
        )
        hidden = np.array(self._free, np.intp)
        [ranking] = rank_dense(self._matrix, self.similarity, [search], hidden)
        scores = map(shortest, ranking.scores.clip(0, 1))
        return [
            (entries[row][0], score)
            for row, score in zip(ranking.rows.tolist(), scores, strict=True)
        ]

    def _by_age(self, rows: Rows) -> Rows:
        return np.array([self._entries[row][1] for row in rows.tolist()], np.intp)

    def mend(self) -> None:
        """Make all parts agree with the rows, after an exception between two changes."""
        self._rows = {id: row for id, row in self._rows.items() if row in self._entries}
        self._entries = {row: self._entries[row] for row in self._rows.values()}
        self._free = [row for row in range(self._matrix.count) if row not in self._entries]

    def copy(self) -> Self:
        clone = copy(self)
        clone._matrix = self._matrix.copy()
        clone._rows, clone._entries = dict(self._rows), dict(self._entries)
        clone._free = list(self._free)
        return clone


def shortest(number: np.float32) -> float:
    """Return the double that is written with the fewest digits for a float32, such as 0.1."""
    return float(str(number))
