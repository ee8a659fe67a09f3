"""The histogram aggregations: a bucket for each interval of numbers or dates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..index import SearchIndex
from .grouping import (
    MAX_BUCKETS,
    NUMERIC,
    Compute,
    bucket_reply,
    buckets_reply,
    group_documents,
    rfc3339,
    too_many,
)
from .request import (
    REQUIRED,
    Aggregation,
    Arguments,
    DocumentNumbers,
    column_of,
    format_number,
    is_number,
)


def _histogram_of(
    args: Arguments,
    column: dict[int, tuple[Any, ...]],
    interval: float,
    offset: float,
    head: Callable[[float], list[Any]],
    subs: Sequence[Aggregation],
) -> Compute:
    least = args.take_count("minDocCount", 0)
    hard, extended = args.take_bounds("hardBounds"), args.take_bounds("extendedBounds")
    keyed = args.take_flag("keyed", False)

    def interval_of(value: float) -> int | None:
        if hard is not None and not hard[0] <= value <= hard[1]:
            return None
        try:
            return math.floor((value - offset) / interval)
        except (OverflowError, ValueError):
            raise args.error("has an interval that is too small for the values") from None

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups = group_documents(numbers, column, None, interval_of)
        steps = sorted(groups)
        if not least:
            ends = list(groups)
            if extended is not None:
                ends += [at for at in map(interval_of, extended) if at is not None]
            if ends:
                if max(ends) - min(ends) >= MAX_BUCKETS:
                    raise too_many(args)
                steps = list(range(min(ends), max(ends) + 1))
        steps = [at for at in steps if len(groups.get(at, ())) >= least]
        if len(steps) > MAX_BUCKETS:
            raise too_many(args)
        buckets = [
            bucket_reply(head(at * interval + offset), groups.get(at, []), subs) for at in steps
        ]
        return buckets_reply(buckets, keyed)

    return compute


def histogram(index: SearchIndex, args: Arguments, subs: Sequence[Aggregation]) -> Compute:
    _, column = column_of(index, args, NUMERIC)
    interval = args.take(
        "interval", "a number above 0", lambda value: is_number(value) and value > 0, REQUIRED
    )
    offset = args.take_number("offset", 0)

    def head(value: float) -> list[Any]:
        return [b"key", format_number(value)]

    return _histogram_of(args, column, interval, offset, head, subs)


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"([+-]?)(\d{1,15})(ms|s|m|h|d)", re.ASCII)


def _span_ms(text: Any) -> int | None:
    found = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    sign, digits, unit = found.groups()
    return int(digits) * _UNITS[unit] * (-1 if sign == "-" else 1)


def date_histogram(index: SearchIndex, args: Arguments, subs: Sequence[Aggregation]) -> Compute:
    _, column = column_of(index, args, ("DATE",))
    interval = _span_ms(
        args.take(
            "fixedInterval",
            "a span such as 30s, 1m, 1h or 1d",
            lambda value: (_span_ms(value) or 0) > 0,
            REQUIRED,
        )
    )
    offset = _span_ms(
        args.take(
            "offset", "a span such as 6h or -30m", lambda value: _span_ms(value) is not None, "0ms"
        )
    )

    def head(value: float) -> list[Any]:
        return [b"key", format_number(value), b"keyAsString", rfc3339(value)]

    return _histogram_of(args, column, interval or 1, offset or 0, head, subs)
