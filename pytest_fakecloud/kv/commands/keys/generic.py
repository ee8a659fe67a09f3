"""Commands for keys of any type: names, copies, scans, payloads, OBJECT and WAIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import errors
from ...algorithms.glob import matcher
from ...engine.keyspace import type_name
from ...engine.session import Session
from ...errors import CommandError
from ...reply import OK, Blocked, Reply, Status
from ...table.registry import Args, command
from ...table.syntax import I64_MAX, parse_int, try_int
from ...table.versions import rdb_version
from ...values.sizes import UnpackedInteger
from ..arguments import find_database, options
from ..blocking import parse_milliseconds
from ..scanning import parse_cursor, parse_scan

if TYPE_CHECKING:
    from ...table.config import Config


# -- existence -----------------------------------------------------------------------------------


@command("DEL", "UNLINK")
def del_(session: Session, args: Args) -> Reply:
    """Delete keys and return the number that existed."""
    return sum(map(session.db.delete, args))


@command("EXISTS")
def exists(session: Session, args: Args) -> Reply:
    """Return the number of given keys that exist; a key given twice counts twice."""
    return sum(session.db.peek(key) is not None for key in args)


@command("TOUCH")
def touch(session: Session, args: Args) -> Reply:
    """Update the last access time of keys and return the number that exist."""
    return sum(session.db.lookup(key) is not None for key in args)


@command("TYPE")
def type_(session: Session, args: Args) -> Reply:
    """Return the type of the value of a key."""
    value = session.db.peek(args[0])
    return Status(b"none" if value is None else type_name(value).encode())


@command("RANDOMKEY")
def randomkey(session: Session, args: Args) -> Reply:
    """Return a random key."""
    return next(iter(session.db.draw_keys(session.engine.random, 1)), None)


@command("KEYS")
def keys(session: Session, args: Args) -> Reply:
    """Return the keys that match a pattern."""
    matches = matcher(args[0])
    return [key for key in session.db if matches(key)]


@command("SCAN")
def scan(session: Session, args: Args) -> Reply:
    """Iterate over the keys of the database."""
    cursor = parse_cursor(args[0])
    given = parse_scan(session, args[1:])
    following, found = session.db.scan(cursor, given.page_size)
    if given.matches is not None:
        found = [key for key in found if given.matches(key)]
    values = session.db.values
    if b"TYPE" in given.others:
        kind = given.others[b"TYPE"][0].lower()
        found = [key for key in found if type_name(values[key]).lower().encode() == kind]
    page: list[Reply] = list(found)
    if b"WITHTYPE" in given.others:
        page = [item for key in found for item in (key, type_name(values[key]).encode())]
    return [b"%d" % following, page]


# -- names and locations -------------------------------------------------------------------------


def _rename(session: Session, source: bytes, target: bytes) -> None:
    db = session.db
    value, at_ms = db.peek(source), db.expires.get(source)
    db.delete(source, "")
    db.delete(target, "")
    db.put_back(target, value, at_ms)
    db.announce(source, "rename_from")
    db.announce(target, "rename_to")


@command("RENAME")
def rename(session: Session, args: Args) -> Reply:
    """Rename a key, replacing any key that already has the new name."""
    if session.db.lookup(args[0]) is None:
        raise CommandError(errors.NO_SUCH_KEY)
    if args[0] != args[1]:
        _rename(session, args[0], args[1])
    return OK


@command("RENAMENX")
def renamenx(session: Session, args: Args) -> Reply:
    """Rename a key only if no key has the new name."""
    if session.db.lookup(args[0]) is None:
        raise CommandError(errors.NO_SUCH_KEY)
    if session.db.lookup(args[1]) is not None:
        return 0
    _rename(session, args[0], args[1])
    return 1


@command("MOVE")
def move(session: Session, args: Args) -> Reply:
    """Move a key to another database."""
    target = find_database(session, args[1])
    if target is session.db:
        raise CommandError(errors.SAME_OBJECT)
    value = session.db.lookup(args[0])
    if value is None or target.peek(args[0]) is not None:
        return 0
    at_ms = session.db.expires.get(args[0])
    session.db.delete(args[0], "")
    target.put_back(args[0], value, at_ms)
    session.db.announce(args[0], "move_from")
    target.announce(args[0], "move_to")
    return 1


@command("COPY")
def copy(session: Session, args: Args) -> Reply:
    """Copy the value of a key to another key."""
    target = session.db
    replace = False
    for word, values in options(args, 2, {b"REPLACE": 0, b"DB": 1}):
        if word == b"REPLACE":
            replace = True
        else:
            target = find_database(session, values[0])
    if target is session.db and args[0] == args[1]:
        if session.engine.dialect == "vendor":
            return 0
        raise CommandError(errors.SAME_OBJECT)
    value = session.db.lookup(args[0])
    if value is None:
        return 0
    if target.find(args[1]) is not None:
        if not replace:
            return 0
        target.delete(args[1], "")
    duplicate = value if isinstance(value, bytes) else value.copy()
    target.put_back(args[1], duplicate, session.db.expires.get(args[0]), "copy_to")
    return 1


# -- payloads ------------------------------------------------------------------------------------


@command("DUMP")
def dump_(session: Session, args: Args) -> Reply:
    """Return the value of a key as a payload for RESTORE."""
    value = session.db.lookup(args[0])
    if value is None:
        return None
    if type_name(value) == "search":
        raise CommandError(errors.NO_DUMP_OF_INDEX)
    from ...rdb import dumps  # imported here because it is rarely needed

    engine = session.engine
    return dumps.dump(value, engine.config, rdb_version(engine.version))


def _parse_restore_options(args: Args) -> dict[bytes, int]:
    """Return the options of RESTORE with their numbers; 0 for an option without a number."""
    given: dict[bytes, int] = {}
    sizes = {b"REPLACE": 0, b"ABSTTL": 0, b"IDLETIME": 1, b"FREQ": 1}
    for word, values in options(args, 3, sizes):
        if {b"IDLETIME", b"FREQ"} <= {word, *given}:
            raise CommandError(errors.SYNTAX)
        given[word] = parse_int(values[0]) if values else 0
        if given.get(b"IDLETIME", 0) < 0:
            raise CommandError(errors.INVALID_IDLETIME)
        if not 0 <= given.get(b"FREQ", 0) <= 255:
            raise CommandError(errors.INVALID_FREQ)
    return given


@command("RESTORE", "RESTORE-ASKING")
def restore(session: Session, args: Args) -> Reply:
    """Create a key from the payload that DUMP returned."""
    key, ttl_text, payload = args[:3]
    given = _parse_restore_options(args)
    if b"REPLACE" not in given and session.db.lookup(key) is not None:
        raise CommandError(errors.BUSYKEY)
    ttl = parse_int(ttl_text)
    if ttl < 0:
        raise CommandError(errors.INVALID_TTL)
    from ...rdb import dumps

    version = rdb_version(session.engine.version)
    if not dumps.is_sealed(payload, version):
        raise CommandError(errors.BAD_DUMP)
    try:
        value = dumps.load(payload, version)
    except ValueError:
        raise CommandError(errors.BAD_DUMP_FORMAT) from None
    if not session.engine.can_hold(value):
        raise CommandError(errors.BAD_DUMP_FORMAT)
    session.db.delete(key, "")
    at_ms = None
    if ttl:
        at_ms = ttl if b"ABSTTL" in given else min(ttl + session.now_ms, I64_MAX)
    session.db.put_back(key, value, at_ms, "restore")
    if b"FREQ" in given and session.db.frequencies is not None:
        session.db.frequencies.put(key, given[b"FREQ"], session.now_ms)
    if given.get(b"IDLETIME") and session.db.exists(key):
        session.db.accessed[key] = session.now_ms - given[b"IDLETIME"] * 1000
    return OK


# -- replication ---------------------------------------------------------------------------------


def _wait_for(session: Session, replicas: int, timeout_ms: int, reply: Reply) -> Reply:
    """Block until the timeout if any replicas are required, because there are none.

    A session that may not block gets the reply immediately: over REST (decided here), and in a
    transaction or a script, as in Redis.
    """
    if replicas <= 0 or not session.may_block:
        return reply
    return Blocked([], timeout_ms, lambda: None, on_timeout=reply)


@command("WAIT")
def wait(session: Session, args: Args) -> Reply:
    """Wait for replicas to acknowledge all writes and return their number, which is always 0."""
    replicas = parse_int(args[0])
    return _wait_for(session, replicas, parse_milliseconds(session, args[1]), 0)


@command("WAITAOF")
def waitaof(session: Session, args: Args) -> Reply:
    """Wait for append-only files to contain all writes and return their numbers: always 0 and 0."""
    files = parse_int(args[0])
    if files not in (0, 1):
        raise CommandError(errors.NOT_0_OR_1)
    replicas = parse_int(args[1], 0, I64_MAX, errors.NOT_POSITIVE)
    timeout_ms = parse_milliseconds(session, args[2])
    if files:
        raise CommandError(errors.WAITAOF_NO_FILE)
    return _wait_for(session, replicas, timeout_ms, [0, 0])


# -- OBJECT ----------------------------------------------------------------------------------------


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


def _value(session: Session, args: Args) -> Any:
    """Return the value that OBJECT inspects. Unlike other commands, it sends no keymiss event."""
    return session.db.peek(args[0], announces_miss=False)


@command("OBJECT ENCODING")
def object_encoding(session: Session, args: Args) -> Reply:
    """Return the internal encoding of the value of a key."""
    value = _value(session, args)
    return None if value is None else encoding(value, session.engine.config).encode()


@command("OBJECT REFCOUNT")
def object_refcount(session: Session, args: Args) -> Reply:
    """Return the reference count of the value of a key."""
    value = _value(session, args)
    return None if value is None else reference_count(value)


@command("OBJECT IDLETIME")
def object_idletime(session: Session, args: Args) -> Reply:
    """Return the number of seconds since a key was last accessed."""
    if _value(session, args) is None:
        return None
    if session.db.frequencies is not None:
        raise CommandError(errors.LFU)
    accessed = session.db.accessed.get(args[0], session.now_ms)
    return max(0, session.now_ms - accessed) // 1000


@command("OBJECT FREQ")
def object_freq(session: Session, args: Args) -> Reply:
    """Return the logarithmic access frequency of a key; requires an LFU eviction policy."""
    if _value(session, args) is None:
        return None
    if session.db.frequencies is None:
        raise CommandError(errors.NOT_LFU)
    return session.db.frequencies.of(args[0], session.now_ms)
