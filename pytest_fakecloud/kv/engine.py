"""The engine: takes commands, runs them on the keyspaces, gives replies. No HTTP, no wall clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..kernel.clock import Clock
from ..kernel.ids import Ids
from . import commands as _commands
from .config import defaults
from .errors import (
    NOT_IN_TRANSACTION,
    CommandError,
    exec_aborted_by,
    not_over_rest,
    unknown_command,
    unknown_subcommand,
    wrong_arity,
)
from .keyspace import Keyspace, KeyspaceCopy
from .model import Config, Dialect, FullUser, ReadOnlyUser, Session, Transport, User
from .pubsub import PubSub
from .registry import LOOKUP, CommandSpec
from .reply import QUEUED, Reply
from .scripting.scripts import Scripting, ScriptingCopy

__all__ = ["Engine"]

_AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})


class Engine:
    """An in-memory key-value store that speaks in commands: ``list[bytes]`` in, reply out.

    ``dialect`` is ``"vendor"`` (the REST service: one database, its own additions) or ``"redis"``
    (stock behaviour, sixteen databases). All state is behind one re-entrant ``lock``.
    """

    def __init__(self, clock: Clock, ids: Ids, dialect: Dialect = "vendor") -> None:
        self.clock = clock
        self.ids = ids
        self.dialect = dialect
        self.lock = threading.RLock()
        self.random = ids.stream("kv", "random")
        self.config = Config(defaults())
        self.databases = [Keyspace(index) for index in range(1 if dialect == "vendor" else 16)]
        self.now_us = self.started_us = clock.now_us()
        """The clock as the running command, script or transaction sees it."""
        self.now_ms = self.now_us // 1000
        self.users: dict[str, User] = {"default": FullUser(), "default_ro": ReadOnlyUser()}
        self.stats: dict[CommandSpec, list[int]] = {}
        """Calls, microseconds, rejected calls and failed calls by command."""
        self.rest_tokens: dict[str, str] = {}
        """REST tokens made for users, to the users' names; a token ends with its user."""
        self.pubsub = PubSub()
        self.scripting = Scripting(self)
        self.monitors: list[Callable[[int, Session, list[bytes]], None]] = []
        """Called with each command that runs: the instant in microseconds, who, the line."""
        self._sessions = 0

    def session(
        self,
        user: User | None = None,
        transport: Transport = "local",
        resp: int = 2,
        address: str = "",
    ) -> Session:
        """A new session of a user (``default`` unless given) on database 0."""
        self._sessions += 1
        user = user or self.users["default"]
        return Session(self, user, self.databases[0], transport, resp, address, self._sessions)

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
        with self.lock:
            try:
                spec = LOOKUP.get(argv[0])
                if spec is None or spec.subcommands is not None:
                    spec = self.resolve(argv)
                if not spec.over_rest and session.transport == "rest":
                    raise CommandError(not_over_rest(spec.name.split()[0]))
                if not spec.least <= len(argv) <= spec.most:
                    raise CommandError(wrong_arity(spec.full_name))
                if not session.user.unrestricted:
                    session.user.check(spec, argv)
                if session.queue is not None and spec.name not in _AT_ONCE:
                    if spec.no_multi:
                        raise CommandError(NOT_IN_TRANSACTION)
                    session.queue.append((spec, argv))
                    return QUEUED
            except CommandError as error:
                session.aborted = True
                if session.queue is not None and argv[0].upper() == b"EXEC":
                    _commands.transactions.discard_transaction(session)
                    raise CommandError(exec_aborted_by(error.text.removeprefix(b"ERR "))) from None
                raise
            return self.run(session, spec, argv)

    def abandon(self, session: Session) -> None:
        """Forget a session that ends: its transaction, what it watches, what it listens to."""
        with self.lock:
            _commands.transactions.discard_transaction(session)
            self.pubsub.drop(session)

    def resolve(self, argv: list[bytes]) -> CommandSpec:
        """The command a line names; raises the unknown command or sub-command error."""
        spec = LOOKUP.get(argv[0]) or LOOKUP.get(argv[0].upper())
        if spec is None or (spec.function is None and spec.subcommands is None):
            raise CommandError(unknown_command(argv))
        if spec.subcommands is not None and len(argv) > 1:
            found = spec.subcommands.get(argv[1].upper())
            if found is None or found.function is None:
                raise CommandError(unknown_subcommand(spec.name, argv[1]))
            return found
        return spec

    def run(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> Reply:
        """Run a command line that was checked already: arity, permission, availability."""
        start_us = self.clock.now_us()
        if not session.in_exec and not session.in_script:
            self.now_us = start_us
            self.now_ms = session.db.now_ms = start_us // 1000
        if spec.function is None:
            raise CommandError(unknown_command(argv))
        try:
            return spec.function(session, argv[spec.skip :])
        finally:
            self._count(spec, start_us)
            if self.monitors and not spec.hidden:
                for monitor in self.monitors:
                    monitor(start_us, session, argv)

    def call(self, session: Session, argv: list[bytes]) -> Reply:
        """Run a command line on behalf of a script: nothing is queued, time stands still.

        Raises as ``execute`` does. Whether scripts may run the command is the caller's to check.
        """
        spec = self.resolve(argv)
        if not spec.least <= len(argv) <= spec.most:
            raise CommandError(wrong_arity(spec.full_name))
        if not session.user.unrestricted:
            session.user.check(spec, argv)
        return self.run(session, spec, argv)

    @contextmanager
    def reading(self) -> Iterator[Keyspace]:
        """Database 0 as it is now, while nobody else runs commands."""
        with self.lock:
            self._look()
            yield self.databases[0]

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> list[KeyspaceCopy]:
        """A copy of all data that later commands leave alone."""
        with self.lock:
            self._look()
            return [keyspace.snapshot() for keyspace in self.databases]

    def restore(self, snapshot: list[KeyspaceCopy]) -> None:
        """Put the data of a snapshot back."""
        with self.lock:
            self._look()
            for keyspace, saved in zip(self.databases, snapshot, strict=True):
                keyspace.restore(saved)

    def _look(self) -> None:
        self.now_us = self.clock.now_us()
        self.now_ms = self.now_us // 1000
        for keyspace in self.databases:
            keyspace.now_ms = self.now_ms

    def _count(self, spec: CommandSpec, start_us: int) -> None:
        stat = self.stats.get(spec)
        if stat is None:
            stat = self.stats[spec] = [0, 0, 0, 0]
        stat[0] += 1
        stat[1] += self.clock.now_us() - start_us
