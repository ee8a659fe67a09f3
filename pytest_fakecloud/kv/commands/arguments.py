"""Parsers for arguments that several command groups share: counts, scan options, timeouts."""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable
from typing import NamedTuple

from .. import errors
from ..algorithms.glob import matcher
from ..engine.engine import Session
from ..engine.keyspace import Value
from ..errors import CommandError
from ..reply import NIL_ARRAY, Blocked, Reply
from ..table.registry import Args
from ..table.syntax import I64_MAX, I64_MIN, parse_int, parse_long_double, parse_unsigned, try_int

DEFAULT_PAGE = {"vendor": 100, "redis": 10}
"""Default COUNT of a scan in each dialect. The vendor returns a small collection in a single page."""


MOST_REPETITIONS = 1_000_000
"""Maximum number of random members that a negative count may request (decided here).

Redis would send members until memory runs out or the client disconnects. A test that requests more
than this maximum has a bug.
"""


def parse_count(text: bytes) -> int:
    """Parse a count, which may be negative to allow repetitions.

    The lowest 64-bit integer is rejected.
    """
    count = parse_int(text)
    if count < -I64_MAX:
        raise CommandError(errors.OUT_OF_LONG_RANGE)
    return count


def check_repetitions(count: int) -> None:
    """Raise an error if a negative count requests more than ``MOST_REPETITIONS`` random members."""
    if count < -MOST_REPETITIONS:
        raise CommandError(errors.OUT_OF_RANGE)


def bounds(start: bytes, stop: bytes) -> tuple[int, int]:
    return parse_int(start), parse_int(stop)


def slice_bounds(first: int, last: int, length: int) -> tuple[int, int]:
    """Convert inclusive indexes to the start and stop of a Python slice.

    Negative indexes count from the end. The results are between 0 and ``length``.
    """
    if first < 0:
        first = max(first + length, 0)
    if last < 0:
        last += length
    stop = min(last, length - 1) + 1
    return (first, stop) if first < stop else (0, 0)


def is_first_end(word: bytes, first: bytes, last: bytes) -> bool:
    """Return whether a word is ``first``; raise a syntax error if it is neither ``first`` nor
    ``last``.
    """
    end = word.upper()
    if end not in (first, last):
        raise CommandError(errors.SYNTAX)
    return end == first


def parse_pop(args: Args, at: int, first: bytes, last: bytes) -> tuple[list[bytes], bool, int]:
    """Parse ``numkeys key [key ...] first|last [COUNT n]`` of LMPOP, ZMPOP, BLMPOP, and BZMPOP.

    Returns the keys, whether to pop from the end named by ``first``, and the count.
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
    return parse_unsigned(text, errors.INVALID_CURSOR)


def fits_a_page(session: Session, value: Value, cursor: int, count: int) -> bool:
    """Return whether a scan returns the whole collection in one page.

    A page of the vendor's scans contains exactly COUNT elements. Redis splits hash tables into
    pages, but returns a collection that is stored in a single block of memory in full, regardless
    of COUNT.
    """
    if session.engine.dialect == "vendor":
        return not cursor and len(value) <= count
    return value.encoding(session.engine.config) in ("intset", "listpack")


class ScanOptions(NamedTuple):
    """The options of a scan command."""

    page_size: int
    """The argument of COUNT."""
    matches: Callable[[bytes], bool] | None
    """The test of MATCH, or None."""
    type: bytes
    """The argument of TYPE in lower case, or an empty string."""
    has_flag: bool


def parse_scan(
    session: Session, args: Args, *, flag: bytes | None = None, typed: bool = False
) -> ScanOptions:
    """Parse ``[MATCH pattern] [COUNT n]``, with ``typed`` also ``[TYPE type]``.

    ``flag`` is an option without a value that the command also accepts.
    """
    count, matches, kind, has_flag = DEFAULT_PAGE[session.engine.dialect], None, b"", False
    words = iter(args)
    for word in map(bytes.upper, words):
        if word == flag:
            has_flag = True
            continue
        value = next(words, None)
        if value is None:
            raise CommandError(errors.SYNTAX)
        if word == b"COUNT":
            count = parse_int(value)
            if count < 1:
                raise CommandError(errors.SYNTAX)
        elif word == b"MATCH":
            matches = matcher(value)
        elif word == b"TYPE" and typed:
            kind = value.lower()
        else:
            raise CommandError(errors.SYNTAX)
    return ScanOptions(count, matches, kind, has_flag)


def parse_timeout(session: Session, text: bytes) -> int:
    """Parse a blocking command's timeout in seconds; return milliseconds, or 0 for no timeout."""
    seconds = parse_long_double(text, errors.TIMEOUT_NOT_FLOAT)
    if isinstance(seconds, float):
        return _waiting_time(session, I64_MIN if seconds < 0 else I64_MAX + 1)
    return _waiting_time(session, math.ceil(fractions.Fraction(seconds) * 1000))


def parse_block(session: Session, text: bytes) -> int:
    """Parse the BLOCK timeout of XREAD or XREADGROUP; return milliseconds, or 0 for no timeout."""
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
    # In earlier versions, a timeout above the highest 64-bit integer overflows and counts as
    # negative, while a deadline above it is never reached.
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
    """Run a blocking command; return its reply or, if there is none yet, ``Blocked`` or ``empty``.

    ``attempt`` takes the keys to check, and returns None if there is nothing to reply yet.
    ``empty`` is the reply to a session that may not block.

    As in Redis, the first attempt may raise WRONGTYPE. A client that is already blocked keeps
    waiting if a key is created with a type other than ``kind``. Any other error, e.g. about the
    destination of a move, ends the wait.
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
