"""Changed keys, and the clients blocked by commands such as BLPOP that wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CommandError
from ..reply import Blocked, Reply

if TYPE_CHECKING:
    from ...core.timers import Signal
    from ..table.registry import CommandSpec
    from .engine import Engine
    from .session import Session

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
