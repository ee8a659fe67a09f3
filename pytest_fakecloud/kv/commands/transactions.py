"""Transaction commands: MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

from ...core.budget import OverBudget
from ...core.timers import TimeLimit
from .. import errors
from ..acl import Denied
from ..engine.limits import LONGEST_WAIT_SECONDS
from ..engine.sessions import Session, Transaction
from ..errors import CommandError, as_reply
from ..reply import NIL_ARRAY, OK, Blocked, Reply
from ..table.registry import Args, CommandSpec, command


@command("MULTI")
def multi(session: Session, args: Args) -> Reply:
    """Start a transaction, which queues the commands that follow.

    Over REST, each request is a session of its own, so a transaction must be in a single pipeline.
    The vendor's documentation lists MULTI and EXEC as supported. In separate requests, MULTI
    returns OK, but its transaction ends with the request, and EXEC returns the same error as on a
    new connection (decided here).
    """
    if session.transaction is not None:
        raise CommandError(errors.NESTED_MULTI)
    session.transaction = Transaction()
    return OK


@command("DISCARD")
def discard(session: Session, args: Args) -> Reply:
    """Discard the transaction and its queued commands."""
    if session.transaction is None:
        raise CommandError(errors.DISCARD_WITHOUT_MULTI)
    session.discard_transaction()
    return OK


@command("EXEC")
def exec_(session: Session, args: Args) -> Reply:
    """Run the queued commands of the transaction; if one fails, the others still run.

    Redis runs a transaction however long it takes, and other clients wait. Decided here: after
    ``LONGEST_WAIT_SECONDS`` of processor time the remaining commands return an error.
    """
    transaction = session.transaction
    if transaction is None:
        raise CommandError(errors.EXEC_WITHOUT_MULTI)
    broken = session.watch_broken or any(
        existed and not db.exists(key) for db, key, existed in session.watched
    )
    session.unwatch()
    try:
        if transaction.aborted:
            raise CommandError(errors.EXECABORT)
        if broken:
            return NIL_ARRAY
        replies = _run_queue(session, transaction)
    finally:
        session.transaction = None
    if session.tracking is not None:
        session.tracking.caching = None
    pauses = session.engine.pauses
    asleep_ms, pauses.exec_sleep_ms = pauses.exec_sleep_ms, 0
    if asleep_ms:
        return Blocked([], asleep_ms, lambda ready: None, on_timeout=replies, is_delay=True)
    return replies


def _run_queue(session: Session, transaction: Transaction) -> list[Reply]:
    time_limit = TimeLimit(LONGEST_WAIT_SECONDS)
    transaction.is_running = True
    replies: list[Reply] = []
    for position, (spec, line) in enumerate(transaction.queue):
        transaction.position = position
        is_over = time_limit.is_over()
        replies.append(
            CommandError(errors.RAN_TOO_LONG) if is_over else _run_queued(session, spec, line)
        )
    return replies


def _run_queued(session: Session, spec: CommandSpec, line: list[bytes]) -> Reply:
    """Run a queued command and return its reply or its error."""
    try:
        if not session.user.unrestricted:
            session.engine.users.permit(session, spec, line)
        return session.engine.run(session, spec, line, is_inner=True)
    except OverBudget as over:
        return CommandError(errors.over_budget(over))
    except Denied as denied:
        return CommandError(errors.rules_changed(errors.RULES_CHANGED[denied.reason]))
    except CommandError as error:
        return as_reply(error)


@command("WATCH")
def watch(session: Session, args: Args) -> Reply:
    """Watch keys, so that the next EXEC fails if one of them has changed since."""
    if session.transaction is not None:
        raise CommandError(errors.WATCH_INSIDE_MULTI)
    for key in args:
        if not any(db is session.db and key == watched for db, watched, _ in session.watched):
            session.watched.append((session.db, key, session.db.exists(key)))
            session.db.watchers.setdefault(key, []).append(session)
    return OK


@command("UNWATCH")
def unwatch(session: Session, args: Args) -> Reply:
    """Stop watching all keys."""
    session.unwatch()
    return OK
