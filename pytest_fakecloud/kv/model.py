"""The interface of the engines and their sessions, as the transports use it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from ..core.timekeeper import Timekeeper
from .reply import Reply
from .table.registry import Table

Transport = Literal["local", "rest", "port"]
"""The origin of a command: the test, the REST interface, or the database port."""
TURN_SECONDS = 0.05
"""Wall-clock seconds that a pipeline may run before other clients get a turn (decided here)."""


class AnySession(Protocol):
    """The part of a session that the REST interface uses; the sessions of all engines have it."""

    user: Any
    """An ``AclUser``, or another object with ``unrestricted``."""
    deliver: Callable[[list[Any]], None] | None
    wake: Callable[[], None] | None

    @property
    def queue(self) -> list[Any] | None:
        """Commands queued in the open transaction; None if no transaction is open."""


class AnyEngine(Protocol):
    """An engine that runs commands, in memory or on a real server.

    ``lock`` keeps other clients from running commands, if the engine has one. ``users``, ``pubsub``
    and ``monitors`` have classes with the same methods in both engines. ``streaming`` has the
    sessions that read an event stream. A session belongs to the engine that created it.
    """

    clock: Timekeeper
    lock: Any
    table: Table
    users: Any
    pubsub: Any
    monitors: Any
    streaming: set[Any]

    def session(
        self,
        user: Any = None,
        transport: Transport = "local",
        address: str = "",
        at_us: int | None = None,
    ) -> AnySession:
        """Open a session, by default for the user ``default`` and beginning now."""

    def execute(self, session: Any, argv: list[bytes]) -> Reply:
        """Run a command line, or queue it; raise ``CommandError`` for an error reply."""

    def give_way(self) -> None:
        """Let a waiting client run first; called between the commands of a pipeline."""

    def abandon(self, session: Any) -> None:
        """Discard the state of a session that has ended."""

    def reading(self) -> AbstractContextManager[Any]:
        """Context manager that provides the keys of the fake, with ``peek()`` and iteration."""

    def snapshot(self) -> Any:
        """Return a copy of everything that commands can change."""

    def restore(self, saved: Any) -> None:
        """Restore a copy that ``snapshot()`` returned."""
