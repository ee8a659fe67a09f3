"""Prefix sums of block lengths, which convert between positions of items and blocks.

Sorted sets use them. No library maintains such sums separately from the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable


class Positions:
    """A Fenwick tree of block lengths, in which every method takes O(log n) for n blocks.

    The owner adds the changes of single items, and builds a new tree when blocks change.
    """

    __slots__ = ("_highest", "_tree")

    def __init__(self, lengths: Iterable[int]) -> None:
        tree = [0, *lengths]
        for i in range(1, len(tree)):
            parent = i + (i & -i)
            if parent < len(tree):
                tree[parent] += tree[i]
        self._tree = tree
        self._highest = 1 << (len(tree) - 1).bit_length() >> 1 if len(tree) > 1 else 0

    def add(self, block: int, delta: int) -> None:
        """Record that ``block`` (counted from 0) grew by ``delta`` items."""
        tree = self._tree
        i = block + 1
        while i < len(tree):
            tree[i] += delta
            i += i & -i

    def before(self, block: int) -> int:
        """Return the number of items in all blocks before ``block``."""
        tree = self._tree
        total = 0
        while block > 0:
            total += tree[block]
            block &= block - 1
        return total

    def find(self, position: int) -> tuple[int, int]:
        """Return the block that contains an existing position, and the offset in the block."""
        tree = self._tree
        block = 0
        step = self._highest
        while step:
            above = block + step
            if above < len(tree) and tree[above] <= position:
                block = above
                position -= tree[above]
            step >>= 1
        return block, position
