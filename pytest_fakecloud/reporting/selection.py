"""The rows that a text shows: repetitions are folded, events merged, and the rest is left out.

Rows are selected by their data and never by their wording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from ..core.calls import Event
from ..core.errors import counted, listed
from .model import ReportRow, ValueHistory

MOST_LINES = 60
"""Maximum number of lines of rows that are all shown."""
NEWEST = 30
"""Number of lines at the end that are always shown, and of earlier ones with errors or faults."""
_SAME = attrgetter(
    "kind", "actor", "peer", "operation", "status", "outcome", "faults", "where", "same"
)


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """``rows`` that repeat each other, of which the first is shown, and the ``effects`` of that row."""

    rows: tuple[ReportRow, ...]
    effects: tuple[Event, ...] = ()
    summary: str = ""
    """What stands for all of the rows, if they do not concern the history."""

    @property
    def row(self) -> ReportRow:
        return self.rows[0]

    def __len__(self) -> int:
        return len(self.rows) + len(self.effects)


def merged(every: Sequence[ReportRow], marked: Collection[int]) -> list[FoldedRow]:
    """Return a line for each row; an event is part of the line of the call that caused it.

    A rebalance is part of the line of its join or leave. Marked rows have lines of their own.
    """
    lines: list[FoldedRow] = []
    place: dict[int, int] = {}
    for row in every:
        at = place.get(row.follows)
        if at is None and lines and _results_from(row, lines[-1].row):
            at = len(lines) - 1
        if at is not None and row.number not in marked and isinstance(row.entry, Event):
            lines[at] = replace(lines[at], effects=(*lines[at].effects, row.entry))
            continue
        place[row.number] = len(lines)
        lines.append(FoldedRow((row,)))
    return lines


def _results_from(row: ReportRow, before: ReportRow) -> bool:
    if not isinstance(row.entry, Event) or not isinstance(before.entry, Event):
        return False
    reason, data = row.entry.data.get("cause") or (), before.entry.data
    return (
        row.operation == "rebalance"
        and before.operation in ("join", "leave", "expire")
        and tuple(reason) == (before.operation, data.get("instance"))
        and (row.peer, row.entry.data.get("group")) == (before.peer, data.get("group"))
    )


def folded(every: Sequence[FoldedRow]) -> list[FoldedRow]:
    """Return the lines with repetitions folded. A row is folded together with its nested rows.

    Attempts of the same message are folded even if their attempt numbers differ.
    """
    blocks: list[list[FoldedRow]] = []
    for line in every:
        if blocks and line.row.depth > blocks[-1][0].row.depth:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    blocks = [[block[0], *folded(block[1:])] for block in blocks]
    return [
        replace(lines[0], rows=tuple(row for line in lines for row in line.rows))
        for _, group in groupby(blocks, _key)
        for lines in zip(*group, strict=True)
    ]


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


FEW = 60
"""Maximum number of lines of the application's own rows that are all shown."""
_RUN = 4
"""Minimum number of consecutive rows that are summarised."""


def touched_rows(history: ValueHistory) -> set[int]:
    """Return the numbers of the rows that a history mentions, of the requests that made them, and of
    the rows that accessed the same data.
    """
    causes = {row.cause for row in history.rows}
    return {*history.calls, *history.touched, *causes, *(gap.row for gap in history.gaps)}


def without_untouched(every: Sequence[FoldedRow], touched: Collection[int]) -> list[FoldedRow]:
    """Return the lines with one for each run of calls that succeeded and that no history or finding
    mentions. A library's calls always have one, those of the application only in a long run.
    """
    blocks: list[list[FoldedRow]] = []
    for line in every:
        if blocks and line.row.depth:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    lines: list[FoldedRow] = []
    for library, group in groupby(blocks, partial(_untouched_by, touched, _is_long(every))):
        run = [line for block in group for line in block]
        rows = tuple(row for line in run for row in line.rows)
        if library is None or len(rows) < _RUN:
            lines += run
            continue
        calls = counted(len(rows), "call" if all(row.kind == "call" for row in rows) else "row")
        if library:
            lines.append(FoldedRow(rows, summary=f"{library}: {calls}"))
            continue
        names = Counter(f"{row.peer} {row.operation}" for row in rows)
        texts = [f"{name} (x{times})" if times > 1 else name for name, times in names.items()]
        summary = f"{calls} that the history does not touch: {listed(texts, 6)}"
        lines.append(FoldedRow(rows, summary=summary))
    return lines


def _is_long(every: Sequence[FoldedRow]) -> bool:
    """Return whether the application's own rows have more than ``FEW`` lines."""
    return sum(any(not row.library for row in line.rows) for line in every) > FEW


def _untouched_by(
    touched: Collection[int], is_long: bool, block: Sequence[FoldedRow]
) -> str | None:
    """Return the library that made the calls of a block, or an empty string for the application; None
    if the block is shown.
    """
    rows = [row for line in block for row in line.rows]
    if any(row.number in touched or not row.ok or row.faults for row in rows):
        return None
    libraries = {row.library for row in rows}
    library = libraries.pop() if len(libraries) == 1 else ""
    return library if library or is_long else None


def shortened_rows(
    every: Sequence[FoldedRow], marked: Collection[int]
) -> Iterator[FoldedRow | int]:
    """Yield the lines to show and, between them, the number of rows that are left out.

    The last lines are shown, and of those before them all with findings, and the last ones with
    errors or faults. Rows of the application are left out only in a long run.
    """
    shown = _shown_places(every, marked)
    left_out = 0
    for at, line in enumerate(every):
        if at not in shown:
            left_out += len(line)
            continue
        if left_out:
            yield left_out
            left_out = 0
        yield line


def _shown_places(every: Sequence[FoldedRow], marked: Collection[int]) -> set[int]:
    if len(every) <= MOST_LINES:
        return set(range(len(every)))
    start = len(every) - NEWEST
    rows = [(at, row) for at, line in enumerate(every[:start]) for row in line.rows]
    with_findings = {at for at, row in rows if row.number in marked}
    wrong = list(dict.fromkeys(at for at, row in rows if not row.ok or row.faults))
    own = {at for at, row in rows if not row.library} if not _is_long(every) else set()
    return {*own, *with_findings, *wrong[-NEWEST:], *range(start, len(every))}
