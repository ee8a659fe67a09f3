"""Commands of replication, persistence, modules and clusters. Most return an error.

A fake has no process, no replicas and no files of its own, and it opens no connections to other
servers.
"""

from __future__ import annotations

from ... import errors
from ...engine.session import Session
from ...errors import CommandError, disabled_by_option
from ...reply import OK, Map, Reply, Status, Verbatim
from ...table.registry import COMMANDS, Args, command
from ...table.syntax import parse_int
from ...table.versions import MODULE_VERSIONS
from ..arguments import REST, options

_OF_CLUSTER = [name for name in COMMANDS if name.startswith("CLUSTER ")]


@command("SHUTDOWN")
def shutdown(session: Session, args: Args) -> Reply:
    """Stop the server; always returns an error."""
    words = [word.upper() for word in args]
    if words == [b"ABORT"]:
        raise CommandError(errors.NO_SHUTDOWN)
    is_contradiction = b"SAVE" in words and b"NOSAVE" in words
    if is_contradiction or not {*words} <= {b"SAVE", b"NOSAVE", b"NOW", b"FORCE"}:
        raise CommandError(errors.SYNTAX)
    raise CommandError(errors.SHUTDOWN_REFUSED)


@command("REPLICAOF", "SLAVEOF")
def replicaof(session: Session, args: Args) -> Reply:
    """Replicate another server; returns an error, except for NO ONE."""
    if args[0].upper() == b"NO" and args[1].upper() == b"ONE":
        return OK
    parse_int(args[1], 0, 65535, errors.BAD_MASTER_PORT)
    raise CommandError(errors.REPLICAOF_REFUSED)


@command("FAILOVER")
def failover(session: Session, args: Args) -> Reply:
    """Fail over to a replica; always returns an error, because there are no replicas."""
    if len(args) == 1 and args[0].upper() == b"ABORT":
        raise CommandError(errors.NO_FAILOVER)
    for word, values in options(args, 0, {b"TIMEOUT": 1, b"TO": 2, b"FORCE": 0}):
        if word == b"TIMEOUT" and parse_int(values[0]) <= 0:
            raise CommandError(errors.FAILOVER_TIMEOUT)
        if word == b"TO":
            parse_int(values[1], 0, 2**31 - 1)
    raise CommandError(errors.NO_REPLICAS)


@command("SYNC")
def sync(session: Session, args: Args) -> Reply:
    """Start replication; always returns an error."""
    raise CommandError(errors.SYNC_REFUSED)


@command("PSYNC")
def psync(session: Session, args: Args) -> Reply:
    """Continue replication; always returns an error."""
    parse_int(args[1])
    raise CommandError(errors.SYNC_REFUSED)


@command("REPLCONF")
def replconf(session: Session, args: Args) -> Reply:
    """Configure replication; has no effect."""
    if len(args) % 2:
        raise CommandError(errors.SYNTAX)
    known = {b"listening-port", b"ip-address", b"capa", b"ack", b"getack", b"rdb-only"}
    for word in args[::2]:
        if word.lower() not in known:
            raise CommandError(errors.unrecognized_replconf(word))
    return OK


@command("ROLE")
def role(session: Session, args: Args) -> Reply:
    """Return the replication role of the server: a master without replicas."""
    return [b"master", 0, []]


@command("MIGRATE")
def migrate(session: Session, args: Args) -> Reply:
    """Move keys to another server; returns NOKEY if none of the keys exist, otherwise an error."""
    # Like Redis, check the options first, then the timeout, then the database.
    keys = [args[2]]
    sizes = {b"AUTH": 1, b"AUTH2": 2, b"COPY": 0, b"REPLACE": 0, b"KEYS": REST}
    for word, values in options(args, 5, sizes):
        if word == b"KEYS":
            if args[2]:
                raise CommandError(errors.MIGRATE_KEYS)
            keys = values
    parse_int(args[4])
    parse_int(args[3])
    if not any(session.db.exists(key) for key in keys):
        return Status(b"NOKEY")
    raise CommandError(errors.MIGRATE_REFUSED)


@command("MODULE LIST")
def module_list(session: Session, args: Args) -> Reply:
    """Return the modules that the server has loaded."""
    return loaded_modules(session)


def loaded_modules(session: Session) -> list[Reply]:
    return [
        Map([b"name", name.encode(), b"ver", MODULE_VERSIONS[name], b"path", b"", b"args", []])
        for name in session.engine.settings.modules
    ]


@command("MODULE LOAD", "MODULE LOADEX", "MODULE UNLOAD")
def module_load(session: Session, args: Args) -> Reply:
    """Load or unload a module; always returns an error."""
    raise CommandError(disabled_by_option("MODULE", "enable-module-command"))


def _record_save(session: Session) -> None:
    session.engine.last_save_us = session.engine.now_us
    for db in session.engine.databases:
        db.changes = 0


@command("SAVE")
def save(session: Session, args: Args) -> Reply:
    """Record the current time as the time of the last snapshot; nothing is saved."""
    _record_save(session)
    return OK


@command("BGSAVE")
def bgsave(session: Session, args: Args) -> Reply:
    """Record the current time as the time of the last snapshot; nothing is saved."""
    if args and (len(args) > 1 or args[0].upper() != b"SCHEDULE"):
        raise CommandError(errors.SYNTAX)
    _record_save(session)
    return Status(b"Background saving started")


@command("BGREWRITEAOF")
def bgrewriteaof(session: Session, args: Args) -> Reply:
    """Rewrite the append-only file; has no effect, because there is no such file."""
    return Status(b"Background append only file rewriting started")


@command("LASTSAVE")
def lastsave(session: Session, args: Args) -> Reply:
    """Return the Unix time in seconds of the last snapshot."""
    return session.engine.last_save_us // 1_000_000


@command("LOLWUT")
def lolwut(session: Session, args: Args) -> Reply:
    """Return the name and version of the server."""
    if len(args) > 1 and args[0].upper() == b"VERSION":
        parse_int(args[1])
    return Verbatim(b"Redis ver. " + session.engine.version.encode() + b"\n")


@command(*_OF_CLUSTER, "ASKING", "READONLY", "READWRITE")
def cluster(session: Session, args: Args) -> Reply:
    """Manage a cluster; always returns an error, because cluster mode is off."""
    raise CommandError(errors.CLUSTER_DISABLED)
