"""The marks of rows: what each has to do with the data that a failing statement read.

Each function has one rule. The examples are rows of the test in ``docs/contributing/map.md``: row 2 sets
``stock``, the delivery 8 decrements it in row 6 and pushes to ``sold`` in row 7, row 9 reads ``sold``,
row 10 cannot set ``stock``, and the statement read ``stock`` in row 11.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping

from .accesses import DataAccess, JournalNumber, ReportSubject
from .model import Marks, OrderedAccess, ReportRow
from .observed import ObservedTest
from .statement.read_data import ReadData


def marks_of_rows(test: ObservedTest, read_data: ReadData | None) -> Marks:
    """Return the marks of rows for what the failing statement read; without it, only of those that were
    refused.
    """
    rows, accesses = test.rows, test.accesses
    refused, partly_refused = _refused(test)
    if read_data is None:
        return Marks(refused=refused, partly_refused=partly_refused)
    touched = {ordered.row.number for ordered in accesses if read_data.covers(ordered.access)}
    touched.update(read_data.row_numbers)
    linked = _Links(test).linked_with(touched)
    touched = _with_events(touched, rows)
    writes = list(_writes_of_values(accesses, read_data))
    last_writers = {own[-1].row.number for own in writes}
    return Marks(
        touched=frozenset(touched), linked=frozenset(_with_events(linked, rows) - touched),
        refused=refused, partly_refused=partly_refused,
        writers=frozenset(write.row.number for own in writes for write in own),
        last_writer=last_writers.pop() if len(last_writers) == 1 and not read_data.unwritten else 0,
        refused_write=_refused_write(accesses, read_data),
    )  # fmt: skip


def _refused(test: ObservedTest) -> tuple[frozenset[int], frozenset[int]]:
    """Return the numbers of the rows that failed, to which a fault was applied, or of which each command
    was refused, as of row 10, and those of which only some commands were. An error that the client
    expects is an answer.
    """
    commands: defaultdict[int, defaultdict[int, bool]] = defaultdict(lambda: defaultdict(bool))
    for row, access in test.accesses:
        commands[row.number][access.command] |= access.is_refused
    refused, partly = set[int](), set[int]()
    for row in test.rows:
        are_refused = commands[row.number].values()
        if row.faults or (not row.ok and not row.expects_error):
            refused.add(row.number)
        elif any(are_refused) and not row.expects_error:
            (refused if all(are_refused) else partly).add(row.number)
    return frozenset(refused), frozenset(partly)


def _with_events(numbers: set[int], rows: Iterable[ReportRow]) -> set[int]:
    """Return rows with the events that they caused: with a commit, the event that has its offsets."""
    return numbers | {row.number for row in rows if row.first_cause in numbers}


# -- writes of what was read -----------------------------------------------------------------------


def _writes_of_values(
    accesses: Iterable[OrderedAccess], read_data: ReadData
) -> Iterable[list[OrderedAccess]]:
    """Return the writes that led to each value which a statement read: of rows 2, 6 and 12, which wrote
    ``stock``, 2 and 6, because 6 only changed the value that 2 had set. Fields have values of their own.
    """
    writes: dict[tuple[ReportSubject, str], list[OrderedAccess]] = {}
    for ordered in accesses if read_data.read_values else ():
        access = ordered.access
        if access.is_effective_write and _writes_read_value(ordered, read_data):
            replaces = not (access.part or access.adds)
            if replaces or _had_expired(writes.get((access.subject, ""), ()), ordered):
                writes = {(subject, part): own for (subject, part), own in writes.items()
                          if not access.subject.includes(subject)}  # fmt: skip
            before = writes.get((access.subject, access.part), ())
            earlier = before if access.adds and not _had_expired(before, ordered) else ()
            writes[access.subject, access.part] = [*earlier, ordered]
    return writes.values()


def _had_expired(writes: Iterable[OrderedAccess], later: OrderedAccess) -> bool:
    ends = [end for write in writes if (end := write.access.expires_us) is not None]
    return bool(ends) and ends[-1] <= later.row.at_us


def _writes_read_value(ordered: OrderedAccess, read_data: ReadData) -> bool:
    """Return whether a write was before the last read of its data: that of row 6, not that of row 12.
    The read itself may have written, as GETDEL does, but then it returned the value before.
    """
    access, until = ordered.access, read_data.read_until(ordered.access)
    if ordered.order > until or (ordered.order == until and access.returns_value):
        return False
    return any(
        sought.subject.kind.has_value and sought.covers(access) for sought in read_data.sought
    )


def _refused_write(accesses: Iterable[OrderedAccess], read_data: ReadData) -> JournalNumber:
    """Return the last refused write of what a statement read, unless an effective one followed: 10.
    If a row between 10 and 11 had set ``stock``, this would be 0.
    """
    last: dict[tuple[ReportSubject, str], int] = {}
    for ordered in accesses:
        access, until = ordered.access, read_data.read_until(ordered.access)
        # Whatever a statement read of a message, a later request may be why there is no other one.
        is_late = access.subject.kind.has_value and 0 < until < ordered.order
        if not access.writes or is_late or not read_data.covers(access):
            continue
        if access.succeeded is False:
            last[access.subject, access.part] = ordered.row.number
        else:
            last = {(subject, part): number for (subject, part), number in last.items()
                    if not _overwrites(access, subject, part)}  # fmt: skip
    return max(last.values(), default=0)


def _overwrites(access: DataAccess, subject: ReportSubject, part: str) -> bool:
    """Return whether a write changes a part of a subject: one of the field ``a`` changes ``a`` and the
    whole hash, and one of the hash all its fields.
    """
    return access.subject.includes(subject) and (part == access.part or "" in (part, access.part))


# -- links -----------------------------------------------------------------------------------------


class _Links:
    """The rows with what connects them, by which those are found that are linked with touched ones."""

    def __init__(self, test: ObservedTest) -> None:
        self._rows = test.by_number
        # The line of the test that called the application's function; none if it made the call itself.
        lines = {number: stack[-1] for number, stack in test.places.items() if len(stack) > 1}
        self._accesses = [
            ordered for ordered in test.accesses
            if ordered.access.subject.kind.links_accesses and not ordered.access.subject.is_all
        ]  # fmt: skip
        self._activities = {row.number: self._activity(row, lines) for row in test.rows}
        self._bonds = {
            row.number: {self._activities[row.number], *_ids_of(row)} for row in test.rows
        }
        self._with_bond: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, bonds in self._bonds.items():
            for bond in bonds:
                self._with_bond[bond].append(number)

    def linked_with(self, touched: Iterable[int]) -> set[int]:
        """Return the numbers of touched rows, and of all that are linked with them: 4 and 7 to 9."""
        touched = [number for number in touched if number in self._rows]
        sharing = self._sharing_data(touched)
        # What else a writer of the key did may be why it wrote. A reader changed nothing.
        writers = [ordered.row.number for ordered in sharing if ordered.access.writes]
        linked = self._with_bonds([*touched, *writers])
        return self._with_parents(linked.union(ordered.row.number for ordered in sharing))

    def _activity(self, row: ReportRow, places: Mapping[int, Hashable]) -> Hashable:
        """Return the request or delivery that a row is or is in: 8 for rows 6 to 8. Without one, return
        the line of the test that called the function which made the row, or else the row: 2 for row 2.
        """
        around: ReportRow | None = row
        while around is not None and not around.rules.surrounds:
            around = self._rows.get(around.parent)
        return places.get(row.number, row.number) if around is None else around.number

    def _sharing_data(self, touched: Iterable[int]) -> list[OrderedAccess]:
        """Return all accesses to subjects that the activity of a touched row accessed: those to
        ``stock``, and those of rows 7 and 9 to ``sold``, because row 7 is in the delivery of row 6.
        """
        activities = {self._activities[number] for number in touched}
        subjects = {
            ordered.access.subject for ordered in self._accesses
            if self._activities[ordered.row.number] in activities
        }  # fmt: skip
        return [ordered for ordered in self._accesses if ordered.access.subject in subjects]

    def _with_bonds(self, numbers: Iterable[int]) -> set[int]:
        """Return rows with those that have a bond in common with them, or with one of these: with row 6,
        the delivery 8 because of the activity, and then row 4, which named its message.
        """
        reached, followed, waiting = set[int](), set[Hashable](), [*numbers]
        while waiting:
            number = waiting.pop()
            reached.add(number)
            for bond in self._bonds[number] - followed:
                followed.add(bond)
                waiting += self._with_bond[bond]
        return reached

    def _with_parents(self, numbers: Iterable[int]) -> set[int]:
        """Return rows with those in which they are nested: with row 6, the delivery 8."""
        complete = set(numbers)
        for number in numbers:
            while (number := self._rows[number].parent) in self._rows:
                complete.add(number)
        return complete


def _ids_of(row: ReportRow) -> Iterator[Hashable]:
    """Yield the ids that a row has: of rows 4 and 8, that of the message; of one that read the vector
    ``a`` of a namespace, the vector.
    """
    for access in row.accesses:
        subject = access.subject
        if subject.kind.has_id and subject.name and not subject.is_all:
            # Whoever receives a message names it by the same id.
            yield subject.kind, subject.name
        elif access.part and subject.kind.parts_have_ids:
            yield subject, access.part
