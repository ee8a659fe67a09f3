"""Views of search indexes, and assertions of searches, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from ...core.errors import ContractError, counted, did_you_mean
from ...core.field_types import JSON, NUMBER, TEXT, FieldType, OneOf, Shaped
from ...core.journal import Results, expect, results_of
from ...core.matching import Field, Query
from ..engine.keyspace import Keyspace
from ..syntax import decoded, encoded
from ..values.types import type_name
from .index import Search, SearchIndex, find_index
from .retrievers import parse_query
from .schema import KEY_TYPES, SearchError, make_document


class Reader(Protocol):
    """An engine whose keys can be read while no other thread changes them."""

    @property
    def lock(self) -> AbstractContextManager[Any, Any]: ...

    def current(self) -> Keyspace:
        """Return the keyspace at the current time. The caller holds the lock."""


class SearchIndexView:
    """A read-only view of a search index. Reading it does not count as a search.

    Properties show the current state. They raise `ContractError` if the index no longer exists.
    """

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self.name = name
        with self._reader.lock:
            self._find()  # Raise an error if the index does not exist.

    @property
    def schema(self) -> dict[str, list[str]]:
        """The fields of the index with their types and options: ``{"title": ["TEXT", "NOSTEM"]}``."""
        with self._reader.lock:
            return self._find()[1].definition.described()

    @property
    def documents(self) -> dict[str, dict[str, list[Any]]]:
        """The indexed values of each key's fields. Values of TEXT fields are tokens.

        Example: ``{"p:1": {"title": ["run", "shoe"], "price": [40.0]}}``. A field that could not be
        indexed is omitted. Dates are milliseconds since the epoch.
        """
        with self._reader.lock:
            _, index = self._find()
            return {
                decoded(document.key): {
                    name: _values(values) for name, values in document.fields.items()
                }
                for document in index.documents.values()
            }

    @property
    def pending(self) -> list[str]:
        """The keys whose changes are not searchable yet."""
        with self._reader.lock:
            return [decoded(key) for key in self._find()[1].waiting]

    def explain(self, key: str, filter: Mapping[str, Any]) -> list[str]:
        """Return the reasons why a filter does not match a key, one for each clause that fails.

        The list is empty if it matches. Raises `ContractError` for a filter that the vendor rejects.
        """
        with self._reader.lock:
            keyspace, index = self._find()
            name = encoded(key)
            number = index.numbers.get(name)
            try:
                clause = parse_query(index.definition, json.dumps(filter).encode())
                if number is None:
                    return [_not_indexed(keyspace, index, name)]
                why = clause.mismatches(index, number)
            except SearchError as error:
                raise ContractError(f"the vendor rejects this filter: {error.reason}") from None
            if name in index.waiting:
                why.append("its last change is not indexed yet; run SEARCH.WAITINDEXING")
            return why

    def _find(self) -> tuple[Keyspace, SearchIndex]:
        """Return the keyspace and the refreshed index. The caller holds the lock."""
        keyspace = self._reader.current()
        index = find_index(keyspace, self.name)
        if index is None:
            names = map(decoded, keyspace.indexes.named) if keyspace.indexes else ()
            hint = did_you_mean(self.name, [*names]) or "; create it with SEARCH.CREATE"
            raise ContractError(f"there is no search index {self.name!r}{hint}")
        index.refresh(keyspace, is_read=False)
        return keyspace, index

    def __repr__(self) -> str:
        return f"<search index {self.name!r}>"


def _values(values: tuple[Any, ...]) -> list[Any]:
    if values[0].__class__ is tuple:
        return [token for tokens in values for token in tokens if token is not None]
    return list(values)


def _not_indexed(keyspace: Keyspace, index: SearchIndex, key: bytes) -> str:
    definition = index.definition
    value = index.value_of(keyspace, key)
    if value is None:
        is_key = definition.stream is None
        return (
            "the key does not exist" if is_key else f"{definition.prefixes[0]!r} has no such entry"
        )
    if definition.stream is None and not definition.covers(key):
        return f"its name starts with none of the prefixes {', '.join(definition.prefixes)}"
    if key in index.waiting:
        return "it is not indexed yet; run SEARCH.WAITINDEXING"
    if make_document(definition, key, value) is None:
        if definition.stream is not None:
            return "none of its fields could be indexed"
        kind = type_name(value)
        if kind == KEY_TYPES[definition.kind]:
            return "its value is not a JSON object"
        return f"it is a {kind}, but the index is on {definition.kind} keys"
    return "it existed before the index, which skipped the initial scan"


SEARCH_FIELDS: Mapping[str, Field] = {
    "command": Field(OneOf("command", ("query", "count", "aggregate"))),
    "index": Field(TEXT),
    "filter": Field(JSON),
    "keys": Field(TEXT, several=True),
    "total": Field(NUMBER),
    "pending": Field(NUMBER),
}
"""Fields by which searches can be filtered."""


def searches_of(searches: Iterable[Search]) -> Results[Search]:
    return results_of(list(searches), SEARCH_FIELDS, "search")


def _key_type(reader: Reader, searches: list[Search], name: object) -> FieldType:
    """Return the type of the condition ``keys=``.

    If all keys that an index returned have one of its prefixes, the condition must have one, too,
    so that an error reports a mistyped key.
    """
    with reader.lock:
        index = find_index(reader.current(), name) if isinstance(name, str) else None
        if index is None or index.definition.stream is not None:
            return TEXT
        prefixes = index.definition.prefixes
    for search in searches:
        if search.index == name and not all(key.startswith(prefixes) for key in search.keys):
            return TEXT  # An earlier index with this name may have had other prefixes.
    return Shaped(f"a key of {name!r}", f"{prefixes[0]}1", begins=prefixes)


def expect_search(
    reader: Reader, searches: Iterable[Search], times: int | None, criteria: Mapping[str, object]
) -> Results[Search]:
    """Return the searches that match; fail, with reasons, unless there are ``times``."""
    __tracebackhide__ = True
    sought = criteria.get("keys")

    def describe(search: Search) -> str:
        lines = [_described(search)]
        if isinstance(sought, str) and "*" not in sought and sought not in search.keys:
            with suppress(ContractError):
                why = SearchIndexView(reader, search.index).explain(sought, search.filter)
                lines += [f"{sought}: {reason}" for reason in why]
        return "\n".join(lines)

    searches = list(searches)
    key_type = _key_type(reader, searches, criteria.get("index"))
    query = Query(
        dict(criteria), {**SEARCH_FIELDS, "keys": Field(key_type, several=True)}, "search"
    )
    return expect(
        "a search",
        searches,
        query,
        times=times,
        show=describe,
        if_empty="no client has searched yet",
    )


def _described(search: Search) -> str:
    result = counted(search.total, "document")
    if search.command == "query":
        result += f", returned [{', '.join(search.keys)}]"
    if search.pending:
        result += f", {counted(search.pending, 'pending change')}"
    filter_json = json.dumps(search.filter, ensure_ascii=False)
    return f"{search.command} of {search.index!r} {filter_json} found {result}"
