"""Namespaces and vectors of an index. Listing them does not make pending changes visible."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote

from .pages import MOST_IN_VIEW, Listing, NotFound, View, Wanted, page_of, page_of_names, plain

if TYPE_CHECKING:
    from ...core.calls import Call
    from ...vector.handle import VectorIndex
    from ...vector.routes import VectorApp

PREVIEW = 300
"""Maximum number of characters of metadata and data in a row."""
_BATCH = 1000
"""Number of vectors that are read at a time."""
_NUMBERS = 16
"""Maximum number of components of a vector in a row."""


class _Vector(NamedTuple):
    id: str
    metadata: Any
    data: str | None


def namespaces(handle: VectorIndex, wanted: Wanted) -> View:
    def show(name: str) -> View:
        return {"name": name, "count": handle._engine.count(name)}

    return page_of_names(handle.namespaces(), wanted, show)


def vectors(handle: VectorIndex, wanted: Wanted) -> View:
    """Return a page of a namespace's vectors, sorted by id, each projected onto a plane.

    ``filter`` is a metadata filter in the syntax of queries. The page also contains the projection
    of the namespace's last query vector and the ids that the query returned.
    """
    namespace = wanted.filters.get("namespace", "")
    found = every = list(_each(handle, namespace))
    if text := wanted.filters.get("filter"):
        found = [one for one in every if handle.matches(text, one.metadata)]
    page = page_of(
        found,
        wanted,
        place=lambda one: (one.id,),
        show=_row,
        text=lambda one: f"{one.id} {_json(one.metadata)} {one.data or ''}",
    )
    items = page["items"]
    records = handle._engine.fetch(namespace, [item["id"] for item in items]) if items else []
    numbers = [_numbers(record) for record in records]
    asked, hits = last_query(handle, namespace)
    *points, query = projected(numbers, asked)
    for item, vector, point in zip(items, numbers, points, strict=True):
        item |= {
            "vector": [round(one, 6) for one in vector[:_NUMBERS]],
            "dimension": len(vector),
            "point": point,
        }
    return page | {
        "total": len(every),
        "query": None if query is None else {"point": query, "found": hits},
    }


def _each(handle: VectorIndex, namespace: str) -> Iterator[_Vector]:
    # Read in batches and leave out the components, to limit memory use.
    cursor = 0
    while True:
        page = handle._engine.range(namespace, cursor, _BATCH)
        for record in page.records:
            yield _Vector(record.id, record.metadata, record.data)
        if not page.next_cursor:
            return
        cursor = int(page.next_cursor)


def _numbers(record: Any) -> list[float]:
    return [] if record is None or record.vector is None else [float(one) for one in record.vector]


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _short(text: str) -> str:
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "…"


def _row(one: _Vector) -> View:
    metadata, data = _short(_json(one.metadata)), _short(one.data or "")
    return {"id": one.id, "metadata": metadata, "data": data}


def vector(handle: VectorIndex, id: str, wanted: Wanted) -> View:
    namespace, name = wanted.filters.get("namespace", ""), unquote(id)
    (record,) = handle._engine.fetch(namespace, [name])
    if record is None:
        raise NotFound(f"namespace {namespace!r:.100} has no vector {name!r:.200}")
    place = {"id": name, "namespace": namespace, "url": quote(name, safe="")}
    return {**place, **handle._plain(record)}


def vector_view(handle: VectorIndex) -> dict[str, Any]:
    """Return the vectors by namespace, each projected onto a plane like the last query."""
    namespaces = []
    for namespace in handle.namespaces():
        count = handle._engine.count(namespace)
        items = [dict(item) for item in handle.vectors(namespace, limit=MOST_IN_VIEW)]
        vectors = [item.pop("vector", None) or [] for item in items]
        asked, found = last_query(handle, namespace)
        *points, query = projected(vectors, asked)
        shown = [
            {**plain(item), "point": point, "dimension": len(vector)}
            for item, vector, point in zip(items, vectors, points, strict=True)
        ]
        entry = {"name": namespace, "count": count, "vectors": shown}
        namespaces.append(entry | {"query": query and {"point": query, "found": found}})
    # Use `describe()`, because `info()` would make pending changes visible.
    info = dataclasses.asdict(handle._engine.describe())
    del info["namespaces"]
    return {"info": plain(info), "namespaces": namespaces}


def last_query(handle: VectorIndex, namespace: str) -> tuple[list[float], list[str]]:
    """Return the vector of the last successful query and the ids it returned, or empty lists."""
    for call in reversed(handle.journal.calls()):
        is_query = call.route in ("query", "query-data") and call.status == 200
        if is_query and call.facts.get("namespace") == namespace:
            # Skip a batch of queries, and a query that was recorded without its whole body.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                hits = json.loads(call.answer)["result"]
                return _query_vector(handle, call), [str(hit["id"]) for hit in hits]
    return [], []


def _query_vector(handle: VectorIndex, call: Call) -> list[float]:
    """Return the vector of a query, or that of its text; raise ``TypeError`` for a batch."""
    body, app = json.loads(call.body), cast("VectorApp", handle._app)
    vector: Any
    if call.route == "query-data" and app.embedder is not None:
        size = app.engine.dimension
        vector = app.embedder.embed(body["data"], dimension=size, query=True)[0]
    else:
        vector = body["vector"]
    return [float(one) for one in vector]


def projected(
    vectors: Iterable[list[float]], query: Sequence[float] = ()
) -> list[list[float] | None]:
    """Project vectors and a query onto the first two principal components; the last point is the
    query.

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
    # Decompose the Gram matrix, whose size does not depend on the dimension. A full decomposition
    # of the vectors would take a second for 500 rows.
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


def counts(handle: VectorIndex) -> dict[str, Any]:
    """Return the numbers of vectors and namespaces, and information about the index."""
    names = handle.namespaces()
    info = dataclasses.asdict(handle._engine.describe())
    return {
        "vectors": sum(handle._engine.count(name) for name in names),
        "namespaces": len(names),
        "info": {
            "dimension": info["dimension"],
            "similarity": str(info["similarity"].value),
            "kind": str(handle._engine.kind.value),
            "pending": len(handle.pending()),
        },
    }


LISTS = {
    "vectors": Listing(vectors, vector, ("namespace", "filter")),
    "namespaces": Listing(namespaces),
}
