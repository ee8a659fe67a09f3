"""The storage of dense vectors in a matrix, with their norms."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model import Floats, Rows

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
