"""Union, intersection, and difference of sorted sets and plain sets, with weights and aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....core.budget import spend
from ... import errors
from ...engine.session import Session
from ...errors import WRONGTYPE, CommandError, input_key_needed
from ...reply import Reply
from ...table.registry import Args, command, variant
from ...table.syntax import I64_MAX, parse_float, parse_int
from ...values.sets import SetValue
from ...values.zset import SortedSet
from ..arguments import options, running
from .members import members_reply


def _sum(left: float, right: float) -> float:
    total = left + right
    return 0.0 if math.isnan(total) else total


_AGGREGATES: dict[bytes, Callable[[float, float], float]] = {b"SUM": _sum, b"MIN": min, b"MAX": max}
_LOOKUP_STEPS = 4
"""Steps of the budget for an element that is looked up in another input or in the result."""


@dataclass(slots=True)
class _Source:
    """An input, with its weight: a sorted set, a set (all scores are 1), or None for a missing key."""

    value: SortedSet | SetValue | None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.value, SortedSet | SetValue | None):
            raise CommandError(WRONGTYPE)

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
    request = _Request([_Source(session.db.lookup(key)) for key in args[1 : 1 + numkeys]])
    known = {"WEIGHTS": numkeys, "AGGREGATE": 1, "WITHSCORES": 0, "LIMIT": 1}
    sizes = {word.encode(): known[word] for word in running(session).options if word in known}
    for word, values in options(args, 1 + numkeys, sizes):
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
