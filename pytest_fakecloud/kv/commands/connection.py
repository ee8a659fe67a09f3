"""The connection: what belongs to one client and its dialogue."""

from __future__ import annotations

from .. import errors
from ..errors import CommandError, wrong_arity
from ..model import Session
from ..registry import Args, command
from ..reply import OK, Reply, Status
from ..syntax import parse_int

__all__: list[str] = []


@command("PING")
def ping(session: Session, args: Args) -> Reply:
    """PONG, or the given message."""
    if len(args) > 1:
        raise CommandError(wrong_arity("ping"))
    if session.resp == 2 and any(session.subscriptions.values()):
        return [b"pong", args[0] if args else b""]
    return args[0] if args else Status(b"PONG")


@command("ECHO")
def echo(session: Session, args: Args) -> Reply:
    """The given message."""
    return args[0]


@command("SELECT")
def select(session: Session, args: Args) -> Reply:
    """Go to another database."""
    index = parse_int(args[0], -(2**31), 2**31 - 1)
    if not 0 <= index < len(session.engine.databases):
        raise CommandError(errors.DB_INDEX)
    session.db = session.engine.database(index)
    return OK
