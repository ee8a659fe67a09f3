"""DEBUG and its subcommands, as far as test suites of client libraries use them.

DEBUG is disabled by default. ``enable-debug-command`` allows it in Redis,
``kv_server(debug_command=True)`` in the fake. Subcommands that act on memory or files check their
arguments and have no effect. A comparison with Redis 7.0 showed that DEBUG DIGEST returns the same
digest for the same data.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import errors
from ...engine.session import Session
from ...errors import CommandError, disabled_by_option
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
from ...table.config import memory_bytes
from ...table.registry import Args, command
from ...table.syntax import decoded, parse_float, parse_int
from ...table.versions import rdb_version
from ...values.digest import EMPTY, joined, key_digest, mixed, value_digest
from ..keys.generic import encoding, reference_count

OPTION = "enable-debug-command"
_MOST_ARGUMENTS = 1001


@command("DEBUG")
def debug(session: Session, args: Args) -> Reply:
    """Return an error, sleep, or inspect a key or the whole data set; disabled by default."""
    if session.engine.config.text(OPTION) != "yes":
        raise CommandError(disabled_by_option("DEBUG", OPTION))
    word = args[0].upper().decode("latin-1")
    accepted, run = _SUBCOMMANDS.get(word, (range(0), _error))
    if len(args) - 1 not in accepted:
        raise CommandError(errors.bad_subcommand_arguments(args[0], "DEBUG"))
    return run(session, args[1:])


def _error(session: Session, args: Args) -> Reply:
    raise CommandError(args[0].replace(b"\r", b" ").replace(b"\n", b" "))


def _sleep(session: Session, args: Args) -> Reply:
    """Delay all clients in fake time; in a transaction, the delay starts at its end."""
    engine = session.engine
    milliseconds = max(int(parse_float(args[0]) * 1000), 0)
    if not milliseconds:
        return OK
    if session.transport != "port":
        raise CommandError(errors.DEBUG_SLEEP_ALONE)
    engine.pauses.command_sleep_us = milliseconds * 1000
    if session.in_exec:
        engine.pauses.exec_sleep_ms += milliseconds
        engine.pauses.sleep(engine.now_us + engine.pauses.exec_sleep_ms * 1000)
        return OK
    engine.pauses.sleep(engine.now_us + milliseconds * 1000)
    return Blocked([], milliseconds, lambda: None, on_timeout=OK, is_delay=True)


def _set_active_expire(session: Session, args: Args) -> Reply:
    session.engine.active_expire = args[0] != b"0"
    return OK


def _set_disable_deny_scripts(session: Session, args: Args) -> Reply:
    session.engine.scripting.allows_all_commands = args[0] != b"0"
    return OK


def _object(session: Session, args: Args) -> Reply:
    from ...rdb.dumps import SHELL, dump

    # While active expiry is off, Redis describes an expired key until the key is removed.
    find = session.db.peek if session.engine.active_expire else session.db.values.get
    value = find(args[0])
    if value is None:
        raise CommandError(errors.NO_SUCH_KEY)
    config, version = session.engine.config, session.engine.version
    size = len(dump(value, config, rdb_version(version))) - SHELL
    description = (
        f"Value at:0x7f0000000000 refcount:{reference_count(value)} "
        f"encoding:{encoding(value, config)} serializedlength:{size} lru:0 lru_seconds_idle:0"
    )
    return Status(description.encode())


def _digest(session: Session, args: Args) -> Reply:
    """Return a digest of all keys of the server, independent of their order."""
    total = EMPTY
    for number in range(len(session.engine.databases)):
        keyspace = session.engine.database(number)
        keys = list(keyspace)
        if keys:
            total = mixed(total, number.to_bytes(4))
        for key in keys:
            is_expiring = key in keyspace.expires
            total = joined(total, key_digest(key, keyspace.values[key], is_expiring))
    return Status(b"%040x" % total)


def _digest_value(session: Session, args: Args) -> Reply:
    """Return a digest of each key's value in 40 hexadecimal digits; zeros for a missing key."""
    db = session.db
    found = [(db.peek(key), key in db.expires) for key in args]
    digests = [EMPTY if value is None else value_digest(value, expires) for value, expires in found]
    return [Status(b"%040x" % digest) for digest in digests]


def _protocol(session: Session, args: Args) -> Reply:
    """Return a reply of the given protocol type, with which clients can test their parsers."""
    kind = args[0].lower().decode("latin-1")
    if kind == "push" and session.resp < 3:
        raise CommandError(errors.DEBUG_PUSH)
    if kind == "push":
        session.push(Push([b"server-cpu-usage", 42]))
        return b"Some real reply following the push reply"
    if kind == "attrib":
        return Attributed(b"Some real reply following the attribute", _ATTRIBUTE)
    made = _REPLIES.get(kind)
    if made is None:
        raise CommandError(errors.DEBUG_PROTOCOL)
    return made()


_ATTRIBUTE = (b"key-popularity", [b"key:123", 90])
_REPLIES: dict[str, Callable[[], Reply]] = {
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


def _without_effect(session: Session, args: Args) -> Reply:
    """Return OK: a fake has no such files, memory or threads."""
    return OK


def _set_packed_threshold(session: Session, args: Args) -> Reply:
    size = memory_bytes(decoded(args[0]))
    if size is None or size > 2**32 - 2**20:  # Redis leaves 1 MiB for its header.
        raise CommandError(errors.DEBUG_THRESHOLD)
    return OK


def _reload(session: Session, args: Args) -> Reply:
    if any(word.upper() not in (b"MERGE", b"NOFLUSH", b"NOSAVE") for word in args):
        raise CommandError(errors.DEBUG_RELOAD)
    return OK


def _set_reply_buffer(session: Session, args: Args) -> Reply:
    option = args[0].upper()
    if option not in (b"PEAK-RESET-TIME", b"RESIZING"):
        raise CommandError(errors.bad_subcommand_arguments(b"REPLYBUFFER", "DEBUG"))
    if option == b"PEAK-RESET-TIME" and args[1].upper() not in (b"NEVER", b"RESET"):
        parse_int(args[1])
    return OK


_SUBCOMMANDS: dict[str, tuple[range, Callable[[Session, Args], Reply]]] = {
    "ERROR": (range(1, 2), _error),
    "SLEEP": (range(1, 2), _sleep),
    "SET-ACTIVE-EXPIRE": (range(1, 2), _set_active_expire),
    "SET-DISABLE-DENY-SCRIPTS": (range(1, 2), _set_disable_deny_scripts),
    "OBJECT": (range(1, 2), _object),
    "DIGEST": (range(1), _digest),
    "DIGEST-VALUE": (range(_MOST_ARGUMENTS), _digest_value),
    "PROTOCOL": (range(1, 2), _protocol),
    "CHANGE-REPL-ID": (range(1), _without_effect),
    "CONFIG-REWRITE-FORCE-ALL": (range(1), _without_effect),
    "LOADAOF": (range(_MOST_ARGUMENTS), _without_effect),
    "MALLCTL": (range(1, _MOST_ARGUMENTS), _without_effect),
    "MALLCTL-STR": (range(1, _MOST_ARGUMENTS), _without_effect),
    "PAUSE-CRON": (range(1, 2), _without_effect),
    "QUICKLIST-PACKED-THRESHOLD": (range(1, 2), _set_packed_threshold),
    "RELOAD": (range(_MOST_ARGUMENTS), _reload),
    "REPLYBUFFER": (range(2, 3), _set_reply_buffer),
}
"""The subcommands, with the numbers of arguments that they accept."""
