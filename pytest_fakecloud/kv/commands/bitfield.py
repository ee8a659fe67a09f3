"""BITFIELD and BITFIELD_RO, which treat a string as integers of any width at any offset."""

from __future__ import annotations

from typing import NamedTuple

from .. import errors
from ..engine.keyspace import String
from ..engine.session import Session
from ..errors import CommandError
from ..reply import Reply
from ..table.registry import Args, variant
from ..table.syntax import parse_int, try_int
from .arguments import options, running
from .bitmap import extract_bits, parse_bit_offset
from .string.values import grow


class _Operation(NamedTuple):
    word: bytes
    signed: bool
    width: int
    offset: int
    operand: int
    overflow: bytes


def _field_type(text: bytes) -> tuple[bool, int]:
    signed = text[:1] == b"i"
    width = try_int(text[1:])
    if text[:1] not in (b"i", b"u") or width is None or not 1 <= width <= (64 if signed else 63):
        raise CommandError(errors.BITFIELD_TYPE)
    return signed, width


def _operations(session: Session, args: Args) -> list[_Operation]:
    overflow = b"WRAP"
    found: list[_Operation] = []
    for word, values in options(args, 1, {b"OVERFLOW": 1, b"GET": 2, b"SET": 3, b"INCRBY": 3}):
        if word == b"OVERFLOW":
            overflow = values[0].upper()
            if overflow not in (b"WRAP", b"SAT", b"FAIL"):
                raise CommandError(errors.BITFIELD_OVERFLOW)
            continue
        signed, width = _field_type(values[0])
        offset = parse_bit_offset(session, values[1], width)
        operand = 0 if word == b"GET" else parse_int(values[2])
        found.append(_Operation(word, signed, width, offset, operand, overflow))
    return found


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
    if writes and running(session).readonly:
        raise CommandError(errors.BITFIELD_RO_GET_ONLY)
    value = session.db.string(key)
    if not writes:
        return [_read_field(value or b"", operation) for operation in operations]
    size = max(((operation.offset + operation.width - 1) >> 3) + 1 for operation in writes)
    is_changed = value is None or len(value) < size
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
        is_changed |= _write_field(buffer, operation, fitting)
        replies.append(present if operation.word == b"SET" else fitting)
    if is_changed:
        session.db.touch(key)
    return replies
