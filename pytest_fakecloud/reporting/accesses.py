"""The data that the rows of a report read and wrote, in the order in which that happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..core.calls import executed_at
from .calls import contained
from .contract import functions_of
from .lookups import Lookups
from .model import EVERY_KIND, DataAccess, JournalNumber, ReportRow, ReportSubject


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


def accesses_of(row: ReportRow, lookups: Lookups) -> tuple[DataAccess, ...]:
    """Return what the entry of a row read, wrote and named."""
    accesses: list[DataAccess] = []
    error = f"what a row of {row.peer} accessed cannot be shown"
    # A delivery to a fake is a row of both services.
    for accesses_of_service in (_of_source, _of_delivery):
        with contained(error, lookups.errors, call=row.source.call):
            accesses += accesses_of_service(row, lookups)
    return tuple(accesses)


def _of_source(row: ReportRow, lookups: Lookups) -> Iterable[DataAccess]:
    source, functions = row.source, functions_of(row.service)
    if source.call is not None:
        return functions.calls.accesses(source.call, lookups)
    if source.event is not None:
        return functions.events.accesses(source.event, lookups)
    if source.action is None:
        return ()
    if source.action.kind in ("reset", "restore"):
        return [DataAccess(ReportSubject.all_of(EVERY_KIND, source.action.fake), True)]
    return functions.actions.accesses(source.action, lookups)


def _of_delivery(row: ReportRow, lookups: Lookups) -> Iterable[DataAccess]:
    if (delivery := row.source.delivery) is None:
        return ()
    return functions_of(delivery.event.service).deliveries.accesses(row, delivery, lookups)
