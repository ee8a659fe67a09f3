"""The value types of the index: kinds, records, queries, hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Rows = NDArray[np.intp]
Metadata = Mapping[str, Any]

MOST_DIMENSIONS = 1 << 20
DEFAULT_NAMESPACE = ""
EVERYTHING = ""
"""The filter that matches every record."""


class Kind(StrEnum):
    """The kind of vectors that an index stores."""

    DENSE = "DENSE"
    SPARSE = "SPARSE"
    HYBRID = "HYBRID"

    @property
    def has_dense(self) -> bool:
        """Whether records have a dense vector."""
        return self is not Kind.SPARSE

    @property
    def has_sparse(self) -> bool:
        """Whether records have a sparse vector."""
        return self is not Kind.DENSE


class Similarity(StrEnum):
    """How two dense vectors are compared."""

    COSINE = "COSINE"
    EUCLIDEAN = "EUCLIDEAN"
    DOT_PRODUCT = "DOT_PRODUCT"


class Weighting(StrEnum):
    """How the values of a sparse query are weighted."""

    IDF = "IDF"


class Fusion(StrEnum):
    """How the dense and the sparse ranking of a hybrid query are combined."""

    RRF = "RRF"
    DBSF = "DBSF"


class QueryMode(StrEnum):
    """Which components of a hybrid index a text query searches."""

    HYBRID = "HYBRID"
    DENSE = "DENSE"
    SPARSE = "SPARSE"


class UpdateMode(StrEnum):
    """What an update does with existing metadata."""

    OVERWRITE = "OVERWRITE"
    PATCH = "PATCH"


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """Values at some of the signed 32-bit dimensions, in the given order; a dimension can be
    repeated.

    ``indices`` and ``values`` have equal length.
    """

    indices: Ints
    values: Floats


class VectorRecord(NamedTuple):
    """A stored record. Its parts are never changed in place, only replaced."""

    id: str
    vector: Floats | None = None
    sparse: SparseVector | None = None
    metadata: Metadata | None = None
    data: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """An update of a record; a part that is None stays unchanged."""

    id: str
    vector: Floats | None = None
    sparse: SparseVector | None = None
    metadata: Metadata | None = None
    data: str | None = None
    mode: UpdateMode = UpdateMode.OVERWRITE


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """A query: its vectors, the number of hits, and its filter.

    If ``with_vectors`` is False, the records of the hits have no vectors, which saves copying them.
    """

    vector: Floats | None = None
    sparse: SparseVector | None = None
    top_k: int = 10
    filter: str = EVERYTHING
    weighting: Weighting | None = None
    fusion: Fusion = Fusion.RRF
    with_vectors: bool = True


class Hit(NamedTuple):
    """A record that a query found, with its float32 score."""

    score: np.float32
    record: VectorRecord


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a scan; ``next_cursor`` is empty on the last page."""

    next_cursor: str
    records: list[VectorRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """The number of ready records and the number of pending changes of a namespace."""

    vector_count: int
    pending_vector_count: int


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """The content of an ``/info`` response, with Python names; ``index_size`` is in bytes."""

    kind: Kind
    similarity: Similarity
    dimension: int
    index_size: int
    dense_model: str
    sparse_model: str
    namespaces: dict[str, NamespaceInfo]
