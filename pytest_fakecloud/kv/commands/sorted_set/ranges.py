"""Commands for ranges of a sorted set, by rank, by score or by name, and parsers for the ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import DECIMAL, parse_float
from ...values.score_order import Item
from ...values.zset import LexRange, ScoreRange, SortedSet
from ..arguments import options, parse_bounds, slice_bounds
from .members import members_reply

RangeKind = Literal["rank", "score", "lex"]
_SIZES = {b"WITHSCORES": 0, b"LIMIT": 2, b"REV": 0, b"BYLEX": 0, b"BYSCORE": 0}


@dataclass(frozen=True, slots=True)
class Range:
    """The range of ZRANGE or a related command; ``limit`` is an offset and a count (negative: all)."""

    interval: tuple[int, int] | ScoreRange | LexRange
    reverse: bool
    limit: tuple[int, int] | None
    with_scores: bool


def _read_bound(text: bytes) -> float:
    """Parse the bound of a score range like ``strtod``: it may overflow, and an empty string is 0."""
    text = text.partition(b"\0")[0]
    if not text:
        return 0.0
    text = text.lstrip(b" \t\n\v\f\r")
    return float(text) if DECIMAL.fullmatch(text) else parse_float(text, errors.SCORE_RANGE)


def parse_score_range(low: bytes, high: bytes) -> ScoreRange:
    """Parse a range of scores; ``(`` excludes a bound."""
    return ScoreRange(
        _read_bound(low.removeprefix(b"(")),
        _read_bound(high.removeprefix(b"(")),
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


def parse_range(
    session: Session,
    args: Args,
    kind: RangeKind | None,
    reverse: bool | None,
    *,
    storing: bool = False,
) -> Range:
    """Parse ``key start stop`` and options, which set ``kind`` and ``reverse`` if these are None."""
    limit = None
    with_scores = False
    for word, values in options(args, 3, _SIZES):
        if word == b"WITHSCORES" and not storing:
            with_scores = True
        elif word == b"LIMIT":
            limit = parse_bounds(*values)
        elif word == b"REV" and reverse is None:
            reverse = True
        elif word in (b"BYLEX", b"BYSCORE") and kind is None:
            kind = "lex" if word == b"BYLEX" else "score"
        else:
            raise CommandError(errors.SYNTAX)
    kind = kind or "rank"
    if kind == "rank" and limit is not None and session.engine.dialect != "vendor":
        if limit[1] != -1:
            raise CommandError(errors.LIMIT_NEEDS_BY)
        limit = None
    if with_scores and kind == "lex":
        raise CommandError(errors.WITHSCORES_WITH_BYLEX)
    low, high = (args[2], args[1]) if reverse and kind != "rank" else (args[1], args[2])
    interval: tuple[int, int] | ScoreRange | LexRange
    if kind == "score":
        interval = parse_score_range(low, high)
    elif kind == "lex":
        interval = parse_lex_range(low, high)
    else:
        interval = parse_bounds(low, high)
    return Range(interval, bool(reverse), limit, with_scores)


def select(members: SortedSet, wanted: Range) -> list[Item]:
    """Return the items in a range, in the order and within the limit that the range specifies."""
    interval = wanted.interval
    size = len(members)
    if isinstance(interval, LexRange):
        found = members.in_lex_range(interval, reverse=wanted.reverse)
        return found if wanted.limit is None else _limited(found, wanted.limit)
    if isinstance(interval, ScoreRange):
        start, stop = members.span(interval)
    else:
        start, stop = slice_bounds(*interval, size)
        if wanted.reverse:
            start, stop = size - stop, size - start
    if wanted.limit is not None:
        start, stop = _limited_span(start, stop, wanted.limit, wanted.reverse)
    found = members.slice(start, stop)
    return found[::-1] if wanted.reverse else found


def _limited(items: list[Item], limit: tuple[int, int]) -> list[Item]:
    offset, count = limit
    if offset < 0:
        return []
    return items[offset : None if count < 0 else offset + count]


def _limited_span(start: int, stop: int, limit: tuple[int, int], reverse: bool) -> tuple[int, int]:
    offset, count = limit
    if offset < 0:
        return 0, 0
    size = max(stop - start - offset, 0)
    size = size if count < 0 else min(size, count)
    if reverse:
        stop = max(stop - offset, start)
        return stop - size, stop
    start = min(start + offset, stop)
    return start, start + size


def _members(session: Session, key: bytes) -> SortedSet:
    """Return the sorted set of a key; for a missing key, an empty one."""
    return session.db.get(key, SortedSet) or SortedSet()


def _range(session: Session, args: Args, kind: RangeKind | None, *, reverse: bool | None) -> Reply:
    """Return a range of members. If ``kind`` or ``reverse`` is None, it depends on the options."""
    wanted = parse_range(session, args, kind, reverse)
    found = select(_members(session, args[0]), wanted)
    return members_reply(session, found, scores=wanted.with_scores)


@command("ZRANGE")
def zrange(session: Session, args: Args) -> Reply:
    """Return members in a range of ranks, scores, or names, in either order."""
    return _range(session, args, None, reverse=None)


@command("ZREVRANGE")
def zrevrange(session: Session, args: Args) -> Reply:
    """Return members in a range of ranks, ordered from the highest score."""
    return _range(session, args, "rank", reverse=True)


@command("ZRANGEBYSCORE")
def zrangebyscore(session: Session, args: Args) -> Reply:
    """Return members in a range of scores, lowest score first."""
    return _range(session, args, "score", reverse=False)


@command("ZREVRANGEBYSCORE")
def zrevrangebyscore(session: Session, args: Args) -> Reply:
    """Return members in a range of scores, highest score first."""
    return _range(session, args, "score", reverse=True)


@command("ZRANGEBYLEX")
def zrangebylex(session: Session, args: Args) -> Reply:
    """Return members in a range of names; all scores must be equal."""
    return _range(session, args, "lex", reverse=False)


@command("ZREVRANGEBYLEX")
def zrevrangebylex(session: Session, args: Args) -> Reply:
    """Return members in a range of names in reverse order; all scores must be equal."""
    return _range(session, args, "lex", reverse=True)


@command("ZRANGESTORE")
def zrangestore(session: Session, args: Args) -> Reply:
    """Store a range of members of a sorted set in a key and return their number."""
    wanted = parse_range(session, args[1:], None, None, storing=True)
    scores = {member: score for score, member in select(_members(session, args[1]), wanted)}
    return session.db.store(args[0], SortedSet(scores).as_stored())


@command("ZCOUNT")
def zcount(session: Session, args: Args) -> Reply:
    """Return the number of members in a range of scores."""
    interval = parse_score_range(args[1], args[2])
    start, stop = _members(session, args[0]).span(interval)
    return stop - start


@command("ZLEXCOUNT")
def zlexcount(session: Session, args: Args) -> Reply:
    """Return the number of members in a range of names."""
    interval = parse_lex_range(args[1], args[2])
    return len(_members(session, args[0]).in_lex_range(interval))


@command("ZREMRANGEBYRANK")
def zremrangebyrank(session: Session, args: Args) -> Reply:
    """Remove the members in a range of ranks and return their number."""
    first, last = parse_bounds(args[1], args[2])
    members = _members(session, args[0])
    removed = members.remove_span(*slice_bounds(first, last, len(members)))
    return _removed(session, args[0], removed)


@command("ZREMRANGEBYSCORE")
def zremrangebyscore(session: Session, args: Args) -> Reply:
    """Remove the members in a range of scores and return their number."""
    interval = parse_score_range(args[1], args[2])
    members = _members(session, args[0])
    return _removed(session, args[0], members.remove_span(*members.span(interval)))


@command("ZREMRANGEBYLEX")
def zremrangebylex(session: Session, args: Args) -> Reply:
    """Remove the members in a range of names and return their number."""
    interval = parse_lex_range(args[1], args[2])
    members = _members(session, args[0])
    doomed = members.in_lex_range(interval)
    for _, member in doomed:
        members.remove(member)
    return _removed(session, args[0], doomed)


def _removed(session: Session, key: bytes, items: list[Item]) -> int:
    if items:
        session.db.note_removal(key)
    return len(items)
