"""Runs queries: selects, scores and orders documents, formats and highlights their content."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ...core.budget import spend
from ..engine.keyspace import Keyspace
from ..syntax import decoded, encoded
from ..values.json import copy_json, write_json
from .clauses import Clause, Matches, best
from .index import SearchIndex, ValuePostings
from .schema import Analyzer, Definition, SearchError, array_in, source_of, spans

MODIFIERS: Mapping[str, Callable[[float], float]] = {
    "NONE": lambda x: x,
    "LOG": math.log10,
    "LOG1P": lambda x: math.log10(1 + x),
    "LOG2P": lambda x: math.log10(2 + x),
    "LN": math.log,
    "LN1P": lambda x: math.log(1 + x),
    "LN2P": lambda x: math.log(2 + x),
    "SQUARE": lambda x: x * x,
    "SQRT": math.sqrt,
    "RECIPROCAL": lambda x: 1 / x,
}


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A ``FIELDVALUE`` of SCOREFUNC: a numeric field, and a modifier for its value."""

    field: str
    modifier: str = "NONE"
    factor: float = 1.0
    missing: float = 0.0

    def of(self, value: float | None) -> float:
        """Apply the modifier and the factor to a value or, if that fails, to ``missing``."""
        for candidate in (self.missing,) if value is None else (value, self.missing):
            try:
                modified = MODIFIERS[self.modifier](float(candidate))
            except (ValueError, ZeroDivisionError, OverflowError):
                continue
            if math.isfinite(modified):
                return modified * self.factor
        return self.missing * self.factor


@dataclass(frozen=True, slots=True)
class ScoreFunction:
    """A SCOREFUNC, which computes a score from field values.

    ``combine`` (SUM or MULTIPLY) combines several field values. ``mode`` (SUM, MULTIPLY or REPLACE)
    combines the result with the relevance score. Both default to SUM (decided here: the vendor's
    reference says SUM, the guide says MULTIPLY).
    """

    values: tuple[FieldValue, ...]
    mode: str = "SUM"
    combine: str = "SUM"

    def score(self, relevance: float, values: list[float | None]) -> float:
        """Return the score of a document, given one value for each of ``self.values``."""
        parts = [
            field_value.of(value) for field_value, value in zip(self.values, values, strict=True)
        ]
        own = math.prod(parts) if self.combine == "MULTIPLY" else sum(parts)
        if self.mode == "REPLACE":
            return own
        return relevance * own if self.mode == "MULTIPLY" else relevance + own


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """The options of SEARCH.QUERY; ``order`` is a fast field and whether the order is ascending.

    ``highlight`` are the fields in which matching words are put between the ``tags``.
    """

    limit: int = 10
    offset: int = 0
    order: tuple[str, bool] | None = None
    select: tuple[str, ...] | None = None
    no_content: bool = False
    highlight: tuple[str, ...] = ()
    tags: tuple[str, str] = ("<em>", "</em>")
    function: ScoreFunction | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching document, with pairs of a path and its JSON.

    The score of a search is written as a 32-bit float, that of an option or a retriever may not be.
    """

    key: bytes
    score: float
    content: list[tuple[bytes, bytes]] | None
    rounds_score: bool


def run_query(
    keyspace: Keyspace, index: SearchIndex, clause: Clause, query: SearchQuery
) -> tuple[list[Hit], int]:
    """Return the hits and the number of matches; raise `SearchError` for invalid options."""
    definition = index.definition
    markers = _markers(definition, clause, query) if query.highlight else {}
    # Raise errors for fields that cannot determine the order before the clause is evaluated.
    columns: list[_Column] = []
    if query.order is not None:
        columns = [index.column(query.order[0])]
    elif query.function is not None:
        columns = [_numbers(index, field_value.field) for field_value in query.function.values]
    if clause.ranks and (query.order is not None or query.function is not None):
        raise SearchError(f"{clause} cannot be combined with ORDERBY or SCOREFUNC")
    rounds_scores = clause.rounds_scores and query.order is None and query.function is None
    matches = clause.find(index)
    hits = []
    for number, score in _ranked(index, query, columns, matches)[query.offset :]:
        spend(_STEPS_PER_VALUE * len(query.select or ()))
        key = index.documents[number].key
        content = None
        if not query.no_content:
            value = index.value_of(keyspace, key)
            source = source_of(definition.kind, value)
            if source is None:
                # The key was deleted or changed its type, and the index is not refreshed yet.
                continue
            if definition.kind in ("HASH", "STREAM"):
                content = list(_hash_content(source, query.select, markers))
            else:
                content = list(_json_content(source, value, query.select, markers))
        hits.append(Hit(key, score, content, rounds_scores))
    return hits, len(matches)


_Ranked: TypeAlias = list[tuple[int, float]]
"""The numbers of documents with the score or field value that they are ordered by."""
_Column: TypeAlias = dict[int, tuple[Any, ...]]
_STEPS_PER_VALUE = 10
_WALK_RATIO = 10
"""From one in this many documents on, iterating over values is faster than sorting matches."""


def _numbers(index: SearchIndex, name: str) -> _Column:
    column = index.column(name)
    spec = index.definition.by_name[name]
    if not spec.is_number:
        raise SearchError(f"SCOREFUNC takes numeric fields: field '{name}' is of type {spec.kind}")
    return column


def _ranked(
    index: SearchIndex, query: SearchQuery, columns: list[_Column], matches: Matches
) -> _Ranked:
    count = query.offset + query.limit
    if query.order is not None:
        return _by_field(index.values(query.order[0]), matches, count, query.order[1])
    scores = matches
    if query.function is not None:
        spend(_STEPS_PER_VALUE * len(columns) * len(matches))
        scores = {}
        for number, relevance in matches.items():
            values = [float(column[number][0]) if number in column else None for column in columns]
            scores[number] = query.function.score(relevance, values)
    return best(scores, count)


def _by_field(postings: ValuePostings, matches: Matches, count: int, ascending: bool) -> _Ranked:
    """Return the first matches by the value of a field. Documents without a value come last."""
    walks = len(matches) * _WALK_RATIO > len(postings.of)
    ranked = (_by_walking if walks else _by_sorting)(postings, matches, count, ascending)
    if len(ranked) < count:
        without = (number for number in matches if number not in postings.of)
        ranked += [(number, 0.0) for number in heapq.nsmallest(count - len(ranked), without)]
    return ranked


def _by_sorting(postings: ValuePostings, matches: Matches, count: int, ascending: bool) -> _Ranked:
    values = postings.of
    # Compare the values themselves, because large integers are not exact as floats.
    numbers = [number for number in matches if number in values]
    if ascending:
        ranked = heapq.nsmallest(count, numbers, key=lambda number: (values[number][0], number))
    else:
        ranked = heapq.nlargest(count, numbers, key=lambda number: (values[number][0], -number))
    return [(number, _order_score(values[number][0])) for number in ranked]


def _order_score(value: Any) -> float:
    """Return the score of a hit that is ordered by a value: the value itself.

    Decided here: the score of a hit that is ordered by a string is 0.
    """
    return 0.0 if isinstance(value, str) else float(value)


def _by_walking(postings: ValuePostings, matches: Matches, count: int, ascending: bool) -> _Ranked:
    values = postings.in_order()
    ranked: _Ranked = []
    for value in values if ascending else reversed(values):
        documents = postings.numbers[value]
        having = (
            number for number in documents if number in matches and postings.of[number][0] == value
        )
        ranked += [(number, _order_score(value)) for number in sorted(having)]
        if len(ranked) >= count:
            break
    return ranked[:count]


def _hash_content(
    source: dict[bytes, Any], select: tuple[str, ...] | None, markers: _Markers
) -> Iterator[tuple[bytes, bytes]]:
    for name in source if select is None else map(encoded, select):
        if name in source:
            mark = markers.get(decoded(name))
            text = bytes(source[name])
            yield name, text if mark is None else _marked_string(decoded(text), mark)


def _marked_string(text: str, mark: Callable[[str], str]) -> bytes:
    """Highlight a string of a hash or stream or, if it is a JSON array, the strings in it."""
    items = array_in(text)
    if items is None:
        return encoded(mark(text))
    marked = _highlight_at_path(copy_json(items), [], mark)
    return encoded(text) if marked == items else write_json(marked)


def _json_content(
    source: dict[str, Any], value: Any, select: tuple[str, ...] | None, markers: _Markers
) -> Iterator[tuple[bytes, bytes]]:
    if select is None and not markers and isinstance(value, bytes | bytearray):
        yield b"$", bytes(value)
        return
    document = copy_json(source) if markers else source
    for path, mark in markers.items():
        _highlight_at_path(document, path.split("."), mark)
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


_Markers: TypeAlias = dict[str, Callable[[str], str]]
"""For paths of fields in a document, functions that put tags around the words of a text."""


def _marked(analyzer: Analyzer, terms: set[str], tags: tuple[str, str], text: str) -> str:
    """Put tags around the words of a text whose tokens are among the given terms."""
    opening, closing = tags
    if analyzer.whole:
        return f"{opening}{text}{closing}" if text in terms else text
    parts, last = [], 0
    for start, end in spans(text):
        word = text[start:end]
        if analyzer.token(word) in terms:
            parts += [text[last:start], opening, word, closing]
            last = end
    return "".join([*parts, text[last:]])


def _markers(definition: Definition, clause: Clause, query: SearchQuery) -> _Markers:
    terms: dict[str, set[str]] = {}
    for name, term in clause.highlighted_terms():
        terms.setdefault(name, set()).add(term)
    markers: _Markers = {}
    for name in query.highlight:
        spec = definition.by_name.get(name)
        if spec is None:
            raise SearchError(f"Unknown field: {name}")
        if spec.is_text and name in terms:
            analyzer = definition.analyzer(spec)
            markers[spec.path] = partial(_marked, analyzer, terms[name], query.tags)
    return markers


def _highlight_at_path(value: Any, path: list[str], mark: Callable[[str], str]) -> Any:
    """Highlight the strings at a path and return the result. Containers are changed in place."""
    if isinstance(value, list):
        value[:] = [_highlight_at_path(item, path, mark) for item in value]
    elif path:
        name, *rest = path
        if isinstance(value, dict) and name in value:
            value[name] = _highlight_at_path(value[name], rest, mark)
    elif isinstance(value, str):
        return mark(value)
    return value
