"""Bulk actions: the record of each request that changes all objects that match its filters.

Source: the vendor's pages on bulk actions and its OpenAPI file. Decided here: an action is finished
when its request is answered, so that its effects do not depend on threads, and ``async=true`` only
adds its id to the response.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..model import DAY

Source = Literal["qstash", "workflow"]
_KEPT_US = 7 * DAY
"""How long an action can be read (vendor's page on bulk actions)."""


@dataclass(frozen=True)
class BulkAction:
    """A finished bulk action. ``filters`` are the values of its filters by name."""

    id: str
    number: int
    kind: str
    source: Source
    count: int
    at_us: int
    filters: dict[str, list[str]]

    def record(self) -> dict[str, Any]:
        at_ms = self.at_us // 1000
        return {
            "actionId": self.id,
            "kind": self.kind,
            "state": "FINISHED",
            "total": self.count,
            "processed": self.count,
            "createdAt": at_ms,
            "completedAt": at_ms,
            "filter": self.filters,
        }


class BulkActions:
    """The bulk actions of a queue, oldest first. The engine's lock must be held for every method."""

    def __init__(self) -> None:
        self.by_id: dict[str, BulkAction] = {}

    def add(
        self,
        action_id: str,
        number: int,
        kind: str,
        source: Source,
        count: int,
        now_us: int,
        pairs: Iterable[tuple[str, str]],
    ) -> BulkAction:
        """Record an action. ``pairs`` are the filters of its request."""
        filters: dict[str, list[str]] = {}
        for name, value in pairs:
            filters.setdefault(name, []).append(value)
        action = BulkAction(action_id, number, kind, source, count, now_us, filters)
        self.by_id[action_id] = action
        return action

    def recent(self, source: Source, now_us: int) -> list[BulkAction]:
        """Return the actions that can still be read, oldest first."""
        return [
            action
            for action in self.by_id.values()
            if action.source == source and now_us < action.at_us + _KEPT_US
        ]
