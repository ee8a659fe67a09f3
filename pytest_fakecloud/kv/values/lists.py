"""List values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from itertools import chain, islice
from typing import ClassVar

from ..table.config import Config
from .sizes import LISTPACK_OVERHEAD, entry_size

NODE_BYTES = {-1: 4096, -2: 8192, -3: 16384, -4: 32768, -5: 65536}
"""Maximum node sizes in bytes for the negative values of ``list-max-listpack-size``."""
_NODE_SIZES = (*NODE_BYTES.values(), 1 << 63)
_HALF_SIZES = tuple(size // 2 for size in NODE_BYTES.values())
_LOW_SIZES = (0, *_HALF_SIZES)
"""The size in bytes that ends the state of having exceeded a number of node sizes."""
_SAFE = 2
"""Number of node sizes up to Redis's safety limit of 8192 bytes.

The limit applies if ``list-max-listpack-size`` is a number of items.
"""
_FEW = 32
"""Number of removed items above which building a new list is quicker than single removals."""


class QuickList:
    """A sequence of byte strings: ``_front`` contains the first items in reverse, ``_back`` the others.

    Changes at both ends take O(1) on average, and access by index O(1). Other changes take O(n).
    """

    type_name: ClassVar[str] = "list"
    __slots__ = ("_back", "_bytes", "_exceeded", "_front", "_stays_packed", "size")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self._front: list[bytes] = []
        self._back = list(items)
        self.size = sum(map(len, self._back))
        """Length in bytes of all items."""
        self._bytes = LISTPACK_OVERHEAD
        """Size of the list in bytes as a single listpack."""
        self._exceeded = 0
        """Number of node sizes that the list has exceeded, without falling to half of them since.

        Redis converts a list that exceeded the limit back to a listpack only at half the limit: a
        list that had 5,000 bytes exceeds the first size until it has 2,048 bytes.
        """
        self._stays_packed = False
        """Whether the list is a listpack until it grows, whatever the limits are."""
        self._note_size(sum(map(entry_size, self._back)))

    def __len__(self) -> int:
        return len(self._front) + len(self._back)

    def __iter__(self) -> Iterator[bytes]:
        return chain(reversed(self._front), self._back)

    def __reversed__(self) -> Iterator[bytes]:
        return chain(reversed(self._back), self._front)

    def encoding(self, config: Config) -> str:
        """Return ``listpack`` if the list fits in one node and the version has listpack lists."""
        if not config.packs_lists_and_sets:
            return "quicklist"
        if self._stays_packed:
            return "listpack"
        limit = config.number("list-max-listpack-size")
        if limit >= 0:
            packed = len(self) <= max(limit, 1) and self._exceeded < _SAFE
        else:
            packed = self._exceeded < min(-limit, len(NODE_BYTES))
        return "listpack" if packed else "quicklist"

    def keep_encoding(self, config: Config) -> None:
        """Keep the present encoding until the next write, before a limit in ``config`` changes."""
        self._stays_packed = self.encoding(config) == "listpack"
        self._exceeded = 0 if self._stays_packed else len(NODE_BYTES)

    def copy(self) -> QuickList:
        twin = shallow_copy(self)
        twin._front, twin._back = self._front.copy(), self._back.copy()
        return twin

    def _note_size(self, added: int) -> None:
        """Note that the list has grown by a number of bytes, or shrunk by a negative one."""
        size = self._bytes = self._bytes + added
        if added > 0:
            self._stays_packed = False
            if size > _NODE_SIZES[self._exceeded]:
                self._exceeded = bisect_left(_NODE_SIZES, size)
        elif size <= _LOW_SIZES[self._exceeded]:
            self._exceeded = bisect_left(_HALF_SIZES, size)

    def _note_added(self, items: Iterable[bytes]) -> None:
        for item in items:
            self.size += len(item)
            self._note_size(entry_size(item))

    def _note_removed(self, item: bytes) -> None:
        self.size -= len(item)
        self._note_size(-entry_size(item))

    def push_left(self, items: Sequence[bytes]) -> None:
        """Prepend the items one after another, so that the last item becomes the head."""
        self._front += items
        self._note_added(items)

    def push_right(self, items: Sequence[bytes]) -> None:
        self._back += items
        self._note_added(items)

    def _divide(self, at: int) -> None:
        """Move items from one half to the other, so that ``at`` items are in front."""
        items = list(self)
        self._front, self._back = items[:at][::-1], items[at:]

    def pop_left(self) -> bytes:
        """Remove and return the head; the list must not be empty."""
        if not self._front:
            self._divide((len(self) + 1) // 2)
        item = self._front.pop()
        self._note_removed(item)
        return item

    def pop_right(self) -> bytes:
        """Remove and return the tail; the list must not be empty."""
        if not self._back:
            self._divide(len(self) // 2)
        item = self._back.pop()
        self._note_removed(item)
        return item

    def _find(self, index: int) -> tuple[list[bytes], int]:
        """Return the half that contains an existing index, and the index in it."""
        index -= len(self._front)
        return (self._back, index) if index >= 0 else (self._front, ~index)

    def at(self, index: int) -> bytes:
        half, index = self._find(index)
        return half[index]

    def replace(self, index: int, item: bytes) -> None:
        half, index = self._find(index)
        self.size += len(item) - len(half[index])
        self._note_size(entry_size(item) - entry_size(half[index]))
        half[index] = item

    def insert(self, index: int, item: bytes) -> None:
        """Insert an item before the item at ``index``, or append it if ``index`` equals the length."""
        index -= len(self._front)
        if index >= 0:
            self._back.insert(index, item)
        else:
            self._front.insert(-index, item)
        self._note_added([item])

    def slice(self, start: int, stop: int) -> list[bytes]:
        """Return the items with ``start <= index < stop``. Both bounds must be within 0..length."""
        start, stop = start - len(self._front), stop - len(self._front)
        if start >= 0:
            return self._back[start:stop]
        first = self._front[max(-stop, 0) : -start][::-1]
        return first + self._back[:stop] if stop > 0 else first

    def matches(self, item: bytes, *, reverse: bool = False, maxlen: int = 0) -> Iterator[int]:
        """Yield the indexes of equal items among the first ``maxlen`` (0: all), perhaps in reverse."""
        compared = islice(reversed(self) if reverse else iter(self), maxlen or None)
        last = len(self) - 1
        for steps, candidate in enumerate(compared):
            if candidate == item:
                yield last - steps if reverse else steps

    def remove(self, item: bytes, count: int) -> int:
        """Remove up to ``abs(count)`` equal items (0: all), from the tail if it is negative."""
        limit = min(abs(count), len(self)) or None
        doomed = sorted(islice(self.matches(item, reverse=count < 0), limit), reverse=True)
        if len(doomed) > _FEW:
            gone = set(doomed)
            kept = [each for index, each in enumerate(self) if index not in gone]
            self._front, self._back = [], kept
        else:
            for index in doomed:
                half, at = self._find(index)
                del half[at]
        self.size -= len(doomed) * len(item)
        self._note_size(-len(doomed) * entry_size(item))
        return len(doomed)
