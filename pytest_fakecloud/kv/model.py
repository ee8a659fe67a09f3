"""Who runs commands, where they come from, and what an engine offers to those who serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..core.timekeeper import Timekeeper
    from .reply import Reply
    from .table.registry import CommandSpec, Table

Transport = Literal["local", "rest", "port"]
"""Where commands come from: the tester, HTTP, or the database port."""


class User(Protocol):
    """A user that runs commands. ``unrestricted`` spares the check of every command."""

    name: str
    unrestricted: bool
    passwordless: bool

    @property
    def known(self) -> bool:
        """Whether this is a user, and not a client that has yet to log in."""

    def accepts(self, password: bytes) -> bool:
        """Whether the password is this user's."""

    def copy(self) -> User:
        """An independent copy."""

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` with a NOPERM text unless the user may run this command line."""

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """Whether the command may read every key for this user."""

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """Whether the user may listen to a channel or pattern."""


class AnySession(Protocol):
    """What HTTP needs of a session, whichever engine made it."""

    user: User
    deliver: Callable[[list[Any]], None] | None
    wake: Callable[[], None] | None

    @property
    def queue(self) -> list[Any] | None:
        """The commands of an open transaction."""


class Contents(Protocol):
    """The keys of a database, and what they hold."""

    def __iter__(self) -> Iterator[bytes]:
        """Go through the keys."""

    def peek(self, key: bytes) -> Any:
        """Read the value of a key without touching it; None where there is no such key."""


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
"""Real seconds of a pipeline after which other clients get their turn (decided here)."""


class AnyEngine(Protocol):
    """What runs commands, in memory or on a real server.

    Its sessions are its own: what one engine made is given to no other.
    """

    @property
    def clock(self) -> Timekeeper:
        """The clock of the handle."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """What keeps others from running commands, as far as the engine can."""

    @property
    def table(self) -> Table:
        """The commands there are."""

    @property
    def users(self) -> _Users:
        """The users by name and by REST token, and what they are permitted."""

    @property
    def pubsub(self) -> _PubSub:
        """Who listens to what."""

    @property
    def monitors(self) -> _Monitors:
        """Called with each command that runs: the instant in microseconds, who, the line."""

    @property
    def streaming(self) -> set[Any]:
        """The sessions of event streams."""

    def session(
        self,
        user: Any = None,
        transport: Transport = "local",
        resp: int = 2,
        address: str = "",
        at_us: int | None = None,
    ) -> AnySession:
        """Make a session of a user, ``default`` unless given, which began at an instant or just now."""

    def execute(self, session: Any, argv: list[bytes]) -> Reply:
        """Run a command line, or queue it; raises ``CommandError`` where the answer is an error."""

    def give_way(self) -> None:
        """Let a client that waits for its turn run first, between two commands of another."""

    def abandon(self, session: Any) -> None:
        """Forget a session that ends."""

    def reading(self) -> AbstractContextManager[Contents]:
        """The handle's keys as they are now."""

    def snapshot(self) -> Any:
        """A copy of what commands can change."""

    def restore(self, saved: Any) -> None:
        """Put a copy back."""
