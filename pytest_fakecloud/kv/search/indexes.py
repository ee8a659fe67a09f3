"""The indexes of one database, their other names, and the changes that are brought to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.budget import OverBudget, budgeted
from .index import SearchIndex

if TYPE_CHECKING:
    from ..engine.keyspace import Keyspace


PART_STEPS = 500_000
"""Steps of indexing between which other clients get their turn: about a twentieth of a second."""


@dataclass(frozen=True)
class Search:
    """One search that a client made.

    ``command`` is ``"query"``, ``"count"`` or ``"aggregate"``; ``index`` the name or alias it gave;
    ``filter`` the parsed filter; ``keys`` what a query answered, in order; ``total`` how many
    documents matched; ``pending`` how many changes could not be found yet.
    """

    command: str
    index: str
    filter: dict[str, Any]
    keys: list[str] = field(default_factory=list)
    total: int = 0
    pending: int = 0


class Indexes:
    """The indexes of a database, by name.

    ``delay_ms`` and ``delay_reads`` keep changes out of searches for that long; None for neither.
    ``aliases`` may name indexes that are not there.
    """

    def __init__(self, delay_ms: int | None = None, delay_reads: int | None = None) -> None:
        self.named: dict[bytes, SearchIndex] = {}
        self.aliases: dict[bytes, bytes] = {}
        self.delay_ms = delay_ms
        self.delay_reads = delay_reads

    def find(self, name: bytes) -> tuple[bytes, SearchIndex] | None:
        """The index of a name or alias, and its own name; a name comes before an alias."""
        index = self.named.get(name)
        if index is None:
            name = self.aliases.get(name, name)
            index = self.named.get(name)
        return None if index is None else (name, index)

    def catch_up(self, keyspace: Keyspace, name: bytes, *, whole: bool) -> bool:
        """Index a part of the changed keys of an index; return whether none is left.

        ``whole`` includes the keys that cannot be found yet.
        """
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

    # -- following the keyspace ------------------------------------------------------------------

    def note(self, keyspace: Keyspace, key: bytes) -> None:
        """Bring a change of a key to the indexes, and notice indexes that come and go."""
        value = keyspace.values.get(key)
        if type(value) is SearchIndex:
            self.named[key] = value
        elif key in self.named:
            del self.named[key]
        for index in self.named.values():
            index.note(key, *self.wait(keyspace))

    def wait(self, keyspace: Keyspace) -> tuple[int | None, int | None]:
        """Until when, or for how many searches, a change of now is kept back."""
        delay = self.delay_ms
        return None if delay is None else keyspace.now_ms + delay, self.delay_reads

    def adopt(self, values: dict[bytes, Any]) -> None:
        """Take up the indexes among the values of a keyspace that was replaced."""
        self.named = {key: one for key, one in values.items() if type(one) is SearchIndex}

    def forget(self) -> None:
        """Forget all: the keyspace was emptied."""
        self.named.clear()
        self.aliases.clear()

    def copy(self) -> Indexes:
        """The aliases, for a snapshot; its indexes are among the values."""
        twin = Indexes(self.delay_ms, self.delay_reads)
        twin.aliases = dict(self.aliases)
        return twin
