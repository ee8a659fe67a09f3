"""Sorted sets: members ordered by score and then by their bytes, with ranks and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy as shallow_copy
from itertools import dropwhile, takewhile
from typing import ClassVar, NamedTuple

from ..algorithms.scanning import ScanOrder
from ..table.config import Config
from .score_order import Item, ScoreOrder
from .sizes import NUMBER


class ScoreRange(NamedTuple):
    """A range of scores. Each end can be exclusive, like ``(1`` in a command."""

    low: float
    high: float
    low_exclusive: bool = False
    high_exclusive: bool = False


class LexRange(NamedTuple):
    """A range of members; None means ``-`` as the low and ``+`` as the high end."""

    low: bytes | None
    high: bytes | None
    low_exclusive: bool = False
    high_exclusive: bool = False
    reversed_infinity: bool = False

    def above_low(self, member: bytes) -> bool:
        if self.low is None:
            return True
        return member > self.low if self.low_exclusive else member >= self.low

    def below_high(self, member: bytes) -> bool:
        if self.high is None:
            return True
        return member < self.high if self.high_exclusive else member <= self.high

    @property
    def empty(self) -> bool:
        """Whether the range is empty, whatever members a set has."""
        if self.reversed_infinity:
            return True
        if self.low is None or self.high is None:
            return False
        excludes_an_end = self.low_exclusive or self.high_exclusive
        return self.low > self.high or (self.low == self.high and excludes_an_end)


_MAX_ENTRIES, _MAX_VALUE = 128, 64
"""The defaults of ``zset-max-listpack-entries`` and ``-value``, which apply regardless of CONFIG."""


class SortedSet:
    """A sorted set: ``scores`` from member to score (never NaN), and the items in order."""

    type_name: ClassVar[str] = "zset"
    __slots__ = ("_longest", "_order", "_peak", "_scan_order", "scores", "size")

    def __init__(self, scores: Mapping[bytes, float] | None = None) -> None:
        """Build a sorted set from scores. This sorts once, which is faster than adding each member."""
        self.scores: dict[bytes, float] = dict(scores or {})
        self._order = ScoreOrder((score, member) for member, score in self.scores.items())
        # Redis never converts a set back, so the encoding depends on the largest size so far.
        self._peak = len(self.scores)
        self._longest = max(map(len, self.scores), default=0)
        self._scan_order: ScanOrder | None = None
        self.size = sum(map(len, self.scores)) + NUMBER * len(self.scores)
        """Length in bytes of all members and scores."""

    def __len__(self) -> int:
        return len(self.scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self.scores

    def __iter__(self) -> Iterator[Item]:
        return iter(self._order)

    def __reversed__(self) -> Iterator[Item]:
        return reversed(self._order)

    def encoding(self, config: Config) -> str:
        """Return ``skiplist`` if the set ever exceeded a limit for listpacks, else ``listpack``."""
        most = config.number("zset-max-listpack-entries")
        longest = config.number("zset-max-listpack-value")
        return "listpack" if self._peak <= most and self._longest <= longest else "skiplist"

    def keep_encoding(self, config: Config) -> None:
        """Keep the present encoding until the next write, before a limit in ``config`` changes."""
        if self.encoding(config) == "listpack":
            self._peak = self._longest = 0
        else:
            self.to_skiplist()

    def to_skiplist(self) -> None:
        """Make the encoding ``skiplist`` permanently, as Redis does when SORT reads a sorted set."""
        self._peak = 1 << 62  # above every limit

    def copy(self) -> SortedSet:
        twin = shallow_copy(self)
        twin.scores, twin._order = self.scores.copy(), self._order.copy()
        twin._scan_order = None
        return twin

    def stay_packed(self) -> None:
        """Choose the encoding regardless of current lengths, as Redis after restoring a listpack."""
        self._longest = 0

    def score(self, member: bytes) -> float | None:
        return self.scores.get(member)

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
        low, high, low_exclusive, high_exclusive = scores
        order = self._order
        if low > high:
            return 0, 0
        start = self._count_up_to(low) if low_exclusive else order.position(low)
        stop = order.position(high) if high_exclusive else self._count_up_to(high)
        return start, max(start, stop)

    def _count_up_to(self, score: float) -> int:
        """Return the number of items whose score is at most ``score``."""
        if score == math.inf:
            return len(self._order)
        return self._order.position(math.nextafter(score, math.inf))

    def in_lex_range(self, members: LexRange, *, reverse: bool = False) -> list[Item]:
        """Return the items whose members are in a range, in order.

        This is meant for sets in which all scores are equal; it takes O(log n) plus the number of
        results. If scores differ, the result in Redis depends on the encoding. This method returns
        the result for the small encoding, which walks through the set: it starts at the first
        member inside one end of the range, and stops at the first member outside the other end.
        """
        if members.empty or not self.scores:
            return []
        first_score = self._order.at(0)[0]
        if first_score == self._order.at(len(self._order) - 1)[0]:
            start, stop = self._lex_span(members, first_score)
            found = self._order.slice(start, stop)
            return found[::-1] if reverse else found
        return self._walk(members, reverse)

    def _walk(self, members: LexRange, reverse: bool) -> list[Item]:
        """Return the items in a range of members as Redis does with the small encoding."""
        (_, first), (_, last) = self._order.at(0), self._order.at(len(self._order) - 1)
        if not members.above_low(last) or not members.below_high(first):
            return []
        near, far = members.above_low, members.below_high
        items: Iterable[Item] = self._order
        if reverse:
            near, far, items = far, near, reversed(self._order)
        reached = dropwhile(lambda item: not near(item[1]), items)
        return list(takewhile(lambda item: far(item[1]), reached))

    def _lex_span(self, members: LexRange, score: float) -> tuple[int, int]:
        low, high, low_exclusive, high_exclusive, _ = members
        order = self._order
        # A member followed by NUL is the lowest byte string above the member.
        start = 0
        if low is not None:
            start = order.position(score, low + b"\0" if low_exclusive else low)
        stop = len(order)
        if high is not None:
            stop = order.position(score, high if high_exclusive else high + b"\0")
        return start, max(start, stop)

    def remove_span(self, start: int, stop: int) -> list[Item]:
        """Remove and return the items with ``start <= rank < stop``."""
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
