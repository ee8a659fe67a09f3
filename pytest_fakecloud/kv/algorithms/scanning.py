"""Collections that change while they are scanned, or whose items expire."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.ids import RandomStream


_FEW = 64


class ScanOrder:
    """The order in which SCAN, HSCAN, SSCAN and ZSCAN return the elements of a collection.

    Each element gets a serial number when it is added, and a cursor is the serial number at which
    to continue. Therefore an element that stays in the collection is always returned. ``live`` is
    the collection itself. Its owner calls `add()` for each new element. Removed elements are
    dropped from the order when they are the majority. The order is built by the first scan or
    random choice, so a collection without either costs nothing.
    """

    __slots__ = ("_elements", "_live", "_next", "_serial_of", "_serials")

    def __init__(self, live: Collection[bytes]) -> None:
        self._live = live
        self._elements = list(live)
        self._serials = list(range(1, len(self._elements) + 1))
        self._serial_of = dict(zip(self._elements, self._serials, strict=True))
        self._next = len(self._elements) + 1

    def add(self, element: bytes) -> None:
        """Add an element. If it was removed and is added again, it keeps its serial number."""
        if element not in self._serial_of:
            self._sweep()
            self._serial_of[element] = self._next
            self._elements.append(element)
            self._serials.append(self._next)
            self._next += 1

    def page(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` elements."""
        self._sweep()
        positions = range(bisect_left(self._serials, cursor), len(self._elements))
        live = (at for at in positions if self._elements[at] in self._live)
        page = [self._elements[at] for at in islice(live, count)]
        following = next(live, None)
        return 0 if following is None else self._serials[following], page

    def draw(self, random: RandomStream) -> bytes:
        """Return a random element of the collection, which must not be empty.

        All elements are equally likely. This takes constant time on average.
        """
        self._sweep()
        elements = self._elements
        while (element := elements[random.randrange(len(elements))]) not in self._live:
            pass
        return element

    def draw_distinct(self, random: RandomStream, count: int) -> list[bytes]:
        """Return ``count`` different random elements, or all if there are not as many."""
        if count >= len(self._live):
            return list(self._live)
        if 2 * count > len(self._live):
            return random.sample(list(self._live), count)
        drawn: dict[bytes, None] = {}
        while len(drawn) < count:
            drawn[self.draw(random)] = None
        return list(drawn)

    def _sweep(self) -> None:
        """Drop removed elements if they are the majority, and not only a few."""
        if len(self._elements) <= 2 * len(self._live) + _FEW:
            return
        serial_of = self._serial_of
        self._elements = [element for element in self._elements if element in self._live]
        self._serials = [serial_of[element] for element in self._elements]
        self._serial_of = dict(zip(self._elements, self._serials, strict=True))


_FEW_DUE = 64


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
            if len(self._heap) > 2 * len(self) + _FEW_DUE:
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
