"""Commands for the members of a single sorted set: scores, ranks, scans, removal, pops."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from functools import partial

from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, Reply
from ...table.registry import Args, command, variant
from ...table.syntax import I64_MAX, format_double, parse_float, parse_int
from ...values.zset import Item, SortedSet
from ..arguments import (
    ScanOptions,
    arity_error,
    get_or_empty,
    parse_random,
    pop_or_wait,
    pop_several,
    random_indexes,
    scan_collection,
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
    return [each for score, member in items for each in (member, score)]


def printable_score(session: Session, score: float | None) -> float | None:
    """Return a score in the form in which the reported server version prints it."""
    print_double = session.engine.print_double
    return score if print_double is None or score is None else print_double(score)


def _listpack_text(score: float) -> bytes:
    """Format a score as Redis 7.0 stores it in a listpack: as an integer or with 17 digits."""
    if abs(score) <= 2**62 and score == int(score):
        return b"%d" % score
    return b"%.17g" % score


def _scan_printer(session: Session, members: SortedSet) -> Callable[[float], bytes]:
    """Return the function that formats scores in replies of ZSCAN.

    Only in these replies, every version prints the scores of a skiplist with 17 digits.
    """
    if members.encoding(session.engine.config) != "listpack":
        return lambda score: b"%.17g" % score
    return format_double if session.engine.print_double is None else _listpack_text


_ZADD_WORDS = frozenset({b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"})


def leading_words(args: Args, known: Collection[bytes]) -> tuple[set[bytes], int]:
    """Return the known words after the key, in upper case, and the index of the first other one."""
    words: set[bytes] = set()
    at = 1
    while at < len(args) and (word := args[at].upper()) in known:
        words.add(word)
        at += 1
    return words, at


@command("ZADD")
def zadd(session: Session, args: Args) -> Reply:
    """Add members to a sorted set, or update their scores."""
    words, at = leading_words(args, _ZADD_WORDS)
    if (len(args) - at) % 2 or at == len(args):
        raise CommandError(errors.SYNTAX)
    if words:
        _check_words(words, several_pairs=len(args) - at > 2)
    pairs = [(parse_float(args[i]), args[i + 1]) for i in range(at, len(args), 2)]
    if b"INCR" in words:
        return _increment_score(session, args[0], *pairs[0], words)
    return add_scores(session, args[0], pairs, words)


def _check_words(words: set[bytes], *, several_pairs: bool) -> None:
    """Raise an error for options of ZADD that exclude each other, or INCR with several pairs."""
    if {b"NX", b"XX"} <= words:
        raise CommandError(errors.ZADD_XX_AND_NX)
    if len(words & {b"GT", b"LT", b"NX"}) > 1:
        raise CommandError(errors.ZADD_GT_LT_NX)
    if b"INCR" in words and several_pairs:
        raise CommandError(errors.ZADD_INCR_PAIRS)


def _members_to_change(session: Session, key: bytes, words: set[bytes]) -> SortedSet | None:
    """Return the sorted set of a key, which is created unless ZADD has the option XX."""
    find = session.db.get if b"XX" in words else session.db.get_or_create
    return find(key, SortedSet)


def add_scores(
    session: Session, key: bytes, pairs: list[tuple[float, bytes]], words: set[bytes]
) -> Reply:
    """Add (score, member) pairs; return the number of new members, with CH also of changed ones.

    ``words`` are the options of ZADD except INCR.
    """
    members = _members_to_change(session, key, words)
    if members is None:
        return 0
    before, changed = len(members), 0
    for score, member in pairs:
        # Without options, the usual case, there is nothing to check.
        if not words or _allowed_score(members.score(member), score, words) is not None:
            changed += members.set(member, score)
    if changed:
        session.db.touch(key, "zadd")
    return changed if b"CH" in words else len(members) - before


def _increment_score(
    session: Session, key: bytes, amount: float, member: bytes, words: set[bytes]
) -> Reply:
    """Increment a score; return the new score, or nil if an option of ZADD prevented the change."""
    members = _members_to_change(session, key, words)
    if members is None:
        return None
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
    return printable_score(session, get_or_empty(session, args[0], SortedSet).score(args[1]))


@command("ZMSCORE")
def zmscore(session: Session, args: Args) -> Reply:
    """Return the scores of members."""
    members = get_or_empty(session, args[0], SortedSet)
    return [printable_score(session, members.score(member)) for member in args[1:]]


@command("ZCARD")
def zcard(session: Session, args: Args) -> Reply:
    """Return the number of members in a sorted set."""
    return len(get_or_empty(session, args[0], SortedSet))


@variant("ZRANK", "Return the rank of a member, counted from the lowest score.", reverse=False)
@variant("ZREVRANK", "Return the rank of a member, counted from the highest score.", reverse=True)
def zrank(session: Session, args: Args, *, reverse: bool) -> Reply:
    if len(args) > 3:
        raise arity_error(session)
    with_score = len(args) == 3
    if with_score and args[2].upper() != b"WITHSCORE":
        raise CommandError(errors.SYNTAX)
    members = get_or_empty(session, args[0], SortedSet)
    rank = members.rank(args[1], reverse=reverse)
    if rank is None:
        return NIL_ARRAY if with_score else None
    return [rank, printable_score(session, members.score(args[1]))] if with_score else rank


@command("ZSCAN")
def zscan(session: Session, args: Args) -> Reply:
    """Iterate over the members and scores of a sorted set."""

    def show(members: SortedSet, items: list[Item], given: ScanOptions) -> list[bytes]:
        print_score = _scan_printer(session, members)
        return [part for score, member in items for part in (member, print_score(score))]

    return scan_collection(session, args, SortedSet, name=lambda item: item[1], show=show)


@command("ZREM")
def zrem(session: Session, args: Args) -> Reply:
    """Remove members from a sorted set and return the number that were removed."""
    members = get_or_empty(session, args[0], SortedSet)
    removed = sum(map(members.remove, args[1:]))
    if removed:
        session.db.note_removal(args[0])
    return removed


def _take(session: Session, key: bytes, members: SortedSet, lowest: bool, count: int) -> list[Item]:
    """Remove members from one end; return them in the order of removal."""
    start = 0 if lowest else max(len(members) - count, 0)
    taken = members.remove_span(start, min(start + count, len(members)))
    session.db.note_removal(key, "zpopmin" if lowest else "zpopmax")
    return taken if lowest else taken[::-1]


@variant("ZPOPMIN", "Remove and return the members with the lowest scores.", lowest=True)
@variant("ZPOPMAX", "Remove and return the members with the highest scores.", lowest=False)
def zpop(session: Session, args: Args, *, lowest: bool) -> Reply:
    if len(args) > 2:
        raise CommandError(errors.SYNTAX)
    count = None if len(args) == 1 else parse_int(args[1], 0, I64_MAX, errors.NOT_POSITIVE)
    members = get_or_empty(session, args[0], SortedSet)
    if not members or count == 0:
        return []
    if count is None:
        return _take_one(session, args[0], members, lowest)
    return members_reply(session, _take(session, args[0], members, lowest, count), scores=True)


def _take_one(session: Session, key: bytes, members: SortedSet, lowest: bool) -> list[Reply]:
    return _take_pairs(session, key, members, lowest, 1)[0]


def _take_pairs(
    session: Session, key: bytes, members: SortedSet, lowest: bool, count: int
) -> list[list[Reply]]:
    """Remove members from one end; return each with its score, in both versions of the protocol."""
    taken = _take(session, key, members, lowest, count)
    return [[member, printable_score(session, score)] for score, member in taken]


_ENDS = (b"MIN", b"MAX")


@variant("ZMPOP", "Remove and return members of the first non-empty sorted set.")
@variant(
    "BZMPOP",
    "Remove and return members of the first non-empty sorted set; block while all are empty.",
)
def zmpop(session: Session, args: Args) -> Reply:
    return pop_several(session, args, _ENDS, SortedSet, partial(_take_pairs, session))


@variant(
    "BZPOPMIN",
    "Remove and return the lowest member of the first non-empty set; block while all are empty.",
    lowest=True,
)
@variant(
    "BZPOPMAX",
    "Remove and return the highest member of the first non-empty set; block while all are empty.",
    lowest=False,
)
def bzpop(session: Session, args: Args, *, lowest: bool) -> Reply:
    return pop_or_wait(session, args, SortedSet, partial(_take_one, session, lowest=lowest))


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
