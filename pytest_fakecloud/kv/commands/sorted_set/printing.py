"""Scores in replies, whose form depends on the protocol, the version and the encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...engine.engine import Session
from ...reply import Reply
from ...table.syntax import format_double
from ...values.score_order import Item
from ...values.zset import SortedSet


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


def _skiplist_text(score: float) -> bytes:
    return b"%.17g" % score


def scan_printer(session: Session, members: SortedSet | None) -> Callable[[float], bytes]:
    """Return the function that formats scores in replies of ZSCAN.

    Only in these replies, every version prints the scores of a skiplist with 17 digits.
    """
    if members is None or members.encoding(session.engine.config) != "listpack":
        return _skiplist_text
    return format_double if session.engine.print_double is None else _listpack_text
