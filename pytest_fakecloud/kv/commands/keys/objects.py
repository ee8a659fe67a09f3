"""OBJECT: the encoding, reference count and access statistics of keys."""

from __future__ import annotations

from typing import Any

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import try_int
from ...values.memory import UnpackedInteger

_EMBEDDED = 44


def encoding(session: Session, value: Any) -> str:
    if isinstance(value, bytearray):
        return "raw"
    if isinstance(value, bytes):
        if not isinstance(value, UnpackedInteger) and try_int(value) is not None:
            return "int"
        return "embstr" if len(value) <= _EMBEDDED else "raw"
    return str(value.encoding(session.engine.config))


@command("OBJECT ENCODING")
def object_encoding(session: Session, args: Args) -> Reply:
    """Return the internal encoding of the value of a key."""
    value = session.db.peek(args[0])
    return None if value is None else encoding(session, value).encode()


@command("OBJECT REFCOUNT")
def object_refcount(session: Session, args: Args) -> Reply:
    """Return the reference count of the value of a key."""
    value = session.db.peek(args[0])
    if value is None:
        return None
    if type(value) is bytes:
        number = try_int(value)
        if number is not None and 0 <= number < 10000:
            return 2**31 - 1
    return 1


@command("OBJECT IDLETIME")
def object_idletime(session: Session, args: Args) -> Reply:
    """Return the number of seconds since a key was last accessed."""
    if session.db.peek(args[0]) is None:
        return None
    if session.db.frequencies is not None:
        raise CommandError(errors.LFU)
    accessed = session.db.accessed.get(args[0], session.now_ms)
    return max(0, session.now_ms - accessed) // 1000


@command("OBJECT FREQ")
def object_freq(session: Session, args: Args) -> Reply:
    """Return the logarithmic access frequency of a key; requires an LFU eviction policy."""
    if session.db.peek(args[0]) is None:
        return None
    if session.db.frequencies is None:
        raise CommandError(errors.NOT_LFU)
    return session.db.frequencies.of(args[0], session.now_ms)
