"""The clients of a server: their sessions and users, and those that wait.

A client waits because its command blocks (BLPOP), because commands are delayed (CLIENT PAUSE), or
because another client's script holds the engine's lock (``CommandTurns``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...core.calls import Call
from ...core.clock import Timekeeper
from ...core.ids import new_token
from ..acl import (
    ANONYMOUS,
    AclUser,
    Denied,
    RestToken,
    first_user,
    is_token,
    password_hash,
    read_only_user,
)
from ..errors import WRONGPASS, CommandError
from ..model import ClientConnection, Interface
from ..reply import Blocked, Reply
from ..settings import Dialect
from ..syntax import encoded
from ..table.registry import CommandSpec, Table
from .keyspace import Keyspace

if TYPE_CHECKING:
    from ...core.signals import Signal
    from .engine import KVEngine
    from .replication import NodeClient


class TrackingOptions:
    """The options of CLIENT TRACKING; ``redirect`` is 0 for the client itself."""

    def __init__(self) -> None:
        self.redirect = 0
        self.prefixes: list[bytes] = []
        self.words: frozenset[str] = frozenset()
        self.caching: bool | None = None
        self.broken = False


RUN_IN_TRANSACTION = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
"""Commands that run inside an open transaction instead of being queued."""


_BUFFERS = dict.fromkeys(
    ("qbuf-free", "argv-mem", "multi-mem", "rbs", "rbp", "obl", "oll", "omem", "tot-mem"), 0
)
"""Sizes of buffers in CLIENT LIST, which are 0 because a fake has no buffers (decided here)."""


class Transaction:
    """A transaction of a client, from MULTI to DISCARD or to the end of EXEC."""

    def __init__(self) -> None:
        self.queue: list[tuple[CommandSpec, list[bytes]]] = []
        self.aborted = False
        """Whether a command was rejected, so EXEC returns EXECABORT."""
        self.is_running = False
        """Whether EXEC is running the commands; further ones are not queued."""
        self.position = 0
        """Index of the command that EXEC is running."""


class Session:
    """A client's user, database and connection state; the first argument of command functions.

    ``interface`` is the origin of its commands: ``"local"`` (the test), ``"rest"``, or ``"port"``
    (the database port). ``resp`` is the protocol version of its replies, 2 or 3, and during a script
    the version that the script chose.
    """

    def __init__(
        self,
        engine: KVEngine,
        user: AclUser,
        db: Keyspace,
        interface: Interface,
        address: str,
        id: int,
        created_us: int,
    ) -> None:
        self.engine = engine
        self.user = user
        self.db = db
        self.node: NodeClient | None = None
        """The connection to one of several nodes, or to the node of a cluster; otherwise None."""
        self.interface = interface
        self.address = address
        self.id = id
        self.created_us = created_us
        # -- commands and transactions
        self.command: CommandSpec
        """The command whose function runs or has run last, also one of a transaction or a script.
        Several commands may share this function.
        """
        self.line: list[bytes] = []
        """The command line of ``command``."""
        self.in_script = False
        self.call: Call | None = None
        """The call that sent the current commands; None if the test runs them itself."""
        self.transaction: Transaction | None = None
        self.watched: list[tuple[Keyspace, bytes, bool]] = []
        """The keys that the client watches, and whether each of them existed when WATCH ran."""
        self.watch_broken = False
        """Whether a watched key has changed, so EXEC runs no command."""
        # -- messages, also over REST as event streams
        self.connection: ClientConnection | None = None
        """None if the interface cannot push messages, or the connection is closed."""
        self.closing = False
        """Whether the interface closes the connection after the current reply."""
        self.subscriptions: defaultdict[str, dict[bytes, None]] = defaultdict(dict)
        """The names of channels and patterns, by the kind of subscription."""
        # -- what only clients of the Redis protocol can change
        self.resp = 2
        self.resp_before_script = 0
        """The connection's protocol version while a script runs; otherwise 0."""
        self.local_address = "127.0.0.1:6379"
        self.name = b""
        self.library: dict[str, bytes] = {}
        """The values of ``lib-name`` and ``lib-ver`` that CLIENT SETINFO has set."""
        self.last_us = created_us
        """Time in microseconds of the last command."""
        self.last_spec: CommandSpec | None = None
        """The command that the client has sent last, even if rejected; None if it is unknown."""
        self.monitor: Monitor | None = None
        self.tracking: TrackingOptions | None = None
        self.reply_mode: Literal["on", "off", "skip next", "skip"] = "on"
        """The mode of CLIENT REPLY. SKIP sets ``"skip next"``, which becomes ``"skip"`` when the next
        command begins, and then ``"on"`` again.
        """
        self.no_evict = False
        """Mode set by CLIENT NO-EVICT, which is only reported."""
        self.no_touch = False
        """Mode set by CLIENT NO-TOUCH: commands do not update the access times of keys."""

    @property
    def connection_resp(self) -> int:
        """The protocol version of pushed messages, which a script does not change."""
        return self.resp_before_script or self.resp

    def push(self, message: list[Any]) -> None:
        if self.connection is not None:
            self.connection.push(message)

    def begin_command(self) -> None:
        """Let CLIENT REPLY SKIP concern the command that follows it, and no other."""
        if self.reply_mode == "skip next":
            self.reply_mode = "skip"
        elif self.reply_mode == "skip":
            self.reply_mode = "on"

    def reserve_reply(self) -> None:
        """Reserve the place of the reply to the running command before messages that follow."""
        if self.connection is not None:
            self.connection.reserve()

    def has_left(self) -> bool:
        """Return whether the client has closed its side, as far as that is known."""
        return self.closing or (self.connection is not None and self.connection.has_left())

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in, or need not."""
        return self.user is not ANONYMOUS

    def may_send(self, line: list[bytes]) -> bool:
        """Return whether the client has logged in, or need not for a command line."""
        if self.user is not ANONYMOUS:
            return True
        spec = self.engine.table.find(line)
        return spec is not None and "no_auth" in spec.flags

    @property
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; constant during a command, script or transaction."""
        return self.db.now_ms

    @property
    def listens(self) -> bool:
        """Whether the server sends messages to this client: it has subscribed, or runs MONITOR."""
        return self.monitor is not None or any(self.subscriptions.values())

    @property
    def may_block(self) -> bool:
        """Whether a blocking command of this client may wait instead of replying immediately."""
        return self.interface == "port" and not self.is_inner

    @property
    def is_queuing(self) -> bool:
        """Whether the client's commands are queued, because a transaction is open."""
        return self.transaction is not None and not self.transaction.is_running

    @property
    def queued_commands(self) -> list[tuple[CommandSpec, list[bytes]]]:
        """The commands of the open transaction."""
        return [] if self.transaction is None else self.transaction.queue

    @property
    def in_exec(self) -> bool:
        """Whether EXEC is running the commands of the transaction."""
        return self.transaction is not None and self.transaction.is_running

    @property
    def exec_position(self) -> int:
        """Index of the command of the transaction that EXEC is running."""
        return 0 if self.transaction is None else self.transaction.position

    @property
    def is_inner(self) -> bool:
        """Whether the running command belongs to a transaction that is executed, or to a script."""
        return self.in_script or (self.transaction is not None and self.transaction.is_running)

    def count_reads(self, counts: bool = True) -> None:
        """Let further reads by the running command count as hits and misses, or not. If all of them do,
        its row says it.
        """
        self.engine.execution.counts_reads = counts

    def describe(self, running: str = "") -> bytes:
        """Return the line in CLIENT LIST; ``running`` is the command if this client sent it."""
        engine, subscriptions, tracking = self.engine, self.subscriptions, self.tracking
        last_command = "NULL" if self.last_spec is None else self.last_spec.full_name
        sent = [f"${len(word)}\r\n{word}\r\n" for word in running.split("|")]
        flags = {
            "O": self.monitor is not None,
            "P": any(subscriptions.values()),
            "x": self.transaction is not None,
            "b": self.id in engine.waiters or self.id in engine.pauses.delayed,
            "t": tracking is not None,
            "R": tracking is not None and tracking.broken,
            "B": tracking is not None and "bcast" in tracking.words,
            "d": self.watch_broken,
            "e": self.no_evict,
            "T": self.no_touch,
        }
        fields = {
            "id": self.id,
            "addr": self.address,
            "laddr": self.local_address,
            "fd": 8,  # File descriptor of every client (decided here).
            "name": self.name.decode("latin-1"),
            "age": (engine.execution.now_us - self.created_us) // 1_000_000,
            "idle": (engine.execution.now_us - self.last_us) // 1_000_000,
            "flags": "".join(letter for letter, holds in flags.items() if holds) or "N",
            "db": self.db.index,
            "sub": len(subscriptions["channel"]),
            "psub": len(subscriptions["pattern"]),
            "ssub": len(subscriptions["shard"]),
            "multi": -1 if self.transaction is None else len(self.transaction.queue),
            "qbuf": len("*2\r\n" + "".join(sent)) if running else 0,
            **_BUFFERS,
            "events": "r",
            "cmd": (not self.in_exec and running) or last_command,
            "user": self.user.name,
            "redir": -1 if tracking is None else tracking.redirect,
            "resp": self.connection_resp,
        }
        if engine.table.knows["CLIENT LIST lib-name"]:
            for name in ("lib-name", "lib-ver"):
                fields[name] = self.library.get(name, b"").decode("latin-1")
        return " ".join(f"{key}={value}" for key, value in fields.items()).encode("latin-1") + b"\n"

    def disconnect(self) -> None:
        """Close the client's connection, after the reply to the command that runs."""
        if waiter := self.engine.waiters.pop(self.id, None):
            waiter.finish(None)
        if self.connection is not None:
            self.connection.cut()

    def unwatch(self) -> None:
        for db, key, _ in self.watched:
            db.watchers[key].remove(self)
            if not db.watchers[key]:
                del db.watchers[key]
        self.watched.clear()
        self.watch_broken = False

    def abort_transaction(self) -> None:
        """Make EXEC fail, if a transaction is open, because one of its commands was rejected."""
        if self.transaction is not None:
            self.transaction.aborted = True

    def discard_transaction(self) -> None:
        self.transaction = None
        self.unwatch()


Monitor = Callable[[int, Session, list[bytes]], None]
"""Function that receives each command: the time in microseconds, the client, and the line."""
CommandListener = Callable[[Session, "CommandSpec", list[bytes]], None]
"""Function that is called before each command, also of transactions and scripts."""


class Waiter:
    """A blocked client, to which the interface sends ``reply`` at the end of the wait."""

    def __init__(
        self,
        session: Session,
        blocked: Blocked,
        spec: CommandSpec | None,
        line: list[bytes],
        begun_us: int,
        signal: Signal,
    ) -> None:
        self.session = session
        self.blocked = blocked
        self.spec = spec
        self.line = line
        self.begun_us = begun_us
        self.signal = signal
        self.reply = blocked.on_timeout
        self.done = False
        self.tried = False

    @property
    def deadline_us(self) -> int:
        return self.begun_us + (self.blocked.timeout_ms * 1000 or 10**18)  # 0: no time limit

    @property
    def has_left(self) -> bool:
        """Whether the client has disconnected, even if its thread has not noticed yet."""
        return self.signal.closed or self.session.has_left()

    def finish(self, reply: Reply) -> None:
        """End the wait. Called under the engine's lock, so that no message overtakes the reply."""
        self.session.reserve_reply()
        self.done = True
        self.reply = reply
        self.signal.notify()


class Pauses:
    """The delays of commands of the database port: CLIENT PAUSE and DEBUG SLEEP."""

    def __init__(self, clock: Timekeeper) -> None:
        self._clock = clock
        self._sleep_ends_us = 0
        """Time in microseconds at which the last DEBUG SLEEP ends."""
        self.pause_ends_us = 0
        """Time in microseconds at which the last CLIENT PAUSE ends."""
        self.writes_only = False
        """Whether the last CLIENT PAUSE delays write commands only."""
        self.delays_end_us = 0
        """Time in microseconds at which the last pause or sleep ends; 0 before the first."""
        self.delayed: set[int] = set()
        """Ids of the sessions whose next command is being delayed."""
        self.exec_sleep_ms = 0
        """Milliseconds of DEBUG SLEEP in a transaction, by which EXEC delays its reply."""
        self.command_sleep_us = 0
        """Microseconds of DEBUG SLEEP to add to the running command's duration on the clock."""
        self.resumed = clock.signal()

    def pause(self, until_us: int, writes_only: bool) -> None:
        """Delay commands until a time; 0 ends the pause.

        If two pauses overlap, the later end applies, and the pause that also delays read-only
        commands takes precedence (measured on Redis 7.0).
        """
        if until_us and self._clock.now_us() < self.pause_ends_us:
            until_us = max(until_us, self.pause_ends_us)
            writes_only = writes_only and self.writes_only
        self.pause_ends_us = until_us
        self.writes_only = writes_only
        self._update()

    def sleep(self, until_us: int) -> None:
        """Delay all commands until a time, including commands that CLIENT PAUSE does not delay."""
        self._sleep_ends_us = until_us
        self._update()

    def end(self) -> None:
        if self.delays_end_us:
            self._sleep_ends_us = 0
            self.pause(0, writes_only=False)

    def _update(self) -> None:
        self.delays_end_us = max(self.pause_ends_us, self._sleep_ends_us)
        self.resumed.notify()

    def delays(self, session: Session, line: list[bytes]) -> bool:
        """Return whether a command line is delayed. A line that would be rejected is not delayed."""
        now_us, engine = self._clock.now_us(), session.engine
        if now_us >= self.delays_end_us:
            return False
        try:
            spec = engine.table.resolve(line)
            engine.check_available(session, spec, line)
            session.user.check(spec, line)
            if now_us < self._sleep_ends_us or not self.writes_only:
                return True
            commands = session.queued_commands if spec.name == "EXEC" else [(spec, line)]
            return any(engine.scripting.may_write(*command) for command in commands)
        except CommandError:
            return False


_SAME_WITHIN_US = 60_000_000
"""Microseconds within which equal denials are counted in one entry."""
_COMPARED = 10
"""Number of the newest entries with which a denial is compared, as on a real server."""


class AclLogEntry(NamedTuple):
    """An entry of ACL LOG. ``client`` is the client's line in CLIENT LIST."""

    reason: str
    context: str
    object: bytes
    name: bytes
    at_us: int
    client: bytes
    times: int = 1


_TRANSACTION_ENDPOINT = frozenset({"MULTI", "EXEC"})
"""Commands that a REST request for a transaction runs implicitly, without needing permission."""


class Users(dict[str, AclUser]):
    """The ACL users of a server by name (the vendor's also has ``default_ro``), and REST tokens."""

    def __init__(
        self, connected: dict[int, Session], streaming: set[Session], dialect: Dialect, table: Table
    ) -> None:
        self._connected = connected
        self._streaming = streaming
        self.default = self["default"] = first_user(dialect, table)
        self.read_only = read_only_user(dialect, table)
        """The user of the read-only token."""
        if dialect == "vendor":
            self[self.read_only.name] = self.read_only
        self._tokens: dict[str, RestToken] = {}
        self.log: list[AclLogEntry] = []
        """Denied commands and logins, newest first, as returned by ACL LOG."""

    def remove(self, name: str) -> bool:
        """Remove a user, its REST tokens and its connections; return whether it existed."""
        user = self.pop(name, None)
        if user is None:
            return False
        for token in [token for token, held in self._tokens.items() if held.user == name]:
            del self._tokens[token]
        for session in self._sessions_of(user):
            session.disconnect()
        return True

    def _sessions_of(self, user: AclUser) -> list[Session]:
        # Iterate over copies, because other threads add and remove sessions.
        sessions = (*self._connected.copy().values(), *self._streaming.copy())
        return [session for session in sessions if session.user is user]

    def disconnect_listeners(self, user: AclUser) -> None:
        """Close a user's connections that have a subscription which is no longer allowed."""
        for session in self._sessions_of(user):
            if not all(
                any(selector.allows_channel(name, kind == "pattern") for selector in user.selectors)
                for kind, names in session.subscriptions.items()
                for name in names
            ):
                session.disconnect()

    def visitor(self) -> AclUser:
        """Return the user of a new connection: ``default`` without a password, or ``ANONYMOUS``."""
        default = self.default
        return default if default.on and default.passwordless else ANONYMOUS

    def authenticate(self, name: str, password: bytes) -> AclUser:
        """Return the user with this name and password; raise WRONGPASS if there is none."""
        user = self.get(name)
        if user is None or not user.accepts(password):
            raise CommandError(WRONGPASS)
        return user

    def make_token(self, user: AclUser, password: bytes) -> str:
        """Create a REST token, which is valid as long as the user accepts the password."""
        token = new_token()
        self._tokens[token] = RestToken(user.name, password_hash(password))
        return token

    def tokens(self) -> dict[str, RestToken]:
        return dict(self._tokens)

    def add_tokens(self, tokens: Mapping[str, RestToken]) -> None:
        self._tokens |= tokens

    def holder_of(self, token: str) -> AclUser | None:
        """Return the user of a REST token, or None if the token is not valid."""
        held = self._tokens.get(token)
        if held is not None:
            user = self.get(held.user)
            return user if user is not None and user.accepts_hash(held.hash) else None
        password = token.encode("utf-8", "surrogatepass")
        digest = password_hash(password)
        # A user without a password accepts any, but has no token.
        holders = (user for user in self.values() if user.on and digest in user.hashes)
        return next(holders, None) if is_token(password) else None

    def permit(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise NOPERM, and log it for ACL LOG, unless the session's user may run a command line."""
        if session.interface == "rest" and spec.name in _TRANSACTION_ENDPOINT:
            return
        try:
            session.user.check(spec, line)
        except Denied as denied:
            context = "toplevel"
            if session.in_script:
                context = "lua"
            elif session.transaction is not None:
                context = "multi"
            self.log_denied(session, denied.reason, context, denied.subject, session.user.name)
            raise

    def log_denied(
        self, session: Session, reason: str, context: str, object: bytes, name: str
    ) -> None:
        """Add an entry to ACL LOG, or count the denial in the entry of an equal one."""
        engine, log = session.engine, self.log
        at_us, client = engine.clock.now_us(), session.describe().rstrip(b"\n")
        entry = AclLogEntry(reason, context, object, encoded(name), at_us, client)
        for place, recorded in enumerate(log[:_COMPARED]):
            is_recent = abs(at_us - recorded.at_us) <= _SAME_WITHIN_US
            if is_recent and recorded._replace(at_us=at_us, client=client, times=1) == entry:
                entry = entry._replace(times=1 + log.pop(place).times)
                break
        log.insert(0, entry)
        del log[engine.config.number("acllog-max-len") :]

    def snapshot(self) -> tuple[dict[str, AclUser], dict[str, RestToken]]:
        users = {name: copy(user) for name, user in self.items()}
        return users, dict(self._tokens)

    def restore(self, users: dict[str, AclUser], tokens: dict[str, RestToken]) -> None:
        """Restore users and tokens. Existing users are changed in place: sessions refer to them."""
        for name in [name for name in self if name not in users]:
            self.remove(name)
        for name, user in users.items():
            if name in self:
                self[name].adopt(user)
            else:
                self[name] = copy(user)
        self._tokens = dict(tokens)
