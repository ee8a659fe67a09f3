"""What the interfaces share: their names, the engine behind them, and the limits on commands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from . import errors
from .errors import CommandError
from .reply import LARGEST, Reply
from .settings import KVConfig

if TYPE_CHECKING:
    from ..core.calls import Call
    from ..core.clock import Timekeeper
    from .table.registry import Table

Interface = Literal["local", "rest", "port"]
"""The origin of a command: the test, the REST interface, or the database port."""
TURN_SECONDS = 0.05
"""Wall-clock seconds that a pipeline may run before other clients get a turn (decided here)."""
HANDSHAKE = frozenset({"AUTH", "CLIENT", "HELLO", "QUIT", "RESET", "SELECT"})
"""Commands that client libraries send by themselves when they open or close a connection."""
_OF_TRANSACTIONS = frozenset({"DISCARD", "EXEC", "MULTI", "UNWATCH", "WATCH"})
_UNCOUNTED = frozenset(name.encode() for name in HANDSHAKE | _OF_TRANSACTIONS)
"""Commands that do not count towards the limits on their number."""
_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000


class AnyEngine(Protocol):
    """What executes commands: ``engine.engine.KVEngine`` in memory, or a real server behind
    ``real_redis.engine.RedisEngine``.

    Each engine has sessions, users, subscriptions and data of its own kind, of which the interfaces use
    what both kinds have.
    """

    clock: Timekeeper
    table: Table
    """The command table of the server."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while a command runs; re-entrant."""

    @property
    def users(self) -> Any:
        """The users ``default`` and ``read_only``; ``holder_of()`` finds one by a REST token, and
        ``permit()`` raises an error for a command that a session's user may not run.
        """

    @property
    def pubsub(self) -> Any:
        """Subscribes sessions to channels and patterns."""

    @property
    def monitors(self) -> Any:
        """The functions that are called with each command, for MONITOR."""

    @property
    def streaming(self) -> set[Any]:
        """The sessions that receive an event stream."""

    def session(
        self,
        user: Any = None,
        interface: Interface = "local",
        address: str = "",
        at_us: int | None = None,
    ) -> AnySession:
        """Open a session of a client, by default for the user ``default``."""

    def abandon(self, session: Any) -> None:
        """Forget a session whose connection has ended."""

    def execute(self, session: Any, line: list[bytes]) -> Reply:
        """Execute a command line of the test; raise ``CommandError``."""

    def reply_to(self, session: Any, line: list[bytes]) -> Reply:
        """Return the reply to a client's command line, which can be an error."""

    def set_password(self, password: bytes) -> None:
        """Set the password of the user ``default``, unless a real server has its own."""

    def give_way(self) -> None:
        """Let other clients run first."""

    def snapshot(self) -> Any:
        """Return a copy of everything that commands can change."""

    def restore(self, saved: Any) -> None:
        """Restore such a copy."""


class ClientConnection(Protocol):
    """What an engine can do, in any thread, with a connection to which messages can be pushed: that of
    a client of the Redis protocol, or a stream of events.
    """

    def push(self, message: list[Any]) -> None:
        """Queue a message, such as one of pub/sub."""

    def reserve(self) -> None:
        """Reserve the place of the reply to the running command: messages that are pushed now follow it.
        A stream of events has no replies.
        """

    def has_left(self) -> bool:
        """Return whether the client has closed its side."""

    def cut(self) -> None:
        """Close the connection."""


class AnySession(Protocol):
    """The session of a client, of which each engine has a class."""

    user: Any
    connection: ClientConnection | None
    call: Call | None


class CommandLimits:
    """Enforces the vendor's limits on the size of commands and their number, for every engine.

    A command whose reply is too large has run, so what it removes or replaces is lost: LPOP, SPOP,
    GETDEL, GETSET and others (decided here). Redis behaves in this way, too: it closes the connection
    of a client whose reply exceeds ``client-output-buffer-limit``.

    Commands count over both protocols, also those in pipelines and transactions (specification), and
    those that are rejected. Only those of a handshake (AUTH, SELECT) and those around a transaction
    (MULTI, EXEC) do not count, because REST needs none of them. The limit on their size applies to all
    commands of an authenticated client (decided here).
    """

    def __init__(self, limits: KVConfig, now_us: Callable[[], int]) -> None:
        largest = limits.max_request_size
        self.largest = LARGEST if largest is None else largest
        """Maximum size in bytes of a command, and of the strings in a reply."""
        self._now_us = now_us
        self._lock = threading.Lock()
        self.windows = [
            (width_us, limit, error)
            for width_us, limit, error in (
                (_DAY_US, limits.daily_limit, errors.max_daily_requests),
                (_SECOND_US, limits.max_requests_per_second, errors.max_requests),
            )
            if limit is not None
        ]
        """The width of each period with a limit, the limit, and its error."""
        self._used: dict[tuple[int, int], int] = {}
        """Number of commands in the latest period of each width, by its width and its number."""

    def check(self, line: list[bytes]) -> CommandError | None:
        """Count a command, even if it is too large; return the error if it exceeds a limit."""
        if self.windows and (error := self.count([line])):
            return error
        size = sum(map(len, line))
        return self.too_large(size) if size > self.largest else None

    def size_error(self, size: int) -> CommandError | None:
        """Return the error if a command, or the strings of a reply, are too large."""
        return self.too_large(size) if size > self.largest else None

    def too_large(self, size: int) -> CommandError:
        """Return the error for a size above the limit."""
        return CommandError(errors.max_request_size(self.largest, size))

    def count(self, lines: list[list[bytes]]) -> CommandError | None:
        """Count commands. If they would exceed a limit, count none, and return the error."""
        if not self.windows:
            return None
        commands = sum(line[0].upper() not in _UNCOUNTED for line in lines)
        with self._lock:
            now_us, used = self._now_us(), {}
            for width_us, limit, error in self.windows:
                period = width_us, now_us // width_us
                used[period] = self._used.get(period, 0) + commands
                if used[period] > limit:
                    return CommandError(error(limit, used[period] - commands))
            self._used = used
        return None

    def reset(self) -> None:
        with self._lock:
            self._used.clear()
