"""The engine: takes commands, runs them on the keyspaces, gives replies. No HTTP, no wall clock."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import budget
from ...core.budget import UNBOUNDED, OverBudget, running
from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ..acl.log import AclLog
from ..acl.users import (
    ANONYMOUS,
    AclUser,
    Denied,
    RestToken,
    first_user,
    read_only_user,
)
from ..errors import (
    CLIENT_LEFT,
    NOT_ENOUGH_REPLICAS,
    NOT_IN_TRANSACTION,
    OOM,
    WRONGPASS,
    CommandError,
    exec_aborted_by,
    not_available,
    over_budget,
    unknown_command,
    unknown_subcommand,
    wrong_arity,
)
from ..model import Transport, User
from ..reply import QUEUED, Blocked, Reply, with_17_digits
from ..scripting.scripts import Scripting, ScriptingCopy
from ..settings import VERSION, Dialect, Limits
from ..table.availability import check_family_over_rest, check_over_rest
from ..table.config import Config
from ..table.documented import DOCUMENTED
from ..table.registry import CommandSpec, table_of
from .blocking import Waiter, Waiters
from .capacity import Capacity
from .client import Client, Monitor
from .eviction import Eviction
from .frequency import Frequencies
from .keyspace import Keyspace, KeyspaceCopy, type_name
from .monitor import monitor_line
from .notifications import Notifications
from .pauses import Pauses
from .pubsub import PubSub
from .statistics import Statistics
from .tracking import Tracking

if TYPE_CHECKING:
    from ..rdb.file import Record
    from ..search.indexes import Search

_FRAME = frozenset({"MULTI", "EXEC"})
"""What the transaction endpoint is made of, which needs no permission beyond its commands'."""
AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
"""Commands that run inside an open transaction instead of being queued."""
_SEARCHES = frozenset(
    (
        b"SEARCH.QUERY",
        b"SEARCH.COUNT",
        b"SEARCH.AGGREGATE",
        b"SEARCH.DESCRIBE",
        b"SEARCH.WAITINDEXING",
    )
)
"""Commands that index the changed keys first."""
_PATIENCE = 0.2
"""Real seconds to wait at most until a client that waits for its turn has got it."""


@dataclass(frozen=True, slots=True)
class EngineCopy:
    """Everything commands can change, as ``snapshot`` found it."""

    databases: list[KeyspaceCopy]
    scripting: ScriptingCopy
    users: dict[str, AclUser]
    rest_tokens: dict[str, RestToken]
    config: Mapping[str, str]


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Session(Client):
    """A client of an engine, as commands are given it."""

    engine: Engine


class Engine:
    """An in-memory key-value store that speaks in commands: ``list[bytes]`` in, reply out.

    ``dialect`` is ``"vendor"`` (the REST service: one database, its own additions) or ``"redis"``
    (stock behaviour, sixteen databases); ``limits`` bound its data, for all but the tester;
    ``documented_only`` refuses everybody but the tester what the vendor documents no such command
    for; ``debug_command`` allows DEBUG; ``version`` is what it announces, the dialect's own unless
    given; ``modules`` are those a stock server has loaded (``versions.MODULES``); ``started_us`` is
    the instant since which it runs, by its own account. All state is behind one re-entrant ``lock``.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        dialect: Dialect = "vendor",
        limits: Limits | None = None,
        started_us: int | None = None,
        *,
        documented_only: bool = False,
        debug_command: bool = False,
        version: str | None = None,
        modules: tuple[str, ...] = (),
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.dialect = dialect
        self.version = version or VERSION[dialect]
        self.modules = modules
        """The modules that a stock server has loaded; the vendor's has none to name."""
        self.table = table_of(dialect, self.version, modules)
        """The commands there are, and what came later than the version that is announced."""
        self._lookup = self.table.lookup
        short = self.table.knows["doubles of as few digits as it takes"]
        self.print_double = None if short else with_17_digits
        """What a double becomes in a reply; None where it stays one."""
        self.limits = limits or Limits()
        self.offered = DOCUMENTED if documented_only else None
        """The names of the commands that all but the tester may know of; None for all."""
        self.search_delay: tuple[int | None, int | None] = (None, None)
        """Milliseconds, and searches, for which changes cannot be found yet; None for neither."""
        self.searches: deque[Search] = deque(maxlen=1000)
        """The searches that clients made, the newest last."""
        self._capacity = Capacity(self.limits) if self.limits.bounds_data else None
        self.lock = threading.RLock()
        self.queued: set[int] = set()
        """The threads that wait for the lock to run a command."""
        self._taken = threading.Event()
        """Set when one of them has got it."""
        self.random = ids.stream("kv", "random")
        self.config = Config(dialect, self.table, debug_command=debug_command)
        self.databases = [Keyspace(index) for index in range(1 if dialect == "vendor" else 16)]
        self.now_us = clock.now_us()
        """The clock as the running command, script or transaction sees it."""
        self.now_ms = self.now_us // 1000
        self.started_us = self.now_us if started_us is None else started_us
        self.users: dict[str, AclUser] = {"default": first_user(dialect, self.table)}
        self.read_only = read_only_user(dialect, self.table)
        """The user the read-only token stands for; among the users where the vendor has it."""
        if dialect == "vendor":
            self.users[self.read_only.name] = self.read_only
        self.acl_log = AclLog(lambda: self.config.number("acllog-max-len"))
        self.statistics = Statistics()
        self.last_save_us = self.started_us
        self.active_expire = True
        """Whether expired keys go without an access (``DEBUG SET-ACTIVE-EXPIRE``)."""
        self.pauses = Pauses(self)
        self.asleep_ms = 0
        """How long EXEC still has to wait for the sleeps of its transaction."""
        self.slept_us = 0
        """What the running command took on top of what the clock shows: it sleeps afterwards."""
        self.rest_tokens: dict[str, RestToken] = {}
        """REST tokens made for users; a token ends with its user and with its password."""
        self.pubsub = PubSub()
        self.scripting = Scripting(self)
        self.monitors: list[Monitor] = []
        self.eviction = Eviction(self.databases, self.config, self.random)
        self.wants_replicas = False
        """Whether writes are refused for want of replicas, of which there are none."""
        self._refuses = documented_only
        """Whether anything refuses lines that are in order: a setting, or a parameter."""
        self.can_listen: Callable[[int], bool] = lambda port: True
        """What tells whether the database port could listen at another number."""
        self.connected: dict[int, Session] = {}
        """The sessions of the database port, by number."""
        self.tracking = Tracking(self.connected, self.config, self.databases)
        self.waiters = Waiters(self.tracking.tell_changes)
        self.notifications = Notifications(self)
        self.running: CommandSpec | None = None
        """The command that runs, or ran last."""
        self.line: list[bytes] = []
        """The line of the command that runs, or ran last."""
        self._notes_touches = False
        self.streaming: set[Session] = set()
        """The sessions of event streams."""
        self._sessions = itertools.count(1)

    def session(
        self,
        user: User | None = None,
        transport: Transport = "local",
        resp: int = 2,
        address: str = "",
        at_us: int | None = None,
    ) -> Session:
        """A new session of a user (``default`` unless given) on database 0."""
        # Without the lock: who comes to end a script that holds it must get in.
        user = user or self.users["default"]
        number = next(self._sessions)
        began_us = self.clock.now_us() if at_us is None else at_us
        session = Session(
            user, self.databases[0], transport, resp, address, number, began_us, engine=self
        )
        if transport == "port":
            self.connected[session.id] = session
        return session

    def clients(self) -> list[Session]:
        """The sessions of the database port; others may come and go meanwhile."""
        return list(self.connected.copy().values())

    def describe(self, session: Client, running: str = "") -> bytes:
        """One line of CLIENT LIST; ``running`` is the command it is asked with, if it is its own."""
        waits = self.waiters.of(session.id) is not None or session.id in self.pauses.held
        return session.describe(
            self.now_us,
            waits=waits,
            running=running,
            libraries=self.table.knows["CLIENT LIST lib-name"],
        )

    @property
    def run_id(self) -> str:
        """Forty digits that tell this server from others."""
        return self.ids.stream("kv", "run id").hex(40)

    def database(self, index: int) -> Keyspace:
        """The keyspace of that number, ready to be read in the running command."""
        keyspace = self.databases[index]
        keyspace.now_ms = self.now_ms
        return keyspace

    # -- running commands ------------------------------------------------------------------------

    def execute(self, session: Session, argv: list[bytes]) -> Reply:
        """Run a command line as it came from a client, or queue it in an open transaction.

        Raises ``CommandError`` for whatever the server would answer with an error.
        """
        if session.db.indexes is not None:
            self.index_ahead(session, argv)
        if not self.take_turn(argv):
            return self.run_beside(session, argv)
        try:
            spec = self._lookup.get(argv[0])
            if (
                spec is None
                or not spec.plain
                or session.queue is not None
                or not session.user.unrestricted
                or self._refuses
                or not spec.least <= len(argv) <= spec.most
            ):
                # All others are as good as admitted: nothing that would be asked about them holds.
                spec = self._admit(session, argv)
                if spec is None:
                    return QUEUED
            try:
                return self.run(session, spec, argv)
            finally:
                if self._notes_touches:
                    self._after(session)
        finally:
            self.lock.release()

    def take_turn(self, argv: list[bytes]) -> bool:
        """Take the lock for a line; False when a script keeps it and ``run_beside`` answers."""
        if self.lock.acquire(False):
            return True
        thread = threading.get_ident()
        self.queued.add(thread)
        try:
            return self.scripting.wait_for_turn(argv)
        finally:
            self.queued.discard(thread)
            self._taken.set()

    def give_way(self) -> None:
        """Let a client that waits for the lock run first; the caller does not hold it."""
        # A thread that releases a lock and wants it back gets it before those that wait for it.
        self._taken.clear()
        if self.queued:
            self._taken.wait(_PATIENCE)

    def index_ahead(self, session: Session, argv: list[bytes]) -> None:
        """Bring the index of a search up to date in parts, between which other clients may run.

        What runs in a transaction or script indexes as a part of it, within its budget.
        """
        indexes = session.db.indexes
        inside = session.queue is not None or session.in_exec or session.in_script
        if indexes is None or inside or len(argv) < 2:
            return
        if (name := argv[0].upper()) not in _SEARCHES:
            return
        while self.take_turn(argv):
            try:
                self._look()
                if indexes.catch_up(session.db, argv[1], whole=name == b"SEARCH.WAITINDEXING"):
                    return
            finally:
                self.lock.release()
            if session.closing or (session.has_left is not None and session.has_left()):
                raise CommandError(CLIENT_LEFT)
            self.give_way()

    def run_beside(self, session: Session, argv: list[bytes]) -> Reply:
        """Run a line while a script holds the lock: one of the few that may, or an error."""
        spec = self._admit(session, argv, beside=True)
        if spec is None:
            return QUEUED
        assert spec.function is not None
        return spec.function(session, argv[spec.skip :])

    def _admit(
        self, session: Client, argv: list[bytes], *, beside: bool = False
    ) -> CommandSpec | None:
        """The command to run; None when the line was queued in an open transaction."""
        spec: CommandSpec | None = None
        try:
            session.last_command = ""
            spec = self._lookup.get(argv[0])
            if spec is None or spec.subcommands is not None:
                if spec is not None and session.transport == "rest":
                    check_family_over_rest(spec)
                spec = self.resolve(argv)
            session.last_command = spec.full_name
            if session.transport == "rest" and (spec.may_wait or not spec.over_rest):
                check_over_rest(spec, argv)
            if self.offered is not None and not self.offers(session, spec):
                raise CommandError(not_available(spec.name))
            if not spec.least <= len(argv) <= spec.most and not self._tolerates(spec):
                raise CommandError(wrong_arity(spec.full_name))
            if not session.user.unrestricted:
                self.permit(session, spec, argv)
            if beside:
                self.scripting.refuse_beside(spec)
            if self.eviction.most and not beside and self.is_without_memory(session):
                self._refuse_memory(session, spec)
            if self.wants_replicas and not beside and self._would_write(session, spec, argv):
                raise CommandError(NOT_ENOUGH_REPLICAS)
            if session.queue is not None and spec.name not in AT_ONCE:
                if spec.no_multi:
                    raise CommandError(NOT_IN_TRANSACTION)
                # What is already discarded takes no more memory.
                if not session.aborted and not session.watch_broken:
                    session.queue.append((spec, argv))
                return None
        except CommandError as error:
            session.aborted = True
            self.statistics.rejected(spec, error)
            if spec is not None and spec.name == "EXEC":
                session.discard_transaction()
                raise CommandError(exec_aborted_by(error.text.removeprefix(b"ERR "))) from None
            raise
        return spec

    def is_without_memory(self, session: Client) -> bool:
        """Whether a client has to do without further memory: all but the tester, past the bound."""
        if not self.eviction.most or session.transport == "local":
            return False
        room = self.eviction.has_room(self.clock.now_us() // 1000)
        if self.tracking:
            self.tracking.evicting = True
            try:
                self.tracking.tell_changes(None)
            finally:
                self.tracking.evicting = False
        return not room

    def _would_write(self, session: Client, spec: CommandSpec, argv: list[bytes]) -> bool:
        """Whether a line writes by its flags; of a script, whether its first line says it may."""
        if session.transport == "local":
            return False
        if spec.name == "EXEC":
            return any(each.write for each, _ in session.queue or ())
        return spec.write or self.scripting.declares_writes(spec, argv)

    def _refuse_memory(self, session: Client, spec: CommandSpec) -> None:
        """Raise the OOM error for what takes memory."""
        queued = session.queue or ()
        takes = "denyoom" in spec.flags
        if spec.name == "EXEC":
            takes = any("denyoom" in each.flags for each, _ in queued)
        elif session.queue is not None:
            # A transaction that is put together takes memory whatever its commands do.
            takes = spec.name not in AT_ONCE
        if takes:
            raise CommandError(OOM)

    def note_touches(self) -> None:
        """Let the databases note touched keys from now on, or no longer, as sessions need it."""
        self._notes_touches = bool(
            self.waiters
            or self.tracking
            or self.notifications
            or any(keyspace.indexes is not None for keyspace in self.databases)
        )
        for keyspace in self.databases:
            if not self._notes_touches:
                keyspace.on_touch = None
            elif keyspace.on_touch is None:
                keyspace.on_touch = set()
            if not self.tracking:
                keyspace.changed = None
            elif keyspace.changed is None:
                keyspace.changed = {}

    def _after(self, session: Client | None) -> None:
        """Tell the sessions that track touched keys, and serve those that wait for them."""
        if self.tracking:
            self.tracking.tell_changes(session)
            self.tracking.keep_within_bounds()
            self.notifications.plan()
        if self.waiters:
            self.waiters.serve(self.databases, self.now_ms)
        else:
            for keyspace in self.databases:
                if keyspace.on_touch:
                    keyspace.on_touch.clear()

    def permit(self, session: Client, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise the NOPERM error, and note it, unless the session's user may run the line."""
        if session.transport == "rest" and spec.name in _FRAME:
            return
        try:
            session.user.check(spec, argv)
        except Denied as denied:
            context = "toplevel"
            if session.in_script:
                context = "lua"
            elif session.queue is not None or session.in_exec:
                context = "multi"
            self.log_denied(session, denied.reason, context, denied.object, session.user.name)
            raise

    def log_denied(
        self, session: Client, reason: str, context: str, object: bytes, name: str
    ) -> None:
        """Put a refusal into what ACL LOG shows."""
        client = self.describe(session).rstrip(b"\n")
        user = name.encode("utf-8", "surrogateescape")
        self.acl_log.add(reason, context, object, user, self.clock.now_us(), client)

    def _tolerates(self, spec: CommandSpec) -> bool:
        # The vendor's service takes UNLINK without keys, as its clients' users found.
        return spec.name == "UNLINK" and self.dialect == "vendor"

    def block(self, session: Client, blocked: Blocked) -> Waiter:
        """Let a session wait for what a blocking command returned.

        The transport waits on ``waiter.signal`` until ``waiter.done`` or its deadline, and
        calls ``unblock`` in any case.
        """
        with self.lock:
            waiter = Waiter(session, blocked, self.clock, self.running, self.line)
            self.waiters.add(waiter)
            self.note_touches()
            # Between the command and this, another client may have brought what it waits for.
            for key in blocked.keys:
                session.db.touch(key, "")
            self.waiters.serve(self.databases, self.now_ms)
            return waiter

    def unblock(self, waiter: Waiter) -> Reply:
        """End a wait; the reply, which is the command's own for a timeout when nothing came."""
        with self.lock:
            self.waiters.remove(waiter)
            self.note_touches()
            if waiter.spec is not None:
                self._count_waited(waiter, waiter.spec)
            return waiter.reply

    def _count_waited(self, waiter: Waiter, spec: CommandSpec) -> None:
        if isinstance(waiter.reply, CommandError):
            self.statistics.failed(spec, waiter.reply)
        if not waiter.tried:
            return  # as a real server: only what ran in the end is in the slow log
        usec = self.clock.now_us() - waiter.begun_us
        count = self.statistics.of(spec)
        count.usec += usec
        count.lengths[usec.bit_length()] += 1
        if usec >= self.config.patience_us:
            self._note_slow(waiter.session, spec, waiter.line, waiter.begun_us, usec)

    def abandon(self, session: Session) -> None:
        """Forget a session that ends: its transaction, what it watches, what it listens to."""
        with self.lock:
            self.forget_state(session)
            self.connected.pop(session.id, None)

    def forget_state(self, session: Client) -> None:
        """Take everything off a session that an ended connection would lose."""
        session.discard_transaction()
        self.pubsub.drop(session)
        if session.tracking is not None:
            self.tracking.stop(session)
            self.note_touches()
        if session.monitor is not None:
            self.monitors.remove(session.monitor)
            session.monitor = None

    def disconnect(self, session: Client) -> None:
        """Have a connection or event stream closed by its transport."""
        session.closing = True
        waiter = self.waiters.of(session.id)
        if waiter is not None:
            self.waiters.remove(waiter)
            waiter.finish(None)
        if session.wake is not None:
            session.wake()

    def show_commands(self, session: Client) -> None:
        """Push every command that runs to a session, as MONITOR shows it."""

        def show(at_us: int, other: Client, argv: list[bytes]) -> None:
            session.push([monitor_line(at_us, other, argv)])

        if session.monitor is None:
            session.monitor = show
            self.monitors.append(show)

    # -- users -----------------------------------------------------------------------------------

    def visitor(self) -> User:
        """The user of a new connection: ``default``, unless that takes a password."""
        default = self.users["default"]
        return default if default.on and default.passwordless else ANONYMOUS

    def holder_of(self, token: str) -> AclUser | None:
        """The user a REST token lets in at present."""
        found = self.rest_tokens.get(token)
        user = self.users.get(found.user) if found is not None else None
        if found is None or user is None or not user.accepts_token(found):
            return None
        return user

    def user_removed(self, user: AclUser) -> None:
        """End the tokens and the connections of a user that is gone."""
        for token in [token for token, held in self.rest_tokens.items() if held.user == user.name]:
            del self.rest_tokens[token]
        for session in (*self.clients(), *self.streaming.copy()):
            if session.user is user:
                self.disconnect(session)

    def cut_off_listeners(self, user: AclUser) -> None:
        """Close the connections of a user that listen to what the user may no longer listen to."""
        for session in (*self.clients(), *self.streaming.copy()):
            if session.user is user and any(
                not user.may_listen(name, kind == "pattern")
                for kind, names in session.subscriptions.items()
                for name in names
            ):
                self.disconnect(session)

    def passwordless(self, name: str) -> bool:
        """Whether a user needs no password."""
        user = self.users.get(name)
        return user is not None and user.passwordless

    def authenticate(self, name: str, password: bytes) -> User:
        """The user of that name; raises WRONGPASS unless it exists and the password is its own."""
        user = self.users.get(name)
        if user is None or not user.accepts(password):
            raise CommandError(WRONGPASS)
        return user

    # -- parameters ------------------------------------------------------------------------------

    def follow_config(self) -> None:
        """Begin or end what parameters ask for: counters of accesses, keyspace notifications."""
        self.notifications.follow_config()
        self.eviction.follow_config()
        number = self.config.number
        self.wants_replicas = bool(
            number("min-replicas-to-write") and number("min-replicas-max-lag")
        )
        self._refuses = self.offered is not None or self.eviction.most > 0 or self.wants_replicas
        if self.eviction.most:
            # What the new bound leaves no room for goes at once.
            self.eviction.has_room(self.clock.now_us() // 1000)
        self.note_touches()
        counts = self.config.text("maxmemory-policy").endswith("lfu")
        for keyspace in self.databases:
            if not counts:
                keyspace.frequencies = None
            elif keyspace.frequencies is None:
                keyspace.frequencies = Frequencies(self.config, self.random)

    # -- commands ----------------------------------------------------------------------------------

    def resolve(self, argv: list[bytes]) -> CommandSpec:
        """The command a line names; raises the unknown command or sub-command error."""
        spec = self._lookup.get(argv[0]) or self.table.find_family(argv)
        if spec is None or (spec.function is None and spec.subcommands is None):
            raise CommandError(unknown_command(argv))
        if spec.subcommands is not None and len(argv) > 1:
            found = spec.subcommands.get(argv[1].upper())
            if found is None or found.function is None:
                raise CommandError(unknown_subcommand(spec.name, argv[1]))
            return found
        return spec

    def offers(self, session: Client, spec: CommandSpec) -> bool:
        """Whether a session may know of a command at all."""
        return self.offered is None or spec.name in self.offered or session.transport == "local"

    def run(self, session: Client, spec: CommandSpec, argv: list[bytes]) -> Reply:
        """Run a command line that was checked already: arity, permission, availability."""
        start_us = self.clock.now_us()
        begins = not session.in_exec and not session.in_script
        if begins:
            self.now_us = start_us
            self.now_ms = session.db.now_ms = start_us // 1000
        if spec.function is None:
            raise CommandError(unknown_command(argv))
        self.running, self.line = spec, argv
        session.db.counts_reads = spec.reads_keys
        if self.monitors and spec.shown_first:
            self._show(session, argv, start_us)
        waits = False
        if begins:
            # What runs inside a transaction or a script is a part of it.
            running.left = budget.STEPS
        try:
            if self._capacity is not None and spec.write and session.transport != "local":
                self._capacity.check(session, spec, argv)
            if session.transport != "port":
                return spec.function(session, argv[spec.skip :])
            reply = self._run_of_port(session, spec, argv, start_us)
            waits = reply.__class__ is Blocked and bool(reply.keys)
            return reply
        except CommandError as error:
            self.statistics.failed(spec, error)
            raise
        except OverBudget as over:
            stopped = CommandError(over_budget(over))
            self.statistics.failed(spec, stopped)
            raise stopped from None
        finally:
            if begins:
                running.left = UNBOUNDED
            self._finish(session, spec, argv, start_us, waits)

    def _run_of_port(
        self, session: Client, spec: CommandSpec, argv: list[bytes], start_us: int
    ) -> Reply:
        """Run a command of a connection, which is listed, may track keys or leave no traces."""
        assert spec.function is not None
        session.last_us = start_us
        if not session.in_exec and not session.in_script:
            session.last_command = spec.full_name
        if session.tracking is not None:
            if session.in_exec or session.in_script:
                self.tracking.tell_changes(session, within=True)
            self.tracking.note(session, spec, argv)
        if not session.no_touch:
            return spec.function(session, argv[spec.skip :])
        keyspace = session.db
        kept, keyspace.accessed = keyspace.accessed, {}
        try:
            return spec.function(session, argv[spec.skip :])
        finally:
            for key, at_ms in keyspace.accessed.items():
                kept.setdefault(key, at_ms)
            keyspace.accessed = kept

    @contextmanager
    def reading(self) -> Iterator[Keyspace]:
        """Database 0 as it is now, while no other client runs commands."""
        with self.lock:
            self._look()
            yield self.databases[0]

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> EngineCopy:
        """A copy of all that commands can change: keys, scripts, users, tokens, parameters."""
        with self.lock:
            self._look()
            return EngineCopy(
                [keyspace.snapshot() for keyspace in self.databases],
                self.scripting.snapshot(),
                {name: user.copy() for name, user in self.users.items()},
                dict(self.rest_tokens),
                self.config.snapshot(),
            )

    def restore(self, saved: EngineCopy) -> None:
        """Put everything back to what it was at ``snapshot``; the copy stays usable.

        Raises ``ContractError`` for the copy of a server of the other dialect, or of a real one.
        """
        if not isinstance(saved, EngineCopy) or len(saved.databases) != len(self.databases):
            raise ContractError(
                "this snapshot is of another kind of kv_server: restore it on one with the same "
                "dialect= and engine= as where it was taken"
            )
        with self.lock:
            self._look()
            for keyspace, content in zip(self.databases, saved.databases, strict=True):
                keyspace.restore(content)
            self.scripting.restore(saved.scripting)
            self._restore_users(saved.users)
            self.rest_tokens = dict(saved.rest_tokens)
            self.config.restore(saved.config)
            self.follow_config()
            self.note_touches()
            if self.tracking:
                self.tracking.tell_all()
            if self.waiters:
                self.waiters.serve(self.databases, self.now_ms)

    def records(self) -> Iterator[Record]:
        """Yield every key, database by database; the caller holds the lock."""
        from ..rdb.file import Record

        self._look()
        for keyspace in self.databases:
            keyspace.purge()
            for key, value in keyspace.values.items():
                yield Record(keyspace.index, key, value, keyspace.expiry(key))

    def can_hold(self, value: Any) -> bool:
        """Return whether this server has the type of a value: JSON is that of a module."""
        return type_name(value) != "ReJSON-RL" or "JSON.SET" in self.table.commands

    def adopt(self, records: Iterable[Record], libraries: list[bytes]) -> None:
        """Put keys and libraries in, all or none; those of the same names are replaced.

        A key whose expiry has passed is left out. Raises ``CommandError`` for a library that does not
        load.
        """
        with self.lock:
            self._look()
            self.scripting.add_libraries(libraries, b"REPLACE")
            for index, key, value, expires_ms, idle_s, frequency in records:
                keyspace = self.databases[index]
                keyspace.put_back(key, value, expires_ms)
                if key in keyspace.values:
                    if idle_s:
                        keyspace.accessed[key] = self.now_ms - idle_s * 1000
                    if frequency is not None and keyspace.frequencies is not None:
                        keyspace.frequencies.put(key, frequency, self.now_ms)
            if self._notes_touches:
                self._after(None)

    def reset_statistics(self) -> None:
        """Begin the figures of commands and of keys anew; the slow log stays."""
        self.statistics.reset()
        for keyspace in self.databases:
            keyspace.expired = keyspace.hits = keyspace.misses = 0
        self.eviction.evicted = 0

    def forget_past(self) -> None:
        """Begin figures and logs anew and end a pause of the port: what no copy holds."""
        with self.lock:
            self.statistics = Statistics()
            self.acl_log.clear()
            self.searches.clear()
            self.last_save_us = self.started_us
            self.reset_statistics()
            self.active_expire = True
            self.pauses.end()

    def _restore_users(self, saved: dict[str, AclUser]) -> None:
        # Who is logged in holds the user itself, so those that stay must stay the same objects.
        for name in [name for name in self.users if name not in saved]:
            self.user_removed(self.users.pop(name))
        for name, user in saved.items():
            if name in self.users:
                self.users[name].adopt(user)
            else:
                self.users[name] = user.copy()

    def remove_expired(self) -> None:
        """Remove what is expired by now, without waiting for an access."""
        if not self.active_expire:
            return
        with self.lock:
            self._look()
            for keyspace in self.databases:
                keyspace.purge()
            if self._notes_touches:
                self._after(None)

    def _look(self) -> None:
        self.now_us = self.clock.now_us()
        self.now_ms = self.now_us // 1000
        for keyspace in self.databases:
            keyspace.now_ms = self.now_ms

    def _finish(
        self, session: Client, spec: CommandSpec, argv: list[bytes], start_us: int, waits: bool
    ) -> None:
        statistics = self.statistics
        count = statistics.commands.get(spec)
        if count is None:
            count = statistics.of(spec)
        count.calls += 1
        usec = self.clock.now_us() - start_us
        if self.slept_us:
            usec += self.slept_us
            self.slept_us = 0
        # What a command took that waits is known when its wait is over.
        if not waits:
            count.usec += usec
            count.lengths[usec.bit_length()] += 1
            if usec >= self.config.patience_us:
                self._note_slow(session, spec, argv, start_us, usec)
        if self.monitors and not spec.hidden:
            self._show(session, argv, start_us)

    def _show(self, session: Client, argv: list[bytes], at_us: int) -> None:
        for monitor in self.monitors:
            monitor(at_us, session, argv)

    def _note_slow(
        self, session: Client, spec: CommandSpec, argv: list[bytes], start_us: int, usec: int
    ) -> None:
        slower = self.config.number("slowlog-log-slower-than")
        if 0 <= slower <= usec and not spec.unlogged:
            longest = self.config.number("slowlog-max-len")
            self.statistics.add_slow(session, argv, start_us, usec, longest)
        threshold_ms = self.config.number("latency-monitor-threshold")
        if threshold_ms and usec >= threshold_ms * 1000:
            event = "fast-command" if "fast" in spec.flags else "command"
            samples = self.statistics.latency.setdefault(event, [])
            samples.append((start_us // 1_000_000, usec // 1000))
            del samples[:-160]
