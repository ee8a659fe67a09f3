"""The data that the rows of a report read and wrote, in the order in which that happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..core.calls import Call, executed_at
from ..core.errors import report_hook_failure
from .calls import MALFORMED, may_be_malformed
from .contract import functions_of
from .lookups import Lookups
from .model import DataAccess, ReportRow


class OrderedAccess(NamedTuple):
    """An access to data by a row; ``order`` is the journal number at which it happened."""

    order: int
    row: ReportRow
    access: DataAccess


def ordered_accesses(
    rows: Sequence[ReportRow], lookups: Lookups, errors: list[str]
) -> list[OrderedAccess]:
    """Return the accesses of rows; those that cannot be read become lines of ``errors``. Those of an
    event belong to the row of the call that caused it.
    """
    by_number = {row.number: row for row in rows}
    accesses = [
        ordered for row in rows for ordered in _accesses_of_row(row, lookups, by_number, errors)
    ]
    return sorted(accesses, key=lambda ordered: ordered.order)


def _accesses_of_row(
    row: ReportRow, lookups: Lookups, rows: Mapping[int, ReportRow], errors: list[str]
) -> Iterator[OrderedAccess]:
    caller = rows.get(row.follows, row)
    order = executed_at(row.entry) if isinstance(row.entry, Call) else row.number
    # A delivery to a fake is a row of both services.
    services = dict.fromkeys((row.service, row.delivery.service if row.delivery else row.service))
    accesses: list[DataAccess] = []
    expected = MALFORMED if isinstance(row.entry, Call) and may_be_malformed(row.entry) else ()
    error = f"what a row of {row.peer} accessed cannot be shown"
    for service in services:
        with report_hook_failure(error, errors.append), suppress(*expected):
            accesses += functions_of(service).accesses(row, lookups)
    for access in accesses:
        is_received = row.kind == "attempt" and not access.writes
        yield OrderedAccess(row.began if is_received else order, caller, access)
