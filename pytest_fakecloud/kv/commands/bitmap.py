"""Commands for the bits of strings. Bit 0 is the most significant bit of the first byte.

BITFIELD treats a string as integers of any width at any offset.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, xor
from typing import NamedTuple

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import Reply
from ..syntax import parse_int, try_int
from ..table.registry import Args, command, variant
from ..values.types import String
from .arguments import choice, inclusive_range, is_first, parse_bounds, parse_options
from .string import grow

BLOCK_SIZE = 1 << 16
"""Number of bytes converted to an integer at a time, which bounds the memory for a huge value."""


def count_bits(value: bytes | bytearray, start: int, end: int) -> int:
    """Return the number of set bits from bit ``start`` to bit ``end``, both inclusive."""
    width = BLOCK_SIZE * 8
    return sum(
        extract_bits(value, low, min(low + width - 1, end)).bit_count()
        for low in range(start, end + 1, width)
    )


def find_bit(value: bytes | bytearray, bit: int, start: int, end: int) -> int | None:
    """Return the position of the first bit equal to ``bit`` in an inclusive range, or None."""
    for first in range(start, end + 1, BLOCK_SIZE * 8):
        width = min(BLOCK_SIZE * 8, end + 1 - first)
        number = extract_bits(value, first, first + width - 1)
        if not bit:
            number ^= (1 << width) - 1
        if number:
            return first + width - number.bit_length()
    return None


def extract_bits(value: bytes | bytearray, start: int, end: int) -> int:
    """Return the bits from ``start`` to ``end``, both inclusive, as an integer."""
    first, last = start >> 3, end >> 3
    number = int.from_bytes(value[first : last + 1], "big") >> 7 - (end & 7)
    return number & ((1 << (end - start + 1)) - 1)


def parse_bit_offset(session: Session, text: bytes, width: int = 0) -> int:
    """Parse a bit offset. If ``width`` is given, ``#n`` means n times ``width`` bits."""
    counted = width > 0 and text.startswith(b"#")
    number = try_int(text[1:] if counted else text)
    if number is not None and counted:
        number *= width
    limit = session.engine.config.number("proto-max-bulk-len")
    if number is None or number < 0 or number >> 3 >= limit:
        raise CommandError(errors.BIT_OFFSET)
    return number


@command("SETBIT")
def setbit(session: Session, args: Args) -> Reply:
    """Set or clear the bit at an offset and return its previous value."""
    key = args[0]
    offset = parse_bit_offset(session, args[1])
    bit = parse_int(args[2], 0, 1, errors.BIT_VALUE)
    value = session.db.string(key)
    grown = value is None or len(value) <= offset >> 3
    buffer = grow(session, key, value, (offset >> 3) + 1)
    mask = 0x80 >> (offset & 7)
    old = buffer[offset >> 3]
    buffer[offset >> 3] = old | mask if bit else old & ~mask
    if grown or buffer[offset >> 3] != old:
        session.db.touch(key)
    return int(bool(old & mask))


@command("GETBIT")
def getbit(session: Session, args: Args) -> Reply:
    """Return the bit at an offset, which is 0 beyond the end of the string."""
    offset = parse_bit_offset(session, args[1])
    value = session.db.string(args[0])
    if value is None or offset >> 3 >= len(value):
        return 0
    return value[offset >> 3] >> (7 - (offset & 7)) & 1


@command("BITCOUNT")
def bitcount(session: Session, args: Args) -> Reply:
    """Return the number of set bits in a string, optionally in a range of bytes or bits."""
    value = session.db.string(args[0])
    if value is None:
        return 0
    if len(args) == 1:
        return count_bits(value, 0, len(value) * 8 - 1)
    if len(args) not in (3, 4):
        raise CommandError(errors.SYNTAX)
    start, end = parse_bounds(args[1], args[2])
    if start < 0 and end < 0 and start > end:
        return 0
    in_bits = len(args) == 4 and is_first(args[3], b"BIT", b"BYTE")
    return count_bits(value, *_bit_range(value, start, end, in_bits))


def _bit_range(value: String, start: int, end: int, in_bits: bool) -> tuple[int, int]:
    """Convert a range of bits or bytes, negative from the end, to inclusive positions of bits."""
    if in_bits:
        return inclusive_range(start, end, len(value) * 8)
    start, end = inclusive_range(start, end, len(value))
    return start * 8, end * 8 + 7


@command("BITPOS")
def bitpos(session: Session, args: Args) -> Reply:
    """Return the position of the first set or clear bit in a string, or -1 if there is none."""
    bit = parse_int(args[1], 0, 1, outside=errors.BIT_ARGUMENT)
    value = session.db.string(args[0])
    if value is None:
        return -1 if bit else 0
    if len(args) > 5:
        raise CommandError(errors.SYNTAX)
    start = parse_int(args[2]) if len(args) > 2 else 0
    in_bits = len(args) == 5 and is_first(args[4], b"BIT", b"BYTE")
    end = parse_int(args[3]) if len(args) > 3 else -1
    start, end = _bit_range(value, start, end, in_bits)
    if start > end:
        return -1
    position = find_bit(value, bit, start, end)
    if position is not None:
        return position
    # Unless the command has an explicit end, Redis treats the string as if zeros followed it.
    return -1 if bit or len(args) > 3 else end + 1


def _in_one(numbers: list[int]) -> int:
    """Return the bits that are set in exactly one of the numbers."""
    once = more = 0
    for number in numbers:
        more |= once & number
        once = (once ^ number) & ~more
    return once


_NEED_TWO = {b"DIFF", b"DIFF1", b"ANDOR"}
_OPERATIONS: dict[bytes, Callable[[list[int]], int]] = {
    b"AND": lambda numbers: reduce(and_, numbers),
    b"OR": lambda numbers: reduce(or_, numbers),
    b"XOR": lambda numbers: reduce(xor, numbers),
    b"NOT": lambda numbers: ~numbers[0],
    b"ONE": _in_one,
    b"DIFF": lambda numbers: numbers[0] & ~reduce(or_, numbers[1:]),
    b"DIFF1": lambda numbers: ~numbers[0] & reduce(or_, numbers[1:]),
    b"ANDOR": lambda numbers: numbers[0] & reduce(or_, numbers[1:]),
}


@command("BITOP")
def bitop(session: Session, args: Args) -> Reply:
    """Combine strings bitwise, store the result in a key, and return its length in bytes."""
    operation, target, sources = args[0].upper(), args[1], args[2:]
    name = operation.decode("latin-1")
    if operation not in session.command.option_words:
        raise CommandError(errors.SYNTAX)
    if operation == b"NOT" and len(sources) != 1:
        raise CommandError(errors.BITOP_NOT_ONE_SOURCE)
    if operation in _NEED_TWO and len(sources) < 2:
        raise CommandError(errors.bitop_needs_two(name))
    values = [session.db.string(key) or b"" for key in sources]
    length = max(map(len, values))
    # Store the result as a bytearray, for which OBJECT ENCODING reports `raw` even if it is short.
    result = bytearray(length)
    for at in range(0, length, BLOCK_SIZE):
        size = min(BLOCK_SIZE, length - at)
        blocks = [value[at : at + size] for value in values]
        numbers = [int.from_bytes(block, "big") << 8 * (size - len(block)) for block in blocks]
        number = _OPERATIONS[operation](numbers) & ((1 << 8 * size) - 1)
        result[at : at + size] = number.to_bytes(size, "big")
    return session.db.store(target, result, "set")


# -- BITFIELD ------------------------------------------------------------------------------------


class _Operation(NamedTuple):
    word: bytes
    signed: bool
    width: int
    offset: int
    operand: int
    overflow: bytes


def _operations(session: Session, args: Args) -> list[_Operation]:
    overflow = b"WRAP"
    operations: list[_Operation] = []
    for word, values in parse_options(
        args, 1, {b"OVERFLOW": 1, b"GET": 2, b"SET": 3, b"INCRBY": 3}
    ):
        if word == b"OVERFLOW":
            overflow = choice(values, (b"WRAP", b"SAT", b"FAIL"), errors.BITFIELD_OVERFLOW)
            continue
        kind, width = values[0][:1], try_int(values[0][1:])
        signed = kind == b"i"
        if kind not in (b"i", b"u") or width is None or not 1 <= width <= 63 + signed:
            raise CommandError(errors.BITFIELD_TYPE)
        offset = parse_bit_offset(session, values[1], width)
        operand = 0 if word == b"GET" else parse_int(values[2])
        operations.append(_Operation(word, signed, width, offset, operand, overflow))
    return operations


_MAX_FIELD_BYTES = 9
"""Maximum number of bytes that a field of 64 bits touches."""


def _read_field(value: String, operation: _Operation) -> int:
    # Pad the bytes that the field touches with zeros, because the string may end before the field.
    first, skipped = divmod(operation.offset, 8)
    window = bytes(value[first : first + _MAX_FIELD_BYTES]).ljust(_MAX_FIELD_BYTES, b"\0")
    number = extract_bits(window, skipped, skipped + operation.width - 1)
    if operation.signed and number >> (operation.width - 1):
        number -= 1 << operation.width
    return number


def _fit(number: int, operation: _Operation) -> int | None:
    """Return the number to store after handling overflow, or None if FAIL rejects it."""
    width = operation.width
    low = -(1 << (width - 1)) if operation.signed else 0
    high = (1 << (width - operation.signed)) - 1
    if low <= number <= high:
        return number
    if operation.overflow == b"FAIL":
        return None
    if operation.overflow == b"SAT":
        # Redis computes the distance from the maximum in 64 bits. If SET stores a very low number,
        # this distance overflows, and Redis treats the number as too high.
        beyond = operation.word == b"SET" and high - number >= 1 << 63
        return high if number > high or beyond else low
    number &= (1 << width) - 1
    return number - (1 << width) if operation.signed and number > high else number


def _write_field(buffer: bytearray, operation: _Operation, number: int) -> bool:
    """Write a field and return whether it has changed."""
    end = operation.offset + operation.width - 1
    first, last = operation.offset >> 3, end >> 3
    shift = 7 - (end & 7)
    mask = ((1 << operation.width) - 1) << shift
    before = int.from_bytes(buffer[first : last + 1], "big")
    block = before & ~mask | (number << shift) & mask
    buffer[first : last + 1] = block.to_bytes(last - first + 1, "big")
    return block != before


@variant("BITFIELD", "Read, set, and increment integers of any width at any offset of a string.")
@variant("BITFIELD_RO", "Read integers of any width at any offset of a string.")
def bitfield(session: Session, args: Args) -> Reply:
    key = args[0]
    operations = _operations(session, args)
    writes = [operation for operation in operations if operation.word != b"GET"]
    if writes and session.command.readonly:
        raise CommandError(errors.BITFIELD_RO_GET_ONLY)
    # Without a write, BITFIELD counts as a read.
    session.count_reads(not writes)
    value = session.db.string(key)
    if not writes:
        return [_read_field(value or b"", operation) for operation in operations]
    size = max(((operation.offset + operation.width - 1) >> 3) + 1 for operation in writes)
    has_grown, is_changed = value is None or len(value) < size, False
    buffer = grow(session, key, value, size)
    replies: list[Reply] = []
    for operation in operations:
        present = _read_field(buffer, operation)
        if operation.word == b"GET":
            replies.append(present)
            continue
        wanted = operation.operand
        if operation.word == b"INCRBY":
            wanted += present
        elif not operation.signed and wanted < 0:
            # Redis reads the operand as an unsigned 64-bit integer.
            wanted += 1 << 64
        fitting = _fit(wanted, operation)
        if fitting is None:
            replies.append(None)
            continue
        is_changed |= _write_field(buffer, operation, fitting) or has_grown
        replies.append(present if operation.word == b"SET" else fitting)
    if is_changed:
        session.db.touch(key, "setbit")
    return replies
