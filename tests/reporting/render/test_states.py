"""The state of a fake on the page covers everything that its engine keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.inspect.data import state_of
from pytest_fakecloud.kv.engine.engine import EngineCopy
from pytest_fakecloud.kv.engine.keyspace import KeyspaceCopy
from pytest_fakecloud.reporting.render.replayed import states
from pytest_fakecloud.reporting.report import report_of

from ..test_bodies import b64

NOT_DATA = {"accessed", "frequencies", "modified"}
"""What only the eviction of keys reads."""
KV = {
    "databases": [["SELECT", "1"], ["SET", "a", "1"]],
    "values": [["SET", "a", "2"]],
    "values of streams": [["XADD", "s", "1-1", "f", "v"], ["XGROUP", "CREATE", "s", "g", "0"]],
    "pending entries": [["XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "s", ">"]],
    "expires": [["EXPIRE", "a", "60"]],
    "scripting": [["SCRIPT", "LOAD", "return 1"]],
    "libraries": [
        ["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() end)"]
    ],
    "users": [["ACL", "SETUSER", "reader", "on", "+get", "~a"]],
    "config": [["CONFIG", "SET", "hash-max-listpack-entries", "7"]],
}
"""Commands by the part of the engine's data that the last one changes."""


def test_each_command_that_changes_the_data_of_a_server_changes_its_state(cloud: Cloud) -> None:
    parts = {*EngineCopy._fields, *KeyspaceCopy._fields} - NOT_DATA - {"indexes", "topology"}
    assert parts <= KV.keys()
    server = cloud.kv_server(dialect="redis")
    with redis.Redis.from_url(server.database_url, single_connection_client=True) as client:
        for part, commands in KV.items():
            for command in commands:
                before = state_of(server)
                client.execute_command(*command)
            assert state_of(server) != before, part


def test_nodes_and_their_slots_are_in_the_state_of_a_cluster(cloud: Cloud) -> None:
    server = cloud.kv_server(dialect="redis", cluster=1)
    before = state_of(server)["nodes"]
    assert before["node 1"] == {"role": "primary", "slots": ["0-16383"]}
    with redis.Redis.from_url(server.database_url) as client:
        client.execute_command("CLUSTER", "DELSLOTS", 0)
    assert state_of(server)["nodes"]["node 1"]["slots"] == ["1-16383"]
    server.reset()
    assert state_of(server)["nodes"] == before


@pytest.mark.parametrize(
    "commands",
    [
        ["SEARCH.CREATE i ON HASH PREFIX 1 p: SCHEMA f TEXT", "SEARCH.ALIASADD other i"],
        ["HSET h f v", "HEXPIRE h 60 FIELDS 1 f"],
        ["ACL SETUSER reader on >secret +get ~a"],
    ],
)
def test_each_command_of_the_vendor_that_changes_data_changes_the_state(
    cloud: Cloud, commands: list[str]
) -> None:
    server = cloud.kv_server()
    for command in commands:
        before = state_of(server)
        server.execute(*command.split())
    assert state_of(server) != before


WITH_MESSAGES = {"groups_of_tasks", "logs", "answered", "waiting_for_slot"}
"""What changes only together with a message."""
COUNTED = {"usage"}
"""The counters of the plan's quotas, which change only together with what they count."""


def send(queue: Any, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {**queue.headers, **options.pop("headers", {})}
    response = httpx.request(method, f"{queue.url}{path}", headers=headers, **options)
    assert response.is_success, response.text
    return response


def publish(queue: Any, **headers: str) -> None:
    named = {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()}
    send(queue, "POST", "/v2/publish/https://a.example.com", headers=named, content="x")


QUEUE: dict[str, list[Callable[[Any], Any]]] = {
    "messages": [publish],
    "queues": [
        lambda queue: send(queue, "POST", "/v2/queues", json={"queueName": "q", "parallelism": 2}),
        lambda queue: send(queue, "POST", "/v2/queues/q/pause"),
        lambda queue: send(queue, "POST", "/v2/queues/q/resume"),
        lambda queue: send(queue, "DELETE", "/v2/queues/q"),
    ],
    "url_groups": [
        lambda queue: send(queue, "POST", "/v2/topics/t/endpoints", json={
            "endpoints": [{"url": "https://a.example.com"}, {"url": "https://b.example.com"}]
        }),
        lambda queue: send(queue, "DELETE", "/v2/topics/t/endpoints", json={
            "endpoints": [{"url": "https://a.example.com"}]
        }),
        lambda queue: send(queue, "DELETE", "/v2/topics/t"),
    ],
    "schedules": [
        lambda queue: send(queue, "POST", "/v2/schedules/https://a.example.com", headers={
            "Upstash-Cron": "0 3 * * *", "Upstash-Schedule-Id": "s"
        }),
        lambda queue: send(queue, "PATCH", "/v2/schedules/s/pause"),
        lambda queue: send(queue, "PATCH", "/v2/schedules/s/resume"),
        lambda queue: send(queue, "DELETE", "/v2/schedules/s"),
    ],
    "flow_keys": [
        lambda queue: publish(queue, Flow_Control_Key="k", Flow_Control_Value="rate=1,period=60"),
        lambda queue: send(queue, "POST", "/v2/flowControl/k/pause"),
        lambda queue: send(queue, "POST", "/v2/flowControl/k/resume"),
    ],
    "deduplicated": [lambda queue: publish(queue, Deduplication_Id="d")],
    "runs": [lambda queue: publish(queue, Workflow_Init="true", Workflow_RunId="wfr_1",
                                   Workflow_Url="https://a.example.com")],
    "notified": [lambda queue: send(queue, "POST", "/v2/notify/wfr_1/e", content="data")],
}  # fmt: skip
"""Requests by the attribute of the engine that each of them changes."""
SECTIONS = {
    "url_groups": "URL groups", "schedules": "schedules", "flow_keys": "flow control",
    "deduplicated": "deduplication", "runs": "workflow runs", "notified": "early notifications",
}  # fmt: skip


@pytest.mark.parametrize("part", QUEUE)
def test_each_request_that_changes_the_data_of_a_queue_changes_its_state(
    cloud: Cloud, part: str
) -> None:
    queue = cloud.queue()
    if part == "notified":
        QUEUE["runs"][0](queue)
    section = SECTIONS.get(part, part)
    for request in QUEUE[part]:
        before = state_of(queue)[section]
        request(queue)
        assert state_of(queue)[section] != before
    data = states(cloud, report_of(cloud, test="t"))
    assert data["note"] == ""
    shown = {changed for step in data["steps"] for _, changed, *_ in step["changes"]}
    assert section in shown


def test_every_part_of_a_queue_is_in_its_state(cloud: Cloud) -> None:
    parts = set(cloud.queue()._engine.snapshot()._fields) - {"sequence", "dead_letter_count"}
    assert (
        parts - WITH_MESSAGES - COUNTED - {"dead_letters", "waiters", "bulk_actions"}
        <= QUEUE.keys()
    )


def test_a_wait_for_an_event_is_data(cloud: Cloud) -> None:
    queue = cloud.queue()
    QUEUE["runs"][0](queue)
    send(queue, "POST", "/v2/wait/e", headers={"Upstash-Workflow-RunId": "wfr_1"}, json={
        "url": "https://a.example.com", "timeout": "60s", "timeoutUrl": "https://a.example.com",
        "step": {"stepId": 1, "stepName": "w", "stepType": "Wait", "concurrent": 1},
    })  # fmt: skip
    assert [waiter["event"] for waiter in state_of(queue)["waits for events"].values()] == ["e"]


def test_a_resumable_query_and_a_topics_limits_are_data(cloud: Cloud) -> None:
    index, broker = cloud.vector_index(dimension=2), cloud.broker(topics={"orders": 1})
    index.load([{"id": str(number), "vector": [1.0, number]} for number in range(3)])
    before = state_of(index)
    body = {"vector": [1.0, 0.0], "topK": 1}
    httpx.post(f"{index.url}/resumable-query", json=body, headers=index.headers)
    assert state_of(index) != before
    before = state_of(broker)
    broker.topic("orders").set_retention("1d")
    assert state_of(broker) != before
    before = state_of(broker)
    broker.join("empty", "w", ["orders"])
    broker.group("empty").leave("w")
    assert state_of(broker)["groups"] != before["groups"]


@pytest.mark.parametrize(
    ("vector", "shown"),
    [([1.0, 2.5], [1.0, 2.5]), ([0.25] * 384, "[0.25, 0.25, 0.25, 0.25, …] (384 numbers, hash ")],
)
def test_vectors_are_folded_to_their_length_and_first_numbers(
    cloud: Cloud, vector: list[float], shown: Any
) -> None:
    index = cloud.vector_index(dimension=len(vector), ready_after="1s")
    client = index.client()
    client.upsert([("a", vector)])
    pending = state_of(index)["default namespace"]["a"]["vector"]
    client.upsert([("a", [*vector[:-1], 9.0])])
    cloud.clock.advance("2s")
    ready = state_of(index)["default namespace"]["a"]["vector"]
    assert pending[: len(shown)] == shown
    assert ready != pending


@pytest.mark.parametrize("body", ["text", '{"a": 1}'])
def test_fields_of_bodies_in_base64_are_marked(cloud: Cloud, body: str) -> None:
    queue = cloud.queue()
    queue.publish("https://a.example.com", json={"sourceMessageId": "m", "sourceBody": b64(body)})
    (item,) = state_of(queue)["messages"].values()
    assert '"sourceBody":{"Base64":' in item["body"]
