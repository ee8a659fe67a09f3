"""The marks of rows: what each has to do with the data that a failing statement read.

A row is *touched* if it accessed this data, and *linked* if it is connected with such a row: by an ID,
such as that of a message, because the same request, delivery or line of the test made both, or because
it accessed a subject, such as a key, that the request, delivery or line of a touched row accessed, too
(`SubjectKind` says which kinds do so). A row is *refused* if it failed or a fault was applied to it,
or if one of its accesses did not succeed: a write that changed nothing, or a read that found nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from .model import JournalNumber, Marks, OrderedAccess, ReportRow, ReportSubject
from .read_data import ReadData


def marks_of_rows(
    rows: Sequence[ReportRow],
    accesses: Sequence[OrderedAccess],
    read_data: ReadData | None,
    lines_of_test: Mapping[int, Hashable],
) -> Marks:
    """Return the marks of rows for what the failing statement read; without it, only of those that were
    refused. ``lines_of_test`` are the lines of the test that called the application's functions which
    made a row, by its number.
    """
    refused = frozenset([
        *(row.number for row in rows if not row.ok or row.faults),
        *(ordered.row.number for ordered in accesses if ordered.access.succeeded is False),
    ])  # fmt: skip
    if read_data is None:
        return Marks(refused=refused)
    touched = {ordered.row.number for ordered in accesses if read_data.covers(ordered.access)}
    touched.update(read_data.rows)
    reached = _Links(rows, accesses, lines_of_test).reached_from(touched)
    effects = [row for row in rows if row.follows]
    touched.update(row.number for row in effects if row.follows in touched)
    reached.update(row.number for row in effects if row.follows in reached)
    return Marks(
        touched=frozenset(touched), linked=frozenset(reached - touched), refused=refused,
        writers=frozenset(_writers(accesses, read_data)), undone=_undone(accesses, read_data),
    )  # fmt: skip


def _writers(accesses: Iterable[OrderedAccess], read_data: ReadData) -> Iterator[int]:
    """Yield the numbers of the last rows that wrote the values which a statement read."""
    last: dict[tuple[ReportSubject, str], int] = {}
    for ordered in accesses if read_data.read_values else ():
        subject, part = ordered.access.subject, ordered.access.part
        is_effective = ordered.access.writes and ordered.access.succeeded is not False
        is_read = any(sought.subject.kind.has_value and sought.covers(ordered.access)
                      for sought in read_data.sought)  # fmt: skip
        until = read_data.read_until(ordered.access)
        is_before = ordered.order < until or (
            ordered.order == until and not ordered.access.returns_value
        )
        if is_effective and is_read and is_before:
            if not part:
                last = {data: number for data, number in last.items()
                        if not subject.includes(data[0])}  # fmt: skip
            last[subject, part] = ordered.row.number
    yield from last.values()


def _undone(accesses: Iterable[OrderedAccess], read_data: ReadData) -> JournalNumber:
    """Return the last refused write of what a statement read, unless an effective one followed."""
    refused: dict[tuple[ReportSubject, str], int] = {}
    for ordered in accesses:
        access, until = ordered.access, read_data.read_until(ordered.access)
        # Whatever a statement read of a message, a later request may be why there is no other one.
        is_late = access.subject.kind.has_value and 0 < until < ordered.order
        if not access.writes or is_late or not read_data.covers(access):
            continue
        if access.succeeded is False:
            refused[access.subject, access.part] = ordered.row.number
            continue
        for subject, part in list(refused):
            is_same_part = "" in (part, access.part) or part == access.part
            if is_same_part and access.subject.includes(subject):
                del refused[subject, part]
    return max(refused.values(), default=0)


class _Links:
    """The bonds of rows: the request, delivery or line of the test that made a row, and the ids that it
    has. Rows with a bond in common are linked.
    """

    def __init__(
        self,
        rows: Sequence[ReportRow],
        accesses: Sequence[OrderedAccess],
        lines_of_test: Mapping[int, Hashable],
    ) -> None:
        self._rows = {row.number: row for row in rows}
        self._activities = {row.number: self._activity(row, lines_of_test) for row in rows}
        self._bonds = {number: {activity} for number, activity in self._activities.items()}
        for row in rows:
            for subject in row.subjects:
                self._add_id(row.number, subject, "")
        self._by_subject: defaultdict[ReportSubject, set[tuple[int, bool]]] = defaultdict(set)
        for ordered in accesses:
            number, subject = ordered.row.number, ordered.access.subject
            self._add_id(number, subject, ordered.access.part)
            if subject.kind.links_accesses and not subject.is_all:
                self._by_subject[subject].add((number, ordered.access.writes))
        self._with_bond: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, bonds in self._bonds.items():
            for bond in bonds:
                self._with_bond[bond].append(number)

    def _activity(self, row: ReportRow, lines_of_test: Mapping[int, Hashable]) -> Hashable:
        """Return what all rows of one request, delivery or line of the test have in common."""
        around: ReportRow | None = row
        while around is not None and not around.rules.surrounds:
            around = self._rows.get(around.cause)
        return lines_of_test.get(row.number, row.number) if around is None else around.number

    def _add_id(self, number: int, subject: ReportSubject, part: str) -> None:
        if subject.kind.has_id and subject.name and not subject.is_all:
            # Whoever receives a message names it by the same id.
            self._bonds[number].add((subject.kind, subject.name))
        elif part and subject.kind.parts_have_ids:
            self._bonds[number].add((subject, part))

    def reached_from(self, touched: Iterable[int]) -> set[int]:
        """Return the numbers of touched rows, of all that are linked with them, and of those around."""
        touched = [number for number in touched if number in self._rows]
        activities = {self._activities[number] for number in touched}
        accesses: set[tuple[int, bool]] = set()
        for same_subject in self._by_subject.values():
            if any(self._activities[number] in activities for number, _ in same_subject):
                accesses |= same_subject
        # What else a writer of the key did may be why it wrote. A reader changed nothing.
        writers = [number for number, writes in accesses if writes]
        reached = self._with_bonds([*touched, *writers]) | {number for number, _ in accesses}
        for number in [*reached]:
            while (number := self._rows[number].cause) in self._rows:
                reached.add(number)
        return reached

    def _with_bonds(self, numbers: Sequence[int]) -> set[int]:
        """Return rows with those that have a bond in common with them, or with one of these."""
        reached, followed, waiting = set[int](), set[Hashable](), [*numbers]
        while waiting:
            number = waiting.pop()
            reached.add(number)
            for bond in self._bonds[number] - followed:
                followed.add(bond)
                waiting += self._with_bond[bond]
        return reached
