"""A short run is listed whole; a long one has the marked rows and the last ones."""

from __future__ import annotations

from typing import Any

from pytest_fakecloud.reporting.model import Marks, ReportRow
from pytest_fakecloud.reporting.select import LAST, MOST_ROWS, selected

NOTHING = Marks()


def row(number: int, **fields: Any) -> ReportRow:
    return ReportRow(number, 0, "call", "client", "kv", "GET", began=number, **fields)


def run(count: int) -> list[ReportRow]:
    return [row(number) for number in range(1, count + 1)]


def numbers(*kept: int, of: int, last: int = LAST) -> set[int]:
    return {*kept, *range(of - last + 1, of + 1)}


def test_a_run_of_sixty_rows_is_listed_whole() -> None:
    assert selected(run(MOST_ROWS), Marks(frozenset({1}))) == set(range(1, MOST_ROWS + 1))


def test_a_longer_run_has_the_three_kinds_and_the_last_rows() -> None:
    marks = Marks(frozenset({10}), frozenset({20}), frozenset({30}))
    assert selected(run(100), marks) == numbers(10, 20, 30, of=100)


def test_a_longer_run_without_touched_rows_has_more_of_the_last_ones() -> None:
    assert selected(run(100), Marks(refused=frozenset({9}))) == numbers(9, of=100, last=MOST_ROWS)


def test_refused_rows_are_all_listed_and_of_the_other_kinds_the_newest() -> None:
    every = frozenset(range(51, 151))
    assert selected(run(400), Marks(frozenset({60}), refused=every)) == numbers(*every, of=400)
    kept = numbers(*range(91, 151), of=400)
    assert selected(run(400), Marks(every)) == kept
    assert selected(run(400), Marks(frozenset({400}), every)) == kept


def test_a_test_that_never_stops_does_not_fill_the_terminal() -> None:
    every = frozenset(range(1, 1_001))
    assert len(selected(run(1_000), Marks(frozenset({1}), refused=every))) == 101


def test_the_evidence_of_findings_is_listed() -> None:
    assert selected(run(100), Marks(frozenset({5})), [42]) == numbers(5, 42, of=100)


def test_rows_around_a_listed_row_and_events_of_listed_calls_are_listed() -> None:
    rows = run(100)
    rows[39] = row(40, parent=30)
    rows[29] = row(30, parent=20)
    rows[40] = row(41, first_cause=40)
    assert selected(rows, Marks(frozenset({40}))) == numbers(20, 30, 40, 41, of=100)


def test_calls_of_a_library_are_not_the_applications_own() -> None:
    rows = [*run(MOST_ROWS), *(row(number, library="rq") for number in range(101, 201))]
    rows[70] = row(171, library="rq", ok=False)
    assert selected(rows, NOTHING) == {*range(1, MOST_ROWS + 1), 171}
    assert selected(rows, Marks(frozenset({180}))) == {*range(1, MOST_ROWS + 1), 171, 180}
