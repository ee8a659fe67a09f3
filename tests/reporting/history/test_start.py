"""Where a history starts, and which writes it lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from upstash_redis import Redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.process.lines import Lines
from pytest_fakecloud.reporting.model import History
from pytest_fakecloud.reporting.report import report_of


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", transport="inprocess") as opened:
        opened.journal._recorder.shared.find_lines = Lines()
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@pytest.fixture
def client(kv: KVServer) -> Redis:
    client = kv.client()
    for key in ("a", "b", "c"):
        client.set(key, f"value of {key}")
    return client


def history(cloud: Cloud, fail: Callable[[], None]) -> History:
    with pytest.raises(AssertionError) as failed:
        fail()
    start_history = report_of(cloud, raised=failed.value).history
    assert start_history is not None
    return start_history


def keys(cloud: Cloud, fail: Callable[[], None]) -> list[str]:
    """Return the keys that the failing statement compared."""
    return [sought.subject.name for sought in history(cloud, fail).start.sought]


def test_a_look_in_the_statement(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        kv.value("a")
        assert (
            kv.value("b")
            == ""
        )  # fmt: skip

    assert keys(cloud, fail) == ["b"]


def test_the_last_round_of_a_loop(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        for key in ("a", "b", "c"):
            assert kv.value(key) != "value of b"

    assert keys(cloud, fail) == ["b"]


def test_all_looks_of_a_comprehension(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert [kv.value(key) for key in ("a", "c")] == []

    assert keys(cloud, fail) == ["a", "c"]


def value_of(kv: KVServer, key: str) -> object:
    return kv.value(key)


def test_a_look_in_a_function_of_the_test(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value_of(kv, "a")
        kv.value("b")
        assert value_of(kv, "c") is None

    assert keys(cloud, fail) == ["c"]


def test_a_look_from_which_a_name_was_assigned(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value = kv.value("a")
        kv.value("b")
        length = len(str(value))
        assert length == 0

    assert keys(cloud, fail) == ["a"]


def test_a_call_of_a_client_in_the_statement(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client.get("b") is None

    assert keys(cloud, fail) == ["b"]
    assert history(cloud, fail).start.kind == "called"


def test_a_function_that_changes_what_is_compared(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    sent: list[object] = []

    def send() -> None:
        sent.append(client.get("c"))

    def fail() -> None:
        send()
        client.get("a")
        assert sent == []

    result = history(cloud, fail)
    assert (result.start.kind, result.start.by) == ("changed", ("send",))
    assert [sought.subject.name for sought in result.start.sought] == ["c"]


def test_a_statement_that_reads_nothing(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client is None

    result = history(cloud, fail)
    assert result.start.kind == "last_call"
    assert [row.access.what for row in result.rows] == ['SET c "value of c"']
    assert not any(row.is_read for row in result.rows)


def test_rejected_and_unanswered_writes_and_deletions(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        with pytest.raises(Exception, match="WRONGTYPE"):
            client.lpush("a", "x")
        kv.faults.lose_response(times=1)
        with pytest.raises(Exception):  # noqa: B017
            kv.client(allow_telemetry=False, rest_retries=0).append("a", "!")
        client.delete("a")
        assert kv.value("a") == "value of a"

    rows = history(cloud, fail).rows
    shown = [(row.access.what, row.access.succeeded, row.is_read) for row in rows]
    assert shown == [
        ('SET a "value of a"', True, False),
        ("LPUSH a x", False, False),
        ("APPEND a !", None, False),
        ("DEL a", True, True),
    ]


def test_a_value_made_from_another_key(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.set("copy", str(client.get("b")))
        assert kv.value("copy") is None

    rows = history(cloud, fail).rows
    assert [(row.step, row.access.subject.name) for row in rows] == [(0, "copy"), (1, "b")]
    assert rows[0].origin is not None
    assert rows[0].origin.subject.name == "b"


def test_a_key_that_nobody_wrote(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.set("stock:1", "5")
        client.get("stock:1")
        assert client.get("STOCK:2") == "5"

    result = history(cloud, fail)
    assert result.unwritten
    [gap] = result.gaps
    assert (gap.access.subject.name, gap.neighbour.name) == ("STOCK:2", "stock:1")


def test_a_topic_that_nothing_reads_while_a_similar_one_is_read(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders-1": 1, "orders-2": 1})

    def get(path: str) -> None:
        headers = {**broker.headers, "Kafka-Auto-Offset-Reset": "earliest"}
        httpx.get(f"{broker.url}/{path}", headers=headers).raise_for_status()

    def fail() -> None:
        for path in ("produce/orders-1/pen", "consume/g/i/orders-1", "produce/orders-2/ink"):
            get(path)
        assert broker.records("orders-1").only().value == "ink"

    [gap] = history(cloud, fail).gaps
    assert (gap.access.subject.name, gap.neighbour.name) == ("orders-2", "orders-1")
