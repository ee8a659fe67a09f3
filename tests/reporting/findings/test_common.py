"""Findings that do not depend on a service: errors, unused faults, fakes without calls, the clock."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, Response
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.reporting import report
from pytest_fakecloud.reporting.calls import Lookups, lookups_of
from pytest_fakecloud.reporting.model import Finding
from pytest_fakecloud.reporting.report import _BLOCKING, ObservedTest, find, report_of
from pytest_fakecloud.reporting.text import section
from pytest_fakecloud.reporting.wording import sentence
from tests.notations import complete

from ..shown import linked
from .cases import HOOK, Scene, answered, commands, found, kinds, logs, query

# -- what was answered 404 or 409 ------------------------------------------------------------------


def gets(cloud: Cloud, *paths: str) -> None:
    queue = cloud.queue()
    for path in paths:
        httpx.get(f"{queue.url}/v2/{path}", headers=queue.headers)


def test_a_404_is_told_with_its_message_and_its_source(cloud: Cloud) -> None:
    gets(cloud, "keys", "messages/msg_none", "keys", "logs")
    (one,) = found(cloud, raised=AssertionError())
    assert one.values == {
        "call": "get_message", "status": "404", "error": "message msg_none not found",
    }  # fmt: skip
    assert found(cloud, raised=KeyError()) == []


def test_a_409_counts_as_well(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 1})
    broker.produce("t", "v")
    for path, body in (
        ("consume/g/i", {"topic": "t"}),
        ("commit/g/i", {"topic": "t", "partition": 0, "offset": 0}),
        ("produce", {"topic": "t", "value": "v"}),
    ):
        broker.client().post(path, json=body)
        if path.startswith("consume"):
            broker.group("g").expire("i")
    assert [one.values["status"] for one in found(cloud, raised=AssertionError())] == ["409"]


def test_a_404_of_a_fault_says_nothing_about_the_application(cloud: Cloud) -> None:
    cloud.queue().faults.respond(404, times=1)
    gets(cloud, "keys", "keys")
    assert found(cloud, raised=AssertionError()) == []


# -- faults that never fired -----------------------------------------------------------------------


def unused_faults(cloud: Cloud) -> list[Finding]:
    return [one for one in report_of(cloud).violations if one.values["violation"] == "unused_fault"]


def test_a_fault_that_missed_is_a_violation_in_the_report(cloud: Cloud) -> None:
    commands("PING")(cloud)
    queue = cloud.queue()
    queue.faults.respond(503, route="publish")
    for path in ("keys", "keys", "none-such"):
        httpx.get(f"{queue.url}/v2/{path}", headers=queue.headers)
    (one,) = unused_faults(cloud)
    assert "respond 503 [route='publish'], 0 hits, set at" in one.values["text"]
    queue.faults.clear()
    assert unused_faults(cloud) == []


# -- fakes that nobody called ----------------------------------------------------------------------


def faulty(name: str, *arguments: Any) -> Scene:
    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        getattr(server.faults, name)(*arguments)
        with suppress(httpx.TransportError):
            httpx.post(server.url, json=["PING"], headers=server.headers)

    return run


def joins(cloud: Cloud) -> None:
    """Let a consumer join a group, which is not a failure."""
    cloud.broker(topics={"t": 1}).client().post("/consume/g/i", json={"topic": "t"})


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (commands("PING"), True), (joins, True), (logs(200), False), (commands("NOSUCH"), False),
        (faulty("drop"), False), (faulty("lose_response"), False), (faulty("truncate"), False),
        (faulty("call", lambda: Response(body={"result": 9}), "after"), False),
        (answered(200), True), (answered(299), True), (answered(300), False),
        (answered(500), False), (answered(ConnectionError("down")), False),
    ],
)  # fmt: skip
def test_a_fake_nobody_called_is_named_where_all_went_well(
    cloud: Cloud, scene: Scene, expected: bool
) -> None:
    scene(cloud)
    cloud.vector_index()
    every = find(ObservedTest(cloud, lookups_of(cloud, [])))
    assert any(one.fake == "vector_index" for one in every) is expected


# -- a clock that did not move ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "idle_s", "count"),
    [
        ("PING", 0.99, 0), ("PING", 1.0, 1), ("XREAD BLOCK 1 STREAMS s $", 1.0, 0),
        ("blpop k 1", 1.0, 0),
    ],
    ids=["a moment", "a second", "a read that blocks", "a pop that blocks"],
)  # fmt: skip
def test_a_second_of_a_clock_that_stood_still_is_said(
    cloud: Cloud, command: str, idle_s: float, count: int
) -> None:
    commands(command)(cloud)
    assert kinds(cloud, idle_s=idle_s) == ["clock_frozen"] * count
    cloud.clock.advance("1s")
    commands("PING")(cloud)
    assert "clock_frozen" not in kinds(cloud, idle_s=idle_s)


def test_every_command_that_may_wait_is_known() -> None:
    report_file = Path(report.__file__)
    blocking = {spec.name for spec in COMMANDS.values() if "blocking" in spec.flags}
    # The option BLOCK says if these wait.
    missing = blocking - _BLOCKING - {"XREAD", "XREADGROUP"}
    complete(report_file, (f"_BLOCKING: {name!r}" for name in missing))


# -- rejections without an error -------------------------------------------------------------------


REFUSED = "error_not_seen"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (None, []),
        (AssertionError(), [REFUSED]),
        (linked(context=AssertionError()), [REFUSED]),
        (linked(cause=KeyError()), []),
        (linked(context=KeyError()), []),
        (linked(cause=AssertionError(), context=KeyError()), [REFUSED]),
    ],
    ids=["none", "assertion", "of an assertion", "of an error", "in an error", "cause first"],
)
def test_a_refusal_is_said_where_no_exception_tells_of_it(
    cloud: Cloud, raised: BaseException | None, expected: list[str]
) -> None:
    query("n = ")(cloud)
    assert kinds(cloud, raised=raised) == expected


def test_a_422_counts_as_well(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    httpx.post(f"{index.url}/upsert", json={"id": "a", "vector": [1]}, headers=index.headers)
    assert kinds(cloud, raised=AssertionError()) == [REFUSED]


def test_a_refusal_of_the_read_only_token_is_said_once(cloud: Cloud) -> None:
    commands("read-only: SET k v")(cloud)
    assert kinds(cloud, raised=AssertionError()) == ["read_only_token"]


def test_a_call_without_a_token_is_a_refusal_of_its_own(cloud: Cloud) -> None:
    cloud.broker(topics={"t": 1})
    index = cloud.vector_index(dimension=2)
    headers = {"Authorization": f"Bearer {index.token}"}
    httpx.post(f"{index.url}/query", json={"vector": [1]}, headers=headers)
    assert kinds(cloud, raised=AssertionError()) == [REFUSED]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("~a: SET a x | ~a: INCR a", REFUSED),
        ("~a: MULTI | ~a: SET a x | ~a: INCR a | ~a: EXEC", "commands_failed"),
    ],
)
def test_on_a_connection_the_command_is_named_once(cloud: Cloud, steps: str, expected: str) -> None:
    commands(steps)(cloud)
    assert kinds(cloud, raised=AssertionError()) == [expected]


# -- sentences that no expected report contains ----------------------------------------------------

OTHER = {"rejected": 1, "calls": 2, "reasons": [{"kind": "other", "other": "vector_index"}]}
ERROR = {"call": "SET", "status": "", "error": "ERR syntax error"}


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        ("raised_after_answer", {"message": "m", "status": 200},
         "m was answered 200 before its handler raised, so it is not retried"),
        ("rejected", OTHER,
         "answered 401 to 1 of 2 calls: the credentials are those of vector_index"),
        ("error_not_seen", ERROR,
         "this SET was answered ERR syntax error, and the test saw no exception"),
    ],
)  # fmt: skip
def test_the_sentence_of_a_finding(kind: str, values: dict[str, Any], text: str) -> None:
    assert sentence(Finding(kind, values=values), Lookups()) == text


# -- cut calls and incomplete responses: fewer findings, and never false ones ----------------------


def call_everything(cloud: Cloud, padding: str, truncated: tuple[str, str] = ("", "")) -> None:
    """Make calls of which several findings could be made; their bodies contain the padding.

    ``truncated`` is a service and a route of which the first response is truncated.
    """
    long = {"value": padding, "n": 1}
    broker, index, queue = cloud.broker(topics={"t": 1}), cloud.vector_index(), cloud.queue()
    for fake in (broker, index, queue):
        if fake.service == truncated[0]:
            fake.faults.truncate(route=truncated[1])
    client = broker.client()
    for _ in range(2):
        client.post("/produce/t", json=[long, long])
    early = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
    client.get("/consume/g/i/t", headers=early)
    client.post("/commit/g/i", json={"topic": "t", "partition": 0, "offset": 3, **long})
    client.get("/consume/g/i/t", headers=early)
    query = {"vector": [1, 0], "topK": 1, "includeMetadata": True}
    record = {"id": "a", "vector": [1, 0], "metadata": long}
    for path, body in (
        ("upsert", record), ("upsert", {**record, "metadata": {**long, "n": 2}}), ("query", query),
        ("query", [query, query]), ("query", {**query, "filter": f"value = '{padding}' AND n = 1"}),
        ("delete", ["none", padding]),
    ):  # fmt: skip
        httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)
    commands(f"SET a 1 EX 9 | pipeline: DEL a & SET b {padding} & GET b | @ 10s | GET a")(cloud)
    for ending in "ab":
        headers = {**queue.headers, "Upstash-Cron": "0 9 * * *"}
        url = f"{queue.url}/v2/schedules/{HOOK}"
        httpx.post(url, content=padding + ending, headers=headers)
        headers = {**queue.headers, "Upstash-Deduplication-Id": "a"}
        httpx.post(f"{queue.url}/v2/publish/{HOOK}", content=padding, headers=headers)


def test_a_cut_journal_makes_no_detector_fail_or_state_something_false(cloud: Cloud) -> None:
    cloud.journal.keep_bytes = 0
    call_everything(cloud, "x" * 5_000)
    assert " failed: " not in section(cloud)
    assert [one.kind for one in found(cloud)] == ["deduplicated"]
    assert not found(cloud)[0].values["body_differs"]


@pytest.mark.parametrize(
    "truncated",
    [("broker", "consume"), ("vector", "query"), ("vector", "delete"), ("queue", "publish")],
)
def test_an_incomplete_response_makes_no_detector_fail(
    cloud: Cloud, truncated: tuple[str, str]
) -> None:
    with pytest.raises(httpx.TransportError):
        call_everything(cloud, "x", truncated)
    assert " failed: " not in section(cloud)
