"""One database: keys, values, TTLs, and the clients that watch keys.

A string is stored as ``bytes`` (or ``bytearray`` after a change in place); every other type is a
class of ``kv/values``. Times are whole milliseconds since the Unix epoch. No reader finds a key
from the millisecond of its expiry on (decided here: a real server keeps the key until the next
millisecond).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..errors import WRONGTYPE, CommandError
from ..values.containers import ExpiryTimes, HashValue, QuickList, ScanOrder, SetValue
from ..values.types import String, type_name
from ..values.zset import SortedSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...core.ids import RandomStream
    from ..config import Config
    from ..search.index import Indexes
    from .execution import Execution

T = TypeVar("T")

_CONTENT = (
    "_order", "accessed", "expires", "frequencies", "indexes", "modified", "values", "volatile",
)  # fmt: skip
"""Attributes that SWAPDB exchanges. The others belong to the database and its number."""
_ENCODED = HashValue | QuickList | SetValue | SortedSet
"""Types whose encoding depends on the limits of the configuration when a value is written."""
_AWAITED = frozenset({"gone", "list", "stream", "zset"})
"""What can happen to a key and end the wait of a blocked client."""
_MANY = 1024
"""Minimum number of keys with a TTL at which setting another TTL also removes expired keys."""


_FIRST_COUNTER = 5
_MAX_COUNTER = 255
_MINUTE_MS = 60_000

Counters = dict[bytes, tuple[int, int]]
"""The counter of each key, and the minute since the Unix epoch in which the key was last accessed."""


_NEVER_EMPTY = frozenset({"array", "hash", "list", "set", "vectorset", "zset"})
"""Types whose keys are deleted with their last element."""


_MENDED = frozenset({"array", "stream", "vector", "vectorset", "zset"})
"""Types with parts that an exception between two changes can leave in disagreement."""


class Frequencies(Counters):
    """The logarithmic counters of accesses to one database's keys, which OBJECT FREQ returns.

    As on a real server, keys have counters only under an LFU policy. A new key's counter starts
    at 5. An access increments the counter with a probability that falls as the counter grows. For
    every ``lfu-decay-time`` minutes without an access, the counter decreases by one.
    """

    def __init__(self, config: Config, random: RandomStream) -> None:
        super().__init__()
        self._config = config
        self._random = random

    def note(self, key: bytes, now_ms: int) -> None:
        counter = self.of(key, now_ms)
        if counter < _MAX_COUNTER:
            base = max(0, counter - _FIRST_COUNTER) * self._config.number("lfu-log-factor")
            counter += self._random.random() < 1 / (base + 1)
        self.put(key, counter, now_ms)

    def of(self, key: bytes, now_ms: int) -> int:
        """Return a key's counter after applying the decay up to the current time."""
        counter, minute = self.get(key, (_FIRST_COUNTER, now_ms // _MINUTE_MS))
        decay = self._config.number("lfu-decay-time")
        idle = (now_ms // _MINUTE_MS - minute) // decay if decay else 0
        return max(0, counter - idle)

    def put(self, key: bytes, counter: int, now_ms: int) -> None:
        self[key] = (counter, now_ms // _MINUTE_MS)


class Watcher(Protocol):
    """A client that watches keys."""

    watch_broken: bool
    """Whether a watched key has changed."""


class KeyspaceCopy(NamedTuple):
    """A copy of a database's content, made by ``Keyspace.snapshot()``."""

    values: dict[bytes, Any]
    expires: dict[bytes, int]
    accessed: dict[bytes, int]
    frequencies: Counters
    modified: dict[bytes, int]
    indexes: Indexes | None


class Keyspace:
    """The keys of one database.

    ``execution`` has the time, and what reads by the running command count as. Commands write with
    ``set()``, ``store()`` and ``get_or_create()``. After changing a value in place they call
    ``touch()`` or, if they have removed elements, ``note_removal()``, which also deletes a key
    without elements. Their ``event`` is the keyspace event to publish: None for the event of the
    running command, ``""`` for none. The methods that read a value return None for a missing key,
    differ in what they update and check, and delete a key that has expired:

    ==========================  ===========  ===========  =========
    method                      access time  hits/misses  type
    ==========================  ===========  ===========  =========
    ``get()``, ``string()``     yes          yes          WRONGTYPE
    ``lookup()``                yes          yes          any
    ``peek()``, ``exists()``    no           yes          any
    ``find()``                  no           no           any
    ==========================  ===========  ===========  =========
    """

    def __init__(self, index: int, execution: Execution) -> None:
        self.index = index
        self.execution = execution
        self.values: dict[bytes, Any] = {}
        self.expires = ExpiryTimes()
        self._purge_at = _MANY
        self.accessed: dict[bytes, int] = {}
        self.volatile = ExpiryTimes()
        """For each hash with expiring fields, the earliest expiry of a field."""
        self.watchers: dict[bytes, list[Watcher]] = {}
        self.frequencies: Frequencies | None = None
        """Access counters of the keys; None unless an LFU eviction policy is set."""
        self.modified: dict[bytes, int] | None = None
        """When each key was last modified; None unless an LRM eviction policy is set. Only set together
        with ``ready``.
        """
        self.changes = 0
        """Number of changes since the last SAVE."""
        self.hits = self.misses = 0
        """Number of reads that found their key; ``misses`` counts the others."""
        self.expired = 0
        """Number of keys that have expired."""
        self.ready: dict[bytes, set[str]] | None = None
        """Keys that may end a wait, in this order, each with what happened to it.

        That is the type of a new value or, for a stream that is gone, ``"gone"``. None while nothing
        needs to know of changes.
        """
        self.changed: dict[bytes, bool] | None = None
        """Changed keys that need an invalidation message, True for expired ones, or None."""
        self.resized: set[bytes] | None = None
        """Keys that changed since their sizes were added up; None until sizes are first requested."""
        self.notify: Callable[[Keyspace, bytes, str | None], None] | None = None
        """Function that receives keyspace events. Only set together with ``ready``."""
        self.notify_fields: Callable[[Keyspace, bytes, str | None, list[bytes]], None] | None = None
        """Function that receives the fields of the events of hashes; None while these are not wanted."""
        self.indexes: Indexes | None = None
        """Search indexes, updated while ``ready`` is set; None until the first index is created."""
        self._order: ScanOrder | None = None
        """The order of the keys in SCAN; None until the first scan or random choice."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; constant during a command, script or transaction."""
        return self.execution.now_ms

    # -- reading ---------------------------------------------------------------------------------

    def lookup(self, key: bytes) -> Any:
        value, execution = self.find(key), self.execution
        if value is None:
            self._note_miss(key, announces=True)
            return None
        if execution.counts_reads:
            self.hits += 1
        if execution.notes_accesses or key not in self.accessed:
            self.accessed[key] = execution.now_ms
        if self.frequencies is not None:
            self.frequencies.note(key, execution.now_ms)
        return value

    def peek(self, key: bytes, *, announces_miss: bool = True) -> Any:
        value = self.find(key)
        if value is None:
            self._note_miss(key, announces_miss)
        elif self.execution.counts_reads:
            self.hits += 1
        return value

    def _note_miss(self, key: bytes, announces: bool) -> None:
        if self.execution.counts_reads:
            self.misses += 1
            if announces:
                self.announce(key, "keymiss")

    def find(self, key: bytes) -> Any:
        value = self.values.get(key)
        if value is None:
            return None
        if key in self.expires and self.expires[key] <= self.execution.now_ms:
            self._expire(key)
            return None
        if key in self.volatile and self._lost_fields(key):
            return None
        return value

    def get(self, key: bytes, kind: type[T]) -> T | None:
        """Return a key's value, or None; raise WRONGTYPE if the value is not a ``kind``."""
        value = self.lookup(key)
        if value is None or type(value) is kind:
            return value
        raise CommandError(WRONGTYPE)

    def string(self, key: bytes) -> String | None:
        """Return the string under a key, or None; raise WRONGTYPE for a value of another type."""
        value = self.lookup(key)
        if value is None or isinstance(value, String):
            return value
        raise CommandError(WRONGTYPE)

    def get_or_create(self, key: bytes, kind: type[T]) -> T:
        """Return a key's value, or an empty one that the caller must fill; raise WRONGTYPE."""
        value = self.lookup(key)
        if value is None:
            value = kind()
            self.values[key] = value
            self.accessed[key] = self.execution.now_ms
            if self._order is not None:
                self._order.add(key)
            self.signal(key, type_name(value))
            if self.notify is not None:
                self.notify(self, key, "new")
            return value
        if type(value) is kind:
            return value
        raise CommandError(WRONGTYPE)

    def exists(self, key: bytes) -> bool:
        return self.peek(key) is not None

    def __len__(self) -> int:
        self.purge()
        return len(self.values)

    def __iter__(self) -> Iterator[bytes]:
        self.purge()
        return iter(list(self.values))

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return up to ``count`` keys by age, and the next cursor (0 after the last page)."""
        self.purge()
        return self._scan_order().page(cursor, count)

    def draw_keys(self, random: RandomStream, count: int) -> list[bytes]:
        self.purge()
        return self._scan_order().draw_distinct(random, count)

    def _scan_order(self) -> ScanOrder:
        if self._order is None:
            self._order = ScanOrder(self.values)
        return self._order

    # -- writing ---------------------------------------------------------------------------------

    def set(
        self,
        key: bytes,
        value: Any,
        keep_ttl: bool = False,
        event: str | None = None,
        *,
        is_change: bool = True,
    ) -> None:
        """Set a key's value. Without ``is_change``, it is no change since the last SAVE."""
        values = self.values
        if self.expires and key in self.expires:
            if self.expires[key] <= self.execution.now_ms:
                self._expire(key)
            elif not keep_ttl:
                del self.expires[key]
        if self._order is not None and key not in values:
            self._order.add(key)
        if self.notify is not None and key not in values:
            self.notify(self, key, "new")
        if self.volatile:
            self.volatile.pop(key, None)
        if self.ready is not None:
            before = values.get(key)
            if before is not None:
                # As on a real server, a key that is overwritten serves nobody.
                self._note_lost_stream(key, before)
            else:
                self.signal(key, type_name(value))
        values[key] = value
        if self.execution.notes_accesses or key not in self.accessed:
            self.accessed[key] = self.execution.now_ms
        if is_change:
            self.changes += 1
        if self.watchers or self.ready is not None:
            self._report_change(key, event)

    def store(self, key: bytes, value: Any, event: str | None = None) -> int:
        """Set a key to a collection, or delete the key if that is empty; return the size."""
        if value:
            self.set(key, value, event=event)
        else:
            self.delete(key)
        return len(value)

    def put_in_place(self, key: bytes, value: Any) -> None:
        """Replace an existing key's value without reporting a change, which the caller does."""
        self.values[key] = value
        if self.resized is not None:
            self.resized.add(key)

    def touch(self, key: bytes, event: str | None = None) -> None:
        """Report a change of a value in place."""
        self.changes += 1
        if self.watchers or self.ready is not None:
            self._report_change(key, event)

    def touch_unwatched(self, key: bytes, event: str | None = None) -> None:
        """Report a change that WATCH and client tracking ignore, such as of a consumer group."""
        self.changes += 1
        if self.ready is not None:
            if self.resized is not None:
                self.resized.add(key)
            self.announce(key, event)

    def signal(self, key: bytes, kind: str) -> None:
        """Have the commands retried that are blocked on a key.

        That happens to a new key, and to a stream that gets an entry or loses a group.
        """
        if self.ready is not None and kind in _AWAITED:
            self.ready.setdefault(key, set()).add(kind)

    def _signal_anything(self, key: bytes) -> None:
        if self.ready is not None:
            self.ready[key] = set(_AWAITED)

    def _note_lost_stream(self, key: bytes, value: Any) -> None:
        if type_name(value) == "stream":
            self.signal(key, "gone")

    def announce(self, key: bytes, event: str | None) -> None:
        """Publish a keyspace event: None for that of the running command, ``""`` for none."""
        if self.notify is not None:
            self.notify(self, key, event)

    def announce_fields(self, key: bytes, fields: list[bytes], event: str | None = None) -> None:
        """Publish which fields a keyspace event of a hash is about, after the event itself."""
        if self.notify_fields is not None:
            self.notify_fields(self, key, event, fields)

    def remove_if_empty(self, key: bytes) -> None:
        value = self.values.get(key)
        if value is not None and not value:
            self._drop(key)
            self.announce(key, "del")

    def note_removal(self, key: bytes, event: str | None = None) -> None:
        """Report that elements were removed from a value; delete the key if none are left."""
        self.touch(key, event)
        self.remove_if_empty(key)

    def delete(self, key: bytes, event: str = "del") -> bool:
        if self.find(key) is None:
            return False
        self._drop(key)
        self.touch(key, event)
        return True

    def expire_at(self, key: bytes, at_ms: int) -> None:
        """Set the expiry of an existing key. A time that is not in the future removes the key."""
        if at_ms <= self.execution.now_ms:
            self.delete(key)
            return
        self._set_expiry(key, at_ms)
        self.touch(key, "expire")

    def _set_expiry(self, key: bytes, at_ms: int) -> None:
        if len(self.expires) >= self._purge_at:
            # Remove expired keys from time to time. Otherwise, keys that are never read again would
            # stay forever in a long-lived server.
            self.purge()
            self._purge_at = max(_MANY, 2 * len(self.expires))
        self.expires.put(key, at_ms)

    def ttl_ms(self, key: bytes) -> int:
        """Return what PTTL replies: milliseconds, -1 without a TTL, or -2 for a missing key."""
        if self.find(key) is None:
            return -2
        at_ms = self.expires.get(key)
        return -1 if at_ms is None else at_ms - self.execution.now_ms

    def persist(self, key: bytes) -> bool:
        if self.find(key) is None or self.expires.pop(key, None) is None:
            return False
        self.touch(key, "persist")
        return True

    def note_fields(self, key: bytes, value: HashValue) -> None:
        """Record when the next field of a hash expires, after a change of the hash or an expiry."""
        soonest = value.expires.earliest()
        if soonest is None:
            self.volatile.pop(key, None)
        else:
            self.volatile.put(key, soonest)

    def next_expiry(self) -> int | None:
        """Return the earliest time at which ``purge()`` finds something to remove, or None."""
        earliest = self.expires.earliest(), self.volatile.earliest()
        return min((at_ms for at_ms in earliest if at_ms is not None), default=None)

    def put_back(
        self, key: bytes, value: Any, at_ms: int | None, event: str = "", *, is_change: bool = True
    ) -> None:
        """Store a complete value with its expiry, e.g. when restoring a dump.

        A value that has expired already only deletes a key that exists.
        """
        if at_ms is not None and at_ms <= self.execution.now_ms:
            self.delete(key)
            return
        self.set(key, value, event=event, is_change=is_change)
        if isinstance(value, HashValue):
            self.note_fields(key, value)
        if at_ms is not None:
            self._set_expiry(key, at_ms)

    def clear(self) -> None:
        self.purge()
        gone = list(self.values)
        self.changes += len(gone)
        self.values.clear()
        self.expires.clear()
        self.accessed.clear()
        self.volatile.clear()
        if self.frequencies is not None:
            self.frequencies.clear()
        if self.modified is not None:
            self.modified.clear()
        self._order = None
        if self.watchers or self.ready is not None:
            for key in gone:
                self.signal(key, "gone")
                # Do not invalidate each key: a flush sends a single message for all keys.
                self._note_change(key, invalidates=False)
        if self.indexes is not None:
            self.indexes.clear()

    def exchange(self, other: Keyspace) -> None:
        self.purge()
        other.purge()
        for db in (self, other):
            for key in {*self.values, *other.values}:
                db.changes += 1
                db._signal_anything(key)
                if db.watchers or db.ready is not None:
                    # Real servers send no invalidations to clients that track the keys.
                    db._note_change(key, invalidates=False)
        for name in _CONTENT:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, theirs)
            setattr(other, name, mine)

    def purge(self) -> None:
        for key in self.volatile.due(self.execution.now_ms):
            self._lost_fields(key)
        for key in self.expires.due(self.execution.now_ms):
            self._expire(key)

    def _expire(self, key: bytes, event: str = "expired") -> None:
        self._drop(key)
        self.expired += 1
        if self.watchers or self.ready is not None:
            self._report_change(key, event, expired=True)

    def _lost_fields(self, key: bytes) -> bool:
        """Remove a hash's expired fields; return whether its key was removed because it is empty."""
        if self.volatile.get(key, self.execution.now_ms + 1) > self.execution.now_ms:
            return False
        value: HashValue = self.values[key]
        expired = value.remove_expired(self.execution.now_ms)
        if value.fields:
            self.note_fields(key, value)
            self.touch(key, "hexpired")
            self.announce_fields(key, expired, "hexpired")
            return False
        self.announce(key, "hexpired")
        self.announce_fields(key, expired, "hexpired")
        self._expire(key, "del")
        return True

    def _drop(self, key: bytes) -> None:
        value = self.values[key]
        # These statements call no function, so a signal's handler cannot raise between two of them.
        del self.values[key]
        if key in self.expires:
            del self.expires[key]
        if key in self.accessed:
            del self.accessed[key]
        if key in self.volatile:
            del self.volatile[key]
        if self.frequencies is not None:
            self.frequencies.pop(key, None)
        self._note_lost_stream(key, value)

    def _report_change(self, key: bytes, event: str | None, *, expired: bool = False) -> None:
        self._note_change(key, expired=expired)
        self.announce(key, event)

    def _note_change(self, key: bytes, *, expired: bool = False, invalidates: bool = True) -> None:
        """Mark a key as changed for the clients that watch it, the engine and the search indexes."""
        for watcher in self.watchers.get(key, ()):
            watcher.watch_broken = True
        if self.ready is not None:
            if self.resized is not None:
                self.resized.add(key)
            if invalidates and self.changed is not None:
                self.changed[key] = expired
            if invalidates and self.modified is not None:
                if key in self.values:
                    self.modified[key] = self.execution.now_ms
                else:
                    self.modified.pop(key, None)
            if self.indexes is not None:
                self.indexes.note_change(self, key)

    def record_changes(self, needed: bool, *, for_tracking: bool) -> None:
        """Start or stop recording changed keys, and those that need an invalidation message."""
        self.ready = (self.ready or {}) if needed else None
        self.changed = (self.changed or {}) if for_tracking else None

    def keep_encodings(self, config: Config) -> None:
        """Keep the encodings of all values until they are written, before a limit changes."""
        for value in self.values.values():
            if isinstance(value, _ENCODED):
                value.keep_encoding(config)

    def mend(self) -> None:
        """Make all parts agree with the values, after an exception between two changes."""
        self.values = {
            key: value
            for key, value in self.values.items()
            if value or type_name(value) not in _NEVER_EMPTY
        }
        values = self.values
        for value in values.values():
            if type_name(value) in _MENDED:
                value.mend()
        self.expires = ExpiryTimes({key: at for key, at in self.expires.items() if key in values})
        self.accessed = {key: at for key, at in self.accessed.items() if key in values}
        if self.modified is not None:
            self.modified = {key: at for key, at in self.modified.items() if key in values}
        self._find_volatile()
        self._order = self.resized = None
        if self.indexes is not None:
            self.indexes.adopt(values)
            for index in self.indexes.named.values():
                index.clear()
                index.scan(self, None, None)

    def _find_volatile(self) -> None:
        self.volatile = ExpiryTimes()
        for key, value in self.values.items():
            if isinstance(value, HashValue) and value.expires:
                self.note_fields(key, value)

    def snapshot(self) -> KeyspaceCopy:
        return KeyspaceCopy(
            {key: _copy(value) for key, value in self.values.items()},
            dict(self.expires),
            dict(self.accessed),
            dict(self.frequencies or {}),
            dict(self.modified or {}),
            None if self.indexes is None else self.indexes.copy(),
        )

    def restore(self, saved: KeyspaceCopy) -> None:
        """Restore the content that ``snapshot()`` copied. The same copy can be restored again."""
        for key in {*self.values, *saved.values}:
            self.touch(key, "")
            self._signal_anything(key)
        values = {key: _copy(value) for key, value in saved.values.items()}
        expires, accessed = ExpiryTimes(saved.expires), dict(saved.accessed)
        indexes = None if saved.indexes is None else saved.indexes.copy()
        if indexes is not None:
            indexes.adopt(values)
        # These statements call no function, so a signal's handler cannot raise between two of them.
        self.values, self.expires, self.accessed = values, expires, accessed
        self.indexes = indexes
        self._order = self.resized = None
        if self.frequencies is not None:
            self.frequencies.clear()
            self.frequencies.update(saved.frequencies)
        if self.modified is not None:
            self.modified = dict(saved.modified)
        self._find_volatile()


def _copy(value: Any) -> Any:
    return value if isinstance(value, bytes) else value.copy()
