"""The values the index works with: kinds, records, queries, hits."""

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
"""The filter that lets every record pass."""


class Kind(StrEnum):
    """Which vectors an index holds."""

    DENSE = "DENSE"
    SPARSE = "SPARSE"
    HYBRID = "HYBRID"

    @property
    def has_dense(self) -> bool:
        """Whether records carry a dense vector."""
        return self is not Kind.SPARSE

    @property
    def has_sparse(self) -> bool:
        """Whether records carry a sparse vector."""
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
    """How the dense and the sparse ranking of a hybrid query become one."""

    RRF = "RRF"
    DBSF = "DBSF"


class QueryMode(StrEnum):
    """Which components of a hybrid index a text query asks."""

    HYBRID = "HYBRID"
    DENSE = "DENSE"
    SPARSE = "SPARSE"


class UpdateMode(StrEnum):
    """What an update does with metadata that is there already."""

    OVERWRITE = "OVERWRITE"
    PATCH = "PATCH"


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """Values at some of the signed 32-bit dimensions; order and duplicates as they were given.

    ``indices`` and ``values`` have the same length.
    """

    indices: Ints
    values: Floats


class VectorRecord(NamedTuple):
    """Everything stored under one id. Its parts are never changed in place, only replaced."""

    id: str
    vector: Floats | None = None
    sparse: SparseVector | None = None
    metadata: Metadata | None = None
    data: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What an update sets; a part that is None stays as it is."""

    id: str
    vector: Floats | None = None
    sparse: SparseVector | None = None
    metadata: Metadata | None = None
    data: str | None = None
    mode: UpdateMode = UpdateMode.OVERWRITE


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """One question: the vectors to compare with, how many answers, and under which condition.

    ``with_vectors`` of False leaves the vectors out of the hits' records, which saves copying them.
    """

    vector: Floats | None = None
    sparse: SparseVector | None = None
    top_k: int = 10
    filter: str = EVERYTHING
    weighting: Weighting | None = None
    fusion: Fusion = Fusion.RRF
    with_vectors: bool = True


class Hit(NamedTuple):
    """One answer: the record and its score, a float32."""

    score: np.float32
    record: VectorRecord


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a scan; ``next_cursor`` is empty when nothing remains."""

    next_cursor: str
    records: list[VectorRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """How many records of a namespace are ready, and how many changes are still being indexed."""

    vector_count: int
    pending_vector_count: int


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """What ``/info`` tells, in Python names; ``index_size`` is in bytes."""

    kind: Kind
    similarity: Similarity
    dimension: int
    index_size: int
    dense_model: str
    sparse_model: str
    namespaces: dict[str, NamespaceInfo]
