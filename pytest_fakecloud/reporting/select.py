"""The rows that a report lists: all of a short run, and of a long one those that tell something.

Rows are selected by their data and marks, never by their wording.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from .model import Marks, ReportRow

MOST_ROWS = 60
"""Maximum number of rows of the application's own that are all listed."""
LAST = 10
"""Number of rows at the end of a longer run that are always listed."""
_OF_KIND = 60
"""Maximum number of touched rows, and of linked ones, of a longer run: the newest."""
_REFUSED = 100
"""Maximum number of refused rows of a longer run: the newest. A test may never stop asking."""
_GAP = 3
"""Maximum number of rows between two others that are listed, because they need no more room than a line
that says how many are left out.
"""


def selected(
    rows: Sequence[ReportRow], marks: Marks, evidence: Collection[int] = ()
) -> frozenset[int]:
    """Return the numbers of the rows to list, in any run with the ``evidence`` of findings.

    The calls that a library makes for its own purposes, such as those of a task queue, are listed
    only if they failed or accessed what the failing statement read.
    """
    numbers = [row.number for row in rows if not row.library and not row.follows]
    of_libraries = [
        row.number for row in rows
        if row.library and (not row.ok or row.faults or row.number in marks.touched)
    ]  # fmt: skip
    listed = {*evidence, *of_libraries}
    if len(numbers) <= MOST_ROWS:
        listed.update(numbers)
    else:
        # Without a touched row, nothing tells the rows apart that were not refused.
        listed.update(numbers[-LAST:] if marks.touched else numbers[-MOST_ROWS:])
        listed.update(_newest(numbers, marks.refused, _REFUSED))
        listed.update(_newest(numbers, marks.touched, _OF_KIND))
        listed.update(_newest(numbers, marks.linked, _OF_KIND))
        listed.update([*_short_gaps(numbers, listed)])
    return frozenset(_with_causes(rows, listed))


def _newest(numbers: Sequence[int], kind: Collection[int], most: int) -> list[int]:
    return [number for number in numbers if number in kind][-most:]


def _short_gaps(numbers: Sequence[int], listed: Collection[int]) -> Iterator[int]:
    gap: list[int] = []
    for number in numbers:
        if number not in listed:
            gap.append(number)
            continue
        yield from gap if len(gap) <= _GAP else ()
        gap = []


def _with_causes(rows: Iterable[ReportRow], listed: set[int]) -> set[int]:
    """Return numbers with those of the requests and deliveries around their rows, and of the events that
    their calls caused.
    """
    by_number = {row.number: row for row in rows}
    complete: set[int] = set()
    for number in listed:
        while number in by_number and number not in complete:
            complete.add(number)
            number = by_number[number].cause
    return complete | {row.number for row in by_number.values() if row.follows in complete}
