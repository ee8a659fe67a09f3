"""Sorted sets: members by (score, member bytes), with ranks, score and lexicographic ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ..algorithms.scanning import ScanOrder
from .score_order import Item, ScoreOrder

if TYPE_CHECKING:
    from ..table.config import Config


class ScoreRange(NamedTuple):
    """An interval of scores; each end may be exclusive, as ``(1`` says in a command."""

    low: float
    high: float
    low_exclusive: bool = False
    high_exclusive: bool = False


class LexRange(NamedTuple):
    """An interval of members; None is ``-`` as the low end and ``+`` as the high end.

    ``reversed_infinity`` marks ``+`` as the low end or ``-`` as the high end: nothing is inside.
    """

    low: bytes | None
    high: bytes | None
    low_exclusive: bool = False
    high_exclusive: bool = False
    reversed_infinity: bool = False

    def above_low(self, member: bytes) -> bool:
        """Whether ``member`` is not below the low end."""
        if self.low is None:
            return True
        return member > self.low if self.low_exclusive else member >= self.low

    def below_high(self, member: bytes) -> bool:
        """Whether ``member`` is not above the high end."""
        if self.high is None:
            return True
        return member < self.high if self.high_exclusive else member <= self.high

    @property
    def empty(self) -> bool:
        """Whether no member at all can be inside."""
        if self.reversed_infinity:
            return True
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (
            self.low == self.high and (self.low_exclusive or self.high_exclusive)
        )


class SortedSet:
    """Members with a score each: a dictionary for the score, blocks for the order.

    Scores are never NaN. Adding, removing, rank and range starts are O(log n).
    """

    type_name: ClassVar[str] = "zset"
    __slots__ = ("_longest", "_order", "_peak", "_scan_order", "_scores")

    def __init__(self, scores: Mapping[bytes, float] | None = None) -> None:
        """Build from member -> score; sorted once, so quicker than adding one by one."""
        self._scores: dict[bytes, float] = dict(scores or {})
        self._order = ScoreOrder((score, member) for member, score in self._scores.items())
        # What decides the encoding is the largest it ever was: the real server converts when a
        # limit is passed and never back.
        self._peak = len(self._scores)
        self._longest = max(map(len, self._scores), default=0)
        self._scan_order: ScanOrder | None = None

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self._scores

    def __iter__(self) -> Iterator[Item]:
        return iter(self._order)

    def __reversed__(self) -> Iterator[Item]:
        return reversed(self._order)

    def encoding(self, config: Config) -> str:
        """The word OBJECT ENCODING answers: ``listpack`` while small, else ``skiplist``."""
        if self._peak <= config.number(
            "zset-max-listpack-entries"
        ) and self._longest <= config.number("zset-max-listpack-value"):
            return "listpack"
        return "skiplist"

    def to_skiplist(self) -> None:
        """Take the large encoding for good, as sorting by SORT makes it on the server."""
        self._peak = max(self._peak, 1 << 62)

    def copy(self) -> SortedSet:
        """An independent copy with the same encoding."""
        twin = SortedSet.__new__(SortedSet)
        twin._scores = self._scores.copy()
        twin._order = self._order.copy()
        twin._peak = self._peak
        twin._longest = self._longest
        twin._scan_order = None
        return twin

    def stay_packed(self) -> None:
        """Take no account of how long the present members are, as a server that restores a listpack."""
        self._longest = 0

    def score(self, member: bytes) -> float | None:
        """The score of ``member``, or None."""
        return self._scores.get(member)

    @property
    def scores(self) -> Mapping[bytes, float]:
        """Member -> score, in no particular order; not to be changed."""
        return self._scores

    def set(self, member: bytes, score: float) -> bool:
        """Give ``member`` this score, whether it was there or not; whether that changed anything."""
        scores = self._scores
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
            if len(member) > self._longest:
                self._longest = len(member)
        elif old != score:
            self._order.remove(old, member)
            self._order.add(score, member)
            scores[member] = score
        else:
            return False
        return True

    def _fits_listpack(self, member: bytes) -> bool:
        """Whether the set with this member is small: then the sign of zero is not kept.

        A listpack holds whole scores as integers. The limits are the defaults, whatever is set.
        """
        longest = max(self._longest, len(member))
        added = member not in self._scores
        return longest <= 64 and max(self._peak, len(self._scores) + added) <= 128

    def as_stored(self) -> SortedSet:
        """This set as it is once it lies under a key: a small one forgets the sign of zero."""
        if self._scores and self._fits_listpack(b"") and 0.0 in self._scores.values():
            return SortedSet({member: score + 0.0 for member, score in self._scores.items()})
        return self

    def remove(self, member: bytes) -> bool:
        """Remove ``member``; whether it was there."""
        score = self._scores.pop(member, None)
        if score is None:
            return False
        self._order.remove(score, member)
        return True

    def rank(self, member: bytes, *, reverse: bool = False) -> int | None:
        """How many members are before this one (after it, with ``reverse``), or None."""
        score = self._scores.get(member)
        if score is None:
            return None
        rank = self._order.position(score, member)
        return len(self._scores) - 1 - rank if reverse else rank

    def at(self, rank: int) -> Item:
        """The item at a rank that exists."""
        return self._order.at(rank)

    def slice(self, start: int, stop: int) -> list[Item]:
        """The items with start <= rank < stop, both within 0..length."""
        return self._order.slice(start, stop)

    def span(self, scores: ScoreRange) -> tuple[int, int]:
        """The ranks (start, stop) of the items whose score is in the interval."""
        low, high, low_exclusive, high_exclusive = scores
        order = self._order
        if low > high:
            return 0, 0
        start = self._above(low) if low_exclusive else order.position(low)
        stop = order.position(high) if high_exclusive else self._above(high)
        return start, max(start, stop)

    def _above(self, score: float) -> int:
        """How many items have this score or a lower one."""
        if score == math.inf:
            return len(self._order)
        return self._order.position(math.nextafter(score, math.inf))

    def in_lex_range(self, members: LexRange, *, reverse: bool = False) -> list[Item]:
        """The items whose member is in the interval, in order.

        Meant for sets whose scores are all equal, where it is O(log n + found). With mixed scores
        the real server's answer depends on its encoding; here it is that of its small encoding:
        from the first member that reaches the near end, up to the first that passes the far end.
        """
        if members.empty or not self._scores:
            return []
        first_score = self._order.at(0)[0]
        if first_score == self._order.at(len(self._order) - 1)[0]:
            start, stop = self._lex_span(members, first_score)
            found = self._order.slice(start, stop)
            return found[::-1] if reverse else found
        # The small encoding first asks whether the interval can overlap the set at all.
        if not members.above_low(self._order.at(len(self._order) - 1)[1]):
            return []
        if not members.below_high(self._order.at(0)[1]):
            return []
        near, far = members.above_low, members.below_high
        items: Iterable[Item] = self._order
        if reverse:
            near, far = far, near
            items = reversed(self._order)
        found = []
        for item in items:
            if not found and not near(item[1]):
                continue
            if not far(item[1]):
                break
            found.append(item)
        return found

    def _lex_span(self, members: LexRange, score: float) -> tuple[int, int]:
        low, high, low_exclusive, high_exclusive, _ = members
        order = self._order
        # The least byte string above m is m + NUL.
        start = 0
        if low is not None:
            start = order.position(score, low + b"\0" if low_exclusive else low)
        stop = len(order)
        if high is not None:
            stop = order.position(score, high if high_exclusive else high + b"\0")
        return start, max(start, stop)

    def remove_span(self, start: int, stop: int) -> list[Item]:
        """Remove and return the items with start <= rank < stop."""
        removed = self._order.remove_slice(start, stop)
        for _, member in removed:
            del self._scores[member]
        return removed

    def scan(self, cursor: int, count: int) -> tuple[int, list[Item]]:
        """At most ``count`` items from a cursor on and the cursor to go on with (0 at the end).

        A member that stays is met whatever is added, removed or rescored between two calls.
        """
        if self._scan_order is None:
            self._scan_order = ScanOrder(self._scores)
        following, members = self._scan_order.page(cursor, count)
        return following, [(self._scores[member], member) for member in members]
