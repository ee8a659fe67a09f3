"""Reads streams, with their consumer groups, from RDB data."""

from __future__ import annotations

from itertools import pairwise

from ..values.consumer_group import (
    SEQUENCE_MAX,
    UNKNOWN_ENTRIES_READ,
    Consumer,
    Group,
    entries_up_to,
)
from ..values.stream import Node, Stream, make_id
from .listpack import Entry, read_listpack, texts
from .source import RdbError, Source
from .types import RdbType


def _stream_id(source: Source) -> int:
    ms, sequence = source.length(), source.length()
    return make_id(ms, sequence)


def _raw_id(source: Source) -> int:
    return int.from_bytes(source.take(16), "big")


def read_stream(source: Source, form: RdbType) -> Stream:
    """Read a stream in the format of Redis 5.0 (``STREAM_LISTPACKS``), 7.0 (``_2``) or 7.2 (``_3``)."""
    nodes = []
    for _ in range(source.count()):
        key = source.string()
        if len(key) != 16:
            raise RdbError("the ID of a stream node is not 16 bytes long")
        nodes.append(_node(int.from_bytes(key, "big"), read_listpack(source.string(packed=True))))
    ids = [entry_id for node in nodes for entry_id in node.ids]
    if any(low >= high for low, high in pairwise([-1, *ids])):
        raise RdbError("the IDs of a stream are not in ascending order")
    length = source.length()
    last_id = _stream_id(source)
    if length != len(ids) or (ids and ids[-1] > last_id):
        raise RdbError("a stream declares a wrong length, or has an ID above its last ID")
    max_deleted_id, added = 0, length
    if form >= RdbType.STREAM_LISTPACKS_2:
        _stream_id(source)  # Skip the first ID, because the entries contain it as well.
        max_deleted_id = _stream_id(source)
        added = source.length()
    stream = Stream.of_nodes([node for node in nodes if node.ids])
    stream.last_id, stream.max_deleted_id, stream.entries_added = last_id, max_deleted_id, added
    for _ in range(source.count()):
        name = source.string()
        if name in stream.groups:
            raise RdbError("a stream has two groups of the same name")
        stream.groups[name] = _group(source, stream, form)
    return stream


def _node(key: int, entries: list[Entry]) -> Node:
    """Build a stream node from its key and its listpack, leaving out deleted entries.

    ``writer._entries()`` describes the elements of the listpack. Entries with flag 1 are deleted.
    """
    rest = iter(entries)

    def number() -> int:
        entry = next(rest)
        if not isinstance(entry, int):
            raise RdbError("a stream node has a string where a number was expected")
        return entry

    def words(count: int) -> list[bytes]:
        if not 0 <= count <= len(entries):
            raise RdbError("a stream entry declares too many fields")
        return texts([next(rest) for _ in range(count)])

    try:
        live, deleted = number(), number()
        master = words(number())
        node = Node(key, master)
        if number() or live < 0 or deleted < 0 or live + deleted > len(entries):
            raise RdbError("a stream node has an invalid header")
        gone = 0
        for _ in range(live + deleted):
            flags = number()
            # Differences from the node's key are stored in 64 bits, so they can wrap around.
            milliseconds = (key >> 64) + number() & SEQUENCE_MAX
            sequence = (key & SEQUENCE_MAX) + number() & SEQUENCE_MAX
            if flags & 2:
                values = words(len(master))
                flat = [word for pair in zip(master, values, strict=True) for word in pair]
                size = len(master) + 3
            else:
                pairs = number()
                flat, size = words(2 * pairs), 2 * pairs + 4
            if number() != size or not flat or flags & ~3:
                raise RdbError("a stream entry has a wrong size, no fields or unknown flags")
            if flags & 1:
                gone += 1
            else:
                node.append(make_id(milliseconds, sequence), flat)
    except StopIteration:
        raise RdbError("a stream node ends within an entry") from None
    if gone != deleted or next(rest, None) is not None:
        raise RdbError("a stream node declares a wrong number of entries")
    node.deleted = deleted
    return node


def _group(source: Source, stream: Stream, form: RdbType) -> Group:
    group = Group(_stream_id(source))
    if form >= RdbType.STREAM_LISTPACKS_2:
        read = source.length()
        group.entries_read = UNKNOWN_ENTRIES_READ if read == SEQUENCE_MAX else read
    else:
        group.entries_read = entries_up_to(stream, group.last_id)
    delivered: dict[int, tuple[int, int]] = {}
    for _ in range(source.count()):
        entry_id = _raw_id(source)
        if entry_id in delivered:
            raise RdbError("a consumer group has a duplicate pending entry")
        delivered[entry_id] = source.int64(), source.length()
    owners: dict[int, Consumer] = {}
    for _ in range(source.count()):
        consumer = Consumer(source.string(), source.int64())
        if consumer.name in group.consumers:
            raise RdbError("a consumer group has two consumers of the same name")
        group.consumers[consumer.name] = consumer
        consumer.active_ms = (
            source.int64() if form >= RdbType.STREAM_LISTPACKS_3 else consumer.seen_ms
        )
        for _ in range(source.count()):
            entry_id = _raw_id(source)
            if entry_id in owners or entry_id not in delivered:
                raise RdbError(
                    "a consumer has a pending entry that belongs to another consumer or not to its "
                    "group"
                )
            owners[entry_id] = consumer
    if len(owners) < len(delivered):
        raise RdbError("a consumer group has a pending entry without a consumer")
    for entry_id in sorted(owners):
        group.deliver(entry_id, owners[entry_id], *delivered[entry_id])
    return group
