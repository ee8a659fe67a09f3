"""The JSON forms of records, hits and the index in responses.

Parts of a record that were not requested or do not exist are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Hit, Include, IndexInfo, VectorRecord


def hits_json(hits: Sequence[Hit], include: Include) -> list[dict[str, Any]]:
    return [record_json(hit.record, include, score=hit.score) for hit in hits]


def record_json(
    record: VectorRecord, include: Include, score: object | None = None
) -> dict[str, Any]:
    """Return the JSON form of a record, without the parts that it lacks."""
    answer: dict[str, Any] = {"id": record.id}
    if score is not None:
        answer["score"] = score
    if include.vectors:
        if record.vector is not None:
            answer["vector"] = record.vector
        if record.sparse is not None:
            answer["sparseVector"] = {
                "indices": record.sparse.indices,
                "values": record.sparse.values,
            }
    if include.metadata and record.metadata is not None:
        answer["metadata"] = record.metadata
    if include.data and record.data is not None:
        answer["data"] = record.data
    return answer


def info_json(info: IndexInfo) -> dict[str, Any]:
    """Return the body of ``/info``; a sparse index has dimension 0 and no similarity function."""
    kind = info.kind
    dense = {
        "dimension": info.dimension,
        "similarityFunction": info.similarity if kind.has_dense else "",
    }
    answer: dict[str, Any] = {
        "vectorCount": sum(space.vector_count for space in info.namespaces.values()),
        "pendingVectorCount": sum(space.pending_vector_count for space in info.namespaces.values()),
        "indexSize": info.index_size,
        **dense,
        "indexType": kind,
        "namespaces": {
            name: {
                "vectorCount": space.vector_count,
                "pendingVectorCount": space.pending_vector_count,
            }
            for name, space in info.namespaces.items()
        },
    }
    if kind.has_dense:
        answer["denseIndex"] = {**dense, "embeddingModel": info.dense_model}
    if kind.has_sparse:
        answer["sparseIndex"] = {"embeddingModel": info.sparse_model}
    return answer
