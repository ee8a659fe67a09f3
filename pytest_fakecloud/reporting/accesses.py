"""The data that the rows of a report read and wrote, in the order in which that happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.calls import executed_at
from .model import DataAccess, JournalNumber, ReportRow


class OrderedAccess(NamedTuple):
    """An access to data by a row, and when it happened."""

    order: JournalNumber
    row: ReportRow
    access: DataAccess


def ordered_accesses(rows: Sequence[ReportRow]) -> list[OrderedAccess]:
    """Return the accesses of rows to data; those of an event belong to the row of its first cause."""
    by_number = {row.number: row for row in rows}
    ordered: list[OrderedAccess] = []
    for row in rows:
        caller, call = by_number.get(row.follows, row), row.source.call
        order = row.number if call is None else executed_at(call)
        for access in row.accesses:
            is_received = row.kind == "attempt" and not access.writes
            if not access.is_named:
                ordered.append(OrderedAccess(row.began if is_received else order, caller, access))
    return sorted(ordered, key=lambda own: own.order)
