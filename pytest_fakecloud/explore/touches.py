"""Accesses of commands, requests and deliveries to the data of each service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .footprint import ALL, READS_CLOCK, Touch

if TYPE_CHECKING:
    from ..handle import Handle
    from ..http.messages import Request
    from ..queue.model import Message

# -- the key-value server --------------------------------------------------------------------------

_PUBLISHES = frozenset(("PUBLISH", "SPUBLISH"))
_PATTERNS = frozenset(("PSUBSCRIBE", "PUNSUBSCRIBE"))
_SUBSCRIBES = frozenset(("SUBSCRIBE", "UNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"))
_CHANNELS = _PUBLISHES | _PATTERNS | _SUBSCRIBES
_ALONE = frozenset((
    "PING", "ECHO", "TIME", "QUIT", "SELECT", "AUTH", "HELLO", "RESET", "CLIENT",
    "MULTI", "EXEC", "DISCARD", "UNWATCH",
    "COMMAND", "LOLWUT", "WAIT", "READONLY", "READWRITE",
    "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO",
))  # fmt: skip
"""Commands that access no data themselves; commands in scripts are recorded when they run."""
_TIMED = frozenset((
    "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "TTL", "PTTL", "SETEX", "PSETEX",
    "HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT", "HTTL", "HPTTL",
    "XADD", "XCLAIM", "XAUTOCLAIM", "XPENDING", "XREADGROUP", "XINFO", "XGROUP",
    "TIME", "LASTSAVE", "RESTORE", "RESTORE-ASKING", "OBJECT", "DEBUG", "INFO", "CLIENT", "SLOWLOG",
    "LATENCY",
))  # fmt: skip
"""Commands, apart from blocking ones, whose effect or answer depends on the time."""
_TIMED_OPTIONS = frozenset((b"EX", b"PX", b"EXAT", b"PXAT", b"BLOCK"))
_NOT_BLOCKING = frozenset(("BITCOUNT", "BITOP", "BITPOS"))
"""Commands that begin with B like the blocking ones, but do not depend on the time."""


def _reads_clock(name: str, argv: list[bytes]) -> bool:
    if name in _TIMED or (name.startswith("B") and name not in _NOT_BLOCKING):
        return True
    return any(word.upper() in _TIMED_OPTIONS for word in argv[1:])


def touches_of_command(fake: str, session: Any, spec: Any, argv: list[bytes]) -> Iterable[Touch]:
    """Yield the accesses of a command, based on the keys and flags in the command table.

    A command without keys that reads or writes data accesses all keys. EXEC also reads the keys
    that its connection watches.
    """
    name = spec.name.partition(" ")[0]
    database = session.db.index
    if _reads_clock(name, argv):
        yield READS_CLOCK
    if spec.name == "EXEC":
        for _, key, _ in session.watched:
            yield touch_of_key(fake, database, key, False)
    if name in _CHANNELS:
        for channel in argv[1:2] if name in _PUBLISHES else argv[1:]:
            yield Touch(fake, "channel", ALL if name in _PATTERNS else _text(channel), True)
    elif name not in _ALONE:
        yield from _touches_of_data(fake, session, spec, argv)


def _touches_of_data(fake: str, session: Any, spec: Any, argv: list[bytes]) -> Iterable[Touch]:
    name, database = spec.name.partition(" ")[0], session.db.index
    touches = list(_touches_of_keys(fake, database, spec, argv))
    if touches or (spec.keys and not spec.write):
        yield from touches
    elif spec.write or spec.readonly or name in ("INFO", "DEBUG", "SWAPDB", "MEMORY"):
        for index in range(len(session.engine.databases)):
            yield Touch(fake, f"key of db{index}", ALL, bool(spec.write))
    else:
        yield Touch(fake, "setting", ALL, spec.name != "CONFIG GET")


def _touches_of_keys(fake: str, database: int, spec: Any, argv: list[bytes]) -> Iterable[Touch]:
    for key_spec in spec.keys:
        places = key_spec.positions(argv)
        if places is None:
            yield Touch(fake, f"key of db{database}", ALL, bool(spec.write))
        for place in places or ():
            yield touch_of_key(fake, database, argv[place], "RO" not in key_spec.flags)


def touch_of_key(fake: str, database: int, key: bytes, writes: bool) -> Touch:
    return Touch(fake, f"key of db{database}", _text(key), writes)


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")


# -- the other services ----------------------------------------------------------------------------

_READS = frozenset({"GET", "HEAD"})
_BROKER: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "produce": (("topic", "topic", True),),
    "fetch": (("topic", ALL, False),),
    "consume": (("topic", ALL, False), ("group", "group", True)),
    "commit": (("group", "group", True),),
    "committed": (("group", "group", False),),
    "offsets": (("topic", ALL, False),),
    "topics": (("topic", ALL, False),),
    "consumers": (("group", ALL, False),),
    "delete-consumer": (("group", "group", True),),
}
"""The accesses of each route: the kind, the parameter with the name, and whether they write."""
_WHOLE_INDEX = ("info", "list-namespaces", "rename-namespace", "reset")
"""Routes that can affect all namespaces."""
_VECTOR_READS = ("query", "fetch", "range", "random", "info", "list", "resumable")


def touches_of_request(handle: Handle, request: Request) -> Iterable[Touch]:
    """Yield the accesses of a request to a service, based on its route.

    An unknown route counts as a write to everything in its fake. The key-value engine reports its
    commands itself.
    """
    fixture, fake = handle.fixture, handle.name
    if fixture == "kv_server" and hasattr(handle._engine, "run"):
        return
    route, params = request.route, request.params
    yield READS_CLOCK
    if fixture == "broker":
        for kind, name, writes in _BROKER.get(route, (("topic", ALL, True), ("group", ALL, True))):
            given = ALL if name == ALL else params.get(name, ALL)
            yield Touch(fake, kind, given, writes)
    elif fixture == "vector_index":
        namespace = params.get("namespace", "")
        reads = route.startswith(_VECTOR_READS)
        whole = route in _WHOLE_INDEX or route.startswith("resumable")
        yield Touch(fake, "namespace", ALL if whole else namespace or "default", not reads)
        if route.startswith("resumable"):
            yield Touch(fake, "cursor", ALL, True)
    elif fixture == "queue":
        reads = request.method in _READS
        yield Touch(fake, "publishing", ALL, not reads)
        if route not in ("publish", "enqueue", "batch"):
            yield Touch(fake, "message", ALL, not reads)
    else:
        yield Touch(fake, "data", ALL, request.method not in _READS)


def touches_of_delivery(fake: str, name: str, message: Message) -> Iterable[Touch]:
    """Yield the accesses of the start or the end of a delivery.

    Messages of an ordered queue wait for each other, and so do those with the same flow-control
    key.
    """
    yield READS_CLOCK
    yield Touch(fake, "message", name, True)
    if message.queue_name is not None:
        yield Touch(fake, "queue", message.queue_name, True)
    flow = message.settings.flow
    if flow is not None:
        yield Touch(fake, "flow-control key", flow.key, True)
