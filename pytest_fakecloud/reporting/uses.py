"""The data that the rows of a report read and wrote, in the order in which that happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..core.calls import Call, executed_at
from .calls import Lookups
from .contract import functions_of
from .model import DataAccess, ReportRow


class Use(NamedTuple):
    """An access to data by a row; ``order`` is the journal number at which it happened."""

    order: int
    row: ReportRow
    access: DataAccess


def uses_of(rows: Sequence[ReportRow], lookups: Lookups) -> list[Use]:
    """Return the accesses of rows. Those of an event belong to the row of the call that caused it."""
    by_number = {row.number: row for row in rows}
    uses = [use for row in rows for use in _uses_of_row(row, lookups, by_number)]
    return sorted(uses, key=lambda use: use.order)


def _uses_of_row(row: ReportRow, lookups: Lookups, rows: Mapping[int, ReportRow]) -> Iterator[Use]:
    caller = rows.get(row.follows, row)
    order = executed_at(row.entry) if isinstance(row.entry, Call) else row.number
    # A delivery to a fake is a row of both services.
    services = dict.fromkeys((row.service, row.delivery.service if row.delivery else row.service))
    accesses: list[DataAccess] = []
    for service in services:
        # The body may be malformed, such as that of a rejected request.
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            accesses += functions_of(service).accesses(row, lookups)
    for access in accesses:
        is_received = row.kind == "attempt" and not access.writes
        yield Use(row.began if is_received else order, caller, access)
