"""The findings that a report shows, and the rows that its text lists.

Both are selected by their data and marks, never by their wording.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from .model import Finding, Marks, ReportRow
from .observed import ObservedTest
from .statement.read_data import ReadData

MOST_FINDINGS = 6
"""Maximum number of findings in one report, without that of the last pass."""
MOST_ROWS = 60
"""Maximum number of rows of the application's own that are all listed."""
LAST = 10
"""Number of rows at the end of a longer run that are always listed."""
_MARKED = 60
"""Maximum number of touched rows, and of linked ones, of a longer run: the newest."""
_REFUSED = 100
"""Maximum number of refused rows of a longer run: the newest. A test may never stop asking."""


def concerning(
    test: ObservedTest, read_data: ReadData, marks: Marks, findings: Iterable[Finding]
) -> list[Finding]:
    """Return the findings about the data that a statement read, about the rows that are connected with
    it and what these accessed, and about the whole test. First come those whose first row the statement
    read, or wrote what it read, and then those of other touched rows.
    """
    connected = marks.touched | marks.linked
    # And what the rows in a delivery to the same URL accessed: one may have lacked an item.
    addresses = {_address(row) for row in test.rows if row.number in connected} - {""}
    accessed = {
        ordered.access.subject for ordered in test.accesses
        if ordered.row.number in connected
        or (ordered.row.parent and _address(test.by_number[ordered.row.parent]) in addresses)
    }  # fmt: skip

    def concerns(finding: Finding) -> bool:
        return (
            not connected  # Nothing is known that the others could be told from.
            or not finding.subjects
            or not accessed.isdisjoint(finding.subjects)
            or any(sought.has(own) for sought in read_data.sought for own in finding.subjects)
            or not connected.isdisjoint(finding.row_numbers)
        )

    read_rows = marks.writers.union(read_data.row_numbers)

    def order(finding: Finding) -> tuple[bool, bool, bool]:
        decisive = finding.row_numbers[:1]
        is_other = read_rows.isdisjoint(decisive)
        return is_other, marks.touched.isdisjoint(decisive), not finding.no_answer_shows_it

    return sorted(filter(concerns, findings), key=order)


def _address(row: ReportRow) -> str:
    """Return the URL of a delivery, or method and path of a request; empty for other rows."""
    if not row.rules.surrounds:
        return ""
    return row.address if row.kind == "delivery" else row.operation


def selected(
    rows: Sequence[ReportRow], marks: Marks, evidence: Collection[int] = ()
) -> frozenset[int]:
    """Return the numbers of the rows that a text lists, always those in ``evidence``: of findings.

    The calls that a library makes for its own purposes, such as those of a task queue, are listed
    only if they failed or accessed what the failing statement read.
    """
    numbers = [row.number for row in rows if not row.library and not row.first_cause]
    of_libraries = [
        row.number for row in rows
        if row.library and (not row.ok or row.faults or row.number in marks.touched)
    ]  # fmt: skip
    listed = {*evidence, *of_libraries}
    if len(numbers) <= MOST_ROWS:
        listed.update(numbers)
    else:
        # Without a touched row, nothing tells the rows apart that were successful.
        listed.update(numbers[-LAST:] if marks.touched else numbers[-MOST_ROWS:])
        refused = marks.refused | marks.partly_refused
        most_of = ((marks.touched, _MARKED), (marks.linked, _MARKED), (refused, _REFUSED))
        for with_mark, most in most_of:
            listed.update([number for number in numbers if number in with_mark][-most:])
    return frozenset(_with_surrounding(rows, listed))


def _with_surrounding(rows: Iterable[ReportRow], listed: set[int]) -> set[int]:
    """Return numbers with those of the requests and deliveries around their rows, and of the events that
    their calls caused.
    """
    by_number = {row.number: row for row in rows}
    complete: set[int] = set()
    for number in listed:
        while number in by_number and number not in complete:
            complete.add(number)
            number = by_number[number].parent
    return complete | {row.number for row in by_number.values() if row.first_cause in complete}
