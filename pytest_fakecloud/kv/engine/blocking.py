"""Admits the commands of clients: during pauses, and for clients that wait for a changed key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import errors
from ..errors import CommandError
from ..reply import Blocked, Reply
from ..table.registry import check_family_over_rest, check_over_rest
from ..table.rows import DOCUMENTED

if TYPE_CHECKING:
    from ...core.timers import Signal
    from ..table.registry import CommandSpec
    from .engine import Engine
    from .session import Session


class Pauses:
    """Decides which commands of the database port are delayed, and until when."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._resumed: Signal | None = None
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

    @property
    def resumed(self) -> Signal:
        """Signal that is notified when a pause changes."""
        with self._engine.lock:
            if self._resumed is None:
                self._resumed = self._engine.clock.signal()
            return self._resumed

    def pause(self, until_us: int, writes_only: bool) -> None:
        """Delay commands until a time; 0 ends the pause.

        If two pauses overlap, the later end applies, and the pause that also delays read-only
        commands takes precedence (measured on Redis 7.0).
        """
        if until_us and self._engine.clock.now_us() < self.pause_ends_us:
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

    def holds_back(self, session: Session, argv: list[bytes]) -> bool:
        """Return whether a command line is delayed. A line that would be rejected is not delayed."""
        engine = self._engine
        now_us = engine.clock.now_us()
        if now_us >= self.delays_end_us:
            return False
        try:
            spec = engine.table.resolve(argv)
            if not spec.least <= len(argv) <= spec.most:
                return False
            session.user.check(spec, argv)
            if not self.writes_only or now_us < self._sleep_ends_us:
                return True
            may_write = engine.scripting.may_write
            if spec.name == "EXEC":
                return any(may_write(each, line) for each, line in session.queue or ())
            return may_write(spec, argv)
        except CommandError:
            return False


_FOREVER_US = 10**18
"""Duration of a wait without a time limit."""


@dataclass(eq=False, repr=False, slots=True)
class Waiter:
    """A blocked client.

    The transport waits on ``signal`` until ``done`` is set or ``deadline_us`` has passed, and then
    sends ``reply``. ``spec`` and ``line`` are the blocking command and its words; ``spec`` is None
    if the command is only delayed (DEBUG SLEEP). ``tried`` says whether the
    wait ended with a retry of the command.
    """

    session: Session
    blocked: Blocked
    spec: CommandSpec | None
    line: list[bytes]
    begun_us: int
    signal: Signal
    reply: Reply
    done: bool = False
    tried: bool = False

    @property
    def deadline_us(self) -> int:
        return self.begun_us + (self.blocked.timeout_ms * 1000 or _FOREVER_US)

    @property
    def has_left(self) -> bool:
        """Whether the client has disconnected, even if its thread has not noticed yet."""
        return self.signal.closed or (self.session.has_left is not None and self.session.has_left())

    def finish(self, reply: Reply) -> None:
        self.done = True
        self.reply = reply
        self.signal.notify()


# -- changed keys ----------------------------------------------------------------------------------


class Changes:
    """Makes keyspaces record changed keys, while a client or index depends on them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.recording = False
        """Whether keyspaces currently record changed keys."""

    def start_or_stop(self) -> None:
        """Start or stop recording, whenever something that depends on it is added or removed."""
        engine = self._engine
        self.recording = bool(
            engine.waiters
            or engine.tracking
            or engine.notifications
            or engine.sizes.requested
            or any(keyspace.indexes is not None for keyspace in engine.databases)
        )
        for keyspace in engine.databases:
            keyspace.record_changes(self.recording, for_tracking=bool(engine.tracking))

    def process(self, writer: Session | None, now_ms: int) -> None:
        """Send invalidation messages for changed keys, and retry the commands blocked on them."""
        engine = self._engine
        if engine.tracking:
            engine.tracking.invalidate_changed(writer)
            engine.tracking.keep_within_bounds()
            engine.notifications.plan()
        if engine.waiters:
            self.serve_waiters(now_ms)
        else:
            for keyspace in engine.databases:
                if keyspace.touched:
                    keyspace.touched.clear()

    def serve_waiters(self, now_ms: int) -> None:
        """Retry blocked commands until no changed keys are left."""
        databases = self._engine.databases
        while touched := {(db.index, key) for db in databases for key in db.touched or ()}:
            for db in databases:
                if db.touched is not None:
                    db.touched.clear()
            for waiter in list(self._engine.waiters.values()):
                index = waiter.session.db.index
                if any((index, key) in touched for key in waiter.blocked.keys):
                    self._retry(waiter, now_ms)

    def _retry(self, waiter: Waiter, now_ms: int) -> None:
        # A real server handles disconnected and timed-out clients before it runs later commands.
        if waiter.has_left:
            self._engine.waiters.pop(waiter.session.id, None)
            waiter.signal.close()
            return
        if waiter.deadline_us <= now_ms * 1000:
            return
        waiter.session.db.now_ms = now_ms
        try:
            reply = waiter.blocked.attempt()
        except CommandError as error:
            reply = error
        if reply is not None:
            self._engine.waiters.pop(waiter.session.id, None)
            waiter.tried = True
            waiter.finish(reply)
            self._engine.tracking.invalidate_changed(waiter.session)


RUN_IN_TRANSACTION = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
"""Commands that run inside an open transaction instead of being queued."""


class Admission:
    """Decides whether an engine runs, queues or rejects a client's command line."""

    def __init__(self, engine: Engine, documented_only: bool) -> None:
        self._engine = engine
        self._allowed_names = DOCUMENTED if documented_only else None
        self._needs_replicas = False
        self.strict = documented_only
        """Whether a setting or a parameter can cause a valid command line to be rejected."""

    def follow_config(self) -> None:
        number = self._engine.config.number
        needed, lag = number("min-replicas-to-write"), number("min-replicas-max-lag")
        self._needs_replicas = bool(needed and lag)
        is_limited = self._allowed_names is not None or self._engine.eviction.limit > 0
        self.strict = is_limited or self._needs_replicas

    def admit(
        self, session: Session, argv: list[bytes], *, during_script: bool = False
    ) -> CommandSpec | None:
        """Return the command to run, or None if it was queued; raise ``CommandError`` to reject it.

        ``during_script`` means that the command would run during a script, without the lock.
        """
        spec: CommandSpec | None = None
        try:
            session.last_command = ""
            spec = self._engine.table.lookup.get(argv[0])
            if spec is None or spec.subcommands is not None:
                if spec is not None and session.transport == "rest":
                    check_family_over_rest(spec)
                spec = self._engine.table.resolve(argv)
            session.last_command = spec.full_name
            self._check(session, spec, argv, during_script)
            if session.queue is not None and spec.name not in RUN_IN_TRANSACTION:
                if "no_multi" in spec.flags:
                    raise CommandError(errors.NOT_IN_TRANSACTION)
                # There is no need to store further commands of a transaction that will fail.
                if not session.aborted and not session.watch_broken:
                    session.queue.append((spec, argv))
                return None
        except CommandError as error:
            session.abort_transaction()
            self._engine.statistics.count_rejection(spec, error)
            if spec is not None and spec.name == "EXEC":
                session.discard_transaction()
                raise CommandError(errors.exec_aborted_by(error.text)) from None
            raise
        return spec

    def _check(
        self, session: Session, spec: CommandSpec, argv: list[bytes], during_script: bool
    ) -> None:
        """Raise ``CommandError`` to reject a line. The checks are in the order of real servers."""
        engine = self._engine
        if session.transport == "rest" and (spec.may_wait or not spec.over_rest):
            check_over_rest(spec, argv)
        if not self.offers(session, spec):
            raise CommandError(errors.not_available(spec.name))
        # The vendor's service accepts UNLINK without keys, according to users of its clients.
        arity_is_free = spec.name == "UNLINK" and engine.dialect == "vendor"
        if not spec.least <= len(argv) <= spec.most and not arity_is_free:
            raise CommandError(errors.wrong_arity(spec.full_name))
        if not session.user.unrestricted:
            engine.users.permit(session, spec, argv)
        if during_script:
            engine.turns.check_during_script(spec)
            return
        if engine.lacks_memory(session):
            self._check_memory(session, spec)
        if self._needs_replicas and self._would_write(session, spec, argv):
            raise CommandError(errors.NOT_ENOUGH_REPLICAS)

    def offers(self, session: Session, spec: CommandSpec) -> bool:
        """Return whether ``documented_only`` allows a session to run a command."""
        return (
            self._allowed_names is None
            or spec.name in self._allowed_names
            or session.transport == "local"
        )

    def check_replicas(self, session: Session, spec: CommandSpec) -> None:
        """Raise NOREPLICAS for a write command if ``min-replicas-to-write`` is set."""
        if self._needs_replicas and spec.write and session.transport != "local":
            raise CommandError(errors.NOT_ENOUGH_REPLICAS)

    def _would_write(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> bool:
        if session.transport == "local":
            return False
        if spec.name == "EXEC":
            return any(each.write for each, _ in session.queue or ())
        return spec.write or self._engine.scripting.declares_writes(spec, argv)

    def _check_memory(self, session: Session, spec: CommandSpec) -> None:
        queued = session.queue or ()
        needs_memory = "denyoom" in spec.flags
        if spec.name == "EXEC":
            needs_memory = any("denyoom" in each.flags for each, _ in queued)
        elif session.queue is not None:
            # While a transaction is open, check every line, because the queue itself takes memory.
            needs_memory = spec.name not in RUN_IN_TRANSACTION
        if needs_memory:
            raise CommandError(errors.OOM)
