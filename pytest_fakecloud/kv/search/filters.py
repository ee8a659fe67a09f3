"""Parses filters from JSON into clauses.

``{}`` matches every document. The fields of an object are combined with AND. ``$must`` (or
``$and``), ``$should`` (or ``$or``) and ``$mustNot`` take an object or an array of objects.
``$should`` alone means OR. Next to ``$must`` or fields, it only adds to the score. ``$mustNot``
alone matches nothing. Each of them can have a ``$boost``. Unknown operators are rejected.

Error messages are decided here, except those marked as the vendor's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..algorithms.linear_regex import LinearRegex, RegexError
from ..values.json import JsonError, parse_json
from .clauses import (
    AllOf,
    AnyOf,
    Clause,
    Equal,
    Everything,
    Fuzzy,
    InRange,
    Nothing,
    Operator,
    Phrase,
    Regex,
)
from .schema import FROM_JSON, RANGED, Definition, FieldSpec, SearchError

_BOOLEAN = {"$must": "must", "$and": "must", "$should": "should", "$or": "should",
            "$mustNot": "must_not"}  # fmt: skip
_RANGES = ("$gt", "$gte", "$lt", "$lte")


def parse_object(text: bytes, what: str) -> dict[str, Any]:
    """Parse an argument as a JSON object; raise `SearchError` if it is something else."""
    try:
        value = parse_json(text)
    except JsonError as error:
        raise SearchError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SearchError(f"{what} must be a JSON object")
    return value


def filter_of(definition: Definition, parsed: dict[str, Any]) -> Clause:
    """Convert the parsed JSON of a filter into clauses; raise `SearchError` if it is invalid."""
    return _Reader(definition).level(parsed)


class _Reader:
    """Converts the parsed JSON of a filter into clauses, according to an index's definition."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition

    def level(self, query: dict[str, Any]) -> Clause:
        parts: dict[str, list[Clause]] = {}
        if "$and" in query and "$or" in query:
            raise SearchError("$and and $or cannot be siblings: nest one in the other")
        for key, value in query.items():
            if key in _BOOLEAN:
                parts.setdefault(_BOOLEAN[key], []).extend(self._conditions(key, value))
            elif key != "$boost":
                parts.setdefault("must", []).append(self._field(key, value))
        return _boosted(_joined(parts), query)

    def _conditions(self, word: str, value: Any) -> list[Clause]:
        if isinstance(value, list):
            for item in value:
                if not isinstance(item, dict):
                    raise _wrong(word, "objects", item)
            return [*map(self.level, value)]
        if not isinstance(value, dict):
            raise SearchError(f"{word} takes an object or an array of objects")
        if any(key in _BOOLEAN for key in value):
            return [self.level(value)]
        # Each field of the object becomes a separate condition.
        _boost_of(value)  # Raise an error for an invalid boost, even if there are no fields.
        fields = {key: item for key, item in value.items() if key != "$boost"}
        return [_boosted(self._field(key, item), value) for key, item in fields.items()]

    def _field(self, name: str, value: Any) -> Clause:
        if name.startswith("$"):
            raise SearchError(f"Unknown operator: {name}")
        spec = self.definition.by_name.get(name)
        if spec is None:
            raise SearchError(f"Unknown field: {name}")
        if not isinstance(value, dict):
            return self._operator(spec, "$smart" if spec.is_text else "$eq", value)
        clauses = [
            self._operator(spec, operator, operand)
            for operator, operand in value.items()
            if operator not in (*_RANGES, "$boost")
        ]
        ranges = {word: value[word] for word in _RANGES if word in value}
        if ranges:
            clauses.append(self._range(spec, ranges))
        if not clauses:
            raise SearchError(
                f"field '{name}' has no operator: pass a value, or an operator such as $eq"
            )
        return _boosted(_all(clauses), value)

    def _operator(self, spec: FieldSpec, operator: str, operand: Any) -> Clause:
        if operator not in ("$eq", "$in", *_TEXT_OPERATORS):
            raise SearchError(f"Unknown field operator: {operator}")
        description = f"{spec.name} {operator} {brief_json(operand)}"
        boosted: dict[str, Any] = {}
        if isinstance(operand, dict):
            # Only operators of text can have a boost. The others reject objects below.
            boosted = operand
            operand = {key: item for key, item in operand.items() if key != "$boost"}
        if operator == "$in":
            if not isinstance(operand, list):
                raise SearchError(f"$in of field '{spec.name}' takes an array")
            items = tuple(self._equal(spec, item) for item in operand)
            any_item = AnyOf(items) if items else Nothing("an empty $in matches nothing")
            return Operator(any_item, description)
        if operator == "$eq" or (operator == "$smart" and not spec.is_text):
            return Operator(self._equal(spec, operand), description)
        if not spec.is_text:
            raise _unsupported(operator, spec)
        clause = _TEXT_OPERATORS[operator](self, spec, operand)
        return Operator(clause, description, _boost_of(boosted))

    def _equal(self, spec: FieldSpec, operand: Any) -> Clause:
        if spec.is_text:
            return self._phrase_of(spec, _string(spec, "$eq", operand))
        return Equal(spec, _typed(spec, operand))

    def _range(self, spec: FieldSpec, ranges: dict[str, Any]) -> Clause:
        if spec.kind not in RANGED:
            raise _unsupported(next(iter(ranges)), spec)
        bounds = {word: _typed(spec, operand) for word, operand in ranges.items()}
        operators = ", ".join(f"{word} {brief_json(operand)}" for word, operand in ranges.items())
        return Operator(InRange(spec, bounds), f"{spec.name} {operators}")

    def _tokens(self, spec: FieldSpec, text: str) -> tuple[str | None, ...]:
        return self.definition.analyzer(spec).tokens(text)

    def _phrase_of(self, spec: FieldSpec, text: str, slop: int = 0, prefix: bool = False) -> Clause:
        return Phrase(spec, self._tokens(spec, text), slop, prefix)

    def phrase(self, spec: FieldSpec, operand: Any) -> Clause:
        text, options = _options(spec, "$phrase", operand, {"slop": 0, "prefix": False})
        if isinstance(operand, dict) and {"slop", "prefix"} <= operand.keys():
            raise SearchError(f"$phrase of field '{spec.name}' takes slop or prefix, not both")
        return self._phrase_of(spec, text, **options)

    def fuzzy(self, spec: FieldSpec, operand: Any) -> Clause:
        defaults = {"distance": 1, "transpositionCostOne": True, "prefix": False}
        text, options = _options(spec, "$fuzzy", operand, defaults)
        distance, cheap_swap, prefix = (options[name] for name in defaults)
        if distance > 2:
            raise SearchError(f"$fuzzy of field '{spec.name}' takes a distance of at most 2")
        words = [token for token in self._tokens(spec, text) if token is not None]
        if not words:
            return Nothing("no terms are left after analysis")
        return _all([Fuzzy(spec, word, distance, cheap_swap, prefix) for word in words])

    def regex(self, spec: FieldSpec, operand: Any) -> Clause:
        pattern = _string(spec, "$regex", operand)
        try:
            expression = LinearRegex(pattern, ignore_case=True, tantivy=True)
        except RegexError as error:
            raise SearchError(f"the regular expression of field '{spec.name}' {error}") from None
        return Regex(spec, pattern, expression)

    def smart(self, spec: FieldSpec, operand: Any) -> Clause:
        text = _string(spec, "$smart", operand)
        stripped = text.strip()
        if len(stripped) > 1 and stripped[0] == stripped[-1] == '"':
            return self._phrase_of(spec, stripped[1:-1])
        tokens = self._tokens(spec, text)
        words = [token for token in tokens if token is not None]
        weighed: list[tuple[Clause, float]]  # with a boost (decided here)
        if len(words) < 2:
            weighed = [(Phrase(spec, tokens), 4.0)]
            weighed += [(Fuzzy(spec, word), 1.0) for word in words]
            weighed += [(Fuzzy(spec, word, prefix=True), 1.0) for word in words]
        else:
            weighed = [(Phrase(spec, tokens), 8.0), (Phrase(spec, tokens, slop=2), 4.0)]
            weighed += [(Phrase(spec, [word]), 2.0) for word in words]
            weighed += [(Fuzzy(spec, word), 1.0) for word in words]
            weighed += [(Fuzzy(spec, words[-1], prefix=True), 1.0)]
        return AnyOf(tuple(Operator(clause, boost=factor) for clause, factor in weighed))


_TEXT_OPERATORS: dict[str, Callable[[_Reader, FieldSpec, Any], Clause]] = {
    "$smart": _Reader.smart,
    "$phrase": _Reader.phrase,
    "$fuzzy": _Reader.fuzzy,
    "$regex": _Reader.regex,
}


def _joined(parts: dict[str, list[Clause]]) -> Clause:
    must, should, must_not = (tuple(parts.get(name, ())) for name in ("must", "should", "must_not"))
    if not parts:
        return Everything()
    if "must" in parts:
        must = must or (Everything(),)
    elif "should" in parts:
        must, should = (AnyOf(should),), ()
    if must:
        return AllOf(must, should, must_not) if should or must_not else _all(must)
    return Nothing("$mustNot alone matches nothing; add a condition that documents must match")


def _all(clauses: Sequence[Clause]) -> Clause:
    return clauses[0] if len(clauses) == 1 else AllOf(tuple(clauses))


def _boost_of(query: dict[str, Any]) -> float | None:
    if "$boost" not in query:
        return None
    boost = query["$boost"]
    if boost.__class__ not in (int, float):
        raise _wrong("$boost", "a number", boost)
    return float(boost)


def _boosted(clause: Clause, query: dict[str, Any]) -> Clause:
    boost = _boost_of(query)
    return clause if boost is None else Operator(clause, boost=boost)


_OPERANDS = {
    "TEXT": "a string",
    "KEYWORD": "a string",
    "BOOL": "true or false",
    "DATE": "an RFC 3339 string such as '2026-01-31T12:00:00Z'",
    "FACET": "a path such as '/a/b'",
}
"""The operands that fields of each type take; all other types take numbers."""


def _typed(spec: FieldSpec, operand: Any) -> Any:
    # An operand for a number field can have any size, unlike the values of the field.
    if spec.is_number:
        value = operand if operand.__class__ in (int, float) else None
    else:
        value = FROM_JSON[spec.kind](operand)
    if value is not None:
        return value
    where = f"field '{spec.name}' is of type {spec.kind} and"
    if spec.kind == "FACET":
        # The start of the message is the vendor's, as reported by users.
        where = f"Couldn't parse the value as facet path: field '{spec.name}'"
    raise _wrong(where, _OPERANDS.get(spec.kind, "a number"), operand)


def _string(spec: FieldSpec, operator: str, operand: Any) -> str:
    if not isinstance(operand, str):
        raise _wrong(f"{operator} of {spec.kind} field '{spec.name}'", "a string", operand)
    return operand


def _options(
    spec: FieldSpec, operator: str, operand: Any, defaults: dict[str, int]
) -> tuple[str, dict[str, Any]]:
    """Return the text of an operator (the operand or its ``value``), and the operator's options."""
    options = dict(operand) if isinstance(operand, dict) else {"value": operand}
    text = options.pop("value", None)
    for name, value in options.items():
        if name not in defaults:
            raise SearchError(
                f"{operator} of field '{spec.name}' has no option '{name}'; its options are "
                f"{', '.join(('value', *defaults))}"
            )
        kind = type(defaults[name])
        if type(value) is not kind or value < 0:
            expected = "true or false" if kind is bool else "a non-negative integer"
            raise _wrong(f"{name} in {operator} of field '{spec.name}'", expected, value)
    return _string(spec, operator, text), {**defaults, **options}


def _unsupported(operator: str, spec: FieldSpec) -> SearchError:
    return SearchError(f"Operator '{operator}' is not supported on {spec.kind} field '{spec.name}'")


def _wrong(where: str, expected: str, value: Any) -> SearchError:
    return SearchError(f"{where} takes {expected}; got {brief_json(value)}")


def brief_json(value: Any) -> str:
    """Return a value as JSON for a message, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
