"""Transaction commands: MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

from .. import errors
from ..acl.users import Denied
from ..engine.client import Watched
from ..engine.engine import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, OK, Blocked, Reply
from ..table.registry import Args, command


@command("MULTI")
def multi(session: Session, args: Args) -> Reply:
    """Start a transaction, which queues the commands that follow.

    Over REST, each request is a session of its own, so a transaction must be in a single pipeline.
    The vendor's documentation lists MULTI and EXEC as supported. In separate requests, MULTI
    returns OK, but its transaction ends with the request, and EXEC returns the same error as on a
    new connection (decided here).
    """
    if session.queue is not None:
        raise CommandError(errors.NESTED_MULTI)
    session.queue = []
    session.aborted = False
    return OK


@command("DISCARD")
def discard(session: Session, args: Args) -> Reply:
    """Discard the transaction and its queued commands."""
    if session.queue is None:
        raise CommandError(errors.DISCARD_WITHOUT_MULTI)
    session.discard_transaction()
    return OK


@command("EXEC")
def exec_(session: Session, args: Args) -> Reply:
    """Run the queued commands of the transaction; if one fails, the others still run."""
    queue = session.queue
    if queue is None:
        raise CommandError(errors.EXEC_WITHOUT_MULTI)
    aborted = session.aborted
    broken = session.watch_broken or any(
        existed and not db.exists(key) for db, key, existed in session.watched
    )
    session.discard_transaction()
    if aborted:
        raise CommandError(errors.EXECABORT)
    if broken:
        return NIL_ARRAY
    session.in_exec = len(queue)
    replies: list[Reply] = []
    try:
        for spec, argv in queue:
            try:
                if not session.user.unrestricted:
                    session.engine.users.permit(session, spec, argv)
                replies.append(session.engine.run(session, spec, argv))
            except Denied as denied:
                reason = errors.RULES_CHANGED[denied.reason]
                replies.append(CommandError(errors.rules_changed(reason)))
            except CommandError as error:
                replies.append(error)
    finally:
        session.in_exec = 0
        if session.tracking is not None:
            session.tracking.caching = None
    pauses = session.engine.pauses
    if pauses.exec_sleep_ms:
        asleep_ms = pauses.exec_sleep_ms
        pauses.exec_sleep_ms = 0
        return Blocked([], asleep_ms, lambda: None, on_timeout=replies)
    return replies


@command("WATCH")
def watch(session: Session, args: Args) -> Reply:
    """Watch keys, so that the next EXEC fails if one of them has changed since."""
    if session.queue is not None:
        raise CommandError(errors.WATCH_INSIDE_MULTI)
    for key in args:
        if not any(db is session.db and key == watched for db, watched, _ in session.watched):
            session.watched.append(Watched(session.db, key, session.db.exists(key)))
            session.db.watchers.setdefault(key, []).append(session)
    return OK


@command("UNWATCH")
def unwatch(session: Session, args: Args) -> Reply:
    """Stop watching all keys."""
    session.unwatch()
    return OK
