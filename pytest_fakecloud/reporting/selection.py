"""The selection of rows for the text report: fold repetitions, merge events, leave out the rest.

The selection uses only the data of rows, never their wording.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from ..core.calls import Event
from .model import Row

KEPT = 60
"""Maximum number of rows that are shown."""
NEWEST = 30
"""Number of rows at the end that are always shown."""
_LEAVING = ("join", "leave", "expire")
_SAME = attrgetter(
    "kind", "actor", "peer", "operation", "status", "outcome", "faults", "where", "same"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the timeline.

    Its ``rows`` repeat each other, and only the first is shown; it caused the ``effects``.
    """

    rows: tuple[Row, ...]
    effects: tuple[Event, ...] = ()

    @property
    def row(self) -> Row:
        return self.rows[0]

    def __len__(self) -> int:
        return len(self.rows) + len(self.effects)


def without_held_runs(every: list[Row]) -> tuple[list[Row], int]:
    """Return the rows without the `every_failure` runs that passed, and the number of these runs.

    If no run failed, all rows are returned. In a run's data, ``held`` is False if the run failed,
    True if it passed, and None if no call failed in it.
    """
    runs = [(row, row.entry.data.get("held", False)) for row in every
            if row.operation == "run" and isinstance(row.entry, Event)]  # fmt: skip
    left_out = [row for row, held in runs if held is not False]
    if len(left_out) == len(runs):
        return every, 0
    kept = [row for row in every
            if not any(run.began <= row.began <= run.number for run in left_out)]  # fmt: skip
    return kept, sum(held is True for _, held in runs)


def merged(every: Sequence[Row], marked: Collection[int]) -> list[Line]:
    """Return a line for each row; an event is part of the line of the call that caused it.

    A rebalance is part of the line of its join or leave. Marked rows have lines of their own.
    """
    found: list[Line] = []
    place: dict[int, int] = {}
    for row in every:
        at = place.get(row.follows)
        if at is None and found and _results_from(row, found[-1].row):
            at = len(found) - 1
        if at is not None and row.number not in marked and isinstance(row.entry, Event):
            found[at] = replace(found[at], effects=(*found[at].effects, row.entry))
            continue
        place[row.number] = len(found)
        found.append(Line((row,)))
    return found


def _results_from(row: Row, before: Row) -> bool:
    if not isinstance(row.entry, Event) or not isinstance(before.entry, Event):
        return False
    reason, data = row.entry.data.get("cause"), before.entry.data
    return (
        row.operation == "rebalance"
        and reason is not None
        and before.operation in _LEAVING
        and tuple(reason) == (before.operation, data.get("instance"))
        and (row.peer, row.entry.data.get("group")) == (before.peer, data.get("group"))
    )


def folded(every: Sequence[Line]) -> list[Line]:
    """Return the lines with repetitions folded. A row is folded together with its nested rows.

    Attempts of the same message are folded even if their attempt numbers differ.
    """
    blocks: list[list[Line]] = []
    for line in every:
        if blocks and line.row.depth > blocks[-1][0].row.depth:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    found: list[list[Line]] = []
    last_key: object = None
    for block in blocks:
        block = [block[0], *folded(block[1:])] if len(block) > 1 else block
        key = [_key(line, block[0].row.depth) for line in block]
        if key == last_key:
            found[-1] = [
                replace(one, rows=(*one.rows, *other.rows))
                for one, other in zip(found[-1], block, strict=True)
            ]
        else:
            found.append(block)
        last_key = key
    return [line for block in found for line in block]


def _key(line: Line, depth: int) -> tuple[object, ...]:
    """Return what is equal in lines that can be folded, given the depth of their blocks."""
    effects = repr([one.data for one in line.effects])
    return _SAME(line.row), line.row.depth - depth, effects, len(line.rows)


def kept(every: Sequence[Line], marked: Collection[int]) -> Iterator[Line | int]:
    """Yield the lines to show and, between them, the number of rows that are left out.

    The last lines are shown, others with findings, errors or faults, and the ends of each kind.
    """
    shown = _shown([line.row for line in every], marked)
    left = 0
    for line in every:
        if not any(row.number in shown for row in line.rows):
            left += len(line)
            continue
        if left:
            yield left
            left = 0
        yield line


def _shown(every: Sequence[Row], marked: Collection[int]) -> set[int]:
    if len(every) <= KEPT:
        return {row.number for row in every}
    first: dict[object, int] = {}
    last: dict[object, int] = {}
    for row in every:
        kind = row.kind, row.peer, row.operation
        first.setdefault(kind, row.number)
        last[kind] = row.number
    ends = {*first.values(), *last.values()}
    newest = every[-NEWEST:]

    def weight(row: Row) -> tuple[bool | int, ...]:
        """Return findings before errors, before faults, before the ends of a kind, before others."""
        # A fault explains the error of its row, so an error without a fault weighs more.
        is_unexplained = not row.ok and not row.faults
        is_notable = not row.ok or bool(row.faults)
        return row.number in marked, is_unexplained, is_notable, row.number in ends, row.began

    by_weight = sorted(every[:-NEWEST], key=weight, reverse=True)
    return {row.number for row in (*newest, *by_weight[: KEPT - NEWEST])}
