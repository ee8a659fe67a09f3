"""The plan's limit on the messages of a queue that are delivered at the same time."""

from __future__ import annotations

from collections import deque

from .data import QueueData


class Parallelism:
    """The global parallelism limit. A message that counts towards it has a *slot*.

    ``active`` are the ids of the messages that have a slot, ``waiting`` those of the messages without
    flow control that wait for a slot.
    """

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self.active: set[str] = set()
        self.waiting: deque[str] = deque()

    @property
    def limit(self) -> int | None:
        return self._data.limits.parallelism

    @property
    def wait_reason(self) -> str:
        return f"global parallelism {self.limit}"

    def has_room(self) -> bool:
        limit = self._data.limits.parallelism
        return limit is None or len(self.active) < limit
