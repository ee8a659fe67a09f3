"""Checks that decide whether a client's command line runs, is delayed, is queued, or is rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import errors
from ..errors import CommandError
from ..table.availability import check_family_over_rest, check_over_rest
from ..table.rows import DOCUMENTED

if TYPE_CHECKING:
    from ..table.registry import CommandSpec
    from .engine import Engine
    from .session import Session

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
