"""A growable float32 matrix of dense vectors, with the norms that scoring needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..model import Floats, Rows

FIRST_CAPACITY = 16
# If all norms are between these bounds, a float32 product neither overflows nor loses relative
# precision.
SMALLEST_TAME_NORM = 1e-15
LARGEST_TAME_NORM = 1e15


class Matrix:
    """Rows of equal dimension. The capacity doubles when it is full, so appending takes amortised
    constant time.

    ``values`` has shape (count, dimension); ``norms`` (float64), ``inverse_norms`` (0 for the zero
    vector) and ``squares`` (of the norms) have shape (count,). ``largest_norm`` is at least as
    large as every norm. ``tame`` is False if float32 products with some row may overflow or be
    imprecise.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.count = 0
        self.largest_norm = 0.0
        self.tame = True
        self._values: Floats = np.empty((FIRST_CAPACITY, dimension), np.float32)
        self._norms: NDArray[np.float64] = np.empty(FIRST_CAPACITY)
        self._inverse_norms: Floats = np.empty(FIRST_CAPACITY, np.float32)
        self._squares: Floats = np.empty(FIRST_CAPACITY, np.float32)

    @property
    def values(self) -> Floats:
        """All rows, shape (count, dimension); a view."""
        return self._values[: self.count]

    @property
    def norms(self) -> NDArray[np.float64]:
        """The Euclidean norm of each row in float64; a view."""
        return self._norms[: self.count]

    @property
    def inverse_norms(self) -> Floats:
        """One over the Euclidean norm of each row, 0 for a zero row; a view."""
        return self._inverse_norms[: self.count]

    @property
    def squares(self) -> Floats:
        """The squared Euclidean norm of each row; a view."""
        return self._squares[: self.count]

    def append(self, vector: Floats | None) -> None:
        """Add a row; None adds a zero row."""
        row = self.count
        if row == len(self._values):
            self._grow()
        self.count = row + 1
        self.replace(row, vector)

    def replace(self, row: int, vector: Floats | None) -> None:
        """Overwrite a row; None makes it a zero row."""
        if vector is None:
            self._values[row] = 0
            self._norms[row] = self._inverse_norms[row] = self._squares[row] = 0
            return
        self._values[row] = vector
        exact = vector.astype(np.float64)
        square = float(exact @ exact)
        norm = square**0.5
        self._norms[row] = norm
        if norm > self.largest_norm:
            self.largest_norm = norm
        if SMALLEST_TAME_NORM <= norm <= LARGEST_TAME_NORM:
            self._inverse_norms[row] = 1 / norm
            self._squares[row] = square
        else:
            self._inverse_norms[row] = self._squares[row] = 0
            self.tame = self.tame and norm == 0

    def keep(self, rows: Rows) -> None:
        """Keep only the given rows, which must be in ascending order."""
        self._values = self._values[rows]
        self._norms = self._norms[rows]
        self._inverse_norms = self._inverse_norms[rows]
        self._squares = self._squares[rows]
        self.count = len(rows)
        self.largest_norm = float(self._norms.max(initial=0))
        smallest = float(self._norms.min(initial=1, where=self._norms > 0))
        self.tame = self.largest_norm <= LARGEST_TAME_NORM and smallest >= SMALLEST_TAME_NORM

    def copy(self) -> Matrix:
        twin = Matrix.__new__(Matrix)
        twin.dimension = self.dimension
        twin.count = self.count
        twin.largest_norm = self.largest_norm
        twin.tame = self.tame
        twin._values = self.values.copy()
        twin._norms = self.norms.copy()
        twin._inverse_norms = self.inverse_norms.copy()
        twin._squares = self.squares.copy()
        return twin

    def _grow(self) -> None:
        capacity = max(FIRST_CAPACITY, 2 * len(self._values))
        for name in ("_values", "_norms", "_inverse_norms", "_squares"):
            old = getattr(self, name)
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: self.count] = old[: self.count]
            setattr(self, name, new)
