"""Values with elements: hashes, whose fields can have TTLs, lists, and sets."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy as shallow_copy
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import ClassVar

from ...core.ids import RandomStream
from ..config import Config
from ..syntax import try_int
from .measures import LISTPACK_OVERHEAD, entry_size

# -- elements and their expiry ---------------------------------------------------------------------

_FEW_OUTDATED = 64
"""Number of outdated entries that a scan order or a heap keeps, however few others are left."""


class ScanOrder:
    """The order in which SCAN, HSCAN, SSCAN and ZSCAN return the elements of a collection.

    Each element gets a serial number when it is added, and a cursor is the serial number at which
    to continue. Therefore an element that stays in the collection is always returned. ``live`` is
    the collection itself. Its owner calls `add()` for each new element. Removed elements are
    dropped from the order when they are the majority. The order is built by the first scan or
    random choice, so a collection without either costs nothing.
    """

    __slots__ = ("_elements", "_live", "_next", "_serials")

    def __init__(self, live: Collection[bytes]) -> None:
        self._live = live
        self._elements = list(live)
        self._serials = {element: at for at, element in enumerate(self._elements, 1)}
        self._next = len(self._elements) + 1

    def add(self, element: bytes) -> None:
        """Add an element. If it was removed and is added again, it keeps its serial number."""
        if element not in self._serials:
            self._sweep()
            self._serials[element] = self._next
            self._elements.append(element)
            self._next += 1

    def page(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` elements."""
        self._sweep()
        first = bisect_left(self._elements, cursor, key=self._serials.__getitem__)
        elements = map(self._elements.__getitem__, range(first, len(self._elements)))
        live = filter(self._live.__contains__, elements)
        page = list(islice(live, count))
        following = next(live, None)
        return 0 if following is None else self._serials[following], page

    def draw(self, random: RandomStream) -> bytes:
        """Return a random element, in constant time on average; the collection must not be empty."""
        self._sweep()
        elements = self._elements
        while (element := elements[random.randrange(len(elements))]) not in self._live:
            pass
        return element

    def draw_distinct(self, random: RandomStream, count: int) -> list[bytes]:
        """Return ``count`` different random elements, or all if there are not as many."""
        if 2 * count > len(self._live):
            live = list(self._live)
            return live if count >= len(live) else random.sample(live, count)
        drawn: dict[bytes, None] = {}
        while len(drawn) < count:
            drawn[self.draw(random)] = None
        return list(drawn)

    def _sweep(self) -> None:
        """Drop removed elements if they are the majority, and not only a few."""
        if len(self._elements) <= 2 * len(self._live) + _FEW_OUTDATED:
            return
        self._elements = [element for element in self._elements if element in self._live]
        self._serials = {element: self._serials[element] for element in self._elements}


class ExpiryTimes(dict[bytes, int]):
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
            if len(self._heap) > 2 * len(self) + _FEW_OUTDATED:
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


# -- encodings -------------------------------------------------------------------------------------

_ABOVE_LIMITS = 1 << 62
"""A size above every limit of an encoding."""


class Listpacked:
    """A hash, set or sorted set, which is a listpack until it exceeds a limit.

    The encoding depends on the largest number of elements so far, and on the longest one, because
    Redis never converts a value back to the small encoding.
    """

    __slots__ = ("_longest", "_peak")

    type_name: ClassVar[str]
    _large_encoding: ClassVar[str] = "hashtable"

    def encoding(self, config: Config) -> str:
        """Return the large encoding if the value ever exceeded a limit, else ``listpack``."""
        most = config.number(f"{self.type_name}-max-listpack-entries")
        longest = config.number(f"{self.type_name}-max-listpack-value")
        is_small = self._peak <= most and self._longest <= longest
        return "listpack" if is_small else self._large_encoding

    def keep_encoding(self, config: Config) -> None:
        """Keep the present encoding until the next write, before a limit in ``config`` changes."""
        if self.encoding(config) == "listpack":
            self._peak = self._longest = 0
        else:
            self.make_large()

    def make_large(self) -> None:
        self._longest = _ABOVE_LIMITS

    def stay_packed(self) -> None:
        """Choose the encoding regardless of current lengths, as Redis after restoring a listpack."""
        self._longest = 0


# -- hashes ----------------------------------------------------------------------------------------

_NO_TTLS = ExpiryTimes()
"""Shared by the hashes that never had a TTL. It stays empty."""


class HashValue(Listpacked):
    """The fields and values of a hash in order of creation.

    ``size`` is the length in bytes of all fields and values. ``expires`` maps the fields that have
    a TTL to their expiry times in Unix milliseconds. From the first TTL on, the hash is large.
    """

    __slots__ = ("_order", "expires", "fields", "size")

    type_name: ClassVar[str] = "hash"

    def __init__(self, fields: dict[bytes, bytes] | None = None) -> None:
        """Create a hash from a mapping, which the caller must not change afterwards."""
        self.fields: dict[bytes, bytes] = {} if fields is None else fields
        self.expires = _NO_TTLS
        self._longest = max(map(len, chain(*self.fields.items())), default=0)
        self.size = sum(map(len, chain(*self.fields.items())))
        self._peak = len(self.fields)
        self._order: ScanOrder | None = None

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.fields)

    def copy(self) -> HashValue:
        twin = shallow_copy(self)
        twin.fields = self.fields.copy()
        twin.expires = ExpiryTimes(self.expires) if self.expires else _NO_TTLS
        twin._order = None
        return twin

    def set(self, field: bytes, value: bytes, keep_ttl: bool = False) -> bool:
        """Set a field; return whether it is new. Its TTL is removed unless ``keep_ttl`` is true."""
        fields = self.fields
        old = fields.get(field)
        fields[field] = value
        longest = self._longest
        length = len(value)
        if length > longest or len(field) > longest:
            self._longest = max(length, len(field))
        if len(fields) > self._peak:
            self._peak = len(fields)
        if old is None:
            self.size += len(field) + length
            if self._order is not None:
                self._order.add(field)
            return True
        self.size += length - len(old)
        if self.expires and not keep_ttl:
            self.persist(field)
        return False

    def remove(self, field: bytes) -> bool:
        value = self.fields.pop(field, None)
        if value is None:
            return False
        self.size -= len(field) + len(value)
        self.persist(field)
        return True

    def expire_at(self, field: bytes, at_ms: int) -> None:
        """Set the time at which an existing field expires, in Unix milliseconds."""
        if self.expires is _NO_TTLS:
            self.expires = ExpiryTimes()
        self.expires.put(field, at_ms)
        self.make_large()

    def persist(self, field: bytes) -> bool:
        """Remove the TTL of a field; return whether it had one."""
        return self.expires.pop(field, None) is not None

    def remove_expired(self, now_ms: int) -> list[bytes]:
        """Remove the fields whose time has come, and return them."""
        return [field for field in self.expires.due(now_ms) if self.remove(field)]

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` fields."""
        return self.order().page(cursor, count)

    def order(self) -> ScanOrder:
        """Return the order of the fields in scans, which also serves for random choice."""
        if self._order is None:
            self._order = ScanOrder(self.fields)
        return self._order


# -- lists -----------------------------------------------------------------------------------------

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

    def push(self, items: Sequence[bytes], left: bool) -> None:
        """Add the items one after another at an end, so that the last item becomes the outermost."""
        half = self._front if left else self._back
        half += items
        self._note_added(items)

    def pop(self, left: bool) -> bytes:
        """Remove and return the head or the tail; the list must not be empty."""
        if not (self._front if left else self._back):
            items, middle = list(self), (len(self) + left) // 2
            self._front, self._back = items[:middle][::-1], items[middle:]
        item = (self._front if left else self._back).pop()
        self.size -= len(item)
        self._note_size(-entry_size(item))
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
            self._back = [item for index, item in enumerate(self) if index not in gone]
            self._front = []
        else:
            for index in doomed:
                half, at = self._find(index)
                del half[at]
        self.size -= len(doomed) * len(item)
        self._note_size(-len(doomed) * entry_size(item))
        return len(doomed)


# -- sets ------------------------------------------------------------------------------------------

_MAX_INTSET = 512
"""The default of ``set-max-intset-entries``."""


def _is_integer(member: bytes) -> bool:
    # Only a digit or a sign can begin an integer. Parsing any other string raises a slow exception.
    return member[:1] <= b"9" and try_int(member) is not None


class SetValue(Listpacked):
    """Distinct byte strings, stored as a list of members and a dictionary from member to index.

    Removing a member moves the last member into the gap.
    """

    type_name: ClassVar[str] = "set"
    __slots__ = ("_indexes", "_integers", "_members", "_scan_order", "size")

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        self._members = list(dict.fromkeys(members))
        self._indexes = {member: index for index, member in enumerate(self._members)}
        self._integers = all(map(_is_integer, self._members))
        self._peak = len(self._members)
        self._longest = max(map(len, self._members), default=0)
        self._scan_order: ScanOrder | None = None
        self.size = sum(map(len, self._members))
        """Length in bytes of all members."""

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: bytes) -> bool:
        return member in self._indexes

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the members, in ascending order if they are stored as integers."""
        if self._integers and self._peak <= _MAX_INTSET:
            return iter(sorted(self._members, key=int))
        return iter(self._members)

    def encoding(self, config: Config) -> str:
        """Return ``intset``, ``hashtable`` or, in versions that have it, ``listpack``."""
        if self._integers and self._peak <= config.number("set-max-intset-entries"):
            return "intset"
        return super().encoding(config) if config.packs_lists_and_sets else "hashtable"

    def keep_encoding(self, config: Config) -> None:
        """Keep the present encoding until the next write, before a limit in ``config`` changes."""
        self._integers = self.encoding(config) == "intset"
        if self._integers:
            self._peak = 0
        else:
            super().keep_encoding(config)

    def copy(self) -> SetValue:
        twin = shallow_copy(self)
        twin._members, twin._indexes = self._members.copy(), self._indexes.copy()
        twin._scan_order = None
        return twin

    def add(self, member: bytes) -> bool:
        indexes = self._indexes
        if member in indexes:
            return False
        indexes[member] = len(self._members)
        self._members.append(member)
        if self._scan_order is not None:
            self._scan_order.add(member)
        if len(indexes) > self._peak:
            self._peak = len(indexes)
        length = len(member)
        self.size += length
        if length > self._longest:
            self._longest = length
        self._integers = self._integers and _is_integer(member)
        return True

    def remove(self, member: bytes) -> bool:
        index = self._indexes.pop(member, None)
        if index is None:
            return False
        self.size -= len(member)
        last = self._members.pop()
        if index < len(self._members):
            self._members[index] = last
            self._indexes[last] = index
        return True

    def at(self, index: int) -> bytes:
        """Return the member at an index of the list (0..length-1), for random choice."""
        return self._members[index]

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` members."""
        if self._scan_order is None:
            self._scan_order = ScanOrder(self._indexes)
        return self._scan_order.page(cursor, count)
