"""List values."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy as shallow_copy
from itertools import islice
from typing import ClassVar

from ..table.config import Config
from .sizes import LISTPACK_OVERHEAD, entry_size

NODE_BYTES = {-1: 4096, -2: 8192, -3: 16384, -4: 32768, -5: 65536}
"""Maximum node sizes in bytes for the negative values of ``list-max-listpack-size``."""
_NODE_SIZES = (*NODE_BYTES.values(), 1 << 63)
_HALF_SIZES = tuple(size // 2 for size in NODE_BYTES.values())
_SAFE = 2
"""Number of node sizes up to Redis's safety limit of 8192 bytes.

The limit applies if ``list-max-listpack-size`` is a number of items.
"""
_FEW = 32
"""Number of removed items above which building a new list is quicker than single removals."""


class QuickList:
    """A sequence of byte strings. Changes at both ends take O(1), and others O(n)."""

    type_name: ClassVar[str] = "list"
    __slots__ = ("_bytes", "_exceeded", "_items")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self._items = deque(items)
        self._bytes = LISTPACK_OVERHEAD
        """Size of the list in bytes as a single listpack."""
        self._exceeded = 0
        """Number of node sizes that the list has exceeded, without falling to half of them since.

        Redis converts a list that exceeded the limit back to a listpack only at half the limit: a
        list that had 5,000 bytes exceeds the first size until it has 2,048 bytes.
        """
        self._note_size(sum(map(entry_size, self._items)))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[bytes]:
        return reversed(self._items)

    def encoding(self, config: Config) -> str:
        """Return ``listpack`` if the list fits in one node and the version has listpack lists."""
        if not config.packs_lists_and_sets:
            return "quicklist"
        limit = config.number("list-max-listpack-size")
        if limit >= 0:
            packed = len(self._items) <= max(limit, 1) and self._exceeded < _SAFE
        else:
            packed = self._exceeded < min(-limit, len(NODE_BYTES))
        return "listpack" if packed else "quicklist"

    def copy(self) -> QuickList:
        twin = shallow_copy(self)
        twin._items = self._items.copy()
        return twin

    def _note_size(self, added: int) -> None:
        """Note that the list has grown by a number of bytes."""
        self._bytes += added
        at_least = bisect_left(_NODE_SIZES, self._bytes)
        at_most = bisect_left(_HALF_SIZES, self._bytes)
        self._exceeded = min(max(self._exceeded, at_least), at_most)

    def push_left(self, items: Iterable[bytes]) -> None:
        """Prepend the items one after another, so that the last item becomes the head."""
        for item in items:
            self._items.appendleft(item)
            self._note_size(entry_size(item))

    def push_right(self, items: Iterable[bytes]) -> None:
        for item in items:
            self._items.append(item)
            self._note_size(entry_size(item))

    def pop_left(self) -> bytes:
        """Remove and return the head; the list must not be empty."""
        item = self._items.popleft()
        self._note_size(-entry_size(item))
        return item

    def pop_right(self) -> bytes:
        """Remove and return the tail; the list must not be empty."""
        item = self._items.pop()
        self._note_size(-entry_size(item))
        return item

    def at(self, index: int) -> bytes:
        return self._items[index]

    def replace(self, index: int, item: bytes) -> None:
        self._note_size(entry_size(item) - entry_size(self._items[index]))
        self._items[index] = item

    def insert(self, index: int, item: bytes) -> None:
        """Insert an item before the item at ``index``, or append it if ``index`` equals the length."""
        self._items.insert(index, item)
        self._note_size(entry_size(item))

    def slice(self, start: int, stop: int) -> list[bytes]:
        """Return the items with ``start <= index < stop``. Both bounds must be within 0..length."""
        after = len(self._items) - stop
        if start <= after:
            return list(islice(self._items, start, stop))
        return list(islice(reversed(self._items), after, len(self._items) - start))[::-1]

    def matches(self, item: bytes, *, reverse: bool = False, maxlen: int = 0) -> Iterator[int]:
        """Yield the indexes of equal items among the first ``maxlen`` (0: all), perhaps in reverse."""
        compared = islice(reversed(self) if reverse else iter(self), maxlen or None)
        last = len(self._items) - 1
        for steps, candidate in enumerate(compared):
            if candidate == item:
                yield last - steps if reverse else steps

    def remove(self, item: bytes, count: int) -> int:
        """Remove up to ``abs(count)`` equal items (0: all), from the tail if it is negative."""
        limit = min(abs(count), len(self._items)) or None
        doomed = sorted(islice(self.matches(item, reverse=count < 0), limit), reverse=True)
        if len(doomed) > _FEW:
            gone = set(doomed)
            self._items = deque(each for at, each in enumerate(self._items) if at not in gone)
        else:
            for index in doomed:
                del self._items[index]
        self._note_size(-len(doomed) * entry_size(item))
        return len(doomed)
