"""Interfaces of users, sessions and engines, as the transports use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..core.timekeeper import Timekeeper
    from .reply import Reply
    from .table.registry import CommandSpec, Table

Transport = Literal["local", "rest", "port"]
"""The origin of a command: the test, the REST interface, or the database port."""


class User(Protocol):
    """A user that runs commands. If ``unrestricted``, its permissions are not checked."""

    name: str
    unrestricted: bool
    passwordless: bool

    @property
    def known(self) -> bool:
        """False only for ``ANONYMOUS``, the user of clients that have not logged in."""

    def accepts(self, password: bytes) -> bool:
        """Return whether a password is accepted."""

    def copy(self) -> User:
        """Return an independent copy."""

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise a NOPERM ``CommandError`` unless the user may run a command line."""

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """Return whether the command may read every key for this user."""

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """Return whether the user may subscribe to a channel or pattern."""


class AnySession(Protocol):
    """The part of a session that the REST interface uses; the sessions of all engines have it."""

    user: User
    deliver: Callable[[list[Any]], None] | None
    wake: Callable[[], None] | None

    @property
    def queue(self) -> list[Any] | None:
        """Commands queued in the open transaction; None if no transaction is open."""


class Contents(Protocol):
    """The keys of a database and their values."""

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the keys."""

    def peek(self, key: bytes) -> Any:
        """Return a key's value, or None, without updating the key's access time."""


class _Users(Protocol):
    @property
    def read_only(self) -> User: ...
    def __getitem__(self, name: str) -> User: ...
    def holder_of(self, token: str) -> User | None: ...
    def permit(self, session: Any, spec: CommandSpec, argv: list[bytes]) -> None: ...


class _PubSub(Protocol):
    def subscribe(self, session: Any, kind: str, name: bytes) -> None: ...
    def drop(self, session: Any) -> None: ...


class _Monitors(Protocol):
    def append(self, watcher: Callable[[int, Any, list[bytes]], None], /) -> None: ...
    def remove(self, watcher: Callable[[int, Any, list[bytes]], None], /) -> None: ...


TURN_SECONDS = 0.05
"""Wall-clock seconds that a pipeline may run before other clients get a turn (decided here)."""


class AnyEngine(Protocol):
    """An engine that runs commands, in memory or on a real server.

    A session belongs to the engine that created it.
    """

    @property
    def clock(self) -> Timekeeper:
        """The clock of the fake."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that keeps other clients from running commands, if the engine has one."""

    @property
    def table(self) -> Table:
        """The commands of the server."""

    @property
    def users(self) -> _Users:
        """The users, by name or by REST token, and their permissions."""

    @property
    def pubsub(self) -> _PubSub:
        """The pub/sub subscriptions."""

    @property
    def monitors(self) -> _Monitors:
        """Functions that receive each command: the time in microseconds, the client, the line."""

    @property
    def streaming(self) -> set[Any]:
        """The sessions that read an event stream."""

    def session(
        self,
        user: Any = None,
        transport: Transport = "local",
        resp: int = 2,
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

    def reading(self) -> AbstractContextManager[Contents]:
        """Context manager that provides the keys of the fake at the current time."""

    def snapshot(self) -> Any:
        """Return a copy of everything that commands can change."""

    def restore(self, saved: Any) -> None:
        """Restore a copy that ``snapshot()`` returned."""
