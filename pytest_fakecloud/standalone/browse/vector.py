"""Namespaces and vectors of an index. Listing them does not make pending changes visible."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ..views import last_query, projected
from .pages import Listing, NotFound, View, Wanted, page_of

PREVIEW = 300
"""Maximum number of characters of metadata and data in a row."""
_BATCH = 1000
_NUMBERS = 16
"""Maximum number of components of a vector in a row."""


class _Vector(NamedTuple):
    id: str
    metadata: Any
    data: str | None


def namespaces(handle: Any, wanted: Wanted) -> View:
    return page_of(
        handle.namespaces(),
        wanted,
        place=lambda name: (name,),
        show=lambda name: {"name": name, "count": handle._engine.count(name)},
        text=str,
    )


def vectors(handle: Any, wanted: Wanted) -> View:
    """Return a page of a namespace's vectors, sorted by id, each projected onto a plane.

    ``filter`` is a metadata filter in the syntax of queries. The page also contains the projection
    of the namespace's last query vector and the ids that the query returned.
    """
    namespace = wanted.filters.get("namespace", "")
    wanted_by_filter = wanted.filters.get("filter", "")
    every = list(_each(handle, namespace))
    found = [
        one
        for one in every
        if not wanted_by_filter or handle.matches(wanted_by_filter, one.metadata)
    ]
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


def _each(handle: Any, namespace: str) -> Iterator[_Vector]:
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
    return {
        "id": one.id,
        "metadata": _short(_json(one.metadata)),
        "data": _short(one.data or ""),
    }


def vector(handle: Any, id: str, wanted: Wanted) -> View:
    namespace, name = wanted.filters.get("namespace", ""), unquote(id)
    (record,) = handle._engine.fetch(namespace, [name])
    if record is None:
        raise NotFound(f"namespace {namespace!r:.100} has no vector {name!r:.200}")
    plain = handle._plain(record)
    return {"id": name, "namespace": namespace, "url": quote(name, safe=""), **plain}


def counts(handle: Any) -> dict[str, Any]:
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
