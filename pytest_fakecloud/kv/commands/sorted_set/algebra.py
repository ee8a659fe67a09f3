"""Union, intersection, and difference of sorted sets and plain sets, with weights and aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....core.budget import spend
from ... import errors
from ...engine.engine import Session
from ...errors import WRONGTYPE, CommandError, input_key_needed
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import I64_MAX, parse_float, parse_int
from ...values.sets import SetValue
from ...values.zset import SortedSet
from ..arguments import options
from .members import members_reply


def _sum(left: float, right: float) -> float:
    total = left + right
    return 0.0 if math.isnan(total) else total


_AGGREGATES: dict[bytes, Callable[[float, float], float]] = {b"SUM": _sum, b"MIN": min, b"MAX": max}
_COMBINING = (b"WEIGHTS", b"AGGREGATE")
"""The options of unions and intersections."""
_LOOKUP_STEPS = 4
"""Steps of the budget for an element that is looked up in another input or in the result."""


@dataclass(slots=True)
class _Source:
    """An input, with its weight: a sorted set, a set (all scores are 1), or None for a missing key."""

    value: SortedSet | SetValue | None
    weight: float = 1.0

    def __len__(self) -> int:
        return 0 if self.value is None else len(self.value)

    def items(self) -> Iterable[tuple[bytes, float]]:
        if isinstance(self.value, SortedSet):
            return ((member, score) for score, member in self.value)
        return ((member, 1.0) for member in self.value or ())

    def score(self, member: bytes) -> float | None:
        if isinstance(self.value, SortedSet):
            return self.value.score(member)
        return 1.0 if self.value is not None and member in self.value else None

    def weighted(self, score: float) -> float:
        """Return a score times the weight, where zero times infinity is zero."""
        product = self.weight * score
        return 0.0 if math.isnan(product) else product


@dataclass(slots=True)
class _Request:
    sources: list[_Source]
    aggregate: Callable[[float, float], float] = _sum
    with_scores: bool = False
    limit: int = 0


def _source(session: Session, key: bytes) -> _Source:
    value = session.db.lookup(key)
    if value is None or isinstance(value, SortedSet | SetValue):
        return _Source(value)
    raise CommandError(WRONGTYPE)


def _parse(session: Session, args: Args, name: str, *allowed: bytes) -> _Request:
    """Parse ``numkeys key [key ...]`` and the options that the command allows."""
    numkeys = parse_int(args[0])
    if numkeys < 1:
        raise CommandError(input_key_needed(name))
    if numkeys > len(args) - 1:
        raise CommandError(errors.SYNTAX)
    request = _Request([_source(session, key) for key in args[1 : 1 + numkeys]])
    known = {b"WEIGHTS": numkeys, b"AGGREGATE": 1, b"WITHSCORES": 0, b"LIMIT": 1}
    for word, values in options(args, 1 + numkeys, {word: known[word] for word in allowed}):
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


def _union(request: _Request) -> dict[bytes, float]:
    result: dict[bytes, float] = {}
    # Process the smallest input first, as Redis does: the sum of floats depends on the order.
    for source in sorted(request.sources, key=len):
        spend(_LOOKUP_STEPS * len(source))
        for member, score in source.items():
            weighted = source.weighted(score)
            if member in result:
                result[member] = request.aggregate(result[member], weighted)
            else:
                result[member] = weighted
    return result


def _intersection(request: _Request) -> dict[bytes, float]:
    first, *others = sorted(request.sources, key=len)
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
    spend(len(first) * (2 + 2 * len(others)))
    return {
        member: score
        for member, score in first.items()
        if all(other.score(member) is None for other in others)
    }


@command("ZUNION")
def zunion(session: Session, args: Args) -> Reply:
    """Return the union of sorted sets and sets."""
    request = _parse(session, args, "zunion", *_COMBINING, b"WITHSCORES")
    return members_reply(session, SortedSet(_union(request)), scores=request.with_scores)


@command("ZINTER")
def zinter(session: Session, args: Args) -> Reply:
    """Return the intersection of sorted sets and sets."""
    request = _parse(session, args, "zinter", *_COMBINING, b"WITHSCORES")
    return members_reply(session, SortedSet(_intersection(request)), scores=request.with_scores)


@command("ZDIFF")
def zdiff(session: Session, args: Args) -> Reply:
    """Return the members of the first sorted set that are in none of the others."""
    request = _parse(session, args, "zdiff", b"WITHSCORES")
    return members_reply(session, SortedSet(_difference(request)), scores=request.with_scores)


@command("ZUNIONSTORE")
def zunionstore(session: Session, args: Args) -> Reply:
    """Store the union of sorted sets and sets in a key and return its size."""
    request = _parse(session, args[1:], "zunionstore", *_COMBINING)
    return session.db.store(args[0], SortedSet(_union(request)).as_stored())


@command("ZINTERSTORE")
def zinterstore(session: Session, args: Args) -> Reply:
    """Store the intersection of sorted sets and sets in a key and return its size."""
    request = _parse(session, args[1:], "zinterstore", *_COMBINING)
    return session.db.store(args[0], SortedSet(_intersection(request)).as_stored())


@command("ZDIFFSTORE")
def zdiffstore(session: Session, args: Args) -> Reply:
    """Store the members of the first sorted set that are in no other; return their number."""
    request = _parse(session, args[1:], "zdiffstore")
    return session.db.store(args[0], SortedSet(_difference(request)).as_stored())


@command("ZINTERCARD")
def zintercard(session: Session, args: Args) -> Reply:
    """Return the size of the intersection of sorted sets, counting up to an optional limit."""
    request = _parse(session, args, "zintercard", b"LIMIT")
    return len(_intersection(request))
