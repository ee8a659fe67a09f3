"""Metric aggregations, and the arguments of all aggregations.

A metric is one or a few numbers computed from the values of a field. Arguments are parsed from JSON
and checked against the index's schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...core.budget import spend
from ..reply import Map
from .index import SearchIndex
from .schema import FieldSpec, SearchError

DocumentNumbers = list[int]
"""Document numbers, in indexing order."""
Compute: TypeAlias = Callable[[DocumentNumbers], list[Any]]
"""Returns the reply of an aggregation for the documents with these numbers."""

NUMERIC = ("U64", "I64", "F64", "DATE")
"""The types of fields with numeric values."""

REQUIRED: Any = object()
"""The default value that marks an argument as required."""


def format_number(value: float | int | None) -> bytes | None:
    """Format a number for a reply; whole floats below 1e16 have no point, and None stays None."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)
    return (str(value) if isinstance(value, int) else repr(value)).encode()


class Arguments:
    """The arguments of an aggregation, consumed by name. `reject_rest()` rejects those that are left."""

    def __init__(self, alias: str, operator: str, arguments: dict[str, Any]) -> None:
        self.alias = alias
        self.operator = operator
        self._arguments = dict(arguments)

    def error(self, text: str) -> SearchError:
        return SearchError(f"Aggregation '{self.alias}' operator '{self.operator}' {text}")

    def take(
        self, name: str, expected: str, accepts: Callable[[Any], bool], default: Any = None
    ) -> Any:
        """Consume an argument; raise an error if it is invalid, or required but missing."""
        if name not in self._arguments:
            if default is REQUIRED:
                raise self.error(f"is missing required '{name}' property")
            return default
        value = self._arguments.pop(name)
        if not accepts(value):
            raise self.error(f"takes {expected} as '{name}'")
        return value

    def take_count(self, name: str, default: int | None, minimum: int = 0) -> Any:
        """Consume an integer argument that must be at least ``minimum``."""
        return self.take(
            name,
            f"an integer of at least {minimum}",
            lambda value: value.__class__ is int and value >= minimum,
            default,
        )

    def take_string(self, name: str) -> Any:
        return self.take(name, "a string", lambda value: isinstance(value, str))

    def take_number(self, name: str, default: Any = None) -> Any:
        return self.take(name, "a number", is_number, default)

    def take_choice(self, name: str, words: tuple[str, ...]) -> Any:
        """Consume an argument that is one of some words, by default the first."""
        return self.take(name, " or ".join(words), lambda value: value in words, words[0])

    def take_flag(self, name: str, default: bool) -> Any:
        return self.take(name, "true or false", lambda value: isinstance(value, bool), default)

    def take_bounds(self, name: str) -> tuple[float, float] | None:
        """Consume an argument that is an object with the fields ``min`` and ``max``."""
        bounds = self.take(
            name,
            "an object of min and max",
            lambda value: (
                isinstance(value, dict)
                and value.keys() == {"min", "max"}
                and all(map(is_number, value.values()))
            ),
        )
        return None if bounds is None else (bounds["min"], bounds["max"])

    def reject_rest(self) -> None:
        if self._arguments:
            raise self.error(f"has no property '{next(iter(self._arguments))}'")


def is_number(value: Any) -> bool:
    return value.__class__ in (int, float)


def column_of(
    index: SearchIndex,
    args: Arguments,
    allowed: tuple[str, ...],
    always_fast: tuple[str, ...] = ("KEYWORD", "FACET"),
) -> tuple[FieldSpec, dict[int, tuple[Any, ...]]]:
    """Return the field of an aggregation and its values by document, or raise an error.

    ``always_fast`` are the types of fields that need no option FAST.
    """
    name = args.take_string("field")
    if name is None:
        # This is the vendor's error message.
        raise SearchError(f"Aggregation '{args.alias}' is missing required 'field' property")
    spec = index.definition.by_name.get(name)
    if spec is None:
        raise args.error(f"refers to unknown field '{name}'")
    if spec.kind not in allowed:
        raise SearchError(
            f"Aggregation '{args.alias}' field '{name}' of type {spec.kind} cannot be used with "
            f"{args.operator}"
        )
    if "FAST" not in spec.options and spec.kind not in always_fast:
        # This is the vendor's error message.
        raise args.error(f"requires field '{name}' to be FAST")
    return spec, index.values(name).of


Values = list[Any]


def _values(
    index: SearchIndex, args: Arguments, allowed: tuple[str, ...]
) -> Callable[[DocumentNumbers], Values]:
    spec, column = column_of(index, args, allowed)
    missing = (args.take_string if spec.kind == "KEYWORD" else args.take_number)("missing")
    absent = () if missing is None else (missing,)

    def collect(numbers: DocumentNumbers) -> Values:
        values = [value for at in numbers for value in column.get(at, absent)]
        # Buckets inside buckets can collect the same values many times.
        spend(len(values))
        return values

    return collect


def _metric(
    reply: Callable[[Values], list[Any]], allowed: tuple[str, ...]
) -> Callable[[SearchIndex, Arguments], Compute]:
    def build(index: SearchIndex, args: Arguments) -> Compute:
        collect = _values(index, args, allowed)
        return lambda numbers: reply(collect(numbers))

    return build


def _single(
    make: Callable[[Values], float | None], allowed: tuple[str, ...]
) -> Callable[[SearchIndex, Arguments], Compute]:
    return _metric(lambda values: [b"value", format_number(make(values))], allowed)


def _fsum(values: Values) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        # The sum overflows or contains infinities of both signs: return that of plain addition.
        return sum(map(float, values))


def _average(values: Values) -> float | None:
    return _fsum(values) / len(values) if values else None


def _total(values: Values) -> float:
    return sum(values) if all(value.__class__ is int for value in values) else _fsum(values)


def _sum(index: SearchIndex, args: Arguments) -> Compute:
    collect = _values(index, args, (*NUMERIC, "BOOL"))
    is_null_without_values = args.take_flag("nullIfNoMatch", False)

    def compute(numbers: DocumentNumbers) -> list[Any]:
        values = collect(numbers)
        is_null = is_null_without_values and not values
        return [b"value", None if is_null else format_number(_total(values))]

    return compute


def _extreme(pick: Callable[[Values], Any]) -> Callable[[Values], float | None]:
    # The sign turns a boolean into an integer.
    return lambda values: +pick(values) if values else None


def _flat(numbers: Mapping[str, float | None]) -> list[Any]:
    return [
        part for name, number in numbers.items() for part in (name.encode(), format_number(number))
    ]


def _stats(values: Values) -> list[Any]:
    least, most = (+min(values), +max(values)) if values else (None, None)
    others = {"sum": _total(values), "min": least, "max": most, "avg": _average(values)}
    return [b"count", len(values), *_flat(others)]


def _extended(index: SearchIndex, args: Arguments) -> Compute:
    collect = _values(index, args, NUMERIC)
    sigma = float(args.take_number("sigma", 2.0))

    def compute(numbers: DocumentNumbers) -> list[Any]:
        values = collect(numbers)
        count, mean = len(values), _average(values)
        squares = _total([value * value for value in values]) if values else None
        spread = (
            0.0 if mean is None else _fsum([(value - mean) * (value - mean) for value in values])
        )
        population = spread / count if count else None
        sampling = spread / (count - 1) if count > 1 else None
        variances = {"": population, "Population": population, "Sampling": sampling}
        deviations = {
            kind: None if number is None else math.sqrt(number)
            for kind, number in variances.items()
        }
        bounds: dict[str, float | None] = {}
        for kind in ("", "Sampling", "Population"):
            deviation = deviations[kind]
            for side, sign in (("upper", 1), ("lower", -1)):
                bounds[side + kind] = (
                    None if mean is None or deviation is None else mean + sign * sigma * deviation
                )
        return [
            *_stats(values),
            *_flat({"sumOfSquares": squares}),
            *_flat({f"variance{kind}": number for kind, number in variances.items()}),
            *_flat({f"stdDeviation{kind}": number for kind, number in deviations.items()}),
            *(b"stdDeviationBounds", Map(_flat(bounds))),
        ]

    return compute


def _percentile(ordered: Values, percent: float) -> float | None:
    if not ordered:
        return None
    rank = percent / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (rank - below))


def _percentiles(index: SearchIndex, args: Arguments) -> Compute:
    collect = _values(index, args, NUMERIC)
    percents = args.take(
        "percents",
        "an array of numbers from 0 to 100",
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(is_number(percent) and 0 <= percent <= 100 for percent in value)
        ),
        (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0),
    )
    keyed = args.take_flag("keyed", True)

    def compute(numbers: DocumentNumbers) -> list[Any]:
        ordered = sorted(collect(numbers))
        values: list[Any] = []
        for percent in map(float, percents):
            value = format_number(_percentile(ordered, percent))
            if keyed:
                values += [repr(percent).encode(), value]
            else:
                values.append(Map([b"key", format_number(percent), b"value", value]))
        return [b"values", Map(values) if keyed else values]

    return compute


METRICS: dict[str, Callable[[SearchIndex, Arguments], Compute]] = {
    "$avg": _single(_average, (*NUMERIC, "BOOL")),
    "$sum": _sum,
    "$min": _single(_extreme(min), (*NUMERIC, "BOOL")),
    "$max": _single(_extreme(max), (*NUMERIC, "BOOL")),
    "$count": _single(len, (*NUMERIC, "BOOL", "KEYWORD")),
    "$cardinality": _single(lambda values: len(set(values)), (*NUMERIC, "BOOL", "KEYWORD")),
    "$stats": _metric(_stats, (*NUMERIC, "BOOL")),
    "$extendedStats": _extended,
    "$percentiles": _percentiles,
}
"""Functions that build metrics, which are functions of document numbers."""
