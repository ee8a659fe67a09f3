"""What the engine keeps besides keys: sessions, users, configuration and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .engine.config import Config

if TYPE_CHECKING:
    from .engine.engine import Engine
    from .engine.keyspace import Keyspace
    from .engine.tracking import TrackingOptions
    from .table.registry import CommandSpec

__all__ = [
    "DIALECTS",
    "MAX_KEY_SIZE",
    "Config",
    "Dialect",
    "Limits",
    "Session",
    "Transport",
    "User",
]

Dialect = Literal["vendor", "redis"]
DIALECTS: tuple[Dialect, ...] = ("vendor", "redis")
Transport = Literal["local", "rest", "port"]


MAX_KEY_SIZE: dict[Dialect, int | None] = {"vendor": 32 * 1024, "redis": None}
"""The bytes a key may have whatever the plan."""


@dataclass(frozen=True)
class Limits:
    """What a plan of the vendor's bounds; None means no bound.

    ``max_request_size`` in bytes (one command of a pipeline counts by itself), ``daily_limit`` in
    commands per UTC day and ``max_requests_per_second`` in commands per second on the clock,
    ``max_pipeline_length`` in commands of one request, ``max_connections`` in connections of the
    database port and event streams together, ``max_pending_entries`` of one consumer of a stream.
    In bytes: ``max_key_size``, ``max_record_size`` of one value, ``max_data_size`` of the database.
    """

    max_request_size: int | None = 10_000_000
    daily_limit: int | None = None
    max_pipeline_length: int | None = None
    max_requests_per_second: int | None = None
    max_key_size: int | None = None
    max_record_size: int | None = None
    max_data_size: int | None = None
    max_connections: int | None = None
    max_pending_entries: int | None = 1000

    @property
    def bounds_requests(self) -> bool:
        """Whether commands have to be counted."""
        return (self.daily_limit, self.max_requests_per_second) != (None, None)

    @property
    def bounds_data(self) -> bool:
        """Whether commands that write have to be measured."""
        return (self.max_key_size, self.max_record_size, self.max_data_size) != (None, None, None)


class User(Protocol):
    """Whoever runs commands. ``unrestricted`` spares the check of every command."""

    name: str
    unrestricted: bool
    passwordless: bool

    @property
    def known(self) -> bool:
        """Whether this is somebody, and not one who has yet to log in."""

    def accepts(self, password: bytes) -> bool:
        """Whether the password lets somebody in as this user."""

    def copy(self) -> User:
        """One that later changes of this one leave alone."""

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` with a NOPERM text unless the user may run this command line."""

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """Whether the command may read every key for this user."""

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """Whether the user may listen to a channel or pattern."""


class Session:
    """One client as the engine sees it: who runs commands, on which database, in which state.

    ``transport`` says where the commands come from: ``"local"`` (the tester), ``"rest"`` or
    ``"port"``. ``resp`` is the protocol version replies are shaped for. ``deliver`` receives what
    is pushed to the session (pub/sub messages), where the transport can carry it.
    """

    __slots__ = (
        "aborted",
        "address",
        "closing",
        "created_us",
        "db",
        "deliver",
        "engine",
        "id",
        "in_exec",
        "in_script",
        "last_command",
        "last_us",
        "library",
        "local_address",
        "monitor",
        "name",
        "no_evict",
        "no_touch",
        "queue",
        "reply_mode",
        "resp",
        "subscriptions",
        "tracking",
        "transport",
        "user",
        "wake",
        "watch_broken",
        "watched",
    )

    def __init__(
        self,
        engine: Engine,
        user: User,
        db: Keyspace,
        transport: Transport = "local",
        resp: int = 2,
        address: str = "",
        id: int = 0,
    ) -> None:
        self.engine = engine
        self.user = user
        self.db = db
        self.transport = transport
        self.resp = resp
        self.address = address
        self.local_address = "127.0.0.1:6379"
        self.id = id
        self.name = b""
        self.library: dict[str, bytes] = {}
        self.queue: list[tuple[CommandSpec, list[bytes]]] | None = None
        self.aborted = False
        self.watched: list[tuple[Keyspace, bytes, bool]] = []
        self.watch_broken = False
        self.in_exec = False
        self.in_script = False
        self.subscriptions: dict[str, dict[bytes, None]] = {
            "channel": {},
            "pattern": {},
            "shard": {},
        }
        self.monitor: Callable[[int, Session, list[bytes]], None] | None = None
        self.reply_mode = "on"
        """What CLIENT REPLY chose for a port: "on", "off", or "skip" for the next reply only."""
        self.wake: Callable[[], None] | None = None
        """What the transport wants called when the session is to be closed from elsewhere."""
        self.closing = False
        """Whether the transport is to end the connection after the present reply."""
        self.tracking: TrackingOptions | None = None
        self.no_evict = False
        self.no_touch = False
        self.created_us = engine.clock.now_us()
        self.last_us = self.created_us
        self.last_command = ""
        self.deliver: Callable[[list[Any]], None] | None = None

    def push(self, message: list[Any]) -> None:
        """Give the session something it did not ask for, where its transport can carry it."""
        if self.deliver is not None:
            self.deliver(message)

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch, fixed during a command, script or transaction."""
        return self.db.now_ms

    @property
    def may_block(self) -> bool:
        """Whether a blocking command may wait here."""
        return self.transport == "port" and not self.in_exec and not self.in_script
