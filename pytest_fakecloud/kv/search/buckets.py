"""Bucket aggregations, which group documents by a value and aggregate each group.

Their replies, except those of facets, start with ``buckets``, so clients can tell them from metrics.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from ...core.budget import spend
from ..algorithms.linear_regex import LinearRegex, RegexError
from ..reply import Bool, Map
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
from .schema import FROM_JSON, FieldSpec, date_ms

_MAX_BUCKETS = 65_000
"""Maximum number of buckets in a reply, as in Tantivy."""
STEPS_PER_BUCKET = 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Aggregations: TypeAlias = dict[str, Compute]
_Groups: TypeAlias = dict[Any, DocumentNumbers]
"""Document numbers by the key of their bucket."""


def _parse_order(args: Arguments, allowed: Callable[[str], bool]) -> tuple[str, bool]:
    """Return the key of ``order`` (by default ``{"count": "desc"}``), and whether it descends."""
    order = args.take(
        "order",
        'an object such as {"count": "desc"}',
        lambda value: (
            isinstance(value, dict)
            and len(value) == 1
            and all(allowed(key) and word in ("asc", "desc") for key, word in value.items())
        ),
        {"count": "desc"},
    )
    [(key, word)] = order.items()
    return key, word == "desc"


def check_count(args: Arguments, buckets: int) -> None:
    if buckets > _MAX_BUCKETS:
        raise args.error(f"makes more than {_MAX_BUCKETS} buckets")


def bucket_reply(head: list[Any], numbers: DocumentNumbers, subs: Aggregations) -> Map:
    return Map([*head, b"docCount", len(numbers), *_sub_replies(numbers, subs)])


def _sub_replies(numbers: DocumentNumbers, subs: Aggregations) -> list[Any]:
    spend(STEPS_PER_BUCKET * (1 + len(subs)))
    return [part for alias, sub in subs.items() for part in (alias.encode(), Map(sub(numbers)))]


def _rfc3339(ms: float) -> bytes:
    try:
        moment = EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return b""
    return moment.isoformat(timespec="milliseconds").replace(".000+", "+").replace(
        "+00:00", "Z"
    ).encode()  # fmt: skip


def _group_documents(
    numbers: DocumentNumbers,
    column: dict[int, tuple[Any, ...]],
    absent: Any,
    key: Callable[[Any], Any],
) -> _Groups:
    """Group documents by the keys of their values. A document is at most once in each group."""
    groups: _Groups = {}
    without = () if absent is None else (absent,)
    for at in numbers:
        values = column.get(at, without)
        spend(len(values))
        for group in dict.fromkeys(map(key, values)):
            if group is not None:
                groups.setdefault(group, []).append(at)
    return groups


def _buckets_reply(buckets: list[Map], keyed: bool) -> list[Any]:
    """Return the buckets as a list or, if ``keyed`` is true, as a map from keys to buckets."""
    if not keyed:
        return [b"buckets", buckets]
    # Each bucket starts with the word "key" and its key.
    return [b"buckets", Map(part for _, key, *rest in buckets for part in (key, Map(rest)))]


_HASH_FACTOR = 0xF1357AEA2E62A9C5
"""The multiplier of FxHash, the hash function of Rust's compiler, with which Tantivy hashes terms."""
_HASH_ROTATION = 26
"""Number of bits by which FxHash rotates its result to the left."""
_F64_TAG = 3
"""The number of a term's type, which is hashed before its value."""
_U64 = 2**64 - 1


def _hash_order(keys: Collection[Any]) -> list[Any]:
    """Return numbers in the order of the vendor's hash table (from its tests), then strings."""
    texts = [key for key in keys if isinstance(key, str)]
    numbers = [key for key in keys if not isinstance(key, str)]
    size = 4
    # Like Rust's tables, a small table keeps one slot free, and a larger one an eighth of them.
    while len(numbers) > (size - 1 if size <= 8 else size * 7 // 8):
        size *= 2
    slots: list[Any] = [None] * size
    for number in numbers:
        bits = struct.unpack("<Q", struct.pack("<d", number))[0]
        mixed = (_F64_TAG * _HASH_FACTOR + bits) * _HASH_FACTOR & _U64
        rotated = (mixed << _HASH_ROTATION | mixed >> 64 - _HASH_ROTATION) & _U64
        slot = rotated % size
        while slots[slot] is not None:
            slot = (slot + 1) % size
        slots[slot] = number
    return [*(number for number in slots if number is not None), *texts]


def _term_filter(
    args: Arguments, name: str, spec: FieldSpec, default: bool
) -> Callable[[Any], bool]:
    """Return a predicate for ``include`` or ``exclude``: a regular expression or a list of terms.

    Without the argument, the predicate returns ``default``. Decided here: an expression has to
    match the key that the reply shows.
    """
    condition = args.take(
        name, "a regular expression or an array", lambda value: isinstance(value, str | list)
    )
    if condition is None:
        return lambda term: default
    if isinstance(condition, list):
        terms = [term for term in condition if not isinstance(term, list | dict)]
        if spec.kind == "DATE":
            terms = [date_ms(term) if isinstance(term, str) else term for term in terms]
        return frozenset(terms).__contains__
    try:
        expression = LinearRegex(condition, tantivy=True)
    except RegexError as error:
        raise args.error(f"has a regular expression as '{name}' that {error}") from None
    return lambda term: expression.fullmatch(term_head(spec, term)[-1].decode())


_MISSING = {"DATE": "an RFC 3339 string", "BOOL": "true or false", "KEYWORD": "a string"}


def _missing(args: Arguments, spec: FieldSpec) -> Any:
    """Return the term for documents without a value, or None. A number field may use a string."""
    if spec.kind in _MISSING:
        convert = FROM_JSON[spec.kind]
        expected = _MISSING[spec.kind]
        return convert(args.take("missing", expected, lambda value: convert(value) is not None))
    value = args.take(
        "missing", "a number or a text", lambda value: is_number(value) or isinstance(value, str)
    )
    return float(value) if spec.kind == "F64" and is_number(value) else value


def term_head(spec: FieldSpec, term: Any) -> list[Any]:
    """Return the start of a bucket: its key, which for booleans is followed by a readable form."""
    if spec.kind == "BOOL":
        return [b"key", Bool(term), b"keyAsString", b"true" if term else b"false"]
    if spec.kind == "DATE":
        return [b"key", _rfc3339(term)]
    return [b"key", term.encode() if isinstance(term, str) else format_number(term)]


def _terms(index: SearchIndex, args: Arguments, subs: Aggregations) -> Compute:
    spec, column = column_of(index, args, (*NUMERIC, "BOOL", "KEYWORD"))
    size = args.take_count("size", 10, 1)
    args.take_count("segmentSize", None, 1)
    least = args.take_count("minDocCount", 1)
    order_key, descends = _parse_order(
        args, lambda key: key in ("count", "key") or key.partition(".")[0] in subs
    )
    absent = _missing(args, spec)
    includes = _term_filter(args, "include", spec, default=True)
    excludes = _term_filter(args, "exclude", spec, default=False)
    args.take_flag("showTermDocCountError", True)

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups = _group_documents(numbers, column, absent, lambda value: value)
        # This is the order of terms whose ranks are equal.
        terms = _hash_order(groups) if spec.kind == "F64" else sorted(groups, key=_sort_key)
        frequent = [term for term in terms if len(groups[term]) >= least]
        chosen = [term for term in frequent if includes(term) and not excludes(term)]
        chosen.sort(key=_rank_of(order_key, groups, subs), reverse=descends)
        shown = chosen[:size]
        check_count(args, len(shown))
        return [
            b"buckets",
            [bucket_reply(term_head(spec, term), groups[term], subs) for term in shown],
            *(b"sumOtherDocCount", sum(len(groups[term]) for term in chosen[size:])),
            *(b"docCountErrorUpperBound", 0),
        ]

    return compute


def _sort_key(term: Any) -> tuple[str, Any]:
    return ("text", term) if isinstance(term, str) else ("number", term)


def _rank_of(word: str, groups: _Groups, subs: Aggregations) -> Callable[[Any], Any]:
    if word == "count":
        return lambda term: len(groups[term])
    if word == "key":
        return _sort_key
    alias, _, part = word.partition(".")

    def rank(term: Any) -> float:
        flat = subs[alias](groups[term])
        value = dict(zip(flat[::2], flat[1::2], strict=False)).get(part.encode() or b"value")
        return -math.inf if value is None or isinstance(value, list) else float(value)

    return rank


def _is_ranges(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(bounds, dict)
            and bounds.keys() <= {"key", "from", "to"}
            and all(is_number(bounds[name]) for name in ("from", "to") if name in bounds)
            and isinstance(bounds.get("key", ""), str)
            for bounds in value
        )
    )


def _ranges(index: SearchIndex, args: Arguments, subs: Aggregations) -> Compute:
    spec, column = column_of(index, args, NUMERIC)
    ranges = args.take("ranges", "an array of {key?, from?, to?}", _is_ranges, REQUIRED)
    keyed = args.take_flag("keyed", False)
    bounds = _without_holes(args, ranges)
    check_count(args, len(bounds))
    lows = [low for _, low, _ in bounds]

    def compute(numbers: DocumentNumbers) -> list[Any]:
        # The ranges leave no gaps, so a value belongs to the last range that starts at or below it.
        groups = _group_documents(
            numbers, column, None, lambda value: bisect_right(lows, value) - 1
        )
        buckets: list[Map] = []
        for nth, (key, low, high) in enumerate(bounds):
            inside = groups.get(nth, [])
            bucket: list[Any] = [b"key", key.encode(), b"docCount", len(inside)]
            for word, bound in (("from", low), ("to", high)):
                if math.isfinite(bound):
                    bucket += [word.encode(), format_number(bound)]
                    if spec.kind == "DATE":
                        bucket += [f"{word}AsString".encode(), _rfc3339(bound)]
            buckets.append(Map([*bucket, *_sub_replies(inside, subs)]))
        return _buckets_reply(buckets, keyed)

    return compute


def _without_holes(args: Arguments, ranges: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the ranges in ascending order. As in Tantivy, add ranges for gaps and open ends."""
    in_order = sorted(
        (bounds.get("from", -math.inf), bounds.get("to", math.inf), bounds.get("key") or "")
        for bounds in ranges
    )
    complete: list[tuple[str, float, float]] = []
    reached = -math.inf
    for low, high, key in in_order:
        if low < reached or high < low:
            raise args.error("has ranges that overlap")
        if low > reached:
            complete.append((_range_key(reached, low), reached, low))
        complete.append((key or _range_key(low, high), low, high))
        reached = high
    if reached < math.inf:
        complete.append((_range_key(reached, math.inf), reached, math.inf))
    return complete


def _range_key(low: float, high: float) -> str:
    ends = (
        "*" if math.isinf(bound) else (format_number(bound) or b"").decode()
        for bound in (low, high)
    )
    return "-".join(ends)


def _histogram_of(
    args: Arguments,
    column: dict[int, tuple[Any, ...]],
    interval: float,
    offset: float,
    subs: Aggregations,
    *,
    is_date: bool,
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

    def head(value: float) -> list[Any]:
        key = [b"key", format_number(value)]
        return [*key, b"keyAsString", _rfc3339(value)] if is_date else key

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups = _group_documents(numbers, column, None, interval_of)
        steps = sorted(groups)
        if not least:
            ends = list(groups)
            if extended is not None:
                ends += [at for at in map(interval_of, extended) if at is not None]
            if ends:
                check_count(args, max(ends) - min(ends) + 1)
                steps = list(range(min(ends), max(ends) + 1))
        steps = [at for at in steps if len(groups.get(at, ())) >= least]
        check_count(args, len(steps))
        buckets = [
            bucket_reply(head(at * interval + offset), groups.get(at, []), subs) for at in steps
        ]
        return _buckets_reply(buckets, keyed)

    return compute


def _histogram(index: SearchIndex, args: Arguments, subs: Aggregations) -> Compute:
    _, column = column_of(index, args, NUMERIC)
    interval = args.take(
        "interval", "a number above 0", lambda value: is_number(value) and value > 0, REQUIRED
    )
    offset = args.take_number("offset", 0)
    return _histogram_of(args, column, interval, offset, subs, is_date=False)


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"([+-]?)(\d{1,15})(ms|s|m|h|d)", re.ASCII)


def span_ms(text: Any) -> int | None:
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    sign, digits, unit = match.groups()
    return int(digits) * _UNITS[unit] * (-1 if sign == "-" else 1)


def _date_histogram(index: SearchIndex, args: Arguments, subs: Aggregations) -> Compute:
    _, column = column_of(index, args, ("DATE",))
    span = args.take(
        "fixedInterval",
        "a span such as 30s, 1m, 1h or 1d",
        lambda value: (span_ms(value) or 0) > 0,
        REQUIRED,
    )
    shift = args.take(
        "offset", "a span such as 6h or -30m", lambda value: span_ms(value) is not None, "0ms"
    )
    interval, offset = span_ms(span) or 1, span_ms(shift) or 0
    return _histogram_of(args, column, interval, offset, subs, is_date=True)


def _facet(index: SearchIndex, args: Arguments, subs: Aggregations) -> Compute:
    _, column = column_of(index, args, ("FACET",))
    path = args.take(
        "path", "a path such as '/a'", lambda v: isinstance(v, str) and v[:1] == "/", "/"
    )
    top = path.rstrip("/") or "/"
    deepest = args.take_count("depth", 1, 1)
    size = args.take_count("size", 10, 1)
    least = args.take_count("minDocCount", 1)
    order_key, descends = _parse_order(args, lambda key: key in ("count", "path"))

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups: _Groups = {}
        for at in numbers:
            paths_below = _paths_below(column.get(at, ()), top, deepest)
            spend(STEPS_PER_BUCKET * (1 + len(paths_below)))
            for below in paths_below:
                groups.setdefault(below, []).append(at)
        children: dict[str, list[str]] = {}
        for below, having in groups.items():
            if len(having) >= least:
                children.setdefault(below.rpartition("/")[0] or "/", []).append(below)
        for paths in children.values():
            paths.sort(reverse=order_key == "path" and descends)
            if order_key == "count":
                paths.sort(key=lambda below: len(groups[below]), reverse=descends)
        return [b"path", top.encode(), *_facet_children(top, groups, children, size, is_top=True)]

    return compute


def _paths_below(paths: Iterable[str], top: str, deepest: int) -> set[str]:
    start = [] if top == "/" else top.split("/")[1:]
    below = set()
    for path in paths:
        steps = path.split("/")[1:]
        if steps[: len(start)] == start:
            for length in range(len(start) + 1, min(len(steps), len(start) + deepest) + 1):
                below.add("/" + "/".join(steps[:length]))
    below.discard("/")
    return below


def _facet_children(
    path: str, groups: _Groups, children: dict[str, list[str]], size: int, is_top: bool = False
) -> list[Any]:
    paths = children.get(path, [])
    parts: list[Any] = [b"sumOtherDocCount", sum(len(groups[child]) for child in paths[size:])]
    if paths or is_top:
        nodes = [
            Map(
                [
                    *(b"path", child.encode(), b"docCount", len(groups[child])),
                    *_facet_children(child, groups, children, size),
                ]
            )
            for child in paths[:size]
        ]
        parts += [b"children", nodes]
    return parts


BUCKETS: dict[str, Callable[[SearchIndex, Arguments, Aggregations], Compute]] = {
    "$terms": _terms,
    "$range": _ranges,
    "$histogram": _histogram,
    "$dateHistogram": _date_histogram,
    "$facet": _facet,
}
"""Functions that build the bucket aggregations. All except ``$facet`` can contain aggregations."""
