"""Sorted sets: members ordered by score and then by their bytes, with ranks and ranges.

The order is kept as (score, member) items in blocks, so that a change moves few items.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from copy import copy as shallow_copy
from itertools import accumulate, chain, takewhile
from typing import ClassVar, NamedTuple

from .containers import Listpacked, ScanOrder
from .measures import NUMBER

Item = tuple[float, bytes]
"""An item of a sorted set: a score and a member."""

LOAD = 128
"""Number of items in a new block. A block is split when it exceeds twice this number, and merged
with a neighbour when it falls below a quarter of it.
"""
_FEW = 8
"""Number of removed items above which cutting blocks is quicker than single removals."""


class ScoreOrder:
    """Distinct items in order. Changes take O(log n), as do ranks between changes."""

    __slots__ = ("_blocks", "_first_positions", "_last_items")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        """Build the order from items, which need not be sorted."""
        ordered = sorted(items)
        starts = range(0, len(ordered), LOAD)
        self._blocks = [ordered[start : start + LOAD] for start in starts]
        self._last_items = [block[-1] for block in self._blocks]
        self._first_positions = [0, *accumulate(map(len, self._blocks))]
        """The position of the first item of each block, and the length; empty after a change."""

    def __len__(self) -> int:
        return self._first()[-1]

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._blocks)

    def copy(self) -> ScoreOrder:
        twin = shallow_copy(self)
        twin._blocks = [block.copy() for block in self._blocks]
        twin._last_items = self._last_items.copy()
        return twin

    def _first(self) -> list[int]:
        if not self._first_positions:
            self._first_positions = [0, *accumulate(map(len, self._blocks))]
        return self._first_positions

    def _find(self, position: int) -> tuple[int, int]:
        """Return the block that contains a position, and the offset in the block."""
        first = self._first()
        i = bisect_right(first, position) - 1
        return i, position - first[i]

    def position(self, score: float, member: bytes = b"") -> int:
        """Return the number of items before an item or, without member, with a lower score."""
        item = (score, member)
        i = bisect_left(self._last_items, item)
        inside = bisect_left(self._blocks[i], item) if i < len(self._blocks) else 0
        return self._first()[i] + inside

    def add(self, score: float, member: bytes) -> None:
        """Insert an item that does not exist yet."""
        item = (score, member)
        self._first_positions = []
        if not self._blocks:
            self._blocks.append([item])
            self._last_items.append(item)
            return
        i = min(bisect_left(self._last_items, item), len(self._blocks) - 1)
        insort(self._blocks[i], item)
        self._note_size(i)

    def remove(self, score: float, member: bytes) -> None:
        """Remove an item, which must exist."""
        item = (score, member)
        i = bisect_left(self._last_items, item)
        block = self._blocks[i]
        del block[bisect_left(block, item)]
        self._first_positions = []
        if len(block) < LOAD // 4 and len(self._blocks) > 1:
            i = max(i - 1, 0)
            self._blocks[i] += self._blocks.pop(i + 1)
            del self._last_items[i]
        self._note_size(i)

    def _note_size(self, i: int) -> None:
        """Split a block that has grown too large, delete an empty one, and note its last item."""
        block = self._blocks[i]
        if len(block) > 2 * LOAD:
            self._blocks.insert(i + 1, block[LOAD:])
            self._last_items.insert(i + 1, block[-1])
            del block[LOAD:]
        if block:
            self._last_items[i] = block[-1]
        else:
            del self._blocks[i], self._last_items[i]

    def remove_slice(self, start: int, stop: int) -> list[Item]:
        """Remove and return the items with ``start <= position < stop``."""
        removed = self.slice(start, stop)
        if len(removed) <= _FEW:
            for item in removed:
                self.remove(*item)
            return removed
        (i, j), (last, end) = self._find(start), self._find(stop - 1)
        self._blocks[i] = self._blocks[i][:j] + self._blocks[last][end + 1 :]
        del self._blocks[i + 1 : last + 1], self._last_items[i + 1 : last + 1]
        self._first_positions = []
        self._note_size(i)
        return removed

    def at(self, position: int) -> Item:
        i, j = self._find(position)
        return self._blocks[i][j]

    def slice(self, start: int, stop: int) -> list[Item]:
        """Return the items with ``start <= position < stop``. Both bounds must be within 0..length."""
        if start >= stop:
            return []
        (i, j), (last, end) = self._find(start), self._find(stop - 1)
        if i == last:
            return self._blocks[i][j : end + 1]
        between = chain.from_iterable(self._blocks[i + 1 : last])
        return [*self._blocks[i][j:], *between, *self._blocks[last][: end + 1]]


class ScoreRange(NamedTuple):
    """A range of scores from ``first`` on that ends before ``stop``; None means no upper end."""

    first: float
    stop: float | None


class LexRange(NamedTuple):
    """A range of members from ``first`` on that ends before ``stop``; None means no upper end."""

    first: bytes
    stop: bytes | None

    def is_above(self, member: bytes) -> bool:
        return member >= self.first

    def is_below(self, member: bytes) -> bool:
        return self.stop is None or member < self.stop


_MAX_ENTRIES, _MAX_VALUE = 128, 64
"""The defaults of ``zset-max-listpack-entries`` and ``-value``, which apply regardless of CONFIG."""


class SortedSet(Listpacked):
    """A sorted set: ``scores`` from member to score (never NaN), and the items in order."""

    type_name: ClassVar[str] = "zset"
    _large_encoding: ClassVar[str] = "skiplist"
    __slots__ = ("_order", "_scan_order", "scores", "size")

    def __init__(self, scores: Mapping[bytes, float] | None = None) -> None:
        """Build a sorted set from scores. This sorts once, which is faster than adding each member."""
        self.scores: dict[bytes, float] = dict(scores or {})
        self._order = ScoreOrder((score, member) for member, score in self.scores.items())
        self._peak = len(self.scores)
        self._longest = max(map(len, self.scores), default=0)
        self._scan_order: ScanOrder | None = None
        self.size = sum(map(len, self.scores)) + NUMBER * len(self.scores)
        """Length in bytes of all members and scores."""

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._order)

    def copy(self) -> SortedSet:
        twin = shallow_copy(self)
        twin.scores, twin._order = self.scores.copy(), self._order.copy()
        twin._scan_order = None
        return twin

    def set(self, member: bytes, score: float) -> bool:
        """Set the score of a new or existing ``member``; return whether anything changed."""
        scores = self.scores
        if not score and self._fits_listpack(member):
            score = 0.0
        old = scores.get(member)
        if old is None:
            scores[member] = score
            self._order.add(score, member)
            if self._scan_order is not None:
                self._scan_order.add(member)
            if len(scores) > self._peak:
                self._peak = len(scores)
            length = len(member)
            self.size += length + NUMBER
            if length > self._longest:
                self._longest = length
        elif old != score:
            self._order.remove(old, member)
            self._order.add(score, member)
            scores[member] = score
        else:
            return False
        return True

    def _fits_listpack(self, member: bytes) -> bool:
        """Return whether the set is small enough for a listpack, including this member.

        A listpack stores integral scores as integers, so -0 becomes 0.
        """
        peak = max(self._peak, len(self.scores) + (member not in self.scores))
        return peak <= _MAX_ENTRIES and max(self._longest, len(member)) <= _MAX_VALUE

    def as_stored(self) -> SortedSet:
        """Return the set as Redis stores it in a key. In a small set, a score of -0 becomes 0."""
        if self.scores and self._fits_listpack(b"") and 0.0 in self.scores.values():
            return SortedSet({member: score + 0.0 for member, score in self.scores.items()})
        return self

    def remove(self, member: bytes) -> bool:
        score = self.scores.pop(member, None)
        if score is None:
            return False
        self._order.remove(score, member)
        self.size -= len(member) + NUMBER
        return True

    def rank(self, member: bytes, *, reverse: bool = False) -> int | None:
        """Return the number of members before or, in reverse, after a member; None without it."""
        score = self.scores.get(member)
        if score is None:
            return None
        rank = self._order.position(score, member)
        return len(self.scores) - 1 - rank if reverse else rank

    def at(self, rank: int) -> Item:
        return self._order.at(rank)

    def slice(self, start: int, stop: int) -> list[Item]:
        """Return the items with ``start <= rank < stop``. Both bounds must be within 0..length."""
        return self._order.slice(start, stop)

    def span(self, scores: ScoreRange) -> tuple[int, int]:
        """Return the ranks ``(start, stop)`` of the items whose scores are in a range."""
        order = self._order
        start = order.position(scores.first)
        stop = len(order) if scores.stop is None else order.position(scores.stop)
        return start, max(start, stop)

    def lex_span(self, members: LexRange, *, reverse: bool = False) -> tuple[int, int]:
        """Return the ranks ``(start, stop)`` of the items whose members are in a range.

        This is meant for sets in which all scores are equal; it takes O(log n). If scores differ, the
        result in Redis depends on the encoding. This method returns the result for the small
        encoding, which walks through the set: it starts at the first member inside one end of the
        range, and stops at the first member outside the other end.
        """
        order = self._order
        if not self.scores or not members.is_below(members.first):
            return 0, 0
        (score, lowest), (last_score, highest) = order.at(0), order.at(len(order) - 1)
        if score != last_score:
            is_outside = not members.is_above(highest) or not members.is_below(lowest)
            return (0, 0) if is_outside else self._walked_span(members, reverse)
        stop = len(order) if members.stop is None else order.position(score, members.stop)
        return order.position(score, members.first), stop

    def _walked_span(self, members: LexRange, reverse: bool) -> tuple[int, int]:
        near, far = members.is_above, members.is_below
        names = [member for _, member in self]
        if reverse:
            near, far = far, near
            names.reverse()
        skipped = next((at for at, name in enumerate(names) if near(name)), len(names))
        stop = skipped + sum(1 for _ in takewhile(far, names[skipped:]))
        return (len(names) - stop, len(names) - skipped) if reverse else (skipped, stop)

    def remove_span(self, start: int, stop: int) -> list[Item]:
        removed = self._order.remove_slice(start, stop)
        for _, member in removed:
            del self.scores[member]
            self.size -= len(member) + NUMBER
        return removed

    def scan(self, cursor: int, count: int) -> tuple[int, list[Item]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` items."""
        if self._scan_order is None:
            self._scan_order = ScanOrder(self.scores)
        following, members = self._scan_order.page(cursor, count)
        return following, [(self.scores[member], member) for member in members]
