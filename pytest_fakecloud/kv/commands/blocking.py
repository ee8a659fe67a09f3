"""Commands that wait for elements: their timeouts, and pops from the first existing key."""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from .. import errors
from ..engine.session import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, Blocked, Reply
from ..table.long_double import parse_long_double
from ..table.registry import Args
from ..table.syntax import I64_MAX, parse_int
from .arguments import is_first, running

T = TypeVar("T")


def parse_timeout(session: Session, text: bytes) -> int:
    """Parse a blocking command's timeout in seconds; return milliseconds, or 0 for no timeout."""
    seconds = parse_long_double(text, errors.TIMEOUT_NOT_FLOAT)
    if isinstance(seconds, float):  # an infinity
        return _waiting_time(session, I64_MAX + 1 if seconds > 0 else -1)
    return _waiting_time(session, math.ceil(fractions.Fraction(seconds) * 1000))


def parse_milliseconds(session: Session, text: bytes) -> int:
    """Parse a timeout in milliseconds (BLOCK, WAIT, CLIENT PAUSE); return 0 for no timeout."""
    return _waiting_time(session, parse_int(text, error=errors.TIMEOUT_NOT_INTEGER))


def _waiting_time(session: Session, milliseconds: int) -> int:
    """Return a timeout, or 0 if the time at which it ends is above the highest 64-bit integer."""
    if 0 <= milliseconds <= I64_MAX - session.now_ms:
        return milliseconds
    if milliseconds >= 0 and session.engine.table.knows["timeouts that overflow are out of range"]:
        raise CommandError(errors.TIMEOUT_OUT_OF_RANGE)
    # In earlier versions, a timeout above the highest integer overflows and counts as negative.
    if not 0 <= milliseconds <= I64_MAX:
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
        found = [(key, session.db.find(key)) for key in keys]
        fitting = [key for key, value in found if value is None or isinstance(value, kind)]
        return attempt(fitting) if fitting else None

    return Blocked(keys, timeout_ms, again, NIL_ARRAY)


def _parse_pop(args: Args, at: int, first: bytes, last: bytes) -> tuple[list[bytes], bool, int]:
    """Parse ``numkeys key [key ...] first|last [COUNT n]``: the keys, whether first, the count."""
    end = at + 1 + parse_int(args[at], 1, I64_MAX, errors.NUMKEYS_NOT_POSITIVE)
    if end >= len(args):
        raise CommandError(errors.SYNTAX)
    from_first = is_first(args[end], first, last)
    words = args[end + 1 :]
    count = 1
    if len(words) > 1 and words[0].upper() == b"COUNT":
        count = parse_int(words[1], 1, I64_MAX, errors.COUNT_NOT_POSITIVE)
        words = words[2:]
    if words:
        raise CommandError(errors.SYNTAX)
    return args[at + 1 : end], from_first, count


def pop_several(
    session: Session,
    args: Args,
    ends: tuple[bytes, bytes],
    kind: type[T],
    take: Callable[[bytes, T, bool, int], list[Any]],
) -> Reply:
    """Pop elements from the first existing key: LMPOP, ZMPOP, BLMPOP and BZMPOP.

    ``ends`` are the words for both ends. ``take`` removes elements, given the key, its value,
    whether to pop from the first end, and the count. It returns the elements for the reply.
    """
    blocking = "blocking" in running(session).flags
    keys, from_first, count = _parse_pop(args, int(blocking), *ends)
    attempt = partial(
        _pop_first, session, kind, lambda key, value: [take(key, value, from_first, count)]
    )
    if blocking:
        return try_or_wait(session, keys, parse_timeout(session, args[0]), attempt, kind)
    found = attempt(keys)
    return NIL_ARRAY if found is None else found


def pop_or_wait(
    session: Session, args: Args, kind: type[T], take: Callable[[bytes, T], list[Any]]
) -> Reply:
    """Pop an element from the first existing key, or block: BLPOP, BRPOP, BZPOPMIN and BZPOPMAX."""
    timeout_ms = parse_timeout(session, args[-1])
    attempt = partial(_pop_first, session, kind, take)
    return try_or_wait(session, args[:-1], timeout_ms, attempt, kind)


def _pop_first(
    session: Session, kind: type[T], take: Callable[[bytes, T], list[Any]], keys: list[bytes]
) -> Reply:
    """Pop from the first existing key; return the key and what was taken, or None."""
    for key in keys:
        value = session.db.get(key, kind)
        if value is not None:
            return [key, *take(key, value)]
    return None
