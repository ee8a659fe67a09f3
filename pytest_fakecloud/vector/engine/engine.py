"""The engine of a vector index: stores records in namespaces, and answers queries.

The engine is pure: its clock and random numbers are passed in, and it does not use HTTP. The types
of its arguments have been checked by the module ``fields``. The engine compares them with the
index's kind, dimension and limits.

Decided here, because no source describes it: a replaced record keeps its position in the insertion
order; a deletion affects queries immediately, even while other changes are pending; the first dense
vector determines the dimension of an index without one; the cursor of a scan is a slot number,
which deletions do not change; the default namespace can be neither deleted nor renamed.

A resumable query remembers the ids that it has returned. One that has been idle for longer than its
limit is closed. An empty uuid, which belongs to no namespace, has no hits.

A change is pending for the time ``ready_after`` or the number of reads ``ready_after_reads``,
whichever ends first. While anything holds the changes, none becomes ready.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from ...core.clock import Timekeeper
from ...core.errors import ContractError, counted
from ...core.ids import Ids
from ...core.timers import Timer
from ...similarity.dense import Matrix, Similarity
from .. import errors
from ..model import (
    DEFAULT_NAMESPACE,
    Include,
    IndexKind,
    Metadata,
    NamespaceInfo,
    Page,
    Predicate,
    UpdateMode,
    VectorHit,
    VectorQuery,
    VectorRecord,
)
from ..settings import VectorConfig, VectorLimits
from .namespace import Stored, VectorNamespace
from .ranking import HYBRID_DEPTH, PreparedQuery, Ranker

DAY_US = 86_400_000_000
# Number of arrays and objects around metadata in a response. They count towards the maximum of 254
# levels that orjson writes.
ENVELOPE_LEVELS = 8


class Identity(NamedTuple):
    """The properties that an index and a snapshot to restore must share."""

    name: str
    kind: IndexKind
    similarity: Similarity
    dimension: int | None
    dense_model: str
    sparse_model: str

    def __str__(self) -> str:
        parts = [f"a {self.kind.lower()} index"]
        if self.kind.has_dense:
            parts += [self.similarity, f"dimension {self.dimension or 'of the first vector'}"]
        models = " and ".join(filter(None, (self.dense_model, self.sparse_model)))
        if models:
            parts.append(f"embedding {models}")
        return f"{self.name!r} ({', '.join(parts)})"


class Cursor:
    """The state of one resumable query.

    ``namespace`` is None once the query's namespace has been deleted, even if a namespace with the
    same name is created later. ``handed_out`` contains the ids that the query has returned.
    Times are in microseconds.
    """

    def __init__(
        self, uuid: str, namespace: str, query: VectorQuery, max_idle_us: int, used_us: int
    ) -> None:
        self.uuid = uuid
        self.namespace: str | None = namespace
        self.query = query
        self.max_idle_us = max_idle_us
        self.used_us = used_us
        self.handed_out: set[str] = set()

    def copy(self) -> Cursor:
        clone = copy(self)
        clone.handed_out = set(self.handed_out)
        return clone


class Batch:
    """Changes of one namespace, None if it was deleted, that become ready together.

    ``due_us`` is the fake time at which they become ready. ``reads`` is the number of further reads
    that do not see them. A condition that is None does not apply.
    """

    def __init__(
        self,
        namespace: str | None,
        records: list[VectorRecord],
        due_us: int | None,
        reads: int | None,
    ) -> None:
        self.namespace = namespace
        self.records = records
        self.due_us = due_us
        self.reads = reads
        self.timer: Timer | None = None

    def copy(self) -> Batch:
        """Return a copy without a timer."""
        return Batch(self.namespace, self.records, self.due_us, self.reads)

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class VectorSnapshot(NamedTuple):
    """All data of an index at a point in time."""

    identity: Identity
    dimension: int | None
    namespaces: dict[str, VectorNamespace]
    cursors: list[Cursor]
    batches: list[Batch]
    used: dict[tuple[int, str], int]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return a target with a merge patch applied (RFC 7396); both arguments stay unchanged."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def check_metadata(metadata: Metadata, limits: VectorLimits) -> None:
    """Raise ``VectorError`` 400 unless metadata can be written as JSON within the size limit."""
    nested: Any = metadata
    for _ in range(ENVELOPE_LEVELS):
        nested = [nested]
    try:
        size = len(orjson.dumps(nested)) - 2 * ENVELOPE_LEVELS
    except TypeError as error:
        raise errors.bad_request(f"Invalid field metadata: {error}") from None
    errors.check_limit("Metadata size", size, limits.metadata_bytes, "bytes")


class VectorEngine:
    """A vector index. Thread-safe; every call is atomic.

    ``dimension`` is that of ``config`` or of its embedding; if it is None, the first dense vector
    determines it.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        config: VectorConfig | None = None,
        *,
        name: str = "vector_index",
        dimension: int | None = None,
        dense_model: str = "",
        sparse_model: str = "",
    ) -> None:
        config = config or VectorConfig()
        self.settings = config
        kind, similarity = config.kind, config.similarity
        self.identity = Identity(name, kind, similarity, dimension, dense_model, sparse_model)
        self.kind = kind
        self.dimension = dimension
        self.limits = config.limits
        self._clock = clock
        self._picks = ids.stream(name, "random vectors")
        self._ranker = Ranker(config, ids.stream(name, "approximation"))
        self._lock = threading.RLock()
        self.spaces = {DEFAULT_NAMESPACE: VectorNamespace(dimension)}
        """The namespaces by name, in the order of creation."""
        self._holds = 0
        """How often ``hold()`` was called without its ``release()``."""
        self._batches: list[Batch] = []
        self._daily = {"query": self.limits.daily_queries, "update": self.limits.daily_updates}
        self._used: dict[tuple[int, str], int] = {}
        """The number of queries and of updates by UTC day of the fake clock."""
        self._uuids = ids.stream(name, "resumable queries")
        self._cursors: dict[str, Cursor] = {}
        """The open resumable queries by uuid."""

    # -- writing ---------------------------------------------------------------------------------

    def upsert(self, namespace: str, records: Sequence[VectorRecord]) -> None:
        """Insert or replace records, all or none, and create the namespace if necessary.

        Raises ``VectorError`` 422 for vectors that do not fit the index, 429 for a used up quota.
        """
        with self._lock:
            dimension = self._check_records(records, self.dimension)
            if records:
                space = self._space_for(namespace)
                self._spend("update", len(records))
                self.spaces.setdefault(namespace, space)
                self._open(dimension)
                self._put(namespace, space, records)

    def load(self, groups: Mapping[str, Sequence[VectorRecord]]) -> None:
        """Insert or replace records, all or none, ready immediately and without using the quota."""
        with self._lock:
            dimension = self.dimension
            for records in groups.values():
                dimension = self._check_records(records, dimension)
            before = self.dimension, set(self.spaces)
            replaced: list[tuple[VectorNamespace, Stored]] = []
            try:
                self._open(dimension)
                for namespace, records in groups.items():
                    space = self.spaces.setdefault(namespace, VectorNamespace(self.dimension))
                    for record in records:
                        replaced.append((space, space.stored_as(record.id)))
                        space.put(record)
            except BaseException:
                # A signal's handler may have interrupted it.
                for space, stored in reversed(replaced):
                    space.put_back(stored)
                self._forget_new(*before)
                raise

    def open_namespace(self, namespace: str) -> None:
        """Create a namespace unless it exists."""
        with self._lock:
            self.spaces.setdefault(namespace, VectorNamespace(self.dimension))

    def _forget_new(self, dimension: int | None, names: Container[str]) -> None:
        """Forget other namespaces, and the dimension if there was none."""
        for name in list(self.spaces):
            if name not in names:
                del self.spaces[name]
        if dimension is None and self.dimension is not None:
            self.dimension = None
            for space in self.spaces.values():
                space.matrix = None

    def update(
        self, namespace: str, change: VectorRecord, mode: UpdateMode = UpdateMode.OVERWRITE
    ) -> bool:
        """Update the parts of a record that ``change`` has; return False if no record has the id.

        Raises ``VectorError`` 422 for vectors that do not fit the index, 400 for a patch that makes
        the metadata too large, 429 for a used up quota.
        """
        with self._lock:
            self._check_change(change)
            space = self._find(namespace)
            old = space.get(change.id)
            if old is None:
                return False
            if change.metadata is not None and mode is UpdateMode.PATCH:
                metadata = merge_patch(old.metadata, change.metadata)
                check_metadata(metadata, self.limits)
                change = change._replace(metadata=metadata)
            self._spend("update", 1)
            parts = {name: part for name, part in change._asdict().items() if part is not None}
            self._put(namespace, space, [old._replace(**parts)])
            return True

    def delete(self, namespace: str, ids: Sequence[str]) -> list[str]:
        """Remove the records with these ids; return the ids of those that existed."""
        with self._lock:
            return list(filter(self._find(namespace).delete, ids))

    def delete_prefix(self, namespace: str, prefix: str) -> list[str]:
        with self._lock:
            return self.delete(namespace, self._find(namespace).ids(prefix))

    def delete_matching(self, namespace: str, condition: str) -> list[str]:
        """Remove the records whose newest metadata matches a filter; return their ids.

        Raises ``VectorError`` 400 for an invalid filter, and for an empty one.
        """
        predicate = self.filter(condition)
        if predicate is None:
            raise errors.bad_request(
                "The filter to delete by is empty. To remove everything, use reset."
            )
        with self._lock:
            records = (record for _, record in self._find(namespace).scan())
            ids = [record.id for record in records if predicate(record.metadata)]
            return self.delete(namespace, ids)

    def reset(self, namespace: str) -> None:
        """Remove all records of a namespace, immediately also for queries; keep the namespace."""
        with self._lock:
            if namespace in self.spaces:
                self.spaces[namespace] = VectorNamespace(self.dimension)

    def reset_all(self) -> None:
        with self._lock:
            for namespace in self.spaces:
                self.reset(namespace)

    def _spend(self, what: str, count: int) -> None:
        """Count queries or updates; raise ``VectorError`` 429 if they exceed the day's limit."""
        limit = self._daily[what]
        if limit is not None:
            day = self._clock.now_us() // DAY_US
            today = {key: used for key, used in self._used.items() if key[0] == day}
            used = today.get((day, what), 0) + count
            if used > limit:
                raise errors.quota_exceeded(what, limit)
            self._used = {**today, (day, what): used}

    # -- reading ---------------------------------------------------------------------------------

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[VectorRecord | None]:
        """Return the records in the order of the ids, with None for each missing record."""
        with self._lock:
            return [*map(self._find(namespace).get, ids)]

    def range(self, namespace: str, cursor: int, limit: int | None, prefix: str = "") -> Page:
        """Return at most ``limit`` records (None: all) in insertion order, from a slot on."""
        with self._lock:
            records: list[VectorRecord] = []
            next_slot = cursor
            for slot, record in self._find(namespace).scan(cursor, prefix):
                if len(records) == limit:
                    return Page(str(next_slot), records)
                records.append(record)
                next_slot = slot + 1
            return Page("", records)

    def count(self, namespace: str) -> int:
        """Return the number of records of a namespace, including pending ones."""
        with self._lock:
            return len(self._find(namespace))

    def random(self, namespace: str) -> VectorRecord | None:
        with self._lock:
            space = self._find(namespace)
            return space.nth(self._picks.randrange(len(space))) if len(space) else None

    def info(self) -> tuple[int, dict[str, NamespaceInfo]]:
        """Return the size in bytes and the counts of each namespace; counts as a read."""
        with self._lock:
            self._count_read()
            size = sum(space.size() for space in self.spaces.values())
            return size, {name: space.info() for name, space in self.spaces.items()}

    # -- querying --------------------------------------------------------------------------------

    def query(self, namespace: str, queries: Sequence[VectorQuery]) -> list[list[VectorHit]]:
        """Return the nearest records for each query, best first; none in a missing namespace."""
        with self._lock:
            prepared = [
                PreparedQuery(query, self._check_query(query), max(query.top_k, HYBRID_DEPTH))
                for query in queries
            ]
            self._spend("query", len(prepared))
            return self.answer(namespace, prepared)

    def answer(
        self, namespace: str | None, queries: Sequence[PreparedQuery]
    ) -> list[list[VectorHit]]:
        """Return the hits for each query. The lock must be held."""
        self._count_read()
        space = None if namespace is None else self.spaces.get(namespace)
        if space is None:
            return [[] for _ in queries]
        return self._ranker.answer(space, queries)

    # -- resumable queries -----------------------------------------------------------------------

    def start_query(
        self, namespace: str, query: VectorQuery, max_idle_us: int
    ) -> tuple[str, list[VectorHit]]:
        """Open a resumable query; return its uuid and first hits (none without the namespace)."""
        with self._lock:
            self._check_query(query)
            self._expire()
            if namespace not in self.spaces:
                return "", []
            limit = self.limits.resumable_queries
            errors.check_limit("Live resumable query", len(self._cursors) + 1, limit)
            uuid = str(UUID(hex=self._uuids.hex(32), version=4))
            cursor = Cursor(uuid, namespace, query, max_idle_us, self._clock.now_us())
            hits = self._next_batch(cursor, query.top_k)
            self._cursors[uuid] = cursor
            return uuid, hits

    def next_hits(self, uuid: str, count: int) -> tuple[list[VectorHit], Include]:
        """Return the next hits of a resumable query, and the parts of them to include."""
        with self._lock:
            if not uuid:
                return [], Include()
            cursor = self._cursor(uuid)
            cursor.used_us = self._clock.now_us()
            return self._next_batch(cursor, count), cursor.query.include

    def end_query(self, uuid: str) -> None:
        with self._lock:
            if uuid:
                self._cursor(uuid)
                del self._cursors[uuid]

    def cursors(self) -> list[Cursor]:
        """Return copies of the open resumable queries."""
        with self._lock:
            self._expire()
            return [cursor.copy() for cursor in self._cursors.values()]

    def _cursor(self, uuid: str) -> Cursor:
        self._expire()
        cursor = self._cursors.get(uuid)
        if cursor is None:
            raise errors.cursor_missing(uuid)
        return cursor

    def _expire(self) -> None:
        now_us = self._clock.now_us()
        for cursor in list(self._cursors.values()):
            if now_us - cursor.used_us > cursor.max_idle_us:
                del self._cursors[cursor.uuid]

    def _next_batch(self, cursor: Cursor, count: int) -> list[VectorHit]:
        query = cursor.query._replace(top_k=count)
        self._spend("query", 1)
        predicate = self._check_query(query)
        prepared = PreparedQuery(query, predicate, count, cursor.handed_out)
        hits = self.answer(cursor.namespace, [prepared])[0]
        cursor.handed_out.update(hit.record.id for hit in hits)
        return hits

    # -- namespaces ------------------------------------------------------------------------------

    def create_namespace(self, namespace: str) -> None:
        with self._lock:
            self.spaces.setdefault(namespace, self._space_for(namespace))

    def namespaces(self) -> list[str]:
        with self._lock:
            return list(self.spaces)

    def delete_namespace(self, namespace: str) -> None:
        """Remove a namespace; raise ``VectorError`` for a missing one and the default one."""
        with self._lock:
            self._check_named(namespace, "deleted")
            del self.spaces[namespace]
            self._move(namespace, None)

    def rename_namespace(self, namespace: str, new: str, *, delete_existing: bool = False) -> None:
        """Rename a namespace.

        Raises ``VectorError`` 404 for a missing namespace, 400 for the default one and, unless
        ``delete_existing`` is true, for a new name that is taken (the text is decided here).
        """
        with self._lock:
            self._check_named(namespace, "renamed")
            if new == DEFAULT_NAMESPACE:
                raise errors.bad_request("A namespace cannot be renamed to the default one.")
            if new == namespace:
                return
            if new in self.spaces and not delete_existing:
                raise errors.bad_request(f"The namespace {new} exists already.")
            if self.spaces.pop(new, None) is not None:
                self._move(new, None)
            self.spaces = {
                new if name == namespace else name: space for name, space in self.spaces.items()
            }
            self._move(namespace, new)

    def _move(self, namespace: str, new: str | None) -> None:
        """Move queries and changes of a renamed namespace. Of a deleted one (None), both end."""
        moving: list[Cursor | Batch] = [*self._cursors.values(), *self._batches]
        for cursor in moving:
            if cursor.namespace == namespace:
                cursor.namespace = new

    def _check_named(self, namespace: str, verb: str) -> None:
        if namespace == DEFAULT_NAMESPACE:
            raise errors.bad_request(f"The default namespace cannot be {verb}.")
        if namespace not in self.spaces:
            raise errors.namespace_missing(namespace, self.identity.name)

    def _space_for(self, namespace: str) -> VectorNamespace:
        """Return the namespace with this name, or a new one that is not part of the index yet.

        Raises ``VectorError`` 400 if a new namespace would exceed the limit.
        """
        space = self.spaces.get(namespace)
        if space is None:
            errors.check_limit("Namespace count", len(self.spaces) + 1, self.limits.namespaces)
            space = VectorNamespace(self.dimension)
        return space

    # -- pending changes -------------------------------------------------------------------------

    def pending(self) -> list[tuple[str, VectorRecord]]:
        with self._lock:
            return [
                (name, record)
                for name, space in self.spaces.items()
                for record in space.staged.values()
            ]

    def hold(self) -> None:
        """Hide all new and pending changes from queries and counts until ``release()``."""
        with self._lock:
            self._holds += 1

    def release(self) -> None:
        """End one ``hold()``. The last one makes all pending changes ready."""
        with self._lock:
            self._holds -= 1
            if not self._holds:
                for batch in list(self._batches):
                    self._finish(batch)

    def _put(self, namespace: str, space: VectorNamespace, records: Sequence[VectorRecord]) -> None:
        delay_us, reads = self.settings.ready_after_us, self.settings.ready_after_reads
        ready = not self._holds and delay_us is None and reads is None
        for record in records:
            space.put(record, ready=ready)
        if not ready:
            due_us = None if delay_us is None else self._clock.now_us() + delay_us
            batch = Batch(namespace, list(records), due_us, reads)
            self._batches.append(batch)
            self._plan(batch)

    def _count_read(self) -> None:
        """Count a query or info call, and release the batches hidden from enough calls."""
        if self._holds:
            return
        for batch in list(self._batches):
            if batch.reads is not None:
                if batch.reads <= 0:
                    self._finish(batch)
                else:
                    batch.reads -= 1

    def _plan(self, batch: Batch) -> None:
        if batch.due_us is not None:
            count = len(batch.records)
            batch.timer = self._clock.call_at(
                batch.due_us,
                lambda _: self._fall_due(batch),
                lane="state",
                label=f"vector index: apply {counted(count, 'pending change')}",
            )

    def _fall_due(self, batch: Batch) -> None:
        # The clock calls this method from any thread.
        with self._lock:
            if not self._holds:
                self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        if batch in self._batches:
            self._batches.remove(batch)
            batch.cancel()
            if batch.namespace in self.spaces:
                self.spaces[batch.namespace].release(batch.records)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> VectorSnapshot:
        with self._lock:
            return VectorSnapshot(
                self.identity,
                self.dimension,
                {name: space.copy() for name, space in self.spaces.items()},
                self.cursors(),
                [batch.copy() for batch in self._batches],
                self._used,
            )

    def restore(self, snapshot: VectorSnapshot) -> None:
        """Restore a snapshot; raise ``ContractError`` if it is of an index with other properties."""
        if snapshot.identity != self.identity:
            raise ContractError(
                f"the snapshot is of the index {snapshot.identity}, but this is {self.identity}: to "
                "copy records between indexes, pass vectors() of one to load() of the other"
            )
        with self._lock:
            self.dimension = snapshot.dimension
            self.spaces = {name: space.copy() for name, space in snapshot.namespaces.items()}
            self._cursors = {cursor.uuid: cursor.copy() for cursor in snapshot.cursors}
            self._used = snapshot.used
            self.close()
            self._batches = [batch.copy() for batch in snapshot.batches]
            for batch in list(self._batches):
                # Changes that only a hold delayed stay pending during one.
                if not self._holds and batch.due_us is None and batch.reads is None:
                    self._finish(batch)
                self._plan(batch)

    def close(self) -> None:
        """Cancel the timers of pending changes."""
        with self._lock:
            for batch in self._batches:
                batch.cancel()

    def _find(self, namespace: str) -> VectorNamespace:
        """Return a namespace or, if it does not exist, an empty one that is not part of the index."""
        space = self.spaces.get(namespace)
        return VectorNamespace(None) if space is None else space

    def _open(self, dimension: int | None) -> None:
        if self.dimension is None and dimension is not None:
            self.dimension = dimension
            for space in self.spaces.values():
                space.matrix = Matrix(dimension)

    # -- checks of values that are well-formed, but may be invalid for this index ------------------

    def _check_records(self, records: Sequence[VectorRecord], dimension: int | None) -> int | None:
        """Check all records; return the index's dimension after they are stored."""
        for record in records:
            self._check_kind(record, "the vector", record.id)
            whose = f"the vector with id {record.id[:80]!r}"
            if self.kind.has_dense and record.vector is None:
                raise errors.vectors_required("dense", f"{whose} has no field vector")
            if self.kind.has_sparse and record.sparse is None:
                raise errors.vectors_required("sparse", f"{whose} has no field sparseVector")
            dimension = self._check_dimension(record, dimension)
        return dimension

    def _check_change(self, change: VectorRecord) -> None:
        """Check the vectors of a change. A change to a hybrid index needs both vectors or neither."""
        self._check_kind(change, "the update", change.id)
        if self.kind is IndexKind.HYBRID and (change.vector is None) != (change.sparse is None):
            raise errors.unprocessable(
                "An update of a hybrid index must contain both vector and sparseVector, or neither."
            )
        self._check_dimension(change, self.dimension)

    def _check_query(self, query: VectorQuery) -> Predicate | None:
        """Check the vectors of a query; return its compiled filter, or None if it has no filter."""
        self._check_kind(query, "the query")
        if query.vector is None and query.sparse is None:
            fields = {
                IndexKind.DENSE: ("dense", "vector"),
                IndexKind.SPARSE: ("sparse", "sparseVector"),
                IndexKind.HYBRID: ("dense or sparse", "vector or field sparseVector"),
            }
            kinds, field = fields[self.kind]
            raise errors.vectors_required(kinds, f"the query has no field {field}")
        self._check_dimension(query, self.dimension)
        return self.filter(query.filter)

    def filter(self, text: str) -> Predicate | None:
        """Return the compiled filter, or None if the text is empty."""
        if not text:
            return None
        size = len(text.encode("utf-8", "surrogatepass"))
        errors.check_limit("Filter size", size, self.limits.filter_bytes, "bytes")
        if not text.strip():
            return None
        # Imported here, because compiling its patterns takes 7 ms and most queries have no filter.
        from ..filter import compile_filter

        return compile_filter(text)

    def _check_kind(self, content: VectorRecord | VectorQuery, what: str, id: str = "") -> None:
        if content.vector is not None and not self.kind.has_dense:
            field, kind = "vector", "sparse"
        elif content.sparse is not None and not self.kind.has_sparse:
            field, kind = "sparseVector", "dense"
        else:
            return
        whose = f"{what} with id {id[:80]!r}" if id else what
        raise errors.vectors_required(kind, f"{whose} has a {field}")

    def _check_dimension(
        self, content: VectorRecord | VectorQuery, dimension: int | None
    ) -> int | None:
        if content.vector is None:
            return dimension
        count = len(content.vector)
        if dimension is not None and count != dimension:
            raise errors.invalid_dimension(count, dimension)
        if count == 0:
            raise errors.unprocessable("Invalid vector dimension: 0, expected: at least 1")
        errors.check_limit("Vector dimension", count, self.limits.dimension)
        return count
