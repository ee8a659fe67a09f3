"""The lines of a report's rows: events are part of the row of their call, repetitions of the first row,
and rows that are not listed become one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from ..core.calls import Event
from ..core.errors import counted, listed
from .model import ReportRow

_LEAST = 3
"""Minimum number of equal rows in succession that become one, except for attempts of a message."""
_ACTION = attrgetter("at_us", "peer", "operation", "depth")
_SAME = attrgetter(
    "kind", "actor", "peer", "operation", "status", "outcome", "faults", "where", "same"
)


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """``rows`` that repeat each other, of which the first is shown, and the ``effects`` of that row.

    ``varies`` is the position of the only argument in which actions differ; None if they are equal.
    """

    rows: tuple[ReportRow, ...]
    effects: tuple[Event, ...] = ()
    varies: int | None = None

    @property
    def row(self) -> ReportRow:
        return self.rows[0]


def merged(rows: Sequence[ReportRow], marked: Collection[int]) -> list[FoldedRow]:
    """Return a line for each row; an event is part of the line of the call or the event that caused it.
    Marked rows have lines of their own.
    """
    lines: list[FoldedRow] = []
    line_numbers: dict[int, int] = {}
    for row in rows:
        at = line_numbers.get(row.follows)
        event = row.source.event
        if at is not None and row.number not in marked and event is not None:
            lines[at] = replace(lines[at], effects=(*lines[at].effects, event))
            continue
        line_numbers[row.number] = len(lines)
        lines.append(FoldedRow((row,)))
    return lines


def folded(unfolded: Sequence[FoldedRow]) -> list[FoldedRow]:
    """Return the lines with repetitions folded. A row is folded together with its nested rows.

    Attempts of the same message are folded even if their attempt numbers differ.
    """
    blocks: list[list[FoldedRow]] = []
    for line in unfolded:
        if blocks and line.row.depth > blocks[-1][0].row.depth:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    blocks = [[block[0], *folded(block[1:])] for block in blocks]
    lines: list[FoldedRow] = []
    for _, equal in groupby(blocks, _key):
        group = list(equal)
        if len(group) < _LEAST and group[0][0].row.kind != "attempt":
            lines += [line for block in group for line in block]
            continue
        lines += [
            replace(same[0], rows=tuple(row for line in same for row in line.rows))
            for same in zip(*group, strict=True)
        ]
    return lines


def _key(block: Sequence[FoldedRow]) -> list[tuple[object, ...]]:
    """Return what is equal in blocks that can be folded."""
    return [
        (
            _SAME(line.row),
            line.row.depth - block[0].row.depth,
            repr([event.data for event in line.effects]),
            len(line.rows),
        )
        for line in block
    ]


def alike(lines: Iterable[FoldedRow | str], apart: Collection[int]) -> list[FoldedRow | str]:
    """Return the lines with actions of the test joined that follow each other and differ in the same
    argument alone. The rows with the numbers ``apart`` keep lines of their own.
    """
    joined: list[FoldedRow | str] = []
    for line in lines:
        before = joined[-1] if joined else ""
        if isinstance(line, FoldedRow) and isinstance(before, FoldedRow):
            at = _varies(before, line)
            is_apart = any(row.number in apart for row in (*before.rows, *line.rows))
            if at is not None and not is_apart:
                joined[-1] = replace(before, rows=(*before.rows, *line.rows), varies=at)
                continue
        joined.append(line)
    return joined


def _varies(before: FoldedRow, line: FoldedRow) -> int | None:
    """Return the position of the argument in which an action differs from the ones before it."""
    row, last = line.row, before.rows[-1]
    if not row.kind == last.kind == "action" or _ACTION(row) != _ACTION(last):
        return None
    if row.source.action is not None and "fault" in row.source.action.data:
        return None
    if len(line.rows) > 1 or (len(before.rows) > 1 and before.varies is None):
        return None  # equal ones, which are counted
    arguments = zip(row.arguments, last.arguments, strict=False)
    differing = [at for at, (argument, other) in enumerate(arguments) if argument != other]
    if len(row.arguments) != len(last.arguments) or len(differing) != 1:
        return None
    return differing[0] if before.varies in (None, differing[0]) else None


def without_unlisted(
    lines: Sequence[FoldedRow], numbers: Collection[int]
) -> Iterator[FoldedRow | str]:
    """Yield the lines of the rows with these numbers and, for those between them, what they called."""

    def is_listed(line: FoldedRow) -> bool:
        return any(row.number in numbers for row in line.rows)

    for are_listed, group in groupby(lines, is_listed):
        if are_listed:
            yield from group
            continue
        rows = [row for line in group for row in line.rows]
        for library, run in groupby(rows, lambda row: row.library):
            yield _summary(list(run), library)


def _summary(rows: Sequence[ReportRow], library: str) -> str:
    calls = counted(len(rows), "call" if all(row.kind == "call" for row in rows) else "row")
    if library:
        return f"{library}: {calls}"
    names = Counter(f"{row.peer} {row.operation}" for row in rows)
    texts = [f"{name} (x{times})" if times > 1 else name for name, times in names.items()]
    return f"{calls} left out: {listed(texts, 6)}"
