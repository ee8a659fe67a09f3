"""Writes values of the classes of ``kv/values`` as RDB, in a given format version."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ..table.config import Config
from ..table.syntax import format_double, try_int
from ..values.containers import NODE_BYTES, HashValue, QuickList, SetValue
from ..values.json import JsonValue, write_json
from ..values.measures import LISTPACK_OVERHEAD, entry_size
from ..values.stream import SEQUENCE_MAX, Group, Node, PendingList, Stream
from ..values.zset import SortedSet
from .reader import ListNode, ModuleItem, RdbType, module_id
from .source import Entry, lzf_compress, write_intset, write_listpack

OLDEST = 10
"""The format version of Redis 7.0, which every later server can read."""
_MOST_COMPRESSED = 64 * 1024
"""Size in bytes above which strings are not compressed, because compression would take too long."""
_SAFE_NODE = 8192
"""Maximum size in bytes of a list node whose number of items is limited, as in Redis."""
_ENTRY_ESTIMATE = 8
"""Overhead in bytes that Redis assumes for a new item when it decides whether a node is full."""


class Writer:
    """Encodes values as RDB data. ``version`` increases if a value needs a later format version."""

    def __init__(self, config: Config, version: int, *, compress: bool = True) -> None:
        self._config = config
        self._parts: list[bytes] = []
        self._compress = compress and config.text("rdbcompression") == "yes"
        self.version = version

    def taken(self) -> bytes:
        """Return the bytes written since the last call, and clear the buffer."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def raw(self, data: bytes) -> None:
        self._parts.append(data)

    def entry(self, code: int, *strings: bytes) -> None:
        self.raw(bytes([code]))
        for string in strings:
            self.string(string)

    def length(self, number: int) -> None:
        self._parts.append(_length(number))

    def string(self, data: bytes) -> None:
        """Write a string: as an integer if possible, otherwise compressed if that makes it shorter."""
        size = len(data)
        if size <= 11 and data[:1] <= b"9":
            number = try_int(data)
            if number is not None and -(1 << 31) <= number < 1 << 31:
                bits = (number if number >= 0 else ~number).bit_length()
                code = 0 if bits < 8 else 1 if bits < 16 else 2
                data = number.to_bytes(1 << code, "little", signed=True)
                self._parts.append(b"%c%b" % (0xC0 | code, data))
                return
        elif self._compress and 20 < size <= _MOST_COMPRESSED:
            compressed = lzf_compress(data, size - 4)
            if compressed is not None:
                head = b"\xc3" + _length(len(compressed)) + _length(size)
                self._parts.append(head + compressed)
                return
        self._parts.append(_length(size))
        self._parts.append(bytes(data))

    def value(self, key: tuple[bytes, ...], value: Any) -> None:
        """Write the type of a value, its key (empty in a DUMP payload) and the value itself."""
        if isinstance(value, bytes | bytearray):  # Including subclasses such as `UnpackedInteger`.
            self.entry(RdbType.STRING, *key)
            self.string(bytes(value))
        else:
            self._WRITERS[type(value)](self, key, value)

    def _list(self, key: tuple[bytes, ...], value: QuickList) -> None:
        self.entry(RdbType.LIST_QUICKLIST_2, *key)
        nodes = list(_nodes(value, self._config.number("list-max-listpack-size")))
        self.length(len(nodes))
        for node in nodes:
            self.length(ListNode.PACKED)
            self.string(write_listpack(node))

    def _set(self, key: tuple[bytes, ...], value: SetValue) -> None:
        encoding = value.encoding(self._config)
        if encoding == "intset":
            self.entry(RdbType.SET_INTSET, *key)
            self.string(write_intset(sorted(map(int, value))))
        elif encoding == "listpack" and self.version >= RdbType.SET_LISTPACK.since:
            self.entry(RdbType.SET_LISTPACK, *key)
            self.string(write_listpack(value))
        else:
            self.entry(RdbType.SET, *key)
            self.length(len(value))
            for member in value:
                self.string(member)

    def _zset(self, key: tuple[bytes, ...], value: SortedSet) -> None:
        if value.encoding(self._config) == "listpack":
            self.entry(RdbType.ZSET_LISTPACK, *key)
            pairs = ((member, self._score(score)) for score, member in value)
            self.string(write_listpack(part for pair in pairs for part in pair))
            return
        self.entry(RdbType.ZSET_2, *key)
        self.length(len(value))
        for score, member in reversed(list(value)):
            self.string(member)
            self.raw(struct.pack("<d", score))

    def _score(self, score: float) -> Entry:
        if score.is_integer() and -(2.0**63) <= score < 2.0**63:
            return int(score)
        return format_double(score) if self.version > OLDEST else b"%.17g" % score

    def _hash(self, key: tuple[bytes, ...], value: HashValue) -> None:
        first_ms = value.expires.earliest()
        if first_ms is not None:
            self.version = max(self.version, RdbType.HASH_METADATA.since)
            self.entry(RdbType.HASH_METADATA, *key)
            self.raw(first_ms.to_bytes(8, "little"))
        elif value.encoding(self._config) == "listpack":
            self.entry(RdbType.HASH_LISTPACK, *key)
            self.string(write_listpack(part for pair in value.fields.items() for part in pair))
            return
        else:
            self.entry(RdbType.HASH, *key)
        self.length(len(value))
        for field, text in value.fields.items():
            if first_ms is not None:
                at_ms = value.expires.get(field)
                self.length(0 if at_ms is None else at_ms - first_ms + 1)
            self.string(field)
            self.string(text)

    def _stream(self, key: tuple[bytes, ...], value: Stream) -> None:
        with_activity = self.version >= RdbType.STREAM_LISTPACKS_3.since
        kind = RdbType.STREAM_LISTPACKS_3 if with_activity else RdbType.STREAM_LISTPACKS_2
        self.entry(kind, *key)
        self.length(len(value.nodes))
        for node in value.nodes:
            self.string(node.key.to_bytes(16, "big"))
            self.string(write_listpack(_entries(node)))
        self.length(value.length)
        for entry_id in (value.last_id, value.first_id, value.max_deleted_id):
            self._id(entry_id)
        self.length(value.entries_added)
        self.length(len(value.groups))
        for name in sorted(value.groups):
            self.string(name)
            self._group(value.groups[name], with_activity)

    def _id(self, entry_id: int) -> None:
        self.length(entry_id >> 64)
        self.length(entry_id & SEQUENCE_MAX)

    def _group(self, group: Group, with_activity: bool) -> None:
        self._id(group.last_id)
        self.length(group.entries_read & SEQUENCE_MAX)
        self._pending_ids(group.pending, with_times=True)
        self.length(len(group.consumers))
        for consumer in group.sorted_consumers():
            self.string(consumer.name)
            self.raw(consumer.seen_ms.to_bytes(8, "little", signed=True))
            if with_activity:
                self.raw(consumer.active_ms.to_bytes(8, "little", signed=True))
            self._pending_ids(consumer.pending, with_times=False)

    def _pending_ids(self, pending: PendingList, *, with_times: bool) -> None:
        self.length(len(pending))
        for entry_id, one in pending.between():
            self.raw(entry_id.to_bytes(16, "big"))
            if with_times:
                self.raw(one.delivered_ms.to_bytes(8, "little", signed=True))
                self.length(one.deliveries)

    def _json(self, key: tuple[bytes, ...], value: JsonValue) -> None:
        self.entry(RdbType.MODULE_2, *key)
        self.length(module_id(JsonValue.type_name, version=3))
        self.length(ModuleItem.STRING)
        self.string(write_json(value.root))
        self.length(ModuleItem.END)

    _WRITERS: ClassVar[dict[type, Callable[[Writer, tuple[bytes, ...], Any], None]]] = {
        QuickList: _list,
        SetValue: _set,
        SortedSet: _zset,
        HashValue: _hash,
        Stream: _stream,
        JsonValue: _json,
    }


def _length(number: int) -> bytes:
    if number < 1 << 6:
        return bytes([number])
    if number < 1 << 14:
        return bytes((0x40 | number >> 8, number & 255))
    if number < 1 << 32:
        return b"\x80" + number.to_bytes(4, "big")
    return b"\x81" + number.to_bytes(8, "big")


def _nodes(items: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Split the items of a list into nodes, as a server that appends one item after another."""
    most_bytes = NODE_BYTES[max(limit, -5)] if limit < 0 else _SAFE_NODE
    most_items = limit if limit >= 0 else 1 << 62
    node: list[bytes] = []
    size = LISTPACK_OVERHEAD
    for item in items:
        if node and (size + len(item) + _ENTRY_ESTIMATE > most_bytes or len(node) >= most_items):
            yield node
            node, size = [], LISTPACK_OVERHEAD
        node.append(item)
        size += entry_size(item)
    yield node


def _entries(node: Node) -> Iterator[Entry]:
    """Yield the elements of the listpack that encodes a stream node.

    The header consists of the number of entries, the number of deleted entries, the fields of the
    node's first entry and a 0. Each entry has flags (2: the same fields as the first entry, so only
    the values follow), the differences of its ID to the node's key, the fields and values, and
    finally the number of its other elements.
    """
    master = node.master
    yield from (len(node.ids), 0, len(master))
    yield from master
    yield 0
    ms, sequence = node.key >> 64, node.key & SEQUENCE_MAX
    for entry_id, flat in zip(node.ids, node.fields, strict=True):
        same = flat[::2] == master
        yield 2 if same else 0
        yield _wrapped((entry_id >> 64) - ms)
        yield _wrapped((entry_id & SEQUENCE_MAX) - sequence)
        if same:
            yield from flat[1::2]
            yield len(master) + 3
        else:
            yield len(flat) // 2
            yield from flat
            yield len(flat) + 4


def _wrapped(difference: int) -> int:
    return (difference + (1 << 63) & SEQUENCE_MAX) - (1 << 63)
