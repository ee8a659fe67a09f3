"""Helpers that create the values used by the vector tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.similarity.dense import Floats
from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.model import SparseVector, VectorHit, VectorQuery, VectorRecord
from pytest_fakecloud.vector.settings import VectorConfig

NOW = "2026-01-01T00:00:00Z"


def floats(*values: float) -> Floats:
    """Return a float32 vector."""
    return np.array(values, np.float32)


def sparse(values: Mapping[int, float]) -> SparseVector:
    """Return a sparse vector from its values by dimension."""
    return SparseVector(
        np.array(list(values), np.int32), np.array(list(values.values()), np.float32)
    )


def engine(
    clock: Timekeeper | None = None, seed: int = 0, dimension: int | None = 2, **settings: Any
) -> VectorEngine:
    """Return an engine on a frozen clock, of dimension 2 by default."""
    config = VectorConfig(**settings)
    return VectorEngine(clock or Timekeeper(NOW), Ids(seed), config, dimension=dimension)


def put(index: VectorEngine, namespace: str = "", /, **vectors: tuple[float, ...]) -> None:
    """Upsert dense vectors by id."""
    index.upsert(namespace, [VectorRecord(id, floats(*vector)) for id, vector in vectors.items()])


def ask(
    index: VectorEngine, *vector: float, namespace: str = "", **settings: Any
) -> list[VectorHit]:
    """Run one dense query."""
    return index.query(namespace, [VectorQuery(vector=floats(*vector), **settings)])[0]


def ids(hits: list[VectorHit]) -> list[str]:
    """Return the ids of hits, in order."""
    return [hit.record.id for hit in hits]


def scored(hits: list[VectorHit]) -> list[tuple[str, str]]:
    """Return the ids and scores of hits; scores are shortest float32 decimals."""
    return [(hit.record.id, str(hit.score)) for hit in hits]


@contextmanager
def rejects(status: int, match: str | None = None) -> Iterator[None]:
    """Expect a ``VectorError`` with this status, whose message matches a pattern."""
    with pytest.raises(VectorError, match=match) as caught:
        yield
    assert caught.value.status == status
