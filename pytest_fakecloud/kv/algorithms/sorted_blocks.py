"""A sorted sequence of distinct items in blocks: O(log n) insertion, removal and rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from .positions import Positions

T = TypeVar("T")

LOAD = 512
"""Items of a fresh block; one of twice that is split, one of a quarter merged with its neighbour.

Inserting into a list of at most 1,024 pointers costs less than one comparison more in the search.
"""


class SortedBlocks(Generic[T]):
    """Distinct comparable items in ascending order.

    Items are compared as Python compares them; callers use tuples and integers. Searching with a
    shorter tuple (``(score,)``) finds the place before every item with that prefix.
    """

    __slots__ = ("_blocks", "_lasts", "_length", "_positions")

    def __init__(self, items: Iterable[T] = ()) -> None:
        """Build from ``items`` in any order (they are sorted once)."""
        ordered: list[Any] = sorted(items)
        self._blocks: list[list[Any]] = [
            ordered[i : i + LOAD] for i in range(0, len(ordered), LOAD)
        ]
        self._lasts: list[Any] = [block[-1] for block in self._blocks]
        self._length = len(ordered)
        self._positions: Positions | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for block in self._blocks:
            yield from block

    def __reversed__(self) -> Iterator[T]:
        for block in reversed(self._blocks):
            yield from reversed(block)

    def copy(self) -> SortedBlocks[T]:
        """An independent copy; the items themselves are shared."""
        twin: SortedBlocks[T] = SortedBlocks()
        twin._blocks = [block.copy() for block in self._blocks]
        twin._lasts = self._lasts.copy()
        twin._length = self._length
        return twin

    def add(self, item: T) -> None:
        """Insert an item that is not there yet."""
        lasts = self._lasts
        self._length += 1
        if not lasts:
            self._blocks.append([item])
            lasts.append(item)
            self._positions = None
            return
        i = bisect_left(lasts, item)
        if i == len(lasts):
            i -= 1
            block = self._blocks[i]
            block.append(item)
            lasts[i] = item
        else:
            block = self._blocks[i]
            insort(block, item)
        if len(block) > 2 * LOAD:
            tail = block[LOAD:]
            del block[LOAD:]
            self._blocks.insert(i + 1, tail)
            lasts[i] = block[-1]
            lasts.insert(i + 1, tail[-1])
            self._positions = None
        elif self._positions is not None:
            self._positions.add(i, 1)

    def remove(self, item: T) -> None:
        """Remove an item; ValueError when it is not there."""
        i = bisect_left(self._lasts, item)
        if i < len(self._lasts):
            block = self._blocks[i]
            j = bisect_left(block, item)
            if block[j] == item:
                del block[j]
                self._length -= 1
                self._shrunk(i, 1)
                return
        raise ValueError(f"{item!r} is not in the sequence")

    def _shrunk(self, i: int, by: int) -> None:
        block = self._blocks[i]
        if not block:
            del self._blocks[i], self._lasts[i]
            self._positions = None
            return
        self._lasts[i] = block[-1]
        if len(block) < LOAD // 4 and len(self._blocks) > 1:
            left = i - 1 if i else 0
            self._blocks[left] += self._blocks[left + 1]
            self._lasts[left] = self._lasts[left + 1]
            del self._blocks[left + 1], self._lasts[left + 1]
            self._positions = None
            if len(self._blocks[left]) > 2 * LOAD:
                merged = self._blocks[left]
                self._blocks.insert(left + 1, merged[LOAD:])
                del merged[LOAD:]
                self._lasts.insert(left + 1, self._lasts[left])
                self._lasts[left] = merged[-1]
        elif self._positions is not None:
            self._positions.add(i, -by)

    def _tree(self) -> Positions:
        if self._positions is None:
            self._positions = Positions(map(len, self._blocks))
        return self._positions

    def position(self, bound: Any) -> int:
        """How many items are less than ``bound``: the rank of an item that is there."""
        i = bisect_left(self._lasts, bound)
        if i == len(self._lasts):
            return self._length
        before = self._tree().before(i) if i else 0
        return before + bisect_left(self._blocks[i], bound)

    def at(self, position: int) -> T:
        """The item at ``position`` (0 <= position < length)."""
        if len(self._blocks) == 1:
            return self._blocks[0][position]  # type: ignore[no-any-return]
        i, j = self._tree().find(position)
        return self._blocks[i][j]  # type: ignore[no-any-return]

    def slice(self, start: int, stop: int) -> list[T]:
        """The items at positions start <= p < stop, both already within 0..length."""
        if start >= stop:
            return []
        if len(self._blocks) == 1:
            return self._blocks[0][start:stop]
        i, j = self._tree().find(start)
        wanted = stop - start
        found = self._blocks[i][j : j + wanted]
        while len(found) < wanted:
            i += 1
            found += self._blocks[i][: wanted - len(found)]
        return found

    def iterate(self, start: int = 0) -> Iterator[T]:
        """The items from position ``start`` on; the sequence must not change meanwhile."""
        if start >= self._length:
            return
        i, j = self._tree().find(start)
        yield from self._blocks[i][j:]
        for block in self._blocks[i + 1 :]:
            yield from block

    def remove_slice(self, start: int, stop: int) -> list[T]:
        """Remove and return the items at positions start <= p < stop."""
        removed = self.slice(start, stop)
        if len(removed) <= 8:
            for item in removed:
                self.remove(item)
            return removed
        i, j = self._tree().find(start)
        left = len(removed)
        self._length -= left
        self._positions = None
        if j:
            head = self._blocks[i]
            cut = min(left, len(head) - j)
            del head[j : j + cut]
            self._lasts[i] = head[-1]
            left -= cut
            i += 1
        whole = i
        while left and left >= len(self._blocks[whole]):
            left -= len(self._blocks[whole])
            whole += 1
        del self._blocks[i:whole], self._lasts[i:whole]
        if left:
            del self._blocks[i][:left]
        return removed
