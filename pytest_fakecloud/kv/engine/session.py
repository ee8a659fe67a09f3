"""The sessions of clients: their state, the open ones, and their lines in CLIENT LIST."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..acl.users import AclUser
from ..model import Transport
from ..table.registry import CommandSpec
from .blocking import Waiter
from .keyspace import Keyspace

if TYPE_CHECKING:
    from .engine import Engine


@dataclass(eq=False, slots=True)
class TrackingOptions:
    """The options that a client has set with CLIENT TRACKING.

    ``redirect`` is the ID of the client that receives the messages, 0 for the client itself.
    ``words`` are the option words in lower case. ``caching`` is the mode set by CLIENT CACHING,
    which applies to the next command or transaction. ``broken`` is set when a message could not be
    redirected because the receiver had disconnected.
    """

    redirect: int = 0
    prefixes: list[bytes] = field(default_factory=list)
    words: frozenset[str] = frozenset()
    caching: bool | None = None
    broken: bool = False


class Watched(NamedTuple):
    """A key that a client watches, and whether the key existed when WATCH ran."""

    db: Keyspace
    key: bytes
    existed: bool


@dataclass(eq=False, repr=False, slots=True)
class Session:
    """A client's user, database and connection state; the first argument of command functions.

    ``transport`` is the origin of its commands: ``"local"`` (the test), ``"rest"``, or ``"port"``
    (the database port). ``resp`` is the protocol version of its replies, 2 or 3, and during a script
    the version that the script chose. ``deliver`` receives pushed messages, e.g. of pub/sub; None if
    the transport cannot push.
    """

    engine: Engine
    user: AclUser
    db: Keyspace
    transport: Transport
    address: str
    id: int
    created_us: int
    resp: int = 2
    local_address: str = "127.0.0.1:6379"
    name: bytes = b""
    library: dict[str, bytes] = field(default_factory=dict)
    """The values of ``lib-name`` and ``lib-ver`` that CLIENT SETINFO has set."""
    queue: list[tuple[CommandSpec, list[bytes]]] | None = None
    """Commands queued in the open transaction; None if no transaction is open."""
    aborted: bool = False
    """Whether a command of the open transaction was rejected, so EXEC returns EXECABORT."""
    watched: list[Watched] = field(default_factory=list)
    watch_broken: bool = False
    """Whether a watched key has changed, so EXEC runs no command."""
    in_exec: int = 0
    """Number of commands in the transaction that EXEC is running; 0 if none is running."""
    in_script: bool = False
    resp_before_script: int = 0
    """The connection's protocol version while a script runs; otherwise 0."""
    subscriptions: dict[str, dict[bytes, None]] = field(
        default_factory=lambda: {"channel": {}, "pattern": {}, "shard": {}}
    )
    monitor: Monitor | None = None
    reply_mode: str = "on"
    """Mode set by CLIENT REPLY: ``"on"``, ``"off"``, or ``"skip"`` to omit the next reply only."""
    wake: Callable[[], None] | None = None
    """Function that closes the connection; any thread may call it."""
    has_left: Callable[[], bool] | None = None
    """Function that returns whether the peer has closed its side; None if that is not known."""
    closing: bool = False
    """Whether the transport closes the connection after the current reply."""
    tracking: TrackingOptions | None = None
    no_evict: bool = False
    """Mode set by CLIENT NO-EVICT, which is only reported."""
    no_touch: bool = False
    """Mode set by CLIENT NO-TOUCH: commands do not update the access times of keys."""
    last_us: int = field(init=False)
    """Time in microseconds of the last command."""
    last_command: str = ""
    deliver: Callable[[list[Any]], None] | None = None

    def __post_init__(self) -> None:
        self.last_us = self.created_us

    @property
    def connection_resp(self) -> int:
        """The protocol version of pushed messages, which a script does not change."""
        return self.resp_before_script or self.resp

    def push(self, message: list[Any]) -> None:
        if self.deliver is not None:
            self.deliver(message)

    @property
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; constant during a command, script or transaction."""
        return self.db.now_ms

    @property
    def may_block(self) -> bool:
        """Whether a blocking command of this client may wait instead of replying immediately."""
        return self.transport == "port" and not self.in_exec and not self.in_script

    # -- transactions ----------------------------------------------------------------------------

    def unwatch(self) -> None:
        for db, key, _ in self.watched:
            db.watchers[key].remove(self)
            if not db.watchers[key]:
                del db.watchers[key]
        self.watched.clear()
        self.watch_broken = False

    def abort_transaction(self) -> None:
        """Make EXEC fail, if a transaction is open, because one of its commands was rejected."""
        self.aborted = self.queue is not None

    def discard_transaction(self) -> None:
        self.queue = None
        self.aborted = False
        self.unwatch()


Monitor = Callable[[int, Session, list[bytes]], None]
"""Function that receives each command: the time in microseconds, the client, and the line."""


# -- open sessions ---------------------------------------------------------------------------------

_BUFFERS = dict.fromkeys(
    ("qbuf-free", "argv-mem", "multi-mem", "rbs", "rbp", "obl", "oll", "omem", "tot-mem"), 0
)
"""Sizes of buffers in CLIENT LIST, which are 0 because a fake has no buffers (decided here)."""
_DESCRIPTOR = 8
"""File descriptor that CLIENT LIST shows for every client."""


class Sessions:
    """The sessions of the database port and of event streams."""

    def __init__(self, waiters: dict[int, Waiter]) -> None:
        self._waiters = waiters
        self.connected: dict[int, Session] = {}
        """Sessions of the database port by client ID."""
        self.streaming: set[Session] = set()
        """Sessions of event streams."""

    def of_port(self) -> list[Session]:
        """Return a new list of the port's sessions, because other threads add and remove sessions."""
        return list(self.connected.copy().values())

    def of(self, user: AclUser) -> list[Session]:
        return [each for each in (*self.of_port(), *self.streaming.copy()) if each.user is user]

    def disconnect(self, session: Session) -> None:
        """Ask the transport of a connection or event stream to close it."""
        session.closing = True
        if waiter := self._waiters.pop(session.id, None):
            waiter.finish(None)
        if session.wake is not None:
            session.wake()


def client_line(
    session: Session, now_us: int, *, waits: bool, running: str, libraries: bool
) -> bytes:
    """Return a client's line in the reply of CLIENT LIST.

    Pass ``waits=True`` for a blocked client, and ``libraries=False`` to omit ``lib-name`` and
    ``lib-ver``. ``running`` is the name of the command that requests the line; empty in the lines
    of other clients. Only the query buffer of the client that sent the command has a size.
    """
    subscriptions, tracking = session.subscriptions, session.tracking
    fields = {
        "id": session.id,
        "addr": session.address,
        "laddr": session.local_address,
        "fd": _DESCRIPTOR,
        "name": session.name.decode("latin-1"),
        "age": (now_us - session.created_us) // 1_000_000,
        "idle": (now_us - session.last_us) // 1_000_000,
        "flags": _flags(session, waits),
        "db": session.db.index,
        "sub": len(subscriptions["channel"]),
        "psub": len(subscriptions["pattern"]),
        "ssub": len(subscriptions["shard"]),
        "multi": session.in_exec or (-1 if session.queue is None else len(session.queue)),
        "qbuf": _line_size(running),
        **_BUFFERS,
        "events": "r",
        "cmd": (not session.in_exec and running) or session.last_command or "NULL",
        "user": session.user.name,
        "redir": -1 if tracking is None else tracking.redirect,
        "resp": session.connection_resp,
    }
    if libraries:
        for name in ("lib-name", "lib-ver"):
            fields[name] = session.library.get(name, b"").decode("latin-1")
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    return text.encode("latin-1") + b"\n"


def _flags(session: Session, waits: bool) -> str:
    tracking = session.tracking
    found = {
        "O": session.monitor is not None,
        "P": any(session.subscriptions.values()),
        "x": session.queue is not None or bool(session.in_exec),
        "b": waits,
        "t": tracking is not None,
        "R": tracking is not None and tracking.broken,
        "B": tracking is not None and "bcast" in tracking.words,
        "d": session.watch_broken,
        "e": session.no_evict,
        "T": session.no_touch,
    }
    return "".join(letter for letter, holds in found.items() if holds) or "N"


def _line_size(command: str) -> int:
    """Return the size in bytes of a command's name (``client|list``) as sent in the Redis protocol."""
    if not command:
        return 0
    return len("*2\r\n") + sum(len(f"${len(word)}\r\n{word}\r\n") for word in command.split("|"))
