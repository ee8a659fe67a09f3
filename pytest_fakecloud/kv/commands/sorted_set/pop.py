"""Sorted set commands that pop members, blocking or not, or return random members."""

from __future__ import annotations

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, Reply
from ...table.registry import Args, command
from ...table.syntax import I64_MAX, parse_int
from ...values.score_order import Item
from ...values.zset import SortedSet
from ..arguments import check_repetitions, parse_count, parse_pop, parse_timeout, try_or_wait
from .members import members_reply, shown


def _take(
    session: Session, key: bytes, members: SortedSet, count: int, *, lowest: bool
) -> list[Item]:
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
    taken = _take(session, args[0], members, 1 if count is None else count, lowest=lowest)
    if count is None:
        (score, member) = taken[0]
        return [member, shown(session, score)]
    return members_reply(session, taken, scores=True)


@command("ZPOPMIN")
def zpopmin(session: Session, args: Args) -> Reply:
    """Remove and return the members with the lowest scores."""
    return _pop(session, args, lowest=True)


@command("ZPOPMAX")
def zpopmax(session: Session, args: Args) -> Reply:
    """Remove and return the members with the highest scores."""
    return _pop(session, args, lowest=False)


def _pop_first(
    session: Session, keys: list[bytes], count: int, *, lowest: bool
) -> tuple[bytes, list[Item]] | None:
    for key in keys:
        members = session.db.get(key, SortedSet)
        if members is not None:
            return key, _take(session, key, members, count, lowest=lowest)
    return None


def _pop_pairs(session: Session, keys: list[bytes], count: int, *, lowest: bool) -> Reply:
    found = _pop_first(session, keys, count, lowest=lowest)
    if found is None:
        return None
    return [found[0], [[member, shown(session, score)] for score, member in found[1]]]


@command("ZMPOP")
def zmpop(session: Session, args: Args) -> Reply:
    """Remove and return members of the first non-empty sorted set."""
    keys, lowest, count = parse_pop(args, 0, b"MIN", b"MAX")
    found = _pop_pairs(session, keys, count, lowest=lowest)
    return NIL_ARRAY if found is None else found


@command("BZMPOP")
def bzmpop(session: Session, args: Args) -> Reply:
    """Remove and return members of the first non-empty sorted set; block while all are empty."""
    timeout_ms = parse_timeout(session, args[0])
    keys, lowest, count = parse_pop(args, 1, b"MIN", b"MAX")
    return try_or_wait(
        session,
        keys,
        timeout_ms,
        lambda keys: _pop_pairs(session, keys, count, lowest=lowest),
        SortedSet,
    )


def _blocking_pop(session: Session, args: Args, *, lowest: bool) -> Reply:
    keys = args[:-1]
    timeout_ms = parse_timeout(session, args[-1])

    def attempt(keys: list[bytes]) -> Reply:
        found = _pop_first(session, keys, 1, lowest=lowest)
        if found is None:
            return None
        key, [(score, member)] = found
        return [key, member, shown(session, score)]

    return try_or_wait(session, keys, timeout_ms, attempt, SortedSet)


@command("BZPOPMIN")
def bzpopmin(session: Session, args: Args) -> Reply:
    """Remove and return the lowest member of the first non-empty set; block while all are empty."""
    return _blocking_pop(session, args, lowest=True)


@command("BZPOPMAX")
def bzpopmax(session: Session, args: Args) -> Reply:
    """Remove and return the highest member of the first non-empty set; block while all are empty."""
    return _blocking_pop(session, args, lowest=False)


@command("ZRANDMEMBER")
def zrandmember(session: Session, args: Args) -> Reply:
    """Return one or more random members of a sorted set; a negative count allows repetitions."""
    count = None if len(args) == 1 else parse_count(args[1])
    if len(args) > 3 or (len(args) == 3 and args[2].upper() != b"WITHSCORES"):
        raise CommandError(errors.SYNTAX)
    if len(args) == 3 and count is not None and abs(count) > I64_MAX // 2:
        raise CommandError(errors.OUT_OF_RANGE)
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return None if count is None else []
    random = session.engine.random
    size = len(members)
    if count is None:
        return members.at(random.randrange(size))[1]
    if count < 0:
        check_repetitions(count)
        ranks = [random.randrange(size) for _ in range(-count)]
    elif count >= size:
        ranks = list(range(size))
    else:
        ranks = random.sample(range(size), count)
    return members_reply(session, map(members.at, ranks), scores=len(args) == 3)
