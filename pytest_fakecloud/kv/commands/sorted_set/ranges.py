"""Commands for ranges and combinations of sorted sets.

Ranges are by rank, by score or by name. Union, intersection and difference also accept plain sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Literal, NamedTuple

from ....core.budget import spend
from ... import errors
from ...engine.sessions import Session
from ...errors import WRONGTYPE, CommandError, input_key_needed
from ...reply import Reply
from ...table.registry import Args, command, variant
from ...table.syntax import DECIMAL, I64_MAX, parse_float, parse_int
from ...values.containers import SetValue
from ...values.zset import Item, LexRange, ScoreRange, SortedSet
from ..arguments import get_or_empty, options, parse_bounds, running, slice_bounds
from .members import members_reply

RangeKind = Literal["rank", "score", "lex"]
Interval = tuple[int, int] | ScoreRange | LexRange
_SIZES = {b"WITHSCORES": 0, b"LIMIT": 2, b"REV": 0, b"BYLEX": 0, b"BYSCORE": 0}


class _Range(NamedTuple):
    """The range of ZRANGE or a related command; ``limit`` is an offset and a count (negative: all)."""

    interval: Interval
    reverse: bool
    limit: tuple[int, int] | None
    with_scores: bool


def _score_bound(text: bytes) -> float:
    """Parse the bound of a score range like ``strtod``: it may overflow, and an empty string is 0."""
    text = text.partition(b"\0")[0]
    if not text:
        return 0.0
    text = text.lstrip(b" \t\n\v\f\r")
    return float(text) if DECIMAL.fullmatch(text) else parse_float(text, errors.SCORE_RANGE)


def parse_score_range(low: bytes, high: bytes) -> ScoreRange:
    """Parse a range of scores; ``(`` excludes a bound."""
    return ScoreRange(
        _score_bound(low.removeprefix(b"(")),
        _score_bound(high.removeprefix(b"(")),
        low.startswith(b"("),
        high.startswith(b"("),
    )


def parse_lex_range(low: bytes, high: bytes) -> LexRange:
    """Parse a range of names: ``[`` includes a bound, ``(`` excludes it, ``-`` and ``+`` mean none."""
    low_bound, low_exclusive = _lex_bound(low)
    high_bound, high_exclusive = _lex_bound(high)
    is_reversed = low.startswith(b"+") or high.startswith(b"-")
    return LexRange(low_bound, high_bound, low_exclusive, high_exclusive, is_reversed)


def _lex_bound(text: bytes) -> tuple[bytes | None, bool]:
    """Return a bound, or None for ``-`` and ``+``, and whether the bound itself is excluded."""
    sign = text[:1]
    if sign in (b"+", b"-") and text[1:2] in (b"", b"\0"):
        return None, True
    if sign in (b"[", b"("):
        return text[1:], sign == b"("
    raise CommandError(errors.LEX_RANGE)


_PARSERS: dict[RangeKind, Callable[[bytes, bytes], Interval]] = {
    "rank": parse_bounds,
    "score": parse_score_range,
    "lex": parse_lex_range,
}


def _parse_range(
    session: Session, args: Args, kind: RangeKind | None = None, reverse: bool = False
) -> _Range:
    """Parse ``key start stop`` and options. Without ``kind``, these determine the kind and the order."""
    has_kind = kind is not None
    limit = None
    with_scores = False
    for word, values in options(args, 3, _SIZES):
        if word == b"WITHSCORES" and not running(session).write:
            with_scores = True
        elif word == b"LIMIT":
            limit = parse_bounds(*values)
        elif word == b"REV" and not has_kind and not reverse:
            reverse = True
        elif word in (b"BYLEX", b"BYSCORE") and kind is None:
            kind = "lex" if word == b"BYLEX" else "score"
        else:
            raise CommandError(errors.SYNTAX)
    kind = kind or "rank"
    if kind == "rank" and limit is not None and session.engine.dialect != "vendor":
        # The vendor applies LIMIT to ranks, too. Redis only accepts a count of -1, and ignores it.
        if limit[1] != -1:
            raise CommandError(errors.LIMIT_NEEDS_BY)
        limit = None
    if with_scores and kind == "lex":
        raise CommandError(errors.WITHSCORES_WITH_BYLEX)
    low, high = (args[2], args[1]) if reverse and kind != "rank" else (args[1], args[2])
    return _Range(_PARSERS[kind](low, high), reverse, limit, with_scores)


def _select(members: SortedSet, wanted: _Range) -> list[Item]:
    """Return the items in a range, in the order and within the limit that the range specifies."""
    interval, size = wanted.interval, len(members)
    if isinstance(interval, LexRange):
        start, stop = members.lex_span(interval, reverse=wanted.reverse)
    elif isinstance(interval, ScoreRange):
        start, stop = members.span(interval)
    else:
        start, stop = slice_bounds(*interval, size)
        if wanted.reverse:
            start, stop = size - stop, size - start
    if wanted.limit is not None:
        first, end = _limited(stop - start, wanted.limit)
        start, stop = (stop - end, stop - first) if wanted.reverse else (start + first, start + end)
    found = members.slice(start, stop)
    return found[::-1] if wanted.reverse else found


def _limited(size: int, limit: tuple[int, int] | None) -> tuple[int, int]:
    """Return the start and stop of the items that a limit leaves of ``size`` items."""
    offset, count = limit or (0, -1)
    if offset < 0:
        return 0, 0
    start = min(offset, size)
    return start, size if count < 0 else min(start + count, size)


@variant("ZRANGE", "Return members in a range of ranks, scores, or names, in either order.")
@variant(
    "ZREVRANGE",
    "Return members in a range of ranks, ordered from the highest score.",
    kind="rank",
    reverse=True,
)
@variant("ZRANGEBYSCORE", "Return members in a range of scores, lowest score first.", kind="score")
@variant(
    "ZREVRANGEBYSCORE",
    "Return members in a range of scores, highest score first.",
    kind="score",
    reverse=True,
)
@variant("ZRANGEBYLEX", "Return members in a range of names; all scores must be equal.", kind="lex")
@variant(
    "ZREVRANGEBYLEX",
    "Return members in a range of names in reverse order; all scores must be equal.",
    kind="lex",
    reverse=True,
)
def zrange(
    session: Session, args: Args, *, kind: RangeKind | None = None, reverse: bool = False
) -> Reply:
    wanted = _parse_range(session, args, kind, reverse)
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return []
    return members_reply(session, _select(members, wanted), scores=wanted.with_scores)


@command("ZRANGESTORE")
def zrangestore(session: Session, args: Args) -> Reply:
    """Store a range of members of a sorted set in a key and return their number."""
    wanted = _parse_range(session, args[1:])
    members = get_or_empty(session, args[1], SortedSet)
    scores = {member: score for score, member in _select(members, wanted)}
    return session.db.store(args[0], SortedSet(scores).as_stored())


@command("ZCOUNT")
def zcount(session: Session, args: Args) -> Reply:
    """Return the number of members in a range of scores."""
    interval = parse_score_range(args[1], args[2])
    start, stop = get_or_empty(session, args[0], SortedSet).span(interval)
    return stop - start


@command("ZLEXCOUNT")
def zlexcount(session: Session, args: Args) -> Reply:
    """Return the number of members in a range of names."""
    interval = parse_lex_range(args[1], args[2])
    start, stop = get_or_empty(session, args[0], SortedSet).lex_span(interval)
    return stop - start


@command("ZREMRANGEBYRANK")
def zremrangebyrank(session: Session, args: Args) -> Reply:
    """Remove the members in a range of ranks and return their number."""
    first, last = parse_bounds(args[1], args[2])
    members = get_or_empty(session, args[0], SortedSet)
    removed = members.remove_span(*slice_bounds(first, last, len(members)))
    return _note_removed(session, args[0], removed)


@command("ZREMRANGEBYSCORE")
def zremrangebyscore(session: Session, args: Args) -> Reply:
    """Remove the members in a range of scores and return their number."""
    interval = parse_score_range(args[1], args[2])
    members = get_or_empty(session, args[0], SortedSet)
    return _note_removed(session, args[0], members.remove_span(*members.span(interval)))


@command("ZREMRANGEBYLEX")
def zremrangebylex(session: Session, args: Args) -> Reply:
    """Remove the members in a range of names and return their number."""
    interval = parse_lex_range(args[1], args[2])
    members = get_or_empty(session, args[0], SortedSet)
    return _note_removed(session, args[0], members.remove_span(*members.lex_span(interval)))


def _note_removed(session: Session, key: bytes, items: list[Item]) -> int:
    if items:
        session.db.note_removal(key)
    return len(items)


# -- union, intersection and difference ----------------------------------------------------------


def _sum(left: float, right: float) -> float:
    total = left + right
    return 0.0 if math.isnan(total) else total


_AGGREGATES: dict[bytes, Callable[[float, float], float]] = {b"SUM": _sum, b"MIN": min, b"MAX": max}
_LOOKUP_STEPS = 4
"""Steps of the budget for an element that is looked up in another input or in the result."""


@dataclass(slots=True)
class _Source:
    """An input: the scores of a sorted set or a set, whose scores are all 1, and a weight."""

    members: Mapping[bytes, float] | SetValue
    weight: float = 1.0

    def items(self) -> Iterable[tuple[bytes, float]]:
        if isinstance(self.members, SetValue):
            return zip(self.members, repeat(1.0))
        return self.members.items()

    def score(self, member: bytes) -> float | None:
        if isinstance(self.members, SetValue):
            return 1.0 if member in self.members else None
        return self.members.get(member)

    def weighted(self, score: float) -> float:
        """Return a score times the weight, where zero times infinity is zero."""
        product = self.weight * score
        return 0.0 if math.isnan(product) else product


def _find_source(session: Session, key: bytes) -> _Source:
    value = session.db.lookup(key)
    if isinstance(value, SortedSet):
        return _Source(value.scores)
    if isinstance(value, SetValue | None):
        return _Source(value or {})
    raise CommandError(WRONGTYPE)


@dataclass(slots=True)
class _Request:
    """The inputs and options of a command. A ``limit`` of 0 means no limit."""

    sources: list[_Source]
    aggregate: Callable[[float, float], float] = _sum
    with_scores: bool = False
    limit: int = 0


def _parse(session: Session, args: Args) -> _Request:
    """Parse ``numkeys key [key ...]`` and the options of the running command."""
    numkeys = parse_int(args[0])
    if numkeys < 1:
        raise CommandError(input_key_needed(running(session).full_name))
    if numkeys > len(args) - 1:
        raise CommandError(errors.SYNTAX)
    request = _Request([_find_source(session, key) for key in args[1 : 1 + numkeys]])
    sizes = {b"WEIGHTS": numkeys, b"AGGREGATE": 1, b"WITHSCORES": 0, b"LIMIT": 1}
    for word, values in options(args, 1 + numkeys, sizes, of=running(session)):
        if word == b"WEIGHTS":
            for source, text in zip(request.sources, values, strict=True):
                source.weight = parse_float(text, errors.WEIGHT_NOT_FLOAT)
        elif word == b"AGGREGATE":
            aggregate = _AGGREGATES.get(values[0].upper())
            if aggregate is None:
                raise CommandError(errors.SYNTAX)
            request.aggregate = aggregate
        elif word == b"WITHSCORES":
            request.with_scores = True
        else:
            request.limit = parse_int(values[0], 0, I64_MAX, errors.LIMIT_NEGATIVE)
    return request


def _size(source: _Source) -> int:
    return len(source.members)


def _union(request: _Request) -> dict[bytes, float]:
    result: dict[bytes, float] = {}
    # Process the smallest input first, as Redis does: the sum of floats depends on the order.
    for source in sorted(request.sources, key=_size):
        spend(_LOOKUP_STEPS * len(source.members))
        for member, score in source.items():
            weighted = source.weighted(score)
            if member in result:
                result[member] = request.aggregate(result[member], weighted)
            else:
                result[member] = weighted
    return result


def _intersection(request: _Request) -> dict[bytes, float]:
    first, *others = sorted(request.sources, key=_size)
    result: dict[bytes, float] = {}
    for member, score in first.items():
        spend(2 + _LOOKUP_STEPS * len(others))
        combined = first.weighted(score)
        for other in others:
            found = other.score(member)
            if found is None:
                break
            # Unlike for the first source, Redis does not replace NaN (0 times infinity) here.
            combined = request.aggregate(combined, other.weight * found)
        else:
            result[member] = combined
            if len(result) == request.limit:
                break
    return result


def _difference(request: _Request) -> dict[bytes, float]:
    first, *others = request.sources
    spend(len(first.members) * (2 + 2 * len(others)))
    return {
        member: score
        for member, score in first.items()
        if not any(member in other.members for other in others)
    }


_Combination = Callable[[_Request], dict[bytes, float]]


@variant("ZUNION", "Return the union of sorted sets and sets.", combine=_union)
@variant("ZINTER", "Return the intersection of sorted sets and sets.", combine=_intersection)
@variant(
    "ZDIFF",
    "Return the members of the first sorted set that are in none of the others.",
    combine=_difference,
)
def zunion(session: Session, args: Args, *, combine: _Combination) -> Reply:
    request = _parse(session, args)
    return members_reply(session, SortedSet(combine(request)), scores=request.with_scores)


@variant(
    "ZUNIONSTORE",
    "Store the union of sorted sets and sets in a key and return its size.",
    combine=_union,
)
@variant(
    "ZINTERSTORE",
    "Store the intersection of sorted sets and sets in a key and return its size.",
    combine=_intersection,
)
@variant(
    "ZDIFFSTORE",
    "Store the members of the first sorted set that are in no other; return their number.",
    combine=_difference,
)
def zunionstore(session: Session, args: Args, *, combine: _Combination) -> Reply:
    request = _parse(session, args[1:])
    return session.db.store(args[0], SortedSet(combine(request)).as_stored())


@command("ZINTERCARD")
def zintercard(session: Session, args: Args) -> Reply:
    """Return the size of the intersection of sorted sets, counting up to an optional limit."""
    return len(_intersection(_parse(session, args)))
