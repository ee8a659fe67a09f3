"""``VectorIndex``: the object that the fixture ``vector_index`` returns.

Its assertions read the upserts and queries of clients from the journal. Decided here: an id can be
given as an integer, because clients may send integers; two vectors match if they are equal in
float32, which is how the index stores them.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, cast

import numpy as np
import orjson

from ..cloud.actions import action, look, perform
from ..cloud.fake import Aio, core_of
from ..core.calls import Call, field_of
from ..core.errors import SHOWN, ContractError, brief, unknown_name
from ..core.field_types import ABSENT, FLAG, MAPPING, TEXT, FieldType, OneOf, WholeNumber
from ..core.frames import code_place
from ..core.ids import new_token
from ..core.journal import Journal, Results, expect, results_of
from ..core.matching import Condition, Field, Query
from ..http.messages import decode_segment
from ..similarity.dense import Floats
from . import QUERIES, UPSERTS
from .embedding import Embedder
from .engine.engine import VectorEngine
from .errors import VectorError
from .fields import DEFAULT_TOP_K, as_flag, as_floats, from_array
from .model import (
    DEFAULT_NAMESPACE,
    EVERYTHING,
    Fusion,
    Include,
    IndexKind,
    VectorRecord,
    Weighting,
)
from .routes import VectorApp, record_json
from .settings import Loadable, VectorConfig

if TYPE_CHECKING:
    import upstash_vector

    from .._typing.vector import QueryFields, UpsertFields
    from .._typing.vector import VectorFake as Fake
    from .._typing.vector import VectorSettings as VectorSettings
else:
    # For type checkers, ``_typing/vector.pyi`` declares this base class with the keywords of filters.
    from ..cloud.fake import Fake
    from ..core.settings import keywords_of

    VectorSettings = keywords_of(VectorConfig, "``Cloud.vector_index()`` and of the marker")


class VectorIndex(Fake):
    """A fake vector index: dense, sparse or hybrid, with or without an embedding.

    ``settings`` are the keyword arguments in ``VectorSettings``.
    Raises ``ContractError`` for invalid settings.
    """

    service: ClassVar[str] = "vector"
    fixture: ClassVar[str] = "vector_index"

    _config_class = VectorConfig
    _config: VectorConfig
    _token_names = ("token", "read_only_token")
    _engine: VectorEngine
    _app: VectorApp

    def _make_app(self) -> VectorApp:
        config = self._config
        kind, dimension = config.kind, config.dimension
        embedder = None
        if config.embedding is not False and config.embedding is not None:
            embedder = Embedder(config.embedding, kind, dimension)
            dimension = embedder.dimension
        self._engine = VectorEngine(
            self._timekeeper,
            self._context.ids,
            config,
            name=self.name,
            dimension=dimension if kind.has_dense else None,
            dense_model=embedder.dense_model if embedder else "",
            sparse_model=embedder.sparse_model if embedder else "",
        )
        self._exits.callback(self._engine.close)
        self._embedder = embedder
        self._create(config.namespaces)
        return VectorApp(self._instruments, self._engine, embedder, new_token())

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

    @property
    def read_only_token(self) -> str:
        """The token that reads, but must not write; ``rotate_token()`` replaces it."""
        return self._app.read_only_token

    @read_only_token.setter
    def read_only_token(self, token: str) -> None:
        self._app.read_only_token = token

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that both official clients read, with this index's values."""
        return {"UPSTASH_VECTOR_REST_URL": self.url, "UPSTASH_VECTOR_REST_TOKEN": self.token}

    def client(self, **options: Any) -> upstash_vector.Index:
        """Return an ``upstash_vector.Index`` for this index; ``options`` are passed to it."""
        # It has no method of its own that closes it.
        client: upstash_vector.Index = self._official(
            self._make_client, options, close="_client.close"
        )
        return client

    @property
    def aio(self) -> Aio[upstash_vector.AsyncIndex]:
        """The asynchronous client: ``aio.client()`` returns an ``upstash_vector.AsyncIndex``."""
        return Aio(self, partial(self._make_client, "AsyncIndex"))

    def _make_client(
        self, kind: Literal["Index", "AsyncIndex"] = "Index", /, **options: Any
    ) -> Any:
        import upstash_vector

        return getattr(upstash_vector, kind)(**{"url": self.url, "token": self.token, **options})

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

    @look
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

    @look
    def namespaces(self) -> list[str]:
        """Return the names of all namespaces, with the default namespace ("") first."""
        return self._engine.namespaces()

    @look
    def pending(self) -> Results[Item]:
        """Return the changes that queries do not see yet, each with its ``namespace``."""
        self._timekeeper.settle()
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
            predicate = self._engine.filter(filter)
        except VectorError as error:
            raise ContractError(error.message) from None
        if predicate is None:
            return True
        from .loading import as_json

        return predicate(as_json(metadata, "the metadata"))

    def _plain(self, record: VectorRecord) -> Item:
        item: Item = orjson.loads(self._app.dump(record_json(record, Include(True, True, True))))
        return item

    # -- assertions ------------------------------------------------------------------------------

    @look
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

    @look
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
        executed = _calls(self.journal, routes, reached=True)
        return expect(
            what,
            (item for call in executed for item in _items(call)),
            query,
            times=times,
            show=shown,
            not_counted=_rejected(self.journal, routes),
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
    core = core_of(index)
    core.timekeeper.settle()
    core.engine.hold()


def release(index: VectorIndex) -> None:
    """End one ``hold()``; the last one makes all pending changes ready."""
    core_of(index).engine.release()


def _query(keywords: Mapping[str, object], fields: Mapping[str, Field], kind: str) -> Query:
    conditions = {name: value for name, value in keywords.items() if value is not None}
    return Query(conditions, fields, kind)


def _check_namespace(name: object) -> None:
    why = 'pass a string (the default namespace is "")'
    if isinstance(name, str):
        with suppress(UnicodeEncodeError):
            name.encode()
            return
        why = "it contains half a surrogate pair, which no client can send"
    raise ContractError(f"{name!r:.80} is not a valid name of a namespace: {why}")


DEFAULTS = {"topK": DEFAULT_TOP_K, "filter": EVERYTHING}

Item = dict[str, Any]


def _rejected(journal: Journal, routes: Sequence[str]) -> Iterator[tuple[Item, str]]:
    """Yield the items that clients sent but the index did not store or execute, with the reason."""
    for call in _calls(journal, routes, reached=False):
        why = f"not carried out: {_why_rejected(call)}"
        try:
            items = list(_items(call))
        except ValueError:  # Without records or queries, only the namespace can be described.
            items = [{"namespace": _namespace(call)}]
        for item in items:
            yield item, why


def _calls(journal: Journal, routes: Sequence[str], *, reached: bool) -> Iterator[Call]:
    # The HTTP status does not show whether a call was executed: a fault can drop the response of an
    # executed call, or return 200 for a call that was not executed.
    return (call for call in journal.calls() if call.route in routes and call.reached is reached)


def _items(call: Call) -> Iterator[Item]:
    """Yield the objects in a call's body, with namespace and defaults; else raise ``ValueError``."""
    body = orjson.loads(cast("bytes", field_of(call, "request_body")))
    for item in body if isinstance(body, list) else [body]:
        if not isinstance(item, dict):
            raise ValueError("the body is neither an object nor an array of objects")
        sent = {name: value for name, value in item.items() if value is not None}
        if call.route in QUERIES:
            sent = {**DEFAULTS, **sent}
        else:
            sent["id"] = str(item.get("id"))
        yield {**sent, "namespace": _namespace(call)}


def _why_rejected(call: Call) -> str:
    if call.fault:
        return f"the fault {call.fault} kept it from the index"
    with suppress(ValueError, LookupError, TypeError):
        return f"{call.status} {call.response_json()['error']}"
    return f"{call.status or call.outcome}"


def _namespace(call: Call) -> str:
    return decode_segment(call.path.removeprefix("/").partition("/")[2])


def shown(item: Item) -> str:
    """Describe an item in one line; a vector is shown as its length."""
    parts = []
    for name, value in item.items():
        count = None
        if name == "vector" and isinstance(value, list):
            count = len(value)
        elif name == "sparseVector" and isinstance(value, dict):
            indices = value.get("indices")
            count = len(indices) if isinstance(indices, list) else 0
        parts.append(f"{name}={brief(value, 80) if count is None else f'<{count} numbers>'}")
    return " ".join(parts)


class _Id(FieldType):
    expected = "a string (* matches any characters), an integer, a pattern"

    def accepts(self, expected: Any) -> bool:
        return TEXT.accepts(expected) or _is_whole(expected)

    def equals(self, actual: Any, expected: Any) -> bool:
        return super().equals(actual, str(expected) if _is_whole(expected) else expected)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


_INVALID_VECTOR = (VectorError, ValueError, TypeError, OverflowError)
"""Errors for a value that a client sent and the index rejected."""


class _Vector(FieldType):
    expected = "a list of numbers"

    def accepts(self, expected: Any) -> bool:
        if not isinstance(expected, list | tuple | np.ndarray):
            return False
        try:
            _floats(expected)
        except VectorError as error:
            raise ContractError(f"{brief(expected, 80)} is not a vector: {error.message}") from None
        return True

    def equals(self, actual: Any, expected: Any) -> bool:
        if not isinstance(actual, list) or len(actual) != len(expected):
            return False
        with suppress(*_INVALID_VECTOR):
            # Most vectors already differ in the first number, and comparing all costs far more.
            if not actual or np.float32(actual[0]) == np.float32(expected[0]):
                return bool(np.array_equal(_floats(actual), _floats(expected)))
        return False

    def differs(self, name: str, actual: Any, expected: Any) -> str:
        try:
            actual_floats, expected_floats = _floats(actual), _floats(expected)
        except _INVALID_VECTOR:
            return super().differs(name, actual, expected)
        if len(actual_floats) != len(expected_floats):
            return f"{name} is {_short(actual)}, not {len(expected_floats)} numbers"
        if len(actual_floats) * 10 <= SHOWN:
            return f"{name} is {_short(actual)}, not {expected_floats.tolist()}"
        differing = actual_floats != expected_floats
        index = int(np.argmax(differing))
        return (
            f"{name} is {_short(actual)} that differs in {np.count_nonzero(differing)} "
            f"numbers, first in [{index}]: {actual_floats[index]}, not {expected_floats[index]}"
        )


def _floats(value: Any) -> Floats:
    if isinstance(value, np.ndarray):
        return from_array(value)
    return as_floats(
        [number.item() if isinstance(number, np.generic) else number for number in value]
    )


def _short(vector: Any) -> str:
    return f"<{len(vector)} numbers>" if len(repr(vector)) > SHOWN else brief(vector)


def _flag(name: str) -> Field:
    return Field(FLAG, lambda query: as_flag(query.get(name, ABSENT)))


_VECTOR = _Vector()
_PARTS = {
    "vector": Field(_VECTOR),
    "sparseVector": Field(MAPPING),
    "metadata": Field(MAPPING),
    "data": Field(TEXT),
}
RECORD_FIELDS: Mapping[str, Field] = {"id": Field(_Id(), optional=False), **_PARTS}
"""Fields by which ``vectors()`` can be filtered."""

UPSERT_FIELDS: Mapping[str, Field] = {**RECORD_FIELDS, "namespace": Field(TEXT, optional=False)}
"""Fields by which upserted and pending records can be filtered."""

QUERY_FIELDS: Mapping[str, Field] = {
    "top_k": Field(WholeNumber(1), lambda query: query.get("topK", ABSENT), optional=False),
    "topK": Field(WholeNumber(1), optional=False),
    "filter": Field(TEXT, optional=False),
    "namespace": Field(TEXT, optional=False),
    "vector": Field(_VECTOR),
    "sparseVector": Field(MAPPING),
    "data": Field(TEXT),
    "includeVectors": _flag("includeVectors"),
    "includeMetadata": _flag("includeMetadata"),
    "includeData": _flag("includeData"),
    "weightingStrategy": Field(OneOf("weighting strategy", Weighting, fold=True)),
    "fusionAlgorithm": Field(OneOf("fusion algorithm", Fusion, fold=True)),
    "queryMode": Field(OneOf("query mode", IndexKind, fold=True)),
    "maxIdle": Field(WholeNumber(0)),
}
"""Fields by which queries can be filtered: the names of the API, and ``top_k``."""
