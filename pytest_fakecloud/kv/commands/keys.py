"""Commands for keys of any type: names, copies, scans, payloads, OBJECT, WAIT, TTLs and SORT."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ...core.budget import spend
from .. import errors
from ..algorithms.glob import matcher
from ..config import Config
from ..engine.replication import node_of
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import OK, Blocked, Reply, Status
from ..syntax import I64_MAX, parse_cursor, parse_float, parse_int, try_int
from ..table.arguments import UNITS
from ..table.registry import Args, command, variant
from ..table.versions import rdb_version
from ..values.containers import HashValue, QuickList, SetValue
from ..values.json import JsonValue
from ..values.measures import UnpackedInteger, usage
from ..values.types import type_name
from ..values.zset import SortedSet
from .arguments import (
    allows_expiry,
    expiry_ms,
    expiry_reply,
    find_database,
    parse_conditions,
    parse_milliseconds,
    parse_options,
    parse_scan,
)
from .string import string_reply

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
    return Status(b"none" if value is None else _type_of(session, value).encode())


@command("RANDOMKEY")
def randomkey(session: Session, args: Args) -> Reply:
    """Return a random key."""
    topology = session.engine.topology
    if topology is None or topology.has_all_keys():
        return next(iter(session.db.draw_keys(session.engine.random, 1)), None)
    keys = topology.keys(session)
    return keys[session.engine.random.randrange(len(keys))] if keys else None


@command("KEYS")
def keys(session: Session, args: Args) -> Reply:
    """Return the keys that match a pattern."""
    matches, topology = matcher(args[0]), session.engine.topology
    keys: Iterable[bytes] = session.db if topology is None else topology.keys(session)
    matching: list[Reply] = [key for key in keys if matches(key)]
    limit = session.engine.settings.max_matching_keys
    if limit is not None and len(matching) > limit and session.interface != "local":
        raise CommandError(errors.TOO_MANY_MATCHES)
    return matching


_MOST_SCANNED = 1000
"""Maximum number of keys that the vendor's service looks at for one SCAN."""


def _type_of(session: Session, value: object) -> str:
    """Return the name of a value's type; the vendor's service has its own for JSON."""
    name = type_name(value)
    is_json = name == JsonValue.type_name and session.engine.dialect == "vendor"
    return "json" if is_json else name


@command("SCAN")
def scan(session: Session, args: Args) -> Reply:
    """Iterate over the keys of the database."""
    cursor = parse_cursor(args[0])
    page_size, matches, own_options = parse_scan(session, args[1:])
    if session.engine.dialect == "vendor":
        page_size = min(page_size, _MOST_SCANNED)
    following, keys = session.db.scan(cursor, page_size)
    if session.engine.topology is not None:
        keys = [key for key in keys if session.engine.topology.has_key(session, key)]
    if matches is not None:
        keys = [key for key in keys if matches(key)]
    values = session.db.values
    if b"TYPE" in own_options:
        kind = own_options[b"TYPE"][0].lower()
        if not session.engine.table.knows["SCAN TYPE reads no keys"]:
            for key in keys:
                session.db.peek(key)
        keys = [key for key in keys if _type_of(session, values[key]).lower().encode() == kind]
    page: list[Reply] = list(keys)
    if b"WITHTYPE" in own_options:
        page = [item for key in keys for item in (key, _type_of(session, values[key]).encode())]
    return [b"%d" % following, page]


# -- names and locations -------------------------------------------------------------------------


@variant("RENAME", "Rename a key, replacing any key that already has the new name.", replace=True)
@variant("RENAMENX", "Rename a key only if no key has the new name.", replace=False)
def rename(session: Session, args: Args, *, replace: bool) -> Reply:
    db, (source, target) = session.db, args
    value = db.lookup(source)
    if value is None:
        raise CommandError(errors.NO_SUCH_KEY)
    _check_not_indexed(session, value, args)
    if not replace and db.lookup(target) is not None:
        return 0
    if source != target:
        value, at_ms = db.peek(source), db.expires.get(source)
        db.delete(source, "")
        db.delete(target, "")
        db.put_back(target, value, at_ms, is_change=False)
        db.announce(source, "rename_from")
        db.announce(target, "rename_to")
    return OK if replace else 1


def _check_not_indexed(session: Session, value: Any, keys: Args) -> None:
    """Raise an error if a stream is renamed or copied from or to a key that has a search index.

    The vendor documents that this is not supported. Decided here: streams without an index can be
    renamed and copied.
    """
    indexes = session.db.indexes
    if indexes is not None and type_name(value) == "stream":
        for key in keys:
            if indexes.has_stream(key):
                raise CommandError(errors.indexed_stream(key))


@command("MOVE")
def move(session: Session, args: Args) -> Reply:
    """Move a key to another database."""
    if session.engine.cluster is not None:
        raise CommandError(errors.MOVE_IN_CLUSTER)
    target = find_database(session, args[1])
    if target is session.db:
        raise CommandError(errors.SAME_OBJECT)
    value = session.db.lookup(args[0])
    if value is None or target.peek(args[0]) is not None:
        return 0
    at_ms = session.db.expires.get(args[0])
    session.db.delete(args[0], "")
    target.put_back(args[0], value, at_ms, is_change=False)
    session.db.announce(args[0], "move_from")
    target.announce(args[0], "move_to")
    return 1


@command("COPY")
def copy(session: Session, args: Args) -> Reply:
    """Copy the value of a key to another key."""
    target = session.db
    replace = False
    for word, values in parse_options(args, 2, session.command.option_sizes):
        if word == b"REPLACE":
            replace = True
        else:
            target = find_database(session, values[0])
    if session.engine.cluster is not None and target.index != 0:
        raise CommandError(errors.COPY_IN_CLUSTER)
    if target is session.db and args[0] == args[1]:
        if session.engine.dialect == "vendor":
            return 0
        raise CommandError(errors.SAME_OBJECT)
    value = session.db.lookup(args[0])
    if value is None:
        return 0
    _check_not_indexed(session, value, args[:2])
    if not replace and target.find(args[1]) is not None:
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
    if type_name(value) in ("search", "vector"):
        raise CommandError(errors.NO_DUMP_OF_INDEX)
    from ..rdb import payloads  # imported here because it is rarely needed

    return payloads.dump(value, session.engine.config, rdb_version(session.engine.version))


def _parse_restore_options(session: Session, args: Args) -> dict[bytes, int]:
    """Return the options of RESTORE with their numbers; 0 for an option without a number."""
    restore_options: dict[bytes, int] = {}
    for word, values in parse_options(args, 3, session.command.option_sizes):
        if {b"IDLETIME", b"FREQ"} <= {word, *restore_options}:
            raise CommandError(errors.SYNTAX)
        restore_options[word] = parse_int(values[0]) if values else 0
        if restore_options.get(b"IDLETIME", 0) < 0:
            raise CommandError(errors.INVALID_IDLETIME)
        if not 0 <= restore_options.get(b"FREQ", 0) <= 255:
            raise CommandError(errors.INVALID_FREQ)
    return restore_options


@command("RESTORE", "RESTORE-ASKING")
def restore(session: Session, args: Args) -> Reply:
    """Create a key from the payload that DUMP returned."""
    key, ttl_text, payload = args[:3]
    restore_options = _parse_restore_options(session, args)
    if b"REPLACE" not in restore_options and session.db.lookup(key) is not None:
        raise CommandError(errors.BUSYKEY)
    ttl = parse_int(ttl_text, 0, outside=errors.INVALID_TTL)
    from ..rdb import payloads

    version = rdb_version(session.engine.version)
    if not payloads.is_sealed(payload, version):
        raise CommandError(errors.BAD_DUMP)
    try:
        value = payloads.load(payload, version)
        session.engine.memory.reserve(session.interface, usage(b"", value))
    except ValueError:
        raise CommandError(errors.BAD_DUMP_FORMAT) from None
    if not session.engine.can_hold(value):
        raise CommandError(errors.BAD_DUMP_FORMAT)
    at_ms = None
    if ttl:
        at_ms = ttl if b"ABSTTL" in restore_options else min(ttl + session.now_ms, I64_MAX)
    if at_ms is None or at_ms > session.now_ms:
        session.db.delete(key, "")
    session.db.put_back(key, value, at_ms, "restore")
    if b"FREQ" in restore_options and session.db.frequencies is not None:
        session.db.frequencies.put(key, restore_options[b"FREQ"], session.now_ms)
    if restore_options.get(b"IDLETIME") and session.db.exists(key):
        session.db.accessed[key] = session.now_ms - restore_options[b"IDLETIME"] * 1000
    return OK


# -- replication ---------------------------------------------------------------------------------


def _wait_for(session: Session, replicas: int, timeout_ms: int, reply: Reply) -> Reply:
    """Block until the timeout if any replicas are required, because there are none.

    A session that may not block gets the reply immediately: over REST (decided here), and in a
    transaction or a script, as in Redis.
    """
    if replicas <= 0 or not session.may_block:
        return reply
    return Blocked([], timeout_ms, lambda ready: None, on_timeout=reply)


@command("WAIT")
def wait(session: Session, args: Args) -> Reply:
    """Wait for replicas to acknowledge all writes and return their number, by default 0."""
    replicas, timeout_ms = parse_int(args[0]), parse_milliseconds(session, args[1])
    topology = session.engine.topology
    if topology is None:
        return _wait_for(session, replicas, timeout_ms, 0)
    node = node_of(session)
    if node.primary is not None:
        raise CommandError(errors.WAIT_ON_REPLICA)
    acknowledged = len(topology.replicas_of(node))
    return _wait_for(session, replicas - acknowledged, timeout_ms, acknowledged)


@command("WAITAOF")
def waitaof(session: Session, args: Args) -> Reply:
    """Wait for append-only files to contain all writes and return their numbers: always 0 and 0."""
    files = parse_int(args[0], 0, 1, outside=errors.NOT_0_OR_1)
    replicas = parse_int(args[1], 0, I64_MAX, errors.NOT_POSITIVE)
    timeout_ms = parse_milliseconds(session, args[2])
    if session.engine.dialect == "vendor":
        return _wait_for(session, replicas, timeout_ms, [files, 0])
    if files:
        raise CommandError(errors.WAITAOF_NO_FILE)
    return _wait_for(session, replicas, timeout_ms, [0, 0])


# -- OBJECT --------------------------------------------------------------------------------------


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


@variant("OBJECT ENCODING", "Return the internal encoding of the value of a key.")
@variant("OBJECT REFCOUNT", "Return the reference count of the value of a key.")
@variant("OBJECT IDLETIME", "Return the number of seconds since a key was last accessed.")
@variant(
    "OBJECT FREQ",
    "Return the logarithmic access frequency of a key; requires an LFU eviction policy.",
)
def object_(session: Session, args: Args) -> Reply:
    db, key = session.db, args[0]
    value = db.peek(key, announces_miss=False)  # Unlike other commands, it sends no keymiss event.
    if value is None:
        return None
    match session.command.name:
        case "OBJECT ENCODING":
            return encoding(value, session.engine.config).encode()
        case "OBJECT REFCOUNT":
            return reference_count(value)
        case "OBJECT IDLETIME":
            if db.frequencies is not None:
                raise CommandError(errors.LFU)
            return max(0, session.now_ms - db.accessed.get(key, session.now_ms)) // 1000
    if db.frequencies is None:
        raise CommandError(errors.NOT_LFU)
    return db.frequencies.of(key, session.now_ms)


# -- TTLs ----------------------------------------------------------------------------------------


@variant("EXPIRE", "Set the TTL of a key in seconds.")
@variant("PEXPIRE", "Set the TTL of a key in milliseconds.")
@variant("EXPIREAT", "Set the time at which a key expires, as a Unix time in seconds.")
@variant("PEXPIREAT", "Set the time at which a key expires, as a Unix time in milliseconds.")
def expire(session: Session, args: Args) -> Reply:
    """Set the expiry of a key, in the unit of the command's row."""
    condition = parse_conditions(session, args[2:])
    at_ms = expiry_ms(session, args[1], may_be_past=True)
    db, key = session.db, args[0]
    if db.lookup(key) is None or not allows_expiry(condition, db.expires.get(key), at_ms):
        return 0
    db.expire_at(key, at_ms)
    return 1


@variant("TTL", "Return the TTL of a key in seconds; -1 if it has no TTL, -2 if it does not exist.")
@variant(
    "PTTL",
    "Return the TTL of a key in milliseconds; -1 if it has no TTL, -2 if it does not exist.",
    unit="milliseconds",
)
@variant(
    "EXPIRETIME",
    "Return the Unix time in seconds at which a key expires; -1 if never, -2 if it does not exist.",
    unit="unix-time-seconds",
)
@variant(
    "PEXPIRETIME",
    "Return the Unix time in ms at which a key expires; -1 if never, -2 if it does not exist.",
    unit="unix-time-milliseconds",
)
def ttl(session: Session, args: Args, *, unit: str = "seconds") -> Reply:
    if session.db.peek(args[0]) is None:
        return -2
    at_ms = session.db.expires.get(args[0])
    return -1 if at_ms is None else expiry_reply(session, UNITS[unit], at_ms)


@command("PERSIST")
def persist(session: Session, args: Args) -> Reply:
    """Remove the TTL of a key and return whether it had one."""
    return int(session.db.persist(args[0]))


# -- SORT ----------------------------------------------------------------------------------------

_STEPS_PER_LOOKUP, _BYTES_PER_STEP, _STEPS_PER_VALUE = 20, 100, 3
"""Budget steps for a key that BY or GET reads, of a part of its name, and for a value in the reply."""


class _SortOptions:
    """The options of SORT or SORT_RO. A negative ``count`` means no limit."""

    by: bytes | None = None
    keeps_order: bool = False
    get: tuple[bytes, ...] = ()
    offset: int = 0
    count: int = -1
    descending: bool = False
    alpha: bool = False
    store: bytes | None = None


def _parse_sort_options(session: Session, args: Args) -> _SortOptions:
    sort_options = _SortOptions()
    for word, values in parse_options(args, 1, session.command.option_sizes):
        if word in (b"ASC", b"DESC"):
            sort_options.descending = word == b"DESC"
        elif word == b"ALPHA":
            sort_options.alpha = True
        elif word == b"LIMIT":
            sort_options.offset, sort_options.count = map(parse_int, values)
        elif word == b"STORE":
            sort_options.store = values[0]
        elif word == b"GET":
            sort_options.get += (values[0],)
        else:
            sort_options.by = values[0]
            # A pattern without a star turns sorting off. As in Redis, a later BY option does not
            # turn sorting on again.
            sort_options.keeps_order = sort_options.keeps_order or b"*" not in sort_options.by
    return sort_options


def _elements(value: Any) -> Iterable[bytes]:
    if value is None:
        return []
    if isinstance(value, SortedSet):
        return (member for _, member in value)
    if isinstance(value, QuickList | SetValue):
        return value
    raise CommandError(errors.WRONGTYPE)


def _check_patterns(sort_options: _SortOptions) -> None:
    """Raise ``CommandError`` for patterns, whose keys may be in any slot of a cluster."""
    if sort_options.by is not None and b"*" in sort_options.by:
        raise CommandError(errors.SORT_BY_IN_CLUSTER)
    if sort_options.get:
        raise CommandError(errors.SORT_GET_IN_CLUSTER)


def _find_page(session: Session, value: Any, sort_options: _SortOptions) -> list[bytes]:
    """Return the elements within LIMIT, in stored order if BY turned sorting off."""
    elements, size = _elements(value), 0 if value is None else len(value)
    start = min(max(sort_options.offset, 0), size)
    stop = size if sort_options.count < 0 else min(start + sort_options.count, size)
    if not sort_options.keeps_order:
        return _sorted(session, list(elements), sort_options)[start:stop]
    if not isinstance(value, SortedSet | QuickList):
        return list(islice(elements, start, stop))
    # Do not copy the other elements.
    if sort_options.descending:
        start, stop = size - stop, size - start
    if isinstance(value, SortedSet):
        page = [member for _, member in value.slice(start, stop)]
    else:
        page = value.slice(start, stop)
    return page[::-1] if sort_options.descending else page


class _Reference:
    """A BY or GET pattern, which reads a value for each element."""

    def __init__(self, session: Session, pattern: bytes) -> None:
        self._session = session
        self._is_element = pattern == b"#"
        self._before, self._star, self._after = pattern.partition(b"*")
        name, arrow, field = self._after.partition(b"->")
        self._field = field if arrow and field else None
        if self._field is not None:
            self._after = name
        self._steps = _STEPS_PER_LOOKUP + len(pattern) // _BYTES_PER_STEP
        self._strings: dict[bytes, bytes | None] = {}

    def of(self, element: bytes) -> bytes | None:
        """Return the value for an element. For equal elements, a string is copied once."""
        if self._is_element:
            return element
        if not self._star:
            return None
        spend(self._steps)
        value = self._session.db.lookup(self._before + element + self._after)
        if self._field is not None:
            return value.fields.get(self._field) if isinstance(value, HashValue) else None
        if element not in self._strings:
            self._strings[element] = string_reply(value)
        return self._strings[element]


def _gotten(session: Session, elements: list[bytes], patterns: tuple[bytes, ...]) -> list[Any]:
    """Return the values that GET patterns read, for one element after the other."""
    references = {pattern: _Reference(session, pattern) for pattern in patterns}
    row = [references[pattern] for pattern in patterns]
    spend(_STEPS_PER_VALUE * len(row) * len(elements))
    return [reference.of(element) for element in elements for reference in row]


def _number(text: bytes | None) -> float:
    text = (text or b"").partition(b"\0")[0].lstrip(b" \t\n\v\f\r")
    return parse_float(text, errors.SORT_SCORES) if text else 0.0


def _sorted(session: Session, elements: list[bytes], sort_options: _SortOptions) -> list[bytes]:
    """Return the elements in the order of their weights."""
    # Equal elements have the same weight, which is parsed once.
    weights: dict[bytes, Any] = {element: element for element in elements}
    if sort_options.by is not None:
        reference = _Reference(session, sort_options.by)
        weights = {element: reference.of(element) for element in elements}
    if not sort_options.alpha:
        weights = {element: _number(weight) for element, weight in weights.items()}
        return sorted(
            elements,
            key=lambda element: (weights[element], element),
            reverse=sort_options.descending,
        )
    # A missing weight sorts before any other. Elements with equal weights keep their order, also in
    # descending order. Unless it stores the result, Redis ignores what follows a NUL.
    if sort_options.store is None:
        weights = {
            element: weight and weight.partition(b"\0")[0] for element, weight in weights.items()
        }
    ranks = {element: (weight is not None, weight) for element, weight in weights.items()}
    return sorted(elements, key=ranks.__getitem__, reverse=sort_options.descending)


@variant("SORT", "Return or store the sorted elements of a list, set, or sorted set.")
@variant("SORT_RO", "Return the sorted elements of a list, set, or sorted set.")
def sort(session: Session, args: Args) -> Reply:
    sort_options = _parse_sort_options(session, args)
    if session.engine.cluster is not None:
        _check_patterns(sort_options)
    user = session.user
    # The keys that BY and GET patterns will read are unknown, so these need access to all keys.
    if not user.unrestricted and not user.reads_all_keys(session.command):
        if sort_options.by is not None and b"*" in sort_options.by:
            raise CommandError(errors.SORT_BY_DENIED)
        if sort_options.get:
            raise CommandError(errors.SORT_GET_DENIED)
    value = session.db.lookup(args[0])
    if isinstance(value, SortedSet):
        value.make_large()  # Redis converts a sorted set that it sorts.
    if (
        sort_options.keeps_order
        and isinstance(value, SetValue)
        and (sort_options.store is not None or session.in_script)
    ):
        # A set is unordered. If the elements are stored or returned to a script, sort them by their
        # bytes, because the result must be deterministic.
        sort_options.by, sort_options.keeps_order, sort_options.alpha = None, False, True
    result: list[Any] = _find_page(session, value, sort_options)
    if sort_options.get:
        result = _gotten(session, result, sort_options.get)
    if sort_options.store is None:
        return result
    if result:
        session.engine.memory.reserve(session.interface, sum(len(item or b"") for item in result))
    items = QuickList([item or b"" for item in result])
    return session.db.store(sort_options.store, items, "sortstore")
