"""Strings: SET, GET and everything that reads or changes one value as bytes."""

from __future__ import annotations

from ..model import Session
from ..registry import Args, command
from ..reply import OK, Reply

__all__: list[str] = []


@command("GET")
def get(session: Session, args: Args) -> Reply:
    """The string value of a key."""
    value = session.db.string(args[0])
    return value if value is None or type(value) is bytes else bytes(value)


@command("SET")
def set_(session: Session, args: Args) -> Reply:
    """Set the string value of a key."""
    session.db.set(args[0], args[1])
    return OK
