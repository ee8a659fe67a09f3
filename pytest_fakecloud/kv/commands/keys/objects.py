"""OBJECT: the encoding, reference count and access statistics of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import try_int
from ...values.memory import UnpackedInteger

if TYPE_CHECKING:
    from ...table.config import Config

_MAX_EMBSTR_LENGTH = 44
_SHARED_INTEGERS = range(10_000)
"""Integers that Redis stores once. It reports the maximum as the number of their references."""


def _is_packed(value: bytes) -> bool:
    return not isinstance(value, UnpackedInteger) and try_int(value) is not None


def encoding(value: Any, config: Config) -> str:
    """Return the name of the encoding that Redis would use for a value."""
    if isinstance(value, bytearray):
        return "raw"
    if isinstance(value, bytes):
        if _is_packed(value):
            return "int"
        return "embstr" if len(value) <= _MAX_EMBSTR_LENGTH else "raw"
    return str(value.encoding(config))


def reference_count(value: Any) -> int:
    """Return the number of references that Redis would report for a value."""
    is_shared = isinstance(value, bytes) and _is_packed(value) and int(value) in _SHARED_INTEGERS
    return 2**31 - 1 if is_shared else 1


@command("OBJECT ENCODING")
def object_encoding(session: Session, args: Args) -> Reply:
    """Return the internal encoding of the value of a key."""
    value = session.db.peek(args[0])
    return None if value is None else encoding(value, session.engine.config).encode()


@command("OBJECT REFCOUNT")
def object_refcount(session: Session, args: Args) -> Reply:
    """Return the reference count of the value of a key."""
    value = session.db.peek(args[0])
    return None if value is None else reference_count(value)


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
