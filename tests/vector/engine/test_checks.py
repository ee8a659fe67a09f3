"""Test which values fit which index."""

from __future__ import annotations

import pytest

from pytest_fakecloud.vector.model import Kind, VectorRecord

from ..building import engine, floats, rejects, sparse

DENSE, SPARSE = floats(1, 2), sparse({1: 1.0})


@pytest.mark.parametrize(
    ("kind", "record", "problem"),
    [
        (Kind.DENSE, VectorRecord("a", DENSE), None),
        (Kind.DENSE, VectorRecord("a", DENSE, SPARSE),
         "The vector with id 'a' has a sparseVector, but this is a dense index"),
        (Kind.DENSE, VectorRecord("a", None, SPARSE), "has a sparseVector, but this is a dense"),
        (Kind.DENSE, VectorRecord("a"),
         "A dense index needs the field vector, which is missing in the vector with id 'a'"),
        (Kind.SPARSE, VectorRecord("a", None, SPARSE), None),
        (Kind.SPARSE, VectorRecord("a", DENSE, SPARSE), "has a vector, but this is a sparse index"),
        (Kind.SPARSE, VectorRecord("a"), "A sparse index needs the field sparseVector"),
        (Kind.HYBRID, VectorRecord("a", DENSE, SPARSE), None),
        (Kind.HYBRID, VectorRecord("a", DENSE), "A hybrid index needs the field sparseVector"),
        (Kind.HYBRID, VectorRecord("a", None, SPARSE), "A hybrid index needs the field vector"),
    ],
)  # fmt: skip
def test_records_of_each_kind(kind: Kind, record: VectorRecord, problem: str | None) -> None:
    index = engine(kind=kind, dimension=None)
    if problem is None:
        index.upsert("", [record])
        assert index.dimension == (2 if kind.has_dense else None)
    else:
        with rejects(422, problem):
            index.upsert("", [record])
