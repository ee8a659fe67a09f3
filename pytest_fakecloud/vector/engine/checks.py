"""Checks that depend on the index: its kind, its dimension and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from .. import errors
from ..model import Kind, Metadata, VectorQuery, VectorRecord
from ..settings import VectorLimits

if TYPE_CHECKING:
    from ..filter import Predicate

DAY_US = 86_400_000_000
# Number of arrays and objects around metadata in a response. They count towards the maximum of 254
# levels that orjson writes.
ENVELOPE_LEVELS = 8


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


class Checks:
    """Raises ``VectorError`` for values that are well-formed but invalid for this index."""

    def __init__(self, kind: Kind, limits: VectorLimits) -> None:
        self.kind = kind
        self.limits = limits

    def records(self, records: Sequence[VectorRecord], dimension: int | None) -> int | None:
        """Check all records; return the index's dimension after they are stored."""
        for record in records:
            self._kind(record, "The vector", record.id)
            if self.kind.has_dense and record.vector is None:
                raise self._missing("vector", f"the vector with id {record.id[:80]!r}")
            if self.kind.has_sparse and record.sparse is None:
                raise self._missing("sparseVector", f"the vector with id {record.id[:80]!r}")
            dimension = self._dimension(record, dimension)
        return dimension

    def change(self, change: VectorRecord, dimension: int | None) -> None:
        """Check the vectors of a change. A change to a hybrid index needs both vectors or neither."""
        self._kind(change, "The update", change.id)
        if self.kind is Kind.HYBRID and (change.vector is None) != (change.sparse is None):
            raise errors.unprocessable(
                "An update of a hybrid index must contain both vector and sparseVector, or neither."
            )
        self._dimension(change, dimension)

    def query(self, query: VectorQuery, dimension: int | None) -> Predicate | None:
        """Check the vectors of a query; return its compiled filter, or None if it has no filter."""
        self._kind(query, "The query")
        if query.vector is None and query.sparse is None:
            needed = {
                Kind.DENSE: "vector",
                Kind.SPARSE: "sparseVector",
                Kind.HYBRID: "vector and/or sparseVector",
            }
            raise self._missing(needed[self.kind], "the query")
        self._dimension(query, dimension)
        return self.filter(query.filter)

    def filter(self, text: str) -> Predicate | None:
        """Return the compiled filter, or None if the text is empty."""
        size = len(text.encode("utf-8", "surrogatepass"))
        errors.check_limit("Filter size", size, self.limits.filter_bytes, "bytes")
        if not text.strip():
            return None
        # Imported here, because compiling its patterns takes 7 ms and most queries have no filter.
        from ..filter import compile_filter

        return compile_filter(text)

    def _kind(self, given: VectorRecord | VectorQuery, what: str, id: str = "") -> None:
        if given.vector is not None and not self.kind.has_dense:
            field, kind = "vector", "sparse"
        elif given.sparse is not None and not self.kind.has_sparse:
            field, kind = "sparseVector", "dense"
        else:
            return
        whose = f"{what} with id {id[:80]!r}" if id else what
        raise errors.unprocessable(f"{whose} has a {field}, but this is a {kind} index.")

    def _dimension(self, given: VectorRecord | VectorQuery, dimension: int | None) -> int | None:
        if given.vector is None:
            return dimension
        count = len(given.vector)
        if dimension is not None and count != dimension:
            raise errors.invalid_dimension(count, dimension)
        if count == 0:
            raise errors.unprocessable("Invalid vector dimension: 0, expected: at least 1")
        errors.check_limit("Vector dimension", count, self.limits.dimension)
        return count

    def _missing(self, field: str, whose: str) -> errors.VectorError:
        kind = self.kind.value.lower()
        return errors.unprocessable(
            f"A {kind} index needs the field {field}, which is missing in {whose}."
        )


class VectorQuota:
    """Counts queries and updates against daily limits; a day is a UTC day of the fake clock."""

    def __init__(self, limits: VectorLimits) -> None:
        self._limits = {"query": limits.daily_queries, "update": limits.daily_updates}
        self._day = 0
        self._used: dict[str, int] = {}

    def spend(self, what: str, count: int, now_us: int) -> None:
        """Count queries or updates; raise ``VectorError`` 429 if they exceed the day's limit."""
        limit = self._limits[what]
        if limit is None:
            return
        day = now_us // DAY_US
        if day != self._day:
            self._day, self._used = day, {}
        used = self._used.get(what, 0) + count
        if used > limit:
            raise errors.quota_exceeded(what, limit)
        self._used[what] = used

    def state(self) -> tuple[int, dict[str, int]]:
        return self._day, dict(self._used)

    def restore(self, state: tuple[int, dict[str, int]]) -> None:
        self._day, self._used = state[0], dict(state[1])
