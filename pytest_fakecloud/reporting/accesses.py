"""The data that the rows of a report read and wrote, in the order in which that happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .model import DataAccess, JournalNumber, ReportRow


class OrderedAccess(NamedTuple):
    """An access to data by a row, and when it happened."""

    order: JournalNumber
    row: ReportRow
    access: DataAccess


def ordered_accesses(rows: Sequence[ReportRow]) -> list[OrderedAccess]:
    """Return the accesses of rows to data. Those of an event are among those of the row it follows."""
    ordered = [
        OrderedAccess(access.order, row, access)
        for row in rows
        for access in row.accesses
        if not row.follows and not access.is_named
    ]
    return sorted(ordered, key=lambda own: own.order)
