"""The records that an instance on a real cluster has read and not delivered yet."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from typing import Any

Partition = tuple[str, int]


class RecordBuffer:
    """The buffered messages of an instance's partitions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[Any] = deque()
        self._assigned: set[Partition] = set()
        self._delivered: dict[Partition, int] = {}
        self._unreadable: set[Partition] = set()
        """Partitions without a valid offset to start from."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def assigned(self) -> set[Partition]:
        with self._lock:
            return set(self._assigned)

    @property
    def delivered(self) -> dict[Partition, int]:
        """The offset after the last record that was taken, by partition."""
        with self._lock:
            return dict(self._delivered)

    def assign(self, partitions: Collection[Partition]) -> None:
        """Replace the partitions of the instance. Buffered messages stay."""
        with self._lock:
            self._assigned = set(partitions)
            self._delivered.clear()
            self._unreadable.clear()

    def discard(self) -> None:
        with self._lock:
            for known in (self._messages, self._assigned, self._delivered, self._unreadable):
                known.clear()

    def add(self, message: Any) -> None:
        """Append a message, unless its partition has been revoked."""
        with self._lock:
            if (message.topic(), message.partition()) in self._assigned:
                self._messages.append(message)

    def take(self, most: int, most_bytes: int) -> tuple[list[Any], dict[Partition, int]]:
        """Remove and return the next messages, and the offsets after them by partition.

        Returns at most ``most`` messages and, for each partition, ``most_bytes`` bytes or one
        message.
        """
        taken: list[Any] = []
        sizes: dict[Partition, int] = {}
        full: set[Partition] = set()
        rest: deque[Any] = deque()
        with self._lock:
            while self._messages and len(taken) < most:
                message = self._messages.popleft()
                partition = message.topic(), message.partition()
                size = sizes.get(partition, 0) + len(message)
                if partition in full or (partition in sizes and size > most_bytes):
                    # Let all later records of this partition wait, too, to keep the order.
                    full.add(partition)
                    rest.append(message)
                    continue
                sizes[partition] = size
                taken.append(message)
                self._delivered[partition] = message.offset() + 1
            self._messages = rest + self._messages
            return taken, {partition: self._delivered[partition] for partition in sizes}

    def unreadable(self) -> Partition | None:
        """Return a partition that cannot be read, or None; None also while there are messages."""
        with self._lock:
            return None if self._messages else next(iter(self._unreadable), None)

    def mark_unreadable(self, partitions: Collection[Partition]) -> None:
        with self._lock:
            self._unreadable.update(partitions)

    def pop_unreadable(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return which of the partitions were unreadable, and mark them as readable."""
        with self._lock:
            found = self._unreadable & set(partitions)
            self._unreadable -= found
            return found
