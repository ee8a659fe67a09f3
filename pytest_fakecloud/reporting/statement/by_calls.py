"""The data that calls read: those made from some lines of code, and earlier equal ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..accesses import DataAccess, JournalNumber, Sought
from ..model import ReportRow
from ..observed import ObservedTest
from .failed import CodeGroup
from .read_data import ReadByRows


def calls_from(group: CodeGroup, test: ObservedTest) -> tuple[int, ...]:
    """Return the numbers of the calls and requests that were made from lines or functions of a group,
    and of all rows that are nested in them.
    """
    places = {number: test.places[number] for number in test.by_number if number in test.places}
    # Other statements may call the same functions, so the lines of the group itself come first.
    numbers = {number for number, stack in places.items() if any(map(group.spans_have, stack))}
    if not numbers:
        # What a delivery made is not of the statement, also if a function that it calls received it.
        deliveries = {row.number for row in test.rows if row.kind == "delivery"}
        numbers = {number for number, stack in places.items() if any(map(group.has, stack))
                   and test.by_number[number].parent not in deliveries}  # fmt: skip
    caused = (row.number for row in test.rows if row.parent in numbers)
    return tuple(sorted(numbers.union(caused)))


def read_by_rows(numbers: tuple[int, ...], test: ObservedTest) -> ReadByRows:
    """Return what calls read, or wrote if they read nothing, and what earlier equal ones read."""
    accesses = [ordered for ordered in test.accesses if ordered.row.number in numbers]
    reads = [ordered.access for ordered in accesses if ordered.access.reads]
    data = list(dict.fromkeys(sought_of(reads or [ordered.access for ordered in accesses])))
    earlier = [read for read in dict.fromkeys(_read_earlier(numbers, test)) if read not in data]
    until: dict[Sought, JournalNumber] = {}
    for sought in data + earlier:
        covered = [ordered for ordered in accesses if sought.covers(ordered.access)]
        last = [ordered.order for ordered in covered if ordered.access.reads]
        until[sought] = max(last or [ordered.order for ordered in covered], default=0)
    return ReadByRows(
        sought=(*data, *earlier), row_numbers=numbers, until=until, earlier=tuple(earlier),
        is_read=bool(reads),
    )  # fmt: skip


def _read_earlier(numbers: Sequence[int], test: ObservedTest) -> Iterator[Sought]:
    """Yield what the last equal call before each call read: of two equal queries, the first of which
    found a vector, this vector, because the second may have lost it.
    """
    others = [ordered for ordered in test.accesses
              if not ordered.access.writes and ordered.row.number not in numbers]  # fmt: skip
    for number in numbers:
        if (request := _request_of(test.by_number[number])) is None:
            continue
        earlier = [own for own in others if own.order < number and _request_of(own.row) == request]
        newest = max((ordered.row.number for ordered in earlier), default=0)
        yield from sought_of(ordered.access for ordered in earlier if ordered.row.number == newest)


def _request_of(row: ReportRow) -> object:
    """Return what is equal in calls that ask the same; None for any other row."""
    call = row.source.call
    return None if call is None else (call.fake, call.target, call.request_body)


def sought_of(accesses: Iterable[DataAccess]) -> Iterator[Sought]:
    """Yield the data of accesses: of a kind without a value the whole subject, of others the part."""
    for access in accesses:
        part = access.part if access.subject.kind.has_value else ""
        yield Sought(access.subject, part, access.pattern)
