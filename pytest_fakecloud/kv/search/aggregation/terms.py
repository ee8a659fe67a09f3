"""The ``$terms`` aggregation: a bucket for each value of a field."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...algorithms.linear_regex import LinearRegex, RegexError
from ..documents import date_ms
from ..index import SearchIndex
from ..schema import FieldSpec
from .grouping import (
    MAX_BUCKETS,
    NUMERIC,
    Compute,
    Groups,
    Order,
    bucket_reply,
    group_documents,
    parse_order,
    rfc3339,
    too_many,
)
from .request import Aggregation, Arguments, DocumentNumbers, column_of, format_number, is_number

_HASH_FACTOR = 0xF1357AEA2E62A9C5
"""The multiplier of FxHash, the hash function of Rust's compiler, with which Tantivy hashes terms."""
_U64 = 2**64 - 1


def _hash_order(keys: Collection[Any]) -> list[Any]:
    """Return numbers in the order of the vendor's hash table (from its tests), then strings."""
    texts = [key for key in keys if isinstance(key, str)]
    known = [key for key in keys if not isinstance(key, str)]
    size = 4
    while len(known) > (size - 1 if size <= 8 else size * 7 // 8):
        size *= 2
    slots: list[Any] = [None] * size
    for key in known:
        bits = struct.unpack("<Q", struct.pack("<d", key))[0]
        mixed = (3 * _HASH_FACTOR + bits) * _HASH_FACTOR & _U64
        slot = (mixed << 26 | mixed >> 38) & _U64
        slot %= size
        while slots[slot] is not None:
            slot = (slot + 1) % size
        slots[slot] = key
    return [*(key for key in slots if key is not None), *texts]


def _term_filter(args: Arguments, name: str, spec: FieldSpec) -> Callable[[Any], bool] | None:
    """Return a predicate for ``include`` or ``exclude``: a regular expression or a list of terms.

    Decided here: an expression has to match the key that the reply shows.
    """
    wanted = args.take(
        name, "a regular expression or an array", lambda value: isinstance(value, str | list)
    )
    if wanted is None:
        return None
    if isinstance(wanted, list):
        terms = [one for one in wanted if not isinstance(one, list | dict)]
        if spec.kind == "DATE":
            terms = [date_ms(one) if isinstance(one, str) else one for one in terms]
        return frozenset(terms).__contains__
    try:
        expression = LinearRegex(wanted)
    except RegexError as error:
        raise args.error(f"has a regular expression as '{name}' that {error}") from None
    return lambda term: expression.fullmatch(_term_head(spec, term)[-1].decode())


def _missing(args: Arguments, spec: FieldSpec) -> Any:
    """Return the term for documents without a value, or None. DocumentNumbers may have a string."""
    if spec.kind == "DATE":
        text = args.take(
            "missing",
            "an RFC 3339 string",
            lambda value: isinstance(value, str) and date_ms(value) is not None,
        )
        return None if text is None else date_ms(text)
    if spec.kind == "BOOL":
        return args.take("missing", "true or false", lambda value: value.__class__ is bool)
    if spec.kind == "KEYWORD":
        return args.take_text("missing", None)
    value = args.take(
        "missing", "a number or a text", lambda value: is_number(value) or isinstance(value, str)
    )
    return float(value) if spec.kind == "F64" and is_number(value) else value


def _term_head(spec: FieldSpec, term: Any) -> list[Any]:
    """Return the start of a bucket: its key, which for booleans is followed by a readable form."""
    if spec.kind == "BOOL":
        return [b"key", b"1" if term else b"0", b"keyAsString", b"true" if term else b"false"]
    if spec.kind == "DATE":
        return [b"key", rfc3339(term)]
    return [b"key", term.encode() if isinstance(term, str) else format_number(term)]


def terms(index: SearchIndex, args: Arguments, subs: Sequence[Aggregation]) -> Compute:
    spec, column = column_of(index, args, (*NUMERIC, "BOOL", "KEYWORD"))
    size = args.take_count("size", 10, 1)
    args.take_count("segmentSize", None, 1)
    least = args.take_count("minDocCount", 1)
    known = {sub.alias for sub in subs}
    order = parse_order(
        args, lambda key: key in ("count", "key") or key.partition(".")[0] in known
    ) or Order("count", ascending=False)
    absent = _missing(args, spec)
    include, exclude = (_term_filter(args, name, spec) for name in ("include", "exclude"))
    args.take_flag("showTermDocCountError", True)

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups = group_documents(numbers, column, absent, lambda value: value)
        chosen = [
            term
            for term in (
                _hash_order(groups) if spec.kind == "F64" else sorted(groups, key=_sort_key)
            )
            if len(groups[term]) >= least
            and (include is None or include(term))
            and (exclude is None or not exclude(term))
        ]
        rank = _rank_of(order.key, groups, subs)
        chosen.sort(key=rank, reverse=not order.ascending)
        shown = chosen[:size]
        if len(shown) > MAX_BUCKETS:
            raise too_many(args)
        return [
            b"buckets",
            [bucket_reply(_term_head(spec, term), groups[term], subs) for term in shown],
            *(b"sumOtherDocCount", sum(len(groups[term]) for term in chosen[size:])),
            *(b"docCountErrorUpperBound", 0),
        ]

    return compute


def _sort_key(term: Any) -> tuple[str, Any]:
    return ("text", term) if isinstance(term, str) else ("number", term)


def _rank_of(word: str, groups: Groups, subs: Sequence[Aggregation]) -> Callable[[Any], Any]:
    if word == "count":
        return lambda term: len(groups[term])
    if word == "key":
        return _sort_key
    alias, _, part = word.partition(".")
    sub = next(each for each in subs if each.alias == alias)

    def rank(term: Any) -> float:
        flat = sub.compute(groups[term])
        found = dict(zip(flat[::2], flat[1::2], strict=False)).get(part.encode() or b"value")
        return -math.inf if found is None or isinstance(found, list) else float(found)

    return rank
