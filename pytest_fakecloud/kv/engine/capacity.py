"""The vendor's size limits for keys, records and the whole database.

Sizes count only the contents (decided here): the bytes of keys, values, fields, members and items,
plus eight bytes for each score or stream ID. The server's overhead is not counted. A command is
rejected before it runs if the data in its arguments, added to the stored data, would exceed a
limit. A command that derives its result from other keys (``SUNIONSTORE``) counts as adding nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from ..errors import CommandError
from ..table.syntax import try_int

if TYPE_CHECKING:
    from ..settings import Limits
    from ..table.registry import CommandSpec
    from .client import Client

_NUMBER = 8
_MAKES_RESULTS = frozenset({"BITOP", "COPY", "PFMERGE", "RENAME", "RENAMENX", "SORT"})

_OFFSETS = frozenset({"SETRANGE", "SETBIT"})
_VALUE_AT = {"SET": 2, "SETNX": 2, "GETSET": 2, "SETEX": 3, "PSETEX": 3}
"""Position of the new value in the line of each command that replaces a whole value."""


class Capacity:
    """Checks commands against the size limits of a database."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keys_only = limits.max_record_size is None and limits.max_data_size is None
        self._longest_key = limits.max_key_size or 0

    def check(self, session: Client, spec: CommandSpec, argv: list[bytes]) -> None:
        if self._keys_only:
            # Fast path: if the longest word is within the limit for keys, so is every key.
            longest = len(argv[spec.only_key]) if spec.only_key else max(map(len, argv))
            if longest <= self._longest_key:
                return
        limits = self._limits
        keys = [(argv[at], key) for at, key in spec.key_positions(argv) if key.writes]
        if limits.max_key_size is not None:
            for name, _ in keys:
                if len(name) > limits.max_key_size:
                    raise CommandError(errors.max_key_size(limits.max_key_size, len(name)))
        if "denyoom" not in spec.flags:
            return
        found = session.db.values
        brought = 0 if spec.name.endswith("STORE") else _brought(spec, argv)
        if limits.max_record_size is not None:
            for name, key in keys:
                replaced = "OW" in key.flags or spec.name in _VALUE_AT
                kept = 0 if replaced or name not in found else content_size(found[name])
                size = max(kept, brought) if spec.name in _OFFSETS else kept + brought
                if size > limits.max_record_size:
                    raise CommandError(errors.MAX_RECORD_SIZE)
        if limits.max_data_size is not None:
            new = sum(len(name) for name, _ in keys if name not in found)
            session.db.purge()
            kept = sum(len(key) + content_size(value) for key, value in found.items())
            if kept + new + brought > limits.max_data_size:
                raise CommandError(errors.MAX_DATA_SIZE)


def _brought(spec: CommandSpec, argv: list[bytes]) -> int:
    """Return the size in bytes of all words that are not the command, a key or an option."""
    if spec.name in _MAKES_RESULTS:
        return 0
    if spec.name in _VALUE_AT:
        return len(argv[_VALUE_AT[spec.name]])
    if spec.name in _OFFSETS:
        offset = max(0, try_int(argv[2]) or 0)
        return offset + len(argv[3]) if spec.name == "SETRANGE" else offset // 8 + 1
    names = {at for at, _ in spec.key_positions(argv)}
    words = {option.encode() for option in spec.options}
    return sum(
        len(word)
        for at, word in enumerate(argv)
        if at >= spec.skip and at not in names and word.upper() not in words
    )


def content_size(value: Any) -> int:
    if isinstance(value, bytes | bytearray):
        return len(value)
    match value.type_name:
        case "hash":
            return sum(len(field) + len(text) for field, text in value.fields.items())
        case "list" | "set":
            return sum(map(len, value))
        case "zset":
            return sum(_NUMBER + len(member) for _, member in value)
        case "stream":
            return sum(_NUMBER + sum(map(len, words)) for _, words in value.range())
        case "search":
            return 0  # A search index has no contents beyond those of its keys (decided here).
    return int(value.size)
