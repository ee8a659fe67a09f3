"""Commands for the expiry of keys: the EXPIRE family, TTL and PERSIST."""

from __future__ import annotations

from collections.abc import Callable

from ...engine.engine import Session
from ...reply import Reply
from ...table.expiry import is_met, nearest_second, parse_conditions, relative_ms
from ...table.registry import Args, command


def _expire(session: Session, args: Args, name: str, *, seconds: bool, since_ms: int = 0) -> Reply:
    """Set the expiry of a key to a number of seconds or milliseconds after ``since_ms``."""
    condition = parse_conditions(args[2:])
    at_ms = relative_ms(args[1], seconds, since_ms, name)
    if session.db.lookup(args[0]) is None:
        return 0
    if not is_met(condition, session.db.expires.get(args[0]), at_ms):
        return 0
    session.db.expire_at(args[0], at_ms)
    return 1


@command("EXPIRE")
def expire(session: Session, args: Args) -> Reply:
    """Set the TTL of a key in seconds."""
    return _expire(session, args, "expire", seconds=True, since_ms=session.now_ms)


@command("PEXPIRE")
def pexpire(session: Session, args: Args) -> Reply:
    """Set the TTL of a key in milliseconds."""
    return _expire(session, args, "pexpire", seconds=False, since_ms=session.now_ms)


@command("EXPIREAT")
def expireat(session: Session, args: Args) -> Reply:
    """Set the time at which a key expires, as a Unix time in seconds."""
    return _expire(session, args, "expireat", seconds=True)


@command("PEXPIREAT")
def pexpireat(session: Session, args: Args) -> Reply:
    """Set the time at which a key expires, as a Unix time in milliseconds."""
    return _expire(session, args, "pexpireat", seconds=False)


def _read(session: Session, key: bytes, convert: Callable[[int], int]) -> Reply:
    """Return the expiry of a key, converted from Unix milliseconds to the form of the reply."""
    if session.db.peek(key) is None:
        return -2
    at_ms = session.db.expires.get(key)
    return -1 if at_ms is None else convert(at_ms)


@command("TTL")
def ttl(session: Session, args: Args) -> Reply:
    """Return the TTL of a key in seconds; -1 if it has no TTL, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: nearest_second(at_ms - session.now_ms))


@command("PTTL")
def pttl(session: Session, args: Args) -> Reply:
    """Return the TTL of a key in milliseconds; -1 if it has no TTL, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: at_ms - session.now_ms)


@command("EXPIRETIME")
def expiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in seconds at which a key expires; -1 if never, -2 if it does not exist."""
    return _read(session, args[0], nearest_second)


@command("PEXPIRETIME")
def pexpiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in ms at which a key expires; -1 if never, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: at_ms)


@command("PERSIST")
def persist(session: Session, args: Args) -> Reply:
    """Remove the TTL of a key and return whether it had one."""
    return int(session.db.persist(args[0]))
