"""The storage of one namespace: rows in insertion order, and pending changes.

A row keeps its position when its record is replaced, so records with equal scores stay in the order
of first insertion. Every row has a slot, a number that is never reused; cursors are slots, so they
stay valid after deletions. Deleted rows stay as holes until more than 64 rows and more than half of
all rows are holes.

A *pending* change is stored separately from its row. Fetch and scans return the pending record;
queries return the record that was ready before, if any.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from copy import copy
from typing import NamedTuple

import numpy as np

from ...similarity.dense import Matrix, Rows
from ..model import NamespaceInfo, VectorRecord
from .sparse import SparseIndex

MINIMUM_HOLES = 64
ROW_BYTES = 16
ENTRY_BYTES = 8
_HOLE = VectorRecord("")


class Stored(NamedTuple):
    """What is stored under an id: the record that queries see, and a pending one; None without one."""

    id: str
    ready: VectorRecord | None
    pending: VectorRecord | None


class VectorNamespace:
    """The records of one namespace. All methods expect values that have already been checked."""

    def __init__(self, dimension: int | None) -> None:
        self.matrix = None if dimension is None else Matrix(dimension)
        self.sparse_index = SparseIndex()
        self.staged: dict[int, VectorRecord] = {}
        self._slots = array("q")
        self._next_slot = 0
        self.stored: list[VectorRecord] = []
        """The version of each row that queries see, without its dense vector. A new pending record
        has only its id, and a deleted row is ``_HOLE``.
        """
        self._rows: dict[str, int] = {}
        self._hidden: set[int] = set()
        self._hidden_rows: Rows | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def hidden(self) -> Rows:
        """The rows that queries skip, in ascending order: holes, and new pending records."""
        if self._hidden_rows is None:
            self._hidden_rows = np.fromiter(sorted(self._hidden), np.intp, len(self._hidden))
        return self._hidden_rows

    def info(self) -> NamespaceInfo:
        """Return the numbers of ready records and of pending changes, including replacements."""
        return NamespaceInfo(len(self.stored) - len(self._hidden), len(self.staged))

    def size(self) -> int:
        """Return the approximate size of the vectors in bytes.

        Decided here: ids, metadata and data are not included.
        """
        dimension = 0 if self.matrix is None else self.matrix.dimension
        return len(self) * (4 * dimension + ROW_BYTES) + ENTRY_BYTES * self.sparse_index.entries

    def get(self, id: str) -> VectorRecord | None:
        """Return the newest record with this id, pending or not, or None."""
        row = self._rows.get(id)
        return None if row is None else self._newest(row)

    def record(self, row: int) -> VectorRecord:
        """Return the version of a row's record that queries see."""
        stored = self.stored[row]
        if self.matrix is None:
            return stored
        id, _, sparse, metadata, data = stored
        return VectorRecord(id, self.matrix.vector(row), sparse, metadata, data)

    def records(self, rows: Iterable[int], *, with_vectors: bool) -> Iterator[VectorRecord]:
        """Return the versions of rows' records that queries see, optionally without the vectors."""
        return map(self.record if with_vectors else self.stored.__getitem__, rows)

    def scan(self, slot: int = 0, prefix: str = "") -> Iterator[tuple[int, VectorRecord]]:
        """Yield slot and newest record of the rows from ``slot`` on, if the id has the prefix."""
        for row in range(bisect_left(self._slots, slot), len(self.stored)):
            stored = self.stored[row]
            if stored is not _HOLE and stored.id.startswith(prefix):
                yield self._slots[row], self._newest(row)

    def ids(self, prefix: str = "") -> list[str]:
        return [id for id in self._rows if id.startswith(prefix)]

    def nth(self, position: int) -> VectorRecord:
        """Return the newest record at a position in the insertion order of existing records."""
        has_holes = len(self._rows) < len(self.stored)
        return self._newest(self._live_rows()[position] if has_holes else position)

    def _live_rows(self) -> list[int]:
        return [row for row, stored in enumerate(self.stored) if stored is not _HOLE]

    def _newest(self, row: int) -> VectorRecord:
        return self.staged.get(row) or self.record(row)

    def put(self, record: VectorRecord, *, ready: bool = True) -> None:
        """Insert or replace a record. If ``ready`` is False, the change is pending."""
        is_new = record.id not in self._rows
        try:
            row = self._append(record.id) if is_new else self._rows[record.id]
            if ready:
                self.staged.pop(row, None)
                self._write(row, record)
            else:
                self.staged[row] = record
        except BaseException:
            # A signal's handler may have interrupted it. Queries would never find the record.
            if is_new:
                self.delete(record.id)
            raise

    def stored_as(self, id: str) -> Stored:
        """Return what is stored under an id, for ``put_back()``."""
        row = self._rows.get(id)
        if row is None:
            return Stored(id, None, None)
        ready = None if row in self._hidden else self.record(row)
        return Stored(id, ready, self.staged.get(row))

    def put_back(self, stored: Stored) -> None:
        """Store again what was stored under an id."""
        if stored.ready is None:
            self.delete(stored.id)
        else:
            self.put(stored.ready)
        if stored.pending is not None:
            self.put(stored.pending, ready=False)

    def release(self, records: Iterable[VectorRecord]) -> None:
        """Make pending records ready, except those that have been replaced or deleted since."""
        for record in records:
            row = self._rows.get(record.id)
            if row is not None and self.staged.get(row) is record:
                self._write(row, self.staged.pop(row))

    def delete(self, id: str) -> bool:
        """Remove a record, immediately for queries too; return False if it does not exist."""
        row = self._rows.pop(id, None)
        if row is None:
            return False
        try:
            self._remove_sparse(row)
        except BaseException:
            # A signal's handler may have interrupted it. The record is deleted all the same.
            self._empty(row)
            self._index_sparse()
            raise
        self._empty(row)
        if len(self.stored) - len(self._rows) > max(MINIMUM_HOLES, len(self._rows)):
            self._compact()
        return True

    def _empty(self, row: int) -> None:
        """Leave a hole in a row whose record is deleted."""
        self.staged.pop(row, None)
        self.stored[row] = _HOLE
        self._hide(row)

    def _append(self, id: str) -> int:
        row = len(self.stored)
        try:
            self._slots.append(self._next_slot)
            self._next_slot += 1
            self.stored.append(VectorRecord(id))
            if self.matrix is not None:
                self.matrix.append(None)
            self._hide(row)
            self._rows[id] = row
        except BaseException:
            # A signal's handler, such as that of pytest-timeout, may raise between two columns.
            del self._slots[row:], self.stored[row:]
            if self.matrix is not None:
                self.matrix.count = row
            self._hidden.discard(row)
            self._hidden_rows = None
            self._rows.pop(id, None)
            raise
        return row

    def _write(self, row: int, record: VectorRecord) -> None:
        try:
            self._remove_sparse(row)
            if self.matrix is not None:
                self.matrix.replace(row, record.vector)
            if record.sparse is not None:
                self.sparse_index.add(row, record.sparse)
        except BaseException:
            # A signal's handler may have interrupted it, and the index would not fit the record.
            self._index_sparse()
            raise
        id, _, sparse, metadata, data = record
        self.stored[row] = VectorRecord(id, None, sparse, metadata, data)
        if row in self._hidden:
            self._hidden.remove(row)
            self._hidden_rows = None

    def _remove_sparse(self, row: int) -> None:
        old = self.stored[row].sparse
        if old is not None:
            self.sparse_index.remove(row, old)

    def _hide(self, row: int) -> None:
        self._hidden.add(row)
        self._hidden_rows = None

    def _compact(self) -> None:
        keep = self._live_rows()
        moved = {old: new for new, old in enumerate(keep)}
        if self.matrix is not None:
            self.matrix.keep(np.array(keep, np.intp))
        self._slots = array("q", [self._slots[row] for row in keep])
        self.stored = [self.stored[row] for row in keep]
        self._rows = {id: moved[row] for id, row in self._rows.items()}
        self.staged = {moved[row]: record for row, record in self.staged.items()}
        self._hidden = {moved[row] for row in self._hidden if row in moved}
        self._hidden_rows = None
        self._index_sparse()

    def _index_sparse(self) -> None:
        """Make the index of sparse vectors from the stored records."""
        self.sparse_index = SparseIndex()
        for row, record in enumerate(self.stored):
            if record.sparse is not None:
                self.sparse_index.add(row, record.sparse)

    def copy(self) -> VectorNamespace:
        """Return an independent copy. Records are shared, because they are never modified in place."""
        clone = copy(self)
        clone.matrix = None if self.matrix is None else self.matrix.copy()
        clone.sparse_index = self.sparse_index.copy()
        clone.staged = dict(self.staged)
        clone._slots = array("q", self._slots)
        clone.stored = list(self.stored)
        clone._rows = dict(self._rows)
        clone._hidden = set(self._hidden)
        return clone
