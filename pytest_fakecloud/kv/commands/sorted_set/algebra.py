"""Union, intersection, and difference of sorted sets and plain sets, with weights and aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat

from ....core.budget import spend
from ... import errors
from ...engine.session import Session
from ...errors import WRONGTYPE, CommandError, input_key_needed
from ...reply import Reply
from ...table.registry import Args, command, variant
from ...table.syntax import I64_MAX, parse_float, parse_int
from ...values.collections import SetValue
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
