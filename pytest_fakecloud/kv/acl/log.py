"""The entries of ACL LOG: denied commands, keys and channels, and failed logins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..reply import Map

SAME_WITHIN_US = 60_000_000
"""Microseconds within which equal denials are counted in one entry."""


@dataclass(eq=False, slots=True)
class _Entry:
    reason: str
    context: str
    object: bytes
    name: bytes
    at_us: int
    client: bytes
    count: int = 1

    def same(self, other: _Entry) -> bool:
        return (
            (self.reason, self.context, self.object, self.name)
            == (other.reason, other.context, other.object, other.name)
        ) and abs(other.at_us - self.at_us) <= SAME_WITHIN_US


class AclLog:
    """The entries of ACL LOG, newest first. ``longest`` returns the maximum number of entries."""

    def __init__(self, longest: Callable[[], int]) -> None:
        self._longest = longest
        self._entries: list[_Entry] = []

    def add(
        self, reason: str, context: str, object: bytes, name: bytes, at_us: int, client: bytes
    ) -> None:
        """Add an entry. ``client`` is the client's line in CLIENT LIST."""
        entry = _Entry(reason, context, object, name, at_us, client)
        for known in self._entries[:10]:
            if known.same(entry):
                self._entries.remove(known)
                entry.count = known.count + 1
                break
        self._entries.insert(0, entry)
        del self._entries[self._longest() :]

    def clear(self) -> None:
        self._entries.clear()

    def show(self, count: int, now_us: int) -> list[Any]:
        """Return the latest ``count`` entries as in the reply of ACL LOG."""
        return [
            Map(
                [
                    *(b"count", entry.count),
                    *(b"reason", entry.reason.encode()),
                    *(b"context", entry.context.encode()),
                    *(b"object", entry.object),
                    *(b"username", entry.name),
                    *(b"age-seconds", (now_us - entry.at_us) // 1000 / 1000),
                    *(b"client-info", entry.client),
                ]
            )
            for entry in self._entries[:count]
        ]
