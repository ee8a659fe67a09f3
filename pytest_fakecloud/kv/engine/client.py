"""The state of a client, such as its user, database and open transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..acl.users import AclUser
    from ..model import Transport
    from ..table.registry import CommandSpec
    from .keyspace import Keyspace


@dataclass(slots=True)
class TrackingOptions:
    """The options that a client has set with CLIENT TRACKING.

    ``redirect`` is the ID of the client that receives the messages, 0 for the client itself.
    ``words`` are the option words in lower case. ``caching`` is the mode set by CLIENT CACHING,
    which applies to the next command or transaction. ``broken`` is set when a message could not be
    redirected because the receiver had disconnected.
    """

    redirect: int = 0
    prefixes: list[bytes] = field(default_factory=list)
    words: frozenset[str] = frozenset()
    caching: bool | None = None
    broken: bool = False


class Watched(NamedTuple):
    """A key that a client watches, and whether the key existed when WATCH ran."""

    db: Keyspace
    key: bytes
    existed: bool


@dataclass(eq=False, repr=False, slots=True)
class Client:
    """A client: its user, its database and the state of its connection.

    ``transport`` is the origin of its commands: ``"local"`` (the test), ``"rest"``, or ``"port"``
    (the database port). ``resp`` is the protocol version of its replies, 2 or 3. ``deliver``
    receives pushed messages, e.g. of pub/sub; None if the transport cannot push.
    """

    user: AclUser
    db: Keyspace
    transport: Transport
    resp: int
    address: str
    id: int
    created_us: int
    local_address: str = "127.0.0.1:6379"
    name: bytes = b""
    library: dict[str, bytes] = field(default_factory=dict)
    """The values of ``lib-name`` and ``lib-ver`` that CLIENT SETINFO has set."""
    queue: list[tuple[CommandSpec, list[bytes]]] | None = None
    """Commands queued in the open transaction; None if no transaction is open."""
    aborted: bool = False
    """Whether a command of the open transaction was rejected, so EXEC returns EXECABORT."""
    watched: list[Watched] = field(default_factory=list)
    watch_broken: bool = False
    """Whether a watched key has changed, so EXEC runs no command."""
    in_exec: int = 0
    """Number of commands in the transaction that EXEC is running; 0 if none is running."""
    in_script: bool = False
    subscriptions: dict[str, dict[bytes, None]] = field(
        default_factory=lambda: {"channel": {}, "pattern": {}, "shard": {}}
    )
    monitor: Monitor | None = None
    reply_mode: str = "on"
    """Mode set by CLIENT REPLY: ``"on"``, ``"off"``, or ``"skip"`` to omit the next reply only."""
    wake: Callable[[], None] | None = None
    """Function that closes the connection; any thread may call it."""
    has_left: Callable[[], bool] | None = None
    """Function that returns whether the peer has closed its side; None if that is not known."""
    closing: bool = False
    """Whether the transport closes the connection after the current reply."""
    tracking: TrackingOptions | None = None
    no_evict: bool = False
    """Mode set by CLIENT NO-EVICT, which is only reported."""
    no_touch: bool = False
    """Mode set by CLIENT NO-TOUCH: commands do not update the access times of keys."""
    last_us: int = field(init=False)
    """Time in microseconds of the last command."""
    last_command: str = ""
    deliver: Callable[[list[Any]], None] | None = None

    def __post_init__(self) -> None:
        self.last_us = self.created_us

    def push(self, message: list[Any]) -> None:
        if self.deliver is not None:
            self.deliver(message)

    @property
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; constant during a command, script or transaction."""
        return self.db.now_ms

    @property
    def may_block(self) -> bool:
        """Whether a blocking command of this client may wait instead of replying immediately."""
        return self.transport == "port" and not self.in_exec and not self.in_script

    # -- transactions ----------------------------------------------------------------------------

    def unwatch(self) -> None:
        for watched in self.watched:
            watchers = watched.db.watchers
            watching = watchers.get(watched.key)
            if watching is not None and self in watching:
                watching.remove(self)
                if not watching:
                    del watchers[watched.key]
        self.watched.clear()
        self.watch_broken = False

    def discard_transaction(self) -> None:
        """Discard the open transaction and stop watching all keys."""
        self.queue = None
        self.aborted = False
        self.unwatch()


Monitor = Callable[[int, Client, list[bytes]], None]
"""Function that receives each command: the time in microseconds, the client, and the line."""
