"""Cursors of resumable queries, which record the ids that a query has already returned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..model import VectorQuery


@dataclass(slots=True)
class Cursor:
    """The state of one resumable query.

    ``namespace`` is None once the query's namespace has been deleted, even if a namespace with the
    same name is created later. ``handed_out`` contains the ids that the query has returned.
    ``context`` is an object of the caller, which is returned with each batch. Times are in
    microseconds.
    """

    uuid: str
    namespace: str | None
    query: VectorQuery
    max_idle_us: int
    used_us: int
    context: object = None
    handed_out: set[str] = field(default_factory=set)


class Cursors:
    """All open resumable queries. A query that has been idle for longer than its limit is closed."""

    def __init__(self) -> None:
        self._cursors: dict[str, Cursor] = {}

    def __len__(self) -> int:
        return len(self._cursors)

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._cursors.values())

    def open(self, cursor: Cursor) -> None:
        self._cursors[cursor.uuid] = cursor

    def use(self, uuid: str, now_us: int) -> Cursor | None:
        """Mark the open cursor with this uuid as used now and return it; return None if no cursor
        is open.
        """
        self.expire(now_us)
        cursor = self._cursors.get(uuid)
        if cursor is not None:
            cursor.used_us = now_us
        return cursor

    def leave(self, namespace: str) -> None:
        """Detach the cursors of a namespace that is being deleted; they return no more records."""
        for cursor in self:
            if cursor.namespace == namespace:
                cursor.namespace = None

    def end(self, uuid: str, now_us: int) -> bool:
        """Close a cursor; return False if it does not exist."""
        self.expire(now_us)
        return self._cursors.pop(uuid, None) is not None

    def expire(self, now_us: int) -> None:
        for uuid in [u for u, c in self._cursors.items() if now_us - c.used_us > c.max_idle_us]:
            del self._cursors[uuid]

    def copy(self) -> Cursors:
        twin = Cursors()
        twin._cursors = {
            uuid: replace(cursor, handed_out=set(cursor.handed_out))
            for uuid, cursor in self._cursors.items()
        }
        return twin
