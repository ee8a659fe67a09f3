"""Projection of vectors onto a plane, for the console's picture of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def projected(
    vectors: Iterable[list[float]], query: Sequence[float] = ()
) -> list[list[float] | None]:
    """Project vectors and then a query onto the first two principal components.

    The point is None for a vector without a dense part and for a query of another dimension.
    """
    import numpy as np

    rows = list(vectors)
    dense = [index for index, row in enumerate(rows) if row]
    points: list[list[float] | None] = [None] * (len(rows) + 1)
    if not dense:
        return points
    matrix = np.asarray([rows[index] for index in dense], dtype=np.float64)
    centre = matrix.mean(axis=0)
    centred = matrix - centre
    # Decompose the Gram matrix: the vectors themselves would take a second for 500 rows.
    sizes, rotated = np.linalg.eigh(centred @ centred.T)
    axes = np.zeros((matrix.shape[1], 2))
    for axis in range(min(2, len(sizes))):
        size = sizes[-1 - axis]
        # Skip a direction without extent, whose components are only rounding errors.
        if size > max(1e-300, 1e-12 * sizes[-1]):
            axes[:, axis] = centred.T @ rotated[:, -1 - axis] / np.sqrt(size)
    flat = centred @ axes
    # The sign of a direction is arbitrary, so fix it to keep the picture from flipping on reload.
    signs = np.where(flat[np.abs(flat).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    for index, point in zip(dense, (flat * signs).tolist(), strict=True):
        points[index] = [round(float(value), 6) for value in point]
    if len(query) == matrix.shape[1]:
        asked = (np.asarray(query, dtype=np.float64) - centre) @ axes * signs
        points[-1] = [round(float(value), 6) for value in asked]
    return points
