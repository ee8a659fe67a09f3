"""Sorted set commands that pop members, blocking or not, or return random members."""

from __future__ import annotations

from functools import partial

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import I64_MAX, parse_int
from ...values.score_order import Item
from ...values.zset import SortedSet
from ..arguments import parse_negatable
from ..blocking import pop_or_wait, pop_several
from ..sampling import random_indexes
from .printing import members_reply, printable_score


def _take(session: Session, key: bytes, members: SortedSet, lowest: bool, count: int) -> list[Item]:
    size = len(members)
    count = min(count, size)
    start = 0 if lowest else size - count
    taken = members.remove_span(start, start + count)
    session.db.note_removal(key, "zpopmin" if lowest else "zpopmax")
    return taken if lowest else taken[::-1]


def _pop(session: Session, args: Args, *, lowest: bool) -> Reply:
    if len(args) > 2:
        raise CommandError(errors.SYNTAX)
    count = None if len(args) == 1 else parse_int(args[1], 0, I64_MAX, errors.NOT_POSITIVE)
    members = session.db.get(args[0], SortedSet)
    if members is None or count == 0:
        return []
    if count is None:
        return _take_one(session, args[0], members, lowest)
    return members_reply(session, _take(session, args[0], members, lowest, count), scores=True)


def _take_one(session: Session, key: bytes, members: SortedSet, lowest: bool) -> list[Reply]:
    return _take_pairs(session, key, members, lowest, 1)[0]


def _take_pairs(
    session: Session, key: bytes, members: SortedSet, lowest: bool, count: int
) -> list[list[Reply]]:
    taken = _take(session, key, members, lowest, count)
    return [[member, printable_score(session, score)] for score, member in taken]


@command("ZPOPMIN")
def zpopmin(session: Session, args: Args) -> Reply:
    """Remove and return the members with the lowest scores."""
    return _pop(session, args, lowest=True)


@command("ZPOPMAX")
def zpopmax(session: Session, args: Args) -> Reply:
    """Remove and return the members with the highest scores."""
    return _pop(session, args, lowest=False)


_ENDS = (b"MIN", b"MAX")


@command("ZMPOP")
def zmpop(session: Session, args: Args) -> Reply:
    """Remove and return members of the first non-empty sorted set."""
    return pop_several(session, args, _ENDS, SortedSet, partial(_take_pairs, session))


@command("BZMPOP")
def bzmpop(session: Session, args: Args) -> Reply:
    """Remove and return members of the first non-empty sorted set; block while all are empty."""
    take = partial(_take_pairs, session)
    return pop_several(session, args, _ENDS, SortedSet, take, blocking=True)


@command("BZPOPMIN")
def bzpopmin(session: Session, args: Args) -> Reply:
    """Remove and return the lowest member of the first non-empty set; block while all are empty."""
    return pop_or_wait(session, args, SortedSet, partial(_take_one, session, lowest=True))


@command("BZPOPMAX")
def bzpopmax(session: Session, args: Args) -> Reply:
    """Remove and return the highest member of the first non-empty set; block while all are empty."""
    return pop_or_wait(session, args, SortedSet, partial(_take_one, session, lowest=False))


@command("ZRANDMEMBER")
def zrandmember(session: Session, args: Args) -> Reply:
    """Return one or more random members of a sorted set; a negative count allows repetitions."""
    count = None if len(args) == 1 else parse_negatable(args[1])
    if len(args) > 3 or (len(args) == 3 and args[2].upper() != b"WITHSCORES"):
        raise CommandError(errors.SYNTAX)
    if len(args) == 3 and count is not None and abs(count) > I64_MAX // 2:
        raise CommandError(errors.OUT_OF_RANGE)
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return None if count is None else []
    if count is None:
        return members.at(session.engine.random.randrange(len(members)))[1]
    ranks = random_indexes(session, len(members), count)
    return members_reply(session, map(members.at, ranks), scores=len(args) == 3)
