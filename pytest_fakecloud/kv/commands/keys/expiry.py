"""Commands for the expiry of keys: the EXPIRE and TTL families, and PERSIST."""

from __future__ import annotations

from collections.abc import Callable

from ...engine.engine import Session
from ...reply import Reply
from ...table.registry import Args, command
from ..lifetimes import allows_expiry, expiry_ms, nearest_second, parse_conditions


def _expire(session: Session, args: Args, word: bytes, name: str) -> Reply:
    """Set the expiry of a key; ``word`` is the option of SET with the same meaning."""
    condition = parse_conditions(args[2:])
    at_ms = expiry_ms(word, args[1], session.now_ms, name, may_be_past=True)
    if session.db.lookup(args[0]) is None:
        return 0
    if not allows_expiry(condition, session.db.expires.get(args[0]), at_ms):
        return 0
    session.db.expire_at(args[0], at_ms)
    return 1


@command("EXPIRE")
def expire(session: Session, args: Args) -> Reply:
    """Set the TTL of a key in seconds."""
    return _expire(session, args, b"EX", "expire")


@command("PEXPIRE")
def pexpire(session: Session, args: Args) -> Reply:
    """Set the TTL of a key in milliseconds."""
    return _expire(session, args, b"PX", "pexpire")


@command("EXPIREAT")
def expireat(session: Session, args: Args) -> Reply:
    """Set the time at which a key expires, as a Unix time in seconds."""
    return _expire(session, args, b"EXAT", "expireat")


@command("PEXPIREAT")
def pexpireat(session: Session, args: Args) -> Reply:
    """Set the time at which a key expires, as a Unix time in milliseconds."""
    return _expire(session, args, b"PXAT", "pexpireat")


def _expiry_reply(session: Session, key: bytes, convert: Callable[[int], int]) -> Reply:
    """Return the expiry of a key, converted from Unix milliseconds to the form of the reply."""
    if session.db.peek(key) is None:
        return -2
    at_ms = session.db.expires.get(key)
    return -1 if at_ms is None else convert(at_ms)


@command("TTL")
def ttl(session: Session, args: Args) -> Reply:
    """Return the TTL of a key in seconds; -1 if it has no TTL, -2 if it does not exist."""
    return _expiry_reply(session, args[0], lambda at_ms: nearest_second(at_ms - session.now_ms))


@command("PTTL")
def pttl(session: Session, args: Args) -> Reply:
    """Return the TTL of a key in milliseconds; -1 if it has no TTL, -2 if it does not exist."""
    return _expiry_reply(session, args[0], lambda at_ms: at_ms - session.now_ms)


@command("EXPIRETIME")
def expiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in seconds at which a key expires; -1 if never, -2 if it does not exist."""
    return _expiry_reply(session, args[0], nearest_second)


@command("PEXPIRETIME")
def pexpiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in ms at which a key expires; -1 if never, -2 if it does not exist."""
    return _expiry_reply(session, args[0], lambda at_ms: at_ms)


@command("PERSIST")
def persist(session: Session, args: Args) -> Reply:
    """Remove the TTL of a key and return whether it had one."""
    return int(session.db.persist(args[0]))
