"""The vendor's size limits for keys, records and the whole database.

Sizes count only the contents (decided here): the bytes of keys, values, fields, members and items,
plus eight bytes for each score or stream ID. The server's overhead is not counted. A command is
rejected before it runs if the data in its arguments, added to the stored data, would exceed a
limit. A command that derives its result from other keys (``SUNIONSTORE``) counts as adding nothing,
and RESTORE as adding the bytes of its serialized value. A word that equals an option of its command
counts as that option.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import errors
from ..errors import CommandError
from ..settings import KVConfig
from ..table.columns import KeySpec
from ..table.registry import CommandSpec
from ..table.syntax import try_int
from ..values.sizes import content_size
from .keyspace import Keyspace
from .session import Session
from .sizes import Sizes


class Capacity:
    """Checks commands against the size limits of a database."""

    def __init__(self, limits: KVConfig, sizes: Sizes) -> None:
        self._limits = limits
        self._sizes = sizes
        self._keys_only = limits.max_record_size is None and limits.max_data_size is None
        self._longest_key = sys.maxsize if limits.max_key_size is None else limits.max_key_size

    def check(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` if a write command would exceed a limit."""
        if self._keys_only:
            # Fast path: if the longest word is within the limit for keys, so is every key.
            longest = len(argv[spec.only_key]) if spec.only_key else max(map(len, argv))
            if longest <= self._longest_key:
                return
        keys = [(at, key) for at, key in spec.key_positions(argv) if key.writes]
        for at, _ in keys:
            if len(argv[at]) > self._longest_key:
                raise CommandError(errors.max_key_size(self._longest_key, len(argv[at])))
        if self._keys_only or "denyoom" not in spec.flags:
            return
        session.db.purge()
        added = []
        for at, key in keys:
            replaces = "OW" in key.flags or spec.effects.value_at > 0
            added.append(_Addition(argv[at], _added_bytes(spec, argv, at, key), replaces))
        self._check_records(spec, added, session.db.values)
        self._check_total(added, session.db)

    def _check_records(
        self, spec: CommandSpec, added: list[_Addition], stored: dict[bytes, Any]
    ) -> None:
        limit = self._limits.max_record_size
        if limit is None:
            return
        for name, size, replaces in added:
            size_before = 0 if replaces or name not in stored else content_size(stored[name])
            # A command with an offset overwrites bytes, or extends the string up to its last byte.
            size_after = max(size_before, size) if spec.name in _SIZE_AT else size_before + size
            if size_after > limit:
                raise CommandError(errors.MAX_RECORD_SIZE)

    def _check_total(self, added: list[_Addition], db: Keyspace) -> None:
        limit = self._limits.max_data_size
        if limit is None:
            return
        # Data that the command replaces counts, too (see the module's docstring).
        total = self._sizes.of_content(db)
        total += sum(map(len, {each.name for each in added if each.name not in db.values}))
        if total + sum(each.size for each in added) > limit:
            raise CommandError(errors.MAX_DATA_SIZE)


class _Addition(NamedTuple):
    """The bytes that a command stores under a key, and whether they replace the key's value."""

    name: bytes
    size: int
    replaces: bool


_SIZE_AT: dict[str, Callable[[list[bytes]], int]] = {
    "SETRANGE": lambda argv: max(0, try_int(argv[2]) or 0) + len(argv[3]),
    "SETBIT": lambda argv: max(0, try_int(argv[2]) or 0) // 8 + 1,
}
"""Commands with an offset, and the function that returns the size of the string that they need."""


def _added_bytes(spec: CommandSpec, argv: list[bytes], at: int, key: KeySpec) -> int:
    """Return the size in bytes of the data that a line stores under the key at position ``at``."""
    if len(spec.keys) > 1:
        return 0  # The command derives its result from other keys.
    if value_at := spec.effects.value_at:
        return len(argv[value_at])
    if spec.name in _SIZE_AT:
        return _SIZE_AT[spec.name](argv)
    if key.step > 1:
        # In MSET and its relatives, each key is followed by its own data.
        return sum(map(len, argv[at + 1 : at + key.step]))
    names = {place for place, _ in spec.key_positions(argv)}
    return sum(
        len(word)
        for place, word in enumerate(argv)
        if place >= spec.arguments.start
        and place not in names
        and word.upper() not in spec.option_words
    )
