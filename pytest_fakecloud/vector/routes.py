"""The REST API of a vector index: the path of a request is a command followed by the namespace.

``/upsert`` refers to the default namespace, ``/upsert/a/b`` to the namespace ``a/b``: clients do
not escape names, so everything after the command is the name, with percent escapes decoded once.
Every command accepts GET, POST, PUT and DELETE, with a body of any content type, because clients
and documentation use different methods and types for the same command.

A response is ``{"result": …}`` or ``{"error": text, "status": code}``, never both. A number is the
shortest decimal that converts back to the same float32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import orjson

from ..core.errors import ServiceError
from ..core.field_types import TEXT, OneOf
from ..core.matching import Field
from ..http.app import App, Instruments
from ..http.messages import Answer, Json, Request, bearer_token, decode_segment, same
from ..http.routing import Match, Route
from . import errors
from .embedding import Embedder, required
from .engine.engine import VectorEngine
from .fields import KNOWN, VectorFields, missing
from .model import VECTORS, Include, IndexKind, NamespaceInfo, VectorHit, VectorQuery, VectorRecord

METHODS = "GET POST PUT DELETE"
SUCCESS = "Success"
_QUERY = "A query"
"""The name of a query in errors."""
_WRITING = (
    "upsert/{namespace*}", "upsert-data/{namespace*}", "update/{namespace*}", "delete/{namespace*}",
    "reset/{namespace*}", "delete-namespace/{namespace*}", "rename-namespace",
)  # fmt: skip
"""Paths of the commands that the read-only token may not call."""
_QUERYING = (
    "query/{namespace*}", "query-data/{namespace*}", "resumable-query/{namespace*}",
    "resumable-query-data/{namespace*}", "resumable-query-next", "resumable-query-end",
)  # fmt: skip
_READING = (
    "fetch/{namespace*}", "range/{namespace*}", "random/{namespace*}", "info", "list-namespaces",
)  # fmt: skip
_BODY_FACTS = sorted(KNOWN - {"vector", "sparseVector", "namespace", "all"})
"""Fields of a request body that the journal records: all except vectors."""


def _name(path: str) -> str:
    return path.partition("/")[0]


class VectorApp(App):
    """Translates requests into calls of the engine.

    ``read_only_token`` is a second token, which must not write. ``embedder`` is None without a model.
    """

    service = "vector"
    writes: ClassVar[frozenset[str]] = frozenset(map(_name, _WRITING))
    """Commands that the read-only token may not call."""
    fact_fields: ClassVar[Mapping[str, Field]] = {
        "command": Field(OneOf("command", map(_name, _WRITING + _QUERYING + _READING))),
        "namespace": Field(TEXT),
        **{name: Field() for name in _BODY_FACTS},
    }

    def __init__(
        self,
        instruments: Instruments,
        engine: VectorEngine,
        embedder: Embedder | None,
        read_only_token: str,
    ) -> None:
        super().__init__(instruments)
        self.engine = engine
        self.embedder = embedder
        self._limits = engine.limits
        self.read_only_token = read_only_token

    @classmethod
    def routes(cls) -> list[Route]:
        """Return a route for each command; the method that serves a command has the command's name."""
        names = {path: _name(path) for path in (*_WRITING, *_QUERYING, *_READING)}
        return [
            Route(METHODS, f"/{path}", name, getattr(cls, name.replace("-", "_")))
            for path, name in names.items()
        ]

    # -- the dialect -----------------------------------------------------------------------------

    def authenticate(self, request: Request) -> object:
        """Return ``"default"`` or ``"read_only"``; raise ``VectorError`` 401 for a wrong token."""
        token = bearer_token(request.fields.get("authorization"))
        if same(token, self.token):
            return "default"
        if same(token, self.read_only_token):
            if request.route in self.writes:
                raise errors.VectorError(401, errors.READ_ONLY)
            return "read_only"
        raise errors.VectorError(401, errors.UNAUTHORIZED)

    def route_request(self, request: Request) -> Match:
        """As for every app, but a request of Upstash Search has no route, even on a shared path."""
        return Match() if _is_of_search(request) else super().route_request(request)

    def run_endpoint(self, request: Request, route: Route) -> object:
        """As for every app, but the result is sent in an envelope."""
        return {"result": super().run_endpoint(request, route)}

    def unknown_path(self, request: Request) -> Answer:
        if _is_of_search(request):
            raise errors.VectorError(404, f"{errors.NO_SEARCH}: {request.method} {request.path}")
        return super().unknown_path(request)

    def no_route(self, request: Request) -> str:
        return errors.NO_SEARCH if _is_of_search(request) else super().no_route(request)

    def render_error(self, error: ServiceError) -> Json:
        """Return the error with its status, because one client reads only the body."""
        body = {"error": error.message, "status": error.status}
        return Json(body, error.status, error.headers)

    def facts(self, request: Request) -> dict[str, Any]:
        """Return the command, the namespace, and the fields of the body that are not vectors."""
        facts: dict[str, Any] = {"command": request.route, "namespace": namespace_of(request)}
        body = _json(request) if request.body.strip() else None
        if isinstance(body, dict):
            facts |= {n: v for n, v in body.items() if n not in ("vector", "sparseVector")}
        elif isinstance(body, list):
            facts["ids"] = [item.get("id") if isinstance(item, dict) else item for item in body]
        return facts

    def dump(self, value: object) -> bytes:
        """Return JSON in which float32 arrays and scores are written as their shortest decimals."""
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)

    # -- writing ---------------------------------------------------------------------------------

    def upsert(self, request: Request) -> object:
        records = [item.record() for item in self._items(request, "A vector")]
        texts = (record for record in records if record.data is not None)
        if self.embedder is None and not all(map(_has_vectors, texts)):
            raise errors.no_embedding_model()
        self.engine.upsert(namespace_of(request), records)
        return SUCCESS

    def upsert_data(self, request: Request) -> object:
        """Upsert a text record or an array of them; each text is embedded and stored as ``data``."""
        embedder = required(self.embedder)
        dimension = self.engine.dimension
        records = []
        for item in self._items(request, "A vector"):
            id, metadata, text = item.id(), item.metadata(), item.required_text("data")
            records.append(
                VectorRecord(id, *embedder.embed(text, dimension=dimension), metadata, text)
            )
        self.engine.upsert(namespace_of(request), records)
        return SUCCESS

    def update(self, request: Request) -> object:
        """Update parts of a record; new text is embedded again if the index has a model."""
        change, mode = self._fields(request).change()
        if self.embedder and change.data is not None and not _has_vectors(change):
            vector, sparse = self.embedder.embed(change.data, dimension=self.engine.dimension)
            change = change._replace(vector=vector, sparse=sparse)
        return {"updated": int(self.engine.update(namespace_of(request), change, mode))}

    def delete(self, request: Request) -> object:
        """Delete records by exactly one of ids, prefix and filter; a bare array contains ids.

        A bare string, also without quotes, is a single id (seen in the Go client and its tests).
        """
        fields = self._fields_or_ids(request)
        selectors = [name for name in ("ids", "prefix", "filter") if fields.get(name) is not None]
        namespace = namespace_of(request)
        match selectors:
            case ["ids"]:
                removed = self.engine.delete(namespace, fields.ids())
            case ["prefix"]:
                removed = self.engine.delete_prefix(namespace, fields.required_text("prefix"))
            case ["filter"]:
                removed = self.engine.delete_matching(namespace, fields.required_text("filter"))
            case _:
                raise errors.bad_request(errors.DELETE_WHAT)
        self.recorder.record_removed(request.call, removed)
        return {"deleted": len(removed)}

    def reset(self, request: Request) -> object:
        """Empty the namespace or, with ``?all``, every namespace."""
        flag = request.query("all")
        if flag is not None and flag.lower() not in ("false", "0"):
            self.engine.reset_all()
        else:
            self.engine.reset(namespace_of(request))
        return SUCCESS

    # -- reading ---------------------------------------------------------------------------------

    def fetch(self, request: Request) -> object:
        """Return records by ids (null for missing ones) or by prefix; a bare array contains ids."""
        fields = self._fields_or_ids(request)
        has_ids, prefix = fields.get("ids") is not None, fields.text("prefix")
        if has_ids == (prefix is not None):
            raise errors.bad_request(errors.FETCH_WHAT)
        include = fields.include()
        namespace = namespace_of(request)
        if prefix is not None:
            page = self.engine.range(namespace, 0, self._limits.prefix_fetch, prefix)
            return [record_json(record, include) for record in page.records]
        return [
            None if record is None else record_json(record, include)
            for record in self.engine.fetch(namespace, fields.ids())
        ]

    def range(self, request: Request) -> object:
        """Return a page of the records in insertion order; without a request body, the first page."""
        fields = self._fields(request) if request.body.strip() else VectorFields({}, self._limits)
        include = fields.include()
        page = self.engine.range(
            namespace_of(request),
            fields.cursor(),
            fields.number("limit", self.engine.settings.range_limit),
            fields.text("prefix") or "",
        )
        return {
            "nextCursor": page.next_cursor,
            "vectors": [record_json(record, include) for record in page.records],
        }

    def random(self, request: Request) -> object:
        """Return a random record with its vectors, or null if the namespace is empty."""
        record = self.engine.random(namespace_of(request))
        return None if record is None else record_json(record, VECTORS)

    # -- the index and its namespaces ------------------------------------------------------------

    def info(self, request: Request) -> object:
        """Return properties and counts; a sparse index has dimension 0 and no similarity function."""
        identity, kind = self.engine.identity, self.engine.kind
        size, namespaces = self.engine.info()
        dense = {
            "dimension": self.engine.dimension or 0,
            "similarityFunction": identity.similarity if kind.has_dense else "",
        }
        counts = {name: _counts([space]) for name, space in namespaces.items()}
        answer = {
            **_counts(namespaces.values()),
            "indexSize": size,
            **dense,
            "indexType": kind,
            "namespaces": counts,
        }
        if kind.has_dense:
            answer["denseIndex"] = {**dense, "embeddingModel": identity.dense_model}
        if kind.has_sparse:
            answer["sparseIndex"] = {"embeddingModel": identity.sparse_model}
        return answer

    def list_namespaces(self, request: Request) -> object:
        return self.engine.namespaces()

    def delete_namespace(self, request: Request) -> object:
        self.engine.delete_namespace(namespace_of(request))
        return SUCCESS

    def rename_namespace(self, request: Request) -> object:
        fields = self._fields(request)
        self.engine.rename_namespace(
            fields.required_text("namespace"),
            fields.required_text("newNamespace"),
            delete_existing=fields.flag("deleteExisting"),
        )
        return {"renamed": True}

    # -- querying --------------------------------------------------------------------------------

    def query(self, request: Request) -> object:
        """Return the nearest records for a query, or for each query of an array."""
        return self._answer(request, self._vector_query)

    def query_data(self, request: Request) -> object:
        """Return the nearest records for a text, or for each text of an array."""
        required(self.embedder)
        return self._answer(request, self.text_query)

    def resumable_query(self, request: Request) -> object:
        """Return the first hits, and a uuid with which more can be requested."""
        return self._start(request, self._vector_query)

    def resumable_query_data(self, request: Request) -> object:
        """Return the first hits for a text, and a uuid with which more can be requested."""
        required(self.embedder)
        return self._start(request, self.text_query)

    def resumable_query_next(self, request: Request) -> object:
        """Return the next hits of a resumable query; the list is empty if there are no more."""
        fields = self._fields(request)
        uuid = fields.required_text("uuid")
        if fields.get("additionalK") is None:
            raise missing("additionalK", "a whole number")
        return hits_json(*self.engine.next_hits(uuid, fields.top_k("additionalK", 0)))

    def resumable_query_end(self, request: Request) -> object:
        self.engine.end_query(self._fields(request).required_text("uuid"))
        return SUCCESS

    def _answer(self, request: Request, read: Callable[[VectorFields], VectorQuery]) -> object:
        queries = [read(item) for item in self._items(request, _QUERY)]
        answers = self.engine.query(namespace_of(request), queries)
        lists = [
            hits_json(hits, query.include) for hits, query in zip(answers, queries, strict=True)
        ]
        return lists[0] if len(lists) == 1 else lists

    def _start(self, request: Request, read: Callable[[VectorFields], VectorQuery]) -> object:
        fields = self._fields(request, _QUERY)
        query = read(fields)
        uuid, hits = self.engine.start_query(namespace_of(request), query, fields.max_idle_us())
        return {"uuid": uuid, "scores": hits_json(hits, query.include)}

    def _vector_query(self, fields: VectorFields) -> VectorQuery:
        if fields.get("data") is not None:
            if fields.get("vector") is None and fields.get("sparseVector") is None:
                # Without an embedder, raise the same error as for text on any other path.
                required(self.embedder)
            raise errors.bad_request("A query with data must be sent to query-data, not to query")
        return fields.query()

    def text_query(self, fields: VectorFields) -> VectorQuery:
        query = fields.query()
        if query.vector is not None or query.sparse is not None:
            raise errors.bad_request(
                "A query with a vector must be sent to query, not to query-data"
            )
        mode = fields.choice("queryMode", IndexKind) or IndexKind.HYBRID
        vector, sparse = required(self.embedder).embed(
            fields.required_text("data"), dimension=self.engine.dimension, query=True
        )
        if mode is not IndexKind.HYBRID:
            if self.engine.kind is not IndexKind.HYBRID:
                raise errors.unprocessable(f"queryMode {mode} is for hybrid indexes only")
            vector, sparse = (vector, None) if mode is IndexKind.DENSE else (None, sparse)
        return query._replace(vector=vector, sparse=sparse)

    # -- bodies of requests ----------------------------------------------------------------------

    def _fields(self, request: Request, what: str = "The request body") -> VectorFields:
        return VectorFields(_json(request), self._limits, what)

    def _fields_or_ids(self, request: Request) -> VectorFields:
        """Return the fields of a body, which can also be a bare array of ids."""
        body = _json(request)
        return VectorFields({"ids": body} if isinstance(body, list) else body, self._limits)

    def _items(self, request: Request, what: str) -> Iterator[VectorFields]:
        """Return the fields of each object of an array, or of a single object."""
        body = _json(request)
        if not isinstance(body, list):
            return iter([VectorFields(body, self._limits, what)])
        errors.check_limit("Batch size", len(body), self._limits.vectors_per_call)
        return (VectorFields(item, self._limits, what) for item in body)


def _is_of_search(request: Request) -> bool:
    """Return whether a request is for Upstash Search, by its path or by the name of its client.

    That product shares all paths but ``/search`` with Upstash Vector. Only some of its requests
    would succeed on the index of a fake, which would hide the reason why the others fail.
    """
    if request.path.split("/", 2)[1:2] == ["search"]:
        return True
    return request.fields.get("upstash-telemetry-sdk", "").startswith("upstash-search")


def _has_vectors(record: VectorRecord) -> bool:
    return record.vector is not None or record.sparse is not None


def namespace_of(request: Request) -> str:
    return decode_segment(request.params.get("namespace", ""))


def _json(request: Request) -> Any:
    """Return the JSON in a body. The body of ``/delete`` may be a single id, with or without quotes."""
    body = request.body.strip()
    if not body:
        raise errors.bad_request("The request body is empty, expected JSON")
    try:
        if request.route == "delete" and body[:1] not in b'{["':
            return [body.decode()]
        value = orjson.loads(body)
        return [value] if request.route == "delete" and isinstance(value, str) else value
    except UnicodeDecodeError:
        raise errors.bad_request("The request body is not UTF-8") from None
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"The request body is not valid JSON: {error}") from None


def hits_json(hits: Sequence[VectorHit], include: Include) -> list[dict[str, Any]]:
    return [record_json(hit.record, include, score=hit.score) for hit in hits]


def record_json(
    record: VectorRecord, include: Include, score: object | None = None
) -> dict[str, Any]:
    """Return the JSON form of a record, without the parts that it lacks."""
    answer: dict[str, Any] = {"id": record.id}
    if score is not None:
        answer["score"] = score
    if include.vectors and record.vector is not None:
        answer["vector"] = record.vector
    if include.vectors and (sparse := record.sparse) is not None:
        answer["sparseVector"] = {"indices": sparse.indices, "values": sparse.values}
    if include.metadata and record.metadata is not None:
        answer["metadata"] = record.metadata
    if include.data and record.data is not None:
        answer["data"] = record.data
    return answer


def _counts(spaces: Collection[NamespaceInfo]) -> dict[str, Any]:
    return {
        "vectorCount": sum(space.vector_count for space in spaces),
        "pendingVectorCount": sum(space.pending_vector_count for space in spaces),
    }
