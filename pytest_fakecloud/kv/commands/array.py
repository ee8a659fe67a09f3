"""Array commands.

The vendor's documentation describes them. Decided here, because it does not answer these questions:

- A command with an error changes nothing. Indexes have no sign and no leading zeros.
- ARSCAN rejects a start after its end, because the vendor excludes the reversed order, unlike Redis
  and the stock dialect. ARGREP returns the reversed order; for AROP and ARDELRANGE the order of the
  bounds does not matter.
- AND and OR of ARGREP exclude each other. NOCASE ignores the case of ASCII letters and, in regular
  expressions, of all letters. The expressions have the syntax of filters in JSON paths.
- AROP adds and compares integers of 64 bits exactly, and all other decimal numbers as doubles. AND,
  OR and XOR skip numbers outside 64 bits. Infinities and hexadecimal numbers are not numbers.
- An array that ARRING has not filled is a ring of another size for ARRING. A new ring has no holes.
- Before the first append, ARLASTITEMS begins at the end of the array.
- ARSEEK accepts 18446744073709551615, after which no append is possible.
- Indexes and lengths up to 2^63-1 are integers in every reply, also over REST; higher ones in lists
  are bulk strings, or big numbers in RESP3, like those that are documented.
- The events of a key have the names of its commands (that of ARMSET is `arset`) and belong to the
  class `d`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import islice
from math import isinf
from operator import add, and_, or_, xor
from typing import Any

from ...core.budget import spend
from .. import errors
from ..algorithms.glob import matcher
from ..algorithms.linear_regex import LinearRegex, RegexError
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import BigNumber, Map, Reply
from ..syntax import DECIMAL, I64_MAX, I64_MIN, decoded, format_double, parse_int, try_int
from ..table.registry import Args, command
from ..values.array import MAX_INDEX, SLICE_SIZE, ArrayValue
from .arguments import arity_error, existing, get_or_empty, parse_options

_LONGEST_RANGE = 1_000_000
_MOST_PREDICATES = 250
_LONGEST_REGEX = 2048
_STEPS_PER_TEST = 2
_BYTES_PER_STEP = 500


def _parse_index(text: bytes, most: int = MAX_INDEX, error: bytes = errors.ARRAY_INDEX) -> int:
    """Parse an unsigned integer without leading zeros; raise ``error`` if it exceeds ``most``."""
    if not text.isdigit() or len(text) > 20 or (text[0] == ord("0") and len(text) > 1):
        raise CommandError(error)
    index = int(text)
    if index > most:
        raise CommandError(error)
    return index


def _parse_limit(text: bytes) -> int:
    return parse_int(text, 1, I64_MAX, errors.LIMIT_NOT_POSITIVE)


def _number(number: int) -> int | BigNumber:
    """Return an index or a length as a reply, which has no integers of more than 63 bits."""
    return number if number <= I64_MAX else BigNumber(b"%d" % number)


# -- writing ---------------------------------------------------------------------------------------


def _set(session: Session, key: bytes, values: list[tuple[int, bytes]]) -> int:
    added = session.db.get_or_create(key, ArrayValue).set(values)
    session.db.touch(key, "arset")
    return added


@command("ARSET")
def arset(session: Session, args: Args) -> Reply:
    """Set the values from an index on; return the number of indexes that were empty."""
    first = _parse_index(args[1])
    if first + len(args) - 3 > MAX_INDEX:
        raise CommandError(errors.ARRAY_INDEX)
    return _set(session, args[0], list(enumerate(args[2:], first)))


@command("ARMSET")
def armset(session: Session, args: Args) -> Reply:
    """Set values by index; return the number of indexes that were empty."""
    if len(args) % 2 == 0:
        raise arity_error(session)
    return _set(session, args[0], list(zip(map(_parse_index, args[1::2]), args[2::2], strict=True)))


def _remove(session: Session, key: bytes, ranges: list[tuple[int, int]]) -> int:
    removed = get_or_empty(session, key, ArrayValue).remove(ranges)
    if removed:
        session.db.note_removal(key)
    return removed


@command("ARDEL")
def ardel(session: Session, args: Args) -> Reply:
    """Remove the values at indexes; return the number of values that existed."""
    return _remove(session, args[0], [(index, index) for index in map(_parse_index, args[1:])])


@command("ARDELRANGE")
def ardelrange(session: Session, args: Args) -> Reply:
    """Remove the values in one or more ranges; return the number of values that existed."""
    if len(args) % 2 == 0:
        raise arity_error(session)
    bounds = list(map(_parse_index, args[1:]))
    ranges = zip(bounds[::2], bounds[1::2], strict=True)
    return _remove(session, args[0], [(min(ends), max(ends)) for ends in ranges])


@command("ARINSERT")
def arinsert(session: Session, args: Args) -> Reply:
    """Append values after the cursor; return the index of the last one."""
    key, *values = args
    array = session.db.get(key, ArrayValue)
    if array is not None and array.next_index + len(values) - 1 > MAX_INDEX:
        raise CommandError(errors.ARRAY_OVERFLOW)
    array = session.db.get_or_create(key, ArrayValue)
    array.append(values)
    session.db.touch(key)
    return _number(array.next_index - 1)


@command("ARRING")
def arring(session: Session, args: Args) -> Reply:
    """Append values to a ring buffer of a given size; return the index of the last one."""
    key, size_text, *values = args
    size = _parse_index(size_text, MAX_INDEX + 1, errors.RING_SIZE)
    if not size:
        raise CommandError(errors.RING_SIZE)
    array = session.db.get_or_create(key, ArrayValue)
    array.put_in_ring(values, size)
    session.db.touch(key)
    return _number(array.next_index - 1)


@command("ARSEEK")
def arseek(session: Session, args: Args) -> Reply:
    """Set the index of the next append; return 0 if the key does not exist."""
    index = _parse_index(args[1], MAX_INDEX + 1)
    array = session.db.get(args[0], ArrayValue)
    if array is None:
        return 0
    array.cursor = index - 1 if index else None
    session.db.touch(args[0])
    return 1


# -- reading by index ------------------------------------------------------------------------------


@command("ARGET")
def arget(session: Session, args: Args) -> Reply:
    """Return the value at an index."""
    index = _parse_index(args[1])
    return get_or_empty(session, args[0], ArrayValue).values.get(index)


@command("ARMGET")
def armget(session: Session, args: Args) -> Reply:
    """Return the values at one or more indexes."""
    indexes = list(map(_parse_index, args[1:]))
    return list(map(get_or_empty(session, args[0], ArrayValue).values.get, indexes))


@command("ARGETRANGE")
def argetrange(session: Session, args: Args) -> Reply:
    """Return the values and holes between two indexes, both inclusive, in either direction."""
    start, end = map(_parse_index, args[1:])
    if abs(end - start) >= _LONGEST_RANGE:
        raise CommandError(errors.ARRAY_RANGE)
    indexes = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    return list(map(get_or_empty(session, args[0], ArrayValue).values.get, indexes))


@command("ARSCAN")
def arscan(session: Session, args: Args) -> Reply:
    """Return the indexes between two indexes that are not empty, with their values."""
    start, end = map(_parse_index, args[1:3])
    if start > end and session.engine.dialect == "vendor":
        raise CommandError(errors.START_AFTER_END)
    limit = None
    for _, (text,) in parse_options(args, 3, session.command.option_sizes):
        limit = _parse_limit(text)
    low, high = min(start, end), max(start, end)
    items = get_or_empty(session, args[0], ArrayValue).between(low, high, reverse=start > end)
    return [[_number(index), value] for index, value in islice(items, limit)]


@command("ARLASTITEMS")
def arlastitems(session: Session, args: Args) -> Reply:
    """Return what is at the last indexes up to the cursor, oldest first."""
    count = parse_int(args[1], 0, outside=errors.NOT_POSITIVE)
    is_reversed = b"REV" in dict(parse_options(args, 2, session.command.option_sizes))
    array = get_or_empty(session, args[0], ArrayValue)
    latest = array.latest(min(count, len(array)))
    return latest if is_reversed else latest[::-1]


# -- search and arithmetic -------------------------------------------------------------------------


def _predicate(word: bytes, operand: bytes, nocase: bool) -> Callable[[bytes], bool]:
    """Return the test of values that a predicate of ARGREP describes."""
    if word == b"GLOB":
        return matcher(operand, nocase)
    if word == b"RE":
        if len(operand) > _LONGEST_REGEX:
            raise CommandError(errors.LONG_REGEX)
        try:
            regex = LinearRegex(decoded(operand), ignore_case=nocase)
        except RegexError as error:
            raise CommandError(errors.invalid_regex(error)) from None
        return lambda value: regex.search(decoded(value))
    if nocase:
        operand = operand.lower()
        if word == b"EXACT":
            return lambda value: value.lower() == operand
        return lambda value: operand in value.lower()
    if word == b"EXACT":
        return lambda value: value == operand
    return lambda value: operand in value


@command("ARGREP")
def argrep(session: Session, args: Args) -> Reply:
    """Return the indexes of the values between two indexes that match predicates."""
    bounds = {b"-": 0, b"+": MAX_INDEX}
    start, end = (bounds[text] if text in bounds else _parse_index(text) for text in args[1:3])
    predicates: list[tuple[bytes, bytes]] = []
    flags: set[bytes] = set()
    limit = None
    for word, operands in parse_options(args, 3, session.command.option_sizes):
        if word == b"LIMIT":
            limit = _parse_limit(operands[0])
        elif operands:
            predicates.append((word, operands[0]))
        else:
            flags.add(word)
    if not predicates:
        raise CommandError(errors.NO_PREDICATE)
    if len(predicates) > _MOST_PREDICATES:
        raise CommandError(errors.TOO_MANY_PREDICATES)
    if {b"AND", b"OR"} <= flags:
        raise CommandError(errors.SYNTAX)
    tests = [_predicate(*predicate, b"NOCASE" in flags) for predicate in predicates]
    matches = all if b"AND" in flags else any
    array = get_or_empty(session, args[0], ArrayValue)
    hits: list[Any] = []
    for index, value in array.between(min(start, end), max(start, end), reverse=start > end):
        spend(len(tests) * (_STEPS_PER_TEST + len(value) // _BYTES_PER_STEP))
        if matches(test(value) for test in tests):
            hits.append([_number(index), value] if b"WITHVALUES" in flags else _number(index))
            if len(hits) == limit:
                break
    return hits


_BITWISE = {b"AND": and_, b"OR": or_, b"XOR": xor}
_ARITHMETIC: dict[bytes, Callable[[Any, Any], Any]] = {b"SUM": add, b"MIN": min, b"MAX": max}


def _to_number(text: bytes) -> int | float | None:
    """Return the number that a value contains: an integer of 64 bits, or a finite double."""
    number: int | float | None = try_int(text)
    if number is None and DECIMAL.fullmatch(text):
        number = float(text)
    return None if number is None or isinf(number) else number


@command("AROP")
def arop(session: Session, args: Args) -> Reply:
    """Combine the values between two indexes: a sum, extreme, bitwise result, or count."""
    first, last = sorted(map(_parse_index, args[1:3]))
    operations = list(parse_options(args, 3, session.command.option_sizes))
    if len(operations) != 1:
        raise CommandError(errors.SYNTAX)
    [(operation, operands)] = operations
    array = get_or_empty(session, args[0], ArrayValue)
    if operation == b"USED":
        return array.count_between(first, last)
    values = (value for _, value in array.between(first, last))
    if operation == b"MATCH":
        return sum(value == operands[0] for value in values)
    numbers = [number for number in map(_to_number, values) if number is not None]
    if operation in _BITWISE:
        integers = [int(number) for number in numbers if I64_MIN <= number <= I64_MAX]
        return reduce(_BITWISE[operation], integers) if integers else None
    if not numbers:
        return None
    result = reduce(_ARITHMETIC[operation], numbers)
    return b"%d" % result if isinstance(result, int) else format_double(result)


# -- sizes and the cursor --------------------------------------------------------------------------


@command("ARCOUNT")
def arcount(session: Session, args: Args) -> Reply:
    """Return the number of values in an array."""
    return len(get_or_empty(session, args[0], ArrayValue))


@command("ARLEN")
def arlen(session: Session, args: Args) -> Reply:
    """Return the length of an array: its highest index that is not empty, plus 1."""
    return _number(get_or_empty(session, args[0], ArrayValue).length)


@command("ARNEXT")
def arnext(session: Session, args: Args) -> Reply:
    """Return the index of the next append, or nil after an append at the highest index."""
    index = get_or_empty(session, args[0], ArrayValue).next_index
    return None if index > MAX_INDEX else _number(index)


@command("ARINFO")
def arinfo(session: Session, args: Args) -> Reply:
    """Return information about an array; with FULL, include statistics of its slices.

    A fake has no directories: decided here, the size of the directory is the number of slices, and
    there are no super directories. A slice is dense if at least half of its indexes are occupied.
    """
    is_full = b"FULL" in dict(parse_options(args, 1, session.command.option_sizes))
    array = existing(session, args[0], ArrayValue)
    next_index = array.next_index
    info: list[Any] = [
        b"len", _number(array.length), b"count", len(array), b"slice-size", SLICE_SIZE,
        b"slices", len(array.slices), b"directory-size", len(array.slices),
        b"super-dir-entries", 0,
        b"next-insert-index", 0 if next_index > MAX_INDEX else _number(next_index),
    ]  # fmt: skip
    if is_full:
        dense = [count for count in array.slices.values() if 2 * count >= SLICE_SIZE]
        sparse = [count for count in array.slices.values() if 2 * count < SLICE_SIZE]
        dense_size = sum(dense) / max(len(dense), 1)
        info += [
            b"dense-slices", len(dense), b"sparse-slices", len(sparse),
            b"avg-dense-size", dense_size, b"avg-dense-fill", dense_size / SLICE_SIZE,
            b"avg-sparse-size", sum(sparse) / max(len(sparse), 1),
        ]  # fmt: skip
    return Map(info)
