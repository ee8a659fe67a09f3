"""Commands that act on whole databases, TIME, CONFIG, DEBUG, and those of processes and clusters.

A fake has no process, no replicas and no files of its own, and it opens no connections to other
servers, so commands of replication, persistence and modules mostly return an error.

DEBUG supports the subcommands that test suites of client libraries use. It is disabled by default.
``enable-debug-command`` allows it in Redis, ``kv_server(debug_command=True)`` in the fake.
Subcommands that act on memory or files check their arguments and have no effect. A comparison with
Redis 7.0 showed that DEBUG DIGEST returns the same digest for the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile

from ... import errors
from ...config import ENCODING_LIMITS, check_addresses, memory_bytes
from ...engine.cluster import Cluster, key_slot
from ...engine.engine import KVEngine
from ...engine.replication import node_of
from ...engine.sessions import Session
from ...errors import CommandError, disabled_by_option, one_line
from ...reply import (
    NIL_ARRAY,
    OK,
    Attributed,
    BigNumber,
    Blocked,
    Bool,
    Map,
    Push,
    Reply,
    SetReply,
    Status,
    Verbatim,
)
from ...syntax import decoded, encoded, parse_float, parse_int
from ...table.registry import Args, command, variant
from ...table.versions import MODULE_VERSIONS, rdb_version
from ...values.measures import EMPTY, joined, mixed, value_digest
from ..arguments import only_option, parse_options
from ..keys import encoding, reference_count

# -- databases, time and parameters --------------------------------------------------------------


@variant("FLUSHDB", "Delete all keys of the database.", every=False)
@variant("FLUSHALL", "Delete all keys of all databases.", every=True)
def flush(session: Session, args: Args, *, every: bool) -> Reply:
    engine = session.engine
    mode = only_option(session, args)
    lazily = mode == b"ASYNC"
    if not mode:
        lazily = engine.config.text("lazyfree-lazy-user-flush") == "yes"
    if engine.topology is not None and not engine.topology.has_all_keys():
        for key in engine.topology.keys(session):
            session.db.delete(key, "")
        return OK
    for database in engine.databases if every else [session.db]:
        if lazily:  # INFO counts these keys.
            engine.statistics.freed_lazily += len(database)
        database.clear()
    engine.tracking.invalidate_all()
    return OK


@command("DBSIZE")
def dbsize(session: Session, args: Args) -> Reply:
    """Return the number of keys in the database."""
    if not session.engine.active_expire:
        # Count expired keys as well, as long as no client has accessed them.
        return len(session.db.values)
    topology = session.engine.topology
    if topology is None or topology.has_all_keys():
        return len(session.db)
    return len(topology.keys(session))


@command("TIME")
def time(session: Session, args: Args) -> Reply:
    """Return the fake time as a Unix time in seconds, and the microseconds of the current second."""
    engine = session.engine
    is_constant = engine.table.knows["TIME is constant in scripts and transactions"]
    now_us = engine.execution.now_us if is_constant else engine.clock.now_us()
    seconds, microseconds = divmod(now_us, 1_000_000)
    return [b"%d" % seconds, b"%d" % microseconds]


@command("SWAPDB")
def swapdb(session: Session, args: Args) -> Reply:
    """Swap the contents of two databases."""
    engine = session.engine
    if engine.cluster is not None:
        raise CommandError(errors.SWAPDB_IN_CLUSTER)
    first = parse_int(args[0], -(2**31), 2**31 - 1, errors.FIRST_DB_INDEX)
    second = parse_int(args[1], -(2**31), 2**31 - 1, errors.SECOND_DB_INDEX)
    if not all(0 <= index < len(engine.databases) for index in (first, second)):
        raise CommandError(errors.DB_INDEX)
    if first != second:
        engine.databases[first].exchange(engine.databases[second])
    return OK


_VISIBLE = "notify-keyspace-events"
"""The only parameter that clients of the vendor's service can read and set."""


def _is_hidden(session: Session, name: str) -> bool:
    """Return whether a client may not use a parameter. The test can set all of them."""
    is_client = session.interface != "local" and session.engine.dialect == "vendor"
    return is_client and name.lower() != _VISIBLE


def _change_visible(session: Session, pairs: list[tuple[bytes, bytes]]) -> None:
    """Set the parameters in front of the first one that clients may not use (documentation)."""
    visible = list(
        takewhile(lambda pair: not _is_hidden(session, pair[0].decode("latin-1")), pairs)
    )
    if visible:
        session.engine.config.change(visible, partial(_prepare_change, session.engine))
        session.engine.follow_config()


@command("CONFIG GET")
def config_get(session: Session, args: Args) -> Reply:
    """Return the configuration parameters that match patterns, with their values."""
    parameters: dict[str, tuple[str, str]] = {}
    for pattern in args:
        for name, value in session.engine.config.matching(pattern):
            if _is_hidden(session, name):
                continue
            parameters.setdefault(name.lower(), (name, value))
    return Map([text.encode() for pair in parameters.values() for text in pair])


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
    for name, _ in pairs:
        if _is_hidden(session, name.decode("latin-1")):
            _change_visible(session, pairs)
            raise CommandError(errors.unknown_config(name))
    engine.config.change(pairs, partial(_prepare_change, engine))
    engine.follow_config()
    # In the vendor's dialect, the default user cannot be changed, so requirepass does not set its
    # password.
    if engine.dialect == "redis" and any(name.lower() == b"requirepass" for name, _ in pairs):
        password = encoded(engine.config.text("requirepass"))
        engine.users["default"].set_password(password)
    return OK


def _prepare_change(engine: KVEngine, changes: Mapping[str, str]) -> None:
    if engine.dialect == "redis":
        _check_listening(engine, changes)
    if ENCODING_LIMITS & changes.keys():
        # Redis converts a value only when it is written.
        for db in engine.databases:
            db.keep_encodings(engine.config)


def _check_listening(engine: KVEngine, changes: Mapping[str, str]) -> None:
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


# -- processes, replication and clusters ---------------------------------------------------------


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
    if session.engine.cluster is not None:
        raise CommandError(errors.REPLICAOF_REFUSED)
    if args[0].upper() == b"NO" and args[1].upper() == b"ONE":
        return OK
    parse_int(args[1], 0, 65535, errors.BAD_MASTER_PORT)
    raise CommandError(errors.REPLICAOF_REFUSED)


@command("FAILOVER")
def failover(session: Session, args: Args) -> Reply:
    """Fail over to a replica; always returns an error, because there are no replicas."""
    if session.engine.cluster is not None:
        raise CommandError(errors.FAILOVER_IN_CLUSTER)
    if len(args) == 1 and args[0].upper() == b"ABORT":
        raise CommandError(errors.NO_FAILOVER)
    for word, values in parse_options(args, 0, {b"TIMEOUT": 1, b"TO": 2, b"FORCE": 0}):
        if word == b"TIMEOUT":
            parse_int(values[0], 1, outside=errors.FAILOVER_TIMEOUT)
        if word == b"TO":
            parse_int(values[1], 0, 2**31 - 1)
    raise CommandError(errors.NO_REPLICAS)


@variant("SYNC", "Start replication; always returns an error.")
@variant("PSYNC", "Continue replication; always returns an error.")
def sync(session: Session, args: Args) -> Reply:
    if args:
        parse_int(args[1])
    raise CommandError(errors.SYNC_REFUSED)


@command("REPLCONF")
def replconf(session: Session, args: Args) -> Reply:
    """Configure replication; has no effect."""
    if len(args) % 2:
        raise CommandError(errors.SYNTAX)
    supported = {b"listening-port", b"ip-address", b"capa", b"ack", b"getack", b"rdb-only"}
    for word in args[::2]:
        if word.lower() not in supported:
            raise CommandError(errors.unrecognized_replconf(word))
    return OK


@command("ROLE")
def role(session: Session, args: Args) -> Reply:
    """Return the replication role of the server: by default a master without replicas."""
    topology = session.engine.topology
    if topology is None:
        return [b"master", 0, []]
    node = node_of(session)
    if node.primary is not None:
        return [b"slave", node.primary.host.encode(), node.primary.port, b"connected", 0]
    replicas = topology.replicas_of(node)
    return [b"master", 0, [[node.host.encode(), b"%d" % node.port, b"0"] for node in replicas]]


@command("MIGRATE")
def migrate(session: Session, args: Args) -> Reply:
    """Move keys to another server; returns NOKEY if none of the keys exist, otherwise an error."""
    # Like Redis, check the options first, then the timeout, then the database.
    keys = [args[2]]
    for word, values in parse_options(args, 5, session.command.option_sizes):
        if word == b"KEYS":
            if args[2]:
                raise CommandError(errors.MIGRATE_KEYS)
            keys = values
    parse_int(args[4])
    parse_int(args[3])
    if not any(session.db.exists(key) for key in keys):
        return Status(b"NOKEY")
    if session.engine.cluster is not None and _move(session.engine.cluster, args, keys):
        return OK
    raise CommandError(errors.MIGRATE_REFUSED)


def _move(cluster: Cluster, args: Args, keys: Args) -> bool:
    """Move keys to the node at an address that imports their slots; return whether there is one."""
    for node in cluster.nodes:
        if node.address.encode() == b"%b:%b" % (args[0], args[1]):
            imported = {slot for slot, _ in cluster.importing(node)}
            if all(key_slot(key) in imported for key in keys):
                cluster.move_keys(keys)
                return True
    return False


@command("MODULE LIST")
def module_list(session: Session, args: Args) -> Reply:
    """Return the modules that the server has loaded."""
    return [
        Map([b"name", name.encode(), b"ver", MODULE_VERSIONS[name], b"path", b"", b"args", []])
        for name in session.engine.table.modules
    ]


@command("MODULE LOAD", "MODULE LOADEX", "MODULE UNLOAD")
def module_load(session: Session, args: Args) -> Reply:
    """Load or unload a module; always returns an error."""
    raise CommandError(disabled_by_option("MODULE", "enable-module-command"))


@command("SAVE")
def save(session: Session, args: Args) -> Reply:
    """Record the current time as the time of the last snapshot; nothing is saved."""
    session.engine.last_save_us = session.engine.execution.now_us
    for db in session.engine.databases:
        db.changes = 0
    return OK


@command("BGSAVE")
def bgsave(session: Session, args: Args) -> Reply:
    """Record the current time as the time of the last snapshot; nothing is saved."""
    only_option(session, args)
    save(session, args)
    return Status(b"Background saving started")


@variant("CLIENT CAPA", "Announce capabilities of the client; has no effect.")
@variant("MEMORY PURGE", "Ask the allocator to release memory; has no effect.")
def no_effect(session: Session, args: Args) -> Reply:
    return OK


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


# -- DEBUG ---------------------------------------------------------------------------------------


_ARGUMENTS = {
    **dict.fromkeys(("DIGEST", "CHANGE-REPL-ID", "CONFIG-REWRITE-FORCE-ALL"), range(1)),
    **dict.fromkeys(
        (
            "ERROR", "SLEEP", "SET-ACTIVE-EXPIRE", "SET-DISABLE-DENY-SCRIPTS", "OBJECT", "PROTOCOL",
            "PAUSE-CRON", "QUICKLIST-PACKED-THRESHOLD",
        ),
        range(1, 2),
    ),
    "REPLYBUFFER": range(2, 3),
    **dict.fromkeys(("DIGEST-VALUE", "LOADAOF", "RELOAD"), range(1001)),
    **dict.fromkeys(("MALLCTL", "MALLCTL-STR"), range(1, 1001)),
}  # fmt: skip
"""The numbers of arguments that the subcommands accept."""


@command("DEBUG")
def debug(session: Session, args: Args) -> Reply:
    """Return an error, sleep, or inspect a key or the whole data set; disabled by default."""
    engine = session.engine
    name, *args = args
    word = name.upper().decode("latin-1")
    if len(args) not in _ARGUMENTS.get(word, ()):
        raise CommandError(errors.bad_subcommand_arguments(name, "DEBUG"))
    match word:
        case "ERROR":
            raise CommandError(one_line(args[0]))
        case "SLEEP":
            return _debug_sleep(session, args[0])
        case "OBJECT":
            return _object(session, args[0])
        case "DIGEST":
            return _digest(engine)
        case "DIGEST-VALUE":
            return _digest_value(session, args)
        case "PROTOCOL":
            return _protocol(session, args[0])
        case "SET-ACTIVE-EXPIRE":
            engine.active_expire = args[0] != b"0"
        case "SET-DISABLE-DENY-SCRIPTS":
            engine.scripting.allows_all_commands = args[0] != b"0"
        case "QUICKLIST-PACKED-THRESHOLD":
            size = memory_bytes(decoded(args[0]))
            if size is None or size > 2**32 - 2**20:  # Redis leaves 1 MiB for its header.
                raise CommandError(errors.DEBUG_THRESHOLD)
        case "RELOAD":
            if any(option.upper() not in (b"MERGE", b"NOFLUSH", b"NOSAVE") for option in args):
                raise CommandError(errors.DEBUG_RELOAD)
        case "REPLYBUFFER":
            option = args[0].upper()
            if option not in (b"PEAK-RESET-TIME", b"RESIZING"):
                raise CommandError(errors.bad_subcommand_arguments(b"REPLYBUFFER", "DEBUG"))
            if option == b"PEAK-RESET-TIME" and args[1].upper() not in (b"NEVER", b"RESET"):
                parse_int(args[1])
    return OK  # A fake has no such files, memory or threads.


def _debug_sleep(session: Session, seconds: bytes) -> Reply:
    """Delay all clients in fake time; in a transaction, the delay starts at its end."""
    now_us, pauses = session.engine.execution.now_us, session.engine.pauses
    milliseconds = max(int(parse_float(seconds) * 1000), 0)
    if not milliseconds:
        return OK
    if session.interface != "port":
        raise CommandError(errors.DEBUG_SLEEP_ALONE)
    pauses.command_sleep_us = milliseconds * 1000
    if session.in_exec:
        pauses.exec_sleep_ms += milliseconds
        pauses.sleep(now_us + pauses.exec_sleep_ms * 1000)
        return OK
    pauses.sleep(now_us + milliseconds * 1000)
    return Blocked([], milliseconds, lambda ready: None, on_timeout=OK, is_delay=True)


def _object(session: Session, key: bytes) -> Reply:
    from ...rdb.payloads import SHELL, dump

    # While active expiry is off, Redis describes an expired key until the key is removed.
    find = session.db.peek if session.engine.active_expire else session.db.values.get
    value = find(key)
    if value is None:
        raise CommandError(errors.NO_SUCH_KEY)
    config, version = session.engine.config, session.engine.version
    size = len(dump(value, config, rdb_version(version))) - SHELL
    description = (
        f"Value at:0x7f0000000000 refcount:{reference_count(value)} "
        f"encoding:{encoding(value, config)} serializedlength:{size} lru:0 lru_seconds_idle:0"
    )
    return Status(description.encode())


def _digest(engine: KVEngine) -> Reply:
    """Return a digest of all keys of the server, independent of their order."""
    total = EMPTY
    for number in range(len(engine.databases)):
        keyspace = engine.databases[number]
        keys = list(keyspace)
        if keys:
            total = mixed(total, number.to_bytes(4))
        for key in keys:
            digest = value_digest(keyspace.values[key], key in keyspace.expires, mixed(EMPTY, key))
            total = joined(total, digest)
    return Status(b"%040x" % total)


def _digest_value(session: Session, args: Args) -> Reply:
    """Return a digest of each key's value in 40 hexadecimal digits; zeros for a missing key."""
    db = session.db
    entries = [(db.peek(key), key in db.expires) for key in args]
    digests = [
        EMPTY if value is None else value_digest(value, expires) for value, expires in entries
    ]
    return [Status(b"%040x" % digest) for digest in digests]


def _protocol(session: Session, name: bytes) -> Reply:
    """Return a reply of the given protocol type, with which clients can test their parsers."""
    kind = name.lower().decode("latin-1")
    if kind == "push":
        if session.resp < 3:
            raise CommandError(errors.DEBUG_PUSH)
        session.push(Push("reply", [b"server-cpu-usage", 42]))
        return b"Some real reply following the push reply"
    if kind not in _REPLIES:
        raise CommandError(errors.DEBUG_PROTOCOL)
    return _REPLIES[kind]()


_REPLIES: dict[str, Callable[[], Reply]] = {
    "attrib": lambda: Attributed(
        b"Some real reply following the attribute", (b"key-popularity", [b"key:123", 90])
    ),
    "string": lambda: b"Hello World",
    "integer": lambda: 12345,
    "double": lambda: 3.141,
    "null": lambda: None,
    "nullarray": lambda: NIL_ARRAY,
    "array": lambda: [0, 1, 2],
    "set": lambda: SetReply([0, 1, 2]),
    "map": lambda: Map([0, Bool(False), 1, Bool(True), 2, Bool(False)]),
    "verbatim": lambda: Verbatim(b"This is a verbatim\nstring"),
    "true": lambda: Bool(True),
    "false": lambda: Bool(False),
    "bignum": lambda: BigNumber(b"1234567999999999999999999999999999999"),
}
