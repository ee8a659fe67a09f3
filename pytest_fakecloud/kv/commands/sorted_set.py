"""Sorted set commands: members and scores, ranges, and operations on several sets.

Ranges are by rank, by score or by name. Union, intersection and difference also accept plain sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Literal

from .. import errors
from ..engine.sessions import Session
from ..errors import WRONGTYPE, CommandError, input_key_needed
from ..reply import NIL_ARRAY, Reply
from ..syntax import DECIMAL, I64_MAX, format_double, parse_float, parse_int
from ..table.registry import Args, command, variant
from ..values.containers import SetValue
from ..values.zset import Item, SortedSet
from .arguments import (
    arity_error,
    choice,
    get_or_empty,
    only_option,
    parse_bounds,
    parse_options,
    parse_pop,
    parse_random,
    pop_first,
    pop_several,
    random_indexes,
    remove_all,
    scan_collection,
    slice_bounds,
)


def members_reply(session: Session, items: Iterable[Item], *, scores: bool) -> Reply:
    """Return a reply of members with alternating scores or, in RESP3, in pairs with scores."""
    if not scores:
        return [member for _, member in items]
    print_double = session.engine.print_double
    if print_double is not None:
        items = ((print_double(score), member) for score, member in items)
    if session.resp > 2:
        return [[member, score] for score, member in items]
    return [part for score, member in items for part in (member, score)]


def printable_score(session: Session, score: float | None) -> float | None:
    """Return a score in the form in which the reported server version prints it."""
    print_double = session.engine.print_double
    return score if print_double is None or score is None else print_double(score)


@command("ZCARD")
def zcard(session: Session, args: Args) -> Reply:
    """Return the number of members in a sorted set."""
    return len(get_or_empty(session, args[0], SortedSet))


@command("ZREM")
def zrem(session: Session, args: Args) -> Reply:
    """Remove members from a sorted set and return the number that were removed."""
    return remove_all(session, args, kind=SortedSet)


def leading_options(session: Session, args: Args) -> tuple[set[bytes], int]:
    """Return the options after the key, in upper case, and the index of the first other word."""
    accepted = session.command.option_words
    words: set[bytes] = set()
    at = 1
    while at < len(args) and (word := args[at].upper()) in accepted:
        words.add(word)
        at += 1
    return words, at


@command("ZADD")
def zadd(session: Session, args: Args) -> Reply:
    """Add members to a sorted set, or update their scores."""
    words, at = leading_options(session, args)
    if (len(args) - at) % 2 or at == len(args):
        raise CommandError(errors.SYNTAX)
    if words:
        if {b"NX", b"XX"} <= words:
            raise CommandError(errors.ZADD_XX_AND_NX)
        if len(words & {b"GT", b"LT", b"NX"}) > 1:
            raise CommandError(errors.ZADD_GT_LT_NX)
        if b"INCR" in words and len(args) - at > 2:
            raise CommandError(errors.ZADD_INCR_PAIRS)
    pairs = [(parse_float(args[i]), args[i + 1]) for i in range(at, len(args), 2)]
    if b"INCR" in words:
        return _increment_score(session, args[0], *pairs[0], words)
    return add_scores(session, args[0], pairs, words)


def add_scores(
    session: Session, key: bytes, pairs: list[tuple[float, bytes]], words: set[bytes]
) -> Reply:
    """Add (score, member) pairs; return the number of new members, with CH also of changed ones.

    ``words`` are the options of ZADD except INCR.
    """
    find = session.db.get if b"XX" in words else session.db.get_or_create
    members = find(key, SortedSet)
    if members is None:
        return 0
    before, changed = len(members), 0
    for score, member in pairs:
        # Without options, the usual case, there is nothing to check.
        if not words or _allowed_score(members.scores.get(member), score, words) is not None:
            changed += members.set(member, score)
    if changed:
        session.db.touch(key, "zadd")
    return changed if b"CH" in words else len(members) - before


def _increment_score(
    session: Session, key: bytes, amount: float, member: bytes, words: set[bytes]
) -> Reply:
    """Increment a score; return the new score, or nil if an option of ZADD prevented the change."""
    find = session.db.get if b"XX" in words else session.db.get_or_create
    members = find(key, SortedSet)
    if members is None:
        return None
    old = members.scores.get(member)
    new = _allowed_score(old, amount if old is None else old + amount, words)
    if new is None:
        return None
    if new != old:
        members.set(member, new)
        session.db.touch(key, "zincr")
    return printable_score(session, new)


def _allowed_score(old: float | None, new: float, words: set[bytes]) -> float | None:
    """Return the new score of a member, or None if the options of ZADD prevent the change."""
    if old is None:
        return None if b"XX" in words else new
    if b"NX" in words:
        return None
    if math.isnan(new):
        raise CommandError(errors.SCORE_NAN)
    if (b"LT" in words and new >= old) or (b"GT" in words and new <= old):
        return None
    return new


@command("ZINCRBY")
def zincrby(session: Session, args: Args) -> Reply:
    """Increment the score of a member and return the new score."""
    return _increment_score(session, args[0], parse_float(args[1]), args[2], set())


@command("ZSCORE")
def zscore(session: Session, args: Args) -> Reply:
    """Return the score of a member."""
    return printable_score(session, get_or_empty(session, args[0], SortedSet).scores.get(args[1]))


@command("ZMSCORE")
def zmscore(session: Session, args: Args) -> Reply:
    """Return the scores of members."""
    members = get_or_empty(session, args[0], SortedSet)
    return [printable_score(session, members.scores.get(member)) for member in args[1:]]


@variant("ZRANK", "Return the rank of a member, counted from the lowest score.", reverse=False)
@variant("ZREVRANK", "Return the rank of a member, counted from the highest score.", reverse=True)
def zrank(session: Session, args: Args, *, reverse: bool) -> Reply:
    if len(args) > 3:
        raise arity_error(session)
    with_score = bool(only_option(session, args[2:]))
    members = get_or_empty(session, args[0], SortedSet)
    rank = members.rank(args[1], reverse=reverse)
    if rank is None:
        return NIL_ARRAY if with_score else None
    return [rank, printable_score(session, members.scores.get(args[1]))] if with_score else rank


@command("ZSCAN")
def zscan(session: Session, args: Args) -> Reply:
    """Iterate over the members and scores of a sorted set."""

    def show(members: SortedSet, items: list[Item], own_options: dict[bytes, Args]) -> list[bytes]:
        is_packed = members.encoding(session.engine.config) == "listpack"
        reply = []
        for score, member in items:
            if is_packed and session.engine.print_double is None:
                text = format_double(score)
            elif is_packed and abs(score) <= 2**62 and score == int(score):
                text = b"%d" % score
            else:
                text = b"%.17g" % score
            reply += [member, text]
        return reply

    return scan_collection(session, args, kind=SortedSet, name=lambda item: item[1], show=show)


def _take(session: Session, key: bytes, members: SortedSet, lowest: bool, count: int) -> list[Item]:
    """Remove members from one end; return them in the order of removal."""
    start = 0 if lowest else max(len(members) - count, 0)
    taken = members.remove_span(start, min(start + count, len(members)))
    session.db.note_removal(key, "zpopmin" if lowest else "zpopmax")
    return taken if lowest else taken[::-1]


@variant("ZPOPMIN", "Remove and return the members with the lowest scores.", lowest=True)
@variant("ZPOPMAX", "Remove and return the members with the highest scores.", lowest=False)
def zpop(session: Session, args: Args, *, lowest: bool) -> Reply:
    count = parse_pop(args)
    members = get_or_empty(session, args[0], SortedSet)
    if not members or count == 0:
        return []
    if count is None:
        return _take_pairs(session, args[0], members, lowest, 1)[0]
    return members_reply(session, _take(session, args[0], members, lowest, count), scores=True)


def _take_pairs(
    session: Session, key: bytes, members: SortedSet, lowest: bool, count: int
) -> list[list[Reply]]:
    """Return removed members in pairs with their scores, in both versions of the protocol."""
    taken = _take(session, key, members, lowest, count)
    return [[member, printable_score(session, score)] for score, member in taken]


@variant("ZMPOP", "Remove and return members of the first non-empty sorted set.")
@variant(
    "BZMPOP",
    "Remove and return members of the first non-empty sorted set; block while all are empty.",
)
def zmpop(session: Session, args: Args) -> Reply:
    return pop_several(session, args, (b"MIN", b"MAX"), SortedSet, partial(_take_pairs, session))


@variant(
    "BZPOPMIN",
    "Remove and return the lowest member of the first non-empty set; block while all are empty.",
)
@variant(
    "BZPOPMAX",
    "Remove and return the highest member of the first non-empty set; block while all are empty.",
    lowest=False,
)
def bzpop(session: Session, args: Args, *, lowest: bool = True) -> Reply:
    def take(key: bytes, members: SortedSet) -> list[Reply]:
        return _take_pairs(session, key, members, lowest, 1)[0]

    return pop_first(session, args[:-1], args[-1], SortedSet, take)


@command("ZRANDMEMBER")
def zrandmember(session: Session, args: Args) -> Reply:
    """Return one or more random members of a sorted set; a negative count allows repetitions."""
    count, with_scores = parse_random(args, b"WITHSCORES")
    members = get_or_empty(session, args[0], SortedSet)
    if not members:
        return None if count is None else []
    if count is None:
        return members.at(session.engine.random.randrange(len(members)))[1]
    ranks = random_indexes(session, len(members), count)
    return members_reply(session, map(members.at, ranks), scores=with_scores)


# -- ranges ----------------------------------------------------------------------------------------

RangeKind = Literal["rank", "score", "lex"]
Interval = tuple[Any, Any]
"""Both ends of a range, as `slice_bounds()` or the methods of `SortedSet` take them."""
_SIZES = {b"WITHSCORES": 0, b"LIMIT": 2, b"REV": 0, b"BYLEX": 0, b"BYSCORE": 0}
"""The options of all ranges: a server also parses those that it rejects for one kind of range."""


def _score_bound(text: bytes) -> float:
    """Parse the bound of a score range like ``strtod``: it may overflow, and an empty string is 0."""
    text = text.partition(b"\0")[0]
    if not text:
        return 0.0
    text = text.lstrip(b" \t\n\v\f\r")
    return float(text) if DECIMAL.fullmatch(text) else parse_float(text, errors.SCORE_RANGE)


def parse_score_range(low: bytes, high: bytes) -> Interval:
    """Parse a range of scores; ``(`` excludes a bound."""
    low_bound, high_bound = (_score_bound(text.removeprefix(b"(")) for text in (low, high))
    first = _next_score(low_bound) if low.startswith(b"(") else low_bound
    stop = high_bound if high.startswith(b"(") else _next_score(high_bound)
    return (0.0, 0.0) if first is None else (first, stop)


def _next_score(score: float) -> float | None:
    return None if score == math.inf else math.nextafter(score, math.inf)


def parse_lex_range(low: bytes, high: bytes) -> Interval:
    """Parse a range of names: ``[`` includes a bound, ``(`` excludes it, ``-`` and ``+`` mean none."""
    first, stop = _lex_bound(low, is_high=False), _lex_bound(high, is_high=True)
    return (b"", b"") if first is None else (first, stop)


def _lex_bound(text: bytes, *, is_high: bool) -> bytes | None:
    """Return the lowest name that is at or above a bound; None for ``+``."""
    sign = text[:1]
    if sign in (b"+", b"-") and text[1:2] in (b"", b"\0"):
        return None if sign == b"+" else b""
    if sign not in (b"[", b"("):
        raise CommandError(errors.LEX_RANGE)
    # A name followed by NUL is the lowest byte string above the name.
    return text[1:] + b"\0" if (sign == b"[") == is_high else text[1:]


_PARSERS: dict[RangeKind, Callable[[bytes, bytes], Interval]] = {
    "rank": parse_bounds,
    "score": parse_score_range,
    "lex": parse_lex_range,
}


def _span(
    members: SortedSet, kind: RangeKind, interval: Interval, *, reverse: bool = False
) -> tuple[int, int]:
    """Return the ranks of the items in a range, which counts ranks from the end if ``reverse``."""
    if kind == "lex":
        return members.lex_span(*interval, reverse=reverse)
    if kind == "score":
        return members.span(*interval)
    start, stop = slice_bounds(*interval, len(members))
    return (len(members) - stop, len(members) - start) if reverse else (start, stop)


def _find_range(
    session: Session, args: Args, kind: RangeKind | None = None, reverse: bool = False
) -> tuple[list[Item], bool]:
    """Return the items that ``key start stop`` and options select, and whether WITHSCORES is given.

    Without ``kind``, the options determine the kind of the range and its order.
    """
    has_kind = kind is not None
    limit, with_scores = None, False
    for word, values in parse_options(args, 3, _SIZES):
        if word == b"WITHSCORES" and not session.command.write:
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
    interval = _PARSERS[kind](low, high)
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return [], with_scores
    start, stop = _span(members, kind, interval, reverse=reverse)
    if limit is not None:
        (offset, count), size = limit, stop - start
        first = min(offset, size) if offset >= 0 else size
        end = min(first + count, size) if count >= 0 else size
        start, stop = (stop - end, stop - first) if reverse else (start + first, start + end)
    items = members.slice(start, stop)
    return items[::-1] if reverse else items, with_scores


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
    items, with_scores = _find_range(session, args, kind, reverse)
    return members_reply(session, items, scores=with_scores)


@command("ZRANGESTORE")
def zrangestore(session: Session, args: Args) -> Reply:
    """Store a range of members of a sorted set in a key and return their number."""
    items, _ = _find_range(session, args[1:])
    scores = {member: score for score, member in items}
    return session.db.store(args[0], SortedSet(scores).as_stored())


@variant("ZCOUNT", "Return the number of members in a range of scores.", kind="score")
@variant("ZLEXCOUNT", "Return the number of members in a range of names.", kind="lex")
def zcount(session: Session, args: Args, *, kind: RangeKind) -> Reply:
    interval = _PARSERS[kind](args[1], args[2])
    start, stop = _span(get_or_empty(session, args[0], SortedSet), kind, interval)
    return stop - start


@variant("ZREMRANGEBYRANK", "Remove the members in a range of ranks and return their number.")
@variant(
    "ZREMRANGEBYSCORE",
    "Remove the members in a range of scores and return their number.",
    kind="score",
)
@variant(
    "ZREMRANGEBYLEX", "Remove the members in a range of names and return their number.", kind="lex"
)
def zremrange(session: Session, args: Args, *, kind: RangeKind = "rank") -> Reply:
    interval = _PARSERS[kind](args[1], args[2])
    members = get_or_empty(session, args[0], SortedSet)
    removed = members.remove_span(*_span(members, kind, interval))
    if removed:
        session.db.note_removal(args[0])
    return len(removed)


# -- union, intersection and difference ----------------------------------------------------------


def _sum(left: float, right: float) -> float:
    total = left + right
    return 0.0 if math.isnan(total) else total


_AGGREGATES: dict[bytes, Callable[[float, float], float]] = {
    b"SUM": _sum, b"MIN": min, b"MAX": max, b"COUNT": _sum,
}  # fmt: skip


@dataclass(slots=True)
class _Source:
    """An input: the scores of a sorted set or a set, whose scores are all 1, and a weight. If it is only
    counted, the scores of a sorted set are 1, too.
    """

    members: Mapping[bytes, float] | SetValue
    weight: float = 1.0
    is_counted: bool = False

    def __len__(self) -> int:
        return len(self.members)

    def items(self) -> Iterable[tuple[bytes, float]]:
        if isinstance(self.members, SetValue) or self.is_counted:
            return zip(self.members, repeat(1.0))
        return self.members.items()

    def score(self, member: bytes) -> float | None:
        if isinstance(self.members, SetValue) or self.is_counted:
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
        raise CommandError(input_key_needed(session.command.full_name))
    if numkeys > len(args) - 1:
        raise CommandError(errors.SYNTAX)
    request = _Request([_find_source(session, key) for key in args[1 : 1 + numkeys]])
    sizes = session.command.option_sizes
    if b"WEIGHTS" in sizes:
        sizes = {**sizes, b"WEIGHTS": numkeys}
    for word, values in parse_options(args, 1 + numkeys, sizes):
        if word == b"WEIGHTS":
            for source, text in zip(request.sources, values, strict=True):
                source.weight = parse_float(text, errors.WEIGHT_NOT_FLOAT)
        elif word == b"AGGREGATE":
            aggregate = choice(values, session.command.option_words & _AGGREGATES.keys())
            request.aggregate = _AGGREGATES[aggregate]
            for source in request.sources:
                source.is_counted = aggregate == b"COUNT"
        elif word == b"WITHSCORES":
            request.with_scores = True
        else:
            request.limit = parse_int(values[0], 0, I64_MAX, errors.LIMIT_NEGATIVE)
    return request


def _union(request: _Request) -> dict[bytes, float]:
    result: dict[bytes, float] = {}
    # Process the smallest input first, as Redis does: the sum of floats depends on the order.
    for source in sorted(request.sources, key=len):
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
        combined = first.weighted(score)
        for other in others:
            other_score = other.score(member)
            if other_score is None:
                break
            # Unlike for the first source, Redis does not replace NaN (0 times infinity) here.
            combined = request.aggregate(combined, other.weight * other_score)
        else:
            result[member] = combined
            if len(result) == request.limit:
                break
    return result


def _difference(request: _Request) -> dict[bytes, float]:
    first, *others = request.sources
    return {
        member: score
        for member, score in first.items()
        if not any(member in other.members for other in others)
    }


_Combination = Callable[[_Request], dict[bytes, float]]


@variant("ZUNION", "Return the union of sorted sets and sets.")
@variant("ZINTER", "Return the intersection of sorted sets and sets.", combine=_intersection)
@variant(
    "ZDIFF",
    "Return the members of the first sorted set that are in none of the others.",
    combine=_difference,
)
@variant("ZUNIONSTORE", "Store the union of sorted sets and sets in a key and return its size.")
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
def zunion(session: Session, args: Args, *, combine: _Combination = _union) -> Reply:
    stores = session.command.write
    request = _parse(session, args[1:] if stores else args)
    result = SortedSet(combine(request))
    if stores:
        return session.db.store(args[0], result.as_stored())
    return members_reply(session, result, scores=request.with_scores)


@command("ZINTERCARD")
def zintercard(session: Session, args: Args) -> Reply:
    """Return the size of the intersection of sorted sets, counting up to an optional limit."""
    return len(_intersection(_parse(session, args)))
