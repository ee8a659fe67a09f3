"""Commands for the expiry of hash fields: the HEXPIRE family, HGETEX, HSETEX and HGETDEL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, invalid_expire
from ...reply import Reply
from ...table.expiry import EXPIRY_WORDS, expiry_ms, is_met, parse_conditions, relative_ms
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.hashes import HashValue
from ..arguments import options


def _fields(args: Args, at: int, each: int = 1, error: bytes = errors.NUMFIELDS) -> Args:
    """Return the arguments after ``FIELDS count``, which must be ``count`` times ``each``."""
    if at + 1 >= len(args) or args[at].upper() != b"FIELDS":
        raise CommandError(error)
    count = parse_int(args[at + 1])
    if count < 1 or count * each != len(args) - at - 2:
        raise CommandError(error)
    return args[at + 2 :]


def _find_fields_word(args: Args, at: int) -> int:
    for place in range(at, len(args)):
        if args[place].upper() == b"FIELDS":
            return place
    raise CommandError(errors.NUMFIELDS)


def _results(
    session: Session, key: bytes, fields: Args, result: Callable[[HashValue, bytes], int]
) -> tuple[HashValue | None, list[Reply]]:
    """Return a hash and a result for each field: -2 for a missing one, else from ``result``."""
    value = session.db.get(key, HashValue)
    if value is None:
        return None, [-2] * len(fields)
    return value, [result(value, field) if field in value.fields else -2 for field in fields]


def _changed(session: Session, key: bytes, value: HashValue, *events: str) -> None:
    session.db.note_fields(key, value)
    for event in events:
        session.db.touch(key, event)
    session.db.remove_if_empty(key)


# -- setting -------------------------------------------------------------------------------------


def _expire(session: Session, args: Args, name: str, seconds: bool, absolute: bool) -> Reply:
    at = _find_fields_word(args, 2)
    condition = parse_conditions(args[2:at])
    fields = _fields(args, at)
    if parse_int(args[1]) < 0:
        raise CommandError(invalid_expire(name))
    at_ms = relative_ms(args[1], seconds, 0 if absolute else session.now_ms, name)

    def expire(value: HashValue, field: bytes) -> int:
        if not is_met(condition, value.expiry(field), at_ms):
            return 0
        if at_ms <= session.now_ms:
            value.remove(field)
            return 2
        value.expire_at(field, at_ms)
        return 1

    value, results = _results(session, args[0], fields, expire)
    if value is not None:
        events = [event for result, event in ((1, "hexpire"), (2, "hexpired")) if result in results]
        _changed(session, args[0], value, *events)
    return results


for _name, _seconds, _absolute, _effect in (
    ("HEXPIRE", True, False, "the TTL of hash fields in seconds"),
    ("HPEXPIRE", False, False, "the TTL of hash fields in milliseconds"),
    ("HEXPIREAT", True, True, "the time at which hash fields expire, as a Unix time in seconds"),
    (
        "HPEXPIREAT",
        False,
        True,
        "the time at which hash fields expire, as a Unix time in milliseconds",
    ),
):
    _set = partial(_expire, name=_name.lower(), seconds=_seconds, absolute=_absolute)
    update_wrapper(_set, _expire).__doc__ = f"Set {_effect}."
    command(_name)(_set)


@command("HPERSIST")
def hpersist(session: Session, args: Args) -> Reply:
    """Remove the TTL of hash fields."""
    if args[1].upper() != b"FIELDS":
        raise CommandError(errors.SYNTAX)
    value, results = _results(
        session, args[0], _fields(args, 1), lambda value, field: 1 if value.persist(field) else -1
    )
    if value is not None and 1 in results:
        _changed(session, args[0], value, "hpersist")
    return results


# -- reading -------------------------------------------------------------------------------------


def _read(session: Session, args: Args, shown: Callable[[int], int]) -> Reply:
    def read(value: HashValue, field: bytes) -> int:
        at_ms = value.expiry(field)
        return -1 if at_ms is None else shown(at_ms)

    return _results(session, args[0], _fields(args, 1, error=errors.SYNTAX), read)[1]


@command("HTTL")
def httl(session: Session, args: Args) -> Reply:
    """Return the remaining TTL of hash fields in seconds."""
    return _read(session, args, lambda at_ms: (at_ms - session.now_ms + 500) // 1000)


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
    half = 0 if session.engine.dialect == "vendor" else 500
    return _read(session, args, lambda at_ms: (at_ms + half) // 1000)


@command("HPEXPIRETIME")
def hpexpiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in milliseconds at which hash fields expire."""
    return _read(session, args, lambda at_ms: at_ms)


# -- reading and changing ------------------------------------------------------------------------


@command("HGETDEL")
def hgetdel(session: Session, args: Args) -> Reply:
    """Return the values of hash fields and delete the fields."""
    if args[1].upper() != b"FIELDS":
        raise CommandError(errors.SYNTAX)
    fields = _fields(args, 1)
    value = session.db.get(args[0], HashValue)
    if value is None:
        return [None] * len(fields)
    results: list[Reply] = []
    for field in fields:
        results.append(value.fields.get(field))
        value.remove(field)
    if any(result is not None for result in results):
        _changed(session, args[0], value, "hdel")
    return results


Lifetime = tuple[bytes, bytes] | None


def _words(words: Args, flags: frozenset[bytes], keep: bytes) -> tuple[set[bytes], Lifetime]:
    """Parse the options before FIELDS: flags, and either an expiry or the word ``keep``."""
    found: set[bytes] = set()
    lifetime: Lifetime = None
    sizes = {**dict.fromkeys((*flags, keep), 0), **dict.fromkeys(EXPIRY_WORDS, 1)}
    for word, values in options(words, 0, sizes):
        if word in flags or (word == keep and lifetime is None):
            found.add(word)
        elif values and keep not in found and (lifetime is None or lifetime[0] == word):
            lifetime = (word, values[0])
        else:
            raise CommandError(errors.SYNTAX)
    return found, lifetime


def _lifetime_ms(session: Session, lifetime: Lifetime, name: str) -> int | None:
    if lifetime is None:
        return None
    if parse_int(lifetime[1]) == 0:
        return session.now_ms
    return expiry_ms(*lifetime, session.now_ms, name)


@command("HGETEX")
def hgetex(session: Session, args: Args) -> Reply:
    """Return the values of hash fields, and optionally set or remove their TTL."""
    at = _find_fields_word(args, 1)
    found, lifetime = _words(args[1:at], frozenset(), b"PERSIST")
    fields = _fields(args, at)
    value = session.db.get(args[0], HashValue)
    at_ms = _lifetime_ms(session, lifetime, "hgetex")
    if value is None:
        return [None] * len(fields)
    results: list[Reply] = []
    events: set[str] = set()
    for field in fields:
        results.append(value.fields.get(field))
        if field not in value.fields:
            continue
        if at_ms is not None and at_ms <= session.now_ms:
            value.remove(field)
            events.add("hexpired")
        elif at_ms is not None:
            value.expire_at(field, at_ms)
            events.add("hexpire")
        elif found and value.persist(field):
            events.add("hpersist")
    if events:
        _changed(session, args[0], value, *events)
    return results


_HSETEX_FLAGS = frozenset({b"NX", b"XX", b"FNX", b"FXX"})


@command("HSETEX")
def hsetex(session: Session, args: Args) -> Reply:
    """Set hash fields with an optional condition and TTL; return 1 if they were set, else 0."""
    at = _find_fields_word(args, 1)
    found, lifetime = _words(args[1:at], _HSETEX_FLAGS, b"KEEPTTL")
    if {b"FNX", b"FXX"} <= found or {b"NX", b"XX"} <= found:
        raise CommandError(errors.SYNTAX)
    pairs = _fields(args, at, each=2)
    key = args[0]
    value = session.db.get(key, HashValue)
    at_ms = _lifetime_ms(session, lifetime, "hsetex")
    present = set() if value is None else set(value.fields)
    wanted = set(pairs[::2])
    if (
        (b"NX" in found and value is not None)
        or (b"XX" in found and value is None)
        or (b"FNX" in found and wanted & present)
        or (b"FXX" in found and wanted - present)
    ):
        return 0
    value = session.db.get_or_create(key, HashValue)
    for place in range(0, len(pairs), 2):
        field = pairs[place]
        value.set(field, pairs[place + 1], keep_ttl=b"KEEPTTL" in found)
        if at_ms is not None and at_ms <= session.now_ms:
            value.remove(field)
        elif at_ms is not None:
            value.expire_at(field, at_ms)
    events = ["hset"]
    if at_ms is not None:
        events += ["hexpire"] if at_ms > session.now_ms else ["hexpire", "hexpired"]
    _changed(session, key, value, *events)
    return 1
