"""The order of rows, and the row in which each is nested: its position in the timeline of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ...core.calls import Event, caused_by
from ..accesses import DataAccess
from ..model import CLIENT, ReportRow

IsWithin = Callable[[ReportRow, ReportRow], bool]
"""A function that returns whether the handler of a delivery made a call, given their rows."""


def nested(unnested_rows: Sequence[ReportRow], is_within: IsWithin) -> list[ReportRow]:
    """Return the rows in order, each with its parent, its depth, its first cause, and the accesses of
    the events that it caused: of a consume request 1 that caused a join 2 and so a rebalance 3, row 1
    has those of 2 and 3. The receiver of a request or a delivery is the actor of the calls in it; the
    test makes those of a fault's function, which are in a call.
    """
    numbers = {row.number for row in unnested_rows}
    causes = {row.number: cause for row in unnested_rows
              if (cause := _first_cause(row.source.event)) in numbers}  # fmt: skip
    effects: defaultdict[int, list[DataAccess]] = defaultdict(list)
    for row in unnested_rows:
        if row.number in causes:
            effects[causes[row.number]] += row.accesses
    ordered = _in_order(unnested_rows, causes)
    parents = _parents(ordered, causes, is_within)
    nested_rows: dict[int, ReportRow] = {}
    for row in ordered:
        parent, actor = nested_rows.get(parents.get(row.number, 0)), row.actor
        if parent is not None and parent.rules.surrounds and actor == CLIENT:
            actor = parent.peer
        nested_rows[row.number] = replace(
            row, actor=actor, parent=parent.number if parent else 0,
            depth=parent.depth + 1 if parent else 0, first_cause=causes.get(row.number, 0),
            accesses=(*row.accesses, *effects[row.number]),
        )  # fmt: skip
    return list(nested_rows.values())


def _in_order(rows: Iterable[ReportRow], causes: Mapping[int, int]) -> list[ReportRow]:
    """Return the rows as they began, but an event directly after its first cause: with a call 1 that
    waited, a call 2 and the event 3 at the end of the wait, 1 3 2.
    """
    starts = {row.number: row.began for row in rows}

    def order(row: ReportRow) -> tuple[int, int]:
        return starts.get(causes.get(row.number, 0), row.began), row.began

    return sorted(rows, key=order)


def _parents(
    rows: Iterable[ReportRow], causes: Mapping[int, int], is_within: IsWithin
) -> dict[int, int]:
    """Return the number of the parent of each row that has one: the first cause, or else the innermost
    row that had begun and not ended, of deliveries only if the row ``is_within``. In a request 1 to 9
    and a delivery 3 to 7 to its application, a call 5 is in 3, or in 1 if it is not within 3.
    """
    parents = dict(causes)
    open_rows: list[ReportRow] = []
    for row in rows:
        if row.number not in causes:
            open_rows = [outer for outer in open_rows if outer.ended >= row.began]
            for outer in open_rows:
                if outer.kind != "delivery" or is_within(outer, row):
                    parents[row.number] = outer.number
        if row.ended > row.began:
            open_rows.append(row)
    return parents


def _first_cause(event: Event | None) -> int:
    """Return the number of the first entry in the chain that caused an event; 0 without one."""
    number = 0
    while isinstance(event, Event) and (cause := caused_by(event)) is not None:
        number, event = cause.number, cause if isinstance(cause, Event) else None
    return number
