"""The commands that query an index: once, or in batches of a resumable query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...http.messages import Request
from .. import errors
from ..embedding import Embedder, required
from ..engine.engine import VectorEngine
from ..fields import Fields, missing
from ..model import Kind, QueryMode, VectorQuery
from .formats import hits_json
from .requests import fields_of, items_of, namespace_of

_QUERY = "A query"
"""The name of a query in errors."""


class QueryCommands:
    """Commands that query by vector or by text. Queries by text need an embedder."""

    def __init__(self, engine: VectorEngine, embedder: Embedder | None) -> None:
        self._engine = engine
        self._embedder = embedder

    def query(self, request: Request) -> object:
        """Return the nearest records for a query, or for each query of an array."""
        return self._answer(request, self._vector_query)

    def query_data(self, request: Request) -> object:
        """Return the nearest records for a text, or for each text of an array."""
        required(self._embedder)
        return self._answer(request, self._text_query)

    def resumable_query(self, request: Request) -> object:
        """Return the first hits, and a uuid with which more can be requested."""
        return self._start(request, self._vector_query)

    def resumable_query_data(self, request: Request) -> object:
        """Return the first hits for a text, and a uuid with which more can be requested."""
        required(self._embedder)
        return self._start(request, self._text_query)

    def resumable_query_next(self, request: Request) -> object:
        """Return the next hits of a resumable query; the list is empty if there are no more."""
        fields = fields_of(request, self._engine.limits)
        uuid = fields.required_text("uuid")
        if fields.get("additionalK") is None:
            raise missing("additionalK", "a whole number")
        return hits_json(*self._engine.resumable.next(uuid, fields.top_k("additionalK", 0)))

    def resumable_query_end(self, request: Request) -> object:
        self._engine.resumable.end(fields_of(request, self._engine.limits).required_text("uuid"))
        return "Success"

    def _answer(self, request: Request, read: Callable[[Fields], VectorQuery]) -> object:
        queries = [read(item) for item in items_of(request, self._engine.limits, _QUERY)]
        answers = self._engine.query(namespace_of(request), queries)
        lists = [
            hits_json(hits, query.include) for hits, query in zip(answers, queries, strict=True)
        ]
        return lists[0] if len(lists) == 1 else lists

    def _start(self, request: Request, read: Callable[[Fields], VectorQuery]) -> object:
        fields = fields_of(request, self._engine.limits, _QUERY)
        query = read(fields)
        max_idle_us = fields.max_idle_us()
        uuid, hits = self._engine.resumable.start(namespace_of(request), query, max_idle_us)
        return {"uuid": uuid, "scores": hits_json(hits, query.include)}

    def _vector_query(self, fields: Fields) -> VectorQuery:
        if fields.get("data") is not None:
            if fields.get("vector") is None and fields.get("sparseVector") is None:
                # Without an embedder, raise the same error as for text on any other path.
                required(self._embedder)
            raise errors.bad_request("A query with data must be sent to query-data, not to query")
        return fields.query()

    def _text_query(self, fields: Fields) -> VectorQuery:
        query = fields.query()
        if query.vector is not None or query.sparse is not None:
            raise errors.bad_request(
                "A query with a vector must be sent to query, not to query-data"
            )
        mode = fields.query_mode()
        vector, sparse = required(self._embedder).embed(
            fields.required_data(), dimension=self._engine.dimension, query=True
        )
        if mode is not QueryMode.HYBRID:
            if self._engine.kind is not Kind.HYBRID:
                raise errors.unprocessable(f"queryMode {mode} is for hybrid indexes only")
            vector, sparse = (vector, None) if mode is QueryMode.DENSE else (None, sparse)
        return replace(query, vector=vector, sparse=sparse)
