"""Consumer groups of a stream, with their positions and their consumers' pending entries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

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

    The order is kept in a plain list. With 1,000 entries, the default maximum per consumer, adding
    and removing an entry takes 0.9 us, as with blocks or a tree. With 100,000 entries it takes 20
    us.
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
        for place in range(bisect_left(order, start), bisect_right(order, end)):
            yield order[place], self._entries[order[place]]

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

    def deliver(self, entry_id: int, consumer: Consumer, now_ms: int, deliveries: int = 1) -> None:
        """Make an entry pending for ``consumer``, even if it is pending for another one."""
        before = self.pending.get(entry_id)
        if before is not None:
            before.consumer.pending.pop(entry_id)
        pending = Pending(consumer, now_ms, deliveries)
        self.pending.put(entry_id, pending)
        consumer.pending.put(entry_id, pending)

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
        for consumer in self.consumers.values():
            twin.consumers[consumer.name] = Consumer(
                consumer.name, consumer.seen_ms, consumer.active_ms
            )
        for entry_id, pending in self.pending.items():
            owner = twin.consumers[pending.consumer.name]
            twin.deliver(entry_id, owner, pending.delivered_ms, pending.deliveries)
        return twin
