"""Resumable queries, with cursors that record the ids that a query has returned."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from ...core.ids import RandomStream
from ...core.timekeeper import Timekeeper
from .. import errors
from ..model import Hit, Include, VectorQuery
from .ranking import PreparedQuery

if TYPE_CHECKING:
    from .engine import VectorEngine


@dataclass(eq=False, slots=True)
class Cursor:
    """The state of one resumable query.

    ``namespace`` is None once the query's namespace has been deleted, even if a namespace with the
    same name is created later. ``handed_out`` contains the ids that the query has returned.
    Times are in microseconds.
    """

    uuid: str
    namespace: str | None
    query: VectorQuery
    max_idle_us: int
    used_us: int
    handed_out: set[str] = field(default_factory=set)

    def copy(self) -> Cursor:
        return replace(self, handed_out=set(self.handed_out))


class ResumableQueries:
    """The open resumable queries of an index.

    ``start()``, ``next()`` and ``end()`` are atomic. The other methods are for callers that hold
    the lock.

    A query that has been idle for longer than its limit is closed. An empty uuid, which belongs to
    no namespace, has no hits. Methods raise ``VectorError`` 404 for the uuid of no open query.
    """

    def __init__(
        self, engine: VectorEngine, clock: Timekeeper, lock: threading.RLock, stream: RandomStream
    ) -> None:
        self.cursors: dict[str, Cursor] = {}
        self._engine = engine
        self._clock = clock
        self._lock = lock
        self._stream = stream

    def start(self, namespace: str, query: VectorQuery, max_idle_us: int) -> tuple[str, list[Hit]]:
        """Open a resumable query; return its uuid and its first hits. If the namespace does not
        exist, both are empty.
        """
        with self._lock:
            self._engine.checks.query(query, self._engine.dimension)
            self._expire()
            if namespace not in self._engine.spaces:
                return "", []
            limit = self._engine.limits.resumable_queries
            errors.check_limit("Live resumable query", len(self.cursors) + 1, limit)
            uuid = str(UUID(hex=self._stream.hex(32), version=4))
            cursor = Cursor(uuid, namespace, query, max_idle_us, self._clock.now_us())
            hits = self._next_batch(cursor, query.top_k)
            self.cursors[uuid] = cursor
            return uuid, hits

    def next(self, uuid: str, count: int) -> tuple[list[Hit], Include]:
        """Return the next hits of a resumable query, and the parts of them to include."""
        with self._lock:
            if not uuid:
                return [], Include()
            cursor = self._existing(uuid)
            cursor.used_us = self._clock.now_us()
            return self._next_batch(cursor, count), cursor.query.include

    def end(self, uuid: str) -> None:
        with self._lock:
            if uuid:
                self._existing(uuid)
                del self.cursors[uuid]

    def follow(self, namespace: str, new: str | None) -> None:
        """Move the queries of a renamed namespace. Those of a deleted one (None) have no more hits."""
        for cursor in self.cursors.values():
            if cursor.namespace == namespace:
                cursor.namespace = new

    def copy(self) -> list[Cursor]:
        return [cursor.copy() for cursor in self.cursors.values()]

    def restore(self, cursors: Iterable[Cursor]) -> None:
        self.cursors = {cursor.uuid: cursor.copy() for cursor in cursors}

    def _existing(self, uuid: str) -> Cursor:
        self._expire()
        cursor = self.cursors.get(uuid)
        if cursor is None:
            raise errors.cursor_missing(uuid)
        return cursor

    def _expire(self) -> None:
        now_us = self._clock.now_us()
        for cursor in list(self.cursors.values()):
            if now_us - cursor.used_us > cursor.max_idle_us:
                del self.cursors[cursor.uuid]

    def _next_batch(self, cursor: Cursor, count: int) -> list[Hit]:
        query = replace(cursor.query, top_k=count)
        self._engine.quota.spend("query", 1, self._clock.now_us())
        predicate = self._engine.checks.query(query, self._engine.dimension)
        prepared = PreparedQuery(query, predicate, count, cursor.handed_out)
        hits = self._engine.answer(cursor.namespace, [prepared])[0]
        cursor.handed_out.update(hit.record.id for hit in hits)
        return hits
