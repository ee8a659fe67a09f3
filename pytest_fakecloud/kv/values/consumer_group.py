"""Consumer groups of a stream, with their positions and their consumers' pending entries.

A group counts the entries that it has read (``entries-read``), from which its lag follows. Deleted
entries make the number of entries before an ID uncertain. Redis 7.2 and later (``estimate``) then
compute the counter from the stream, and report it as unknown for all IDs before the last deleted
one. Redis 7.0 incremented the counter instead while a group was positioned before the first entry
of the stream, when the counter can have any value, so it could report a negative lag.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stream import Stream

SEQUENCE_MAX = (1 << 64) - 1
ID_MAX = (1 << 128) - 1
"""The highest entry ID: milliseconds in the high, the sequence number in the low 64 bits."""
UNKNOWN_ENTRIES_READ = -1
"""The value of a group's ``entries_read`` if the number of entries up to its last ID is unknown."""


@dataclass(slots=True)
class Pending:
    """An entry that was delivered to a consumer but not acknowledged."""

    consumer: Consumer
    delivered_ms: int
    deliveries: int


class PendingList:
    """Pending entries in the order of their IDs.

    The order is kept in a plain list. With 1,000 entries, the default maximum per consumer, it is
    as quick as blocks or a tree would be.
    """

    __slots__ = ("_entries", "_order")

    def __init__(self) -> None:
        self._entries: dict[int, Pending] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: int) -> bool:
        return entry_id in self._entries

    def get(self, entry_id: int) -> Pending | None:
        return self._entries.get(entry_id)

    def put(self, entry_id: int, pending: Pending) -> None:
        if entry_id not in self._entries:
            insort(self._order, entry_id)
        self._entries[entry_id] = pending

    def pop(self, entry_id: int) -> Pending | None:
        pending = self._entries.pop(entry_id, None)
        if pending is not None:
            del self._order[bisect_left(self._order, entry_id)]
        return pending

    def items(self, start: int = 0, end: int = ID_MAX) -> Iterator[tuple[int, Pending]]:
        """Yield the entries with ``start <= id <= end``. The list must not change in between."""
        order = self._order
        for at in range(bisect_left(order, start), bisect_right(order, end)):
            yield order[at], self._entries[order[at]]

    def ends(self) -> tuple[int, int]:
        """Return the lowest and the highest ID; the list must not be empty."""
        return self._order[0], self._order[-1]


@dataclass(slots=True)
class Consumer:
    """A consumer of a group. ``active_ms`` is -1 until it receives its first entry."""

    name: bytes
    seen_ms: int
    active_ms: int = -1
    pending: PendingList = field(default_factory=PendingList)


@dataclass(slots=True)
class Group:
    """A consumer group: its last delivered ID, its consumers and their pending entries."""

    last_id: int
    entries_read: int = UNKNOWN_ENTRIES_READ
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: PendingList = field(default_factory=PendingList)

    def sorted_consumers(self) -> list[Consumer]:
        return [self.consumers[name] for name in sorted(self.consumers)]

    def deliver(
        self, entry_id: int, consumer: Consumer, now_ms: int, deliveries: int = 1
    ) -> Pending:
        """Make an entry pending for ``consumer``, even if it is pending for another one."""
        before = self.pending.get(entry_id)
        if before is not None:
            before.consumer.pending.pop(entry_id)
        pending = Pending(consumer, now_ms, deliveries)
        self.pending.put(entry_id, pending)
        consumer.pending.put(entry_id, pending)
        return pending

    def give(self, entry_id: int, pending: Pending, consumer: Consumer) -> None:
        """Move a pending entry to another consumer, keeping its delivery time and count."""
        if pending.consumer is not consumer:
            pending.consumer.pending.pop(entry_id)
            pending.consumer = consumer
            consumer.pending.put(entry_id, pending)

    def acknowledge(self, entry_id: int) -> bool:
        """Remove a pending entry; return whether it was pending."""
        pending = self.pending.pop(entry_id)
        if pending is None:
            return False
        pending.consumer.pending.pop(entry_id)
        return True

    def remove_consumer(self, name: bytes) -> int | None:
        """Remove a consumer; return the number of its pending entries, or None if there is none."""
        consumer = self.consumers.pop(name, None)
        if consumer is None:
            return None
        for entry_id, _ in consumer.pending.items():
            self.pending.pop(entry_id)
        return len(consumer.pending)

    def copy(self) -> Group:
        twin = Group(self.last_id, self.entries_read)
        for name, consumer in self.consumers.items():
            twin.consumers[name] = Consumer(name, consumer.seen_ms, consumer.active_ms)
        for entry_id, pending in self.pending.items():
            owner = twin.consumers[pending.consumer.name]
            twin.deliver(entry_id, owner, pending.delivered_ms, pending.deliveries)
        return twin


# -- progress -------------------------------------------------------------------------------------


def entries_up_to(stream: Stream, entry_id: int, *, estimate: bool = True) -> int:
    """Return the number of entries ever added up to an ID, or UNKNOWN_ENTRIES_READ.

    The number is known for the last entry and, unless an entry behind the first one was deleted,
    for the first entry and the IDs before it.
    """
    if not stream.length and entry_id <= stream.last_id:
        return stream.entries_added  # All entries have been deleted or trimmed.
    if estimate and entry_id and entry_id < stream.max_deleted_id:
        return UNKNOWN_ENTRIES_READ
    if entry_id == stream.last_id:
        return stream.entries_added
    if entry_id > stream.last_id:
        return UNKNOWN_ENTRIES_READ
    if not stream.max_deleted_id or stream.max_deleted_id < stream.first_id:
        if entry_id < stream.first_id:
            return stream.entries_added - stream.length
        if entry_id == stream.first_id:
            return stream.entries_added - stream.length + 1
    return UNKNOWN_ENTRIES_READ


def lag(stream: Stream, group: Group, *, estimate: bool) -> int | None:
    """Return the number of entries that a group has not read yet, or None if unknown."""
    if not stream.entries_added:
        return 0
    if _is_countable(stream, group, group.last_id, estimate):
        return stream.entries_added - group.entries_read
    read = entries_up_to(stream, group.last_id, estimate=estimate)
    return None if read == UNKNOWN_ENTRIES_READ else stream.entries_added - read


def advance(stream: Stream, group: Group, entry_id: int, *, estimate: bool) -> None:
    """Move a group to an entry that it has just received, and count the entry as read."""
    if entry_id <= group.last_id:
        return
    after = group.last_id if estimate else entry_id
    if _is_countable(stream, group, after, estimate) and (not estimate or after >= stream.first_id):
        group.entries_read += 1
    else:
        group.entries_read = entries_up_to(stream, entry_id, estimate=estimate)
    group.last_id = entry_id


def _is_countable(stream: Stream, group: Group, after: int, estimate: bool) -> bool:
    """Return whether a group's counter is known and no entry from ``after`` on was deleted."""
    if group.entries_read == UNKNOWN_ENTRIES_READ:
        return False
    if not estimate and stream.first_id > stream.max_deleted_id:
        return True
    return not (stream.length and stream.max_deleted_id and after <= stream.max_deleted_id)
