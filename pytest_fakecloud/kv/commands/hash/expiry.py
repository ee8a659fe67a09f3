"""Commands for the expiry of hash fields: the HEXPIRE family, HGETEX, HSETEX and HGETDEL."""

from __future__ import annotations

from collections.abc import Callable

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, invalid_expire
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.hashes import HashValue
from ..lifetimes import (
    EXPIRY_SIZES,
    SetOptions,
    allows_expiry,
    expiry_ms,
    nearest_second,
    parse_conditions,
    parse_set_options,
)


def _read_fields(args: Args, at: int, each: int = 1, error: bytes = errors.NUMFIELDS) -> Args:
    """Return the arguments after ``FIELDS count``, which must be ``count`` times ``each``."""
    if at + 1 >= len(args) or args[at].upper() != b"FIELDS":
        raise CommandError(error)
    count = parse_int(args[at + 1])
    if count < 1 or count * each != len(args) - at - 2:
        raise CommandError(error)
    return args[at + 2 :]


def _read_fields_first(args: Args) -> Args:
    """Return the fields of a command without options."""
    if args[1].upper() != b"FIELDS":
        raise CommandError(errors.SYNTAX)
    return _read_fields(args, 1)


def _find_fields_word(args: Args, start: int) -> int:
    """Return the index of the word FIELDS, which follows the options of the command."""
    for at in range(start, len(args)):
        if args[at].upper() == b"FIELDS":
            return at
    raise CommandError(errors.NUMFIELDS)


def _result_per_field(
    session: Session, key: bytes, fields: Args, result: Callable[[HashValue, bytes], int]
) -> tuple[HashValue | None, list[Reply]]:
    """Return a hash and a result for each field: -2 for a missing one, else from ``result``."""
    value = session.db.get(key, HashValue)
    if value is None:
        return None, [-2] * len(fields)
    return value, [result(value, field) if field in value.fields else -2 for field in fields]


def _note_change(session: Session, key: bytes, value: HashValue, *events: str) -> None:
    session.db.note_fields(key, value)
    for event in events:
        session.db.touch(key, event)
    session.db.remove_if_empty(key)


def _expire_or_remove(session: Session, value: HashValue, field: bytes, at_ms: int) -> bool:
    """Set the expiry of a field, or remove the field if that time is in the past.

    Returns whether the field remains.
    """
    remains = at_ms > session.now_ms
    if remains:
        value.expire_at(field, at_ms)
    else:
        value.remove(field)
    return remains


def _expire(session: Session, args: Args, word: bytes, name: str) -> Reply:
    """Set the expiry of fields; ``word`` is the option of SET with the same meaning."""
    fields_at = _find_fields_word(args, 2)
    condition = parse_conditions(args[2:fields_at])
    fields = _read_fields(args, fields_at)
    if parse_int(args[1]) < 0:
        raise CommandError(invalid_expire(name))
    at_ms = expiry_ms(word, args[1], session.now_ms, name, may_be_past=True)

    def expire(value: HashValue, field: bytes) -> int:
        if not allows_expiry(condition, value.expiry(field), at_ms):
            return 0
        return 1 if _expire_or_remove(session, value, field, at_ms) else 2

    value, results = _result_per_field(session, args[0], fields, expire)
    if value is not None:
        events = [event for result, event in ((1, "hexpire"), (2, "hexpired")) if result in results]
        _note_change(session, args[0], value, *events)
    return results


@command("HEXPIRE")
def hexpire(session: Session, args: Args) -> Reply:
    """Set the TTL of hash fields in seconds."""
    return _expire(session, args, b"EX", "hexpire")


@command("HPEXPIRE")
def hpexpire(session: Session, args: Args) -> Reply:
    """Set the TTL of hash fields in milliseconds."""
    return _expire(session, args, b"PX", "hpexpire")


@command("HEXPIREAT")
def hexpireat(session: Session, args: Args) -> Reply:
    """Set the time at which hash fields expire, as a Unix time in seconds."""
    return _expire(session, args, b"EXAT", "hexpireat")


@command("HPEXPIREAT")
def hpexpireat(session: Session, args: Args) -> Reply:
    """Set the time at which hash fields expire, as a Unix time in milliseconds."""
    return _expire(session, args, b"PXAT", "hpexpireat")


@command("HPERSIST")
def hpersist(session: Session, args: Args) -> Reply:
    """Remove the TTL of hash fields."""
    fields = _read_fields_first(args)
    value, results = _result_per_field(
        session, args[0], fields, lambda value, field: 1 if value.persist(field) else -1
    )
    if value is not None and 1 in results:
        _note_change(session, args[0], value, "hpersist")
    return results


def _read(session: Session, args: Args, convert: Callable[[int], int]) -> Reply:
    """Return the expiry of fields, converted from Unix milliseconds to the form of the reply."""

    def read(value: HashValue, field: bytes) -> int:
        at_ms = value.expiry(field)
        return -1 if at_ms is None else convert(at_ms)

    return _result_per_field(session, args[0], _read_fields(args, 1, error=errors.SYNTAX), read)[1]


@command("HTTL")
def httl(session: Session, args: Args) -> Reply:
    """Return the remaining TTL of hash fields in seconds."""
    return _read(session, args, lambda at_ms: nearest_second(at_ms - session.now_ms))


@command("HPTTL")
def hpttl(session: Session, args: Args) -> Reply:
    """Return the remaining TTL of hash fields in milliseconds."""
    return _read(session, args, lambda at_ms: at_ms - session.now_ms)


@command("HEXPIRETIME")
def hexpiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in seconds at which hash fields expire.

    The vendor rounds down, as tests of the official clients show; Redis rounds to the nearest
    second.
    """
    is_vendor = session.engine.dialect == "vendor"
    return _read(session, args, (lambda at_ms: at_ms // 1000) if is_vendor else nearest_second)


@command("HPEXPIRETIME")
def hpexpiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in milliseconds at which hash fields expire."""
    return _read(session, args, lambda at_ms: at_ms)


@command("HGETDEL")
def hgetdel(session: Session, args: Args) -> Reply:
    """Return the values of hash fields and delete the fields."""
    fields = _read_fields_first(args)
    value = session.db.get(args[0], HashValue)
    if value is None:
        return [None] * len(fields)
    results: list[Reply] = []
    for field in fields:
        results.append(value.fields.get(field))
        value.remove(field)
    if any(result is not None for result in results):
        _note_change(session, args[0], value, "hdel")
    return results


_HGETEX_SIZES = {**EXPIRY_SIZES, b"PERSIST": 0}
_HSETEX_SIZES = {**EXPIRY_SIZES, b"KEEPTTL": 0, b"NX": 0, b"XX": 0, b"FNX": 0, b"FXX": 0}


def _expires_at(session: Session, given: SetOptions, name: str) -> int | None:
    """Return the expiry in Unix milliseconds; the number 0 means now for every expiry word."""
    if given.amount and parse_int(given.amount) == 0:
        return session.now_ms
    return given.expires_at(session, name)


@command("HGETEX")
def hgetex(session: Session, args: Args) -> Reply:
    """Return the values of hash fields, and optionally set or remove their TTL."""
    fields_at = _find_fields_word(args, 1)
    given = parse_set_options(session, args[:fields_at], 1, _HGETEX_SIZES)
    fields = _read_fields(args, fields_at)
    value = session.db.get(args[0], HashValue)
    at_ms = _expires_at(session, given, "hgetex")
    if value is None:
        return [None] * len(fields)
    results: list[Reply] = []
    event = ""
    for field in fields:
        results.append(value.fields.get(field))
        if field not in value.fields:
            continue
        if at_ms is not None:
            event = "hexpire" if _expire_or_remove(session, value, field, at_ms) else "hexpired"
        elif given.lifetime == b"PERSIST" and value.persist(field):
            event = "hpersist"
    if event:
        _note_change(session, args[0], value, event)
    return results


def _is_met(given: SetOptions, value: HashValue | None, fields: set[bytes]) -> bool:
    """Return whether the conditions of HSETEX, about the key and all of the fields, are met."""
    present = set() if value is None else fields & value.fields.keys()
    if (b"FNX" in given.flags and present) or (b"FXX" in given.flags and present != fields):
        return False
    return given.is_met(value)


@command("HSETEX")
def hsetex(session: Session, args: Args) -> Reply:
    """Set hash fields with an optional condition and TTL; return 1 if they were set, else 0."""
    fields_at = _find_fields_word(args, 1)
    given = parse_set_options(session, args[:fields_at], 1, _HSETEX_SIZES)
    pairs = _read_fields(args, fields_at, each=2)
    key = args[0]
    value = session.db.get(key, HashValue)
    at_ms = _expires_at(session, given, "hsetex")
    if not _is_met(given, value, set(pairs[::2])):
        return 0
    value = session.db.get_or_create(key, HashValue)
    for field, content in zip(pairs[::2], pairs[1::2], strict=True):
        value.set(field, content, keep_ttl=given.keep_ttl)
        if at_ms is not None:
            _expire_or_remove(session, value, field, at_ms)
    events = ["hset"]
    if at_ms is not None:
        events += ["hexpire"] if at_ms > session.now_ms else ["hexpire", "hexpired"]
    _note_change(session, key, value, *events)
    return 1
