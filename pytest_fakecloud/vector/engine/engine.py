"""The engine of a vector index: stores records in namespaces, and answers queries.

The engine is pure: its clock and random numbers are passed in, and it does not use HTTP. The types
of its arguments have been checked by the module ``fields``. The module ``checks`` compares them
with the index's kind, dimension and limits.

Decided here, because no source describes it: a replaced record keeps its position in the insertion
order; a deletion affects queries immediately, even while other changes are pending; the first dense
vector determines the dimension of an index without one; the cursor of a scan is a slot number,
which deletions do not change; the default namespace can be neither deleted nor renamed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from .. import errors
from ..model import (
    DEFAULT_NAMESPACE,
    Change,
    Hit,
    IndexInfo,
    Kind,
    Page,
    Similarity,
    UpdateMode,
    VectorQuery,
    VectorRecord,
)
from ..settings import Approximation, VectorLimits
from .checks import Checks, VectorQuota, check_metadata
from .cursor import Cursor, Cursors
from .namespace import Namespace
from .pending import Batch, Readiness
from .ranking import HYBRID_DEPTH, Question, Ranker

if TYPE_CHECKING:
    from ..filter.predicate import Predicate


@dataclass(frozen=True, slots=True)
class Identity:
    """The properties that an index must share with a snapshot to restore it.

    ``dimension`` is None if the first vector determines it.
    """

    name: str
    kind: Kind
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


@dataclass(frozen=True, slots=True)
class VectorSnapshot:
    """All data of an index at a point in time."""

    index: Identity
    dimension: int | None
    namespaces: dict[str, Namespace]
    cursors: Cursors
    batches: list[Batch]
    held: bool
    quota: tuple[int, dict[str, int]]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return a target with a merge patch applied (RFC 7396); both arguments stay unchanged.

    A null in the patch deletes a field, an object is merged into the field's value, and any other
    value replaces it.
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


class VectorEngine:
    """A vector index. Thread-safe; every call is atomic.

    If ``dimension`` is None, the first dense vector determines the dimension. With
    ``ready_after_us``, queries see a change only after that many microseconds of fake time; with
    ``ready_after_reads``, only after that many query and info calls.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        *,
        name: str = "vector_index",
        kind: Kind = Kind.DENSE,
        similarity: Similarity = Similarity.COSINE,
        dimension: int | None = None,
        dense_model: str = "",
        sparse_model: str = "",
        limits: VectorLimits | None = None,
        approximation: Approximation | None = None,
        ready_after_us: int | None = None,
        ready_after_reads: int | None = None,
    ) -> None:
        self.name = name
        self.identity = Identity(name, kind, similarity, dimension, dense_model, sparse_model)
        self.kind = kind
        self.similarity = similarity
        self.dimension = dimension
        self.dense_model = dense_model
        self.sparse_model = sparse_model
        self.limits = limits or VectorLimits()
        self._clock = clock
        self._uuids = ids.stream(name, "resumable queries")
        self._picks = ids.stream(name, "random vectors")
        self._ranker = Ranker(
            similarity, approximation or Approximation(), ids.stream(name, "approximation")
        )
        self._lock = threading.RLock()
        self._namespaces: dict[str, Namespace] = {DEFAULT_NAMESPACE: Namespace(dimension)}
        self._cursors = Cursors()
        self._readiness = Readiness(
            clock, self._lock, self._release, ready_after_us, ready_after_reads
        )
        self._checks = Checks(kind, self.limits)
        self._quota = VectorQuota(self.limits)

    # -- writing ---------------------------------------------------------------------------------

    def upsert(self, namespace: str, records: Sequence[VectorRecord]) -> None:
        """Insert or replace records, and create the namespace if necessary; store all records or
        none. If an id occurs twice, the last record is stored.

        Raises ``VectorError`` 422 if a record lacks a vector that the index needs, or has one of
        the wrong kind or dimension; 429 if the daily quota is used up.
        """
        with self._lock:
            dimension = self._checks.records(records, self.dimension)
            if records:
                home = self._home(namespace)
                self._quota.spend("update", len(records), self._clock.now_us())
                self._namespaces.setdefault(namespace, home)
                self._open(dimension)
                self._put(namespace, home, records)

    def load(self, groups: Mapping[str, Sequence[VectorRecord]]) -> None:
        """Insert or replace the records of each namespace; if any record is invalid, store none.

        The records are ready for queries immediately and do not count against the quota.
        """
        with self._lock:
            dimension = self.dimension
            for records in groups.values():
                dimension = self._checks.records(records, dimension)
            self._open(dimension)
            for namespace, records in groups.items():
                home = self._namespaces.setdefault(namespace, Namespace(self.dimension))
                for record in records:
                    home.put(record)

    def update(self, namespace: str, change: Change) -> bool:
        """Update a record; return False if no record has the id.

        Raises ``VectorError`` 422 for vectors that do not fit the index, or for only one of the two
        that a hybrid index needs; 400 for a patch that makes the metadata too large; 429 if the
        daily quota is used up.
        """
        with self._lock:
            self._checks.change(change, self.dimension)
            home = self._namespaces.get(namespace)
            old = home.get(change.id) if home is not None else None
            if home is None or old is None:
                return False
            metadata = old.metadata if change.metadata is None else change.metadata
            if change.metadata is not None and change.mode is UpdateMode.PATCH:
                metadata = merge_patch(old.metadata, change.metadata)
                check_metadata(metadata, self.limits)
            self._quota.spend("update", 1, self._clock.now_us())
            new = old._replace(
                vector=old.vector if change.vector is None else change.vector,
                sparse=old.sparse if change.sparse is None else change.sparse,
                metadata=metadata,
                data=old.data if change.data is None else change.data,
            )
            self._put(namespace, home, [new])
            return True

    def delete(self, namespace: str, ids: Sequence[str]) -> int:
        """Remove records by id; return the number of removed records."""
        with self._lock:
            home = self._namespaces.get(namespace)
            return 0 if home is None else sum(home.delete(id) for id in ids)

    def delete_prefix(self, namespace: str, prefix: str) -> int:
        """Remove the records whose id starts with a prefix; return the number of removed records."""
        with self._lock:
            home = self._namespaces.get(namespace)
            return 0 if home is None else self.delete(namespace, home.ids(prefix))

    def delete_matching(self, namespace: str, filter: str) -> int:
        """Remove the records whose newest metadata matches a filter; return the number of removed
        records.

        Raises ``VectorError`` 400 for an invalid filter and for an empty one, which would remove
        every record.
        """
        predicate = self.predicate(filter)
        if predicate is None:
            raise errors.bad_request(
                "The filter to delete by is empty. To remove everything, use reset."
            )
        with self._lock:
            home = self._namespaces.get(namespace)
            if home is None:
                return 0
            found = [record.id for _, record in home.scan() if predicate(record.metadata)]
            return self.delete(namespace, found)

    def reset(self, namespace: str) -> None:
        """Remove all records of a namespace but keep the namespace. This affects queries
        immediately. If the namespace does not exist, do nothing.
        """
        with self._lock:
            if namespace in self._namespaces:
                self._namespaces[namespace] = Namespace(self.dimension)

    def reset_all(self) -> None:
        with self._lock:
            for namespace in self._namespaces:
                self.reset(namespace)

    # -- namespaces ------------------------------------------------------------------------------

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace unless it exists."""
        with self._lock:
            self._namespaces.setdefault(namespace, self._home(namespace))

    def namespaces(self) -> list[str]:
        """Return the names in order of creation, with the default namespace ("") first."""
        with self._lock:
            return list(self._namespaces)

    def delete_namespace(self, namespace: str) -> None:
        """Remove a namespace and its records.

        Raises ``VectorError`` 404 if it does not exist, 400 for the default one.
        """
        with self._lock:
            self._check_named(namespace, "deleted")
            del self._namespaces[namespace]
            self._cursors.leave(namespace)

    def rename_namespace(self, namespace: str, new: str, *, delete_existing: bool = False) -> bool:
        """Rename a namespace. Return False if the new name is taken and ``delete_existing`` is
        False.

        Raises ``VectorError`` 404 if the namespace does not exist, 400 if the old or new name is
        that of the default namespace.
        """
        with self._lock:
            self._check_named(namespace, "renamed")
            if new == DEFAULT_NAMESPACE:
                raise errors.bad_request("A namespace cannot be renamed to the default one.")
            if new == namespace:
                return True
            if new in self._namespaces and not delete_existing:
                return False
            if self._namespaces.pop(new, None) is not None:
                self._cursors.leave(new)
            self._namespaces = {
                new if name == namespace else name: home for name, home in self._namespaces.items()
            }
            for follower in (*self._cursors, *self._readiness.batches):
                if follower.namespace == namespace:
                    follower.namespace = new
            return True

    # -- reading ---------------------------------------------------------------------------------

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[VectorRecord | None]:
        """Return the records in the order of the ids, with None for each missing record."""
        with self._lock:
            home = self._namespaces.get(namespace)
            return [None if home is None else home.get(id) for id in ids]

    def fetch_prefix(self, namespace: str, prefix: str) -> list[VectorRecord]:
        """Return at most ``limits.prefix_fetch`` records whose id starts with a prefix, in
        insertion order.
        """
        return self.range(namespace, 0, self.limits.prefix_fetch, prefix).records

    def range(self, namespace: str, cursor: int, limit: int | None, prefix: str = "") -> Page:
        """Return at most ``limit`` records in insertion order, starting at the slot ``cursor``. If
        ``limit`` is None, return all remaining records.
        """
        with self._lock:
            home = self._namespaces.get(namespace)
            if home is None:
                return Page("")
            records: list[VectorRecord] = []
            next_slot = cursor
            for slot, record in home.scan(cursor, prefix):
                if len(records) == limit:
                    return Page(str(next_slot), records)
                records.append(record)
                next_slot = slot + 1
            return Page("", records)

    def count(self, namespace: str) -> int:
        """Return the number of records of a namespace, including pending ones."""
        with self._lock:
            return len(self._namespaces.get(namespace, ()))

    def random(self, namespace: str) -> VectorRecord | None:
        """Return a record chosen by the seeded random generator, or None if the namespace is empty."""
        with self._lock:
            home = self._namespaces.get(namespace)
            if home is None or not len(home):
                return None
            return home.nth(self._picks.randrange(len(home)))

    def info(self) -> IndexInfo:
        """Return the properties of the index and the counts of each namespace. This counts as a
        read for ``ready_after_reads``.
        """
        with self._lock:
            self._readiness.count_read()
            return self.describe()

    def describe(self) -> IndexInfo:
        """Return the same as ``info()``, but do not count as a read."""
        with self._lock:
            homes = self._namespaces
            return IndexInfo(
                self.kind,
                self.similarity,
                self.dimension or 0,
                sum(home.size() for home in homes.values()),
                self.dense_model,
                self.sparse_model,
                {name: home.info() for name, home in homes.items()},
            )

    # -- querying --------------------------------------------------------------------------------

    def predicate(self, filter: str) -> Predicate | None:
        """Return the compiled filter, or None if the text is empty. Raises ``VectorError`` 400 for
        an invalid filter.
        """
        return self._checks.filter(filter)

    def query(self, namespace: str, queries: Sequence[VectorQuery]) -> list[list[Hit]]:
        """Return the nearest records for each query, best first. The lists are empty if the
        namespace does not exist.
        """
        with self._lock:
            questions = [
                Question(
                    query, self._checks.query(query, self.dimension), max(query.top_k, HYBRID_DEPTH)
                )
                for query in queries
            ]
            self._quota.spend("query", len(queries), self._clock.now_us())
            return self._answer(namespace, questions)

    def start_query(
        self, namespace: str, query: VectorQuery, max_idle_us: int, context: object = None
    ) -> tuple[str, list[Hit]]:
        """Open a resumable query; return its uuid and its first hits. If the namespace does not
        exist, both are empty.

        ``context`` is kept with the query, and ``next_hits()`` returns it.
        """
        with self._lock:
            self._checks.query(query, self.dimension)
            now_us = self._clock.now_us()
            self._cursors.expire(now_us)
            if namespace not in self._namespaces:
                return "", []
            limit = self.limits.resumable_queries
            if limit is not None and len(self._cursors) >= limit:
                raise errors.limit_exceeded("Live resumable query", len(self._cursors) + 1, limit)
            uuid = self._new_uuid()
            cursor = Cursor(uuid, namespace, query, max_idle_us, now_us, context)
            hits = self._next_batch(cursor, query.top_k)
            self._cursors.open(cursor)
            return uuid, hits

    def next_hits(self, uuid: str, count: int) -> tuple[list[Hit], object]:
        """Return the next hits of a resumable query and its context. An empty uuid returns no hits.

        Raises ``VectorError`` 404 if there is no open query with this uuid.
        """
        with self._lock:
            if not uuid:
                return [], None
            cursor = self._cursors.use(uuid, self._clock.now_us())
            if cursor is None:
                raise errors.cursor_missing(uuid)
            return self._next_batch(cursor, count), cursor.context

    def end_query(self, uuid: str) -> None:
        """Close a resumable query; an empty uuid is accepted.

        Raises ``VectorError`` 404 if there is no open query with this uuid.
        """
        with self._lock:
            if uuid and not self._cursors.end(uuid, self._clock.now_us()):
                raise errors.cursor_missing(uuid)

    def _next_batch(self, cursor: Cursor, count: int) -> list[Hit]:
        query = replace(cursor.query, top_k=count)
        self._quota.spend("query", 1, self._clock.now_us())
        question = Question(
            query, self._checks.query(query, self.dimension), count, cursor.handed_out
        )
        hits = self._answer(cursor.namespace, [question])[0]
        cursor.handed_out.update(hit.record.id for hit in hits)
        return hits

    def _answer(self, namespace: str | None, questions: Sequence[Question]) -> list[list[Hit]]:
        self._readiness.count_read()
        home = None if namespace is None else self._namespaces.get(namespace)
        if home is None:
            return [[] for _ in questions]
        return self._ranker.answer(home, questions)

    def _new_uuid(self) -> str:
        digits = self._uuids.hex(32)
        variant = "89ab"[int(digits[16], 16) % 4]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )

    # -- pending changes -------------------------------------------------------------------------

    def hold_pending(self) -> None:
        """Hide all new and pending changes from queries and counts until ``release_pending()``."""
        with self._lock:
            self._readiness.held = True

    def release_pending(self) -> None:
        """Make all pending changes ready. New changes become ready according to the settings again."""
        with self._lock:
            self._readiness.release_all()

    @property
    def holding(self) -> bool:
        """Whether ``hold_pending()`` is in effect."""
        return self._readiness.held

    def pending(self) -> list[tuple[str, VectorRecord]]:
        """Return the namespace and the record of every pending change."""
        with self._lock:
            return [
                (name, record)
                for name, home in self._namespaces.items()
                for record in home.staged.values()
            ]

    def _put(self, namespace: str, home: Namespace, records: Sequence[VectorRecord]) -> None:
        ready = self._readiness.immediate
        for record in records:
            home.put(record, ready=ready)
        if not ready:
            self._readiness.wait_for(namespace, list(records))

    def _release(self, batch: Batch) -> None:
        with self._lock:
            home = self._namespaces.get(batch.namespace)
            if home is not None:
                home.release(batch.records)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> VectorSnapshot:
        """Return an independent copy of all data of the index."""
        with self._lock:
            return VectorSnapshot(
                self.identity,
                self.dimension,
                {name: home.copy() for name, home in self._namespaces.items()},
                self._cursors.copy(),
                self._readiness.copy(),
                self._readiness.held,
                self._quota.state(),
            )

    def restore(self, snapshot: VectorSnapshot) -> None:
        """Restore the data of a snapshot. The snapshot can be restored again later.

        Raises ``ContractError`` if the snapshot is of an index with different properties, because
        its vectors may not fit.
        """
        if snapshot.index != self.identity:
            raise ContractError(
                f"the snapshot is of the index {snapshot.index}, but this is {self.identity}: to copy "
                "records between indexes, pass vectors() of one to load() of the other"
            )
        with self._lock:
            self.dimension = snapshot.dimension
            self._namespaces = {name: home.copy() for name, home in snapshot.namespaces.items()}
            self._cursors = snapshot.cursors.copy()
            self._readiness.restore(snapshot.batches, snapshot.held)
            self._quota.restore(snapshot.quota)

    def close(self) -> None:
        """Cancel the timers of pending changes."""
        with self._lock:
            self._readiness.cancel()

    # -- namespaces by name ----------------------------------------------------------------------

    def _home(self, namespace: str) -> Namespace:
        """Return the namespace with this name. If it does not exist, return a new namespace without
        adding it to the index.

        Raises ``VectorError`` 400 if a new namespace would exceed the limit.
        """
        home = self._namespaces.get(namespace)
        if home is not None:
            return home
        limit = self.limits.namespaces
        if limit is not None and len(self._namespaces) >= limit:
            raise errors.limit_exceeded("Namespace count", len(self._namespaces) + 1, limit)
        return Namespace(self.dimension)

    def _open(self, dimension: int | None) -> None:
        """Set the dimension of an index that has none yet."""
        if self.dimension is None and dimension is not None:
            self.dimension = dimension
            for home in self._namespaces.values():
                home.open_matrix(dimension)

    def _check_named(self, namespace: str, verb: str) -> None:
        if namespace == DEFAULT_NAMESPACE:
            raise errors.bad_request(f"The default namespace cannot be {verb}.")
        if namespace not in self._namespaces:
            raise errors.namespace_missing(namespace, self.name)
