"""The sessions of clients, their users with REST tokens, and the log of denied commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.ids import new_token
from ..acl import ANONYMOUS, AclUser, Denied, RestToken, first_user, password_hash, read_only_user
from ..errors import WRONGPASS, CommandError
from ..model import Transport
from ..reply import Map
from ..table.registry import CommandSpec
from ..table.syntax import encoded
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


# -- ACL LOG ---------------------------------------------------------------------------------------

_SAME_WITHIN_US = 60_000_000
"""Microseconds within which equal denials are counted in one entry."""
_COMPARED = 10
"""Number of the newest entries with which a denial is compared, as on a real server."""


class LogEntry(NamedTuple):
    """An entry of ACL LOG. ``client`` is the client's line in CLIENT LIST."""

    reason: str
    context: str
    object: bytes
    name: bytes
    at_us: int
    client: bytes
    times: int = 1

    @property
    def denied(self) -> tuple[Any, ...]:
        """The denial without its time and client. Equal denials are counted in one entry."""
        return self.reason, self.context, self.object, self.name


class AclLog:
    """The entries of ACL LOG, newest first. ``longest`` returns the maximum number of entries."""

    def __init__(self, longest: Callable[[], int]) -> None:
        self._longest = longest
        self._entries: list[LogEntry] = []

    def add(self, entry: LogEntry) -> None:
        for place, known in enumerate(self._entries[:_COMPARED]):
            is_same = known.denied == entry.denied
            if is_same and abs(entry.at_us - known.at_us) <= _SAME_WITHIN_US:
                del self._entries[place]
                entry = entry._replace(times=known.times + 1)
                break
        self._entries.insert(0, entry)
        del self._entries[self._longest() :]

    def clear(self) -> None:
        self._entries.clear()

    def show(self, count: int, now_us: int) -> list[Any]:
        """Return the latest ``count`` entries as in the reply of ACL LOG."""
        return [
            Map(
                [
                    *(b"count", entry.times),
                    *(b"reason", entry.reason.encode()),
                    *(b"context", entry.context.encode()),
                    *(b"object", entry.object),
                    *(b"username", entry.name),
                    *(b"age-seconds", (now_us - entry.at_us) // 1000 / 1000),
                    *(b"client-info", entry.client),
                ]
            )
            for entry in self._entries[:count]
        ]


# -- users and tokens ------------------------------------------------------------------------------

_TRANSACTION_ENDPOINT = frozenset({"MULTI", "EXEC"})
"""Commands that a REST request for a transaction runs implicitly, without needing permission."""


class UsersCopy(NamedTuple):
    """A copy of the users and REST tokens, made by ``Users.snapshot()``."""

    users: dict[str, AclUser]
    tokens: dict[str, RestToken]


class Users:
    """The ACL users of a server by name (the vendor's also has ``default_ro``), and REST tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions = engine.sessions
        dialect, table = engine.dialect, engine.table
        self._users: dict[str, AclUser] = {"default": first_user(dialect, table)}
        self.read_only = read_only_user(dialect, table)
        """The user of the read-only token."""
        if dialect == "vendor":
            self._users[self.read_only.name] = self.read_only
        self._tokens: dict[str, RestToken] = {}
        self.log = AclLog(lambda: engine.config.number("acllog-max-len"))
        """Denied commands and logins, as returned by ACL LOG."""

    def __iter__(self) -> Iterator[AclUser]:
        return (user for _, user in sorted(self._users.items()))

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def __getitem__(self, name: str) -> AclUser:
        return self._users[name]

    def get(self, name: str) -> AclUser | None:
        return self._users.get(name)

    def add(self, user: AclUser) -> None:
        self._users[user.name] = user

    def remove(self, name: str) -> bool:
        """Remove a user, its REST tokens and its connections; return whether it existed."""
        user = self._users.pop(name, None)
        if user is None:
            return False
        for token in [token for token, held in self._tokens.items() if held.user == name]:
            del self._tokens[token]
        for session in self._sessions.of(user):
            self._sessions.disconnect(session)
        return True

    def disconnect_listeners(self, user: AclUser) -> None:
        """Close a user's connections that have a subscription which is no longer allowed."""
        for session in self._sessions.of(user):
            if any(
                not user.may_listen(name, kind == "pattern")
                for kind, names in session.subscriptions.items()
                for name in names
            ):
                self._sessions.disconnect(session)

    # -- logging in ------------------------------------------------------------------------------

    def visitor(self) -> AclUser:
        """Return the user of a new connection: ``default`` without a password, or ``ANONYMOUS``."""
        default = self._users["default"]
        return default if default.on and default.passwordless else ANONYMOUS

    def authenticate(self, name: str, password: bytes) -> AclUser:
        """Return the user with this name and password; raise WRONGPASS if there is none."""
        user = self._users.get(name)
        if user is None or not user.accepts(password):
            raise CommandError(WRONGPASS)
        return user

    def make_token(self, user: AclUser, password: bytes) -> str:
        """Create a REST token, which is valid as long as the user accepts the password."""
        token = new_token()
        self._tokens[token] = RestToken(user.name, password_hash(password))
        return token

    def holder_of(self, token: str) -> AclUser | None:
        """Return the user of a REST token, or None if the token is not valid."""
        held = self._tokens.get(token)
        user = self._users.get(held.user) if held is not None else None
        if held is None or user is None or not user.accepts_hash(held.hash):
            return None
        return user

    def permit(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise NOPERM, and log it for ACL LOG, unless the session's user may run a command line."""
        if session.transport == "rest" and spec.name in _TRANSACTION_ENDPOINT:
            return
        try:
            session.user.check(spec, argv)
        except Denied as denied:
            context = "toplevel"
            if session.in_script:
                context = "lua"
            elif session.queue is not None or session.in_exec:
                context = "multi"
            self.log_denied(session, denied.reason, context, denied.subject, session.user.name)
            raise

    def log_denied(
        self, session: Session, reason: str, context: str, object: bytes, name: str
    ) -> None:
        client = self._engine.describe(session).rstrip(b"\n")
        at_us = self._engine.clock.now_us()
        self.log.add(LogEntry(reason, context, object, encoded(name), at_us, client))

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> UsersCopy:
        users = {name: user.copy() for name, user in self._users.items()}
        return UsersCopy(users, dict(self._tokens))

    def restore(self, saved: UsersCopy) -> None:
        """Restore users and tokens. Existing users are changed in place: sessions refer to them."""
        for name in [name for name in self._users if name not in saved.users]:
            self.remove(name)
        for name, user in saved.users.items():
            if name in self._users:
                self._users[name].adopt(user)
            else:
                self._users[name] = user.copy()
        self._tokens = dict(saved.tokens)
