"""Reads RDB values into the classes of ``kv/values``.

Real servers accept some invalid values, such as small hashes with duplicate fields and streams with
a wrong length. This module rejects them, because no server writes them and the damage would spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ..values.consumer_group import SEQUENCE_MAX, UNKNOWN_ENTRIES_READ, Consumer, Group
from ..values.group_progress import entries_up_to
from ..values.hashes import HashValue
from ..values.json import JsonError, JsonValue, parse_json
from ..values.lists import QuickList
from ..values.sets import SetValue
from ..values.stream import Node, Stream, make_id
from ..values.zset import SortedSet
from .listpack import Entry, read_listpack, texts
from .source import RdbError, Source
from .ziplist import read_intset, read_ziplist, read_zipmap

VALKEY_9 = 80
"""The first format version in Valkey's own numbering. Format versions of Redis are lower."""
_DEEPEST_JSON = 512


class ForeignType(Exception):
    """Raised after a value of an unsupported module has been skipped. Reading can continue."""


def read_value(source: Source, kind: int, version: int) -> Any:
    """Read a value; raise ``ForeignType`` after skipping one of an unsupported module."""
    read = _READERS.get(kind)
    if read is None or version < _SINCE.get(kind, 0):
        raise RdbError(f"type {kind} does not exist in format version {version}")
    return read(source)


def _packed(source: Source) -> bytes:
    return source.string(packed=True)


# -- strings, lists and sets -----------------------------------------------------------------------


def _quicklist2(source: Source) -> QuickList:
    items: list[bytes] = []
    for _ in range(source.count(1)):
        container = source.length()
        if container == 1:
            items.append(source.string())
        elif container == 2:
            items += texts(read_listpack(_packed(source)))
        else:
            raise RdbError(f"a list node has the unknown container type {container}")
    return _filled_list(items)


def _filled_list(items: list[bytes]) -> QuickList:
    if not items:
        raise RdbError("a list is empty")
    return QuickList(items)


def _filled_set(members: list[bytes]) -> SetValue:
    found = SetValue(members)
    if not members or len(found) < len(members):
        raise RdbError("a set is empty or has a duplicate member")
    return found


# -- sorted sets -----------------------------------------------------------------------------------


def _old_score(source: Source) -> float:
    size = source.byte()
    named = {253: math.nan, 254: math.inf, 255: -math.inf}.get(size)
    return _number(source.take(size)) if named is None else named


def _packed_zset(entries: list[Entry]) -> SortedSet:
    members, scores = texts(_pairs(entries)[::2]), map(_number, entries[1::2])
    found = _filled_zset(list(zip(members, scores, strict=True)))
    found.stay_packed()
    return found


def _number(text: Entry) -> float:
    try:
        if isinstance(text, int) or not text.count(b"_"):
            return float(text)
    except ValueError:
        pass
    raise RdbError("a score is not a number")


def _filled_zset(items: list[tuple[bytes, float]]) -> SortedSet:
    scores = dict(items)
    if not items or len(scores) < len(items) or any(map(math.isnan, scores.values())):
        raise RdbError(
            "a sorted set is empty, or has a duplicate member or a score that is not a number"
        )
    return SortedSet(scores)


# -- hashes ----------------------------------------------------------------------------------------


def _pairs(entries: list[Any]) -> list[Any]:
    if len(entries) % 2:
        raise RdbError("a packed value has an odd number of elements")
    return entries


def _packed_hash(flat: list[bytes]) -> HashValue:
    found = _filled_hash(_pairs(flat))
    found.stay_packed()
    return found


def _filled_hash(flat: list[bytes]) -> HashValue:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if not flat or 2 * len(fields) < len(flat):
        raise RdbError("a hash is empty or has a duplicate field")
    return HashValue(fields)


def _hash_since_7_4(source: Source) -> HashValue:
    """Read a hash whose field expiries are relative to the earliest one."""
    first_ms = source.int64()
    flat: list[bytes] = []
    expiries = []
    for _ in range(source.count(1)):
        after = source.length()
        flat += (source.string(), source.string())
        expiries.append(first_ms + after - 1 if after else 0)
    return _expiring_hash(flat, expiries)


def _hash_of_listpack_since_7_4(source: Source) -> HashValue:
    """Read a hash from one listpack of fields, values and absolute expiries."""
    source.int64()
    entries = read_listpack(_packed(source))
    expiries = [at_ms for at_ms in entries[2::3] if isinstance(at_ms, int)]
    if len(entries) != 3 * len(expiries):
        raise RdbError("a packed hash has a field without a value or an expiry")
    flat = [b""] * (2 * len(expiries))
    flat[::2], flat[1::2] = texts(entries[::3]), texts(entries[1::3])
    return _expiring_hash(flat, expiries)


def _hash_of_valkey_9(source: Source) -> HashValue:
    """Read a hash whose fields have absolute expiries; -1 means that a field does not expire."""
    flat: list[bytes] = []
    expiries = []
    for _ in range(source.count(1)):
        flat += (source.string(), source.string())
        at_ms = source.int64()
        expiries.append(0 if at_ms == -1 else at_ms)
    return _expiring_hash(flat, expiries)


def _expiring_hash(flat: list[bytes], expiries: list[int]) -> HashValue:
    """Build a hash. ``expiries`` has the Unix milliseconds of each field, or 0 for no expiry."""
    found = _filled_hash(flat)
    for field, at_ms in zip(flat[::2], expiries, strict=True):
        if not 0 <= at_ms < 1 << 63:
            raise RdbError("a hash field has an invalid expiry")
        if at_ms:
            found.expire_at(field, at_ms)
    return found


# -- streams ---------------------------------------------------------------------------------------


def _id(source: Source) -> int:
    ms, sequence = source.length(), source.length()
    return make_id(ms, sequence)


def _raw_id(source: Source) -> int:
    return int.from_bytes(source.take(16), "big")


def _stream(source: Source, form: int) -> Stream:
    """Read a stream in the format of Redis 5.0 (``form=1``), 7.0 (2) or 7.2 (3)."""
    nodes = []
    for _ in range(source.count()):
        key = source.string()
        if len(key) != 16:
            raise RdbError("the ID of a stream node is not 16 bytes long")
        nodes.append(_node(int.from_bytes(key, "big"), read_listpack(_packed(source))))
    ids = [entry_id for node in nodes for entry_id in node.ids]
    if any(low >= high for low, high in pairwise([-1, *ids])):
        raise RdbError("the IDs of a stream are not in ascending order")
    length = source.length()
    last_id = _id(source)
    if length != len(ids) or (ids and ids[-1] > last_id):
        raise RdbError("a stream declares a wrong length, or has an ID above its last ID")
    max_deleted_id, added = 0, length
    if form >= 2:
        _id(source)  # Skip the first ID, because the entries contain it as well.
        max_deleted_id = _id(source)
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
    """Build a stream node from its key and its listpack, leaving out deleted entries."""
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
    except (StopIteration, RuntimeError):
        raise RdbError("a stream node ends within an entry") from None
    if gone != deleted or next(rest, None) is not None:
        raise RdbError("a stream node declares a wrong number of entries")
    node.deleted = deleted
    return node


def _group(source: Source, stream: Stream, form: int) -> Group:
    group = Group(_id(source))
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
        consumer.active_ms = source.int64() if form >= 3 else consumer.seen_ms
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


# -- modules ---------------------------------------------------------------------------------------

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _module(source: Source) -> JsonValue:
    """Read a RedisJSON value. Its first item is the JSON document as a string."""
    name = module_name(source.length())
    items = skip_module_items(source)
    if name != JsonValue.type_name:
        raise ForeignType(f"module type {name}")
    if not items or not isinstance(items[0], bytes):
        raise ForeignType(f"module type {name} of an old version")
    try:
        return JsonValue(parse_json(items[0], deepest=_DEEPEST_JSON))
    except JsonError as error:
        raise RdbError(f"a JSON document is damaged: {error}") from None


def module_name(number: int) -> str:
    """Return the nine-letter module name that is encoded in a module ID."""
    return "".join(_LETTERS[number >> 10 + 6 * place & 63] for place in range(8, -1, -1))


def module_id(name: str, version: int) -> int:
    """Return the ID of a module type, given its name and its encoding version."""
    number = 0
    for letter in name:
        number = number << 6 | _LETTERS.index(letter)
    return number << 10 | version


def skip_module_items(source: Source) -> list[bytes | int]:
    """Skip the items of a module's value. Return the strings and integers among them."""
    items: list[bytes | int] = []
    while True:
        kind = source.length()
        if kind == 0:
            return items
        if kind in (1, 2):
            items.append(source.length())
        elif kind in (3, 4):
            source.take(4 if kind == 3 else 8)
        elif kind == 5:
            items.append(source.string())
        else:
            raise RdbError(f"a module value has an item of the unknown type {kind}")


_READERS: dict[int, Callable[[Source], Any]] = {
    0: Source.string,
    1: lambda source: QuickList([source.string() for _ in range(source.count(1))]),
    2: lambda source: _filled_set([source.string() for _ in range(source.count(1))]),
    3: lambda source: _filled_zset(
        [(source.string(), _old_score(source)) for _ in range(source.count(1))]
    ),
    4: lambda source: _filled_hash([source.string() for _ in range(2 * source.count(1))]),
    5: lambda source: _filled_zset(
        [(source.string(), source.double()) for _ in range(source.count(1))]
    ),
    7: _module,
    9: lambda source: _filled_hash(_pairs(read_zipmap(_packed(source)))),
    10: lambda source: _filled_list(texts(read_ziplist(_packed(source)))),
    11: lambda source: _filled_set([b"%d" % number for number in read_intset(_packed(source))]),
    12: lambda source: _packed_zset(read_ziplist(_packed(source))),
    13: lambda source: _packed_hash(texts(read_ziplist(_packed(source)))),
    14: lambda source: _filled_list(
        [item for _ in range(source.count(1)) for item in texts(read_ziplist(_packed(source)))]
    ),
    15: lambda source: _stream(source, 1),
    16: lambda source: _packed_hash(texts(read_listpack(_packed(source)))),
    17: lambda source: _packed_zset(read_listpack(_packed(source))),
    18: _quicklist2,
    19: lambda source: _stream(source, 2),
    20: lambda source: _filled_set(texts(read_listpack(_packed(source)))),
    21: lambda source: _stream(source, 3),
    22: _hash_of_valkey_9,
    24: _hash_since_7_4,
    25: _hash_of_listpack_since_7_4,
}
_SINCE = {20: 11, 21: 11, 22: VALKEY_9, 24: 12, 25: 12}
"""The format version that introduced each type, for types newer than Redis 7.0."""
