"""Runs queries: selects the matching documents, orders them and formats their content."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.budget import spend
from ..table.syntax import decoded, encoded
from ..values.json import write_json
from .clauses import Clause, Matches
from .documents import source_of
from .highlighting import Highlight, TermMarker, highlight_document, term_markers
from .index import SearchIndex
from .postings import ValuePostings
from .schema import SearchError
from .scoring import ScoreFunction

if TYPE_CHECKING:
    from ..engine.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class Query:
    """The options of SEARCH.QUERY.

    ``select`` contains paths in the document, or is None for the whole document. ``order`` consists
    of the name of a fast field and whether the order is ascending.
    """

    limit: int = 10
    offset: int = 0
    order: tuple[str, bool] | None = None
    select: tuple[str, ...] | None = None
    no_content: bool = False
    highlight: Highlight | None = None
    function: ScoreFunction | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching document.

    ``content`` contains pairs of a path and its JSON (``"$"`` is the path of a whole document), or
    is None if no content was requested. ``relevance`` says whether ``score`` is a search score.
    Otherwise it is a field value, or a function of field values.
    """

    key: bytes
    score: float
    content: list[tuple[bytes, bytes]] | None
    relevance: bool


def run_query(
    keyspace: Keyspace, index: SearchIndex, clause: Clause, query: Query
) -> tuple[list[Hit], int]:
    """Return the hits and the number of matches; raise `SearchError` for invalid options."""
    definition = index.definition
    markers = term_markers(definition, clause, query.highlight) if query.highlight else {}
    columns = _ranking_columns(index, query)
    found = clause.find(index)
    hits = []
    for number, score in _ranked(index, query, columns, found)[query.offset :]:
        key = index.documents[number].key
        content = None
        if not query.no_content:
            value = keyspace.values.get(key)
            source = source_of(definition.kind, value)
            if source is None:
                # The key was deleted or changed its type, and the index is not refreshed yet.
                continue
            if definition.kind == "HASH":
                content = list(_hash_content(source, query.select, markers))
            else:
                content = list(_json_content(source, value, query.select, markers))
        hits.append(Hit(key, score, content, query.order is None and query.function is None))
    return hits, len(found)


# -- order -----------------------------------------------------------------------------------------

_Ranked: TypeAlias = list[tuple[int, float]]
"""The numbers of documents with the score or field value that they are ordered by."""
_Column: TypeAlias = dict[int, tuple[Any, ...]]
_STEPS_PER_VALUE = 6
"""Budget steps for each field value that is read for a score function or for content."""
_WALK_RATIO = 10
"""From one in this many documents on, iterating over values is faster than sorting matches."""


def _ranking_columns(index: SearchIndex, query: Query) -> list[_Column]:
    """Return the fields that determine the order; raise `SearchError` for unsuitable fields."""
    if query.order is not None:
        return [index.column(query.order[0])]
    return [_numbers(index, each.field) for each in query.function.values] if query.function else []


def _numbers(index: SearchIndex, name: str) -> _Column:
    column = index.column(name)
    kind = index.definition.by_name[name].kind
    if not index.definition.by_name[name].is_number:
        raise SearchError(f"SCOREFUNC takes numeric fields: field '{name}' is of type {kind}")
    return column


def _ranked(index: SearchIndex, query: Query, columns: list[_Column], found: Matches) -> _Ranked:
    """Return the first matches, including those that the offset skips."""
    count = query.offset + query.limit
    if query.order is not None:
        return _by_field(index.values(query.order[0]), found, count, query.order[1])
    if query.function is not None:
        found = _apply(query.function, columns, found)
    spend(len(found))
    return heapq.nsmallest(count, found.items(), key=lambda match: (-match[1], match[0]))


def _apply(function: ScoreFunction, columns: list[_Column], found: Matches) -> Matches:
    spend(len(found) * len(columns) * _STEPS_PER_VALUE)
    scores = {}
    for number, relevance in found.items():
        values = [float(column[number][0]) if number in column else None for column in columns]
        scores[number] = function.score(relevance, values)
    return scores


def _by_field(postings: ValuePostings, found: Matches, count: int, ascending: bool) -> _Ranked:
    """Return the first matches by the value of a field. Documents without a value come last."""
    if len(found) * _WALK_RATIO > len(postings.of):
        ranked = _by_walking(postings, found, count, ascending)
    else:
        ranked = _by_sorting(postings, found, count, ascending)
    if len(ranked) < count:
        without = (number for number in found if number not in postings.of)
        ranked += [(number, 0.0) for number in heapq.nsmallest(count - len(ranked), without)]
    return ranked


def _by_sorting(postings: ValuePostings, found: Matches, count: int, ascending: bool) -> _Ranked:
    """Return the first matches by sorting them."""
    sign, values = 1 if ascending else -1, postings.of
    # Compare the values themselves, because large integers are not exact as floats.
    numbers = (number for number in found if number in values)
    ranked = heapq.nsmallest(count, numbers, key=lambda number: (sign * values[number][0], number))
    return [(number, float(values[number][0])) for number in ranked]


def _by_walking(postings: ValuePostings, found: Matches, count: int, ascending: bool) -> _Ranked:
    """Return the first matches by iterating over all values in order."""
    values = postings.order.all()
    ranked: _Ranked = []
    for value in values if ascending else reversed(values):
        documents = postings.numbers.get(value, ())
        here = (
            number for number in documents if number in found and postings.of[number][0] == value
        )
        ranked += [(number, float(value)) for number in sorted(here)]
        if len(ranked) >= count:
            break
    return ranked[:count]


# -- content ---------------------------------------------------------------------------------------


def _hash_content(
    source: dict[bytes, Any], select: tuple[str, ...] | None, markers: dict[str, TermMarker]
) -> Iterator[tuple[bytes, bytes]]:
    spend(_STEPS_PER_VALUE * len(select or ()))
    for name in source if select is None else map(encoded, select):
        if name in source:
            marker = markers.get(decoded(name))
            text = bytes(source[name])
            yield name, text if marker is None else encoded(marker.mark(decoded(text)))


def _json_content(
    source: dict[str, Any], value: Any, select: tuple[str, ...] | None,
    markers: dict[str, TermMarker],
) -> Iterator[tuple[bytes, bytes]]:  # fmt: skip
    spend(_STEPS_PER_VALUE * len(select or ()))
    if select is None and not markers and isinstance(value, bytes | bytearray):
        yield b"$", bytes(value)
        return
    document = highlight_document(source, markers) if markers else source
    if select is None:
        yield b"$", write_json(document)
        return
    for path in select:
        selected: Any = document
        for name in path.split("."):
            selected = selected.get(name) if isinstance(selected, dict) else None
        if isinstance(selected, str):
            yield encoded(path), selected.encode()
        elif selected is not None:
            yield encoded(path), write_json(selected)
