"""List values, which keep their items in blocks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar

from ..algorithms.positions import Positions
from ..table.config import Config
from .sizes import LISTPACK_OVERHEAD, entry_size

LOAD = 512
"""Number of items in a block after a split. A block is split when it has more than twice as many."""

NODE_BYTES = {-1: 4096, -2: 8192, -3: 16384, -4: 32768, -5: 65536}
"""Maximum node sizes in bytes for the negative values of ``list-max-listpack-size``."""
_NODE_SIZES = (*NODE_BYTES.values(), 1 << 63)
_HALF_SIZES = tuple(size // 2 for size in NODE_BYTES.values())
_SAFE = 2
"""Number of node sizes up to Redis's safety limit of 8192 bytes.

The limit applies if ``list-max-listpack-size`` is a number of items.
"""
_FEW = 32
"""Number of removed items above which rebuilding all blocks is quicker than single removals."""


class QuickList:
    """A sequence of byte strings in blocks of at most 1,024. Only an empty list has an empty block.

    Access at both ends takes O(1), because blocks are short. Access by index takes O(log n),
    because a tree contains the sums of the blocks' lengths. Insertion and removal in the middle
    take time proportional to the length of a block.
    """

    type_name: ClassVar[str] = "list"
    __slots__ = ("_blocks", "_bytes", "_exceeded", "_length", "_positions")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        whole = list(items)
        self._blocks = [whole[at : at + LOAD] for at in range(0, len(whole), LOAD)] or [[]]
        self._length = len(whole)
        self._bytes = LISTPACK_OVERHEAD + sum(map(entry_size, whole))
        self._exceeded = 0
        """Number of node sizes that the list has exceeded, without falling to half of them since.

        Redis converts a list that exceeded the limit back to a listpack only at half the limit: a
        list that had 5,000 bytes exceeds the first size until it has 2,048 bytes.
        """
        self._note_size()
        self._positions: Positions | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            yield from block

    def __reversed__(self) -> Iterator[bytes]:
        for block in reversed(self._blocks):
            yield from reversed(block)

    def encoding(self, config: Config) -> str:
        """Return ``listpack`` if the list fits in one node and the version has listpack lists."""
        if not config.packs_lists_and_sets:
            return "quicklist"
        limit = config.number("list-max-listpack-size")
        if limit >= 0:
            packed = self._length <= max(limit, 1) and self._exceeded < _SAFE
        else:
            packed = self._exceeded < min(-limit, len(NODE_BYTES))
        return "listpack" if packed else "quicklist"

    def copy(self) -> QuickList:
        twin = QuickList()
        twin._blocks = [block.copy() for block in self._blocks]
        twin._length = self._length
        twin._bytes = self._bytes
        twin._exceeded = self._exceeded
        return twin

    def _shrank(self, items: Iterable[bytes]) -> None:
        for item in items:
            self._length -= 1
            self._bytes -= entry_size(item)
        if self._exceeded and self._bytes <= _HALF_SIZES[self._exceeded - 1]:
            self._note_size()

    def _note_size(self) -> None:
        at_least = bisect_left(_NODE_SIZES, self._bytes)
        at_most = bisect_left(_HALF_SIZES, self._bytes)
        self._exceeded = min(max(self._exceeded, at_least), at_most)

    def _insert(self, i: int, j: int, item: bytes) -> None:
        """Insert an item at index ``j`` of block ``i``, and split the block if it is full."""
        block = self._blocks[i]
        block.insert(j, item)
        self._length += 1
        self._bytes += entry_size(item)
        if self._bytes > _NODE_SIZES[self._exceeded]:
            self._note_size()
        if len(block) > 2 * LOAD:
            self._blocks.insert(i + 1, block[LOAD:])
            del block[LOAD:]
            self._positions = None
        elif self._positions is not None:
            self._positions.add(i, 1)

    def push_right(self, items: Iterable[bytes]) -> None:
        for item in items:
            last = len(self._blocks) - 1
            self._insert(last, len(self._blocks[last]), item)

    def push_left(self, items: Iterable[bytes]) -> None:
        """Prepend the items one after another, so that the last item becomes the head."""
        for item in items:
            self._insert(0, 0, item)

    def _pop(self, i: int, j: int) -> bytes:
        item = self._blocks[i].pop(j)
        self._shrank((item,))
        if not self._blocks[i] and len(self._blocks) > 1:
            del self._blocks[i]
            self._positions = None
        elif self._positions is not None:
            self._positions.add(i, -1)
        return item

    def pop_left(self) -> bytes:
        """Remove and return the head; the list must not be empty."""
        return self._pop(0, 0)

    def pop_right(self) -> bytes:
        """Remove and return the tail; the list must not be empty."""
        return self._pop(len(self._blocks) - 1, -1)

    def _find(self, index: int) -> tuple[int, int]:
        if index < len(self._blocks[0]):
            return 0, index
        if self._positions is None:
            self._positions = Positions(map(len, self._blocks))
        return self._positions.find(index)

    def at(self, index: int) -> bytes:
        i, j = self._find(index)
        return self._blocks[i][j]

    def replace(self, index: int, item: bytes) -> None:
        i, j = self._find(index)
        self._bytes += entry_size(item) - entry_size(self._blocks[i][j])
        self._blocks[i][j] = item
        self._note_size()

    def insert(self, index: int, item: bytes) -> None:
        """Insert an item before the item at ``index``, or append it if ``index`` equals the length."""
        if index >= self._length:
            self.push_right((item,))
        else:
            self._insert(*self._find(index), item)

    def slice(self, start: int, stop: int) -> list[bytes]:
        """Return the items with ``start <= index < stop``. Both bounds must be within 0..length."""
        if start >= stop:
            return []
        i, j = self._find(start)
        wanted = stop - start
        found = self._blocks[i][j : j + wanted]
        while len(found) < wanted:
            i += 1
            found += self._blocks[i][: wanted - len(found)]
        return found

    def remove_slice(self, start: int, stop: int) -> list[bytes]:
        """Remove and return the items with ``start <= index < stop``, both within 0..length."""
        removed = self.slice(start, stop)
        if not removed:
            return removed
        i, j = self._find(start)
        last, end = self._find(stop) if stop < self._length else (len(self._blocks), 0)
        if i == last:
            del self._blocks[i][j:end]
        else:
            if end:
                del self._blocks[last][:end]
            if j:
                del self._blocks[i][j:]
                i += 1
            del self._blocks[i:last]
        self._blocks = self._blocks or [[]]
        self._positions = None
        self._shrank(removed)
        return removed

    def matches(self, item: bytes, *, reverse: bool = False, maxlen: int = 0) -> Iterator[int]:
        """Yield the indexes of equal items among the first ``maxlen`` (0: all), perhaps in reverse."""
        compared = islice(reversed(self) if reverse else iter(self), maxlen or None)
        last = self._length - 1
        for steps, candidate in enumerate(compared):
            if candidate == item:
                yield last - steps if reverse else steps

    def remove(self, item: bytes, count: int) -> int:
        """Remove up to ``abs(count)`` equal items (0: all), from the tail if it is negative."""
        limit = min(abs(count), self._length) or self._length
        doomed = sorted(islice(self.matches(item, reverse=count < 0), limit), reverse=True)
        if len(doomed) > _FEW:
            gone = set(doomed)
            kept = [each for index, each in enumerate(self) if index not in gone]
            self._blocks = [kept[i : i + LOAD] for i in range(0, len(kept), LOAD)] or [[]]
            self._positions = None
            self._shrank([item] * len(doomed))
        else:
            for index in doomed:
                self._pop(*self._find(index))
        return len(doomed)
