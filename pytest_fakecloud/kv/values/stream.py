"""Stream values: entries in nodes, and consumer groups with pending entries.

An entry ID is an integer with the milliseconds in the high and the sequence number in the low 64
bits, so IDs can be compared, incremented and sorted as numbers. Nodes are split as in Redis (at
most 100 entries or 4,096 bytes), because XINFO and, in the redis dialect, trimming with ``~``
depend on them.

A consumer group counts the entries that it has read (``entries-read``), from which its lag follows.
Deleted entries make the number of entries before an ID uncertain. Redis 7.2 and later (``estimate``)
then compute the counter from the stream, and report it as unknown for all IDs before the last
deleted one. Redis 7.0 incremented the counter instead while a group was positioned before the first
entry of the stream, when the counter can have any value, so it could report a negative lag.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from copy import copy as shallow_copy
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import ClassVar

from ..config import Config
from .measures import LISTPACK_OVERHEAD, NUMBER, entry_size, integer_size

SEQUENCE_MAX = (1 << 64) - 1
ID_MAX = (1 << 128) - 1
"""The highest entry ID: milliseconds in the high, the sequence number in the low 64 bits."""
MOST_DELIVERIES = (1 << 63) - 1
"""The highest number of deliveries of an entry, which XNACK FATAL sets."""
UNKNOWN_ENTRIES_READ = -1
"""The value of a group's ``entries_read`` if the number of entries up to its last ID is unknown."""


def make_id(milliseconds: int, sequence: int) -> int:
    return milliseconds << 64 | sequence


def format_id(entry_id: int) -> bytes:
    return b"%d-%d" % (entry_id >> 64, entry_id & SEQUENCE_MAX)


class Node:
    """A run of consecutive entries that Redis would store in one listpack."""

    __slots__ = ("_milliseconds", "_sequence", "deleted", "fields", "ids", "key", "master", "size")

    def __init__(self, key: int, master: list[bytes]) -> None:
        self.key = key
        self._milliseconds, self._sequence = key >> 64, key & SEQUENCE_MAX
        self.master = master
        self.ids: list[int] = []
        self.fields: list[list[bytes]] = []
        self.deleted = 0
        self.size = LISTPACK_OVERHEAD + 6 + integer_size(len(master)) + sum(map(entry_size, master))

    def append(self, entry_id: int, fields: list[bytes]) -> None:
        """Append an entry, whose ID must be the highest, and add its bytes to the node's size."""
        self.ids.append(entry_id)
        self.fields.append(fields)
        pairs = len(fields) // 2
        milliseconds = (entry_id >> 64) - self._milliseconds
        sequence = (entry_id & SEQUENCE_MAX) - self._sequence
        size = self.size + 2 + integer_size(milliseconds) + integer_size(sequence)
        if fields[::2] == self.master:
            self.size = size + integer_size(pairs + 3) + sum(map(entry_size, fields[1::2]))
        else:
            size += integer_size(2 * pairs + 4) + integer_size(pairs)
            self.size = size + sum(map(entry_size, fields))

    def content_size(self, count: int | None = None) -> int:
        """Return the length in bytes of the first ``count`` entries (None: all) and their IDs."""
        counted = self.fields[:count]
        return NUMBER * len(counted) + sum(map(len, chain.from_iterable(counted)))

    def copy(self) -> Node:
        """Return a copy that shares the entries' lists of fields, which never change."""
        twin = shallow_copy(self)
        twin.ids, twin.fields = self.ids.copy(), self.fields.copy()
        return twin


@dataclass(slots=True)
class Producers:
    """The entries that producers of a stream have added idempotently: for each producer, the IDs of its
    latest entries by the names that it gave them, in the order in which it added them.

    A name is forgotten ``duration_s`` after the time in the ID of its entry, or if its producer has
    added ``most`` entries since. ``added`` counts the entries, and ``duplicates`` those that were not
    added.
    """

    duration_s: int = 100
    most: int = 100
    ids: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    added: int = 0
    duplicates: int = 0

    def copy(self) -> Producers:
        ids = {producer: names.copy() for producer, names in self.ids.items()}
        return replace(self, ids=ids)

    def find(self, producer: bytes, name: bytes) -> int | None:
        return self.ids.get(producer, {}).get(name)

    def record(self, producer: bytes, name: bytes, entry_id: int) -> None:
        names = self.ids.setdefault(producer, {})
        names[name] = entry_id
        self.added += 1
        while len(names) > self.most:
            del names[next(iter(names))]

    def forget(self, now_ms: int) -> None:
        """Forget the names whose time is over, and the producers without other names."""
        since_ms = now_ms - 1000 * self.duration_s
        for names in self.ids.values():
            old = [name for name, entry_id in names.items() if entry_id >> 64 <= since_ms]
            for name in old:
                del names[name]
        self.ids = {producer: names for producer, names in self.ids.items() if names}


_key = attrgetter("key")


class StreamValue:
    """The entries of a stream in ascending order of their IDs, and its consumer groups.

    ``last_id`` is the highest ID ever added, and ``max_deleted_id`` the highest ID of an entry that
    was deleted individually, not trimmed. ``entries_added`` is the number of entries ever added.
    ``size`` is the length in bytes of all entries and their IDs. A search index takes the IDs of the
    entries that were added or removed; until it does so for the first time, they are not recorded.
    ``producers`` is None until an entry is added idempotently, or XCFGSET changes its limits.
    """

    type_name: ClassVar[str] = "stream"
    __slots__ = (
        "_changed", "entries_added", "groups", "last_id", "length", "max_deleted_id", "nodes",
        "producers", "size",
    )  # fmt: skip

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        """Create a stream from nodes in ascending order. The caller sets the counters."""
        self.nodes = list(nodes)
        self.length = sum(len(node.ids) for node in self.nodes)
        self.size = sum(map(Node.content_size, self.nodes))
        self.entries_added = self.last_id = self.max_deleted_id = 0
        self.groups: dict[bytes, Group] = {}
        self.producers: Producers | None = None
        self._changed: list[int] | None = None

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True  # A stream without entries still exists.

    def encoding(self, config: Config) -> str:
        return "stream"

    def copy(self) -> StreamValue:
        twin = shallow_copy(self)
        twin.nodes = [node.copy() for node in self.nodes]
        twin.groups = {name: group.copy() for name, group in self.groups.items()}
        twin.producers = None if self.producers is None else self.producers.copy()
        twin._changed = None if self._changed is None else list(self._changed)
        return twin

    def take_changed(self) -> list[int] | None:
        """Return the IDs of entries added or removed since the last call; None at the first call."""
        changed, self._changed = self._changed, []
        return changed

    def stop_recording(self) -> None:
        """Record no changed entries until ``take_changed()`` is called again."""
        self._changed = None

    def _note_changed(self, entry_ids: Iterable[int]) -> None:
        if self._changed is not None:
            self._changed += entry_ids

    @property
    def first_id(self) -> int:
        """The lowest ID in the stream, or 0 if the stream is empty."""
        return self.nodes[0].ids[0] if self.nodes else 0

    @property
    def highest_id(self) -> int:
        """The highest ID in the stream, or 0 if the stream is empty."""
        return self.nodes[-1].ids[-1] if self.nodes else 0

    def mend(self) -> None:
        """Make all parts agree with the entries, after an exception between two changes."""
        for node in self.nodes:
            count = min(len(node.ids), len(node.fields))
            del node.ids[count:], node.fields[count:]
        self.nodes = [node for node in self.nodes if node.ids]
        self.length = sum(len(node.ids) for node in self.nodes)
        self.size = sum(map(Node.content_size, self.nodes))
        self.last_id = max(self.last_id, self.highest_id)

    def awaited(self, entry_id: int) -> bool:
        """Return whether any group has not received or not acknowledged an entry."""
        groups = self.groups.values()
        return any(entry_id > group.last_id or entry_id in group.pending for group in groups)

    def forget(self, entry_id: int) -> None:
        for group in self.groups.values():
            group.acknowledge(entry_id)

    def next_id(self, now_ms: int) -> int | None:
        """Return the ID for an entry added now, or None if the highest possible ID is taken."""
        if now_ms > self.last_id >> 64:
            return now_ms << 64
        return self.last_id + 1 if self.last_id < ID_MAX else None

    def append(
        self, entry_id: int, fields: list[bytes], max_bytes: int = 4096, max_entries: int = 100
    ) -> None:
        """Append an entry, whose ID must be the highest, to a node with these limits."""
        node = self.nodes[-1] if self.nodes else None
        length = sum(map(len, fields))
        if (
            node is None
            or node.size + length >= (max_bytes or 1 << 30)
            or (max_entries and len(node.ids) + node.deleted >= max_entries)
        ):
            node = Node(entry_id, fields[::2])
            self.nodes.append(node)
        node.append(entry_id, fields)
        self.length += 1
        self.size += NUMBER + length
        self.entries_added += 1
        self.last_id = entry_id
        self._note_changed([entry_id])

    def _find(self, entry_id: int) -> tuple[int, int] | None:
        """Return the index of the node that has an entry, and the index of the entry in the node."""
        at = bisect_right(self.nodes, entry_id, key=_key) - 1
        ids = self.nodes[at].ids if at >= 0 else []
        index = bisect_left(ids, entry_id)
        return (at, index) if index < len(ids) and ids[index] == entry_id else None

    def get(self, entry_id: int) -> list[bytes] | None:
        place = self._find(entry_id)
        return None if place is None else self.nodes[place[0]].fields[place[1]]

    def delete(self, entry_id: int, *, trims: bool = False) -> bool:
        """Delete an entry, individually or to trim the stream; return whether it existed."""
        place = self._find(entry_id)
        if place is None:
            return False
        at, index = place
        node = self.nodes[at]
        self.size -= NUMBER + sum(map(len, node.fields[index]))
        del node.ids[index], node.fields[index]
        node.deleted += 1
        if not node.ids:
            del self.nodes[at]
        self.length -= 1
        self._note_changed([entry_id])
        if not trims:
            self.max_deleted_id = max(self.max_deleted_id, entry_id)
        return True

    def written(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield all entries, with their IDs as strings."""
        return ((format_id(entry_id), fields) for entry_id, fields in self.range())

    def range(
        self, start: int = 0, end: int = ID_MAX, count: int | None = None, *, reverse: bool = False
    ) -> list[tuple[int, list[bytes]]]:
        """Return up to ``count`` entries with ``start <= id <= end``.

        An entry is its ID and a list of alternating fields and values.
        """
        entries: list[tuple[int, list[bytes]]] = []
        first = max(bisect_right(self.nodes, start, key=_key) - 1, 0)
        stop = bisect_right(self.nodes, end, key=_key)
        order = -1 if reverse else 1
        for node in self.nodes[first:stop][::order]:
            i, j = bisect_left(node.ids, start), bisect_right(node.ids, end)
            if count is not None and count < len(entries) + j - i:
                missing = count - len(entries)
                i, j = (j - missing, j) if reverse else (i, i + missing)
            entries += zip(node.ids[i:j][::order], node.fields[i:j][::order], strict=True)
            if len(entries) == count:
                break
        return entries

    def trim(
        self,
        *,
        max_length: int | None = None,
        min_id: int = 0,
        whole_nodes: bool = False,
        limit: int = 0,
        only_acknowledged: bool = False,
    ) -> list[int]:
        """Remove the oldest entries beyond ``max_length`` or below ``min_id``; return their IDs.

        With ``whole_nodes``, remove only complete nodes, as Redis does for ``~``. ``limit`` is the
        maximum number of entries to remove; 0 means no limit. With ``only_acknowledged``, keep
        awaited entries or, with ``whole_nodes``, nodes with them.
        """
        surplus = self.surplus(max_length, min_id)
        excess = min(surplus, limit or surplus)
        if only_acknowledged:
            end = ID_MAX if max_length is not None else min_id - 1
            return self._trim_acknowledged(excess, end, whole_nodes)
        removed: list[int] = []
        whole = 0
        for node in self.nodes:
            if excess < len(node.ids):
                break
            removed += node.ids
            self.size -= node.content_size()
            excess -= len(node.ids)
            whole += 1
        del self.nodes[:whole]
        if excess and not whole_nodes:
            node = self.nodes[0]
            removed += node.ids[:excess]
            self.size -= node.content_size(excess)
            del node.ids[:excess], node.fields[:excess]
            node.deleted += excess
        self.length -= len(removed)
        self._note_changed(removed)
        return removed

    def surplus(self, max_length: int | None = None, min_id: int = 0) -> int:
        """Return the number of entries beyond ``max_length``, or with IDs below ``min_id``."""
        if max_length is not None:
            return max(self.length - max_length, 0)
        at = bisect_left(self.nodes, min_id, key=_key)
        below = sum(len(node.ids) for node in self.nodes[: max(at - 1, 0)])
        return below + (bisect_left(self.nodes[at - 1].ids, min_id) if at else 0)

    def _trim_acknowledged(self, most: int, end: int, whole_nodes: bool) -> list[int]:
        """Remove up to ``most`` entries that no group awaits, with IDs up to ``end``."""
        end = min([end, *(group.last_id for group in self.groups.values())])
        removed: list[int] = []
        for node in self.nodes:
            if node.ids[0] > end or len(removed) >= most:
                break
            free = [
                entry_id for entry_id in node.ids if entry_id <= end and not self.awaited(entry_id)
            ]
            room = most - len(removed)
            if not whole_nodes:
                removed += free[:room]
            elif len(free) == len(node.ids) <= room:
                removed += free
        for entry_id in removed:
            self.delete(entry_id, trims=True)
        return removed

    @property
    def radix_tree_nodes(self) -> int:
        """The number of nodes in a radix tree whose 16-byte keys are those of the stream's nodes."""
        return node_count([node.key.to_bytes(16, "big") for node in self.nodes]) or 1


def node_count(keys: list[bytes], depth: int = 0) -> int:
    """Return the nodes of a compressed radix tree of sorted keys, from byte ``depth`` on."""
    if not keys:
        return 0
    if len(keys) == 1:
        return 1 + (depth < len(keys[0]))
    common = depth
    while keys[0][common] == keys[-1][common]:
        common += 1
    branches = groupby(keys, key=lambda key: key[common])
    below = sum(node_count(list(branch), common + 1) for _, branch in branches)
    return 1 + (common > depth) + below


# -- consumer groups -------------------------------------------------------------------------------


@dataclass(slots=True)
class Pending:
    """An entry that was delivered to a consumer but not acknowledged."""

    consumer: Consumer
    delivered_ms: int
    deliveries: int

    def count_delivery(self) -> None:
        self.deliveries = min(self.deliveries + 1, MOST_DELIVERIES)


class PendingList(dict[int, Pending]):
    """Pending entries by their IDs, and the order of these. Change it with `put()` and `take()`.

    With 1,000 entries, the default maximum per consumer, a plain list is as quick as a tree.
    """

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__()
        self._order: list[int] = []

    def put(self, entry_id: int, pending: Pending) -> None:
        if entry_id not in self:
            insort(self._order, entry_id)
        self[entry_id] = pending

    def take(self, entry_id: int) -> Pending | None:
        pending = self.pop(entry_id, None)
        if pending is not None:
            del self._order[bisect_left(self._order, entry_id)]
        return pending

    def between(self, start: int = 0, end: int = ID_MAX) -> Iterator[tuple[int, Pending]]:
        """Yield the entries with ``start <= id <= end``. The list must not change in between."""
        order = self._order
        for at in range(bisect_left(order, start), bisect_right(order, end)):
            yield order[at], self[order[at]]

    def ends(self) -> tuple[int, int]:
        """Return the lowest and the highest ID; the list must not be empty."""
        return self._order[0], self._order[-1]


@dataclass(slots=True)
class Consumer:
    """A consumer of a group. ``active_ms`` is -1 until it receives its first entry."""

    name: bytes
    seen_ms: int
    active_ms: int = -1
    pending: PendingList = field(default_factory=PendingList)


@dataclass(slots=True)
class Group:
    """A consumer group: its last delivered ID, its consumers and their pending entries.

    ``released`` has the pending entries that belong to no consumer, in the order of their release. They
    were last delivered at time 0.
    """

    last_id: int
    entries_read: int = UNKNOWN_ENTRIES_READ
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: PendingList = field(default_factory=PendingList)
    released: Consumer = field(default_factory=lambda: Consumer(b"", 0))

    def sorted_consumers(self) -> list[Consumer]:
        return [self.consumers[name] for name in sorted(self.consumers)]

    def deliver(
        self, entry_id: int, consumer: Consumer, now_ms: int, deliveries: int = 1
    ) -> Pending:
        """Make an entry pending for ``consumer``, even if it is pending for another one."""
        before = self.pending.get(entry_id)
        if before is not None:
            before.consumer.pending.take(entry_id)
        pending = Pending(consumer, now_ms, deliveries)
        self.pending.put(entry_id, pending)
        consumer.pending.put(entry_id, pending)
        return pending

    def give(self, entry_id: int, pending: Pending, consumer: Consumer) -> None:
        """Move a pending entry to another consumer, keeping its delivery time and count."""
        if pending.consumer is not consumer:
            pending.consumer.pending.take(entry_id)
            pending.consumer = consumer
            consumer.pending.put(entry_id, pending)

    def release(self, entry_id: int, pending: Pending, deliveries: int) -> None:
        """Take a pending entry from its consumer, or release it again, after those released before."""
        pending.consumer.pending.take(entry_id)
        pending.consumer, pending.delivered_ms = self.released, 0
        pending.deliveries = deliveries
        self.released.pending.put(entry_id, pending)

    def idle_ms(self, pending: Pending, now_ms: int) -> int:
        """Return how long ago a pending entry was delivered; -1 if it was released."""
        return -1 if pending.consumer is self.released else max(now_ms - pending.delivered_ms, 0)

    def may_claim(self, pending: Pending, now_ms: int, min_idle_ms: int) -> bool:
        """Return whether a pending entry was released, or delivered long enough ago."""
        if not min_idle_ms or pending.consumer is self.released:
            return True
        return now_ms - pending.delivered_ms >= min_idle_ms

    def claimable(self, now_ms: int, min_idle_ms: int) -> list[tuple[int, Pending]]:
        """Return the pending entries that may be claimed: those that were released, in the order of
        their release, and then the others, beginning with the one delivered first.
        """
        delivered = [
            (entry_id, pending)
            for entry_id, pending in self.pending.between()
            if pending.consumer is not self.released
            and self.may_claim(pending, now_ms, min_idle_ms)
        ]
        delivered.sort(key=lambda item: item[1].delivered_ms)
        return [*self.released.pending.items(), *delivered]

    def acknowledge(self, entry_id: int) -> bool:
        """Remove a pending entry; return whether it was pending."""
        pending = self.pending.take(entry_id)
        if pending is None:
            return False
        pending.consumer.pending.take(entry_id)
        return True

    def copy(self) -> Group:
        twin = Group(self.last_id, self.entries_read)
        for name, consumer in self.consumers.items():
            twin.consumers[name] = Consumer(name, consumer.seen_ms, consumer.active_ms)
        for entry_id, pending in self.pending.between():
            if pending.consumer is not self.released:
                owner = twin.consumers[pending.consumer.name]
                twin.deliver(entry_id, owner, pending.delivered_ms, pending.deliveries)
        for entry_id, pending in self.released.pending.items():
            twin.deliver(entry_id, twin.released, 0, pending.deliveries)
        return twin


# -- progress -------------------------------------------------------------------------------------


def entries_up_to(stream: StreamValue, entry_id: int, *, estimate: bool = True) -> int:
    """Return the number of entries ever added up to an ID, or UNKNOWN_ENTRIES_READ.

    The number is known for the last entry and, unless an entry behind the first one was deleted,
    for the first entry and the IDs before it.
    """
    if not stream.length and entry_id <= stream.last_id:
        return stream.entries_added  # All entries have been deleted or trimmed.
    if estimate and entry_id and entry_id < stream.max_deleted_id:
        return UNKNOWN_ENTRIES_READ
    if entry_id == stream.last_id:
        return stream.entries_added
    if entry_id > stream.last_id:
        return UNKNOWN_ENTRIES_READ
    if not stream.max_deleted_id or stream.max_deleted_id < stream.first_id:
        if entry_id < stream.first_id:
            return stream.entries_added - stream.length
        if entry_id == stream.first_id:
            return stream.entries_added - stream.length + 1
    return UNKNOWN_ENTRIES_READ


def lag(stream: StreamValue, group: Group, *, estimate: bool) -> int | None:
    """Return the number of entries that a group has not read yet, or None if unknown."""
    if not stream.entries_added:
        return 0
    if _is_countable(stream, group, group.last_id, estimate):
        return stream.entries_added - group.entries_read
    read = entries_up_to(stream, group.last_id, estimate=estimate)
    return None if read == UNKNOWN_ENTRIES_READ else stream.entries_added - read


def advance(stream: StreamValue, group: Group, entry_id: int, *, estimate: bool) -> None:
    """Move a group to an entry that it has just received, and count the entry as read."""
    if entry_id <= group.last_id:
        return
    after = group.last_id if estimate else entry_id
    if _is_countable(stream, group, after, estimate) and (not estimate or after >= stream.first_id):
        group.entries_read += 1
    else:
        group.entries_read = entries_up_to(stream, entry_id, estimate=estimate)
    group.last_id = entry_id


def _is_countable(stream: StreamValue, group: Group, after: int, estimate: bool) -> bool:
    """Return whether a group's counter is known and no entry from ``after`` on was deleted."""
    if group.entries_read == UNKNOWN_ENTRIES_READ:
        return False
    if not estimate and stream.first_id > stream.max_deleted_id:
        return True
    return not (stream.length and stream.max_deleted_id and after <= stream.max_deleted_id)
