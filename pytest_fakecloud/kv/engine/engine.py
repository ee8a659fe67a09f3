"""The in-memory engine: executes command lines, without HTTP and without the wall clock."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import budget
from ...core.budget import UNBOUNDED, OverBudget
from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ..acl import AclUser
from ..errors import CLIENT_LEFT, CommandError, over_budget
from ..model import Transport
from ..reply import QUEUED, Blocked, Reply, with_17_digits
from ..scripting.runs import Turns
from ..settings import VERSION, KVConfig
from ..table.config import Config
from ..table.registry import CommandSpec, function_of, table_of
from ..table.versions import SHORTEST_DOUBLES
from .blocking import Admission, Changes, Pauses, Waiter
from .keyspace import Keyspace, KeyspaceCopy, type_name
from .pubsub import Notifications, PubSub, Tracking
from .session import Monitor, Session, Sessions, Users, UsersCopy, client_line
from .usage import Capacity, Eviction, Frequencies, Sizes, Statistics

if TYPE_CHECKING:
    from ..scripting.scripts import Scripting, ScriptingCopy
    from ..search.index import Search

_SEARCHES = frozenset({
    b"SEARCH.QUERY", b"SEARCH.COUNT", b"SEARCH.AGGREGATE", b"SEARCH.DESCRIBE",
    b"SEARCH.WAITINDEXING",
})  # fmt: skip
"""Commands that update the search index before they run."""


class EngineCopy(NamedTuple):
    """A copy of everything that commands can change."""

    databases: list[KeyspaceCopy]
    scripting: ScriptingCopy
    users: UsersCopy
    config: Mapping[str, str]


class Engine:
    """An in-memory key-value store: ``execute()`` takes a command line and returns its reply.

    In the vendor's dialect, it has one database, otherwise sixteen. Limits and ``documented_only``
    restrict clients, but not the test. ``started_us`` is the start time to report, in microseconds
    since the Unix epoch. A single re-entrant ``lock`` guards all state.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        settings: KVConfig | None = None,
        started_us: int | None = None,
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.settings = settings = settings or KVConfig()
        self.dialect = dialect = settings.dialect
        self.version = settings.version or VERSION[dialect]
        self.table = table_of(dialect, self.version, tuple(settings.modules))
        """The command table of the reported version, which also lists the changes that apply to it."""
        self._lookup = self.table.lookup
        self.print_double = None if self.table.knows[SHORTEST_DOUBLES] else with_17_digits
        """Function that formats floating-point numbers for replies; None to leave them unchanged."""
        self.searches: deque[Search] = deque(maxlen=1000)
        """Searches made by clients, newest last."""
        self.lock = threading.RLock()
        self.random = ids.stream("kv", "random")
        self.config = Config(dialect, self.table, debug_command=settings.debug_command)
        self.databases = [Keyspace(index) for index in range(1 if dialect == "vendor" else 16)]
        self.sizes = Sizes(self.databases, lambda: self.changes.start_or_stop())
        self._capacity = Capacity(settings, self.sizes) if settings.bounds_data else None
        self.started_us = clock.now_us() if started_us is None else started_us
        self.now_us = self.started_us
        """Time in microseconds, which is constant during a command, script or transaction."""
        self.now_ms = self.now_us // 1000
        self.statistics = Statistics(self.config)
        self.last_save_us = self.started_us
        self.active_expire = True
        """Whether expired keys are removed without being accessed (DEBUG SET-ACTIVE-EXPIRE)."""
        self.pauses = Pauses(self)
        self.pubsub = PubSub()
        self.turns = Turns(self)
        self.monitors: list[Monitor] = []
        self.eviction = Eviction(self.databases, self.sizes, self.config, self.random)
        self.can_listen: Callable[[int], bool] = lambda port: True
        """Function that returns whether the database port could listen on another port number."""
        self.waiters: dict[int, Waiter] = {}
        """The blocked clients by session ID."""
        self.sessions = Sessions(self.waiters)
        self.streaming = self.sessions.streaming
        self.users = Users(self)
        self.tracking = Tracking(self.sessions.connected, self.config, self.databases)
        self.notifications = Notifications(self)
        self.changes = Changes(self)
        self.admission = Admission(self, settings.documented_only)
        self.running: CommandSpec | None = None
        """The running command or, between commands, the last one."""
        self.line: list[bytes] = []
        """The command line of ``running``."""
        self._session_ids = itertools.count(1)

    @cached_property
    def scripting(self) -> Scripting:
        """The scripts and function libraries."""
        # Imported here, because few tests run scripts.
        from ..scripting.scripts import Scripting

        # setdefault() gives threads that arrive together the same object.
        made: Scripting = vars(self).setdefault("scripting", Scripting(self))
        return made

    # -- sessions ----------------------------------------------------------------------------------

    def session(
        self,
        user: AclUser | None = None,
        transport: Transport = "local",
        address: str = "",
        at_us: int | None = None,
    ) -> Session:
        """Open a session on database 0, by default for the user ``default``."""
        # Do not take the lock, so that a client can connect and kill a script that holds it.
        user = user or self.users["default"]
        began_us = self.clock.now_us() if at_us is None else at_us
        number = next(self._session_ids)
        session = Session(self, user, self.databases[0], transport, address, number, began_us)
        if transport == "port":
            self.sessions.connected[session.id] = session
        return session

    def describe(self, session: Session, running: str = "") -> bytes:
        """Return a client's line in CLIENT LIST; ``running`` is the command if the client sent it."""
        waits = session.id in self.waiters or session.id in self.pauses.delayed
        libraries = self.table.knows["CLIENT LIST lib-name"]
        return client_line(session, self.now_us, waits=waits, running=running, libraries=libraries)

    def abandon(self, session: Session) -> None:
        """Remove an ended session, and discard its transaction, watched keys and subscriptions."""
        with self.lock:
            self.forget_state(session)
            self.sessions.connected.pop(session.id, None)

    def forget_state(self, session: Session) -> None:
        """Discard a session's transaction, watched keys, subscriptions, tracking and MONITOR."""
        session.discard_transaction()
        self.pubsub.drop(session)
        if session.tracking is not None:
            self.tracking.stop(session)
            self.changes.start_or_stop()
        if session.monitor is not None:
            self.monitors.remove(session.monitor)
            session.monitor = None

    # -- running commands ------------------------------------------------------------------------

    def execute(self, session: Session, argv: list[bytes]) -> Reply:
        """Run a client's command line, or queue it in a transaction; raise ``CommandError``."""
        if session.db.indexes is not None:
            self.index_ahead(session, argv)
        if not self.lock.acquire(False) and not self.turns.wait(argv):
            return self.run_during_script(session, argv)
        try:
            spec = self._lookup.get(argv[0])
            if (
                spec is None
                or not spec.is_plain
                or session.queue is not None
                or not session.user.unrestricted
                or self.admission.strict
                or not spec.least <= len(argv) <= spec.most
            ):
                # Otherwise, ``admit()`` would find nothing to reject.
                spec = self.admission.admit(session, argv)
                if spec is None:
                    return QUEUED
            # All commands of a transaction or script share this budget of steps.
            steps = budget.of_thread.own
            steps.left = budget.STEPS
            try:
                return self.run(session, spec, argv)
            finally:
                steps.left = UNBOUNDED
                if self.changes.recording:
                    self.changes.process(session, self.now_ms)
        finally:
            self.lock.release()

    def run(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> Reply:
        """Run a command line that has passed the checks of arity, permission and availability."""
        start_us = self.clock.now_us()
        if not session.in_exec and not session.in_script:
            self.now_us = start_us
            self.now_ms = session.db.now_ms = start_us // 1000
        function = spec.function
        if function is None:
            function = function_of(spec)
            assert function is not None
        self.running, self.line = spec, argv
        session.db.counts_reads = spec.reads_keys
        if self.monitors and "skip_monitor" in spec.flags:
            for monitor in self.monitors:
                monitor(start_us, session, argv)
        waits = False
        try:
            if self._capacity is not None and spec.write and session.transport != "local":
                self._capacity.check(session, spec, argv)
            if session.transport != "port":
                return function(session, argv[spec.arguments])
            reply = self._run_of_port(session, spec, argv, start_us)
            waits = reply.__class__ is Blocked and not reply.is_delay
            return reply
        except CommandError as error:
            self.statistics.count_failure(spec, error)
            raise
        except OverBudget as over:
            stopped = CommandError(over_budget(over))
            self.statistics.count_failure(spec, stopped)
            raise stopped from None
        finally:
            count = self.statistics.commands[spec]
            count.calls += 1
            usec = self.clock.now_us() - start_us
            if self.pauses.command_sleep_us:
                usec += self.pauses.command_sleep_us
                self.pauses.command_sleep_us = 0
            # The duration of a blocked command is recorded when its wait ends.
            if not waits:
                # This repeats `record_duration()`, because calls cost 3 % of a SET each.
                count.usec += usec
                count.calls_by_bits[usec.bit_length()] += 1
                if usec >= self.config.slow_threshold_us:
                    self.statistics.note_slow(session, spec, argv, start_us, usec)
            if self.monitors and not spec.hidden:
                for monitor in self.monitors:
                    monitor(start_us, session, argv)

    def _run_of_port(
        self, session: Session, spec: CommandSpec, argv: list[bytes], start_us: int
    ) -> Reply:
        """Run a command of the database port, with CLIENT TRACKING and CLIENT NO-TOUCH."""
        assert spec.function is not None
        session.last_us = start_us
        if not session.in_exec and not session.in_script:
            session.last_command = spec.full_name
        if session.tracking is not None:
            if session.in_exec or session.in_script:
                self.tracking.invalidate_changed(session, within=True)
            self.tracking.note(session, spec, argv)
        if not session.no_touch:
            return spec.function(session, argv[spec.arguments])
        keyspace = session.db
        kept, keyspace.accessed = keyspace.accessed, {}
        try:
            return spec.function(session, argv[spec.arguments])
        finally:
            for key, at_ms in keyspace.accessed.items():
                kept.setdefault(key, at_ms)
            keyspace.accessed = kept

    def give_way(self) -> None:
        self.turns.give_way()

    def index_ahead(self, session: Session, argv: list[bytes]) -> None:
        """Update the index of a search in steps between other clients, except in transactions."""
        indexes = session.db.indexes
        inside = session.queue is not None or session.in_exec or session.in_script
        if indexes is None or inside or len(argv) < 2:
            return
        if (name := argv[0].upper()) not in _SEARCHES:
            return
        while self.turns.take(argv):
            try:
                self.update_time()
                if indexes.catch_up(session.db, argv[1], whole=name == b"SEARCH.WAITINDEXING"):
                    return
            finally:
                self.lock.release()
            if session.closing or (session.has_left is not None and session.has_left()):
                raise CommandError(CLIENT_LEFT)
            self.give_way()

    def run_during_script(self, session: Session, argv: list[bytes]) -> Reply:
        """Run a line during a script, which holds the lock; raise ``CommandError`` for most lines."""
        spec = self.admission.admit(session, argv, during_script=True)
        if spec is None:
            return QUEUED
        function = function_of(spec)
        assert function is not None
        return function(session, argv[spec.arguments])

    def lacks_memory(self, session: Session) -> bool:
        """Return whether a client, unlike the test, lacks memory even after keys were evicted."""
        if not self.eviction.limit or session.transport == "local":
            return False
        has_room = self.eviction.make_room(self.clock.now_us() // 1000)
        if self.tracking:
            self.tracking.invalidate_evicted()
        return not has_room

    # -- blocked clients ---------------------------------------------------------------------------

    def block(self, session: Session, blocked: Blocked) -> Waiter:
        """Register a session as blocked; the transport must call ``unblock()`` in any case."""
        with self.lock:
            spec = None if blocked.is_delay else self.running
            begun_us, signal = self.clock.now_us(), self.clock.signal()
            waiter = Waiter(session, blocked, spec, self.line, begun_us, signal, blocked.on_timeout)
            self.waiters[session.id] = waiter
            self.changes.start_or_stop()
            # Another client may have written a key since the command ran, so retry once now.
            for key in blocked.keys:
                session.db.touch(key, "")
            self.changes.serve_waiters(self.now_ms)
            return waiter

    def unblock(self, waiter: Waiter) -> Reply:
        """Return the reply to a client that was blocked: of the retried command, or of the timeout."""
        with self.lock:
            self.waiters.pop(waiter.session.id, None)
            self.changes.start_or_stop()
            if waiter.spec is not None:
                if isinstance(waiter.reply, CommandError):
                    self.statistics.count_failure(waiter.spec, waiter.reply)
                # The slow log of a real server lists blocking commands only if a retry ran them.
                if waiter.tried:
                    at_us = waiter.begun_us
                    self.statistics.record_duration(
                        waiter.session, waiter.spec, waiter.line, at_us, self.clock.now_us() - at_us
                    )
            return waiter.reply

    # -- data --------------------------------------------------------------------------------------

    def database(self, index: int) -> Keyspace:
        """Return a database, after setting its time to that of the running command."""
        keyspace = self.databases[index]
        keyspace.now_ms = self.now_ms
        return keyspace

    @contextmanager
    def reading(self) -> Iterator[Keyspace]:
        """Context manager that provides database 0 at the current time and holds the engine's lock."""
        with self.lock:
            self.update_time()
            yield self.databases[0]

    def can_hold(self, value: Any) -> bool:
        """Return whether the server supports a value's type. JSON needs a module."""
        return type_name(value) != "ReJSON-RL" or "JSON.SET" in self.table.commands

    def snapshot(self) -> EngineCopy:
        """Return a copy of all that commands can change: keys, scripts, users, tokens, parameters."""
        with self.lock:
            self.update_time()
            return EngineCopy(
                [keyspace.snapshot() for keyspace in self.databases],
                self.scripting.snapshot(),
                self.users.snapshot(),
                self.config.snapshot(),
            )

    def restore(self, saved: EngineCopy) -> None:
        """Restore the state that ``snapshot()`` copied. The same copy can be restored again.

        Raises ``ContractError`` for a copy of the other dialect or of a real server.
        """
        if not isinstance(saved, EngineCopy) or len(saved.databases) != len(self.databases):
            raise ContractError(
                "this snapshot is of another kind of kv_server: restore it on a server with the same "
                "dialect= and engine= as the original"
            )
        with self.lock:
            self.update_time()
            self.config.restore(saved.config)
            # The policy decides whether keys have access counters, which are restored next.
            self.follow_policy()
            for keyspace, content in zip(self.databases, saved.databases, strict=True):
                keyspace.restore(content)
            self.scripting.restore(saved.scripting)
            self.users.restore(saved.users)
            self.follow_config()
            if self.tracking:
                self.tracking.invalidate_all()
            if self.waiters:
                self.changes.serve_waiters(self.now_ms)

    def remove_expired(self) -> None:
        """Remove all expired keys, unless ``DEBUG SET-ACTIVE-EXPIRE 0`` is in effect."""
        if not self.active_expire:
            return
        with self.lock:
            self.update_time()
            for keyspace in self.databases:
                keyspace.purge()
            if self.changes.recording:
                self.changes.process(None, self.now_ms)

    def update_time(self) -> None:
        self.now_us = self.clock.now_us()
        self.now_ms = self.now_us // 1000
        for keyspace in self.databases:
            keyspace.now_ms = self.now_ms

    # -- parameters ------------------------------------------------------------------------------

    def follow_config(self) -> None:
        self.notifications.follow_config()
        self.eviction.follow_config()
        self.admission.follow_config()
        if self.eviction.limit:
            # Evict keys immediately if the memory limit was lowered.
            self.eviction.make_room(self.clock.now_us() // 1000)
        self.changes.start_or_stop()
        self.follow_policy()

    def follow_policy(self) -> None:
        """Count accesses of keys if the eviction policy needs them, otherwise forget the counters."""
        counts = self.config.text("maxmemory-policy").endswith("lfu")
        for keyspace in self.databases:
            if not counts:
                keyspace.frequencies = None
            elif keyspace.frequencies is None:
                keyspace.frequencies = Frequencies(self.config, self.random)

    # -- statistics --------------------------------------------------------------------------------

    def reset_statistics(self) -> None:
        """Reset the statistics of commands and keys, but not the slow log."""
        self.statistics.reset()
        for keyspace in self.databases:
            keyspace.expired = keyspace.hits = keyspace.misses = 0
        self.eviction.evicted = 0

    def forget_past(self) -> None:
        """Clear statistics and logs, and end CLIENT PAUSE. Snapshots do not contain this state."""
        with self.lock:
            self.statistics = Statistics(self.config)
            self.users.log.clear()
            self.searches.clear()
            self.last_save_us = self.started_us
            self.reset_statistics()
            self.active_expire = True
            self.pauses.end()
