"""The numbers that the RDB format gives to types."""

from __future__ import annotations

from enum import IntEnum


class RdbType(IntEnum):
    """The type of a value, under the name that Redis gives to the type."""

    STRING = 0
    LIST = 1
    SET = 2
    ZSET = 3
    HASH = 4
    ZSET_2 = 5
    MODULE_2 = 7
    HASH_ZIPMAP = 9
    LIST_ZIPLIST = 10
    SET_INTSET = 11
    ZSET_ZIPLIST = 12
    HASH_ZIPLIST = 13
    LIST_QUICKLIST = 14
    STREAM_LISTPACKS = 15
    HASH_LISTPACK = 16
    ZSET_LISTPACK = 17
    LIST_QUICKLIST_2 = 18
    STREAM_LISTPACKS_2 = 19
    SET_LISTPACK = 20
    STREAM_LISTPACKS_3 = 21
    HASH_VALKEY_9 = 22
    HASH_METADATA = 24
    HASH_LISTPACK_EX = 25


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
