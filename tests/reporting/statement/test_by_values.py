"""What a failing statement of another process compared, by the names and values that its runner sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import requests
from upstash_redis import Redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.reporting.render.wording import describe
from pytest_fakecloud.reporting.report import Report, report_of
from pytest_fakecloud.reporting.statement.read_data import ReadData


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(
        seed=1, now="2026-03-01T12:00:00Z", transport="inprocess", delivery="driven"
    ) as opened:
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@pytest.fixture
def client(kv: KVServer) -> Redis:
    client = kv.client(allow_telemetry=False, rest_retries=0)
    client.set("user:1", json.dumps({"name": "ada", "tags": ["x", "y"]}))
    client.set("stock", 41)
    client.hset("cart:1", "tea", "green")
    return client


def compared(cloud: Cloud, *read: object) -> ReadData:
    found = report_of(cloud, read=read).read_data
    assert found is not None
    return found


def data(cloud: Cloud, *read: object) -> list[str]:
    """Return the data that a statement compared, such as ``cart:1 tea``; that of the last call in
    brackets.
    """
    found = compared(cloud, *read)
    names = [f"{sought.subject.name} {sought.part}".strip() for sought in found.sought]
    return [f"({name})" for name in names] if found.kind == "last_call" else names


def written_values(result: Report) -> list[str]:
    """Return the rows that wrote the values which were read."""
    return [describe(row, result.lookups).what for row in result.rows
            if row.number in result.marks.writers]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (["user:1"], ["user:1"]),
        (["stock", "cart:1"], ["stock", "cart:1"]),
        ([41], ["stock"]),
        (["41"], ["stock"]),
        ([{"tags": ["x", "y"], "name": "ada"}], ["user:1"]),
        (['{\n  "name": "ada",\n  "tags": [\n    "x",\n    "y",\n  ],\n}'], ["user:1"]),
        (["ada"], ["user:1"]),
        (["green"], ["cart:1 tea"]),
        ([["green", 41, "black"]], ["cart:1 tea", "stock"]),
        ([{"of": "nothing"}], ["(cart:1 tea)"]),
        ([], ["(cart:1 tea)"]),
    ],
)
def test_names_and_values_stand_for_data(
    cloud: Cloud, client: Redis, read: list[object], expected: list[str]
) -> None:
    assert data(cloud, *read) == expected


def test_the_last_row_that_returned_a_value_comes_before_those_that_wrote_it(
    cloud: Cloud, client: Redis
) -> None:
    client.set("copy", 41)
    client.get("stock")
    client.set("other", 41)
    found = compared(cloud, 41)
    assert [sought.subject.name for sought in found.sought] == ["stock"]
    result = report_of(cloud, read=[41])
    assert [row.operation for row in result.rows if row.number in found.row_numbers] == ["GET"]
    assert written_values(result) == ["SET stock 41"]


@pytest.mark.parametrize("value", [None, "null", 0, False, "", []])
def test_a_common_value_is_that_of_the_last_call_only(
    cloud: Cloud, client: Redis, value: object
) -> None:
    client.get("missing")
    client.exists("missing")
    client.lrange("missing", 0, -1)
    client.get("stock")
    assert data(cloud, value) == ["(stock)"]


def test_null_of_the_last_call_is_what_was_read(cloud: Cloud, client: Redis) -> None:
    client.get("shelf")
    found = compared(cloud, None, ["7"])
    assert found.kind == "compared"
    [sought] = found.sought
    assert (sought.subject.name, found.unwritten) == ("shelf", {sought: "never"})


def test_a_value_of_one_command_of_a_pipeline(cloud: Cloud, client: Redis) -> None:
    pipeline = client.pipeline()
    for key in ("stock", "user:1", "missing"):
        pipeline.get(key)
    pipeline.exec()
    assert data(cloud, 41) == ["stock"]
    assert data(cloud, None) == ["missing"]


def test_a_value_over_the_redis_protocol(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    with redis.Redis.from_url(kv.env["REDIS_URL"]) as connection:
        connection.hget("cart:1", "tea")
        connection.set("later", "green")
    assert data(cloud, "green") == ["cart:1 tea"]


def test_messages_by_id_body_and_what_their_destination_answered(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.respond("https://app.example", 200, {"receipt": "r-1"})
    ids = [
        requests.post(
            f"{queue.url}/v2/publish/https://app.example",
            json=body, headers=queue.headers, timeout=10,
        ).json()["messageId"]
        for body in ({"order": 1111}, {"order": 2222})
    ]  # fmt: skip
    queue.run_until_idle()
    assert data(cloud, ids[0]) == [ids[0]]
    assert data(cloud, {"order": 2222}) == [ids[1]]
    assert data(cloud, 1111) == [ids[0]]
    assert data(cloud, "r-1") == [ids[1]]


def test_the_answer_of_a_destination_is_compared_with_its_credentials_masked(cloud: Cloud) -> None:
    queue = cloud.queue()
    url, answer = "https://app.example", {"key": queue.token}
    queue.destinations.respond(url, (200, answer), (200, "fine"))
    first, _ = (queue.publish(url, json={"order": order}).id for order in (1, 2))
    queue.run_until_idle()
    assert data(cloud, answer) == [first]


def test_vectors_by_id_and_metadata(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    for vector_id, colour in (("a", "red"), ("b", "blue")):
        body: Any = {"id": vector_id, "vector": [1, 2], "metadata": {"colour": colour}}
        requests.post(f"{index.url}/upsert/shop", json=body, headers=index.headers, timeout=10)
    assert data(cloud, "a") == ["shop a"]
    assert data(cloud, {"colour": "blue"}) == ["shop b"]


def test_topics_groups_and_records(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1, "other": 1})
    for topic, value in (("orders", "one-1"), ("other", "two-2")):
        body = {"topic": topic, "value": value}
        requests.post(f"{broker.url}/produce", json=body, headers=broker.headers, timeout=10)
    requests.get(
        f"{broker.url}/consume/billing/c1/orders",
        headers={**broker.headers, "Kafka-Auto-Offset-Reset": "earliest"}, timeout=10,
    )  # fmt: skip
    assert data(cloud, "other") == ["other"]
    assert data(cloud, "billing") == ["billing"]
    assert data(cloud, "two-2") == ["other"]
    assert data(cloud, "one-1") == ["billing", "orders"]


def test_an_action_of_the_test(cloud: Cloud, kv: KVServer) -> None:
    kv.execute("SET", "prepared", "black")
    assert data(cloud, "black") == ["prepared"]


def test_without_a_failed_statement_nothing_is_marked(cloud: Cloud, client: Redis) -> None:
    assert report_of(cloud).read_data is None


def test_nothing_was_compared_without_calls(cloud: Cloud, kv: KVServer) -> None:
    assert report_of(cloud, read=["a", 1]).read_data is None
