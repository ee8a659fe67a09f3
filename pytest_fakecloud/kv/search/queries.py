"""Runs queries: selects the matching documents, orders them and formats their content."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.budget import spend
from ..table.syntax import decoded, encoded
from ..values.json import copy_json, write_json
from .analysis import Analyzer, spans
from .clauses import Clause, Matches
from .documents import source_of
from .index import SearchIndex
from .postings import ValuePostings
from .schema import FieldSpec, SearchError
from .scoring import ScoreFunction

if TYPE_CHECKING:
    from ..engine.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class Highlight:
    """The fields in which matching words are highlighted, and the tags to put around the words."""

    fields: tuple[str, ...]
    tags: tuple[str, str] = ("<em>", "</em>")


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
    if query.highlight is not None:
        for name in query.highlight.fields:
            if name not in index.definition.by_name:
                raise SearchError(f"Unknown field: {name}")
    rank = _ranking(index, query)
    found = clause.find(index)
    ranked = rank(found, query.offset + query.limit)[query.offset :]
    show = _shower(index, clause, query)
    hits = []
    for number, score in ranked:
        key = index.documents[number].key
        content = None
        if show is not None:
            source = source_of(index.definition.kind, keyspace.values.get(key))
            if source is None:
                # The key was deleted or has another type now, and the index has not processed the
                # change.
                continue
            content = show(source, keyspace.values[key])
        hits.append(Hit(key, score, content, query.order is None and query.function is None))
    return hits, len(found)


# -- order -----------------------------------------------------------------------------------------

_Ranked = list[tuple[int, float]]
_STEPS_A_VALUE = 6
"""Budget steps for each field value that a score function reads."""
_WALKED = 10
"""From one in this many documents on, iterating over values is faster than sorting matches."""


def _ranking(index: SearchIndex, query: Query) -> Callable[[Matches, int], _Ranked]:
    if query.order is not None:
        return _by_field(index, *query.order)
    if query.function is not None:
        function = query.function
        columns = [_numbers(index, each.field) for each in function.values]

        def score(found: Matches) -> Matches:
            spend(len(found) * len(columns) * _STEPS_A_VALUE)
            return {
                number: function.score(
                    relevance, [_first(column.get(number)) for column in columns]
                )
                for number, relevance in found.items()
            }

        return lambda found, count: _best(score(found), count)
    return _best


def _best(found: Matches, count: int) -> _Ranked:
    spend(len(found))
    return heapq.nsmallest(count, found.items(), key=lambda pair: (-pair[1], pair[0]))


def _by_field(index: SearchIndex, name: str, up: bool) -> Callable[[Matches, int], _Ranked]:
    column = index.column(name)

    def rank(found: Matches, count: int) -> _Ranked:
        if len(found) * _WALKED > len(column):
            ranked = _walk(index.values(name), found, count, up)
        else:
            ranked = _sort(found, count)
        if len(ranked) < count:
            without = (number for number in found if number not in column)
            ranked += [(number, 0.0) for number in heapq.nsmallest(count - len(ranked), without)]
        return ranked

    def _sort(found: Matches, count: int) -> _Ranked:
        having = ((float(column[number][0]), number) for number in found if number in column)
        if up:
            first = heapq.nsmallest(count, having)
        else:
            first = heapq.nsmallest(count, having, key=lambda pair: (-pair[0], pair[1]))
        return [(number, value) for value, number in first]

    return rank


def _walk(postings: ValuePostings, found: Matches, count: int, up: bool) -> _Ranked:
    """Return the first matches by iterating over all values in order."""
    values = postings.order.all()
    ranked: _Ranked = []
    for value in values if up else reversed(values):
        numbers = postings.numbers.get(value, ())
        here = (at for at in numbers if at in found and postings.of[at][0] == value)
        ranked += [(at, float(value)) for at in sorted(here)]
        if len(ranked) >= count:
            break
    return ranked[:count]


def _numbers(index: SearchIndex, name: str) -> dict[int, tuple[Any, ...]]:
    column = index.column(name)
    if not index.definition.by_name[name].is_number:
        kind = index.definition.by_name[name].kind
        raise SearchError(f"SCOREFUNC takes numeric fields: field '{name}' is of type {kind}")
    return column


def _first(values: tuple[Any, ...] | None) -> float | None:
    return None if values is None else float(values[0])


# -- content ---------------------------------------------------------------------------------------

_Show = Callable[[dict[Any, Any], Any], list[tuple[bytes, bytes]]]


def _shower(index: SearchIndex, clause: Clause, query: Query) -> _Show | None:
    if query.no_content:
        return None
    marks = _marks(index, clause, query.highlight) if query.highlight is not None else {}
    select = query.select
    is_hash = index.definition.kind == "HASH"

    def show(source: dict[Any, Any], value: Any) -> list[tuple[bytes, bytes]]:
        spend(_STEPS_A_VALUE * len(select or ()))
        if is_hash:
            return list(_hash_content(source, select, marks))
        if select is None:
            if not marks:
                whole = bytes(value) if isinstance(value, bytes | bytearray) else write_json(source)
                return [(b"$", whole)]
            return [(b"$", write_json(_marked_document(source, marks)))]
        return list(_selected(_marked_document(source, marks) if marks else source, select))

    return show


def _hash_content(
    source: dict[bytes, Any], select: tuple[str, ...] | None, marks: dict[str, _Marker]
) -> Iterator[tuple[bytes, bytes]]:
    names = source if select is None else [encoded(path) for path in select]
    for name in names:
        if name not in source:
            continue
        text = bytes(source[name])
        marker = marks.get(decoded(name))
        if marker is not None:
            text = encoded(marker(decoded(text)))
        yield name, text


def _selected(source: dict[str, Any], select: tuple[str, ...]) -> Iterator[tuple[bytes, bytes]]:
    for path in select:
        value: Any = source
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str):
            yield encoded(path), value.encode()
        elif value is not None:
            yield encoded(path), write_json(value)


# -- highlighting ----------------------------------------------------------------------------------


class _Marker:
    """Puts tags around the words of a text whose tokens are among the given terms."""

    def __init__(self, analyzer: Analyzer, terms: set[str], tags: tuple[str, str]) -> None:
        self._analyzer = analyzer
        self._terms = terms
        self._tags = tags

    def __call__(self, text: str) -> str:
        opening, closing = self._tags
        if self._analyzer.whole:
            return f"{opening}{text}{closing}" if text in self._terms else text
        parts, last = [], 0
        for start, end in spans(text):
            word = text[start:end]
            if self._analyzer.token(word) in self._terms:
                parts += [text[last:start], opening, word, closing]
                last = end
        return "".join([*parts, text[last:]])


def _marks(index: SearchIndex, clause: Clause, highlight: Highlight) -> dict[str, _Marker]:
    terms: dict[str, set[str]] = {}
    for name, term in clause.marks():
        terms.setdefault(name, set()).add(term)
    found = {}
    for name in highlight.fields:
        spec: FieldSpec = index.definition.by_name[name]
        if spec.is_text and name in terms:
            analyzer = index.definition.analyzer(spec)
            found[spec.path] = _Marker(analyzer, terms[name], highlight.tags)
    return found


def _marked_document(source: dict[str, Any], marks: dict[str, _Marker]) -> dict[str, Any]:
    document: dict[str, Any] = copy_json(source)
    for path, marker in marks.items():
        _mark(document, path.split("."), marker)
    return document


def _mark(parent: Any, steps: list[str], marker: _Marker) -> Any:
    """Highlight the strings at a path and return the result. Containers are changed in place."""
    if isinstance(parent, list):
        parent[:] = [_mark(item, steps, marker) for item in parent]
    elif steps:
        if isinstance(parent, dict) and steps[0] in parent:
            parent[steps[0]] = _mark(parent[steps[0]], steps[1:], marker)
    elif isinstance(parent, str):
        return marker(parent)
    return parent
