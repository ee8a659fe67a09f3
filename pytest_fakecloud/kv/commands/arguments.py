"""Parsers for arguments that several command groups share: options, TTLs, timeouts, scans.

The commands that take TTLs are those of the EXPIRE and HEXPIRE families, SET, GETEX, MSETEX, HGETEX
and HSETEX.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .. import errors
from ..algorithms.glob import matcher
from ..engine.keyspace import Keyspace
from ..engine.sessions import Session
from ..errors import CommandError, Template
from ..reply import NIL_ARRAY, Blocked, Reply, Verbatim
from ..syntax import I64_MAX, I64_MIN, parse_cursor, parse_int, parse_long_double
from ..table.arguments import Unit
from ..table.registry import Args
from ..table.synopsis import TO_THE_END
from ..table.ttl import TTL_OPTIONS
from ..table.versions import ALL_KEYS_AGAIN
from ..values.containers import HashValue, SetValue
from ..values.types import String
from ..values.zset import SortedSet

T = TypeVar("T")
C = TypeVar("C", HashValue, SetValue, SortedSet)


def parse_options(
    args: Args, at: int, sizes: Mapping[bytes, int], error: bytes | Template = errors.SYNTAX
) -> Iterator[tuple[bytes, Args]]:
    """Yield each option from ``at`` on in upper case, with as many values as ``sizes`` says.

    The ``sizes`` usually are the ``option_sizes`` of the running command. The error for an unknown
    word, or for too few values, may have a placeholder for the word.
    """
    while at < len(args):
        word = args[at].upper()
        size = sizes.get(word)
        end = len(args) if size == TO_THE_END else at + 1 + (size or 0)
        if size is None or end > len(args):
            raise CommandError(error(args[at]) if isinstance(error, Template) else error)
        yield word, args[at + 1 : end]
        at = end


def arity_error(session: Session) -> CommandError:
    """Return the error for a wrong number of arguments of the running command."""
    return CommandError(errors.wrong_arity(session.command.full_name))


def subcommand_error(session: Session) -> CommandError:
    """Return the error for wrong arguments of a subcommand, whose name is quoted as it was sent."""
    container = session.command.name.split()[0]
    return CommandError(errors.bad_subcommand_arguments(session.line[1], container))


def readable(session: Session, text: bytes) -> Reply:
    """Return text for readers, such as that of INFO, which the vendor documents as a bulk string."""
    return text if session.engine.dialect == "vendor" else Verbatim(text)


def parse_negatable(text: bytes) -> int:
    """Parse a count or rank. The lowest integer is rejected, because it cannot be negated."""
    return parse_int(text, -I64_MAX, outside=errors.OUT_OF_LONG_RANGE)


def parse_bounds(start: bytes, stop: bytes) -> tuple[int, int]:
    return parse_int(start), parse_int(stop)


def slice_bounds(first: int, last: int, length: int) -> tuple[int, int]:
    """Convert inclusive indexes, negative from the end, to the start and stop of a Python slice."""
    if first < 0:
        first = max(first + length, 0)
    if last < 0:
        last += length
    stop = min(last, length - 1) + 1
    return (first, stop) if first < stop else (0, 0)


def inclusive_range(start: int, end: int, length: int) -> tuple[int, int]:
    """Convert the range of a string command to inclusive indexes; it is empty if start > end."""
    # Unlike in other commands, an end before the string means its first byte.
    start = max(start + length, 0) if start < 0 else start
    end = max(end + length, 0) if end < 0 else end
    return start, min(end, length - 1)


def existing(session: Session, key: bytes, kind: type[T], error: bytes = errors.NO_SUCH_KEY) -> T:
    """Return the value of a key; raise ``error`` for a missing key, or WRONGTYPE."""
    value = session.db.get(key, kind)
    if value is None:
        raise CommandError(error)
    return value


def get_or_empty(session: Session, key: bytes, kind: type[T]) -> T:
    """Return the value of a key, or a new empty value, which is not stored; raise WRONGTYPE."""
    value = session.db.get(key, kind)
    return kind() if value is None else value


def remove_all(session: Session, args: Args, *, kind: type[C]) -> int:
    """Remove the named elements from a key's value and return the number that existed."""
    removed = sum(map(get_or_empty(session, args[0], kind).remove, args[1:]))
    if removed:
        session.db.note_removal(args[0])
    return removed


def choice(args: Args, words: Collection[bytes], error: bytes = errors.SYNTAX) -> bytes:
    """Return the only argument in upper case, or an empty string if there is none.

    Raise ``error`` for a word that is not one of ``words``, and for more than one argument.
    """
    if not args:
        return b""
    word = args[0].upper()
    if len(args) > 1 or word not in words:
        raise CommandError(error)
    return word


def only_option(session: Session, args: Args, error: bytes = errors.SYNTAX) -> bytes:
    """Like ``choice()``, for the option words in the row of the command."""
    return choice(args, session.command.option_words, error)


def is_first(word: bytes, first: bytes, second: bytes) -> bool:
    """Return whether a word is ``first``; raise a syntax error if it is not ``second`` either."""
    word = word.upper()
    if word not in (first, second):
        raise CommandError(errors.SYNTAX)
    return word == first


def find_database(session: Session, text: bytes) -> Keyspace:
    """Return the database with an index; raise an error if there is none."""
    index = parse_int(text, -(2**31), 2**31 - 1, outside=errors.OUT_OF_INT_RANGE)
    if not 0 <= index < len(session.engine.databases):
        raise CommandError(errors.DB_INDEX)
    return session.engine.databases[index]


def parse_pop(args: Args) -> int | None:
    """Parse ``key [count]`` of a command that pops; return the count, or None."""
    if len(args) > 2:
        raise CommandError(errors.SYNTAX)
    return None if len(args) == 1 else parse_int(args[1], 0, I64_MAX, errors.NOT_POSITIVE)


def parse_random(args: Args, flag: bytes) -> tuple[int | None, bool]:
    """Parse ``key [count [flag]]``; return the count, or None, and whether the flag is given."""
    if len(args) == 1:
        return None, False
    count = parse_negatable(args[1])
    has_flag = len(args) == 3
    if len(args) > 3 or (has_flag and args[2].upper() != flag):
        raise CommandError(errors.SYNTAX)
    if has_flag and abs(count) > I64_MAX // 2:
        raise CommandError(errors.OUT_OF_RANGE)
    return count, has_flag


def check_repetitions(count: int) -> None:
    """Raise an error if a negative count requests over a million random elements (decided here)."""
    if count < -1_000_000:
        raise CommandError(errors.OUT_OF_RANGE)


def random_indexes(session: Session, size: int, count: int) -> Sequence[int]:
    """Return random indexes below ``size``: distinct ones, or repeated ones for a negative count."""
    random = session.engine.random
    check_repetitions(count)
    if count < 0:
        return [random.randrange(size) for _ in range(-count)]
    return range(size) if count >= size else random.sample(range(size), count)


_OPTION_UNITS = {word.encode(): unit for word, unit in TTL_OPTIONS.items()}


def expiry_ms(
    session: Session, text: bytes, unit: Unit | None = None, *, may_be_past: bool = False
) -> int:
    """Return the Unix milliseconds of an expiry that the running command sets.

    The default unit is the one in the command's row. Only the EXPIRE and HEXPIRE families accept
    zero and negative numbers.
    """
    if unit is None:
        unit = session.command.ttl_unit
        assert unit is not None
    amount_ms = parse_int(text) * unit.milliseconds
    since_ms = 0 if unit.is_absolute else session.now_ms
    if not I64_MIN <= amount_ms <= I64_MAX - since_ms or (amount_ms <= 0 and not may_be_past):
        raise CommandError(errors.invalid_expire(session.command.full_name))
    return amount_ms + since_ms


def expiry_reply(session: Session, unit: Unit, at_ms: int) -> int:
    """Return an expiry as a number of a unit, rounded to the nearest integer like in Redis."""
    milliseconds = at_ms if unit.is_absolute else at_ms - session.now_ms
    return (milliseconds + unit.milliseconds // 2) // unit.milliseconds


# -- EXPIRE --------------------------------------------------------------------------------------


def parse_conditions(session: Session, words: list[bytes]) -> frozenset[bytes]:
    """Parse the options NX, XX, GT and LT; raise an error for an invalid combination."""
    sizes = session.command.option_sizes
    conditions = frozenset(
        word for word, _ in parse_options(words, 0, sizes, errors.unsupported_option)
    )
    if b"NX" in conditions and len(conditions) > 1:
        raise CommandError(errors.EXPIRE_NX_WITH_OTHERS)
    if {b"GT", b"LT"} <= conditions:
        raise CommandError(errors.EXPIRE_GT_AND_LT)
    return conditions


def allows_expiry(condition: frozenset[bytes], present_ms: int | None, wanted_ms: int) -> bool:
    """Return whether a new expiry may replace the current one. A missing expiry counts as infinite."""
    if present_ms is None:
        return condition.isdisjoint({b"XX", b"GT"})
    if b"NX" in condition or (b"GT" in condition and wanted_ms <= present_ms):
        return False
    return b"LT" not in condition or wanted_ms < present_ms


# -- SET -----------------------------------------------------------------------------------------

_TTL_WORDS = frozenset({*_OPTION_UNITS, b"KEEPTTL", b"PERSIST"})
COMPARISONS = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
"""Conditions that compare a value, or its digest, with the argument after them."""


class SetOptions:
    """The options of SET, GETEX, MSETEX, HGETEX or HSETEX."""

    flags: frozenset[bytes] = frozenset()
    """Words such as GET, and at most one of NX and XX and one of FNX and FXX."""
    comparison: tuple[bytes, bytes] | None = None
    """One of ``COMPARISONS`` with its operand, instead of NX or XX."""
    ttl_word: bytes = b""
    """KEEPTTL, PERSIST, or an expiry word such as EX with its ``ttl_number``."""
    ttl_number: bytes = b""

    def is_met(self, value: object) -> bool:
        """Return whether the current value of a key meets the condition, if there is one."""
        if b"NX" in self.flags:
            return value is None
        if b"XX" in self.flags:
            return value is not None
        return self.comparison is None or meets(*self.comparison, value)

    def expires_at(self, session: Session) -> int | None:
        """Return the expiry in Unix milliseconds, or None without a new one."""
        unit = _OPTION_UNITS.get(self.ttl_word)
        return None if unit is None else expiry_ms(session, self.ttl_number, unit)


def parse_set_options(session: Session, args: Args, at: int) -> SetOptions:
    """Parse options from ``at`` on. They may be repeated; the last number of an expiry counts."""
    set_options = SetOptions()
    for word, values in parse_options(args, at, session.command.option_sizes):
        if word in _TTL_WORDS:
            if set_options.ttl_word not in (b"", word):
                raise CommandError(errors.SYNTAX)
            set_options.ttl_word, set_options.ttl_number = word, values[0] if values else b""
        elif word in COMPARISONS:
            if set_options.comparison is not None:
                raise CommandError(errors.SYNTAX)
            set_options.comparison = (word, values[0])
        else:
            set_options.flags |= {word}
    if set_options.flags:
        conditions = len(set_options.flags & {b"NX", b"XX"}) + (set_options.comparison is not None)
        if conditions > 1 or {b"FNX", b"FXX"} <= set_options.flags:
            raise CommandError(errors.SYNTAX)
    return set_options


def meets(comparison: bytes, operand: bytes, value: object) -> bool:
    """Return whether the current value of a key meets one of ``COMPARISONS``."""
    of_digest = comparison in (b"IFDEQ", b"IFDNE")
    if of_digest and not re.fullmatch(rb"[0-9a-fA-F]{16}", operand):
        raise CommandError(errors.BAD_DIGEST)
    if value is None:
        return comparison in (b"IFNE", b"IFDNE")
    if not isinstance(value, String):
        raise CommandError(errors.WRONGTYPE)
    is_equal = digest(value) == operand.lower() if of_digest else value == operand
    return is_equal == (comparison in (b"IFEQ", b"IFDEQ"))


def digest(value: String) -> bytes:
    """Return the XXH3 digest of a string as 16 hexadecimal digits."""
    import xxhash  # imported here because it is rarely needed

    digits: str = xxhash.xxh3_64_hexdigest(value)
    return digits.encode()


# -- commands that wait --------------------------------------------------------------------------


def parse_timeout(session: Session, text: bytes) -> int:
    """Parse a blocking command's timeout in seconds; return milliseconds, or 0 for no timeout."""
    seconds = parse_long_double(text, errors.TIMEOUT_NOT_FLOAT)
    if isinstance(seconds, float):  # an infinity
        return _waiting_time(session, I64_MAX + 1 if seconds > 0 else -1)
    return _waiting_time(session, math.ceil(seconds * 1000))


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
    timeout_ms: int | None,
    attempt: Callable[[list[bytes]], Reply],
    kind: type[Any],
    empty: Reply = NIL_ARRAY,
    retry_at_ms: Callable[[], int | None] | None = None,
) -> Reply:
    """Run a command that may block; return its reply or, without one, ``Blocked`` or ``empty``.

    ``attempt`` takes the keys to check, and returns None if there is nothing to reply yet.
    ``empty`` is the reply without a timeout, and to a session that may not block. ``retry_at_ms`` is
    that of ``Blocked``.

    As in Redis, the first attempt may raise WRONGTYPE. A client that is already blocked keeps
    waiting if a key is created with a type other than ``kind``. Any other error, e.g. about the
    destination of a move, ends the wait. Since 7.2, so does the wrong type of a key before the ready
    one.
    """
    reply = attempt(keys)
    if reply is not None:
        return reply
    if timeout_ms is None or not session.may_block:
        return empty

    def again(ready: list[bytes]) -> Reply:
        fitting = [key for key in ready if isinstance(session.db.find(key), kind)]
        if not fitting:
            return None
        return attempt(keys if session.engine.table.knows[ALL_KEYS_AGAIN] else fitting)

    # A reader of a group also waits for the end of its stream, and matches values of any type.
    awaits = ("stream", "gone") if kind is object else (kind.type_name,)
    return Blocked(keys, timeout_ms, again, NIL_ARRAY, awaits=awaits, retry_at_ms=retry_at_ms)


def pop_several(
    session: Session,
    args: Args,
    ends: tuple[bytes, bytes],
    kind: type[T],
    take: Callable[[bytes, T, bool, int], list[Any]],
) -> Reply:
    """Pop elements from the first existing key: LMPOP, ZMPOP, BLMPOP and BZMPOP.

    The arguments are ``[timeout] numkeys key [key ...] end [COUNT count]``, and ``ends`` are the
    words for both ends. ``take`` removes elements, given the key, its value, whether to pop from
    the first end, and the count. It returns the elements for the reply.
    """
    timeout = None
    if "blocking" in session.command.flags:
        timeout, *args = args
    end = 1 + parse_int(args[0], 1, I64_MAX, errors.NUMKEYS_NOT_POSITIVE)
    if end >= len(args):
        raise CommandError(errors.SYNTAX)
    from_first = is_first(args[end], *ends)
    words = args[end + 1 :]
    count = 1
    if len(words) > 1 and words[0].upper() == b"COUNT":
        count = parse_int(words[1], 1, I64_MAX, errors.COUNT_NOT_POSITIVE)
        words = words[2:]
    if words:
        raise CommandError(errors.SYNTAX)

    def take_several(key: bytes, value: T) -> list[Any]:
        return [take(key, value, from_first, count)]

    return pop_first(session, args[1:end], timeout, kind, take_several)


def pop_first(
    session: Session,
    keys: list[bytes],
    timeout: bytes | None,
    kind: type[T],
    take: Callable[[bytes, T], list[Any]],
) -> Reply:
    """Return the first existing key and what ``take`` removes from it; block if there is a timeout."""

    def attempt(keys: list[bytes]) -> Reply:
        for key in keys:
            value = session.db.get(key, kind)
            if value is not None:
                return [key, *take(key, value)]
        return None

    timeout_ms = None if timeout is None else parse_timeout(session, timeout)
    return try_or_wait(session, keys, timeout_ms, attempt, kind)


# -- scans ---------------------------------------------------------------------------------------

_DEFAULT_PAGE = {"vendor": 100, "redis": 10}
"""Default COUNT of a scan in each dialect. The vendor returns a small collection in a single page."""


def parse_scan(
    session: Session, args: Args
) -> tuple[int, Callable[[bytes], bool] | None, dict[bytes, Args]]:
    """Return the argument of COUNT, the test of MATCH or None, and the command's own options."""
    count, matches = _DEFAULT_PAGE[session.engine.dialect], None
    own_options: dict[bytes, Args] = {}
    for word, values in parse_options(args, 0, session.command.option_sizes):
        if word == b"COUNT":
            count = parse_int(values[0], 1, outside=errors.SYNTAX)
        elif word == b"MATCH":
            matches = matcher(values[0])
        else:
            own_options[word] = values
    return count, matches, own_options


def scan_collection(
    session: Session,
    args: Args,
    *,
    kind: type[C],
    name: Callable[[Any], bytes] = lambda item: item,
    show: Callable[[C, list[Any], dict[bytes, Args]], list[Any]] = lambda value, items, words: (
        items
    ),
) -> Reply:
    """Return a page of the collection at a key.

    ``name`` returns the name of an item, and ``show`` the reply for the items whose names match. As
    in Redis, the options are not checked if the key is missing.
    """
    cursor = parse_cursor(args[1])
    value = session.db.get(args[0], kind)
    if value is None:
        return [b"0", []]
    page_size, matches, own_options = parse_scan(session, args[2:])
    if session.engine.dialect == "vendor":
        has_one_page = not cursor and len(value) <= page_size
    else:
        has_one_page = value.encoding(session.engine.config) in ("intset", "listpack")
    if has_one_page:
        following, items = 0, list(value)
    else:
        following, items = value.scan(cursor, page_size)
    if matches is not None:
        items = [item for item in items if matches(name(item))]
    return [b"%d" % following, show(value, items, own_options)]
