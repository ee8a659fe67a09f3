"""The interfaces that transports use: users, sessions, engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..core.timekeeper import Timekeeper
    from .reply import Reply
    from .table.registry import CommandSpec, Table

Transport = Literal["local", "rest", "port"]
"""Where a command comes from: the test, HTTP, or the database port."""


class User(Protocol):
    """A user that runs commands. An ``unrestricted`` user is not checked."""

    name: str
    unrestricted: bool
    passwordless: bool

    @property
    def known(self) -> bool:
        """Whether the client has logged in as this user."""

    def accepts(self, password: bytes) -> bool:
        """Return whether a password is accepted."""

    def copy(self) -> User:
        """Return an independent copy."""

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` with a NOPERM text unless the user may run a command line."""

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """Return whether the command may read every key for this user."""

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """Return whether the user may subscribe to a channel or pattern."""


class AnySession(Protocol):
    """The part of a session that HTTP uses, whichever engine created it."""

    user: User
    deliver: Callable[[list[Any]], None] | None
    wake: Callable[[], None] | None

    @property
    def queue(self) -> list[Any] | None:
        """The commands of an open transaction."""


class Contents(Protocol):
    """The keys of a database and their values."""

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the keys."""

    def peek(self, key: bytes) -> Any:
        """Return a key's value, or None, without counting an access."""


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
"""How long a pipeline may run, in wall-clock seconds, before other clients get a turn (decided
here).
"""


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
        """The users by name and by REST token, and their permissions."""

    @property
    def pubsub(self) -> _PubSub:
        """The subscriptions."""

    @property
    def monitors(self) -> _Monitors:
        """Functions that are called with each command: the time in microseconds, the client, the
        command line.
        """

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
        """Open a session for a user, by default ``default``; it began at the given time, or now."""

    def execute(self, session: Any, argv: list[bytes]) -> Reply:
        """Run a command line, or queue it; raise ``CommandError`` for an error reply."""

    def give_way(self) -> None:
        """Let a waiting client run first; called between two commands of a pipeline."""

    def abandon(self, session: Any) -> None:
        """Discard the state of a session that ends."""

    def reading(self) -> AbstractContextManager[Contents]:
        """Provide the fake's current keys within a ``with`` block."""

    def snapshot(self) -> Any:
        """Return a copy of everything that commands can change."""

    def restore(self, saved: Any) -> None:
        """Restore a copy that ``snapshot()`` returned."""
