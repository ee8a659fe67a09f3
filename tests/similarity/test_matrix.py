"""Test the matrix of dense vectors: its growth, its norms, and copies."""

from __future__ import annotations

import numpy as np

from pytest_fakecloud.similarity.dense import Matrix
from tests.vector.building import floats


def filled(rows: int) -> Matrix:
    matrix = Matrix(2)
    for row in range(rows):
        matrix.append(floats(row, 1))
    return matrix


def test_rows_survive_growth() -> None:
    matrix = filled(1000)
    assert matrix.values.tolist() == [[row, 1] for row in range(1000)]
    assert matrix.squares.tolist() == [row * row + 1 for row in range(1000)]
    assert np.allclose(matrix.inverse_norms, 1 / matrix.norms)


def test_keep_moves_rows_up_and_forgets_the_norms_of_the_others() -> None:
    matrix = filled(10)
    matrix.append(floats(1e30, 0))
    assert not matrix.tame
    matrix.keep(np.array([2, 5]))
    assert matrix.values.tolist() == [[2, 1], [5, 1]]
    assert matrix.tame
    assert matrix.largest_norm == float(np.sqrt(26))
    matrix.append(floats(7, 7))
    assert matrix.values.tolist() == [[2, 1], [5, 1], [7, 7]]


def test_an_empty_matrix_after_keep_can_grow_again() -> None:
    matrix = filled(3)
    matrix.keep(np.empty(0, np.intp))
    assert matrix.tame
    matrix.append(floats(1, 2))
    assert matrix.values.tolist() == [[1, 2]]


def test_a_row_without_a_vector_is_zero_and_harmless() -> None:
    matrix = Matrix(2)
    matrix.append(None)
    assert matrix.values.tolist() == [[0, 0]]
    assert matrix.inverse_norms.tolist() == [0]
    assert matrix.tame
    matrix.replace(0, floats(3, 4))
    matrix.replace(0, None)
    assert matrix.squares.tolist() == [0]


def test_tiny_rows_make_the_matrix_untame() -> None:
    matrix = filled(2)
    matrix.replace(1, floats(1e-30, 0))
    assert not matrix.tame


def test_a_copy_is_independent() -> None:
    matrix = filled(20)
    clone = matrix.copy()
    matrix.replace(0, floats(9, 9))
    for row in range(50):
        clone.append(floats(row, row))
    assert matrix.count == 20
    assert clone.values[0].tolist() == [0, 1]
    assert clone.values[69].tolist() == [49, 49]


def test_what_is_kept_decides_whether_products_can_be_trusted() -> None:
    matrix = Matrix(2)
    for vector in floats(1, 0), floats(1e30, 0), floats(1e-30, 0):
        matrix.append(vector)
    assert not matrix.tame
    for rows, tame in (([0, 1, 2], False), ([0, 1], False), ([0, 2], False), ([0], True)):
        clone = matrix.copy()
        clone.keep(np.array(rows, np.intp))
        assert (rows, clone.tame) == (rows, tame)
