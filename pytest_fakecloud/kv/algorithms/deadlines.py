"""Expiry times, of which the due ones are found without looking at the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

_FEW = 64


class Deadlines(dict[bytes, int]):
    """Maps keys or fields to their expiry times in Unix milliseconds.

    Set a time with `put()`; remove it like an item of a dictionary. The first search for due times
    builds a heap, so a server on which nothing expires pays for none. Entries of the heap whose key
    has got another time are skipped.
    """

    __slots__ = ("_bound", "_heap")

    def __init__(self, times: Mapping[bytes, int] | None = None) -> None:
        super().__init__(times or {})
        self._heap: list[tuple[int, bytes]] | None = None
        self._bound: float = -math.inf if times else math.inf
        """A time before which nothing expires."""

    def put(self, key: bytes, at_ms: int) -> None:
        self[key] = at_ms
        if at_ms < self._bound:
            self._bound = at_ms
        if self._heap is not None:
            heappush(self._heap, (at_ms, key))
            if len(self._heap) > 2 * len(self) + _FEW:
                self._heap = None

    def earliest(self) -> int | None:
        """Return the earliest time, or None if there are none."""
        heap = self._heap
        if heap is None:
            heap = self._heap = [(at_ms, key) for key, at_ms in self.items()]
            heapify(heap)
        while heap and self.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        self._bound = heap[0][0] if heap else math.inf
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[bytes]:
        """Yield the keys whose time has come, earliest first. The caller must remove each of them,
        or set a later time.
        """
        while self._bound <= now_ms and (at_ms := self.earliest()) is not None and at_ms <= now_ms:
            assert self._heap is not None
            yield self._heap[0][1]
