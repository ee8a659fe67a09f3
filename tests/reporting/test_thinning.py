"""Which rows a report shows: the newest, and of the others those that matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_fakecloud.reporting.rows import Row
from pytest_fakecloud.reporting.thinning import (
    KEPT,
    NEWEST,
    folded,
    kept,
    merged,
    without_held_runs,
)


def row(number: int, what: str = "GET k", **more: Any) -> Row:
    given = {"kind": "kv_server command GET", "began": number, **more}
    return replace(Row(number, 0, "client", "kv_server", what, "1", True), **given)


def numbers(every: list[Row]) -> list[int]:
    return [one.number for one in every]


# -- what is left out ------------------------------------------------------------------------------


def test_up_to_sixty_rows_are_all_shown() -> None:
    every = [row(number) for number in range(1, KEPT + 1)]
    assert kept(every, ()) == set(range(1, KEPT + 1))
    assert len(kept([*every, row(KEPT + 1)], ())) == KEPT


@pytest.mark.parametrize(
    "more",
    [
        {"fault": "delay 1 s"},
        {"ok": False},
        {"note": "why"},
        {"kind": "kv_server command SET"},
    ],
    ids=["fault", "failure", "note", "first of its kind"],
)
def test_of_older_rows_those_that_say_something_stay(more: dict[str, Any]) -> None:
    every = [row(number) for number in range(1, 201)]
    every[50] = replace(every[50], **more)
    shown = kept(every, ())
    assert len(shown) == KEPT
    assert shown == {1, 51, *range(201 - NEWEST - (KEPT - NEWEST - 2), 201)}


def test_the_last_of_a_kind_stays_as_well() -> None:
    every = [row(number) for number in range(1, 201)]
    for number in (20, 40, 60):
        every[number - 1] = replace(every[number - 1], kind="queue publish")
    shown = kept(every, ())
    assert {20, 60} <= shown
    assert 40 not in shown


def test_a_marked_row_stays_before_all_others() -> None:
    every = [row(number, ok=False) for number in range(1, 201)]
    assert 7 in kept(every, {7})
    assert 7 not in kept(every, ())


def test_a_failure_outweighs_the_end_of_a_kind() -> None:
    every = [row(number, ok=number % 2 == 0, kind=f"k {number}") for number in range(1, 201)]
    shown = kept(every, ())
    old = {number for number in shown if number <= 200 - NEWEST}
    assert old == {number for number in range(111, 171) if number % 2}


# -- runs of every_failure -------------------------------------------------------------------------


def run(number: int, began: int, told: str) -> Row:
    return row(number, f"run: {told}", began=began, kind=f"cloud run {told}")


def test_runs_that_held_are_left_out_where_one_broke() -> None:
    every = [
        row(1),
        run(4, 2, "undisturbed"),
        row(3),
        run(8, 5, "held"),
        row(6),
        run(9, 9, "broken"),
    ]
    shown, held = without_held_runs(every)
    assert (numbers(shown), held) == ([1, 9], 1)


def test_all_rows_stay_where_no_run_broke() -> None:
    every = [run(4, 2, "undisturbed"), row(3), run(8, 5, "held")]
    assert without_held_runs(every) == (every, 0)
    assert without_held_runs([row(1)]) == ([row(1)], 0)


# -- what says the same ----------------------------------------------------------------------------


def event(number: int, what: str, **more: Any) -> Row:
    return replace(row(number, what, **more), source="broker", target="broker", answer="")


def test_what_came_of_a_call_is_told_in_its_row() -> None:
    call = row(1, "consume t as g/a")
    every = [
        call,
        event(2, "join: a joined g", follows=1),
        event(3, "rebalance: g generation 1 (a joined): a: t[0]", follows=1),
        row(4, "commit t-0=1 as g/a"),
        event(5, "commit: a of g committed t-0=1", follows=4),
        row(6, "commit what was delivered as g/a"),
        event(7, "commit: a of g committed t-0=2", follows=6),
        event(8, "close: a of g idled"),
    ]
    found = merged(every, ())
    assert [(one.number, one.remarks) for one in found] == [
        (1, ("generation 1: a: t[0]",)),
        (4, ()),
        (6, ("a of g committed t-0=2",)),
        (8, ()),
    ]
    assert numbers(merged(every, {3})) == [1, 3, 4, 6, 8]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ["leave: a left g; generation 2: b: t[0]"]),
        ({"at_us": 1}, None),
        ({"depth": 1}, None),
        ({"target": "other"}, None),
    ],
    ids=["at once", "later", "below", "of another"],
)
def test_a_rebalance_is_told_with_the_member_that_left(
    more: dict[str, Any], expected: list[str] | None
) -> None:
    left = event(1, "leave: a left g")
    after = replace(event(2, "rebalance: g generation 2 (a left): b: t[0]"), **more)
    found = [one.what for one in merged([left, after], ())]
    assert found == (expected or [left.what, after.what])
    assert len(merged([left, after], {2})) == 2
    assert len(merged([event(1, "close: a idled"), after], ())) == 2


def test_rows_that_read_the_same_are_folded() -> None:
    every = [
        row(1),
        row(2),
        row(3, answer="2"),
        row(4, "attempt 1 of msg_a POST u", attempt=1),
        row(5, "attempt 2 of msg_a POST u", attempt=2),
        row(6, "attempt 2 of msg_b POST u", attempt=2),
        row(7),
    ]
    assert [numbers(group) for group in folded(every)] == [[1, 2], [3], [4, 5], [6], [7]]


@pytest.mark.parametrize("name", ["source", "target", "what", "detail", "answer", "fault", "note"])
def test_rows_that_differ_in_a_word_are_not(name: str) -> None:
    assert len(list(folded([row(1), replace(row(2), **{name: "other"})]))) == 2


@pytest.mark.parametrize("more", [{"below": ("a",)}, {"remarks": ("a",)}, {"depth": 1}])
def test_rows_that_differ_in_what_stands_below_are_not(more: dict[str, Any]) -> None:
    assert len(list(folded([row(1), row(2, **more)]))) == 2
