"""Commands for the expiry of keys: the EXPIRE family, TTL and PERSIST."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper

from ...engine.engine import Session
from ...reply import Reply
from ...table.expiry import is_met, parse_conditions, relative_ms
from ...table.registry import Args, command


def _expire(session: Session, args: Args, name: str, seconds: bool, absolute: bool) -> Reply:
    condition = parse_conditions(args[2:])
    at_ms = relative_ms(args[1], seconds, 0 if absolute else session.now_ms, name)
    if session.db.lookup(args[0]) is None or not is_met(
        condition, session.db.expires.get(args[0]), at_ms
    ):
        return 0
    session.db.expire_at(args[0], at_ms)
    return 1


for _name, _seconds, _absolute, _effect in (
    ("EXPIRE", True, False, "the TTL of a key in seconds"),
    ("PEXPIRE", False, False, "the TTL of a key in milliseconds"),
    ("EXPIREAT", True, True, "the time at which a key expires, as a Unix time in seconds"),
    ("PEXPIREAT", False, True, "the time at which a key expires, as a Unix time in milliseconds"),
):
    _set = partial(_expire, name=_name.lower(), seconds=_seconds, absolute=_absolute)
    update_wrapper(_set, _expire).__doc__ = f"Set {_effect}."
    command(_name)(_set)


def _read(session: Session, key: bytes, shown: Callable[[int], int]) -> Reply:
    if session.db.peek(key) is None:
        return -2
    at_ms = session.db.expires.get(key)
    return -1 if at_ms is None else shown(at_ms)


@command("TTL")
def ttl(session: Session, args: Args) -> Reply:
    """Return the TTL of a key in seconds; -1 if it has no TTL, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: (at_ms - session.now_ms + 500) // 1000)


@command("PTTL")
def pttl(session: Session, args: Args) -> Reply:
    """Return the TTL of a key in milliseconds; -1 if it has no TTL, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: at_ms - session.now_ms)


@command("EXPIRETIME")
def expiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in seconds at which a key expires; -1 if never, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: (at_ms + 500) // 1000)


@command("PEXPIRETIME")
def pexpiretime(session: Session, args: Args) -> Reply:
    """Return the Unix time in ms at which a key expires; -1 if never, -2 if it does not exist."""
    return _read(session, args[0], lambda at_ms: at_ms)


@command("PERSIST")
def persist(session: Session, args: Args) -> Reply:
    """Remove the TTL of a key and return whether it had one."""
    return int(session.db.persist(args[0]))
