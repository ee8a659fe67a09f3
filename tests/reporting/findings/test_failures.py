"""Which findings the report of a failure has: those about what its statement read, and linked rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.report.accesses import KEY
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.reporting.accesses import DataAccess, ReportSubject, Sought
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.model import Finding, Marks, OrderedAccess, ReportRow
from pytest_fakecloud.reporting.observed import ObservedTest
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.select import concerning
from pytest_fakecloud.reporting.statement.read_data import LookedAt


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z") as opened:
        opened.journal._recorder.shared.note_caller = Stacks().note
        yield opened


def kinds(cloud: Cloud, fail: Callable[[], None]) -> list[str]:
    """Return the kinds of the findings in the report of a failure."""
    with pytest.raises(AssertionError) as failed:
        fail()
    return [finding.kind for finding in report_of(cloud, raised=failed.value).findings]


# Each application fails because of a fact that no call shows. It is not printed for another value.


def guards(cloud: Cloud, key: str) -> Callable[[str], object]:
    """An idempotency key of which the EXPIRE fails, so that it is never forgotten."""
    server = cloud.kv_server()
    redis = server.client()
    redis.set("other", "1")
    server.faults.respond(503, command="EXPIRE", times=1)
    redis.setnx(key, "done")
    with suppress(Exception):
        redis.expire(key, 3600)
    return server.value


def session_is_renamed(cloud: Cloud, key: str) -> Callable[[str], object]:
    """A session whose SET by another function removes its TTL."""
    server = cloud.kv_server()
    redis = server.client()
    redis.set("other", "1")
    redis.set(key, "ada", ex=1800)
    redis.set(key, "Ada")
    return server.value


def reminder_in_milliseconds(cloud: Cloud, key: str) -> Callable[[str], object]:
    """A code that is valid for a minute in the wrong unit."""
    server = cloud.kv_server()
    redis = server.client()
    redis.set("other", "1")
    redis.set(key, "483", px=60)
    return server.value


def token_until(cloud: Cloud, key: str) -> Callable[[str], object]:
    """A token that is valid for a minute of the process's clock."""
    server = cloud.kv_server()
    redis = server.client()
    redis.set("other", "1")
    redis.set(key, "t-1", exat=int(time.time()) + 60)
    return server.value


def seats_are_released(cloud: Cloud, key: str) -> Callable[[str], object]:
    """Reserved seats that the process's clock releases."""
    server = cloud.kv_server()
    redis = server.client()
    redis.hset("other", "row", "1")
    redis.hset(key, values={"row": "7", "seat": "12"})
    redis.pexpireat(key, int(time.time() * 1000) + 600_000)
    return server.hash


@pytest.mark.parametrize("key", ["idem:k-1", "job 7/ä", "n"])
@pytest.mark.parametrize(
    ("application", "kind"),
    [
        (guards, "expire_not_executed"),
        (session_is_renamed, "ttl_removed"),
        (reminder_in_milliseconds, "unlikely_ttl"),
        (token_until, "expires_by_wall_clock"),
        (seats_are_released, "expires_by_wall_clock"),
    ],
)
def test_a_finding_concerns_the_compared_key(
    cloud: Cloud, application: Callable[[Cloud, str], Callable[[str], object]], kind: str, key: str
) -> None:
    value = application(cloud, key)

    def fail() -> None:
        assert value(key) is value

    def fail_elsewhere() -> None:
        assert value("other") is value

    assert kinds(cloud, fail) == [kind]
    assert kinds(cloud, fail_elsewhere) == []


def test_a_time_of_the_fake_clock_is_no_finding(cloud: Cloud) -> None:
    server = cloud.kv_server()
    redis = server.client()
    redis.set("token", "t-1", exat=int(cloud.clock.now().timestamp()) + 60)
    redis.hset("seats", "row", "7")
    redis.pexpireat("seats", int(cloud.clock.now().timestamp() * 1000) + 600_000)

    def fail() -> None:
        assert (server.value("token"), server.hash("seats")) == (None, {})

    assert kinds(cloud, fail) == []


@pytest.mark.parametrize(("moves", "expected"), [(False, ["clock_frozen"]), (True, [])])
def test_a_test_that_sleeps_until_a_message_is_due(
    cloud: Cloud, moves: bool, expected: list[str]
) -> None:
    queue = cloud.queue()
    route = queue.destinations.accept("https://app.example.com")
    queue.client().message.publish_json(url="https://app.example.com/hook", body={}, delay="2s")
    if moves:
        queue.clock.advance("1s")
        queue.client().message.publish_json(url="https://app.example.com/hook", body={}, delay="2s")
    with pytest.raises(AssertionError) as failed:
        assert len(route.deliveries) == 2
    report = report_of(cloud, raised=failed.value, idle_s=2.1)
    assert [finding.kind for finding in report.findings] == expected


def test_a_finding_concerns_the_compared_group(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 1, "u": 1})
    for topic in "tu":
        broker.produce(topic, "v")
    with broker.client() as client:
        client.post("/consume/g/i", json={"topic": "t", "timeout": 0})
        client.post("/commit/g/i", json={"topic": "t", "partition": 0, "offset": 2})

    def fail() -> None:
        assert broker.group("g").committed == {}

    def fail_elsewhere() -> None:
        assert broker.records("u") == []

    assert kinds(cloud, fail) == ["commit_too_high"]
    assert kinds(cloud, fail_elsewhere) == []


def test_a_finding_concerns_the_answer_of_a_query(cloud: Cloud) -> None:
    index = cloud.vector_index()
    index.load([{"id": "a", "vector": [1, 0], "metadata": {"n": 1}}])
    client = index.client()

    def fail() -> None:
        assert client.query(vector=[1.0, 0.0], top_k=1, filter="n = '1'")

    assert kinds(cloud, fail) == ["filter_rejected"]


def test_a_finding_concerns_a_message_of_the_compared_deliveries(cloud: Cloud) -> None:
    queue = cloud.queue()
    route = queue.destinations.accept("https://app.example.com")
    headers = {**queue.headers, "Upstash-Delay": "60000s"}
    httpx.post(f"{queue.url}/v2/publish/https://app.example.com/hook", headers=headers)
    queue.clock.advance("2m")

    def fail() -> None:
        assert len(route.deliveries) == 1

    assert kinds(cloud, fail) == ["unlikely_duration"]


def test_findings_that_a_read_row_decided_come_first_and_then_those_of_touched_ones() -> None:
    subjects = {name: ReportSubject(KEY, name, "kv") for name in "abcd"}
    rows = [ReportRow(number, 0, "call", "client", "kv", "") for number in (3, 4, 2)]
    rows += [ReportRow(number, 0, "request", "client", "app", "POST /x") for number in (10, 20)]
    rows += [ReportRow(21, 0, "call", "client", "kv", "", parent=20)]
    marks = Marks(touched=frozenset({2, 3}), linked=frozenset({4, 10}))
    accesses = [OrderedAccess(rows[1], DataAccess(subjects["c"], True, order=4)),
                OrderedAccess(rows[5], DataAccess(subjects["d"], False, order=21))]  # fmt: skip

    def finding(kind: str, row: int, *names: str) -> Finding:
        return Finding(kind, "kv", (row,), tuple(subjects[name] for name in names))

    findings: list[Any] = [
        finding("of a", 9, "a"), finding("of b", 8, "b"), finding("of a touched row", 3, "b"),
        finding("of a read row", 2, "b"),
        finding("of a linked row", 4, "b"), finding("of c", 7, "c"),
        finding("read by a request to the same address", 6, "d"), Finding("of all"),
    ]  # fmt: skip
    statement = LookedAt(sought=(Sought(subjects["a"]),), looks=("value",), row_numbers=(2,))
    cloud: Any = None
    test = ObservedTest(cloud, Lookups(), rows, accesses)
    shown = concerning(test, statement, marks, findings)
    assert [item.kind for item in shown] == [
        "of a read row", "of a touched row", "of a", "of a linked row", "of c",
        "read by a request to the same address",
        "of all",
    ]  # fmt: skip


def test_a_removed_ttl_comes_before_newer_findings(cloud: Cloud) -> None:
    server = cloud.kv_server()
    client = server.client()
    client.set("a", "1", ex=60)
    client.set("a", "2")
    client.set("b", "1", px=60)
    with pytest.raises(AssertionError) as caught:
        assert server.contents() == {}
    report = report_of(cloud, raised=caught.value)
    assert [finding.kind for finding in report.findings] == ["ttl_removed", "unlikely_ttl"]
