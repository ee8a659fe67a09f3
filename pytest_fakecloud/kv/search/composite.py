"""Composite buckets: the combinations of the values of several sources, in pages.

A page continues after the ``afterKey`` of the page before it. The vendor documents the forms
``str:books`` and ``f64:20`` of its values. Decided here: in an ``afterKey``, values of other types
start with ``u64:``, ``i64:``, ``bool:`` or ``date:`` (milliseconds), and a missing value is
``null:``. A page without buckets has no
``afterKey``. Calendar weeks start on Monday. By default, missing values come first in ascending and
last in descending order. A document with several values is in the buckets of all combinations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any, TypeAlias

from ...core.budget import spend
from ..reply import Map
from .buckets import (
    EPOCH,
    STEPS_PER_BUCKET,
    Aggregations,
    bucket_reply,
    check_count,
    span_ms,
    term_head,
)
from .index import SearchIndex
from .metrics import (
    NUMERIC,
    REQUIRED,
    Arguments,
    Compute,
    DocumentNumbers,
    column_of,
    format_number,
    is_number,
)

_Position: TypeAlias = tuple[Any, ...]
"""The key of a bucket: a value of each source, or None for documents without one."""
_TAGS = {"KEYWORD": "str", "BOOL": "bool", "DATE": "date", "U64": "u64", "I64": "i64", "F64": "f64"}
"""The start of a value in ``afterKey``, for each type of field."""
_MISSING = "null:"


@dataclass(frozen=True)
class _KeySource:
    """One of the sources of a composite aggregation.

    ``column`` has the values of documents. ``key`` converts a value to the key of its bucket, which
    ``show`` formats for the reply and ``tag`` starts in an ``afterKey``.
    """

    name: str
    column: dict[int, tuple[Any, ...]]
    key: Callable[[Any], Any]
    show: Callable[[Any], Any]
    tag: str
    descends: bool
    has_missing: bool
    missing_first: bool

    def keys_of(self, number: int) -> Iterable[Any]:
        """Return the keys of a document, each once, or None instead of a missing one."""
        values = self.column.get(number)
        if values is None:
            return (None,) if self.has_missing else ()
        return dict.fromkeys(map(self.key, values))

    def rank(self, key: Any) -> tuple[bool, Any]:
        # The order is reversed if it descends.
        return (key is None) != (self.missing_first != self.descends), key

    def written(self, key: Any) -> bytes:
        """Return a key as a value of ``afterKey``."""
        if key is None:
            return _MISSING.encode()
        if key.__class__ is bool:
            text = b"true" if key else b"false"
        else:
            text = key.encode() if isinstance(key, str) else format_number(key) or b""
        return self.tag.encode() + b":" + text

    def read(self, text: Any) -> Any:
        """Return the key that a value of ``afterKey`` denotes; raise ``ValueError`` if it is invalid."""
        if not isinstance(text, str):
            raise ValueError
        if text == _MISSING:
            return None
        tag, _, key = text.partition(":")
        if tag != self.tag:
            raise ValueError
        return _READERS[tag](key)


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str, "bool": _read_bool, "date": int, "u64": int, "i64": int, "f64": float,
}  # fmt: skip


def composite(index: SearchIndex, args: Arguments, subs: Aggregations) -> Compute:
    parts = args.take(
        "sources", "a non-empty array of {name: {operator: {…}}}", _are_sources, REQUIRED
    )
    sources = [_read_source(index, args, part) for part in parts]
    if len({source.name for source in sources}) < len(sources):
        raise args.error("has two sources with the same name")
    size = args.take_count("size", 10, 1)
    after = _read_after(args, sources)

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups = _grouped(sources, numbers)
        positions = _in_order(sources, groups if after is None else {after, *groups})
        first = 0 if after is None else positions.index(after) + 1
        page = positions[first : first + size]
        check_count(args, len(page))
        buckets = [
            bucket_reply([b"key", _shown(sources, position)], groups[position], subs)
            for position in page
        ]
        reply: list[Any] = [b"buckets", buckets]
        if page:
            written = [
                part
                for source, key in zip(sources, page[-1], strict=True)
                for part in (source.name.encode(), source.written(key))
            ]
            reply += [b"afterKey", Map(written)]
        return reply

    return compute


def _are_sources(value: Any) -> bool:
    def has_one(part: Any) -> bool:
        return isinstance(part, dict) and len(part) == 1

    return (
        isinstance(value, list)
        and bool(value)
        and all(
            has_one(part) and all(has_one(source) for source in part.values()) for part in value
        )
    )


def _read_source(index: SearchIndex, args: Arguments, part: dict[str, Any]) -> _KeySource:
    [(name, definition)] = part.items()
    [(operator, arguments)] = definition.items()
    if operator not in _OPERATORS:
        raise args.error(f"has a source '{name}' with unknown operator '{operator}'")
    if not isinstance(arguments, dict):
        raise args.error(f"has a source '{name}' whose {operator} is not a JSON object")
    source_args = Arguments(args.alias, args.operator, arguments)
    column, key, show, tag = _OPERATORS[operator](index, source_args)
    descends = source_args.take_choice("order", ("asc", "desc")) == "desc"
    has_missing = source_args.take_flag("missingBucket", False)
    order = source_args.take_choice("missingOrder", ("default", "first", "last"))
    source_args.reject_rest()
    missing_first = order == "first" or (order == "default" and not descends)
    return _KeySource(name, column, key, show, tag, descends, has_missing, missing_first)


_Operator: TypeAlias = tuple[
    dict[int, tuple[Any, ...]], Callable[[Any], Any], Callable[[Any], Any], str
]
"""The column, the conversion to keys, the format of keys, and the tag of a source."""


def _terms(index: SearchIndex, args: Arguments) -> _Operator:
    spec, column = column_of(index, args, (*NUMERIC, "BOOL", "KEYWORD"), always_fast=())
    return column, lambda value: value, lambda key: term_head(spec, key)[1], _TAGS[spec.kind]


def _histogram(index: SearchIndex, args: Arguments) -> _Operator:
    _, column = column_of(index, args, NUMERIC)
    interval = args.take(
        "interval", "a number above 0", lambda value: is_number(value) and value > 0, REQUIRED
    )

    def key(value: float) -> float:
        try:
            start: float = math.floor(value / interval) * interval
        except (OverflowError, ValueError):
            raise args.error("has an interval that is too small for the values") from None
        return start

    return column, key, format_number, "f64"


def _date_histogram(index: SearchIndex, args: Arguments) -> _Operator:
    _, column = column_of(index, args, ("DATE",))
    span = args.take(
        "fixedInterval", "a span such as 30s, 1m, 1h or 1d", lambda value: (span_ms(value) or 0) > 0
    )
    unit = args.take("calendarInterval", "year, month or week", lambda value: value in [*_CALENDAR])
    if (span is None) == (unit is None):
        raise args.error("takes either 'fixedInterval' or 'calendarInterval'")
    if unit is not None:
        return column, lambda ms: _calendar_start(ms, unit), format_number, "date"
    interval = span_ms(span) or 1
    return column, lambda ms: ms // interval * interval, format_number, "date"


_CALENDAR: dict[str, Callable[[datetime], datetime]] = {
    "year": lambda day: day.replace(month=1, day=1),
    "month": lambda day: day.replace(day=1),
    "week": lambda day: day - timedelta(days=day.weekday()),
}
"""For each calendar interval, the first day of the interval of a day."""


def _calendar_start(ms: int, unit: str) -> int:
    moment = EPOCH + timedelta(milliseconds=ms)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return (_CALENDAR[unit](day) - EPOCH) // timedelta(milliseconds=1)


_OPERATORS: dict[str, Callable[[SearchIndex, Arguments], _Operator]] = {
    "$terms": _terms,
    "$histogram": _histogram,
    "$dateHistogram": _date_histogram,
}


def _read_after(args: Arguments, sources: list[_KeySource]) -> _Position | None:
    """Return the position to continue after, given as an object or as a flat array.

    The JavaScript client passes on the flat array of a reply (found by a test with version 1.39.0).
    """
    after = args.take("after", "an afterKey", lambda value: isinstance(value, dict | list))
    if after is None:
        return None
    if isinstance(after, list):
        after = dict(zip(map(str, after[::2]), after[1::2], strict=False))
    if after.keys() != {source.name for source in sources}:
        raise args.error("takes an afterKey with a value of each source as 'after'")
    try:
        return tuple(source.read(after[source.name]) for source in sources)
    except ValueError:
        raise args.error("takes the afterKey of the same sources as 'after'") from None


def _grouped(
    sources: list[_KeySource], numbers: DocumentNumbers
) -> dict[_Position, DocumentNumbers]:
    groups: dict[_Position, DocumentNumbers] = {}
    for number in numbers:
        for position in product(*(source.keys_of(number) for source in sources)):
            spend(STEPS_PER_BUCKET)
            groups.setdefault(position, []).append(number)
    return groups


def _in_order(sources: list[_KeySource], positions: Iterable[_Position]) -> list[_Position]:
    ordered = list(positions)
    # Sorting is stable, so sort by the last source first.
    for at, source in reversed([*enumerate(sources)]):
        ordered.sort(key=lambda position: source.rank(position[at]), reverse=source.descends)
    return ordered


def _shown(sources: list[_KeySource], position: _Position) -> Map:
    return Map(
        part
        for source, key in zip(sources, position, strict=True)
        for part in (source.name.encode(), None if key is None else source.show(key))
    )
