"""String commands that treat values as numbers."""

from __future__ import annotations

import math

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import (
    I64_MAX,
    I64_MIN,
    format_long_double,
    long_double_sum,
    parse_int,
    parse_long_double,
    try_int,
)
from ...values.memory import UnpackedInteger

__all__: list[str] = []


def _increment(session: Session, key: bytes, amount: int) -> Reply:
    value = session.db.string(key)
    if value is None:
        number = 0
    else:
        found = try_int(value if type(value) is bytes else bytes(value[:21]))
        if found is None:
            raise CommandError(errors.NOT_INTEGER)
        number = found
    number += amount
    if not I64_MIN <= number <= I64_MAX:
        raise CommandError(errors.OVERFLOW)
    session.db.set(key, b"%d" % number, True)
    return number


@command("INCR")
def incr(session: Session, args: Args) -> Reply:
    """Increment the integer value of a key by one and return the new value."""
    return _increment(session, args[0], 1)


@command("DECR")
def decr(session: Session, args: Args) -> Reply:
    """Decrement the integer value of a key by one and return the new value."""
    return _increment(session, args[0], -1)


@command("INCRBY")
def incrby(session: Session, args: Args) -> Reply:
    """Increment the integer value of a key by a number and return the new value."""
    return _increment(session, args[0], parse_int(args[1]))


@command("DECRBY")
def decrby(session: Session, args: Args) -> Reply:
    """Decrement the integer value of a key by a number and return the new value."""
    amount = parse_int(args[1])
    if amount == I64_MIN:
        raise CommandError(errors.DECREMENT_OVERFLOW)
    return _increment(session, args[0], -amount)


@command("INCRBYFLOAT")
def incrbyfloat(session: Session, args: Args) -> Reply:
    """Increment the value of a key by a floating-point number and return the new value."""
    value = session.db.string(args[0])
    present = parse_long_double(b"0" if value is None else bytes(value))
    total = long_double_sum(present, parse_long_double(args[1]))
    if isinstance(total, float) and not math.isfinite(total):
        raise CommandError(errors.NAN_OR_INFINITY)
    text = format_long_double(total)
    is_integer = try_int(text) is not None
    session.db.set(args[0], UnpackedInteger(text) if is_integer else text, keep_ttl=True)
    return text
