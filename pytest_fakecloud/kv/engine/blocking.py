"""Clients that wait for keys: served in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import CommandError
from ..reply import Blocked, Reply

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ..table.registry import CommandSpec
    from .client import Client
    from .keyspace import Keyspace

FOREVER_US = 10**18


class Waiter:
    """One waiting client: poll ``done`` on ``signal`` until ``deadline_us``, take ``reply``.

    ``spec`` is the command that waits, ``line`` its words; None where the wait is no command's own.
    """

    __slots__ = (
        "begun_us",
        "blocked",
        "db",
        "deadline_us",
        "done",
        "line",
        "reply",
        "session",
        "signal",
        "spec",
        "tried",
    )

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
        self.deadline_us = (
            clock.now_us() + blocked.timeout_ms * 1000 if blocked.timeout_ms else FOREVER_US
        )
        self.done = False
        self.tried = False
        """Whether trying the command again ended the wait."""
        self.reply: Reply = blocked.on_timeout

    @property
    def has_left(self) -> bool:
        """Whether the client is gone, although its own thread may not have noticed yet."""
        return self.signal.closed or (self.session.has_left is not None and self.session.has_left())

    def finish(self, reply: Reply) -> None:
        """End the wait with a reply."""
        self.done = True
        self.reply = reply
        self.signal.notify()


class Waiters:
    """All clients that wait. Every method is called under the engine's lock."""

    def __init__(self) -> None:
        self._waiting: list[Waiter] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: Waiter) -> None:
        """Let a client wait."""
        self._waiting.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Let a client wait no longer; may be called any number of times."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def of(self, session_id: int) -> Waiter | None:
        """What the session of that number waits for, or None."""
        return next((w for w in self._waiting if w.session.id == session_id), None)

    def serve(
        self, databases: list[Keyspace], now_ms: int, served: Callable[[Client], None]
    ) -> None:
        """Let clients whose keys were touched try again, as long as that changes anything.

        ``served`` is called with each client whose wait ends because its command was run.
        """
        while True:
            touched = {(db.index, key) for db in databases for key in db.on_touch or ()}
            if not touched:
                return
            for db in databases:
                if db.on_touch is not None:
                    db.on_touch.clear()
            for waiter in list(self._waiting):
                wanted = any((waiter.db.index, key) in touched for key in waiter.blocked.keys)
                if wanted and self._try(waiter, now_ms):
                    served(waiter.session)

    def _try(self, waiter: Waiter, now_ms: int) -> bool:
        # A real server's event loop sees a closed connection and a timeout before the command that
        # comes after them, so neither client takes anything.
        if waiter.has_left:
            self.remove(waiter)
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
        self.remove(waiter)
        waiter.tried = True
        waiter.finish(reply)
        return True
