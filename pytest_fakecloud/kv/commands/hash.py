"""Hash commands, which read and change fields and their expiry."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import chain

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import OK, Map, Reply
from ..syntax import parse_int, parse_long_double
from ..table.arguments import UNITS
from ..table.registry import Args, command, variant
from ..values.containers import HashValue
from .arguments import (
    SetOptions,
    allows_expiry,
    arity_error,
    check_repetitions,
    expiry_ms,
    expiry_reply,
    get_or_empty,
    parse_conditions,
    parse_random,
    parse_set_options,
    scan_collection,
)
from .string import incremented, incremented_float


def _fields(session: Session, key: bytes) -> Mapping[bytes, bytes]:
    """Return the fields of a hash with their values; none for a missing key."""
    return get_or_empty(session, key, HashValue).fields


@command("HSET")
def hset(session: Session, args: Args) -> Reply:
    """Set fields of a hash and return the number of fields that were added."""
    if len(args) % 2 == 0:
        raise arity_error(session)
    value = session.db.get_or_create(args[0], HashValue)
    added = 0
    for at in range(1, len(args), 2):
        added += value.set(args[at], args[at + 1])
    session.db.touch(args[0], "hset")
    if session.db.notify_fields is not None:
        session.db.announce_fields(args[0], args[1::2], "hset")
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
    session.db.touch(args[0], "hset")
    session.db.announce_fields(args[0], [args[1]], "hset")
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


@variant("HKEYS", "Return all fields of a hash.", show=list)
@variant("HVALS", "Return all values of a hash.", show=lambda fields: list(fields.values()))
@variant("HLEN", "Return the number of fields in a hash.", show=len)
@variant(
    "HGETALL",
    "Return all fields and values of a hash.",
    show=lambda fields: Map(chain.from_iterable(fields.items())),
)
def hkeys(session: Session, args: Args, *, show: Callable[[Mapping[bytes, bytes]], Reply]) -> Reply:
    return show(_fields(session, args[0]))


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
    removed = [field for field in args[1:] if value.remove(field)]
    if removed:
        session.db.touch(args[0])
        session.db.announce_fields(args[0], removed)
        session.db.remove_if_empty(args[0])
    return len(removed)


def _store_number(session: Session, args: Args, number: bytes) -> None:
    session.db.get_or_create(args[0], HashValue).set(args[1], number, keep_ttl=True)
    session.db.touch(args[0])
    session.db.announce_fields(args[0], [args[1]])


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

    def show(value: HashValue, fields: list[bytes], own_options: dict[bytes, Args]) -> list[bytes]:
        if b"NOVALUES" in own_options:
            return fields
        return [item for field in fields for item in (field, value.fields[field])]

    return scan_collection(session, args, kind=HashValue, show=show)


# -- expiry of fields ----------------------------------------------------------------------------


def _read_fields(args: Args, at: int, size: int = 1, error: bytes = errors.NUMFIELDS) -> Args:
    """Return the arguments after ``FIELDS count``, which must be ``count`` times ``size``."""
    if args[at].upper() != b"FIELDS":  # only possible in a command without options
        raise CommandError(errors.SYNTAX)
    if at + 1 == len(args):
        raise CommandError(error)
    count = parse_int(args[at + 1])
    if count < 1 or count * size != len(args) - at - 2:
        raise CommandError(error)
    return args[at + 2 :]


def _find_fields_word(args: Args, start: int) -> int:
    """Return the index of the word FIELDS, which follows the options of the command."""
    for at in range(start, len(args)):
        if args[at].upper() == b"FIELDS":
            return at
    raise CommandError(errors.NUMFIELDS)


def _result_per_field(
    session: Session, key: bytes, fields: Args, result: Callable[[HashValue, bytes], int]
) -> tuple[HashValue, list[Reply]]:
    """Return a hash and a result for each field: -2 for a missing one, else from ``result``."""
    value = get_or_empty(session, key, HashValue)
    return value, [result(value, field) if field in value.fields else -2 for field in fields]


def _note_change(
    session: Session, key: bytes, value: HashValue, events: Mapping[str, list[bytes]]
) -> None:
    """Report a change of fields or their expiry, with the events, each of which has its fields."""
    session.db.note_fields(key, value)
    for event, fields in events.items():
        session.db.touch(key, event)
        session.db.announce_fields(key, fields, event)
    session.db.remove_if_empty(key)


def _expire_or_remove(session: Session, value: HashValue, field: bytes, at_ms: int) -> bool:
    """Set the expiry of a field, or remove it if that time is past; return whether it remains."""
    if at_ms > session.now_ms:
        value.expire_at(field, at_ms)
        return True
    value.remove(field)
    return False


@variant("HEXPIRE", "Set the TTL of hash fields in seconds.")
@variant("HPEXPIRE", "Set the TTL of hash fields in milliseconds.")
@variant("HEXPIREAT", "Set the time at which hash fields expire, as a Unix time in seconds.")
@variant("HPEXPIREAT", "Set the time at which hash fields expire, as a Unix time in milliseconds.")
def hexpire(session: Session, args: Args) -> Reply:
    fields_at = _find_fields_word(args, 2)
    condition = parse_conditions(session, args[2:fields_at])
    fields = _read_fields(args, fields_at)
    if parse_int(args[1]) < 0:
        raise CommandError(errors.invalid_expire(session.command.full_name))
    at_ms = expiry_ms(session, args[1], may_be_past=True)

    def expire(value: HashValue, field: bytes) -> int:
        if not allows_expiry(condition, value.expires.get(field), at_ms):
            return 0
        return 1 if _expire_or_remove(session, value, field, at_ms) else 2

    value, results = _result_per_field(session, args[0], fields, expire)
    events: dict[str, list[bytes]] = {}
    for number, event in ((1, "hexpire"), (2, "hexpired")):
        if number in results:
            pairs = zip(fields, results, strict=True)
            events[event] = [field for field, result in pairs if result == number]
    _note_change(session, args[0], value, events)
    return results


@command("HPERSIST")
def hpersist(session: Session, args: Args) -> Reply:
    """Remove the TTL of hash fields."""
    fields = _read_fields(args, 1)
    value, results = _result_per_field(
        session, args[0], fields, lambda value, field: 1 if value.persist(field) else -1
    )
    if 1 in results:
        pairs = zip(fields, results, strict=True)
        persisted = [field for field, result in pairs if result == 1]
        _note_change(session, args[0], value, {"hpersist": persisted})
    return results


@variant("HTTL", "Return the remaining TTL of hash fields in seconds.")
@variant("HPTTL", "Return the remaining TTL of hash fields in milliseconds.", unit="milliseconds")
@variant(
    "HEXPIRETIME",
    "Return the Unix time in seconds at which hash fields expire.",
    unit="unix-time-seconds",
)
@variant(
    "HPEXPIRETIME",
    "Return the Unix time in milliseconds at which hash fields expire.",
    unit="unix-time-milliseconds",
)
def httl(session: Session, args: Args, *, unit: str = "seconds") -> Reply:
    wanted = UNITS[unit]
    rounds_down = wanted.is_absolute and session.engine.dialect == "vendor"

    def read(value: HashValue, field: bytes) -> int:
        at_ms = value.expires.get(field)
        if at_ms is None:
            return -1
        # As tests of the official clients show, the vendor rounds down for HEXPIRETIME.
        return at_ms // wanted.milliseconds if rounds_down else expiry_reply(session, wanted, at_ms)

    return _result_per_field(session, args[0], _read_fields(args, 1, error=errors.SYNTAX), read)[1]


@command("HGETDEL")
def hgetdel(session: Session, args: Args) -> Reply:
    """Return the values of hash fields and delete the fields."""
    fields = _read_fields(args, 1)
    value = get_or_empty(session, args[0], HashValue)
    results: list[Reply] = []
    removed: list[bytes] = []
    for field in fields:
        results.append(value.fields.get(field))
        if value.remove(field):
            removed.append(field)
    if removed:
        _note_change(session, args[0], value, {"hdel": removed})
    return results


def _expires_at(session: Session, set_options: SetOptions) -> int | None:
    """Return the expiry in Unix milliseconds; the number 0 means now for every expiry word."""
    if set_options.ttl_number and parse_int(set_options.ttl_number) == 0:
        return session.now_ms
    return set_options.expires_at(session)


@command("HGETEX")
def hgetex(session: Session, args: Args) -> Reply:
    """Return the values of hash fields, and optionally set or remove their TTL."""
    fields_at = _find_fields_word(args, 1)
    set_options = parse_set_options(session, args[:fields_at], 1)
    fields = _read_fields(args, fields_at)
    value = get_or_empty(session, args[0], HashValue)
    at_ms = _expires_at(session, set_options)
    results: list[Reply] = []
    event, changed = "", []
    for field in fields:
        results.append(value.fields.get(field))
        if field not in value.fields:
            continue
        if at_ms is not None:
            event = "hexpire" if _expire_or_remove(session, value, field, at_ms) else "hexpired"
            changed.append(field)
        elif set_options.ttl_word == b"PERSIST" and value.persist(field):
            event = "hpersist"
            changed.append(field)
    if event:
        _note_change(session, args[0], value, {event: changed})
    return results


@command("HSETEX")
def hsetex(session: Session, args: Args) -> Reply:
    """Set hash fields with an optional condition and TTL; return 1 if they were set, else 0."""
    fields_at = _find_fields_word(args, 1)
    set_options = parse_set_options(session, args[:fields_at], 1)
    pairs = _read_fields(args, fields_at, size=2)
    key = args[0]
    value = get_or_empty(session, key, HashValue)
    at_ms = _expires_at(session, set_options)
    fields, present = set(pairs[::2]), value.fields.keys()
    if b"FNX" in set_options.flags and not fields.isdisjoint(present):
        return 0
    if (b"FXX" in set_options.flags and not fields <= present) or not set_options.is_met(
        value or None
    ):
        return 0
    value = session.db.get_or_create(key, HashValue)
    for field, content in zip(pairs[::2], pairs[1::2], strict=True):
        value.set(field, content, keep_ttl=set_options.ttl_word == b"KEEPTTL")
        if at_ms is not None:
            _expire_or_remove(session, value, field, at_ms)
    events = ["hset"]
    if at_ms is not None:
        events += ["hexpire"] if at_ms > session.now_ms else ["hexpire", "hexpired"]
    _note_change(session, key, value, dict.fromkeys(events, pairs[::2]))
    return 1
