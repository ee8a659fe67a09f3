"""The ``$range`` aggregation: a bucket for each range of numbers or dates."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..index import SearchIndex
from .grouping import (
    MAX_BUCKETS,
    NUMERIC,
    Compute,
    buckets_reply,
    group_documents,
    rfc3339,
    sub_replies,
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


def _is_ranges(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict)
            and one.keys() <= {"key", "from", "to"}
            and all(is_number(one[name]) for name in ("from", "to") if name in one)
            and isinstance(one.get("key", ""), str)
            for one in value
        )
    )


def ranges(index: SearchIndex, args: Arguments, subs: Sequence[Aggregation]) -> Compute:
    spec, column = column_of(index, args, NUMERIC)
    given = args.take("ranges", "an array of {key?, from?, to?}", _is_ranges, REQUIRED)
    keyed = args.take_flag("keyed", False)
    bounds = _without_holes(args, given)
    if len(bounds) > MAX_BUCKETS:
        raise too_many(args)
    lows = [low for _, low, _ in bounds]

    def compute(numbers: DocumentNumbers) -> list[Any]:
        # The ranges leave no gaps, so a value belongs to the last range that starts at or below it.
        groups = group_documents(numbers, column, None, lambda value: bisect_right(lows, value) - 1)
        buckets = []
        for nth, (key, low, high) in enumerate(bounds):
            inside = groups.get(nth, [])
            head: list[Any] = [b"key", key.encode()]
            tail: list[Any] = []
            for word, bound in (("from", low), ("to", high)):
                if math.isfinite(bound):
                    tail += [word.encode(), format_number(bound)]
                    if spec.kind == "DATE":
                        tail += [f"{word}AsString".encode(), rfc3339(bound)]
            buckets.append([*head, b"docCount", len(inside), *tail, *sub_replies(inside, subs)])
        return buckets_reply(buckets, keyed)

    return compute


def _without_holes(args: Arguments, given: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the ranges in ascending order. As in Tantivy, add ranges for gaps and open ends."""
    asked = sorted(
        (one.get("from", -math.inf), one.get("to", math.inf), one.get("key")) for one in
        ({**one, "key": one.get("key") or ""} for one in given)
    )  # fmt: skip
    found: list[tuple[str, float, float]] = []
    reached = -math.inf
    for low, high, key in asked:
        if low < reached or high < low:
            raise args.error("has ranges that overlap")
        if low > reached:
            found.append((_range_key(reached, low), reached, low))
        found.append((key or _range_key(low, high), low, high))
        reached = high
    if reached < math.inf:
        found.append((_range_key(reached, math.inf), reached, math.inf))
    return found


def _range_key(low: float, high: float) -> str:
    ends = ("*" if math.isinf(one) else (format_number(one) or b"").decode() for one in (low, high))
    return "-".join(ends)
