"""The rows of a report in groups, such as a call with its events, or a row with its repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter

from ...core.errors import counted, listed
from ..model import MaskedEvent, ReportRow

_SAME = attrgetter(
    "kind", "actor", "peer", "operation", "status", "outcome", "faults", "where", "same"
)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """``rows`` that repeat each other, of which the first is shown, and the ``effects`` of that row."""

    rows: tuple[ReportRow, ...]
    effects: tuple[MaskedEvent, ...] = ()

    @property
    def row(self) -> ReportRow:
        return self.rows[0]


def merged(rows: Sequence[ReportRow], apart: Collection[int]) -> list[RowGroup]:
    """Return a group for each row; an event is in the group of the call or the event that caused it.
    The rows with the numbers ``apart`` have groups of their own.
    """
    groups: list[RowGroup] = []
    positions: dict[int, int] = {}
    for row in rows:
        at = positions.get(row.first_cause)
        event = row.source.event
        if at is not None and row.number not in apart and event is not None:
            groups[at] = replace(groups[at], effects=(*groups[at].effects, event))
            continue
        positions[row.number] = len(groups)
        groups.append(RowGroup((row,)))
    return groups


def folded(unfolded: Sequence[RowGroup]) -> list[RowGroup]:
    """Return the groups with repetitions folded. A row is folded together with its nested rows.

    Deliveries of the same message are folded although ``attempt`` differs.
    """
    blocks: list[list[RowGroup]] = []
    for group in unfolded:
        if blocks and group.row.depth > blocks[-1][0].row.depth:
            blocks[-1].append(group)
        else:
            blocks.append([group])
    blocks = [[block[0], *folded(block[1:])] for block in blocks]
    groups: list[RowGroup] = []
    for _, equal in groupby(blocks, _key):
        equals = list(equal)
        if len(equals) < equals[0][0].row.rules.folds_from:
            groups += chain(*equals)
        else:
            groups += [replace(same[0], rows=tuple(row for group in same for row in group.rows))
                       for same in zip(*equals, strict=True)]  # fmt: skip
    return groups


def _key(block: Sequence[RowGroup]) -> list[tuple[object, ...]]:
    """Return what is equal in blocks that can be folded."""
    return [
        (_SAME(group.row), group.row.depth - block[0].row.depth,
         repr([event.data for event in group.effects]), len(group.rows))
        for group in block
    ]  # fmt: skip


def without_unlisted(
    groups: Sequence[RowGroup], numbers: Collection[int]
) -> Iterator[RowGroup | str]:
    """Yield the groups of the rows with these numbers and, for those between them, what they called."""

    def is_listed(group: RowGroup) -> bool:
        return any(row.number in numbers for row in group.rows)

    for are_listed, neighbours in groupby(groups, is_listed):
        if are_listed:
            yield from neighbours
            continue
        rows = [row for group in neighbours for row in group.rows]
        for library, run in groupby(rows, lambda row: row.library):
            yield _summary(list(run), library)


def _summary(rows: Sequence[ReportRow], library: str) -> str:
    calls = counted(len(rows), "call" if all(row.kind == "call" for row in rows) else "row")
    if library:
        return f"{library}: {calls}"
    names = Counter(f"{row.peer} {row.operation}" for row in rows)
    texts = [f"{name} (x{times})" if times > 1 else name for name, times in names.items()]
    return f"{calls} left out: {listed(texts, 6)}"
