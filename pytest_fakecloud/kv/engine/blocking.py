"""Changed keys, and the clients blocked by commands such as BLPOP that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import CommandError
from ..reply import Blocked, Reply

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ..table.registry import CommandSpec
    from .client import Client
    from .engine import Engine
    from .keyspace import Keyspace

_FOREVER_US = 10**18
"""Duration of a wait without a time limit."""


class Waiter:
    """A blocked client.

    The transport waits on ``signal`` until ``done`` is set or ``deadline_us`` has passed, and then
    sends ``reply``. ``spec`` and ``line`` are the blocking command and its words; ``spec`` is None
    if the client does not wait for a key (DEBUG SLEEP in a transaction).
    """

    __slots__ = (
        "begun_us", "blocked", "db", "deadline_us", "done", "line", "reply", "session", "signal",
        "spec", "tried",
    )  # fmt: skip

    def __init__(
        self,
        session: Client,
        blocked: Blocked,
        clock: Timekeeper,
        spec: CommandSpec | None,
        line: list[bytes],
    ) -> None:
        self.session = session
        self.db = session.db
        self.blocked = blocked
        self.spec = spec if blocked.keys else None
        self.line = line
        self.begun_us = clock.now_us()
        self.signal = clock.signal()
        wait_us = blocked.timeout_ms * 1000 or _FOREVER_US
        self.deadline_us = self.begun_us + wait_us
        self.done = False
        self.tried = False
        """Whether the wait ended with a retry of the command."""
        self.reply: Reply = blocked.on_timeout

    @property
    def has_left(self) -> bool:
        """Whether the client has disconnected, even if its thread has not noticed yet."""
        return self.signal.closed or (self.session.has_left is not None and self.session.has_left())

    def finish(self, reply: Reply) -> None:
        self.done = True
        self.reply = reply
        self.signal.notify()


class Waiters(list[Waiter]):
    """The blocked clients of an engine. The caller of every method must hold the engine's lock."""

    def discard(self, waiter: Waiter) -> None:
        if waiter in self:
            self.remove(waiter)

    def of(self, session_id: int) -> Waiter | None:
        """Return the waiter of the session with this ID, or None if the session is not blocked."""
        return next((waiter for waiter in self if waiter.session.id == session_id), None)

    def serve(
        self, databases: list[Keyspace], now_ms: int, served: Callable[[Client], None]
    ) -> None:
        """Retry commands until no changed keys are left; pass clients that are done to ``served``."""
        while True:
            touched = {(db.index, key) for db in databases for key in db.touched or ()}
            if not touched:
                return
            for db in databases:
                if db.touched is not None:
                    db.touched.clear()
            for waiter in list(self):
                wanted = any((waiter.db.index, key) in touched for key in waiter.blocked.keys)
                if wanted and self._try(waiter, now_ms):
                    served(waiter.session)

    def _try(self, waiter: Waiter, now_ms: int) -> bool:
        # A real server handles disconnected and timed-out clients before it runs later commands.
        if waiter.has_left:
            self.discard(waiter)
            waiter.signal.close()
            return False
        if waiter.deadline_us <= now_ms * 1000:
            return False
        waiter.db.now_ms = now_ms
        try:
            reply = waiter.blocked.attempt()
        except CommandError as error:
            reply = error
        if reply is None:
            return False
        self.discard(waiter)
        waiter.tried = True
        waiter.finish(reply)
        return True


# -- changed keys ----------------------------------------------------------------------------------


class Changes:
    """Makes keyspaces record changed keys, while a client or index depends on them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.followed = False
        """Whether keyspaces currently record changed keys."""

    def follow(self) -> None:
        """Start or stop recording, whenever something that depends on it is added or removed."""
        engine = self._engine
        self.followed = bool(
            engine.waiters
            or engine.tracking
            or engine.notifications
            or any(keyspace.indexes is not None for keyspace in engine.databases)
        )
        for keyspace in engine.databases:
            keyspace.record_changes(self.followed, for_tracking=bool(engine.tracking))

    def hand_on(self, writer: Client | None, now_ms: int) -> None:
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
        engine = self._engine
        engine.waiters.serve(engine.databases, now_ms, engine.tracking.invalidate_changed)
