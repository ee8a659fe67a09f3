"""Arrays: sparse maps from unsigned indexes to strings, with a cursor for appending.

The name of the type (`array`) is decided here, like the form of its payloads: those of DUMP and `.rdb`
files are values of a module `fakearray`, which only fakes can read, with the cursor and the size of a
ring. The name of the encoding is from the documentation of Redis 8.8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from itertools import chain
from typing import ClassVar

from ..config import Config

MAX_INDEX = 2**64 - 2
SLICE_SIZE = 4096
"""Number of consecutive indexes that the vendor's server stores together, as ARINFO reports it."""
_FEW = 8
"""Number of changes in the middle of an array above which one pass over all indexes is quicker."""


class ArrayValue:
    """The values of an array by index, and the occupied indexes in ascending order.

    ``cursor`` is the index of the last append, or None before the first. ``ring_size`` is the size
    of the last ARRING, or 0. ``slices`` are the numbers of values in each occupied slice.
    """

    __slots__ = ("_indexes", "cursor", "ring_size", "size", "slices", "values")

    type_name: ClassVar[str] = "array"

    def __init__(self, values: Iterable[tuple[int, bytes]] = ()) -> None:
        self.values: dict[int, bytes] = {}
        self._indexes: list[int] = []
        self.slices = Counter[int]()
        self.cursor: int | None = None
        self.ring_size = 0
        self.size = 0
        """Length in bytes of all values."""
        self.set(values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the indexes and values, in ascending order."""
        return self.between(0, MAX_INDEX)

    def encoding(self, config: Config) -> str:
        return "sliced-array"

    def copy(self) -> ArrayValue:
        twin = shallow_copy(self)
        twin.values, twin._indexes = self.values.copy(), self._indexes.copy()
        twin.slices = self.slices.copy()
        return twin

    def mend(self) -> None:
        """Make all parts agree with the values, after an exception between two changes."""
        rebuilt = ArrayValue(self.values.items())
        self._indexes, self.slices, self.size = rebuilt._indexes, rebuilt.slices, rebuilt.size

    @property
    def length(self) -> int:
        """The highest occupied index plus 1."""
        return self._indexes[-1] + 1 if self._indexes else 0

    @property
    def next_index(self) -> int:
        """The index of the next append. It exceeds ``MAX_INDEX`` if no append is possible."""
        return 0 if self.cursor is None else self.cursor + 1

    # -- reading -----------------------------------------------------------------------------------

    def _span(self, first: int, last: int) -> range:
        """Return the positions, among the occupied indexes, of those from ``first`` to ``last``."""
        return range(bisect_left(self._indexes, first), bisect_right(self._indexes, last))

    def count_between(self, first: int, last: int) -> int:
        return len(self._span(first, last))

    def between(
        self, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the indexes from ``first`` to ``last`` that are occupied, with their values."""
        span = self._span(first, last)
        for position in reversed(span) if reverse else span:
            index = self._indexes[position]
            yield index, self.values[index]

    def latest(self, count: int) -> list[bytes | None]:
        """Return what is at the last ``count`` indexes up to the cursor, newest first.

        Below index 0, they continue at the end of the array. The count must not exceed the number
        of values.
        """
        at_start = min(count, self.next_index)
        before = range(self.next_index - 1, self.next_index - 1 - at_start, -1)
        wrapped = range(self.length - 1, self.length - 1 - (count - at_start), -1)
        return list(map(self.values.get, chain(before, wrapped)))

    def _newest(self, count: int) -> list[bytes]:
        """Return the last ``count`` values up to the cursor, oldest first, without holes."""
        appended = bisect_left(self._indexes, self.next_index)
        ordered = self._indexes[appended:] + self._indexes[:appended]
        return [self.values[index] for index in ordered[-count:]]

    # -- writing -----------------------------------------------------------------------------------

    def set(self, values: Iterable[tuple[int, bytes]]) -> int:
        """Set values by index; return the number of indexes that were not occupied."""
        added: list[int] = []
        for index, value in values:
            old = self.values.get(index)
            if old is None:
                added.append(index)
                self.slices[index // SLICE_SIZE] += 1
            else:
                self.size -= len(old)
            self.values[index] = value
            self.size += len(value)
        added.sort()
        indexes = self._indexes
        if not indexes or (added and added[0] > indexes[-1]):
            indexes += added
        elif len(added) <= _FEW:
            for index in added:
                insort(indexes, index)
        else:
            indexes += added
            indexes.sort()
        return len(added)

    def remove(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Remove the values in inclusive ranges, which may overlap; return their number."""
        spans: list[range] = []
        removed = at = 0
        for first, last in sorted(ranges):
            start = bisect_left(self._indexes, first, at)
            at = bisect_right(self._indexes, last, start)
            if start < at:
                spans.append(range(start, at))
        for span in spans:
            for index in self._indexes[span.start : span.stop]:
                self.size -= len(self.values.pop(index))
                self._leave_slice(index // SLICE_SIZE)
            removed += len(span)
        if len(spans) <= _FEW:
            for span in reversed(spans):
                del self._indexes[span.start : span.stop]
        else:
            self._indexes = [index for index in self._indexes if index in self.values]
        return removed

    def _leave_slice(self, number: int) -> None:
        self.slices[number] -= 1
        if not self.slices[number]:
            del self.slices[number]

    def append(self, values: Sequence[bytes]) -> None:
        """Set values after the cursor, which moves to the last of them."""
        first = self.next_index
        self.set(enumerate(values, first))
        self.cursor = first + len(values) - 1

    def put_in_ring(self, values: Sequence[bytes], size: int) -> None:
        """Set values after the cursor, continuing at index 0 instead of ``size``.

        If the array was not yet a ring of this size, its newest values that fit are moved to the
        indexes from 0 on, and all others are removed.
        """
        if size != self.ring_size:
            newest = self._newest(size)
            self.values = dict(enumerate(newest))
            self.mend()
            self.cursor, self.ring_size = len(newest) - 1 if newest else None, size
        # An append may have moved the cursor past the ring.
        first = self.next_index if self.next_index < size else 0
        self.set(((first + at) % size, value) for at, value in enumerate(values))
        self.cursor = (first + len(values) - 1) % size
