"""Commands that act on whole databases, TIME, and CONFIG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from ... import errors
from ...engine.engine import Engine
from ...engine.keyspace import Keyspace
from ...engine.session import Session
from ...errors import CommandError
from ...reply import OK, Map, Reply
from ...table.config import ENCODING_LIMITS, check_addresses
from ...table.registry import Args, command
from ...table.syntax import encoded, parse_int
from ..arguments import is_first


def _flush(session: Session, args: Args, databases: Iterable[Keyspace]) -> Reply:
    """Delete all keys of some databases; INFO counts those deleted with ASYNC as lazy."""
    engine = session.engine
    if len(args) > 1:
        raise CommandError(errors.SYNTAX)
    if args:
        lazily = is_first(args[0], b"ASYNC", b"SYNC")
    else:
        lazily = engine.config.text("lazyfree-lazy-user-flush") == "yes"
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
    first = parse_int(args[0], -(2**31), 2**31 - 1, errors.FIRST_DB_INDEX)
    second = parse_int(args[1], -(2**31), 2**31 - 1, errors.SECOND_DB_INDEX)
    if not all(0 <= index < len(engine.databases) for index in (first, second)):
        raise CommandError(errors.DB_INDEX)
    if first != second:
        engine.database(first).exchange(engine.database(second))
    return OK


@command("CONFIG GET")
def config_get(session: Session, args: Args) -> Reply:
    """Return the configuration parameters that match patterns, with their values."""
    found: dict[str, tuple[str, str]] = {}
    for pattern in args:
        for name, value in session.engine.config.matching(pattern):
            found.setdefault(name.lower(), (name, value))
    return Map([text.encode() for pair in found.values() for text in pair])


@command("CONFIG SET")
def config_set(session: Session, args: Args) -> Reply:
    """Set configuration parameters; if one is invalid, none is set.

    As in Redis, a port or address that cannot be bound is rejected. Valid ones are stored, but the
    server keeps listening on its current port and address (decided here).
    """
    if len(args) % 2:
        raise CommandError(errors.SYNTAX)
    pairs = [(args[at], args[at + 1]) for at in range(0, len(args), 2)]
    engine = session.engine
    engine.config.change(pairs, partial(_prepare_change, engine))
    engine.follow_config()
    # In the vendor's dialect, the default user cannot be changed, so requirepass does not set its
    # password.
    if engine.dialect == "redis" and any(name.lower() == b"requirepass" for name, _ in pairs):
        password = encoded(engine.config.text("requirepass"))
        engine.users["default"].set_password(password)
    return OK


def _prepare_change(engine: Engine, changes: Mapping[str, str]) -> None:
    _check_listening(engine, changes)
    if ENCODING_LIMITS & changes.keys():
        # Redis converts a value only when it is written.
        for db in engine.databases:
            db.keep_encodings(engine.config)


def _check_listening(engine: Engine, changes: Mapping[str, str]) -> None:
    if engine.dialect != "redis":
        return
    # A server that does not listen on a port stores any addresses.
    if "bind" in changes and changes.get("port", engine.config.text("port")) != "0":
        try:
            check_addresses(changes["bind"])
        except ValueError as error:
            raise CommandError(errors.config_failed("bind", str(error))) from None
    # The port "0" means not to listen, which is always possible.
    port = changes.get("port", "0")
    if port not in ("0", engine.config.text("port")) and not engine.can_listen(int(port)):
        raise CommandError(errors.config_failed("port", errors.CANNOT_LISTEN))
    if changes.get("tls-port", "0") != "0":
        raise CommandError(errors.config_failed("tls-port", errors.NO_TLS))


@command("CONFIG RESETSTAT")
def config_resetstat(session: Session, args: Args) -> Reply:
    """Reset the statistics that INFO reports."""
    session.engine.reset_statistics()
    return OK


@command("CONFIG REWRITE")
def config_rewrite(session: Session, args: Args) -> Reply:
    """Write the configuration file; always returns an error, because there is no such file."""
    raise CommandError(errors.NO_CONFIG_FILE)
