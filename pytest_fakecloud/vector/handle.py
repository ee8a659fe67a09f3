"""``VectorIndex``: the object that the fixture ``vector_index`` returns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import orjson

from ..core.errors import ContractError
from ..core.ids import new_token
from ..core.matching import Condition, Field, Query
from ..core.recorder import code_place
from ..core.results import Results, expect, results_of
from ..core.wording import unknown_name
from ..handle import Aio, Context, action, perform
from .assertions import (
    QUERIES,
    QUERY_FIELDS,
    RECORD_FIELDS,
    UPSERT_FIELDS,
    UPSERTS,
    Item,
    QueryFields,
    UpsertFields,
    executed,
    rejected,
    shown,
)
from .embedding import Embedder
from .engine.engine import VectorEngine
from .errors import VectorError
from .model import DEFAULT_NAMESPACE, Include, VectorRecord
from .rest.formats import record_json
from .rest.routes import VectorApp
from .settings import Loadable, VectorConfig, VectorSettings

if TYPE_CHECKING:
    import upstash_vector

    from .typed import VectorHandle as Handle
else:
    from ..handle import Handle

EVERY_PART = Include(True, True, True)


class VectorIndex(Handle):
    """A fake vector index: dense, sparse or hybrid, with or without an embedding.

    ``settings`` are the keyword arguments in ``VectorSettings``.
    Raises ``ContractError`` for invalid settings.
    """

    service: ClassVar[str] = "vector"
    fixture: ClassVar[str] = "vector_index"

    _settings = VectorConfig
    _engine: VectorEngine

    def __init__(self, context: Context, **settings: Unpack[VectorSettings]) -> None:
        config = self._configure(context, VectorConfig, settings)
        kind, dimension = config.kind, config.dimension
        embedder = None
        if config.embedding is not False and config.embedding is not None:
            embedder = Embedder(config.embedding, kind, dimension)
            dimension = embedder.dimension
        self._engine = VectorEngine(
            context.clock,
            context.ids,
            config,
            dimension=dimension if kind.has_dense else None,
            dense_model=embedder.dense_model if embedder else "",
            sparse_model=embedder.sparse_model if embedder else "",
        )
        self.read_only_token = new_token()
        app = VectorApp(
            self._engine,
            embedder,
            lambda: (self.token, self.read_only_token),
            range_limit=config.range_limit,
        )
        self._embedder = embedder
        # Load the data first, so that an error in the data leaves no server running.
        self._create(config.namespaces)
        super().__init__(context, app, config)

    def _create(self, namespaces: Iterable[str] | Mapping[str, Loadable]) -> None:
        for namespace in namespaces:
            _check_namespace(namespace)
            try:
                self._engine.create_namespace(namespace)
            except VectorError as error:
                raise ContractError(
                    f"the namespace {namespace!r} cannot be created: {error.message}"
                ) from None
            if isinstance(namespaces, Mapping):
                self.load(namespaces[namespace], namespace=namespace)

    # -- identity and clients --------------------------------------------------------------------

    @action
    def rotate_token(self) -> str:
        """Replace both tokens, whose requests are rejected then; return the one that may write."""
        self.read_only_token = new_token()
        return super().rotate_token()

    def _tokens(self) -> tuple[str, ...]:
        return self.token, self.read_only_token

    def _set_tokens(self, *tokens: str) -> None:
        self.token, self.read_only_token = tokens

    def _env_variables(self) -> dict[str, str]:
        """Return the environment variables that both official clients read."""
        return {"UPSTASH_VECTOR_REST_URL": self.url, "UPSTASH_VECTOR_REST_TOKEN": self.token}

    def client(self, **options: Any) -> upstash_vector.Index:
        """Return an ``upstash_vector.Index`` for this index; ``options`` are passed to it."""
        return self._official(self._make_client, options)

    @property
    def aio(self) -> Aio[upstash_vector.AsyncIndex]:
        """The asynchronous client: ``aio.client()`` returns an ``upstash_vector.AsyncIndex``."""
        return Aio(self, self._make_async_client)

    def _make_client(self, **options: Any) -> upstash_vector.Index:
        from upstash_vector import Index

        return Index(**{"url": self.url, "token": self.token, **options})

    def _make_async_client(self, **options: Any) -> upstash_vector.AsyncIndex:
        from upstash_vector import AsyncIndex

        return AsyncIndex(**{"url": self.url, "token": self.token, **options})

    def close(self) -> None:
        """Stop the fake, and cancel the timers of pending changes."""
        super().close()
        self._engine.close()

    # -- data ------------------------------------------------------------------------------------

    @action
    def load(self, data: Loadable, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Load records, all or none, and make them ready for queries immediately.

        ``data`` is a list of records; a mapping from id to vector, text or record; or the path of a
        ``.jsonl``, ``.json`` or ``.npz`` file. A record with a ``namespace`` field is loaded into
        that namespace. Raises ``ContractError`` for invalid data.
        """
        _check_namespace(namespace)
        groups: dict[str, list[VectorRecord]] = {}
        # Imported here, because few tests load data.
        from .loading import read_records

        records = read_records(
            data, self._engine.limits, self._embedder, dimension=self._engine.dimension
        )
        for named, record in records:
            groups.setdefault(namespace if named is None else named, []).append(record)
        try:
            self._engine.load(groups)
        except VectorError as error:
            raise ContractError(f"the data does not fit this index: {error.message}") from None

    def vectors(
        self, namespace: str = DEFAULT_NAMESPACE, *, limit: int | None = None
    ) -> Results[Item]:
        """Return at most ``limit`` records of a namespace in insertion order, as ``/fetch`` does.

        Raises ``ContractError`` for a namespace that does not exist; the default one always exists.
        """
        _check_namespace(namespace)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ContractError(f"limit={limit!r} must be a whole number of at least 0, or None")
        names = self._engine.namespaces()
        if namespace not in names:
            shown_names = [name or '"" (the default)' for name in names]
            raise ContractError(unknown_name("namespace", namespace, shown_names))
        return self._records(namespace, limit)

    def _records(self, namespace: str, limit: int | None) -> Results[Item]:
        """Return the records of a namespace; none if it does not exist."""
        page = self._engine.range(namespace, 0, limit)
        return results_of(map(self._plain, page.records), RECORD_FIELDS, "record")

    def namespaces(self) -> list[str]:
        """Return the names of all namespaces, with the default namespace ("") first."""
        return self._engine.namespaces()

    def pending(self) -> Results[Item]:
        """Return the changes that queries do not see yet, each with its ``namespace``."""
        self._time.settle()
        changes = (
            {**self._plain(record), "namespace": name} for name, record in self._engine.pending()
        )
        return results_of(changes, UPSERT_FIELDS, "pending record")

    def holding(self) -> AbstractContextManager[None]:
        """Return a context manager within which queries and counts see no new changes.

        Fetch, range, update and delete see them immediately, and ``pending()`` lists them. At the
        end of the block, or of the outermost one, all pending changes become ready.
        """
        return _Holding(self)

    def matches(self, filter: str, metadata: Mapping[str, Any] | None) -> bool:
        """Return whether a record with this metadata (None: without any) matches a filter.

        Raises ``ContractError`` for an invalid filter, and for metadata that is not JSON.
        """
        if not isinstance(filter, str):
            raise ContractError(f'filter={filter!r:.80} must be a string, such as "price < 10"')
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ContractError(f"metadata={metadata!r:.80} must be a mapping, or None")
        try:
            predicate = self._engine.checks.filter(filter)
        except VectorError as error:
            raise ContractError(error.message) from None
        if predicate is None:
            return True
        from .loading import as_json

        return predicate(as_json(metadata, "the metadata"))

    def _plain(self, record: VectorRecord) -> Item:
        item: Item = orjson.loads(self._app.dump(record_json(record, EVERY_PART)))
        return item

    # -- assertions ------------------------------------------------------------------------------

    def assert_upserted(
        self,
        id: Condition[str | int] = None,
        *,
        times: int | None = None,
        **where: Unpack[UpsertFields],
    ) -> Results[Item]:
        """Assert that clients upserted a matching record, and return all matching records.

        ``times`` is the exact number of records expected (at least one by default). A failure
        describes the closest records, or why records were rejected. Two vectors match if they are
        equal in float32. A condition can be a value, a string with ``*``, a pattern or a function.
        """
        __tracebackhide__ = True
        query = _query({"id": id, **where}, UPSERT_FIELDS, "upsert")
        return self._expect("an upsert", UPSERTS, query, times)

    def assert_not_upserted(
        self, id: Condition[str | int] = None, **where: Unpack[UpsertFields]
    ) -> None:
        """Assert that no client has upserted a matching record; see ``assert_upserted()``."""
        __tracebackhide__ = True
        self.assert_upserted(id, times=0, **where)

    def assert_queried(
        self, *, times: int | None = None, **where: Unpack[QueryFields]
    ) -> Results[Item]:
        """Assert that clients made a matching query, and return all matching ones with defaults.

        Each query of a batch counts. See ``assert_upserted()`` for ``times`` and conditions.
        """
        __tracebackhide__ = True
        return self._expect("a query", QUERIES, _query(where, QUERY_FIELDS, "query"), times)

    def assert_not_queried(self, **where: Unpack[QueryFields]) -> None:
        """Assert that no client has made a matching query; see ``assert_queried()``."""
        __tracebackhide__ = True
        self.assert_queried(times=0, **where)

    def _expect(
        self, what: str, routes: Sequence[str], query: Query, times: int | None
    ) -> Results[Item]:
        __tracebackhide__ = True
        return expect(
            what,
            executed(self.journal, routes),
            query,
            times=times,
            show=shown,
            not_counted=rejected(self.journal, routes),
            if_empty=f"no client has made {what} at all",
        )


class _Holding(AbstractContextManager[None]):
    """A block of ``holding()``, whose beginning and end appear in reports as actions of the test."""

    def __init__(self, index: VectorIndex) -> None:
        self._index = index

    def __enter__(self) -> None:
        perform(self._index, hold, code_place(sys._getframe(1)), (), {})

    def __exit__(self, *error: object) -> None:
        perform(self._index, release, code_place(sys._getframe(1)), (), {})


def hold(index: VectorIndex) -> None:
    """Hide new changes of an index from queries and counts until ``release()``."""
    index._time.settle()
    index._engine.readiness.hold()


def release(index: VectorIndex) -> None:
    """End one ``hold()``; the last one makes all pending changes ready."""
    index._engine.readiness.release()


def _query(wanted: Mapping[str, object], fields: Mapping[str, Field], kind: str) -> Query:
    given = {name: value for name, value in wanted.items() if value is not None}
    return Query(given, fields, kind)


def _check_namespace(name: object) -> None:
    if not isinstance(name, str):
        raise ContractError(
            f"{name!r:.80} is not a valid name of a namespace: pass a string "
            '(the default namespace is "")'
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ContractError(
            f"{name!r:.80} is not a valid name of a namespace: it contains half a surrogate pair, "
            "which no client can send"
        ) from None
