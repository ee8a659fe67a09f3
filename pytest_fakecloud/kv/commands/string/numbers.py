"""String commands that treat values as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command, variant
from ...table.syntax import I64_MAX, I64_MIN, parse_int, try_int
from ...values.sizes import UnpackedInteger

if TYPE_CHECKING:
    from ...table.long_double import LongDouble


def incremented(text: bytes, amount: int, error: bytes = errors.NOT_INTEGER) -> int:
    """Return an integer plus ``amount``; raise ``error``, or OVERFLOW beyond 64 bits."""
    present = try_int(text)
    if present is None:
        raise CommandError(error)
    total = present + amount
    if not I64_MIN <= total <= I64_MAX:
        raise CommandError(errors.OVERFLOW)
    return total


def incremented_float(text: bytes, amount: LongDouble, error: bytes = errors.NOT_FLOAT) -> bytes:
    """Return the sum of 80-bit floats; raise ``error`` for an invalid string.

    An infinite sum raises ``NAN_OR_INFINITY``.
    """
    # Few tests add floats, and exact fractions take milliseconds to import.
    from ...table.long_double import format_long_double, long_double_sum, parse_long_double

    total = long_double_sum(parse_long_double(text, error), amount)
    if isinstance(total, float):
        raise CommandError(errors.NAN_OR_INFINITY)
    return format_long_double(total)


@variant("INCR", "Increment the integer value of a key by one and return the new value.", amount=1)
@variant("DECR", "Decrement the integer value of a key by one and return the new value.", amount=-1)
def incr(session: Session, args: Args, *, amount: int) -> Reply:
    key = args[0]
    value = session.db.string(key)
    if value is None:
        number = amount
    else:
        # A 64-bit integer has at most 20 characters, so do not copy more of a large value than 21.
        number = incremented(value if type(value) is bytes else bytes(value[:21]), amount)
    session.db.set(key, b"%d" % number, keep_ttl=True)
    return number


@command("INCRBY")
def incrby(session: Session, args: Args) -> Reply:
    """Increment the integer value of a key by a number and return the new value."""
    return incr(session, args, amount=parse_int(args[1]))


@command("DECRBY")
def decrby(session: Session, args: Args) -> Reply:
    """Decrement the integer value of a key by a number and return the new value."""
    amount = parse_int(args[1])
    if amount == I64_MIN:
        raise CommandError(errors.DECREMENT_OVERFLOW)
    return incr(session, args, amount=-amount)


@command("INCRBYFLOAT")
def incrbyfloat(session: Session, args: Args) -> Reply:
    """Increment the value of a key by a floating-point number and return the new value."""
    from ...table.long_double import parse_long_double

    value = session.db.string(args[0])
    present = b"0" if value is None else bytes(value)
    text = incremented_float(present, parse_long_double(args[1]))
    is_integer = try_int(text) is not None
    session.db.set(args[0], UnpackedInteger(text) if is_integer else text, keep_ttl=True)
    return text
