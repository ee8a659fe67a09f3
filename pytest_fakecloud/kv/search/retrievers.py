"""Retrievers, which stand in the place of a filter: ``$standard``, ``$ann`` and ``$rrf``.

``$standard`` is a filter. ``$ann`` finds the documents whose text in a HYBRID field is nearest to a
text. ``$rrf`` merges the results of two to ten others: a document's score is the sum of ``weight /
(rankConstant + rank)`` over those that return it, with ranks from 1 (the vendor's documentation).

The vendor embeds text with a model, which its documentation does not name. Here it is embedded by
hashes of its words, as in the vector index: texts that share words are close, texts that mean the
same are not.

Decided here: the score of ``$ann`` is (1 + cos) / 2, and every profile is exact. A ``window`` also
limits the documents of SEARCH.COUNT and SEARCH.AGGREGATE, which without one take all. ``$ann`` and
``$rrf`` determine the order, so ORDERBY and SCOREFUNC are rejected; HIGHLIGHT marks words of full-text
queries only. No error message is documented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .clauses import Clause, Matches, best
from .filters import brief_json, filter_of, parse_object
from .index import SearchIndex
from .schema import Definition, FieldSpec, SearchError, embedding

RETRIEVERS = ("$standard", "$ann", "$rrf")
_PROFILES = ("fast", "balanced", "precise")
_MOST_RETRIEVERS = 10
_MOST_RANK_CONSTANT = 2**31 - 1
_RANK_CONSTANT = 60
_MOST_WINDOW = 11_000


@dataclass(frozen=True)
class Nearest(Clause):
    """Matches the ``count`` documents nearest to a text among those that match a filter."""

    spec: FieldSpec
    text: str
    count: int
    filter: Clause | None = None
    ranks = True

    def _matches(self, index: SearchIndex) -> Matches:
        table = index.vectors(self.spec.name)
        accept = None if self.filter is None else self.filter.find(index).__contains__
        return dict(table.nearest(embedding(self.text), self.count, accept))

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        """Return the reasons why a document cannot be returned; a distance is not among them."""
        if number not in index.vectors(self.spec.name):
            return [f"$ann: the document has no text in '{self.spec.name}' that could be embedded"]
        return [] if self.filter is None else self.filter.mismatches(index, number)

    def __str__(self) -> str:
        return f"{self.spec.name} $ann {brief_json(self.text)}"


@dataclass(frozen=True)
class Merged(Clause):
    """Matches the documents of several clauses, scored by their reciprocal ranks.

    ``window`` is the number of documents that are taken of each clause, and the most of all; None
    for all documents.
    """

    parts: tuple[tuple[Clause, float], ...]
    """The clauses with their weights."""
    rank_constant: int
    window: int | None
    ranks = True
    rounds_scores = False

    def _matches(self, index: SearchIndex) -> Matches:
        scores: Matches = {}
        for clause, weight in self.parts:
            for rank, (number, _) in enumerate(best(clause.find(index), self.window), 1):
                scores[number] = scores.get(number, 0.0) + weight / (self.rank_constant + rank)
        return dict(best(scores, self.window))

    def highlighted_terms(self) -> Iterator[tuple[str, str]]:
        for clause, _ in self.parts:
            yield from clause.highlighted_terms()

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        """Return the reasons of all clauses, or an empty list if any clause matches."""
        reasons = [clause.mismatches(index, number) for clause, _ in self.parts]
        return [why for part in reasons for why in part] if all(reasons) else []

    def __str__(self) -> str:
        return f"$rrf ({' or '.join(str(clause) for clause, _ in self.parts)})"


def parse_query(
    definition: Definition,
    text: bytes,
    limit: int | None = None,
    offset: int = 0,
    *,
    allows_ann: bool = True,
) -> Clause:
    """Parse a filter or a retriever; raise `SearchError` if it is invalid.

    ``limit`` and ``offset`` are those of SEARCH.QUERY.
    """
    parser = _ClauseParser(definition, limit, offset, allows_ann)
    query = parse_object(text, "filter")
    clause, weight = parser.retriever(query)
    if weight is not None:
        raise SearchError(f"{next(iter(query))} takes a weight only as a retriever of $rrf")
    return clause


class _ClauseParser:
    """Converts the parsed JSON of a query into clauses."""

    def __init__(
        self, definition: Definition, limit: int | None, offset: int, allows_ann: bool
    ) -> None:
        self._definition = definition
        self._limit = limit
        self._offset = offset
        self._allows_ann = allows_ann

    def retriever(self, query: dict[str, Any]) -> tuple[Clause, float | None]:
        """Return the clause of a filter or retriever, and its weight if it has one."""
        names = [name for name in RETRIEVERS if name in query]
        if not names:
            return filter_of(self._definition, query), None
        [name, *_] = names
        if len(query) > 1:
            raise SearchError(f"{name} must be the only key of its object")
        if not isinstance(query[name], dict):
            raise SearchError(f"{name} takes an object; got {brief_json(query[name])}")
        properties = _Properties(name, query[name])
        if name == "$rrf":
            clause = self._merged(properties, self._limit)
            weight = None
        else:
            clause = (
                self._standard(properties) if name == "$standard" else self._nearest(properties)
            )
            weight = properties.take("weight", "a number of at least 0", _is_weight)
        properties.reject_rest()
        return clause, weight

    def _standard(self, properties: _Properties) -> Clause:
        query = properties.take("query", "an object", _is_object, required=True)
        return filter_of(self._definition, query)

    def _nearest(self, properties: _Properties) -> Clause:
        if not self._allows_ann:
            raise SearchError("$ann is allowed only in SEARCH.QUERY")
        name = properties.take("field", "the name of a HYBRID field", _is_text, required=True)
        spec = self._definition.by_name.get(name)
        if spec is None:
            raise SearchError(f"Unknown field: {name}")
        if spec.kind != "HYBRID":
            raise SearchError(f"$ann takes a HYBRID field: field '{name}' is of type {spec.kind}")
        text = properties.take("query", "a text that is not empty", _is_text, required=True)
        properties.take("profile", " or ".join(_PROFILES), _PROFILES.__contains__)
        query = properties.take("filter", "an object", _is_object)
        condition = None if query is None else filter_of(self._definition, query)
        return Nearest(spec, text, self._offset + (self._limit or 0), condition)

    def _merged(self, properties: _Properties, limit: int | None) -> Clause:
        queries = properties.take(
            "retrievers",
            f"an array of 2 to {_MOST_RETRIEVERS} objects",
            lambda value: (
                isinstance(value, list)
                and 2 <= len(value) <= _MOST_RETRIEVERS
                and all(map(_is_object, value))
            ),
            required=True,
        )
        rank_constant = properties.take_integer("rankConstant", _MOST_RANK_CONSTANT)
        window = properties.take_integer("window", _MOST_WINDOW) or limit
        # Each retriever returns a window of documents from the first one on.
        inner = _ClauseParser(self._definition, window, 0, self._allows_ann)
        parts = []
        for query in queries:
            if "$rrf" in query:
                raise SearchError("$rrf cannot be a retriever of another $rrf")
            clause, weight = inner.retriever(query)
            parts.append((clause, 1.0 if weight is None else float(weight)))
        return Merged(tuple(parts), rank_constant or _RANK_CONSTANT, window)


class _Properties:
    """The properties of a retriever, consumed by name."""

    def __init__(self, retriever: str, properties: dict[str, Any]) -> None:
        self._retriever = retriever
        self._properties = dict(properties)

    def take(
        self, name: str, expected: str, accepts: Callable[[Any], bool], *, required: bool = False
    ) -> Any:
        """Consume a property; raise an error if it is invalid, or required but missing."""
        if name not in self._properties and not required:
            return None
        value = self._properties.pop(name, None)
        if not accepts(value):
            raise SearchError(
                f"{self._retriever} takes {expected} as '{name}'; got {brief_json(value)}"
            )
        return value

    def take_integer(self, name: str, most: int) -> Any:
        return self.take(
            name,
            f"an integer from 1 to {most}",
            lambda value: value.__class__ is int and 1 <= value <= most,
        )

    def reject_rest(self) -> None:
        if self._properties:
            raise SearchError(f"{self._retriever} has no property '{next(iter(self._properties))}'")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_weight(value: Any) -> bool:
    return value.__class__ in (int, float) and value >= 0
