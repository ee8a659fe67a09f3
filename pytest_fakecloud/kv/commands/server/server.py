"""Commands that act on whole databases, and TIME."""

from __future__ import annotations

from collections.abc import Iterable

from ... import errors
from ...engine.engine import Session
from ...engine.keyspace import Keyspace
from ...errors import CommandError
from ...reply import OK, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int


def _flush(session: Session, args: Args, databases: Iterable[Keyspace]) -> Reply:
    """Delete all keys of some databases; INFO counts those deleted with ASYNC as lazy."""
    if len(args) > 1 or (args and args[0].upper() not in (b"SYNC", b"ASYNC")):
        raise CommandError(errors.SYNTAX)
    engine = session.engine
    default = engine.config.text("lazyfree-lazy-user-flush") == "yes"
    lazily = args[0].upper() == b"ASYNC" if args else default
    for database in databases:
        if lazily:
            engine.statistics.freed_lazily += len(database)
        database.clear()
    engine.tracking.invalidate_all()
    return OK


@command("FLUSHDB")
def flushdb(session: Session, args: Args) -> Reply:
    """Delete all keys of the database."""
    return _flush(session, args, [session.db])


@command("FLUSHALL")
def flushall(session: Session, args: Args) -> Reply:
    """Delete all keys of all databases."""
    engine = session.engine
    return _flush(session, args, map(engine.database, range(len(engine.databases))))


@command("DBSIZE")
def dbsize(session: Session, args: Args) -> Reply:
    """Return the number of keys in the database."""
    if not session.engine.active_expire:
        # Count expired keys as well, as long as no client has accessed them.
        return len(session.db.values)
    return len(session.db)


@command("TIME")
def time(session: Session, args: Args) -> Reply:
    """Return the fake time as a Unix time in seconds, and the microseconds of the current second."""
    seconds, microseconds = divmod(session.engine.now_us, 1_000_000)
    return [b"%d" % seconds, b"%d" % microseconds]


@command("SWAPDB")
def swapdb(session: Session, args: Args) -> Reply:
    """Swap the contents of two databases."""
    engine = session.engine
    indexes = []
    for text, error in zip(args, (errors.FIRST_DB_INDEX, errors.SECOND_DB_INDEX), strict=True):
        indexes.append(parse_int(text, -(2**31), 2**31 - 1, error))
    if not all(0 <= index < len(engine.databases) for index in indexes):
        raise CommandError(errors.DB_INDEX)
    if indexes[0] != indexes[1]:
        engine.database(indexes[0]).exchange(engine.database(indexes[1]))
    return OK
