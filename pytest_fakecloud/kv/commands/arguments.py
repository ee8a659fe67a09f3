"""Parsers for arguments that several command groups share: counts, scan options, timeouts."""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import errors
from ..algorithms.glob import matcher
from ..engine.engine import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, Blocked, Reply
from ..table.registry import Args
from ..table.syntax import I64_MAX, I64_MIN, parse_int, parse_long_double, parse_unsigned

T = TypeVar("T")

DEFAULT_PAGE = {"vendor": 100, "redis": 10}
"""Default COUNT of a scan in each dialect. The vendor returns a small collection in a single page."""


MOST_REPETITIONS = 1_000_000
"""Maximum number of random members that a negative count may request (decided here)."""


REST = -1
"""Number of values, for ``options()``, of an option that takes all arguments after it."""


def options(
    args: Args, at: int, sizes: Mapping[bytes, int], error: bytes = errors.SYNTAX
) -> Iterator[tuple[bytes, Args]]:
    """Yield each option from ``at`` on in upper case, with as many values as ``sizes`` says."""
    while at < len(args):
        word = args[at].upper()
        size = sizes.get(word)
        if size is None or at + size >= len(args):
            raise CommandError(error)
        end = len(args) if size == REST else at + 1 + size
        yield word, args[at + 1 : end]
        at = end


def parse_count(text: bytes) -> int:
    """Parse a count, which may be negative to allow repetitions, but not the lowest integer."""
    count = parse_int(text)
    if count < -I64_MAX:
        raise CommandError(errors.OUT_OF_LONG_RANGE)
    return count


def random_places(session: Session, size: int, count: int) -> Sequence[int]:
    """Return random indexes below ``size``: distinct ones, or repeated ones for a negative count."""
    random = session.engine.random
    if count < -MOST_REPETITIONS:
        raise CommandError(errors.OUT_OF_RANGE)
    if count < 0:
        return [random.randrange(size) for _ in range(-count)]
    return range(size) if count >= size else random.sample(range(size), count)


def bounds(start: bytes, stop: bytes) -> tuple[int, int]:
    return parse_int(start), parse_int(stop)


def slice_bounds(first: int, last: int, length: int) -> tuple[int, int]:
    """Convert inclusive indexes, negative from the end, to the start and stop of a Python slice."""
    if first < 0:
        first = max(first + length, 0)
    if last < 0:
        last += length
    stop = min(last, length - 1) + 1
    return (first, stop) if first < stop else (0, 0)


def is_first_end(word: bytes, first: bytes, last: bytes) -> bool:
    """Return whether a word is ``first``; raise a syntax error if it is not ``last`` either."""
    end = word.upper()
    if end not in (first, last):
        raise CommandError(errors.SYNTAX)
    return end == first


def _parse_pop(args: Args, at: int, first: bytes, last: bytes) -> tuple[list[bytes], bool, int]:
    """Parse ``numkeys key [key ...] first|last [COUNT n]``: the keys, whether first, the count."""
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


def pop_several(
    session: Session,
    args: Args,
    ends: tuple[bytes, bytes],
    kind: type[T],
    take: Callable[[bytes, T, bool, int], list[Any]],
    *,
    blocking: bool = False,
) -> Reply:
    """Pop elements from the first existing key: LMPOP, ZMPOP or, with ``blocking``, BLMPOP, BZMPOP.

    ``take`` removes elements, given the key, its value, whether to pop from the first of the two
    ends, and the count. It returns the elements for the reply.
    """
    timeout_ms = parse_timeout(session, args[0]) if blocking else 0
    keys, is_first, count = _parse_pop(args, int(blocking), *ends)

    def attempt(keys: list[bytes]) -> Reply:
        return _pop_first(
            session, keys, kind, lambda key, value: [take(key, value, is_first, count)]
        )

    if blocking:
        return try_or_wait(session, keys, timeout_ms, attempt, kind)
    found = attempt(keys)
    return NIL_ARRAY if found is None else found


def pop_or_wait(
    session: Session, args: Args, kind: type[T], take: Callable[[bytes, T], list[Any]]
) -> Reply:
    """Pop an element from the first existing key, or block: BLPOP, BRPOP, BZPOPMIN and BZPOPMAX."""
    timeout_ms = parse_timeout(session, args[-1])

    def attempt(keys: list[bytes]) -> Reply:
        return _pop_first(session, keys, kind, take)

    return try_or_wait(session, args[:-1], timeout_ms, attempt, kind)


def _pop_first(
    session: Session, keys: list[bytes], kind: type[T], take: Callable[[bytes, T], list[Any]]
) -> Reply:
    for key in keys:
        value = session.db.get(key, kind)
        if value is not None:
            return [key, *take(key, value)]
    return None


def parse_cursor(text: bytes) -> int:
    return parse_unsigned(text, errors.INVALID_CURSOR)


def _fits_a_page(session: Session, value: Any, cursor: int, count: int) -> bool:
    """Return whether a scan has one page: by COUNT for the vendor, by the encoding for Redis."""
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
    """Parse ``[MATCH pattern] [COUNT n]`` and, as asked, ``[TYPE type]`` and a flag without value."""
    count, matches, kind, has_flag = DEFAULT_PAGE[session.engine.dialect], None, b"", False
    sizes = {b"COUNT": 1, b"MATCH": 1}
    if typed:
        sizes[b"TYPE"] = 1
    if flag is not None:
        sizes[flag] = 0
    for word, values in options(args, 0, sizes):
        if word == flag:
            has_flag = True
        elif word == b"COUNT":
            count = parse_int(values[0])
            if count < 1:
                raise CommandError(errors.SYNTAX)
        elif word == b"MATCH":
            matches = matcher(values[0])
        else:
            kind = values[0].lower()
    return ScanOptions(count, matches, kind, has_flag)


def scan_page(
    session: Session,
    args: Args,
    kind: Any,
    flag: bytes | None = None,
    name: Callable[[Any], bytes] = lambda item: item,
) -> tuple[bytes, list[Any], Any, bool]:
    """Return a page of HSCAN, SSCAN or ZSCAN.

    The result has the next cursor, the items whose names match, the collection (None if the key is
    missing), and whether ``flag`` was given. ``name`` returns the name of an item.
    """
    cursor = parse_cursor(args[1])
    value = session.db.get(args[0], kind)
    if value is None:
        return b"0", [], None, False
    options = parse_scan(session, args[2:], flag=flag)
    if _fits_a_page(session, value, cursor, options.page_size):
        following, items = 0, list(value)
    else:
        following, items = value.scan(cursor, options.page_size)
    if options.matches is not None:
        items = [item for item in items if options.matches(name(item))]
    return b"%d" % following, items, value, options.has_flag


def parse_timeout(session: Session, text: bytes) -> int:
    """Parse a blocking command's timeout in seconds; return milliseconds, or 0 for no timeout."""
    seconds = parse_long_double(text, errors.TIMEOUT_NOT_FLOAT)
    if isinstance(seconds, float):
        return _waiting_time(session, I64_MIN if seconds < 0 else I64_MAX + 1)
    return _waiting_time(session, math.ceil(fractions.Fraction(seconds) * 1000))


def parse_block(session: Session, text: bytes) -> int:
    """Parse the BLOCK timeout of XREAD or XREADGROUP; return milliseconds, or 0 for no timeout."""
    return _waiting_time(session, parse_int(text, error=errors.TIMEOUT_NOT_INTEGER))


def parse_milliseconds(text: bytes) -> int:
    """Parse a timeout that does not depend on the server's time."""
    timeout_ms = parse_int(text, error=errors.TIMEOUT_NOT_INTEGER)
    if timeout_ms < 0:
        raise CommandError(errors.TIMEOUT_NEGATIVE)
    return timeout_ms


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
