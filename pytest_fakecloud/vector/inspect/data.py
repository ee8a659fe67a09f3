"""Namespaces and vectors of an index. Listing them does not make pending changes visible."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast
from urllib.parse import quote
from zlib import crc32

from ...cloud.fake import core_of
from ...core.calls import Call
from ...core.errors import ContractError
from ...inspect.data import (
    MOST_IN_VIEW,
    Item,
    Listing,
    NotFound,
    PageQuery,
    State,
    View,
    contains,
    natural,
    page_of,
    page_of_names,
    plain,
)
from ..engine.engine import VectorEngine
from ..fake import VectorIndex
from ..model import VectorRecord

PREVIEW = 300
"""Maximum number of characters of metadata and data in a row."""
_BATCH = 1000
"""Number of vectors that are read at a time."""
_FIRST = 4
"""Number of components that are shown of a longer vector."""
_SAMPLE = 200
"""Maximum number of vectors that determine the plane of all."""
_MOST_FIELDS = 50
_MOST_GROUPS = 8
"""Maximum number of groups by which points are coloured, if these are not ranges."""
_RANGES = 5
"""Number of ranges of many different numbers."""
_NUMBERS = 16
"""Maximum number of components of a vector in a row."""


def state(fake: VectorIndex) -> State:
    """Return the vectors by namespace and id, also pending ones, and the resumable queries."""
    sections: State = {}
    for name in fake.namespaces():
        sections[section_of(name)] = {
            str(item["id"]): {**_folded(item), "state": "ready"} for item in fake.vectors(name)
        }
    for item in fake.pending():
        fields = {**_folded(item), "state": "pending"}
        section = section_of(fields.pop("namespace"))
        sections.setdefault(section, {})[str(fields["id"])] = fields
    sections["resumable queries"] = {
        cursor.uuid: {"namespace": cursor.namespace, "returned": sorted(cursor.handed_out)}
        for cursor in core_of(fake).engine.cursors()
    }
    return sections


def item_reader(fake: VectorIndex, section: str, item: str) -> Callable[[], Item | None] | None:
    """Return a function that reads one vector; None for other items."""
    namespace = namespace_in(section)
    if namespace is None:
        return None

    def read() -> Item | None:
        for pending in fake.pending():
            if (pending["namespace"], pending["id"]) == (namespace, item):
                fields = {**_folded(pending), "state": "pending"}
                del fields["namespace"]
                return fields
        [record] = core_of(fake).engine.fetch(namespace, [item])
        return None if record is None else {**_folded(fake._plain(record)), "state": "ready"}

    return read


def _folded(item: Mapping[str, Any]) -> Item:
    """Return a record as plain JSON, with its vectors folded to their length and first numbers."""
    folded = dict(item)
    if len(vector := folded.get("vector") or ()) > _NUMBERS:
        folded["vector"] = _beginning(vector)
    if len((sparse := folded.get("sparseVector") or {}).get("indices", ())) > _NUMBERS:
        folded["sparseVector"] = {name: _beginning(numbers) for name, numbers in sparse.items()}
    return cast("Item", plain(folded))


def _beginning(numbers: Sequence[float]) -> str:
    """Return the first numbers of a vector, and a hash by which a change of the others is seen."""
    first = ", ".join(f"{number:g}" for number in numbers[:_FIRST])
    return f"[{first}, …] ({len(numbers)} numbers, hash {crc32(repr(numbers).encode()):08x})"


def section_of(namespace: str) -> str:
    """Return the name of a namespace's section in a state."""
    return f"namespace {namespace}" if namespace else "default namespace"


def namespace_in(section: str) -> str | None:
    """Return the namespace whose vectors a section of the state has; None for another section."""
    kind, _, namespace = section.partition(" ")
    return {"namespace": namespace, "default": ""}.get(kind)


def can_put_back(section: str) -> bool:
    """Return whether ``put_back()`` takes items of a section of the state."""
    return namespace_in(section) is not None


def put_back(
    fake: VectorIndex,
    other: VectorIndex,
    section: str,
    items: Sequence[str],
    record: Callable[[], object],
) -> None:
    """Give vectors the values that they have in another index; delete those it lacks.

    ``record`` is called just before the change, when nothing can fail.
    """
    namespace = namespace_in(section)
    if namespace is None:
        raise ContractError(f"only vectors can be put back alone, not {section}")
    saved = core_of(other).engine.fetch(namespace, items)
    engine = core_of(fake).engine
    record()
    engine.delete(namespace, items)
    engine.load({namespace: [record for record in saved if record is not None]})


def namespaces(fake: VectorIndex, page_query: PageQuery) -> View:
    def show(name: str) -> View:
        return {"name": name, "count": core_of(fake).engine.count(name)}

    return page_of_names(fake.namespaces(), page_query, show)


def vectors(fake: VectorIndex, page_query: PageQuery) -> View:
    """Return a page of a namespace's vectors, sorted by id, each projected onto a plane.

    ``filter`` is a metadata filter in the syntax of queries. The page also contains the projection
    of the namespace's last query vector and the ids that the query returned. With ``points=all`` it
    has the places of all vectors, each with whether it matches and with the value of the metadata
    field ``colour``, and the names of the ``fields`` of the metadata.
    """
    engine, namespace = core_of(fake).engine, page_query.filters.get("namespace", "")
    matching = every = list(_scan(engine, namespace))
    if text := page_query.filters.get("filter"):
        matching = [record for record in every if fake.matches(text, record.metadata)]
    page = page_of(
        matching,
        page_query,
        sort_key=lambda record: (natural(record.id),),
        show=lambda record: {
            "id": record.id,
            "metadata": _short(_json(record.metadata)),
            "data": _short(record.data or ""),
        },
        text=_text_of,
    )
    shown = page["items"]
    dense = list(map(_components, engine.fetch(namespace, [row["id"] for row in shown])))
    places, query = _places(fake, namespace, dense)
    rows = [
        {**row, "vector": [round(component, 6) for component in components[:_NUMBERS]], **place}
        for row, components, place in zip(shown, dense, places, strict=True)
    ]
    page |= {"items": rows, "total": len(every), "query": query}
    if page_query.filters.get("points") == "all":
        found_ids = {
            record.id for record in matching if contains(_text_of(record), page_query.search)
        }
        page |= _points(fake, namespace, every, found_ids, page_query.filters.get("colour", ""))
    return page


def _text_of(record: VectorRecord) -> str:
    return f"{record.id} {_json(record.metadata)} {record.data or ''}"


def _points(
    fake: VectorIndex,
    namespace: str,
    records: Sequence[VectorRecord],
    matching: Collection[str],
    colour: str,
) -> View:
    """Return the id, the place and the value of a metadata field of each vector with a dense part.

    Vectors that do not match have their places too, so that a filter moves no other. The plane is
    that of at most 200 of the vectors, evenly spaced, because finding it for thousands takes seconds.
    """
    query_vector, hit_ids = _last_query(fake, namespace)
    step = -(-len(records) // _SAMPLE) or 1
    plane = _plane_of(_dense_of(fake, namespace, records[::step]))
    fields = Counter(name for record in records for name in _metadata_of(record))
    points: list[View] = []
    for start in range(0, len(records), _BATCH):
        batch = records[start : start + _BATCH]
        places = [] if plane is None else plane.places(_dense_of(fake, namespace, batch))
        points += [
            {
                "id": record.id,
                "point": place,
                "value": _scalar(_metadata_of(record).get(colour)),
                "matches": record.id in matching,
            }
            for record, place in zip(batch, places, strict=False)
            if place is not None
        ]
    query = None if plane is None else plane.places([query_vector])[0]
    groups = _Groups([point["value"] for point in points])
    return {
        "points": [{**point, "group": groups.group_of(point["value"])} for point in points],
        "groups": groups.names,
        "has_ranges": groups.has_ranges,
        "fields": [name for name, _ in fields.most_common(_MOST_FIELDS)],
        "query": None if query is None else {"point": query, "found": hit_ids},
    }


class _Groups:
    """The groups by which points are coloured: the most frequent values of a field, or ranges of many
    different numbers.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        counted_values = Counter(value for value in values if value is not None)
        are_numbers = all(isinstance(value, int | float) for value in counted_values)
        self.has_ranges = len(counted_values) > _MOST_GROUPS and are_numbers
        if self.has_ranges:
            self._least = min(counted_values)
            self._size = (max(counted_values) - self._least) / _RANGES
            ends = [f"{self._least + self._size * at:.4g}" for at in range(_RANGES + 1)]
            self.names = [" to ".join(pair) for pair in pairwise(ends)]
        else:
            self._frequent = [value for value, _ in counted_values.most_common(_MOST_GROUPS)]
            self.names = [
                value if isinstance(value, str) else _json(value) for value in self._frequent
            ]

    def group_of(self, value: Any) -> int | None:
        """Return the index of the group of a value, None for the others."""
        if value is None:
            return None
        if self.has_ranges:
            return min(_RANGES - 1, int((value - self._least) / self._size))
        return self._frequent.index(value) if value in self._frequent else None


def _dense_of(
    fake: VectorIndex, namespace: str, records: Sequence[VectorRecord]
) -> list[Sequence[float]]:
    """Return the components of records, which are empty without a dense part."""
    fetched: list[Any] = core_of(fake).engine.fetch(namespace, [record.id for record in records])
    return [[] if record is None or record.vector is None else record.vector for record in fetched]


def _metadata_of(record: VectorRecord) -> Mapping[str, Any]:
    return record.metadata if isinstance(record.metadata, dict) else {}


def _scalar(value: Any) -> str | float | bool | None:
    """Return a metadata value as it is, or a list or an object as JSON."""
    return value if value is None or isinstance(value, str | int | float) else _short(_json(value))


def vector(fake: VectorIndex, id: str, page_query: PageQuery) -> View:
    namespace = page_query.filters.get("namespace", "")
    (record,) = core_of(fake).engine.fetch(namespace, [id])
    if record is None:
        raise NotFound(f"namespace {namespace!r:.100} has no vector {id!r:.200}")
    url = quote(id, safe="")
    return {"id": id, "namespace": namespace, "url": url, **fake._plain(record)}


def counts(fake: VectorIndex) -> dict[str, Any]:
    """Return the numbers of vectors and namespaces, and information about the index."""
    engine, names = core_of(fake).engine, fake.namespaces()
    return {
        "vectors": sum(map(engine.count, names)),
        "namespaces": len(names),
        "info": {
            "dimension": engine.dimension or 0,
            "similarity": str(engine.identity.similarity.value),
            "kind": str(engine.kind.value),
            "pending": len(fake.pending()),
        },
    }


def content(fake: VectorIndex) -> dict[str, Any]:
    """Return the vectors by namespace, each projected onto a plane like the last query."""
    engine = core_of(fake).engine
    # Not `info()`, which would make pending changes visible.
    info = {
        "kind": engine.identity.kind,
        "similarity": engine.identity.similarity,
        "dimension": engine.dimension or 0,
        "index_size": sum(space.size() for space in engine.spaces.values()),
        "dense_model": engine.identity.dense_model,
        "sparse_model": engine.identity.sparse_model,
    }
    views = [_namespace_view(fake, name) for name in fake.namespaces()]
    return {"info": plain(info), "namespaces": views}


LISTS = {
    "vectors": Listing(vectors, vector, ("namespace", "filter", "points", "colour")),
    "namespaces": Listing(namespaces),
}


def _namespace_view(fake: VectorIndex, name: str) -> View:
    count = core_of(fake).engine.count(name)
    items = fake._records(name, MOST_IN_VIEW)
    dense = [item.get("vector") or [] for item in items]
    places, query = _places(fake, name, dense)
    rows = [
        {**plain({key: item[key] for key in item if key != "vector"}), **place}
        for item, place in zip(items, places, strict=True)
    ]
    return {"name": name, "count": count, "vectors": rows, "query": query}


def _scan(engine: VectorEngine, namespace: str) -> Iterator[VectorRecord]:
    # Read in batches and leave out the components, to limit memory use.
    cursor = 0
    while True:
        page = engine.range(namespace, cursor, _BATCH)
        for record in page.records:
            yield record._replace(vector=None, sparse=None)
        if not page.next_cursor:
            return
        cursor = int(page.next_cursor)


def _components(record: VectorRecord | None) -> list[float]:
    return (
        []
        if record is None or record.vector is None
        else [float(component) for component in record.vector]
    )


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _short(text: str) -> str:
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "…"


def _places(
    fake: VectorIndex, namespace: str, dense: list[list[float]]
) -> tuple[list[View], View | None]:
    """Return the dimension and the point of each vector, and the last query with its point."""
    query_vector, hit_ids = _last_query(fake, namespace)
    *points, query = projected(dense, query_vector)
    places = [
        {"dimension": len(components), "point": point}
        for components, point in zip(dense, points, strict=True)
    ]
    return places, None if query is None else {"point": query, "found": hit_ids}


def _last_query(fake: VectorIndex, namespace: str) -> tuple[list[float], list[str]]:
    """Return the vector of the last successful query and the ids it returned, or empty lists."""
    for call in reversed(fake.journal.calls()):
        is_query = call.route in ("query", "query-data") and call.status == 200
        if is_query and call.facts.get("namespace") == namespace:
            # Skip a batch of queries, and a query that was recorded without its whole body.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                hits = json.loads(call.response_body)["result"]
                return _query_vector(fake, call), [str(hit["id"]) for hit in hits]
    return [], []


def _query_vector(fake: VectorIndex, call: Call) -> list[float]:
    """Return the vector of a query, or that of its text; raise ``TypeError`` for a batch."""
    body, embedder = json.loads(call.request_body), fake._embedder
    components: Any
    if call.route == "query-data" and embedder is not None:
        dimension = core_of(fake).engine.dimension
        components = embedder.embed(body["data"], dimension=dimension, query=True)[0]
    else:
        components = body["vector"]
    return [float(component) for component in components]


class Plane:
    """The plane of the first two principal components of some vectors of one dimension."""

    def __init__(self, matrix: Any) -> None:
        import numpy as np

        self._centre = matrix.mean(axis=0)
        centred = matrix - self._centre
        # Decompose the Gram matrix: the vectors themselves would take a second for 500 rows.
        sizes, rotated = np.linalg.eigh(centred @ centred.T)
        axes = np.zeros((matrix.shape[1], 2))
        for axis in range(min(2, len(sizes))):
            size = sizes[-1 - axis]
            # Skip a direction without extent, whose components are only rounding errors.
            if size > max(1e-300, 1e-12 * sizes[-1]):
                axes[:, axis] = centred.T @ rotated[:, -1 - axis] / np.sqrt(size)
        flat = centred @ axes
        # The sign of a direction is arbitrary, so fix it to keep the picture from flipping on reload.
        self._axes = axes * np.where(flat[np.abs(flat).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)

    def places(self, vectors: Sequence[Sequence[float]]) -> list[list[float] | None]:
        """Return the place of each vector; None for one of another dimension, or without components."""
        import numpy as np

        fitting = [at for at, row in enumerate(vectors) if len(row) == len(self._centre)]
        places: list[list[float] | None] = [None] * len(vectors)
        if fitting:
            matrix = np.asarray([vectors[at] for at in fitting], dtype=np.float64)
            flat = (matrix - self._centre) @ self._axes
            for at, place in zip(fitting, flat.tolist(), strict=True):
                places[at] = [round(float(value), 6) for value in place]
        return places


def _plane_of(vectors: Iterable[Sequence[float]]) -> Plane | None:
    """Return the plane of the vectors that have components; None if there are none."""
    import numpy as np

    dense = [row for row in vectors if len(row)]
    return Plane(np.asarray(dense, dtype=np.float64)) if dense else None


def projected(
    vectors: Iterable[list[float]], query: Sequence[float] = ()
) -> list[list[float] | None]:
    """Project vectors and then a query onto the first two principal components.

    The point is None for a vector without a dense part and for a query of another dimension.
    """
    rows = list(vectors)
    plane = _plane_of(rows)
    return [None] * (len(rows) + 1) if plane is None else plane.places([*rows, query])
