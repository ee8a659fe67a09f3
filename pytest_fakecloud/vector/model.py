"""Data types of a vector index: its kinds, records, queries and hits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ..similarity.dense import Floats

Ints = np.ndarray[Any, np.dtype[np.int32]]
Metadata = Mapping[str, Any]
Predicate = Callable[[Any], bool]
"""A function that takes a record's metadata, or None if the record has none."""

MOST_DIMENSIONS = 1 << 20
"""Maximum length of a dense vector; a larger number would use up memory."""
DEFAULT_NAMESPACE = ""
EVERYTHING = ""
"""The filter that matches every record."""


class IndexKind(StrEnum):
    """The kind of vectors that an index stores, or that a text query searches."""

    DENSE = "DENSE"
    SPARSE = "SPARSE"
    HYBRID = "HYBRID"

    @property
    def has_dense(self) -> bool:
        """Whether records have a dense vector."""
        return self is not IndexKind.SPARSE

    @property
    def has_sparse(self) -> bool:
        """Whether records have a sparse vector."""
        return self is not IndexKind.DENSE


class Weighting(StrEnum):
    """The weighting of the values of a sparse query; IDF is the inverse document frequency."""

    IDF = "IDF"


class Fusion(StrEnum):
    """The algorithm that combines the dense and the sparse ranking of a hybrid query."""

    RRF = "RRF"
    DBSF = "DBSF"


class UpdateMode(StrEnum):
    """The effect of an update on existing metadata: replace it, or apply a merge patch."""

    OVERWRITE = "OVERWRITE"
    PATCH = "PATCH"


class SparseVector:
    """A sparse vector: values at some of the signed 32-bit dimensions.

    ``indices`` and ``values`` have equal length and keep the order of the request. A dimension can
    occur more than once.
    """

    __slots__ = ("indices", "values")

    def __init__(self, indices: Ints, values: Floats) -> None:
        self.indices = indices
        self.values = values


class VectorRecord(NamedTuple):
    """A stored record, or an update of one, in which fields that are None stay unchanged.

    Its fields are replaced, never modified in place.
    """

    id: str
    vector: Floats | None = None
    sparse: SparseVector | None = None
    metadata: Metadata | None = None
    data: str | None = None


class Include(NamedTuple):
    """The optional parts of a record that a response includes."""

    vectors: bool = False
    metadata: bool = False
    data: bool = False


VECTORS = Include(vectors=True)


class VectorQuery(NamedTuple):
    """A query for the ``top_k`` nearest records that match a filter.

    It has a dense vector, a sparse vector, or both. If ``include.vectors`` is False, the hits have
    no dense vectors, which saves copying them.
    """

    vector: Floats | None = None
    sparse: SparseVector | None = None
    top_k: int = 10
    filter: str = EVERYTHING
    weighting: Weighting | None = None
    fusion: Fusion = Fusion.RRF
    include: Include = VECTORS


class VectorHit(NamedTuple):
    """A record that a query found, with its float32 score."""

    score: np.float32
    record: VectorRecord


class Page(NamedTuple):
    """One page of the records of a namespace; ``next_cursor`` is empty on the last page."""

    next_cursor: str
    records: list[VectorRecord]


class NamespaceInfo(NamedTuple):
    """The number of records of a namespace that queries see, and the number of its pending changes."""

    vector_count: int
    pending_vector_count: int
