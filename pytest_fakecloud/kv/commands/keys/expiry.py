"""Commands for the expiry of keys: the EXPIRE and TTL families, and PERSIST."""

from __future__ import annotations

from ...engine.session import Session
from ...reply import Reply
from ...table.registry import UNITS, Args, Unit, command, variant
from ..ttl import allows_expiry, expiry_ms, expiry_reply, parse_conditions


@variant("EXPIRE", "Set the TTL of a key in seconds.")
@variant("PEXPIRE", "Set the TTL of a key in milliseconds.")
@variant("EXPIREAT", "Set the time at which a key expires, as a Unix time in seconds.")
@variant("PEXPIREAT", "Set the time at which a key expires, as a Unix time in milliseconds.")
def expire(session: Session, args: Args) -> Reply:
    """Set the expiry of a key, in the unit of the command's row."""
    condition = parse_conditions(args[2:])
    at_ms = expiry_ms(session, args[1], may_be_past=True)
    if session.db.lookup(args[0]) is None:
        return 0
    if not allows_expiry(condition, session.db.expires.get(args[0]), at_ms):
        return 0
    session.db.expire_at(args[0], at_ms)
    return 1


@variant(
    "TTL",
    "Return the TTL of a key in seconds; -1 if it has no TTL, -2 if it does not exist.",
    unit=UNITS["seconds"],
)
@variant(
    "PTTL",
    "Return the TTL of a key in milliseconds; -1 if it has no TTL, -2 if it does not exist.",
    unit=UNITS["milliseconds"],
)
@variant(
    "EXPIRETIME",
    "Return the Unix time in seconds at which a key expires; -1 if never, -2 if it does not exist.",
    unit=UNITS["unix-seconds"],
)
@variant(
    "PEXPIRETIME",
    "Return the Unix time in ms at which a key expires; -1 if never, -2 if it does not exist.",
    unit=UNITS["unix-milliseconds"],
)
def ttl(session: Session, args: Args, *, unit: Unit) -> Reply:
    """Return the expiry of a key as a number of ``unit``."""
    if session.db.peek(args[0]) is None:
        return -2
    at_ms = session.db.expires.get(args[0])
    return -1 if at_ms is None else expiry_reply(session, unit, at_ms)


@command("PERSIST")
def persist(session: Session, args: Args) -> Reply:
    """Remove the TTL of a key and return whether it had one."""
    return int(session.db.persist(args[0]))
