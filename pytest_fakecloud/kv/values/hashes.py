"""Hash values: fields with values and, optionally, a TTL for each field."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy as shallow_copy
from itertools import chain
from typing import ClassVar

from ..algorithms.deadlines import Deadlines
from ..algorithms.scanning import ScanOrder
from ..table.config import Config

_NO_TTLS = Deadlines()
"""Shared by the hashes that never had a TTL. It stays empty."""
_ABOVE_LIMITS = 1 << 62
"""A size above every limit of an encoding."""


class HashValue:
    """The fields and values of a hash in order of creation.

    ``size`` is the length in bytes of all fields and values. ``expires`` maps the fields that have
    a TTL to their expiry times in Unix milliseconds. The encoding depends on the largest size so
    far, because Redis never converts a hash back to the small encoding.
    """

    __slots__ = ("_longest", "_most", "_order", "_volatile", "expires", "fields", "size")

    type_name: ClassVar[str] = "hash"

    def __init__(self, fields: dict[bytes, bytes] | None = None) -> None:
        """Create a hash from a mapping, which the caller must not change afterwards."""
        self.fields: dict[bytes, bytes] = {} if fields is None else fields
        self.expires = _NO_TTLS
        self._longest = max(map(len, chain(*fields.items()))) if fields else 0
        self.size = sum(map(len, chain(*fields.items()))) if fields else 0
        self._most = len(self.fields)
        self._volatile = False
        self._order: ScanOrder | None = None

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, field: bytes) -> bool:
        return field in self.fields

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.fields)

    def encoding(self, config: Config) -> str:
        """Return ``hashtable`` if the hash was ever large or had TTLs, else ``listpack``."""
        most = config.number("hash-max-listpack-entries")
        longest = config.number("hash-max-listpack-value")
        if self._volatile or self._most > most or self._longest > longest:
            return "hashtable"
        return "listpack"

    def keep_encoding(self, config: Config) -> None:
        """Keep the present encoding until the next write, before a limit in ``config`` changes."""
        packed = self.encoding(config) == "listpack"
        self._most, self._longest = (0, 0) if packed else (_ABOVE_LIMITS, _ABOVE_LIMITS)

    def copy(self) -> HashValue:
        twin = shallow_copy(self)
        twin.fields = self.fields.copy()
        twin.expires = Deadlines(self.expires) if self.expires else _NO_TTLS
        twin._order = None
        return twin

    def stay_packed(self) -> None:
        """Choose the encoding regardless of current lengths, as Redis after restoring a listpack."""
        self._longest = 0

    def set(self, field: bytes, value: bytes, keep_ttl: bool = False) -> bool:
        """Set a field; return whether it is new. Its TTL is removed unless ``keep_ttl`` is true."""
        fields = self.fields
        old = fields.get(field)
        fields[field] = value
        longest = self._longest
        length = len(value)
        if length > longest or len(field) > longest:
            self._longest = max(length, len(field))
        if len(fields) > self._most:
            self._most = len(fields)
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
            self.expires = Deadlines()
        self.expires.put(field, at_ms)
        self._volatile = True

    def persist(self, field: bytes) -> bool:
        """Remove the TTL of a field; return whether it had one."""
        return self.expires.pop(field, None) is not None

    def soonest(self) -> int | None:
        """Return the earliest expiry of any field in Unix milliseconds, or None."""
        return self.expires.earliest()

    def remove_expired(self, now_ms: int) -> None:
        for field in self.expires.due(now_ms):
            self.remove(field)

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` fields."""
        return self.order().page(cursor, count)

    def order(self) -> ScanOrder:
        """Return the order of the fields in scans, which also serves for random choice."""
        if self._order is None:
            self._order = ScanOrder(self.fields)
        return self._order
