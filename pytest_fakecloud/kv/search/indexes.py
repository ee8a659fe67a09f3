"""The search indexes and aliases of one database, which follow the changes of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.budget import OverBudget, budgeted
from ..table.syntax import encoded
from .index import SearchIndex

if TYPE_CHECKING:
    from ..engine.keyspace import Keyspace


PART_STEPS = 500_000
"""Number of indexing steps after which other clients get a turn, about 50 ms."""


@dataclass(frozen=True)
class Search:
    """A search that a client made.

    ``command`` is ``"query"``, ``"count"`` or ``"aggregate"``. ``index`` is the name or alias in
    the command, and ``filter`` the parsed filter. ``keys`` contains the keys that a query returned,
    in order. ``total`` is the number of matching documents, and ``pending`` the number of changes
    that were not searchable yet.
    """

    command: str
    index: str
    filter: dict[str, Any]
    keys: list[str] = field(default_factory=list)
    total: int = 0
    pending: int = 0


class Indexes:
    """The indexes of a database by name.

    A change becomes searchable after ``delay_ms`` milliseconds or ``delay_reads`` searches; None
    means no delay. ``aliases`` can refer to indexes that do not exist.
    """

    def __init__(self, delay_ms: int | None = None, delay_reads: int | None = None) -> None:
        self.named: dict[bytes, SearchIndex] = {}
        self.aliases: dict[bytes, bytes] = {}
        self.delay_ms = delay_ms
        self.delay_reads = delay_reads

    def find(self, name: bytes) -> tuple[bytes, SearchIndex] | None:
        """Return the name and the index for a name or alias. Names take precedence over aliases."""
        index = self.named.get(name)
        if index is None:
            name = self.aliases.get(name, name)
            index = self.named.get(name)
        return None if index is None else (name, index)

    def catch_up(self, keyspace: Keyspace, name: bytes, *, whole: bool) -> bool:
        """Index changed keys, with ``whole`` also delayed ones; return whether none are left."""
        found = self.find(name)
        if found is None:
            return True
        if whole:
            found[1].release()
        try:
            with budgeted(PART_STEPS):
                found[1].refresh(keyspace, is_read=False)
        except OverBudget:
            return False
        return True

    # -- tracking the keyspace -------------------------------------------------------------------

    def note(self, keyspace: Keyspace, key: bytes) -> None:
        """Record a changed key in every index, and the key of an index in the list of indexes."""
        value = keyspace.values.get(key)
        if type(value) is SearchIndex:
            self.named[key] = value
        elif key in self.named:
            del self.named[key]
        for index in self.named.values():
            index.note(key, *self.wait(keyspace))

    def wait(self, keyspace: Keyspace) -> tuple[int | None, int | None]:
        """Return the milliseconds and the number of searches after which a change is searchable."""
        delay = self.delay_ms
        return None if delay is None else keyspace.now_ms + delay, self.delay_reads

    def adopt(self, values: dict[bytes, Any]) -> None:
        """Replace the indexes with those in the values of a new keyspace."""
        self.named = {key: one for key, one in values.items() if type(one) is SearchIndex}

    def forget(self) -> None:
        """Remove all indexes and aliases after the keyspace was emptied."""
        self.named.clear()
        self.aliases.clear()

    def copy(self) -> Indexes:
        """Return a copy for a snapshot: only the aliases, because indexes are values of keys."""
        twin = Indexes(self.delay_ms, self.delay_reads)
        twin.aliases = dict(self.aliases)
        return twin


def find_index(keyspace: Keyspace, name: str) -> SearchIndex | None:
    """Return the search index of a database for a name or alias, or None."""
    found = None if keyspace.indexes is None else keyspace.indexes.find(encoded(name))
    return None if found is None else found[1]
