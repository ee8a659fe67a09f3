"""Metric aggregations, which compute one or a few numbers from the values of a field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....core.budget import spend
from ..index import SearchIndex
from .request import NUMERIC, Arguments, DocumentNumbers, column_of, format_number, is_number

_ANY = (*NUMERIC, "BOOL", "KEYWORD")
_PERCENTS = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)

_STEPS_PER_DOCUMENT = 3
_STEPS_PER_PERCENTILE = 20
Values = list[Any]
Metric = Callable[[DocumentNumbers], list[Any]]


def _values(
    index: SearchIndex, args: Arguments, allowed: tuple[str, ...]
) -> Callable[[DocumentNumbers], Values]:
    spec, column = column_of(index, args, allowed)
    take = args.take_string if spec.kind == "KEYWORD" else args.take_number
    missing = take("missing")
    absent = () if missing is None else (missing,)

    def collect(numbers: DocumentNumbers) -> Values:
        spend(_STEPS_PER_DOCUMENT * (1 + len(numbers)))
        return [value for at in numbers for value in column.get(at, absent)]

    return collect


def _single(
    make: Callable[[Values], float | None], allowed: tuple[str, ...]
) -> Callable[[SearchIndex, Arguments], Metric]:
    def build(index: SearchIndex, args: Arguments) -> Metric:
        collect = _values(index, args, allowed)
        return lambda numbers: [b"value", format_number(make(collect(numbers)))]

    return build


def _fsum(values: Iterable[float]) -> float:
    found = list(values)
    try:
        return math.fsum(found)
    except (OverflowError, ValueError):
        # The sum overflows or contains infinities of both signs: return that of plain addition.
        return sum(map(float, found))


def _average(values: Values) -> float | None:
    return _fsum(values) / len(values) if values else None


def _total(values: Values) -> float:
    return sum(values) if all(value.__class__ is int for value in values) else _fsum(values)


def _extreme(pick: Callable[[Values], Any]) -> Callable[[Values], float | None]:
    # The sign turns a boolean into an integer.
    return lambda values: +pick(values) if values else None


def _flat(numbers: Mapping[str, float | None]) -> list[Any]:
    """Return alternating names and formatted numbers, as in a reply."""
    return [part for name, one in numbers.items() for part in (name.encode(), format_number(one))]


def _stats_of(values: Values) -> list[Any]:
    least, most = (+min(values), +max(values)) if values else (None, None)
    others = {"sum": _total(values), "min": least, "max": most, "avg": _average(values)}
    return [b"count", len(values), *_flat(others)]


def _stats(index: SearchIndex, args: Arguments) -> Metric:
    collect = _values(index, args, (*NUMERIC, "BOOL"))
    return lambda numbers: _stats_of(collect(numbers))


def _extended(index: SearchIndex, args: Arguments) -> Metric:
    collect = _values(index, args, NUMERIC)
    sigma = float(args.take_number("sigma", 2.0))

    def compute(numbers: DocumentNumbers) -> list[Any]:
        values = collect(numbers)
        count, mean = len(values), _average(values)
        squares = _total([value * value for value in values]) if values else None
        spread = 0.0 if mean is None else _fsum((value - mean) * (value - mean) for value in values)
        population = spread / count if count else None
        sampling = spread / (count - 1) if count > 1 else None
        variances = {"": population, "Population": population, "Sampling": sampling}
        deviations = {
            kind: None if one is None else math.sqrt(one) for kind, one in variances.items()
        }
        bounds: dict[str, float | None] = {}
        for kind in ("", "Sampling", "Population"):
            deviation = deviations[kind]
            for side, sign in (("upper", 1), ("lower", -1)):
                bounds[side + kind] = (
                    None if mean is None or deviation is None else mean + sign * sigma * deviation
                )
        return [
            *_stats_of(values),
            *_flat({"sumOfSquares": squares}),
            *_flat({f"variance{kind}": one for kind, one in variances.items()}),
            *_flat({f"stdDeviation{kind}": one for kind, one in deviations.items()}),
            *(b"stdDeviationBounds", _flat(bounds)),
        ]

    return compute


def _percentile(ordered: Values, percent: float) -> float | None:
    if not ordered:
        return None
    rank = percent / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    part = rank - below
    return float(ordered[below] + (ordered[above] - ordered[below]) * part)


def _percentiles(index: SearchIndex, args: Arguments) -> Metric:
    collect = _values(index, args, NUMERIC)
    percents = args.take(
        "percents",
        "an array of numbers from 0 to 100",
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(is_number(one) and 0 <= one <= 100 for one in value)
        ),
        _PERCENTS,
    )
    keyed = args.take_flag("keyed", True)

    def compute(numbers: DocumentNumbers) -> list[Any]:
        ordered = sorted(collect(numbers))
        spend(_STEPS_PER_PERCENTILE * len(percents))
        found = [
            (float(percent), format_number(_percentile(ordered, percent))) for percent in percents
        ]
        if keyed:
            flat = [part for percent, value in found for part in (repr(percent).encode(), value)]
            return [b"values", flat]
        listed = [[b"key", format_number(percent), b"value", value] for percent, value in found]
        return [b"values", listed]

    return compute


METRICS: dict[str, Callable[[SearchIndex, Arguments], Metric]] = {
    "$avg": _single(_average, (*NUMERIC, "BOOL")),
    "$sum": _single(lambda values: _total(values) if values else None, (*NUMERIC, "BOOL")),
    "$min": _single(_extreme(min), (*NUMERIC, "BOOL")),
    "$max": _single(_extreme(max), (*NUMERIC, "BOOL")),
    "$count": _single(len, _ANY),
    "$cardinality": _single(lambda values: len(set(values)), _ANY),
    "$stats": _stats,
    "$extendedStats": _extended,
    "$percentiles": _percentiles,
}
"""Functions that build metrics, which are functions of document numbers."""
