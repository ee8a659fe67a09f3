"""Commands that act on a single sorted set: scores, ranks, ranges, removal."""

from __future__ import annotations

import math

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_float
from ...values.score_order import Item
from ...values.zset import SortedSet
from ..arguments import parse_bounds, slice_bounds
from ..scanning import scan_page
from .printing import members_reply, printable_score, scan_printer
from .ranges import RangeKind, parse_lex_range, parse_range, parse_score_range, select

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
        return _add_with_options(session, args, at, words)
    # Without options, the usual case, skip the checks of conditions.
    pairs = [(parse_float(args[i]), args[i + 1]) for i in range(1, len(args), 2)]
    members = session.db.get_or_create(args[0], SortedSet)
    before = len(members)
    changes = [members.set(member, score) for score, member in pairs]
    if any(changes):
        session.db.touch(args[0])
    return len(members) - before


def _add_with_options(session: Session, args: Args, at: int, words: set[bytes]) -> Reply:
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
    members = session.db.get(key, SortedSet)
    if members is None:
        if b"XX" in words:
            return 0
        members = session.db.get_or_create(key, SortedSet)
    added = changed = 0
    for given, member in pairs:
        old = members.score(member)
        new = _allowed_score(old, given, words)
        if new is None or new == old:
            continue
        members.set(member, new)
        if old is None:
            added += 1
        else:
            changed += 1
    if added or changed:
        session.db.touch(key, "zadd")
    return added + changed if b"CH" in words else added


def _increment_score(
    session: Session, key: bytes, amount: float, member: bytes, words: set[bytes]
) -> Reply:
    """Increment a score; return the new score, or nil if an option of ZADD prevented the change."""
    members = session.db.get(key, SortedSet)
    if members is None:
        if b"XX" in words:
            return None
        members = session.db.get_or_create(key, SortedSet)
    old = members.score(member)
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
    members = session.db.get(args[0], SortedSet)
    return None if members is None else printable_score(session, members.score(args[1]))


@command("ZMSCORE")
def zmscore(session: Session, args: Args) -> Reply:
    """Return the scores of members."""
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return [None] * (len(args) - 1)
    return [printable_score(session, members.score(member)) for member in args[1:]]


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
    return [rank, printable_score(session, members.score(args[1]))] if with_score else rank


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


@command("ZSCAN")
def zscan(session: Session, args: Args) -> Reply:
    """Iterate over the members and scores of a sorted set."""
    page = scan_page(session, args, SortedSet, name=lambda item: item[1])
    print_score = scan_printer(session, page.collection)
    pairs = [part for score, member in page.items for part in (member, print_score(score))]
    return [page.cursor, pairs]


# -- removing ------------------------------------------------------------------------------------


@command("ZREM")
def zrem(session: Session, args: Args) -> Reply:
    """Remove members from a sorted set and return the number that were removed."""
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return 0
    removed = sum(map(members.remove, args[1:]))
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
