"""The marks of rows: what each has to do with the data that a failing statement read.

A row is *touched* if it accessed this data, and *linked* if it is connected with such a row: by an ID,
such as that of a message, because the same request, delivery or line of the test made both, or because
it accessed a subject, such as a key, that the request, delivery or line of a touched row accessed, too
(`SubjectKind` says which kinds do so). A row is *refused* if it failed or a fault was applied to it,
or if one of its accesses did not succeed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from .accesses import OrderedAccess
from .model import JournalNumber, Marks, ReportRow, ReportSubject
from .reading import ReadByStatement


def marks_of_rows(
    rows: Sequence[ReportRow],
    accesses: Sequence[OrderedAccess],
    statement: ReadByStatement | None,
    places: Mapping[int, Hashable],
) -> Marks:
    """Return the marks of rows for what a statement read; without a statement, only of those that were
    refused. ``places`` are those of the test that called the application's functions, by the number
    of the row that these made.
    """
    refused = frozenset([
        *(row.number for row in rows if not row.ok or row.faults),
        *(ordered.row.number for ordered in accesses if ordered.access.succeeded is False),
    ])  # fmt: skip
    if statement is None:
        return Marks(refused=refused)
    touched = {ordered.row.number for ordered in accesses if statement.covers(ordered.access)}
    touched.update(statement.rows)
    reached = _Links(rows, accesses, places).reached_from(touched)
    effects = [row for row in rows if row.follows]
    touched.update(row.number for row in effects if row.follows in touched)
    reached.update(row.number for row in effects if row.follows in reached)
    return Marks(
        touched=frozenset(touched),
        linked=frozenset(reached - touched),
        refused=refused,
        writers=frozenset(_writers(accesses, statement)),
        undone=_undone(accesses, statement),
    )


def _writers(accesses: Iterable[OrderedAccess], statement: ReadByStatement) -> Iterator[int]:
    """Yield the numbers of the last rows that wrote the values which a statement read."""
    last: dict[tuple[ReportSubject, str], int] = {}
    for ordered in accesses if statement.has_value else ():
        subject, part = ordered.access.subject, ordered.access.part
        is_effective = ordered.access.writes and ordered.access.succeeded is not False
        has_value = any(
            sought.subject.kind.has_value and sought.covers(ordered.access)
            for sought in statement.sought
        )
        until = statement.read_until(ordered.access)
        is_before = ordered.order < until or (
            ordered.order == until and not ordered.access.returns_value
        )
        if is_effective and has_value and is_before:
            if not part:
                last = {data: number for data, number in last.items()
                        if not subject.includes(data[0])}  # fmt: skip
            last[subject, part] = ordered.row.number
    yield from last.values()


def _undone(accesses: Iterable[OrderedAccess], statement: ReadByStatement) -> JournalNumber:
    """Return the last refused write of what a statement read, unless an effective one followed."""
    refused: dict[tuple[ReportSubject, str], int] = {}
    for ordered in accesses:
        access, until = ordered.access, statement.read_until(ordered.access)
        # Whatever a statement read of a message, a later request may be why there is no other one.
        is_late = access.subject.kind.has_value and 0 < until < ordered.order
        if not access.writes or is_late or not statement.covers(access):
            continue
        if access.succeeded is False:
            refused[access.subject, access.part] = ordered.row.number
            continue
        for subject, part in list(refused):
            if access.subject.includes(subject) and (
                "" in (part, access.part) or part == access.part
            ):
                del refused[subject, part]
    return max(refused.values(), default=0)


class _Links:
    """The connections between rows."""

    def __init__(
        self,
        rows: Sequence[ReportRow],
        accesses: Sequence[OrderedAccess],
        places: Mapping[int, Hashable],
    ) -> None:
        self._rows = {row.number: row for row in rows}
        self._activities = {row.number: self._activity(row, places) for row in rows}
        self._members: defaultdict[Hashable, list[int]] = defaultdict(list)
        self._by_id: defaultdict[Hashable, set[int]] = defaultdict(set)
        self._ids: defaultdict[int, set[Hashable]] = defaultdict(set)
        self._by_subject: defaultdict[ReportSubject, set[tuple[int, bool]]] = defaultdict(set)
        for number, activity in self._activities.items():
            self._members[activity].append(number)
        for row in rows:
            for subject in row.subjects:
                self._add_id(row.number, subject, "")
        for ordered in accesses:
            self._add_id(ordered.row.number, ordered.access.subject, ordered.access.part)
            subject = ordered.access.subject
            if subject.kind.links_accesses and not subject.is_all:
                self._by_subject[subject].add((ordered.row.number, ordered.access.writes))

    def _activity(self, row: ReportRow, places: Mapping[int, Hashable]) -> Hashable:
        """Return what all rows of one request, delivery or line of the test have in common."""
        around: ReportRow | None = row
        while around is not None and not around.surrounds:
            around = self._rows.get(around.cause)
        return places.get(row.number, row.number) if around is None else around.number

    def _add_id(self, number: int, subject: ReportSubject, part: str) -> None:
        data: Hashable = None
        if subject.kind.has_id and subject.name and not subject.is_all:
            data = subject.kind, subject.name  # Whoever receives a message names it by the same id.
        elif part and subject.kind.parts_have_ids:
            data = subject, part
        if data is not None:
            self._by_id[data].add(number)
            self._ids[number].add(data)

    def reached_from(self, touched: Iterable[int]) -> set[int]:
        """Return the numbers of the rows that are connected with others, and of these."""
        reached: set[int] = set()
        touched = list(touched)
        self._spread(touched, reached)
        activities = {self._activities[number] for number in touched if number in self._rows}
        subjects = [subject for subject, accesses in self._by_subject.items()
                if any(self._activities[number] in activities for number, _ in accesses)]  # fmt: skip
        accesses = {access for subject in subjects for access in self._by_subject[subject]}
        # What else a writer of the key did may be why it wrote. A reader changed nothing.
        self._spread([number for number, writes in accesses if writes], reached)
        reached.update(number for number, _ in accesses)
        for number in [*reached]:
            while (number := self._rows[number].cause) in self._rows:
                reached.add(number)
        return reached

    def _spread(self, numbers: Iterable[int], reached: set[int]) -> None:
        """Add rows, and those that are connected with them by ids and activities."""
        waiting = [number for number in numbers if number in self._rows]
        followed: set[Hashable] = set()
        while waiting:
            number = waiting.pop()
            if number not in reached:
                reached.add(number)
                waiting += self._members[self._activities[number]]
                for own_id in self._ids[number] - followed:
                    waiting += self._by_id[own_id]
                followed |= self._ids[number]
