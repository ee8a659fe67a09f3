"""Argument shapes that several groups of commands share: counts, pages of a scan, waiting times."""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable

from .. import errors
from ..algorithms.glob import matcher
from ..engine.engine import Session
from ..engine.keyspace import Value
from ..errors import CommandError
from ..reply import NIL_ARRAY, Blocked, Reply
from ..table.registry import Args
from ..table.syntax import (
    I64_MAX,
    I64_MIN,
    parse_int,
    parse_long_double,
    parse_unsigned,
    try_int,
)

DEFAULT_PAGE = {"vendor": 100, "redis": 10}
"""Elements a scan visits unless told: the vendor answers a small collection with a single page."""


MOST_REPETITIONS = 1_000_000
"""Random members a negative count may ask for (decided here).

The server would go on sending until memory or the client gives up; whoever asks for more in a test
has made a mistake.
"""


def parse_count(text: bytes) -> int:
    """A count that may be negative (repetitions allowed); the least 64-bit integer is refused."""
    count = parse_int(text)
    if count < -I64_MAX:
        raise CommandError(errors.OUT_OF_LONG_RANGE)
    return count


def check_repetitions(count: int) -> None:
    """Raise when a negative count asks for more random members than the server allows."""
    if count < -MOST_REPETITIONS:
        raise CommandError(errors.OUT_OF_RANGE)


def bounds(start: bytes, stop: bytes) -> tuple[int, int]:
    """The first and last index of a slice as two integers."""
    return parse_int(start), parse_int(stop)


def slice_bounds(first: int, last: int, length: int) -> tuple[int, int]:
    """First and last index, negative ones from the end, as start <= i < stop within 0..length."""
    if first < 0:
        first = max(first + length, 0)
    if last < 0:
        last += length
    stop = min(last, length - 1) + 1
    return (first, stop) if first < stop else (0, 0)


def is_first_end(word: bytes, first: bytes, last: bytes) -> bool:
    """Return whether a word names the first of two ends; raises for any other word."""
    end = word.upper()
    if end not in (first, last):
        raise CommandError(errors.SYNTAX)
    return end == first


def parse_pop(args: Args, at: int, first: bytes, last: bytes) -> tuple[list[bytes], bool, int]:
    """Read ``numkeys key [key ...] first|last [COUNT n]`` of LMPOP, ZMPOP and their waiting forms.

    Returns the keys, whether elements are taken from the first end, and how many.
    """
    end = at + 1 + parse_int(args[at], 1, I64_MAX, errors.NUMKEYS_NOT_POSITIVE)
    if end >= len(args):
        raise CommandError(errors.SYNTAX)
    is_first = is_first_end(args[end], first, last)
    words = args[end + 1 :]
    count = 1
    if len(words) > 1 and words[0].upper() == b"COUNT":
        count = parse_int(words[1], 1, I64_MAX, errors.COUNT_NOT_POSITIVE)
    elif words:
        raise CommandError(errors.SYNTAX)
    if len(words) > 2:
        raise CommandError(errors.SYNTAX)
    return args[at + 1 : end], is_first, count


def parse_cursor(text: bytes) -> int:
    """The cursor of a scan."""
    return parse_unsigned(text, errors.INVALID_CURSOR)


def fits_a_page(session: Session, value: Value, cursor: int, count: int) -> bool:
    """Whether a scan answers a whole collection at once.

    The vendor pages by exact COUNT, as its SCAN does; a stock server pages hash tables and gives
    all of what lies in one piece of memory, whatever the COUNT.
    """
    if session.engine.dialect == "vendor":
        return not cursor and len(value) <= count
    return value.encoding(session.engine.config) in ("intset", "listpack")


def parse_scan(session: Session, args: Args) -> tuple[int, Callable[[bytes], bool] | None]:
    """``[MATCH pattern] [COUNT n]``: how many elements to visit, and what they must match."""
    count, match = DEFAULT_PAGE[session.engine.dialect], None
    for at in range(0, len(args), 2):
        word = args[at].upper()
        if at + 1 == len(args):
            raise CommandError(errors.SYNTAX)
        if word == b"COUNT":
            count = parse_int(args[at + 1])
            if count < 1:
                raise CommandError(errors.SYNTAX)
        elif word == b"MATCH":
            match = matcher(args[at + 1])
        else:
            raise CommandError(errors.SYNTAX)
    return count, match


def parse_timeout(session: Session, text: bytes) -> int:
    """How many milliseconds a blocking command may wait, told in (parts of) seconds; 0 for ever."""
    seconds = parse_long_double(text, errors.TIMEOUT_NOT_FLOAT)
    if isinstance(seconds, float):
        return _waiting_time(session, I64_MIN if seconds < 0 else I64_MAX + 1)
    return _waiting_time(session, math.ceil(fractions.Fraction(seconds) * 1000))


def parse_block(session: Session, text: bytes) -> int:
    """How many milliseconds XREAD may wait; 0 for ever."""
    milliseconds = try_int(text)
    if milliseconds is None:
        raise CommandError(errors.TIMEOUT_NOT_INTEGER)
    return _waiting_time(session, milliseconds)


def _waiting_time(session: Session, milliseconds: int) -> int:
    if 0 <= milliseconds <= I64_MAX - session.now_ms:
        return milliseconds
    if milliseconds < 0:
        raise CommandError(errors.TIMEOUT_NEGATIVE)
    if session.engine.table.knows["timeouts that overflow are out of range"]:
        raise CommandError(errors.TIMEOUT_OUT_OF_RANGE)
    # Earlier servers counted past the last 64-bit integer: what is more is negative, and a deadline
    # behind it is never reached.
    if milliseconds > I64_MAX:
        raise CommandError(errors.TIMEOUT_NEGATIVE)
    return 0


def try_or_wait(
    session: Session,
    keys: list[bytes],
    timeout_ms: int,
    attempt: Callable[[list[bytes]], Reply],
    kind: type,
    empty: Reply = NIL_ARRAY,
) -> Reply:
    """What a blocking command answers: at once, ``empty`` where waiting is impossible, or later.

    ``attempt`` takes the keys to look at, and returns None while there is nothing. The first one may
    fail with WRONGTYPE; who already waits goes on waiting when a key turns up as something other
    than ``kind``, as on the server, while what else fails (the target of a move) ends the wait.
    """
    reply = attempt(keys)
    if reply is not None:
        return reply
    if not session.may_block:
        return empty

    def again() -> Reply:
        there = [(key, session.db.find(key)) for key in keys]
        fitting = [key for key, value in there if value is None or isinstance(value, kind)]
        return attempt(fitting) if fitting else None

    return Blocked(keys, timeout_ms, again, NIL_ARRAY)
