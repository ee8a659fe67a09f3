"""One database: keys, values, expiry, and the clients that watch keys.

A string is a ``bytes`` (or a ``bytearray`` once it is changed in place); every other type is a
class of ``kv/values``. Times are whole milliseconds since the Unix epoch; a key whose instant has
come is gone for every reader, at exactly that millisecond (decided here: the server itself keeps it
until the next one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ..algorithms.scanning import ScanOrder
from ..errors import WRONGTYPE, CommandError
from ..values.hashes import HashValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..search.indexes import Indexes
    from ..table.config import Config
    from .client import Client
    from .frequency import Frequencies

String = bytes | bytearray
T = TypeVar("T")


_MANY = 1024
"""Keys with an expiry beyond which those that are expired are looked for."""


class Value(Protocol):
    """What a data structure offers so that it can be kept under a key."""

    type_name: ClassVar[str]
    """The word TYPE answers."""

    def encoding(self, config: Config) -> str:
        """The word OBJECT ENCODING answers."""

    def copy(self) -> Any:
        """An independent copy."""

    def __len__(self) -> int:
        """The number of elements; a value without any is removed (streams excepted)."""


def type_name(value: object) -> str:
    """The word TYPE answers for a stored value."""
    if isinstance(value, bytes | bytearray):
        return "string"
    return value.type_name  # type: ignore[attr-defined,no-any-return]


@dataclass(frozen=True, slots=True)
class KeyspaceCopy:
    """The frozen content of a database, made by ``snapshot``."""

    values: dict[bytes, Any]
    expires: dict[bytes, int]
    accessed: dict[bytes, int]
    indexes: Indexes | None


class Keyspace:
    """The keys of one database.

    ``now_ms`` is set by the engine and stands still during a command, a script or a transaction.
    Commands read with ``lookup``, ``get`` and ``string``, write with ``set`` and ``get_or_create``,
    and call ``touch`` after they changed a value in place.
    """

    __slots__ = (
        "_order",
        "_purge_at",
        "_soonest",
        "accessed",
        "changed",
        "changes",
        "counts_reads",
        "expired",
        "expires",
        "frequencies",
        "hits",
        "index",
        "indexes",
        "misses",
        "notify",
        "now_ms",
        "on_touch",
        "values",
        "volatile",
        "watchers",
    )

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.now_ms = 0
        self.values: dict[bytes, Any] = {}
        self.expires: dict[bytes, int] = {}
        self._purge_at = _MANY
        self.accessed: dict[bytes, int] = {}
        self.volatile: dict[bytes, int] = {}
        """The instant at which the first field of a hash goes, for hashes that have such fields."""
        self.watchers: dict[bytes, list[Client]] = {}
        self.frequencies: Frequencies | None = None
        """Counters of accesses, under an LFU policy only."""
        self.changes = 0
        self.counts_reads = False
        """Whether the running command is one whose reads are counted."""
        self.hits = self.misses = 0
        """How many keys were there when a command read them, and how many were not."""
        self.expired = 0
        self.on_touch: set[bytes] | None = None
        """Keys touched since the engine last served waiting clients; None while no client waits."""
        self.changed: dict[bytes, bool] | None = None
        """Keys that changed since tracking clients were last told, in that order.

        True for those that expired, which is nobody's change. None while no client tracks; only
        ever set together with ``on_touch``."""
        self.notify: Callable[[Keyspace, bytes, str | None], None] | None = None
        """Told of every event of a key (see ``notifications``), while they are wanted.

        Only ever set together with ``on_touch``."""
        self.indexes: Indexes | None = None
        """The search indexes, once there is one; told of changes while ``on_touch`` is set."""
        self._order: ScanOrder | None = None
        self._soonest = 0

    # -- reading ---------------------------------------------------------------------------------

    def lookup(self, key: bytes) -> Any:
        """The value of any type, or None; counts as an access."""
        value = self.values.get(key)
        if value is not None and (key in self.expires or self.volatile):
            value = self.find(key)
        if value is None:
            if self.counts_reads:
                self.misses += 1
            if self.notify is not None:
                self.notify(self, key, "keymiss")
            return None
        if self.counts_reads:
            self.hits += 1
        self.accessed[key] = self.now_ms
        if self.frequencies is not None:
            self.frequencies.note(key, self.now_ms)
        return value

    def peek(self, key: bytes) -> Any:
        """The value of any type, or None, without counting as an access."""
        value = self.find(key)
        if self.counts_reads:
            if value is None:
                self.misses += 1
            else:
                self.hits += 1
        if value is None and self.notify is not None:
            self.notify(self, key, "keymiss")
        return value

    def find(self, key: bytes) -> Any:
        """The value of any type, or None, for a write: it counts neither as an access nor as a miss."""
        value = self.values.get(key)
        if value is not None:
            if key in self.expires and self.expires[key] <= self.now_ms:
                self._expire(key)
                return None
            if self.volatile and self._lost_fields(key):
                return None
        return value

    def get(self, key: bytes, kind: type[T]) -> T | None:
        """The value of that class, or None; raises WRONGTYPE for another class."""
        value = self.lookup(key)
        if value is None or type(value) is kind:
            return value
        raise CommandError(WRONGTYPE)

    def string(self, key: bytes) -> String | None:
        """The string, or None; raises WRONGTYPE for another type."""
        value = self.lookup(key)
        # The first two are nearly all there are, and cost less to ask for.
        if value is None or type(value) is bytes or isinstance(value, bytes | bytearray):
            return value
        raise CommandError(WRONGTYPE)

    def get_or_create(self, key: bytes, kind: type[T]) -> T:
        """The value of that class, an empty new one when the key is free; raises WRONGTYPE.

        The caller fills a new value, and calls ``touch`` as after any change in place.
        """
        value = self.lookup(key)
        if value is None:
            value = kind()
            self.values[key] = value
            self.accessed[key] = self.now_ms
            if self._order is not None:
                self._order.add(key)
            if self.notify is not None:
                self.notify(self, key, "new")
            return value
        if type(value) is kind:
            return value
        raise CommandError(WRONGTYPE)

    def exists(self, key: bytes) -> bool:
        """Whether the key is there, without counting as an access."""
        return self.peek(key) is not None

    def expiry(self, key: bytes) -> int | None:
        """The instant at which the key goes, or None when it stays."""
        return self.expires.get(key)

    def __len__(self) -> int:
        self.purge()
        return len(self.values)

    def __iter__(self) -> Iterator[bytes]:
        self.purge()
        return iter(list(self.values))

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """The next keys from a cursor on, and the cursor to go on with (0 at the end).

        At most ``count`` keys, in order of creation. Every key that is there from the first call to
        the last one is returned.
        """
        self.purge()
        if self._order is None:
            self._order = ScanOrder(self.values)
        return self._order.page(cursor, count)

    # -- writing ---------------------------------------------------------------------------------

    def set(self, key: bytes, value: Any, keep_ttl: bool = False, event: str | None = None) -> None:
        """Put a value under a key, whatever was there; its expiry goes unless it is to be kept.

        ``event`` as in ``touch``; an empty one says that more is done to the value, and told then.
        """
        values = self.values
        if self.expires and key in self.expires:
            if self.expires[key] <= self.now_ms:
                self._expire(key)
            elif not keep_ttl:
                del self.expires[key]
        if self._order is not None and key not in values:
            self._order.add(key)
        if self.notify is not None and key not in values:
            self.notify(self, key, "new")
        if self.volatile:
            self.volatile.pop(key, None)
        values[key] = value
        self.accessed[key] = self.now_ms
        if event is None or event:
            self.changes += 1
        if self.watchers or self.on_touch is not None:
            self._note_change(key)
            if self.notify is not None:
                self.notify(self, key, event)

    def touch(self, key: bytes, event: str | None = None) -> None:
        """Say that the value under a key was changed in place.

        ``event`` is the name for keyspace notifications: left out the command's usual one, empty
        for none.
        """
        self.changes += 1
        if self.watchers or self.on_touch is not None:
            self._note_change(key)
            if self.notify is not None:
                self.notify(self, key, event)

    def announce(self, key: bytes, event: str) -> None:
        """Announce an event of a key that is not one of its changes."""
        if self.notify is not None:
            self.notify(self, key, event)

    def remove_if_empty(self, key: bytes) -> None:
        """Remove the key when its collection has no element left."""
        value = self.values.get(key)
        if value is not None and not value:
            self._drop(key)
            if self.notify is not None:
                self.notify(self, key, "del")

    def delete(self, key: bytes, event: str = "del") -> bool:
        """Remove a key; whether it was there. ``event`` as in ``touch``."""
        if self.find(key) is None:
            return False
        self._drop(key)
        self.touch(key, event)
        return True

    def expire_at(self, key: bytes, at_ms: int, event: str = "expire") -> None:
        """Let an existing key go at an instant; at once when the instant is not in the future."""
        if at_ms <= self.now_ms:
            self.delete(key)
            return
        if len(self.expires) >= self._purge_at:
            # Keys that are never asked for again must go as well, or a server of weeks holds them all.
            self.purge()
            self._purge_at = max(_MANY, 2 * len(self.expires))
        if not self.expires or at_ms < self._soonest:
            self._soonest = at_ms
        self.expires[key] = at_ms
        self.touch(key, event)

    def persist(self, key: bytes) -> bool:
        """Take the expiry off a key; whether it had one."""
        if self.find(key) is None or self.expires.pop(key, None) is None:
            return False
        self.touch(key, "persist")
        return True

    def note_fields(self, key: bytes, value: HashValue) -> None:
        """Note when the first field of a hash goes; after its expiries or the key changed."""
        soonest = value.soonest()
        if soonest is None:
            self.volatile.pop(key, None)
        else:
            self.volatile[key] = soonest
            if self.notify is not None:
                self.notify(self, key, "")

    def next_expiry(self) -> int | None:
        """The instant from which on ``purge`` may find something to remove; None for never."""
        found = [*self.volatile.values()]
        if self.expires:
            found.append(self._soonest)
        return min(found, default=None)

    def put_back(self, key: bytes, value: Any, at_ms: int | None, event: str = "") -> None:
        """Put a whole value that came from elsewhere under a key, with its expiry."""
        self.set(key, value, event=event)
        if isinstance(value, HashValue):
            self.note_fields(key, value)
        if at_ms is not None:
            self.expire_at(key, at_ms, "")

    def clear(self) -> None:
        """Remove every key."""
        self.purge()
        gone = list(self.values)
        self.changes += len(gone)
        self.values.clear()
        self.expires.clear()
        self.accessed.clear()
        self.volatile.clear()
        self._order = None
        if self.watchers or self.on_touch is not None:
            told, self.changed = self.changed, None  # a flush is told as one
            for key in gone:
                self._note_change(key)
            self.changed = told
        if self.indexes is not None:
            self.indexes.forget()

    def exchange(self, other: Keyspace) -> None:
        """Swap contents with another database; sessions that watch a key of either are told."""
        self.purge()
        other.purge()
        for one in (self, other):
            for key in {*self.values, *other.values}:
                one.touch(key, "")
        for name in ("values", "expires", "accessed", "volatile", "indexes", "_order", "_soonest"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, theirs)
            setattr(other, name, mine)

    def purge(self) -> None:
        """Remove every key whose instant has come."""
        for key in list(self.volatile):
            self._lost_fields(key)
        if not self.expires or self.now_ms < self._soonest:
            return
        for key in [key for key, at in self.expires.items() if at <= self.now_ms]:
            self._expire(key)
        self._soonest = min(self.expires.values(), default=0)

    def _expire(self, key: bytes, event: str = "expired") -> None:
        self._drop(key)
        self.expired += 1
        if self.watchers or self.on_touch is not None:
            self._note_change(key, expired=True)
            if self.notify is not None:
                self.notify(self, key, event)

    def _lost_fields(self, key: bytes) -> bool:
        """Remove the fields of a hash whose instant has come; whether the key went with them."""
        if self.volatile.get(key, self.now_ms + 1) > self.now_ms:
            return False
        value: HashValue = self.values[key]
        value.expire(self.now_ms)
        if value.fields:
            self.note_fields(key, value)
            self.touch(key, "hexpired")
            return False
        if self.notify is not None:
            self.notify(self, key, "hexpired")
        self._expire(key, "del")
        return True

    def _drop(self, key: bytes) -> None:
        del self.values[key]
        self.expires.pop(key, None)
        self.accessed.pop(key, None)
        self.volatile.pop(key, None)
        if self.frequencies is not None:
            self.frequencies.forget(key)

    def _note_change(self, key: bytes, *, expired: bool = False) -> None:
        for watcher in self.watchers.get(key, ()):
            watcher.watch_broken = True
        if self.on_touch is not None:
            self.on_touch.add(key)
            if self.changed is not None:
                self.changed[key] = expired
            if self.indexes is not None:
                self.indexes.note(self, key)

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> KeyspaceCopy:
        """A copy of the content that later changes leave alone."""
        return KeyspaceCopy(
            {key: _copy(value) for key, value in self.values.items()},
            dict(self.expires),
            dict(self.accessed),
            None if self.indexes is None else self.indexes.copy(),
        )

    def restore(self, saved: KeyspaceCopy) -> None:
        """Put the content back to what it was at ``snapshot``; the copy stays usable."""
        for key in {*self.values, *saved.values}:
            self.touch(key, "")
        self.values = {key: _copy(value) for key, value in saved.values.items()}
        self.expires = dict(saved.expires)
        self.accessed = dict(saved.accessed)
        self.volatile = {}
        for key, value in self.values.items():
            if isinstance(value, HashValue) and value.expires:
                self.note_fields(key, value)
        self._soonest = min(self.expires.values(), default=0)
        self._order = None
        self.indexes = None if saved.indexes is None else saved.indexes.copy()
        if self.indexes is not None:
            self.indexes.adopt(self.values)


def _copy(value: Any) -> Any:
    return value if isinstance(value, bytes) else value.copy()
