"""The in-memory engine: executes command lines, without HTTP and without the wall clock."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, overload

from ...core import budget
from ...core.budget import OverBudget
from ...core.clock import Timekeeper
from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.registry import Registry
from .. import errors
from ..acl import AclUser, RestToken
from ..config import Config
from ..errors import CommandError, Redirection, as_reply
from ..model import Interface
from ..reply import QUEUED, Blocked, Reply, with_17_digits
from ..scripting.scripts import Scripting
from ..settings import VERSION, KVConfig
from ..table.exceptions import FREE_ARITIES
from ..table.over_rest import check_over_rest
from ..table.registry import CommandSpec, command_table
from ..table.versions import SHORTEST_DOUBLES
from ..values.types import type_name
from .cluster import Cluster
from .execution import Execution
from .keyspace import Frequencies, Keyspace, KeyspaceCopy
from .limits import Capacity, Memory, Sizes
from .messages import Notifications, PubSub, Tracking
from .replication import Replication, ReplicationCopy
from .sessions import RUN_IN_TRANSACTION, CommandListener, Monitor, Pauses, Session, Users, Waiter
from .statistics import Statistics
from .turns import CommandTurns, ScriptRunning

if TYPE_CHECKING:
    from ...core.signals import Signal
    from ..scripting.scripts import ScriptingCopy
    from ..search.index import Indexes, Search

Check: TypeAlias = Callable[[Session, CommandSpec, list[bytes]], None]
"""A function that raises ``CommandError`` to reject a line."""
_NEEDED_COMMANDS = {"ReJSON-RL": "JSON.SET", "array": "ARSET", "vectorset": "VADD"}
"""For each type that not every server has, one of its commands."""
_MAY_WHILE_SUBSCRIBED = frozenset({
    "PING", "PSUBSCRIBE", "PUNSUBSCRIBE", "QUIT", "RESET", "SSUBSCRIBE", "SUBSCRIBE",
    "SUNSUBSCRIBE", "UNSUBSCRIBE",
})  # fmt: skip


def _is_queued(session: Session, spec: CommandSpec) -> bool:
    """Return whether a command waits for EXEC in its client's transaction."""
    return session.is_queuing and spec.name not in RUN_IN_TRANSACTION


def _queue(session: Session, spec: CommandSpec, line: list[bytes]) -> Reply:
    """Queue a command in a transaction, unless the transaction will fail in any case."""
    transaction = session.transaction
    if transaction is not None and not (transaction.aborted or session.watch_broken):
        transaction.queue.append((spec, line))
    return QUEUED


def _check_listening(session: Session, spec: CommandSpec) -> None:
    """Raise ``CommandError`` for a command that a subscribed client of RESP2 may not send."""
    listens = session.resp == 2 and any(session.subscriptions.values())
    if listens and spec.name not in _MAY_WHILE_SUBSCRIBED:
        raise CommandError(errors.listeners_may_not(spec.full_name))


class EngineCopy(NamedTuple):
    """A copy of everything that commands can change."""

    databases: list[KeyspaceCopy]
    scripting: ScriptingCopy
    users: tuple[dict[str, AclUser], dict[str, RestToken]]
    config: Mapping[str, str]
    topology: ReplicationCopy | None = None


def _node_ids(ids: Ids) -> Callable[[], str]:
    return partial(ids.stream("kv", "nodes").hex, 40)


class KVEngine:
    """An in-memory key-value store: ``reply_to()`` takes a client's command line and returns its reply.

    In the vendor's dialect, it has one database, otherwise sixteen. Limits and ``documented_only``
    restrict clients, but not the test. A single re-entrant ``lock`` guards all state.
    """

    def __init__(self, clock: Timekeeper, ids: Ids, settings: KVConfig) -> None:
        self.clock = clock
        self.ids = ids
        self.settings = settings
        self.dialect = dialect = settings.dialect
        self.version = settings.version or VERSION[dialect]
        self.table = command_table(dialect, self.version, tuple(settings.modules))
        """The command table of the reported version, which also lists the changes that apply to it."""
        self.print_double = None if self.table.knows[SHORTEST_DOUBLES] else with_17_digits
        """Function that formats floating-point numbers for replies; None to leave them unchanged."""
        self.searches: deque[Search] = deque(maxlen=1000)
        """Searches made by clients, newest last."""
        self.random = ids.stream("kv", "random")
        self.cluster: Cluster | None = None
        """The nodes of a cluster, and their slots; None unless the server is one."""
        self.topology: Replication | None = None
        """The nodes of a server with several; None for a server with one address."""
        if settings.cluster:
            self.topology = self.cluster = Cluster(
                int(settings.cluster), settings.replicas, _node_ids(ids)
            )
        elif settings.sentinel:
            self.topology = Replication(1, settings.replicas, _node_ids(ids))
        self.config = Config(
            dialect,
            self.table,
            debug_command=settings.debug_command,
            is_cluster=self.cluster is not None,
        )
        self.started_us = clock.now_us()
        self.last_save_us = self.started_us
        self.execution = Execution(self.started_us)
        numbers = range(1 if dialect == "vendor" else 16)
        self.databases = [Keyspace(number, self.execution) for number in numbers]
        self.statistics = Statistics(self.config)
        self.active_expire = True
        """Whether expired keys are removed without being accessed (DEBUG SET-ACTIVE-EXPIRE)."""
        self.pauses = Pauses(clock)
        self.pubsub = PubSub()
        self.notifications = Notifications(self.pubsub)
        self.scripting = Scripting(self)
        self.turns = CommandTurns(self.databases, self.scripting.runs_now)
        self.lock = self.turns.lock
        self.monitors: list[Monitor] = []
        self.listeners: Registry[CommandListener] = Registry()
        self.memory = Memory(self.databases, self.config, self.random)
        self.can_listen: Callable[[int], bool] = lambda port: True
        """Function that returns whether the database port could listen on another port number."""
        self.waiters: dict[int, Waiter] = {}
        """The blocked clients by session ID."""
        self.connected: dict[int, Session] = {}
        """Sessions of the database port by client ID."""
        self.streaming: set[Session] = set()
        self.users = Users(self.connected, self.streaming, dialect, self.table)
        self.tracking = Tracking(self.connected, self.config, self.databases)
        self._needs_replicas = False
        self._measures_keys = False
        self._records_changes = False
        """Whether keyspaces record changed keys, because a client or an index depends on them."""
        self._expiry_timer_us: int | None = None
        """Time in microseconds of the pending timer for the next expiry, or None."""
        self._disconnect_timer_us: int | None = None
        """Time in microseconds of the pending timer that disconnects idle clients, or None."""
        self._session_ids = itertools.count(1)
        self._capacity: Capacity | None = None
        bounds = settings.max_key_size, settings.max_record_size, settings.max_data_size
        if bounds != (None, None, None):
            sizes = None if settings.max_data_size is None else self.sizes
            self._capacity = Capacity(settings, sizes)

    @cached_property
    def sizes(self) -> Sizes:
        """The memory and the contents of all keys. From the first use on, keyspaces record changes."""
        self._measures_keys = True
        self.record_changes()
        return Sizes(self.databases)

    def session(
        self,
        user: AclUser | None = None,
        interface: Interface = "local",
        address: str = "",
        at_us: int | None = None,
    ) -> Session:
        """Open a session on database 0, by default for the user ``default``."""
        # Do not take the lock, so that a client can connect and kill a script that holds it.
        user = user or self.users.default
        at_us = self.clock.now_us() if at_us is None else at_us
        number = next(self._session_ids)
        session = Session(self, user, self.databases[0], interface, address, number, at_us)
        if interface == "port":
            self.connected[session.id] = session
            self._plan_disconnect()
        return session

    def set_password(self, password: bytes) -> None:
        """Set the password of the user ``default``."""
        self.users.default.set_password(password)

    def abandon(self, session: Session) -> None:
        self.turns.in_turn(None, self._abandon, session)

    def _abandon(self, session: Session) -> None:
        self.forget_state(session)
        self.connected.pop(session.id, None)

    def forget_state(self, session: Session) -> None:
        session.discard_transaction()
        self.pubsub.drop(session)
        if session.tracking is not None:
            self.tracking.stop(session)
            self.record_changes()
        if session.monitor is not None:
            self.monitors.remove(session.monitor)
            session.monitor = None

    # -- running commands ------------------------------------------------------------------------

    def execute(self, session: Session, line: list[bytes]) -> Reply:
        """Execute a command line of the test; raise ``CommandError``."""
        reply = self.reply_to(session, line)
        if not isinstance(reply, CommandError):
            return reply
        try:
            raise reply
        finally:
            del reply  # The error's traceback refers to this frame.

    @overload
    def reply_to(self, session: Session, line: list[bytes]) -> Reply: ...
    @overload
    def reply_to(self, session: Session, line: list[bytes], signal: Signal) -> Reply | Waiter: ...
    def reply_to(
        self, session: Session, line: list[bytes], signal: Signal | None = None
    ) -> Reply | Waiter:
        """Return the reply to a client's command line, which can be an error. A client that may wait
        passes the ``signal`` that wakes it, and gets its wait instead if the command blocks.

        Before another client gets its turn, the wait is registered, or the place of the reply reserved,
        so that the wait misses no change, and no message overtakes the reply. There is no such order
        between the messages of a script and the reply to a line that does not wait for it.
        """
        try:
            if session.db.indexes is not None:
                self._index_ahead(session, session.db.indexes, line)
            return self.turns.in_turn(line, self._run_line, session, line, signal)
        except ScriptRunning:
            return self._reply_during_script(session, line)

    def _run_line(
        self, session: Session, line: list[bytes], signal: Signal | None
    ) -> Reply | Waiter:
        """Run a line, or queue it in a transaction, while the lock is held."""
        reply: Reply
        steps = budget.begin()  # which all commands of a transaction or script share
        try:
            spec = self._accept(session, line, self._check_state)
            if session.transaction is not None and _is_queued(session, spec):
                reply = _queue(session, spec, line)
            else:
                reply = self.run(session, spec, line)
        except CommandError as error:
            reply = as_reply(error)
        finally:
            steps.left = budget.UNBOUNDED
            if self._records_changes:
                self.process_changes(session)
        if signal is None:
            return reply
        if isinstance(reply, Blocked):
            return self.block(session, reply, signal)
        if session.connection is not None:
            session.connection.reserve()
        return reply

    def _reply_during_script(self, session: Session, line: list[bytes]) -> Reply:
        """Return the reply to a line that does not wait for the script of another client, which holds
        the lock: one that kills the script or asks about it. All others get BUSY. Such lines touch no
        data, so they need not be run like others (``run()``), and do not count in INFO.
        """
        try:
            spec = self._accept(session, line, self._check_during_script)
            if _is_queued(session, spec):
                return _queue(session, spec, line)
            session.command, session.line = spec, line
            return spec.call(session, line)
        except CommandError as error:
            return as_reply(error)

    def run(
        self, session: Session, spec: CommandSpec, line: list[bytes], *, is_inner: bool = False
    ) -> Reply:
        """Run a command line that was accepted. That of a transaction or a script is an inner one, whose
        time is that of EXEC or the script.
        """
        start_us = self.clock.now_us()  # later than its call if the command has waited for its turn
        execution = self.execution
        if not is_inner:
            execution.now_us, execution.now_ms = start_us, start_us // 1000
        execution.spec = spec
        execution.counts_reads = spec.counts_reads
        execution.notes_accesses = not session.no_touch
        session.command, session.line, session.last_us = spec, line, start_us
        for listener in self.listeners.items:
            listener(session, spec, line)
        if self.monitors and "skip_monitor" in spec.flags:
            # EXEC and scripts are shown before the commands that they run.
            self._show_to_monitors(start_us, session, line)
        reply: Reply = None
        try:
            if spec.write:
                self._check_size_limits(session, spec, line)
            if session.tracking is not None:
                self._note_tracked(session, spec, line)
            reply = spec.call(session, line)
            return reply
        except CommandError as error:
            self.statistics.count_failure(spec, error)
            raise
        except OverBudget as over:
            stopped = CommandError(errors.over_budget(over))
            self.statistics.count_failure(spec, stopped)
            raise stopped from None
        finally:
            execution.counts_reads, execution.notes_accesses = False, True
            if isinstance(reply, Blocked) and not reply.is_delay:
                # The duration is recorded when the wait ends.
                self.statistics.commands[spec].unmeasured += 1
            else:
                usec = self.clock.now_us() - start_us
                if self.pauses.command_sleep_us:
                    usec += self.pauses.command_sleep_us
                    self.pauses.command_sleep_us = 0
                self.statistics.record(session, spec, line, start_us, usec)
            if self.monitors and not spec.hidden:
                self._show_to_monitors(start_us, session, line)

    def _show_to_monitors(self, at_us: int, session: Session, line: list[bytes]) -> None:
        for monitor in self.monitors:
            monitor(at_us, session, line)

    def _check_size_limits(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``CommandError`` if a client's command may store more than the limits of the database
        allow. Not before it runs: commands before it in a transaction take room, too.
        """
        if session.interface == "local":
            return
        if self._capacity is not None:
            self._capacity.check(session.db, spec, line)
        if "denyoom" in spec.flags:
            self.memory.check(session.db, spec, line)

    def _note_tracked(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Note the keys of a client with CLIENT TRACKING."""
        if session.is_inner:
            self.tracking.invalidate_changed(session, within=True)
        self.tracking.note(session, spec, line)

    def _index_ahead(self, session: Session, indexes: Indexes, line: list[bytes]) -> None:
        """Update the index that a command reads in steps between other clients, except in transactions.
        The caller does not hold the lock.
        """
        spec = self.table.find(line)
        if spec is None or spec.group != "search" or spec.write:
            return
        if session.is_queuing or len(line) < 2:
            return
        whole = spec.name == "SEARCH.WAITINDEXING"

        def is_done() -> bool:
            self.update_time()
            return indexes.catch_up(session.db, line[1], whole=whole)

        # For a client that has left, the search indexes no more than its budget of steps allows.
        while not self.turns.in_turn(line, is_done) and not session.has_left():
            self.give_way()

    def give_way(self) -> None:
        """Let a waiting client run first. The caller must not hold the lock."""
        self.turns.give_way()

    # -- looking up and checking commands ----------------------------------------------------------

    def _accept(self, session: Session, line: list[bytes], check_state: Check) -> CommandSpec:
        """Return the command to run or to queue; raise ``CommandError`` to reject it. ``check_state`` is
        the last check, which is another while a script of another client holds the lock.
        """
        spec: CommandSpec | None = None
        try:
            session.last_spec = spec = self.table.find(line)
            if spec is None:
                raise self.table.unknown(line)
            # These checks are in the order of real servers.
            self.check_available(session, spec, line)
            if not session.user.unrestricted:
                self.users.permit(session, spec, line)
            if self.topology is not None:
                self.topology.check(session, spec, line)
            check_state(session, spec, line)
        except CommandError as error:
            session.abort_transaction()
            self.statistics.count_rejection(spec, error)
            if spec is not None and spec.name == "EXEC":
                session.discard_transaction()
                if not isinstance(error, Redirection):
                    raise CommandError(errors.exec_aborted_by(error.text)) from None
            raise
        return spec

    def check_available(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``CommandError`` for a line that is invalid, or not available to any user."""
        if session.interface == "rest":
            check_over_rest(spec, line)
        if self.settings.documented_only and not self.offers(session, spec):
            raise CommandError(errors.not_available(spec.name))
        if not spec.least <= len(line) <= spec.most:
            arity_is_free = spec.name in FREE_ARITIES and self.dialect == "vendor"
            if not arity_is_free:
                raise CommandError(errors.wrong_arity(spec.full_name))
        if spec.protection and self.config.text(spec.protection) != "yes":
            raise CommandError(errors.disabled_by_option(spec.name.split()[0], spec.protection))

    def _check_state(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``CommandError`` for a line that the state of the server or of its client forbids, after
        an eviction for ``maxmemory``.
        """
        if self.memory.limit:
            self._evict_or_reject(session, spec)
        if self._needs_replicas:
            self._check_replicas(session, spec, line)
        if session.subscriptions:
            _check_listening(session, spec)
        if session.monitor is not None and (spec.write or spec.readonly):
            raise CommandError(errors.MONITORS_MAY_NOT)
        if (
            session.transaction is not None
            and "no_multi" in spec.flags
            and _is_queued(session, spec)
        ):
            raise CommandError(errors.NOT_IN_TRANSACTION)

    def _check_during_script(self, session: Session, spec: CommandSpec, _: list[bytes]) -> None:
        """Raise BUSY for a line that must wait for a script of another client."""
        _check_listening(session, spec)
        self.scripting.check_during_script(spec)

    def _evict_or_reject(self, session: Session, spec: CommandSpec) -> None:
        """Evict keys until ``maxmemory`` is kept; raise OOM for a line that needs memory if nothing more
        can be evicted.
        """
        if self.make_room(session):
            return
        needs_memory = "denyoom" in spec.flags
        if spec.name == "EXEC":
            needs_memory = any("denyoom" in command.flags for command, _ in session.queued_commands)
        elif session.is_queuing:
            # While a transaction is open, every line needs memory for the queue itself.
            needs_memory = spec.name not in RUN_IN_TRANSACTION
        if needs_memory:
            raise CommandError(errors.OOM)

    def _check_replicas(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise NOREPLICAS for a line that writes."""
        writes = spec.write or self.scripting.declares_writes(spec, line)
        if spec.name == "EXEC":
            writes = any(command.write for command, _ in session.queued_commands)
        self.check_replicas(session, writes)

    def offers(self, session: Session, spec: CommandSpec) -> bool:
        limited = self.settings.documented_only and session.interface != "local"
        return spec.documented or not limited

    def check_replicas(self, session: Session, writes: bool) -> None:
        """Raise NOREPLICAS for a client's write command if ``min-replicas-to-write`` is set."""
        if self._needs_replicas and writes and session.interface != "local":
            raise CommandError(errors.NOT_ENOUGH_REPLICAS)

    def make_room(self, session: Session) -> bool:
        """Evict keys for a client, as far as the policy allows; return whether the data is within
        ``maxmemory``. What the test itself does is never limited.
        """
        if session.interface == "local" or not self.memory.limit:
            return True
        if not session.is_inner:
            self.update_time()
        has_room = self.memory.make_room(self.sizes)
        if self.tracking:
            self.tracking.invalidate_evicted()
        return has_room

    def block(self, session: Session, blocked: Blocked, signal: Signal) -> Waiter:
        """Register a session as blocked until its client's ``signal`` wakes it; the interface must call
        ``unblock()`` in any case.
        """
        with self.lock:
            spec = None if blocked.is_delay else session.command
            waiter = Waiter(session, blocked, spec, session.line, self.clock.now_us(), signal)
            self.waiters[session.id] = waiter
            self.record_changes()
            self._plan_expiry()
            return waiter

    def unblock(self, waiter: Waiter) -> Reply:
        """Return the reply to a client that was blocked: of the retried command, or of the timeout."""
        with self.lock:
            if not waiter.done:  # Otherwise, finish() has reserved the place.
                waiter.session.reserve_reply()
            self.waiters.pop(waiter.session.id, None)
            self.record_changes()
            if waiter.spec is not None:
                if isinstance(waiter.reply, CommandError):
                    self.statistics.count_failure(waiter.spec, waiter.reply)
                # The slow log of a real server lists blocking commands only if a retry ran them.
                if waiter.tried:
                    usec = self.clock.now_us() - waiter.begun_us
                    self.statistics.record_wait(waiter.spec, waiter, usec)
            return waiter.reply

    # -- changed keys ------------------------------------------------------------------------------

    def record_changes(self) -> None:
        """Start or stop recording, whenever something that depends on changes is added or removed."""
        self._records_changes = bool(
            self.waiters
            or self.tracking
            or self.notifications
            or self._measures_keys
            or self.config.text("maxmemory-policy").endswith("lrm")
            or any(keyspace.indexes is not None for keyspace in self.databases)
        )
        for keyspace in self.databases:
            keyspace.record_changes(self._records_changes, for_tracking=bool(self.tracking))

    def process_changes(self, writer: Session | None = None) -> None:
        """Send invalidation messages for changed keys, and retry the commands blocked on them."""
        if self.tracking:
            self.tracking.invalidate_changed(writer)
            self.tracking.keep_within_bounds()
        if self.waiters:
            self._retry_waiters()
        else:
            for keyspace in self.databases:
                if keyspace.ready:
                    keyspace.ready.clear()
        self._plan_expiry()

    def _retry_waiters(self) -> None:
        """Retry the commands blocked on each ready key, the client that has waited longest first."""
        while ready := [(db, *item) for db in self.databases for item in (db.ready or {}).items()]:
            for db in self.databases:
                if db.ready is not None:
                    db.ready.clear()
            # As on a real server, it does not matter which keys a client awaits a type for.
            awaited = {kind for waiter in self.waiters.values() for kind in waiter.blocked.awaits}
            for db, key, kinds in ready:
                if kinds & awaited:
                    for waiter in list(self.waiters.values()):
                        if waiter.session.db is db and key in waiter.blocked.keys:
                            self._retry(waiter, [key])

    def _retry(self, waiter: Waiter, ready: list[bytes]) -> None:
        # A real server handles disconnected and timed-out clients before it runs later commands.
        if waiter.has_left:
            self.waiters.pop(waiter.session.id, None)
            waiter.signal.close()
            return
        if waiter.deadline_us <= self.execution.now_ms * 1000:
            return
        try:
            reply = waiter.blocked.attempt(ready)
        except CommandError as error:
            reply = as_reply(error)
        if reply is not None:
            self.waiters.pop(waiter.session.id, None)
            waiter.tried = True
            waiter.finish(reply)
            self.tracking.invalidate_changed(waiter.session)

    def _publish_event(self, keyspace: Keyspace, key: bytes, event: str | None) -> None:
        """Publish an event: None for that of the running command, ``""`` for none."""
        self.notifications.publish(
            keyspace.index, key, self.execution.event if event is None else event
        )

    def _publish_fields(
        self, keyspace: Keyspace, key: bytes, event: str | None, fields: list[bytes]
    ) -> None:
        """Publish the fields of an event: None for that of the running command."""
        self.notifications.publish_fields(
            keyspace.index, key, self.execution.event if event is None else event, fields
        )

    def _plan_expiry(self) -> None:
        """Set a timer for the next expiry, so that its effect does not need an access to the key, and
        for the next retry of a blocked command.
        """
        needs_timer = self.notifications.include_expiry or self.tracking or self.waiters
        if not needs_timer or not self.active_expire:
            return
        dues = [due for db in self.databases if (due := db.next_expiry()) is not None]
        dues += [due for due, _ in self._retries()]
        due_us = min(dues, default=0) * 1000
        if dues and (self._expiry_timer_us is None or due_us < self._expiry_timer_us):
            self._expiry_timer_us = due_us
            expire = partial(KVEngine._expire, weakref.ref(self))
            self.clock.call_at(due_us, expire, lane="background", label="keys expire")

    def _retries(self) -> list[tuple[int, Waiter]]:
        """Return the time in milliseconds at which each blocked command can be retried that has one."""
        return [
            (due, waiter)
            for waiter in self.waiters.values()
            if waiter.blocked.retry_at_ms is not None
            and (due := waiter.blocked.retry_at_ms()) is not None
        ]

    @staticmethod
    def _expire(engine: weakref.ref[KVEngine], due_us: int) -> None:
        """Remove expired keys, unless the engine is gone by the time that its timer fires."""
        self = engine()
        if self is None:
            return
        with self.lock:
            if self._expiry_timer_us == due_us:
                self._expiry_timer_us = None
            try:
                self.remove_expired()
            except BaseException:
                self.turns.mend()
                raise
            self._plan_expiry()

    def _plan_disconnect(self) -> None:
        """Set a timer for the first client that may have been idle for ``timeout`` seconds."""
        timeout_us = self.config.number("timeout") * 1_000_000
        idle_since = [session.last_us for session in self.connected.copy().values()]
        if not timeout_us or not idle_since:
            return
        # A client that may stay idle, because it listens or is blocked, is looked at again later.
        due_us = max(min(idle_since), self.clock.now_us() - timeout_us + 1_000_000) + timeout_us
        if self._disconnect_timer_us is None or due_us < self._disconnect_timer_us:
            self._disconnect_timer_us = due_us
            disconnect = partial(KVEngine._disconnect_idle, weakref.ref(self))
            self.clock.call_at(due_us, disconnect, lane="background", label="idle clients")

    @staticmethod
    def _disconnect_idle(engine: weakref.ref[KVEngine], due_us: int) -> None:
        """Disconnect the clients that have been idle for ``timeout`` seconds."""
        self = engine()
        if self is None:
            return
        with self.lock:
            if self._disconnect_timer_us == due_us:
                self._disconnect_timer_us = None
            timeout_us = self.config.number("timeout") * 1_000_000
            for session in self.connected.copy().values():
                is_idle = self.clock.now_us() - session.last_us >= timeout_us > 0
                if is_idle and not (session.listens or session.id in self.waiters):
                    session.disconnect()
                    self.connected.pop(session.id, None)
            self._plan_disconnect()

    # -- data --------------------------------------------------------------------------------------

    def current(self) -> Keyspace:
        """Return database 0 at the current time. The caller holds the lock."""
        # Not as a context manager: an exception of a signal's handler could leave its generator
        # suspended, and the lock held.
        self.update_time()
        return self.databases[0]

    def can_hold(self, value: object) -> bool:
        """Return whether the server has the commands of a value's type."""
        needed = _NEEDED_COMMANDS.get(type_name(value))
        return needed is None or needed in self.table.commands

    def snapshot(self) -> EngineCopy:
        """Return a copy of all that commands can change: keys, scripts, users, tokens, parameters."""
        with self.lock:
            self.update_time()
            return EngineCopy(
                [keyspace.snapshot() for keyspace in self.databases],
                self.scripting.snapshot(),
                self.users.snapshot(),
                self.config.snapshot(),
                None if self.topology is None else self.topology.snapshot(),
            )

    def restore(self, saved: EngineCopy) -> None:
        """Restore a copy, any number of times; raise ``ContractError`` for one of another kind."""
        if not isinstance(saved, EngineCopy) or not self._fits(saved):
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
            self.users.restore(*saved.users)
            if self.topology is not None and saved.topology is not None:
                self.topology.restore(saved.topology)
            self.memory.left = 0
            self.follow_config()
            if self.tracking:
                self.tracking.invalidate_all()
            self._retry_waiters()

    def _fits(self, saved: EngineCopy) -> bool:
        """Return whether a copy is of a server with the same databases and nodes."""
        nodes = 0 if self.topology is None else len(self.topology.nodes)
        saved_nodes = 0 if saved.topology is None else len(saved.topology.primaries)
        return len(saved.databases) == len(self.databases) and saved_nodes == nodes

    def change_nodes(self, change: Callable[..., object], *arguments: object) -> None:
        """Call a function that changes the roles of nodes or the owners of slots."""
        with self.lock:
            change(*arguments)
            assert self.topology is not None
            self.topology.follow(self)

    def remove_expired(self) -> None:
        """Remove all expired keys, and retry the blocked commands whose time has come, unless ``DEBUG
        SET-ACTIVE-EXPIRE 0`` is in effect.
        """
        if not self.active_expire:
            return
        with self.lock:
            self.update_time()
            for keyspace in self.databases:
                keyspace.purge()
            for due_ms, waiter in self._retries():
                if due_ms <= self.execution.now_ms:
                    for key in waiter.blocked.keys:
                        waiter.session.db.signal(key, "stream")
            if self._records_changes:
                self.process_changes()

    def update_time(self) -> None:
        self.execution.set_time(self.clock.now_us())

    def follow_config(self) -> None:
        self.notifications.enable(self.config.text("notify-keyspace-events"))
        publish = partial(KVEngine._publish_event, weakref.proxy(self))
        publish_fields = partial(KVEngine._publish_fields, weakref.proxy(self))
        for keyspace in self.databases:
            keyspace.notify = publish if self.notifications else None
            keyspace.notify_fields = publish_fields if self.notifications.include_fields else None
        self._plan_expiry()
        self._plan_disconnect()
        number = self.config.number
        self.memory.limit = number("maxmemory")
        self._needs_replicas = bool(
            number("min-replicas-to-write") and number("min-replicas-max-lag")
        )
        if self.memory.limit:
            # Evict keys immediately if the memory limit was lowered.
            self.memory.make_room(self.sizes)
        self.record_changes()
        self.follow_policy()

    def follow_policy(self) -> None:
        """Count accesses of keys, or note when keys are modified, if the eviction policy needs that.
        Otherwise forget the counters and the times.
        """
        policy = self.config.text("maxmemory-policy")
        counts, modifications = policy.endswith("lfu"), policy.endswith("lrm")
        for keyspace in self.databases:
            if not counts:
                keyspace.frequencies = None
            elif keyspace.frequencies is None:
                keyspace.frequencies = Frequencies(self.config, self.random)
            if not modifications:
                keyspace.modified = None
            elif keyspace.modified is None:
                keyspace.modified = dict(keyspace.accessed)

    def reset_statistics(self) -> None:
        self.statistics.reset()
        for keyspace in self.databases:
            keyspace.expired = keyspace.hits = keyspace.misses = 0
        self.memory.evicted = 0

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
