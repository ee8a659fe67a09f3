"""Rows are folded, merged and left out, based only on their data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Event
from pytest_fakecloud.reporting.applications import ServedRequest
from pytest_fakecloud.reporting.model import AppliedFault, ReportRow, ReportSubject
from pytest_fakecloud.reporting.page import page
from pytest_fakecloud.reporting.report import about_key, report_of
from pytest_fakecloud.reporting.text import (
    KEPT,
    NEWEST,
    FoldedRow,
    folded,
    merged,
    section,
    shortened_rows,
    text,
)


def row(number: int, same: object = "", **more: Any) -> ReportRow:
    made = ReportRow(number, 0, "call", "client", "kv", "GET", began=number, same=same or number)
    return replace(made, **more)


def counts(*rows: ReportRow) -> list[int]:
    return [len(line.rows) for line in folded([FoldedRow((shown_row,)) for shown_row in rows])]


def test_rows_are_folded_together_with_what_is_nested_in_them() -> None:
    attempt = row(1, "a", attempt=1), row(2, "set", depth=1)
    again = row(3, "a", attempt=2), row(4, "set", depth=1)
    third = row(5, "a", attempt=3), row(6, "set", depth=1)
    other = row(5, "a", attempt=3), row(6, "del", depth=1)
    assert counts(*attempt, *again) == [2, 2]
    assert counts(*attempt, *again, *third) == [3, 3]
    assert counts(*attempt, *again, *other) == [2, 2, 1, 1]


@pytest.mark.parametrize(
    "differs",
    [
        {"status": 500}, {"actor": "queue"}, {"peer": "vector"},
        {"faults": (AppliedFault("a", "a"),)},
    ],
)  # fmt: skip
def test_rows_that_differ_are_not_folded(differs: dict[str, Any]) -> None:
    assert counts(row(1, "a"), row(2, "a")) == [2]
    assert counts(row(1, "a"), row(2, "a", **differs)) == [1, 1]


def test_an_event_is_part_of_the_call_it_results_from_unless_it_is_marked() -> None:
    event = Event(2, 0, "broker", "broker", "rebalance", "")
    rows = [row(1), row(2, actor="kv", peer="kv", kind="event", entry=event, follows=1)]
    assert [len(line) for line in merged(rows, ())] == [2]
    assert [len(line) for line in merged(rows, {2})] == [1, 1]


def test_the_newest_rows_and_those_that_matter_are_kept() -> None:
    rows = [row(n, ok=n != 5, operation=("GET", "TTL")[n % 2]) for n in range(1, 201)]
    rows[9] = replace(rows[9], operation="SET")
    lines = list(shortened_rows([FoldedRow((shown_row,)) for shown_row in rows], {7}))
    numbers = [line.row.number for line in lines if isinstance(line, FoldedRow)]
    assert len(numbers) == KEPT
    assert {1, 5, 7, 10, *range(201 - NEWEST, 201)} <= set(numbers)
    assert sum(line for line in lines if isinstance(line, int)) == 200 - KEPT
    assert [
        line for line in shortened_rows([FoldedRow((rows[0],))], ()) if isinstance(line, int)
    ] == []


def test_the_middle_of_a_long_series_is_left_out_unless_it_matters() -> None:
    series = [
        row(n, ok=n != 50, subjects=(ReportSubject("key", f"k:{n}", "kv"),)) for n in range(1, 99)
    ]
    other = row(99, subjects=(ReportSubject("key", "other", "kv"),))
    lines = list(shortened_rows([FoldedRow((shown_row,)) for shown_row in [*series, other]], {70}))
    numbers = [line if isinstance(line, int) else f"#{line.row.number}" for line in lines]
    assert numbers == ["#1", "#2", 47, "#50", 19, "#70", 26, "#97", "#98", "#99"]


def test_two_rows_with_different_numbers_are_no_series() -> None:
    first, second, third = (row(n, "SET", words=(f"k:{n}", "v")) for n in (1, 2, 3))
    assert counts(first, second) == [1, 1]
    assert counts(first, second, third) == [3]
    nested = [row(n, "a", depth=1) for n in (1, 2)]
    assert counts(first, nested[0], second, nested[1]) == [1, 1, 1, 1]


# -- the text of a selection -----------------------------------------------------------------------


def test_a_function_is_before_a_call_by_its_moment_and_not_by_its_name(cloud: Cloud) -> None:
    server = cloud.kv_server()

    def run_before_commit() -> None:
        httpx.post(server.url, json=["GET", "b"], headers=server.headers)

    server.faults.call(run_before_commit, "after", command="GET", times=1)
    httpx.post(server.url, json=["GET", "a"], headers=server.headers)
    report = section(cloud)
    assert "fault: call run_before_commit after" in report
    assert "executed after the rows below" not in report


def test_each_group_that_is_behind_is_unfinished(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 1}, instance_limit=None)
    broker.produce("t", "v")
    manual = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
    for group in ("one", "two"):
        broker.client().get(f"/consume/{group}/i/t", headers=manual)
    report = " ".join(section(cloud).split())
    for group in ("one", "two"):
        assert f"group {group} is 1 record behind in t-0 (nothing committed)" in report


def test_a_long_line_of_a_script_is_wrapped_and_not_cut(cloud: Cloud) -> None:
    server = cloud.kv_server()
    script = f"if redis.call('GET', KEYS[1]) == '{'x' * 50}' then return -2 end return 1"
    httpx.post(server.url, json=["EVAL", script, 1, "a"], headers=server.headers)
    assert "then return -2 end return 1" in " ".join(section(cloud, width=60).split())


def test_rows_of_other_days_have_their_date(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for key in ("a", "b", "b"):
        httpx.post(server.url, json=["GET", key], headers=server.headers)
        cloud.clock.advance("1d")
    assert "GET b (x2 until 2026-03-03 12:00:00.000)" in section(cloud)
    assert [line for line in section(cloud).splitlines() if line.startswith("--")] == [
        "-- 2026-03-01 --",
        "-- 2026-03-02 --",
    ]


def test_rows_that_repeat_say_until_when(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for _ in range(3):
        httpx.post(server.url, json=["GET", "a"], headers=server.headers)
        cloud.clock.advance("1s")
    assert "GET a (x3 until 12:00:02.000) <-- null" in section(cloud)


def test_controls_are_shown_and_not_sent_to_the_terminal(cloud: Cloud) -> None:
    server = cloud.kv_server()
    httpx.post(server.url, json=["SET", "a", "\x1b[31m"], headers=server.headers)
    assert "\x1b" not in section(cloud)


def test_a_part_that_raises_leaves_the_others(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cloud.kv_server()
    httpx.post(server.url, json=["SET", "lock:a", "1", "NX"], headers=server.headers)

    def broken(*args: object, **named: object) -> None:
        raise RuntimeError("no")

    for name, line in (
        ("rows", "the calls cannot be shown"),
        ("find", "the findings failed"),
        ("unfinished", "what is unfinished cannot be shown"),
        ("lookups_of", "the lookups failed"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"pytest_fakecloud.reporting.report.{name}", broken)
            assert f"{line}: RuntimeError: no" in text(report_of(cloud))
    cloud.journal.calls()[0].facts["words"] = [7]
    (row,) = report_of(cloud).rows
    assert (row.ok, bool(row.failure)) == (False, True)


@pytest.mark.parametrize("clock", ["frozen", "running"])
def test_events_are_part_of_the_line_of_the_call_that_caused_them(cloud: Cloud, clock: str) -> None:
    if clock == "running":
        cloud.clock.resume()
    broker = cloud.broker(topics={"t": 2}, instance_limit=None)
    with broker.client() as client:
        earliest = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
        for instance in ("a", "b"):
            client.get(f"/consume/g/{instance}/t", headers=earliest)
        client.post("/commit/g/a", json={"topic": "t", "partition": 0, "offset": 0})
        client.post("/delete-consumer/g/a")
    every = merged(report_of(cloud).rows, ())
    assert [[line.row.operation, *(effect.kind for effect in line.effects)] for line in every] == [
        ["consume", "join", "rebalance"], ["consume", "join", "rebalance"], ["commit", "commit"],
        ["delete-consumer", "leave", "rebalance"],
    ]  # fmt: skip
    if clock == "frozen":
        broker.group("g").expire("b")
        assert [effect.kind for effect in merged(report_of(cloud).rows, ())[-1].effects] == [
            "rebalance"
        ]


def test_findings_have_the_same_numbers_in_text_and_page(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for word in "abcde":
        httpx.post(server.url, json=["GET", word], headers=server.headers)
    report = report_of(cloud)
    findings = [
        about_key("ttl_removed", report_row.entry, f"{report_row.operation} {'of a customer':_<90}")
        for report_row in report.rows
        if report_row.entry is not None and not isinstance(report_row.entry, ServedRequest)
    ]
    report = replace(report, findings=findings)
    listed = text(report, width=100).partition("Findings:\n")[2].splitlines()
    assert [line[:5] for line in listed if line[0] == "-"] == [f"- [{n}]" for n in range(1, 6)]
    shown = page(cloud, report)
    assert [f"<b>▲{n}</b>" in shown for n in range(1, 7)] == [True] * 5 + [False]


def test_a_row_of_two_findings_has_both_numbers(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for line in (["DEL", "s"], ["SET", "s", "1", "EX", "1772370000"]):
        httpx.post(server.url, json=line, headers=server.headers)
    (row,) = [row for row in report_of(cloud).rows if row.operation == "SET"]
    assert row.entry is not None
    assert not isinstance(row.entry, ServedRequest)
    findings = [about_key("ttl_removed", row.entry, key) for key in "st"]
    assert "EX 1772370000 [1] [2] <-- OK" in text(replace(report_of(cloud), findings=findings))


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["SET user:{n} ada"], "SET user:0…4 ada (x5) <-- OK"),
        (["LINDEX log {n}"], "LINDEX log 0…4 (x5) <-- null"),
        (["SETEX k 60 {n}"], "SETEX k 60 0…4 (x5) <-- OK"),
    ],
)
def test_commands_in_which_one_number_counts_on_are_one_line(
    cloud: Cloud, lines: list[str], shown: str
) -> None:
    server = cloud.kv_server()
    for number in range(5):
        for line in lines:
            command = line.format(n=number).split()
            httpx.post(server.url, json=command, headers=server.headers)
    assert shown in section(cloud)


@pytest.mark.parametrize(
    "line",
    ["SET user:{n} {n}", "SET user:{double} ada", "RPUSH log {n}", "EVAL 'return',{n} 0"],
    ids=["two numbers", "other steps", "other answers", "a script"],
)
def test_other_commands_have_lines_of_their_own(cloud: Cloud, line: str) -> None:
    server = cloud.kv_server()
    for number in range(3):
        command = line.format(n=number, double=2 * number).split()
        httpx.post(server.url, json=command, headers=server.headers)
    assert "…" not in section(cloud)


def test_actions_in_which_one_number_counts_on_are_one_line(cloud: Cloud) -> None:
    queue = cloud.queue()
    for number in range(12):
        queue.publish("https://app.example.com/hook", json={"n": number})
    assert "json={'n': 0…11}) ->" in section(cloud, width=140)
    assert " (x12)" in section(cloud, width=140)
