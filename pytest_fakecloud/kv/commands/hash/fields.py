"""Commands that read and change the fields of a hash."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import OK, Map, Reply
from ...table.long_double import parse_long_double
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.collections import HashValue
from ..arguments import arity_error, check_repetitions, get_or_empty, parse_random
from ..scanning import ScanOptions, scan_collection
from ..string.numbers import incremented, incremented_float


def _fields(session: Session, key: bytes) -> Mapping[bytes, bytes]:
    """Return the fields of a hash with their values; none for a missing key."""
    value = session.db.get(key, HashValue)
    return {} if value is None else value.fields


@command("HSET")
def hset(session: Session, args: Args) -> Reply:
    """Set fields of a hash and return the number of fields that were added."""
    if len(args) % 2 == 0:
        raise arity_error(session)
    value = session.db.get_or_create(args[0], HashValue)
    added = 0
    for at in range(1, len(args), 2):
        added += value.set(args[at], args[at + 1])
    session.db.touch(args[0])
    return added


@command("HMSET")
def hmset(session: Session, args: Args) -> Reply:
    """Set fields of a hash."""
    hset(session, args)
    return OK


@command("HSETNX")
def hsetnx(session: Session, args: Args) -> Reply:
    """Set a field of a hash only if the field does not exist."""
    value = session.db.get_or_create(args[0], HashValue)
    if args[1] in value.fields:
        return 0
    value.set(args[1], args[2])
    session.db.touch(args[0])
    return 1


@command("HGET")
def hget(session: Session, args: Args) -> Reply:
    """Return the value of a hash field."""
    return _fields(session, args[0]).get(args[1])


@command("HMGET")
def hmget(session: Session, args: Args) -> Reply:
    """Return the values of several hash fields; nil for each field that does not exist."""
    fields = _fields(session, args[0])
    return [fields.get(field) for field in args[1:]]


@command("HGETALL")
def hgetall(session: Session, args: Args) -> Reply:
    """Return all fields and values of a hash."""
    return Map([item for pair in _fields(session, args[0]).items() for item in pair])


@command("HKEYS")
def hkeys(session: Session, args: Args) -> Reply:
    """Return all fields of a hash."""
    return list(_fields(session, args[0]))


@command("HVALS")
def hvals(session: Session, args: Args) -> Reply:
    """Return all values of a hash."""
    return list(_fields(session, args[0]).values())


@command("HLEN")
def hlen(session: Session, args: Args) -> Reply:
    """Return the number of fields in a hash."""
    return len(_fields(session, args[0]))


@command("HEXISTS")
def hexists(session: Session, args: Args) -> Reply:
    """Return whether a hash field exists."""
    return int(args[1] in _fields(session, args[0]))


@command("HSTRLEN")
def hstrlen(session: Session, args: Args) -> Reply:
    """Return the length in bytes of the value of a hash field."""
    return len(_fields(session, args[0]).get(args[1], b""))


@command("HDEL")
def hdel(session: Session, args: Args) -> Reply:
    """Delete hash fields and return the number that existed."""
    value = get_or_empty(session, args[0], HashValue)
    removed = sum(map(value.remove, args[1:]))
    if removed:
        session.db.note_removal(args[0])
    return removed


def _store_number(session: Session, args: Args, number: bytes) -> None:
    session.db.get_or_create(args[0], HashValue).set(args[1], number, keep_ttl=True)
    session.db.touch(args[0])


@command("HINCRBY")
def hincrby(session: Session, args: Args) -> Reply:
    """Increment the integer value of a hash field by a number and return the new value."""
    amount = parse_int(args[2])
    present = _fields(session, args[0]).get(args[1], b"0")
    total = incremented(present, amount, errors.HASH_NOT_INTEGER)
    _store_number(session, args, b"%d" % total)
    return total


@command("HINCRBYFLOAT")
def hincrbyfloat(session: Session, args: Args) -> Reply:
    """Increment the value of a hash field by a floating-point number; return the new value."""
    amount = parse_long_double(args[2])
    if isinstance(amount, float) and not math.isfinite(amount):
        raise CommandError(errors.VALUE_NAN_OR_INFINITY)
    present = _fields(session, args[0]).get(args[1], b"0")
    result = incremented_float(present, amount, errors.HASH_NOT_FLOAT)
    _store_number(session, args, result)
    return result


@command("HRANDFIELD")
def hrandfield(session: Session, args: Args) -> Reply:
    """Return one or more random fields of a hash; a negative count allows repetitions."""
    count, with_values = parse_random(args, b"WITHVALUES")
    value = session.db.get(args[0], HashValue)
    if value is None:
        return None if count is None else []
    random, order = session.engine.random, value.order()
    if count is None:
        return order.draw(random)
    check_repetitions(count)
    if count < 0:
        chosen = [order.draw(random) for _ in range(-count)]
    else:
        chosen = order.draw_distinct(random, count)
    if not with_values:
        return chosen
    if session.resp > 2:
        return [[field, value.fields[field]] for field in chosen]
    return [item for field in chosen for item in (field, value.fields[field])]


@command("HSCAN")
def hscan(session: Session, args: Args) -> Reply:
    """Iterate over the fields and values of a hash."""

    def show(value: HashValue, fields: list[bytes], given: ScanOptions) -> list[bytes]:
        if b"NOVALUES" in given.others:
            return fields
        return [item for field in fields for item in (field, value.fields[field])]

    return scan_collection(session, args, HashValue, show=show)
