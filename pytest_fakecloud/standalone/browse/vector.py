"""Namespaces and vectors of an index. Listing them does not make pending changes visible."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

from .pages import MOST_IN_VIEW, Listing, NotFound, View, Wanted, page_of, page_of_names, plain
from .projection import projected

if TYPE_CHECKING:
    from ...core.calls import Call
    from ...vector.handle import VectorIndex
    from ...vector.rest.routes import VectorApp

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
        sort_key=lambda one: (one.id,),
        show=_row,
        text=lambda one: f"{one.id} {_json(one.metadata)} {one.data or ''}",
    )
    rows = page["items"]
    records = handle._engine.fetch(namespace, [row["id"] for row in rows]) if rows else []
    numbers = [_numbers(record) for record in records]
    for row, vector in zip(rows, numbers, strict=True):
        row["vector"] = [round(one, 6) for one in vector[:_NUMBERS]]
    items, query = _placed(handle, namespace, rows, numbers)
    return page | {"items": items, "total": len(every), "query": query}


def _placed(
    handle: VectorIndex, namespace: str, rows: list[View], vectors: list[list[float]]
) -> tuple[list[View], View | None]:
    """Return rows with the points of their vectors, and the namespace's last query with its point."""
    asked, found = last_query(handle, namespace)
    *points, query = projected(vectors, asked)
    placed = [
        {**row, "dimension": len(vector), "point": point}
        for row, vector, point in zip(rows, vectors, points, strict=True)
    ]
    return placed, None if query is None else {"point": query, "found": found}


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
    namespace = wanted.filters.get("namespace", "")
    (record,) = handle._engine.fetch(namespace, [id])
    if record is None:
        raise NotFound(f"namespace {namespace!r:.100} has no vector {id!r:.200}")
    url = quote(id, safe="")
    return {"id": id, "namespace": namespace, "url": url, **handle._plain(record)}


def vector_view(handle: VectorIndex) -> dict[str, Any]:
    """Return the vectors by namespace, each projected onto a plane like the last query."""
    namespaces = []
    for namespace in handle.namespaces():
        count = handle._engine.count(namespace)
        items = [dict(item) for item in handle.vectors(namespace, limit=MOST_IN_VIEW)]
        vectors = [item.pop("vector", None) or [] for item in items]
        shown, query = _placed(handle, namespace, [plain(item) for item in items], vectors)
        namespaces.append({"name": namespace, "count": count, "vectors": shown, "query": query})
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
        vector = app.embedder.embed(body["data"], dimension=app.engine.dimension, query=True)[0]
    else:
        vector = body["vector"]
    return [float(one) for one in vector]


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
