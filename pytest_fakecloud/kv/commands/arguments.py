"""Parsers for arguments that several command groups share, and random choices of members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from .. import errors
from ..engine.keyspace import Keyspace
from ..engine.session import Session
from ..errors import CommandError, Template
from ..table.registry import Args, CommandSpec
from ..table.syntax import I64_MAX, parse_database, parse_int

T = TypeVar("T")

REST = -1
"""Number of values, for ``options()``, of an option that takes all arguments after it."""


def options(
    args: Args,
    at: int,
    sizes: Mapping[bytes, int],
    error: bytes | Template = errors.SYNTAX,
    *,
    of: CommandSpec | None = None,
) -> Iterator[tuple[bytes, Args]]:
    """Yield each option from ``at`` on in upper case, with as many values as ``sizes`` says.

    With ``of``, only the option words of this command are known. The error for an unknown word, or
    for too few values, may have a placeholder for the word.
    """
    while at < len(args):
        word = args[at].upper()
        size = sizes.get(word) if of is None or word in of.option_words else None
        end = len(args) if size == REST else at + 1 + (size or 0)
        if size is None or end > len(args):
            raise CommandError(error(args[at]) if isinstance(error, Template) else error)
        yield word, args[at + 1 : end]
        at = end


def running(session: Session) -> CommandSpec:
    """Return the command that is running, which may be one of several with the same function."""
    spec = session.engine.running
    assert spec is not None
    return spec


def arity_error(session: Session) -> CommandError:
    """Return the error for a wrong number of arguments of the running command."""
    return CommandError(errors.wrong_arity(running(session).full_name))


def subcommand_error(session: Session) -> CommandError:
    """Return the error for wrong arguments of a subcommand, whose name is quoted as it was sent."""
    container = running(session).name.split()[0]
    return CommandError(errors.bad_subcommand_arguments(session.engine.line[1], container))


def parse_negatable(text: bytes) -> int:
    """Parse a count or rank. The lowest integer is rejected, because it cannot be negated."""
    number = parse_int(text)
    if number < -I64_MAX:
        raise CommandError(errors.OUT_OF_LONG_RANGE)
    return number


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
    """Convert the range of a string command to inclusive indexes; it is empty if start > end.

    Unlike in other commands, an end before the string means its first byte.
    """
    start = max(start + length, 0) if start < 0 else start
    end = max(end + length, 0) if end < 0 else end
    return start, min(end, length - 1)


def existing(session: Session, key: bytes, kind: type[T], error: bytes = errors.NO_SUCH_KEY) -> T:
    """Return the value of a key; raise ``error`` for a missing key, or WRONGTYPE."""
    value = session.db.get(key, kind)
    if value is None:
        raise CommandError(error)
    return value


@cache
def _empty(kind: type[Any]) -> Any:
    return kind()


def get_or_empty(session: Session, key: bytes, kind: type[T]) -> T:
    """Return the value of a key, or an empty value; raise WRONGTYPE.

    The empty value is shared: the caller can remove elements from it, but must not add any.
    """
    value = session.db.get(key, kind)
    # mypy does not consider `type[T]` hashable.
    return _empty(kind) if value is None else value  # type: ignore[arg-type]


def is_first(word: bytes, first: bytes, second: bytes) -> bool:
    """Return whether a word is ``first``; raise a syntax error if it is not ``second`` either."""
    word = word.upper()
    if word not in (first, second):
        raise CommandError(errors.SYNTAX)
    return word == first


def find_database(session: Session, text: bytes) -> Keyspace:
    """Return the database with an index; raise an error if there is none."""
    index = parse_database(text)
    if not 0 <= index < len(session.engine.databases):
        raise CommandError(errors.DB_INDEX)
    return session.engine.database(index)


MOST_REPETITIONS = 1_000_000
"""Maximum number of random members that a negative count may request (decided here)."""


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
    """Raise ``CommandError`` if a negative count requests too many random elements."""
    if count < -MOST_REPETITIONS:
        raise CommandError(errors.OUT_OF_RANGE)


def random_indexes(session: Session, size: int, count: int) -> Sequence[int]:
    """Return random indexes below ``size``: distinct ones, or repeated ones for a negative count."""
    random = session.engine.random
    check_repetitions(count)
    if count < 0:
        return [random.randrange(size) for _ in range(-count)]
    return range(size) if count >= size else random.sample(range(size), count)
