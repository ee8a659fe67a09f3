"""Rows are folded and merged, based only on their data."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Event
from pytest_fakecloud.core.characters import shortened
from pytest_fakecloud.kv.report.accesses import KEY
from pytest_fakecloud.reporting.accesses import ReportSubject, Sought
from pytest_fakecloud.reporting.model import AppliedFault, Finding, ReportRow, RowSource
from pytest_fakecloud.reporting.render.folding import RowGroup, folded, merged, without_unlisted
from pytest_fakecloud.reporting.render.page import page
from pytest_fakecloud.reporting.render.text import section, text
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.statement.read_data import ReadByRows


def row(number: int, same: object = "", **more: Any) -> ReportRow:
    made = ReportRow(number, 0, "call", "client", "kv", "GET", began=number, same=same or number)
    return replace(made, **more)


def counts(*rows: ReportRow) -> list[int]:
    return [len(line.rows) for line in folded([RowGroup((shown_row,)) for shown_row in rows])]


def test_attempts_are_folded_together_with_what_is_nested_in_them() -> None:
    attempt = row(1, "a", kind="delivery", attempt=1), row(2, "set", depth=1)
    again = row(3, "a", kind="delivery", attempt=2), row(4, "set", depth=1)
    third = row(5, "a", kind="delivery", attempt=3), row(6, "set", depth=1)
    other = row(5, "a", kind="delivery", attempt=3), row(6, "del", depth=1)
    assert counts(*attempt, *again) == [2, 2]
    assert counts(*attempt, *again, *third) == [3, 3]
    assert counts(*attempt, *again, *other) == [2, 2, 1, 1]


def test_two_equal_calls_have_lines_of_their_own() -> None:
    assert counts(row(1, "a"), row(2, "a")) == [1, 1]
    assert counts(row(1, "a"), row(2, "a"), row(3, "a")) == [3]


@pytest.mark.parametrize(
    "differs",
    [
        {"status": 500}, {"actor": "queue"}, {"peer": "vector"},
        {"faults": (AppliedFault("a", "a"),)},
    ],
)  # fmt: skip
def test_rows_that_differ_are_not_folded(differs: dict[str, Any]) -> None:
    assert counts(row(1, "a"), row(2, "a"), row(3, "a", **differs)) == [1, 1, 1]


def test_an_event_is_part_of_the_call_it_results_from_unless_it_is_marked() -> None:
    event = Event(2, 0, "broker", "broker", "rebalance", "")
    rows = [
        row(1),
        row(2, actor="kv", peer="kv", kind="event", source=RowSource(event=event), first_cause=1),
    ]
    assert [len(line.effects) for line in merged(rows, ())] == [1]
    assert [len(line.effects) for line in merged(rows, {2})] == [0, 0]


def test_rows_that_are_not_listed_are_counted_by_what_they_called() -> None:
    rows = [row(n, operation="SET" if n % 2 else "GET") for n in range(1, 10)]
    rows += [row(10, library="rq"), row(11, library="rq"), row(12)]
    lines = list(without_unlisted([RowGroup((own,)) for own in rows], {4, 12}))
    shown = [line if isinstance(line, str) else line.row.number for line in lines]
    assert shown == [
        "3 calls left out: kv SET (x2), kv GET", 4,
        "5 calls left out: kv SET (x3), kv GET (x2)", "rq: 2 calls", 12,
    ]  # fmt: skip


# -- the text of rows -----------------------------------------------------------------------


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
    for key in ("a", "b", "b", "b"):
        httpx.post(server.url, json=["GET", key], headers=server.headers)
        cloud.clock.advance("1d")
    assert "GET b (x3 until 2026-03-04 12:00:00)" in section(cloud)
    dates = re.findall(r"^[\d-]{10} ", section(cloud), re.MULTILINE)
    assert dates == ["2026-03-01 ", "2026-03-02 "]


def test_rows_that_repeat_say_until_when(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for _ in range(3):
        httpx.post(server.url, json=["GET", "a"], headers=server.headers)
        cloud.clock.advance("1s")
    assert "GET a (x3 until 12:00:02) <-- null" in section(cloud)


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
    assert (row.ok, bool(row.source.error)) == (False, True)


@pytest.mark.parametrize("clock", ["frozen", "running"])
def test_events_are_part_of_the_line_of_the_call_that_caused_them(cloud: Cloud, clock: str) -> None:
    if clock == "running":
        cloud.clock.resume()
    broker = cloud.broker(topics={"t": 2}, instance_limit=None)
    with broker.client() as client:
        earliest = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
        for instance in ("a", "b"):
            client.get(f"/consume/g/{instance}/t?timeout=1", headers=earliest)
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


def test_events_that_the_test_caused_are_no_part_of_an_earlier_call(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 2}, instance_limit=None)
    with broker.client() as client:
        client.get("/consume/g/a/t?timeout=1")
        client.post("/delete-consumer/g/a")
    broker.join("g", "a", ["t"])
    broker.group("g").leave("a")
    every = merged(report_of(cloud).rows, ())
    assert [[line.row.operation, *(effect.kind for effect in line.effects)] for line in every] == [
        ["consume", "join", "rebalance"], ["delete-consumer", "leave", "rebalance"],
        ["join"], ["join", "rebalance"], ["group.leave"], ["leave", "rebalance"],
    ]  # fmt: skip


def removed_ttl(row: ReportRow, key: str) -> Finding:
    subject = ReportSubject(KEY, key, row.peer)
    values = {"key": key, "command": "SET"}
    return Finding("ttl_removed", row.peer, (row.number,), (subject,), values)


def test_findings_have_the_same_numbers_in_text_and_page(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for word in "abcde":
        httpx.post(server.url, json=["GET", word], headers=server.headers)
    report = report_of(cloud)
    findings = [removed_ttl(row, f"{row.operation} {'of a customer':_<90}") for row in report.rows]
    report = replace(report, findings=findings)
    lines = text(report, width=100).splitlines()
    numbers = [
        number for line in lines for number in re.findall(r"^(?:Findings:|-) \[(\d)\]", line)
    ]
    assert numbers == list("12345")
    # The first needs two lines, so the others follow the rows.
    at = lines.index("Further findings:")
    assert (lines[0][:13], lines[at + 1][:5]) == ("Findings: [1]", "- [2]")
    shown = page(cloud, report)
    assert [f"<b>▲{n}</b>" in shown for n in range(1, 7)] == [True] * 5 + [False]


def test_a_row_of_two_findings_has_both_numbers(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for line in (["DEL", "s"], ["SET", "s", "1", "EX", "1772370000"]):
        httpx.post(server.url, json=line, headers=server.headers)
    (row,) = [row for row in report_of(cloud).rows if row.operation == "SET"]
    findings = [removed_ttl(row, key) for key in "st"]
    assert "EX 1772370000 [1] [2] <-- OK" in text(replace(report_of(cloud), findings=findings))


def test_an_address_is_whole_once(cloud: Cloud) -> None:
    queue = cloud.queue()
    urls = ["https://a.example.com/x/1", "https://a.example.com/x/2", "https://a.example.com/y/2"]
    for url in (*urls, *urls):
        with httpx.Client(headers=queue.headers) as client:
            client.post(f"{queue.url}/v2/publish/{url}", content=b"{}")
    shown = re.findall(r"publish (\S+)", text(report_of(cloud), width=140))
    assert shown == [*urls, "…/1", *urls[1:]]


def test_records_that_are_all_above_are_whole_once(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 1})
    broker.produce("t", "a")
    client = broker.client()
    for value in ("b", "b", "c", "d"):
        client.post("produce", json={"topic": "t", "value": value})
    for offset in (0, 1, 2):
        client.post("fetch", json={"topic": "t", "partition": 0, "offset": offset})
    fetched = section(cloud).replace("\n   ", "").split("fetch ")[1:]
    assert [call.partition("\n")[0].rstrip("; ") for call in fetched] == [
        't-0@0 <-- t-0@0 "a", t-0@1 "b", t-0@2 "b", t-0@3 "c", t-0@4 "d"',  # One is not above.
        "t-0@1 <-- t-0@1, t-0@2, t-0@3, t-0@4",
        't-0@2 <-- t-0@2 "b", t-0@3 "c", t-0@4 "d"',  # They are few.
    ]
    assert "! " not in section(cloud), "no statement failed"


def test_a_row_shows_only_what_differs_from_the_row_above(cloud: Cloud) -> None:
    kv, vector = cloud.kv_server().client(), cloud.vector_index(dimension=2).client()
    for _ in range(2):
        kv.set("a", 1)
        vector.delete("b")
        vector.delete("c" * 50)
        cloud.clock.advance("1d")
    rows = [line.partition(" <--")[0] for line in section(cloud).splitlines() if line[0] != " "]
    others = ["--> vector_index delete b", f"delete {shortened('c' * 50)}"]
    assert rows[:3] == ["2026-03-01 12:00:00 --> kv_server SET a 1", *others]
    assert rows[3:6] == ["2026-03-02 12:00:00 --> kv_server SET a 1", *others]


def test_no_more_lines_than_needed_for_what_was_read(cloud: Cloud) -> None:
    report = report_of(cloud)
    data = [Sought(ReportSubject(KEY, f"{name}{'x' * 50}", "kv")) for name in "abcdef"]
    statement = ReadByRows(sought=tuple(data), unwritten=dict.fromkeys(data, "never"))
    first, second, *_ = text(replace(report, read_data=statement), width=80).splitlines()
    assert "a" + "x" * 50 in first + second
    assert second.endswith("no call here has written it")
