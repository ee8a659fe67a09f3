"""Resumable queries, and their cursors, which record the ids that a query has returned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from ...core.ids import RandomStream
from ...core.timekeeper import Timekeeper
from .. import errors
from ..model import Hit, VectorQuery
from .ranking import Question

if TYPE_CHECKING:
    from .engine import VectorEngine


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
        """Mark a cursor as used now and return it; return None if it is not open."""
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


class ResumableQueries:
    """The resumable queries of an index. Every call is atomic."""

    def __init__(
        self, engine: VectorEngine, clock: Timekeeper, lock: threading.RLock, stream: RandomStream
    ) -> None:
        self.cursors = Cursors()
        self._engine = engine
        self._clock = clock
        self._lock = lock
        self._stream = stream

    def start(
        self, namespace: str, query: VectorQuery, max_idle_us: int, context: object = None
    ) -> tuple[str, list[Hit]]:
        """Open a resumable query; return its uuid and its first hits. If the namespace does not
        exist, both are empty.

        ``context`` is kept with the query, and ``next()`` returns it.
        """
        with self._lock:
            self._engine.checks.query(query, self._engine.dimension)
            now_us = self._clock.now_us()
            self.cursors.expire(now_us)
            if namespace not in self._engine.namespaces.homes:
                return "", []
            limit = self._engine.limits.resumable_queries
            if limit is not None and len(self.cursors) >= limit:
                raise errors.limit_exceeded("Live resumable query", len(self.cursors) + 1, limit)
            uuid = self._new_uuid()
            cursor = Cursor(uuid, namespace, query, max_idle_us, now_us, context)
            hits = self._next_batch(cursor, query.top_k)
            self.cursors.open(cursor)
            return uuid, hits

    def next(self, uuid: str, count: int) -> tuple[list[Hit], object]:
        """Return the next hits of a resumable query and its context. An empty uuid returns no hits.

        Raises ``VectorError`` 404 if there is no open query with this uuid.
        """
        with self._lock:
            if not uuid:
                return [], None
            cursor = self.cursors.use(uuid, self._clock.now_us())
            if cursor is None:
                raise errors.cursor_missing(uuid)
            return self._next_batch(cursor, count), cursor.context

    def end(self, uuid: str) -> None:
        """Close a resumable query; an empty uuid is accepted.

        Raises ``VectorError`` 404 if there is no open query with this uuid.
        """
        with self._lock:
            if uuid and not self.cursors.end(uuid, self._clock.now_us()):
                raise errors.cursor_missing(uuid)

    def _next_batch(self, cursor: Cursor, count: int) -> list[Hit]:
        query = replace(cursor.query, top_k=count)
        self._engine.quota.spend("query", 1, self._clock.now_us())
        question = Question(
            query,
            self._engine.checks.query(query, self._engine.dimension),
            count,
            cursor.handed_out,
        )
        hits = self._engine.answer(cursor.namespace, [question])[0]
        cursor.handed_out.update(hit.record.id for hit in hits)
        return hits

    def _new_uuid(self) -> str:
        return str(UUID(hex=self._stream.hex(32), version=4))
