"""The hash: fields with values, some of which may expire by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from ..algorithms.scanning import ScanOrder

if TYPE_CHECKING:
    from ..table.config import Config


class HashValue:
    """Fields and values in order of creation.

    ``expires`` has the instant (milliseconds) of each field that will go, or is None. The largest
    size ever reached decides the encoding, as the server never goes back to the small one.
    """

    __slots__ = ("_longest", "_most", "_order", "_volatile", "expires", "fields")

    type_name: ClassVar[str] = "hash"

    def __init__(self, fields: dict[bytes, bytes] | None = None) -> None:
        """Take up fields, which are the value's from now on."""
        self.fields: dict[bytes, bytes] = {} if fields is None else fields
        self.expires: dict[bytes, int] | None = None
        self._longest = max(map(len, chain(*self.fields.items())), default=0)
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
        """``listpack`` while few and short, ``hashtable`` ever after (and with expiring fields)."""
        most = config.number("hash-max-listpack-entries")
        longest = config.number("hash-max-listpack-value")
        if self._volatile or self._most > most or self._longest > longest:
            return "hashtable"
        return "listpack"

    def copy(self) -> HashValue:
        """An independent copy."""
        twin = HashValue()
        twin.fields = dict(self.fields)
        twin.expires = dict(self.expires) if self.expires else None
        twin._longest, twin._most, twin._volatile = self._longest, self._most, self._volatile
        return twin

    def stay_packed(self) -> None:
        """Take no account of how long the present fields are, as a server that restores a listpack."""
        self._longest = 0

    def set(self, field: bytes, value: bytes, keep_ttl: bool = False) -> bool:
        """Set a field; whether it is new. Its expiry goes unless it is to be kept."""
        fields = self.fields
        new = field not in fields
        fields[field] = value
        longest = self._longest
        if len(value) > longest or len(field) > longest:
            self._longest = max(len(value), len(field))
        if new:
            if len(fields) > self._most:
                self._most = len(fields)
            if self._order is not None:
                self._order.add(field)
        elif self.expires is not None and not keep_ttl:
            self.persist(field)
        return new

    def remove(self, field: bytes) -> bool:
        """Remove a field; whether it was there."""
        if self.fields.pop(field, None) is None:
            return False
        self.persist(field)
        return True

    # -- expiry of fields ------------------------------------------------------------------------

    def expire_at(self, field: bytes, at_ms: int) -> None:
        """Let an existing field go at an instant."""
        if self.expires is None:
            self.expires = {}
        self.expires[field] = at_ms
        self._volatile = True

    def expiry(self, field: bytes) -> int | None:
        """The instant at which a field goes, or None when it stays."""
        return None if self.expires is None else self.expires.get(field)

    def persist(self, field: bytes) -> bool:
        """Take the expiry off a field; whether it had one."""
        if self.expires is None or self.expires.pop(field, None) is None:
            return False
        if not self.expires:
            self.expires = None
        return True

    def soonest(self) -> int | None:
        """The instant at which the first field goes, or None when all stay."""
        return min(self.expires.values()) if self.expires else None

    def expire(self, now_ms: int) -> None:
        """Remove the fields whose instant has come."""
        for field in [field for field, at in (self.expires or {}).items() if at <= now_ms]:
            self.remove(field)

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """The next fields from a cursor on, and the cursor to go on with (0 at the end)."""
        if self._order is None:
            self._order = ScanOrder(self.fields)
        return self._order.page(cursor, count)
