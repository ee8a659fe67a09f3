"""The types of RDB values: how each is read into a class of ``kv/values``, and written.

Values are read in any format version, and written in a given one. Real servers accept some invalid
values, such as small hashes with duplicate fields and streams with a wrong length. This module
rejects them, because no server writes them and the damage would spread.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..config import Config
from ..syntax import format_double, try_int
from ..values.array import MAX_INDEX, ArrayValue
from ..values.containers import NODE_BYTES, HashValue, QuickList, SetValue
from ..values.json import JsonError, JsonValue, parse_json, write_json
from ..values.measures import LISTPACK_OVERHEAD, entry_size
from ..values.stream import (
    SEQUENCE_MAX,
    UNKNOWN_ENTRIES_READ,
    Consumer,
    Group,
    Node,
    Pending,
    StreamValue,
    entries_up_to,
    make_id,
)
from ..values.vector_form import FORMS, MOST_DIMENSIONS
from ..values.zset import SortedSet
from .source import (
    Entry,
    RdbError,
    Source,
    lzf_compress,
    read_intset,
    read_listpack,
    read_ziplist,
    read_zipmap,
    texts,
    write_intset,
    write_listpack,
)

if TYPE_CHECKING:
    from ..values.vector_set import VectorSet


class ListNode(IntEnum):
    """The form of a node of a ``LIST_QUICKLIST_2``: one large item, or a listpack of items."""

    PLAIN = 1
    PACKED = 2


class ModuleItem(IntEnum):
    """The type of an item of a module's value."""

    END = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    DOUBLE = 4
    STRING = 5


VALKEY_9 = 80
"""The first format version in Valkey's own numbering. Format versions of Redis are lower."""


class ForeignType(Exception):
    """Raised after a value of an unsupported module has been skipped. Reading can continue."""


Reader = Callable[[Source], Any]


def _strings(build: Callable[[list[bytes]], Any], per_element: int = 1) -> Reader:
    """Return a reader of values whose elements are written as one or more strings each."""
    return lambda source: build([source.string() for _ in range(per_element * source.count(1))])


def _packed(
    unpack: Callable[[bytes], Sequence[Entry]], build: Callable[[list[bytes]], Any]
) -> Reader:
    """Return a reader of values whose elements are written as one packed structure."""
    return lambda source: build(texts(unpack(source.string(packed=True))))


def _check_even(flat: list[bytes]) -> None:
    if len(flat) % 2:
        raise RdbError("a packed value has an odd number of elements")


def _list_of(items: list[bytes]) -> QuickList:
    if not items:
        raise RdbError("a list is empty")
    return QuickList(items)


def _quicklist(source: Source) -> QuickList:
    nodes = [read_ziplist(source.string(packed=True)) for _ in range(source.count(1))]
    return _list_of([item for node in nodes for item in texts(node)])


def _quicklist_2(source: Source) -> QuickList:
    items: list[bytes] = []
    for _ in range(source.count(1)):
        container = source.length()
        if container == ListNode.PLAIN:
            items.append(source.string())
        elif container == ListNode.PACKED:
            items += texts(read_listpack(source.string(packed=True)))
        else:
            raise RdbError(f"a list node has the unknown container type {container}")
    return _list_of(items)


def _set_of(members: list[bytes]) -> SetValue:
    value = SetValue(members)
    if not members or len(value) < len(members):
        raise RdbError("a set is empty or has a duplicate member")
    return value


def _zset_of(items: list[tuple[bytes, float]]) -> SortedSet:
    scores = dict(items)
    if not items or len(scores) < len(items) or any(map(math.isnan, scores.values())):
        raise RdbError(
            "a sorted set is empty, or has a duplicate member or a score that is not a number"
        )
    return SortedSet(scores)


def _zset(read_score: Callable[[Source], float]) -> Reader:
    return lambda source: _zset_of(
        [(source.string(), read_score(source)) for _ in range(source.count(1))]
    )


def _packed_zset(flat: list[bytes]) -> SortedSet:
    _check_even(flat)
    value = _zset_of(list(zip(flat[::2], map(_score, flat[1::2]), strict=True)))
    value.stay_packed()
    return value


def _old_score(source: Source) -> float:
    size = source.byte()
    named = {253: math.nan, 254: math.inf, 255: -math.inf}.get(size)
    return _score(source.take(size)) if named is None else named


def _score(text: bytes) -> float:
    with suppress(ValueError):
        if b"_" not in text:
            return float(text)
    raise RdbError("a score is not a number")


def _hash_of(flat: list[bytes]) -> HashValue:
    _check_even(flat)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if not flat or 2 * len(fields) < len(flat):
        raise RdbError("a hash is empty or has a duplicate field")
    return HashValue(fields)


def _packed_hash(flat: list[bytes]) -> HashValue:
    value = _hash_of(flat)
    value.stay_packed()
    return value


def _hash_since_7_4(source: Source) -> HashValue:
    """Read a hash whose field expiries are relative to the earliest one."""
    first_ms = source.int64()
    fields = []
    for _ in range(source.count(1)):
        after, field, text = source.length(), source.string(), source.string()
        fields.append((field, text, first_ms + after - 1 if after else 0))
    return _expiring_hash(fields)


def _hash_of_listpack_since_7_4(source: Source) -> HashValue:
    """Read a hash from one listpack of fields, values and absolute expiries."""
    source.int64()
    entries = read_listpack(source.string(packed=True))
    expiries = [at_ms for at_ms in entries[2::3] if isinstance(at_ms, int)]
    if len(entries) != 3 * len(expiries):
        raise RdbError("a packed hash has a field without a value or an expiry")
    return _expiring_hash(
        list(zip(texts(entries[::3]), texts(entries[1::3]), expiries, strict=True))
    )


def _hash_of_valkey_9(source: Source) -> HashValue:
    """Read a hash whose fields have absolute expiries; -1 means that a field does not expire."""
    count = source.count(1)
    fields = [(source.string(), source.string(), source.int64()) for _ in range(count)]
    return _expiring_hash(fields, never=-1)


def _expiring_hash(fields: list[tuple[bytes, bytes, int]], never: int = 0) -> HashValue:
    """Build a hash of fields, values and expiries in Unix ms, of which 0 and ``never`` mean none."""
    value = _hash_of([word for field, text, _ in fields for word in (field, text)])
    for field, _, at_ms in fields:
        if at_ms in (0, never):
            continue
        if not 0 <= at_ms < 1 << 63:
            raise RdbError("a hash field has an invalid expiry")
        value.expire_at(field, at_ms)
    return value


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


ARRAY_MODULE = "fakearray"
"""The name of the module as whose values arrays are written, because their own form is not public."""
VECTOR_SET_MODULE = "fakevsets"
"""The name of the module as whose values vector sets are written, for the same reason."""


def _module(source: Source) -> Any:
    """Read an array, a vector set or a RedisJSON value, whose first item is the document as a string."""
    number = source.length()
    name = "".join(_LETTERS[number >> 10 + 6 * place & 63] for place in range(8, -1, -1))
    items = module_items(source)
    if name == ARRAY_MODULE:
        return _array_of(items)
    if name == VECTOR_SET_MODULE:
        return _vector_set_of(items)
    if name != JsonValue.type_name:
        raise ForeignType(f"module type {name}")
    if not items or not isinstance(items[0], bytes):
        raise ForeignType(f"module type {name} of an old version")
    try:
        return JsonValue(parse_json(items[0], deepest=512))
    except JsonError as error:
        raise RdbError(f"a JSON document is damaged: {error}") from None


def _array_of(items: list[bytes | int]) -> ArrayValue:
    """Build an array of what ``Writer._array()`` describes."""
    numbers = [item for item in items[:2] + items[2::2] if isinstance(item, int)]
    values = [item for item in items[3::2] if isinstance(item, bytes)]
    next_index, ring_size, *indexes = numbers if values else [0, 0]
    array = ArrayValue(zip(indexes, values, strict=False))
    if not len(array) == len(indexes) == len(values) > 0 or 2 + 2 * len(array) != len(items):
        raise RdbError("an array has items of a wrong type, or an index twice")
    if array.length > MAX_INDEX + 1:
        raise RdbError("an array has an index that is too high")
    array.cursor, array.ring_size = next_index - 1 if next_index else None, ring_size
    return array


def _vector_set_of(items: list[bytes | int]) -> VectorSet:
    """Build a vector set of what ``Writer._vector_set()`` describes."""
    import numpy as np  # Most files have no vector sets.

    from ..values.vector_set import VectorSet

    numbers = [item for item in items[:6] if isinstance(item, int)]
    words = [item for item in items[6:] if isinstance(item, bytes)]
    if len(numbers) < 6 or len(numbers) + len(words) != len(items) or len(words) % 4:
        raise RdbError("a vector set has items of a wrong type")
    form, links, dimension, input_dimension, uid, added = numbers
    is_reduced = dimension <= input_dimension <= MOST_DIMENSIONS
    if (
        form >= len(FORMS)
        or not 0 < dimension <= MOST_DIMENSIONS
        or (input_dimension and not is_reduced)
    ):
        raise RdbError("a vector set has an unknown form or a dimension that is too high")
    vectors = VectorSet(FORMS[form], links, dimension, input_dimension, uid)
    for at in range(0, len(words), 4):
        name, blob, norm, attributes = words[at : at + 4]
        stored = np.frombuffer(blob, "<f4") if len(blob) == 4 * dimension else np.array([math.nan])
        if len(norm) != 8 or not (np.isfinite(stored).all() and math.isfinite(_double(norm))):
            raise RdbError("a vector set has a vector that is damaged")
        vectors.put_stored(name, stored.astype(np.float32), _double(norm))
        vectors.set_attributes(name, attributes)
    if not words or len(vectors) != len(words) // 4:
        raise RdbError("a vector set is empty, or has an element twice")
    vectors.added = added
    return vectors


def _double(data: bytes) -> float:
    number: float = struct.unpack("<d", data)[0]
    return number


def module_id(name: str, version: int) -> int:
    """Return the ID of a module type, given its name and its encoding version."""
    number = 0
    for letter in name:
        number = number << 6 | _LETTERS.index(letter)
    return number << 10 | version


def module_items(source: Source) -> list[bytes | int]:
    """Skip the items of a module's value. Return the strings and integers among them."""
    items: list[bytes | int] = []
    while True:
        kind = source.length()
        if kind == ModuleItem.END:
            return items
        if kind in (ModuleItem.SIGNED, ModuleItem.UNSIGNED):
            items.append(source.length())
        elif kind == ModuleItem.FLOAT:
            source.take(4)
        elif kind == ModuleItem.DOUBLE:
            source.take(8)
        elif kind == ModuleItem.STRING:
            items.append(source.string())
        else:
            raise RdbError(f"a module value has an item of the unknown type {kind}")


def _stream_id(source: Source) -> int:
    return make_id(source.length(), source.length())


def _raw_id(source: Source) -> int:
    return int.from_bytes(source.take(16), "big")


def _stream(source: Source, form: int = 1) -> StreamValue:
    """Read a stream in the format of Redis 5.0 (1), 7.0 (2) or 7.2 (3)."""
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
    if form >= 2:
        _stream_id(source)  # Skip the first ID, because the entries contain it as well.
        max_deleted_id = _stream_id(source)
        added = source.length()
    stream = StreamValue(node for node in nodes if node.ids)
    stream.last_id, stream.max_deleted_id, stream.entries_added = last_id, max_deleted_id, added
    for _ in range(source.count()):
        name = source.string()
        if name in stream.groups:
            raise RdbError("a stream has two groups of the same name")
        stream.groups[name] = _group(source, stream, form)
    return stream


def _number(elements: Iterator[Entry]) -> int:
    element = next(elements, None)
    if not isinstance(element, int):
        raise RdbError("a stream node ends, or has a string, where a number was expected")
    return element


def _words(elements: Iterator[Entry], count: int) -> list[bytes]:
    words = texts(islice(elements, count)) if 0 <= count <= sys.maxsize else []
    if len(words) != count:
        raise RdbError("a stream entry declares too many fields")
    return words


def _node(key: int, entries: list[Entry]) -> Node:
    """Build a stream node without deleted entries (flag 1) from what ``writer._entries()`` describes."""
    elements = iter(entries)
    live, deleted = _number(elements), _number(elements)
    node = Node(key, _words(elements, _number(elements)))
    if _number(elements) or live < 0 or deleted < 0 or live + deleted > len(entries):
        raise RdbError("a stream node has an invalid header")
    for _ in range(live + deleted):
        flags, entry_id, flat = _entry(key, node.master, elements)
        if flags & 1:
            node.deleted += 1
        else:
            node.append(entry_id, flat)
    if node.deleted != deleted or next(elements, None) is not None:
        raise RdbError("a stream node declares a wrong number of entries")
    return node


def _entry(
    key: int, master: list[bytes], elements: Iterator[Entry]
) -> tuple[int, int, list[bytes]]:
    """Return the flags, the ID, and the fields and values of the next entry."""
    flags = _number(elements)
    # Differences from the node's key are stored in 64 bits, so they can wrap around.
    milliseconds = (key >> 64) + _number(elements) & SEQUENCE_MAX
    sequence = (key & SEQUENCE_MAX) + _number(elements) & SEQUENCE_MAX
    if flags & 2:
        values = _words(elements, len(master))
        flat = [word for pair in zip(master, values, strict=True) for word in pair]
        size = len(master) + 3
    else:
        pairs = _number(elements)
        flat, size = _words(elements, 2 * pairs), 2 * pairs + 4
    if _number(elements) != size or not flat or flags & ~3:
        raise RdbError("a stream entry has a wrong size, no fields or unknown flags")
    return flags, make_id(milliseconds, sequence), flat


def _group(source: Source, stream: StreamValue, form: int) -> Group:
    group = Group(_stream_id(source))
    if form >= 2:
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
        has_activity = form >= 3
        consumer.active_ms = source.int64() if has_activity else consumer.seen_ms
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


class RdbType(IntEnum):
    """The type of a value, under the name that Redis gives to the type, with its reader.

    ``since`` is the format version that introduced the type, for types newer than Redis 7.0.
    """

    read: Reader
    since: int

    def __new__(cls, code: int, read: Reader, since: int = 0) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.read, member.since = read, since
        return member

    STRING = 0, Source.string
    LIST = 1, _strings(_list_of)
    SET = 2, _strings(_set_of)
    ZSET = 3, _zset(_old_score)
    HASH = 4, _strings(_hash_of, 2)
    ZSET_2 = 5, _zset(Source.double)
    MODULE_2 = 7, _module
    HASH_ZIPMAP = 9, _packed(read_zipmap, _hash_of)
    LIST_ZIPLIST = 10, _packed(read_ziplist, _list_of)
    SET_INTSET = 11, _packed(read_intset, _set_of)
    ZSET_ZIPLIST = 12, _packed(read_ziplist, _packed_zset)
    HASH_ZIPLIST = 13, _packed(read_ziplist, _packed_hash)
    LIST_QUICKLIST = 14, _quicklist
    STREAM_LISTPACKS = 15, _stream
    HASH_LISTPACK = 16, _packed(read_listpack, _packed_hash)
    ZSET_LISTPACK = 17, _packed(read_listpack, _packed_zset)
    LIST_QUICKLIST_2 = 18, _quicklist_2
    STREAM_LISTPACKS_2 = 19, partial(_stream, form=2)
    SET_LISTPACK = 20, _packed(read_listpack, _set_of), 11
    STREAM_LISTPACKS_3 = 21, partial(_stream, form=3), 11
    HASH_VALKEY_9 = 22, _hash_of_valkey_9, VALKEY_9
    HASH_METADATA = 24, _hash_since_7_4, 12
    HASH_LISTPACK_EX = 25, _hash_of_listpack_since_7_4, 12


_TYPES = {int(kind): kind for kind in RdbType}


def read_value(source: Source, code: int, version: int) -> Any:
    kind = _TYPES.get(code)
    if kind is None or version < kind.since:
        raise RdbError(f"type {code} does not exist in format version {version}")
    return kind.read(source)


# -- writing ---------------------------------------------------------------------------------------

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
            self._WRITERS[value.type_name](self, key, value)

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

    def _stream(self, key: tuple[bytes, ...], value: StreamValue) -> None:
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
        owned = [
            (at, entry) for at, entry in group.pending.between() if at not in group.released.pending
        ]
        self._pending_ids(owned, with_times=True)
        self.length(len(group.consumers))
        for consumer in group.sorted_consumers():
            self.string(consumer.name)
            self.raw(consumer.seen_ms.to_bytes(8, "little", signed=True))
            if with_activity:
                self.raw(consumer.active_ms.to_bytes(8, "little", signed=True))
            self._pending_ids([*consumer.pending.between()], with_times=False)

    def _pending_ids(self, pending: list[tuple[int, Pending]], *, with_times: bool) -> None:
        self.length(len(pending))
        for entry_id, delivery in pending:
            self.raw(entry_id.to_bytes(16, "big"))
            if with_times:
                self.raw(delivery.delivered_ms.to_bytes(8, "little", signed=True))
                self.length(delivery.deliveries)

    def _json(self, key: tuple[bytes, ...], value: JsonValue) -> None:
        self.entry(RdbType.MODULE_2, *key)
        self.length(module_id(JsonValue.type_name, version=3))
        self.length(ModuleItem.STRING)
        self.string(write_json(value.root))
        self.length(ModuleItem.END)

    def _array(self, key: tuple[bytes, ...], value: ArrayValue) -> None:
        self.entry(RdbType.MODULE_2, *key)
        self.length(module_id(ARRAY_MODULE, version=1))
        for number in (value.next_index, value.ring_size):
            self._module_number(number)
        for index, item in value:
            self._module_number(index)
            self.length(ModuleItem.STRING)
            self.string(item)
        self.length(ModuleItem.END)

    def _vector_set(self, key: tuple[bytes, ...], value: VectorSet) -> None:
        """Write the number of the form, the links, both dimensions, the UID and the vectors ever added,
        and for each element its name, vector, length and attributes.
        """
        self.entry(RdbType.MODULE_2, *key)
        self.length(module_id(VECTOR_SET_MODULE, version=1))
        form = FORMS.index(value.form)
        for number in (
            form, value.links, value.dimension, value.input_dimension, value.uid, value.added,
        ):  # fmt: skip
            self._module_number(number)
        for name in value:
            stored = value.stored(name)
            assert stored is not None
            norm = struct.pack("<d", value.norm(name))
            attributes = value.attributes.get(name, b"")
            for word in (name, stored.astype("<f4").tobytes(), norm, attributes):
                self.length(ModuleItem.STRING)
                self.string(word)
        self.length(ModuleItem.END)

    def _module_number(self, number: int) -> None:
        self.length(ModuleItem.UNSIGNED)
        self.length(number)

    _WRITERS: ClassVar[dict[str, Callable[[Writer, tuple[bytes, ...], Any], None]]] = {
        "list": _list,
        "set": _set,
        "zset": _zset,
        "hash": _hash,
        "stream": _stream,
        JsonValue.type_name: _json,
        "array": _array,
        "vectorset": _vector_set,
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
