"""Findings that do not depend on a service: unused faults, the clock, incomplete calls."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.model import Finding
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.render.wording import sentence
from pytest_fakecloud.reporting.report import report_of

from .cases import HOOK, commands, found, kinds

# -- faults that never fired -----------------------------------------------------------------------


def unused_faults(cloud: Cloud) -> list[Finding]:
    return [
        violation
        for violation in report_of(cloud).violations
        if violation.values["violation"] == "unused_fault"
    ]


def test_a_fault_that_missed_is_a_violation_in_the_report(cloud: Cloud) -> None:
    commands("PING")(cloud)
    queue = cloud.queue()
    queue.faults.respond(503, route="publish")
    for path in ("keys", "keys", "none-such"):
        httpx.get(f"{queue.url}/v2/{path}", headers=queue.headers)
    (violation,) = unused_faults(cloud)
    assert "respond 503 [route='publish'], 0 hits, set at" in violation.values["text"]
    queue.faults.clear()
    assert unused_faults(cloud) == []


# -- a clock that did not move ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "idle_s", "count"),
    [
        ("PING", 0.99, 0), ("PING", 1.0, 1), ("XREAD BLOCK 1 STREAMS s $", 1.0, 0),
        ("XREAD STREAMS s 0", 1.0, 1), ("blpop k 1", 1.0, 0), ("WAIT 0 1", 1.0, 0),
        ("DEBUG SLEEP 0", 1.0, 0),
    ],
    ids=["a moment", "a second", "a read that blocks", "a read that does not", "a pop that blocks",
         "a wait for replicas", "a server that sleeps"],
)  # fmt: skip
def test_a_second_of_a_clock_that_stood_still_is_said(
    cloud: Cloud, command: str, idle_s: float, count: int
) -> None:
    commands(command)(cloud)
    assert kinds(cloud, idle_s=idle_s) == ["clock_frozen"] * count
    cloud.clock.advance("1s")
    commands("PING")(cloud)
    assert "clock_frozen" not in kinds(cloud, idle_s=idle_s)


# -- sentences that no expected report contains ----------------------------------------------------

OTHER = {"rejected": 1, "calls": 2, "reasons": [{"kind": "other", "other": "vector_index"}]}


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        ("rejected", OTHER,
         "answered 401 to 1 of 2 calls: the credentials are those of vector_index"),
    ],
)  # fmt: skip
def test_the_sentence_of_a_finding(kind: str, values: dict[str, Any], text: str) -> None:
    assert sentence(Finding(kind, values=values), Lookups()) == text


@pytest.mark.parametrize(
    ("password", "protocol", "reason"),
    [
        (None, 2, "no password was sent, use kv_server.database_url"),
        (None, 3, "no password was sent, use kv_server.database_url"),
        ("wrong", 3, "the user or the password is not that of kv_server.database_url"),
    ],
)
def test_a_connection_without_the_password_is_explained(
    cloud: Cloud, password: str | None, protocol: int, reason: str
) -> None:
    kv = cloud.kv_server()
    address = urlsplit(kv.database_url)
    assert address.port is not None
    client = redis_py.Redis(
        port=address.port, password=password, protocol=protocol, retry=Retry(NoBackoff(), 0)
    )
    with client, pytest.raises(redis_py.AuthenticationError):
        client.get("k")
    assert f"answered 401 to 1 of 1 call: {reason}" in " ".join(section(cloud).split())


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
    assert found(cloud) == []


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
