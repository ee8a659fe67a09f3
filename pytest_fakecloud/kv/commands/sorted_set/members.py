"""Commands that act on a single sorted set: scores, ranks, ranges, removal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, Reply
from ...table.registry import Args, command
from ...table.syntax import format_double, parse_float
from ...values.score_order import Item
from ...values.zset import SortedSet
from ..arguments import parse_bounds, slice_bounds
from ..scanning import scan_page
from .ranges import RangeKind, parse_lex_range, parse_range, parse_score_range, select


def members_reply(session: Session, items: Iterable[Item], *, scores: bool) -> Reply:
    """Return a reply of members with alternating scores or, in RESP3, in pairs with scores."""
    if not scores:
        return [member for _, member in items]
    printed = session.engine.print_double
    if printed is not None:
        items = ((printed(score), member) for score, member in items)
    if session.resp > 2:
        return [[member, score] for score, member in items]
    return [each for score, member in items for each in (member, score)]


def shown(session: Session, score: float | None) -> float | None:
    """Return a score in the form in which the reported server version prints it."""
    printed = session.engine.print_double
    return score if printed is None or score is None else printed(score)


# -- scores --------------------------------------------------------------------------------------

_ZADD_WORDS = frozenset({b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"})


@command("ZADD")
def zadd(session: Session, args: Args) -> Reply:
    """Add members to a sorted set, or update their scores."""
    words: set[bytes] = set()
    at = 1
    while at < len(args):
        word = args[at].upper()
        if word not in _ZADD_WORDS:
            break
        words.add(word)
        at += 1
    if (len(args) - at) % 2 or at == len(args):
        raise CommandError(errors.SYNTAX)
    if words:
        return _zadd_with(session, args, at, words)
    pairs = [(parse_float(args[i]), args[i + 1]) for i in range(1, len(args), 2)]
    members = session.db.get_or_create(args[0], SortedSet)
    before = len(members)
    changes = [members.set(member, score) for score, member in pairs]
    if any(changes):
        session.db.touch(args[0])
    return len(members) - before


def _zadd_with(session: Session, args: Args, at: int, words: set[bytes]) -> Reply:
    if {b"NX", b"XX"} <= words:
        raise CommandError(errors.ZADD_XX_AND_NX)
    if len(words & {b"GT", b"LT", b"NX"}) > 1:
        raise CommandError(errors.ZADD_GT_LT_NX)
    increment = b"INCR" in words
    if increment and len(args) - at > 2:
        raise CommandError(errors.ZADD_INCR_PAIRS)
    pairs = [(parse_float(args[i]), args[i + 1]) for i in range(at, len(args), 2)]
    return add_scores(session, args[0], pairs, words, increment=increment)


def add_scores(
    session: Session,
    key: bytes,
    pairs: list[tuple[float, bytes]],
    words: set[bytes],
    *,
    increment: bool = False,
) -> Reply:
    """Add (score, member) pairs; return the new members, with CH also the changed ones.

    With ``increment``, return the new score instead, or nil if a condition prevented it.
    """
    members = session.db.get(key, SortedSet)
    if members is None:
        if b"XX" in words:
            return None if increment else 0
        members = session.db.get_or_create(key, SortedSet)
    added = moved = 0
    score: float | None = None
    for given, member in pairs:
        old = members.score(member)
        score = None
        if old is None:
            if b"XX" not in words:
                members.set(member, given)
                score = given
                added += 1
            continue
        if b"NX" in words:
            continue
        new = old + given if increment else given
        if math.isnan(new):
            raise CommandError(errors.SCORE_NAN)
        if (b"LT" in words and new >= old) or (b"GT" in words and new <= old):
            continue
        score = new
        if new != old:
            members.set(member, new)
            moved += 1
    session.db.remove_if_empty(key)
    if added or moved:
        session.db.touch(key, "zincr" if increment else "zadd")
    if increment:
        return shown(session, score)
    return added + moved if b"CH" in words else added


@command("ZINCRBY")
def zincrby(session: Session, args: Args) -> Reply:
    """Increment the score of a member and return the new score."""
    pair = (parse_float(args[1]), args[2])
    return add_scores(session, args[0], [pair], set(), increment=True)


@command("ZSCORE")
def zscore(session: Session, args: Args) -> Reply:
    """Return the score of a member."""
    members = session.db.get(args[0], SortedSet)
    return None if members is None else shown(session, members.score(args[1]))


@command("ZMSCORE")
def zmscore(session: Session, args: Args) -> Reply:
    """Return the scores of members."""
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return [None] * (len(args) - 1)
    return [shown(session, members.score(member)) for member in args[1:]]


@command("ZCARD")
def zcard(session: Session, args: Args) -> Reply:
    """Return the number of members in a sorted set."""
    members = session.db.get(args[0], SortedSet)
    return 0 if members is None else len(members)


def _rank(session: Session, args: Args, *, reverse: bool) -> Reply:
    if len(args) > 3:
        raise CommandError(errors.wrong_arity("zrevrank" if reverse else "zrank"))
    with_score = len(args) == 3
    if with_score and args[2].upper() != b"WITHSCORE":
        raise CommandError(errors.SYNTAX)
    members = session.db.get(args[0], SortedSet)
    rank = None if members is None else members.rank(args[1], reverse=reverse)
    if members is None or rank is None:
        return NIL_ARRAY if with_score else None
    return [rank, shown(session, members.score(args[1]))] if with_score else rank


@command("ZRANK")
def zrank(session: Session, args: Args) -> Reply:
    """Return the rank of a member, counted from the lowest score."""
    return _rank(session, args, reverse=False)


@command("ZREVRANK")
def zrevrank(session: Session, args: Args) -> Reply:
    """Return the rank of a member, counted from the highest score."""
    return _rank(session, args, reverse=True)


# -- ranges --------------------------------------------------------------------------------------


def _range(session: Session, args: Args, kind: RangeKind | None, *, reverse: bool | None) -> Reply:
    """Return a range of members. Options of the command decide about what is None."""
    wanted = parse_range(session, args, kind, reverse)
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return []
    return members_reply(session, select(members, wanted), scores=wanted.with_scores)


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
    members = session.db.get(args[1], SortedSet)
    found: list[Item] = [] if members is None else select(members, wanted)
    scores = {member: score for score, member in found}
    return session.db.store(args[0], SortedSet(scores).as_stored())


@command("ZCOUNT")
def zcount(session: Session, args: Args) -> Reply:
    """Return the number of members in a range of scores."""
    interval = parse_score_range(args[1], args[2])
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return 0
    start, stop = members.span(interval)
    return stop - start


@command("ZLEXCOUNT")
def zlexcount(session: Session, args: Args) -> Reply:
    """Return the number of members in a range of names."""
    interval = parse_lex_range(args[1], args[2])
    members = session.db.get(args[0], SortedSet)
    return 0 if members is None else len(members.in_lex_range(interval))


def _stored_text(score: float) -> bytes:
    """Format a score as Redis 7.0 stores it in a listpack: as an integer or with 17 digits."""
    if abs(score) <= 2**62 and score == int(score):
        return b"%d" % score
    return b"%.17g" % score


@command("ZSCAN")
def zscan(session: Session, args: Args) -> Reply:
    """Iterate over the members and scores of a sorted set."""
    page = scan_page(session, args, SortedSet, name=lambda item: item[1])
    members = page.collection
    # In this reply, unlike all others, every version prints the scores of a skiplist with 17
    # digits.
    printed: Callable[[float], bytes] = lambda score: b"%.17g" % score  # noqa: E731
    if members is not None and members.encoding(session.engine.config) == "listpack":
        printed = format_double if session.engine.print_double is None else _stored_text
    pairs = [part for score, member in page.items for part in (member, printed(score))]
    return [page.cursor, pairs]


# -- removing ------------------------------------------------------------------------------------


@command("ZREM")
def zrem(session: Session, args: Args) -> Reply:
    """Remove members from a sorted set and return the number that were removed."""
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return 0
    removed = sum([members.remove(member) for member in args[1:]])
    if removed:
        session.db.note_removal(args[0])
    return removed


@command("ZREMRANGEBYRANK")
def zremrangebyrank(session: Session, args: Args) -> Reply:
    """Remove the members in a range of ranks and return their number."""
    first, last = parse_bounds(args[1], args[2])
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return 0
    removed = members.remove_span(*slice_bounds(first, last, len(members)))
    return _removed(session, args[0], removed)


@command("ZREMRANGEBYSCORE")
def zremrangebyscore(session: Session, args: Args) -> Reply:
    """Remove the members in a range of scores and return their number."""
    interval = parse_score_range(args[1], args[2])
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return 0
    return _removed(session, args[0], members.remove_span(*members.span(interval)))


@command("ZREMRANGEBYLEX")
def zremrangebylex(session: Session, args: Args) -> Reply:
    """Remove the members in a range of names and return their number."""
    interval = parse_lex_range(args[1], args[2])
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return 0
    doomed = members.in_lex_range(interval)
    for _, member in doomed:
        members.remove(member)
    return _removed(session, args[0], doomed)


def _removed(session: Session, key: bytes, items: list[Item]) -> int:
    if items:
        session.db.note_removal(key)
    return len(items)
