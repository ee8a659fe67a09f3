"""Test which values fit which index."""

from __future__ import annotations

import pytest

from pytest_fakecloud.vector.model import IndexKind, VectorRecord

from ..building import engine, floats, rejects, sparse

DENSE, SPARSE = floats(1, 2), sparse({1: 1.0})


@pytest.mark.parametrize(
    ("kind", "record", "violation"),
    [
        (IndexKind.DENSE, VectorRecord("a", DENSE), None),
        (IndexKind.DENSE, VectorRecord("a", DENSE, SPARSE),
         "This index requires dense vectors: the vector with id 'a' has a sparseVector"),
        (IndexKind.DENSE, VectorRecord("a", None, SPARSE),
         "requires dense vectors: the vector with id 'a' has a sparseVector"),
        (IndexKind.DENSE, VectorRecord("a"),
         "This index requires dense vectors: the vector with id 'a' has no field vector"),
        (IndexKind.SPARSE, VectorRecord("a", None, SPARSE), None),
        (IndexKind.SPARSE, VectorRecord("a", DENSE, SPARSE),
         "This index requires sparse vectors: the vector with id 'a' has a vector"),
        (IndexKind.SPARSE, VectorRecord("a"), "This index requires sparse vectors"),
        (IndexKind.HYBRID, VectorRecord("a", DENSE, SPARSE), None),
        (IndexKind.HYBRID, VectorRecord("a", DENSE),
         "This index requires sparse vectors: the vector with id 'a' has no field sparseVector"),
        (IndexKind.HYBRID, VectorRecord("a", None, SPARSE),
         "This index requires dense vectors: the vector with id 'a' has no field vector"),
    ],
)  # fmt: skip
def test_records_of_each_kind(kind: IndexKind, record: VectorRecord, violation: str | None) -> None:
    index = engine(kind=kind, dimension=None)
    if violation is None:
        index.upsert("", [record])
        assert index.dimension == (2 if kind.has_dense else None)
    else:
        with rejects(422, violation):
            index.upsert("", [record])
