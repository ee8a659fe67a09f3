"""Lists and assertions of the searches that clients made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypedDict

from ...core.errors import ContractError
from ...core.field_types import JSON, NUMBER, TEXT, FieldType, one_of, shaped
from ...core.found import Found, expect, found_of
from ...core.matching import Field, Query
from ...core.wording import counted
from .indexes import Search, find_index
from .views import Reading, SearchIndexView


class SearchFields(TypedDict, total=False):
    """The fields of a search that assertions can filter by, besides its index."""

    command: object
    filter: object
    keys: object
    total: object
    pending: object


_FIELDS: Mapping[str, Field] = {
    "command": Field(one_of("command", ("query", "count", "aggregate"))),
    "index": Field(TEXT),
    "filter": Field(JSON),
    "keys": Field(TEXT, several=True),
    "total": Field(NUMBER),
    "pending": Field(NUMBER),
}


def searches_of(made: Iterable[Search]) -> Found[Search]:
    """Return recorded searches as a list that can be filtered."""
    return found_of(list(made), _FIELDS, "search")


def _key_type(reading: Reading, searches: list[Search], name: object) -> FieldType:
    """Return the type of the condition ``keys=``.

    If all keys that an index returned have one of its prefixes, the condition must have one, too,
    so that an error reports a mistyped key.
    """
    with reading() as keyspace:
        index = find_index(keyspace, name) if isinstance(name, str) else None
        if index is None:
            return TEXT
        prefixes = index.definition.prefixes
    for search in searches:
        if search.index == name and not all(key.startswith(prefixes) for key in search.keys):
            return TEXT  # An earlier index with this name may have had other prefixes.
    return shaped(f"a key of {name!r}", f"{prefixes[0]}1", begins=prefixes)


def expect_search(
    reading: Reading, made: Iterable[Search], times: int | None, criteria: Mapping[str, object]
) -> Found[Search]:
    """Return the searches that match; fail, with reasons, unless there are ``times``."""
    __tracebackhide__ = True
    wanted = criteria.get("keys")
    sought_key = wanted if isinstance(wanted, str) and "*" not in wanted else None

    def describe(search: Search) -> str:
        if sought_key is None or sought_key in search.keys:
            return _described(search)
        try:
            why = SearchIndexView(reading, search.index).explain(sought_key, search.filter)
        except ContractError:
            return _described(search)
        return "\n".join([_described(search), *(f"{sought_key}: {line}" for line in why)])

    searches = list(made)
    key_type = _key_type(reading, searches, criteria.get("index"))
    query = Query(dict(criteria), {**_FIELDS, "keys": Field(key_type, several=True)}, "search")
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
