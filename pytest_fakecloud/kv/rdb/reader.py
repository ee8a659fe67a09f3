"""Reads RDB values into the classes of ``kv/values``.

Real servers accept some invalid values, such as small hashes with duplicate fields and streams with
a wrong length. This module rejects them, because no server writes them and the damage would spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..values.hashes import HashValue
from ..values.json import JsonError, JsonValue, parse_json
from ..values.lists import QuickList
from ..values.sets import SetValue
from ..values.zset import SortedSet
from .listpack import Entry, read_listpack, texts
from .source import RdbError, Source
from .stream_reader import read_stream
from .types import ListNode, ModuleItem, RdbType
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


def _quicklist_2(source: Source) -> QuickList:
    items: list[bytes] = []
    for _ in range(source.count(1)):
        container = source.length()
        if container == ListNode.PLAIN:
            items.append(source.string())
        elif container == ListNode.PACKED:
            items += texts(read_listpack(_packed(source)))
        else:
            raise RdbError(f"a list node has the unknown container type {container}")
    return _list_of(items)


def _list_of(items: list[bytes]) -> QuickList:
    if not items:
        raise RdbError("a list is empty")
    return QuickList(items)


def _set_of(members: list[bytes]) -> SetValue:
    found = SetValue(members)
    if not members or len(found) < len(members):
        raise RdbError("a set is empty or has a duplicate member")
    return found


# -- sorted sets -----------------------------------------------------------------------------------


def _old_score(source: Source) -> float:
    size = source.byte()
    named = {253: math.nan, 254: math.inf, 255: -math.inf}.get(size)
    return _score(source.take(size)) if named is None else named


def _packed_zset(entries: list[Entry]) -> SortedSet:
    _check_even(entries)
    members, scores = texts(entries[::2]), map(_score, entries[1::2])
    found = _zset_of(list(zip(members, scores, strict=True)))
    found.stay_packed()
    return found


def _score(text: Entry) -> float:
    try:
        if isinstance(text, int) or not text.count(b"_"):
            return float(text)
    except ValueError:
        pass
    raise RdbError("a score is not a number")


def _zset_of(items: list[tuple[bytes, float]]) -> SortedSet:
    scores = dict(items)
    if not items or len(scores) < len(items) or any(map(math.isnan, scores.values())):
        raise RdbError(
            "a sorted set is empty, or has a duplicate member or a score that is not a number"
        )
    return SortedSet(scores)


# -- hashes ----------------------------------------------------------------------------------------


def _check_even(entries: list[Any]) -> None:
    if len(entries) % 2:
        raise RdbError("a packed value has an odd number of elements")


def _packed_hash(flat: list[bytes]) -> HashValue:
    _check_even(flat)
    found = _hash_of(flat)
    found.stay_packed()
    return found


def _hash_of(flat: list[bytes]) -> HashValue:
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
    found = _hash_of(flat)
    for field, at_ms in zip(flat[::2], expiries, strict=True):
        if not 0 <= at_ms < 1 << 63:
            raise RdbError("a hash field has an invalid expiry")
        if at_ms:
            found.expire_at(field, at_ms)
    return found


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


def _list(source: Source) -> QuickList:
    return QuickList([source.string() for _ in range(source.count(1))])


def _ziplist_list(source: Source) -> QuickList:
    return _list_of(texts(read_ziplist(_packed(source))))


def _quicklist(source: Source) -> QuickList:
    nodes = [read_ziplist(_packed(source)) for _ in range(source.count(1))]
    return _list_of([item for node in nodes for item in texts(node)])


def _set(source: Source) -> SetValue:
    return _set_of([source.string() for _ in range(source.count(1))])


def _intset(source: Source) -> SetValue:
    return _set_of([b"%d" % number for number in read_intset(_packed(source))])


def _listpack_set(source: Source) -> SetValue:
    return _set_of(texts(read_listpack(_packed(source))))


def _zset(source: Source) -> SortedSet:
    return _zset_of([(source.string(), _old_score(source)) for _ in range(source.count(1))])


def _zset_2(source: Source) -> SortedSet:
    return _zset_of([(source.string(), source.double()) for _ in range(source.count(1))])


def _ziplist_zset(source: Source) -> SortedSet:
    return _packed_zset(read_ziplist(_packed(source)))


def _listpack_zset(source: Source) -> SortedSet:
    return _packed_zset(read_listpack(_packed(source)))


def _hash(source: Source) -> HashValue:
    return _hash_of([source.string() for _ in range(2 * source.count(1))])


def _zipmap_hash(source: Source) -> HashValue:
    entries = read_zipmap(_packed(source))
    _check_even(entries)
    return _hash_of(entries)


def _ziplist_hash(source: Source) -> HashValue:
    return _packed_hash(texts(read_ziplist(_packed(source))))


def _listpack_hash(source: Source) -> HashValue:
    return _packed_hash(texts(read_listpack(_packed(source))))


_READERS: dict[int, Callable[[Source], Any]] = {
    RdbType.STRING: Source.string,
    RdbType.LIST: _list,
    RdbType.SET: _set,
    RdbType.ZSET: _zset,
    RdbType.HASH: _hash,
    RdbType.ZSET_2: _zset_2,
    RdbType.MODULE_2: _module,
    RdbType.HASH_ZIPMAP: _zipmap_hash,
    RdbType.LIST_ZIPLIST: _ziplist_list,
    RdbType.SET_INTSET: _intset,
    RdbType.ZSET_ZIPLIST: _ziplist_zset,
    RdbType.HASH_ZIPLIST: _ziplist_hash,
    RdbType.LIST_QUICKLIST: _quicklist,
    RdbType.STREAM_LISTPACKS: partial(read_stream, form=RdbType.STREAM_LISTPACKS),
    RdbType.HASH_LISTPACK: _listpack_hash,
    RdbType.ZSET_LISTPACK: _listpack_zset,
    RdbType.LIST_QUICKLIST_2: _quicklist_2,
    RdbType.STREAM_LISTPACKS_2: partial(read_stream, form=RdbType.STREAM_LISTPACKS_2),
    RdbType.SET_LISTPACK: _listpack_set,
    RdbType.STREAM_LISTPACKS_3: partial(read_stream, form=RdbType.STREAM_LISTPACKS_3),
    RdbType.HASH_VALKEY_9: _hash_of_valkey_9,
    RdbType.HASH_METADATA: _hash_since_7_4,
    RdbType.HASH_LISTPACK_EX: _hash_of_listpack_since_7_4,
}
_SINCE: dict[int, int] = {
    RdbType.SET_LISTPACK: 11,
    RdbType.STREAM_LISTPACKS_3: 11,
    RdbType.HASH_VALKEY_9: VALKEY_9,
    RdbType.HASH_METADATA: 12,
    RdbType.HASH_LISTPACK_EX: 12,
}
"""The format version that introduced each type, for types newer than Redis 7.0."""
