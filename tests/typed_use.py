"""Tests as a user would write them, for type checkers; they are never run.

``test_public_surface.py`` expects an error on each line that ends with ``# wrong``, and on no
other.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, assert_type

import pytest

from pytest_fakecloud import (
    Attempts,
    Broker,
    Call,
    Callback,
    CallbackCapture,
    Cloud,
    CommandError,
    DeadLetterView,
    Destination,
    Fake,
    Fault,
    GroupView,
    KVServer,
    ProducerRecord,
    PublishedMessage,
    Queue,
    Record,
    Response,
    Results,
    Search,
    SearchIndexView,
    Snapshot,
    TopicPartition,
    TopicView,
    VectorIndex,
)


@pytest.fixture
def loaded(kv_server: KVServer) -> KVServer:
    kv_server.load({"greeting": "hello", "n": 1, b"raw": b"\xff", "board": [("ann", 1.5)]})
    kv_server.load([["SET", "k", "v"], ("EXPIRE", b"k", 60)])
    kv_server.load(5)  # wrong
    kv_server.load([["SET", "k", None]])  # wrong
    return kv_server


def test_misspelt_import() -> None:
    from pytest_fakecloud import KvServer  # noqa: F401  # wrong


def test_clouds() -> None:
    cloud = Cloud(seed=1, delivery="driven", now="2026-01-01T00:00:00Z")
    assert_type(cloud.kv_server(daily_limit=5, port=0), KVServer)
    assert_type(cloud.queue(retries=1), Queue)
    assert_type(cloud.journal.calls(status=200), Results[Call])
    cloud.clock.advence("1h")  # wrong
    assert_type(cloud.fakes(), Results[Fake])
    held: bool = cloud.every_failure(print, status=500).only().held
    text: str = str(cloud.replay("x.har", move_clock=False)[0].where)
    print(held, text)
    cloud.kv_server(colour="green")  # wrong
    cloud.broker(max_poll_records="x")  # wrong
    cloud.vector_index(dimensions=3)  # wrong
    cloud.queue(token=5)  # wrong
    cloud.destination(keys={})  # wrong
    cloud.callback_capture(key={})  # wrong
    cloud.every_failure(print, stauts=500)  # wrong
    cloud.allow("unrouted", path="/health", method="GET")
    cloud.allow("unrouted", pth="/health")  # wrong
    cloud.journal.calls(lambda call: call.status == 200, comand="SET")  # wrong
    cloud.journal.events("attempt", mesage_id="msg_1")  # wrong
    cloud.replay("x.har", into=5)  # wrong
    server: Queue = cloud.kv_server()  # wrong
    Cloud(transport="pigeon")  # wrong
    print(server)


def use_calls(calls: Results[Call]) -> None:
    """Calls of an unknown fake can be filtered by the facts of all services."""
    assert_type(calls.where(command="SET").where(topic="orders"), Results[Call])
    calls.where(comand="SET")  # wrong


def test_every_handle(fakecloud: Cloud, kv_server: KVServer, destination: Destination) -> None:
    fakecloud.clock.advance("24h")
    fakecloud.clock.advance(timedelta(hours=1))
    fakecloud.clock.advance([1])  # wrong
    for fake in (kv_server, destination):
        assert_type(fake.url, str)
        assert_type(fake.env, dict[str, str])
        use_calls(fake.assert_called("/set/*", times=1, status=200))
        assert_type(fake.assert_called(re.compile("/set")).only().status, int | None)
        fake.assert_not_called(5)  # wrong
    saved = assert_type(kv_server.snapshot(), Snapshot)
    kv_server.restore(saved)
    kv_server.restore("saved")  # wrong
    print(kv_server.engine)  # wrong
    kv_server.assert_called("/set/*", stauts=200)  # wrong
    kv_server.assert_not_called(comand="SET")  # wrong
    kv_server.faults.drop(comand="SET")  # wrong
    fakecloud.journal.assert_called("SET", topic="orders", command="SET", url="https://a.test")
    fakecloud.journal.events(message_id="msg_1").where(group="g", kind="join")
    kv_server.assert_called(command="SET").where(words=["SET", "k", "*"])
    kv_server.assert_called(topic="orders")  # wrong
    kv_server.assert_called(command="SET").where(topic="orders")  # wrong
    kv_server.journal.calls(namespace="ns")  # wrong
    kv_server.journal.events(group="g")  # wrong
    kv_server.faults.drop(url="https://a.test")  # wrong
    destination.assert_called(command="SET")  # wrong
    fault = assert_type(kv_server.faults.respond(503, times=2, command="SET"), Fault)
    fault.remove()
    kv_server.faults.respond("503")  # wrong
    kv_server.faults.delay(None)  # wrong
    kv_server.faults.rate_limit()  # wrong
    kv_server.faults.sequence([503, None, Response(429, {"a": 1}), "drop"])


def test_kv(loaded: KVServer) -> None:
    assert loaded.execute("GET", b"k", 1, 2.5) == "v"
    loaded.execute("SET", "k", None)  # wrong
    loaded.execute("GET", "k").upper()  # wrong
    print(loaded.execute("INCR", "n") + 1)  # wrong
    reply = loaded.execute("LRANGE", "l", 0, -1)
    assert isinstance(reply, list)
    assert reply[0] == "a"
    int(loaded.value("k"))  # wrong
    assert_type(loaded.integer("k"), int | Any)
    assert loaded.integer("k") + 1 == 2
    assert_type(loaded.entries("k")[0][0], str)
    assert_type([*loaded.array("k")], list[int])
    assert loaded.value("h") == {"field": "value"}
    assert loaded.value("board") == [("ann", 1.5)]
    print(loaded.value("h")["field"])  # wrong
    fields = loaded.value("h")
    assert isinstance(fields, dict)
    assert fields["field"] == "value"
    loaded.value(5)  # wrong
    names: list[str] = sorted(loaded.keys("user:*"))
    numbers: list[int] = loaded.keys()  # wrong
    assert loaded.contents()["k"] == "v"
    print(names, numbers)
    seconds: str = loaded.ttl("k")  # wrong
    print(seconds)
    with loaded.between(("GET", "SET"), key="stock:*", run=["SET", "k", "x"]) as race:
        assert_type(race.hits, int)
    loaded.between(run=print, keys="stock:*")  # wrong
    loaded.assert_called("SET", key="b")
    loaded.journal.calls(key=re.compile("^b")).where(key="b")
    loaded.faults.drop(key=str.isupper)
    assert_type(loaded.searches(), Results[Search])
    loaded.between(1.5, run=print)  # wrong
    with pytest.raises(CommandError, match="WRONGTYPE"):
        loaded.execute("INCR", "board")
    assert_type(loaded.search_index("products"), SearchIndexView)
    assert_type(loaded.assert_searched("products", times=1), Results[Search])
    loaded.assert_not_searched(5)  # wrong
    loaded.assert_searched("products", key="p:1")  # wrong
    loaded.assert_not_searched("products", kyes="p:1")  # wrong


def test_vector(vector_index: VectorIndex) -> None:
    vector_index.load({"a": [1, 2], "b": "text", "c": {"vector": [1, 2]}})
    vector_index.load([("a", [1, 2], {"n": 1}), {"id": "b", "vector": [1, 2]}], namespace="ns")
    vector_index.load(5)  # wrong
    assert_type(vector_index.vectors(limit=3), Results[dict[str, Any]])
    vector_index.vectors(limit="3")  # wrong
    assert_type(vector_index.assert_upserted("a", metadata={"n": 1}), Results[dict[str, Any]])
    vector_index.assert_upserted("a", metdata={"n": 1})  # wrong
    vector_index.assert_queried(top_k=3, includeMetadata=True, filter="n = *", times=1)
    vector_index.assert_not_queried(top_k="3")  # wrong
    with vector_index.holding():
        assert_type(vector_index.pending(), Results[dict[str, Any]])
    assert_type(vector_index.matches("n = 1", {"n": 1}), bool)
    vector_index.matches(1, {})  # wrong


def test_broker(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3, retention="7d")
    broker.create_topic("orders", partition=3)  # wrong
    assert_type(broker.produce("orders", {"id": 1}, key="k").offset, int)
    assert_type(broker.produce("orders", ["a", ProducerRecord("orders", "b")])[0].partition, int)
    broker.produce("orders", "v", headers={"h": 1})  # wrong
    broker.load({"orders": ["v", {"value": "v", "key": "k"}]})
    broker.load([{"topic": "orders", "value": 1}, ProducerRecord("orders", "v")])
    broker.load(5)  # wrong
    assert_type(broker.assert_produced("orders", {"id": 1}, offset=0).only(), Record)
    assert_type(broker.records("orders", key="k", value="v*"), Results[Record])
    broker.assert_not_produced("orders", partition="0")  # wrong
    broker.records("orders", vaule=1)  # wrong
    record = broker.wait_for_record("orders", lambda entry: entry.key == "k", timeout=1)
    assert_type(record.value, str)
    assert_type(broker.assert_committed("g", "orders", 0, 1).only().offset, int)
    assert_type(broker.topics().where(partitions=3), Results[TopicView])
    broker.topics().where(partition=3)  # wrong
    topic = assert_type(broker.topic("orders"), TopicView)
    assert_type(topic.add_partitions(2), int)
    topic.delete_records(1)  # wrong
    assert_type(broker.groups().where(name="g", state="Stable").last, GroupView)
    broker.groups().where(stat="Stable")  # wrong
    group = assert_type(broker.group("g"), GroupView)
    assert_type(group.lag, dict[TopicPartition, int])
    group.leave(1)  # wrong
    broker.faults.redeliver("g", last="1")  # wrong
    with broker.faults.reorder(group="g"), broker.faults.partial_produce(1, topic="orders"):
        broker.faults.partial_produce(keep=1, tims=2)  # wrong


def test_queue(queue: Queue, callback_capture: CallbackCapture, destination: Destination) -> None:
    message = queue.publish(destination.url, json={"n": 1}, callback=callback_capture.callback_url)
    assert_type(message, PublishedMessage)
    queue.publish(destination.url, delay=[1])  # wrong
    queue.publish(destination.url, retry=3)  # wrong
    assert_type(queue.run_until_idle(), Attempts)
    queue.advance("1h")  # wrong
    queue.delivery = "background"  # wrong
    attempt = queue.attempts(status=200).last
    assert_type(attempt.status, int | None)
    assert_type(queue.assert_delivered(label="x", times=1), Results[PublishedMessage])
    queue.assert_not_delivered(lable="x")  # wrong
    assert_type(queue.dead_letters(), Results[DeadLetterView])
    assert_type(queue.dead_letters("https://a.test/*", status=500), Results[DeadLetterView])
    queue.dead_letters(statsu=500)  # wrong
    queue.attempts(message, statsu=500)  # wrong
    queue.deliver_due().where(statsu=500)  # wrong
    queue.messages("pending", lable="x")  # wrong
    queue.messages().where(lable="x")  # wrong
    queue.dead_letters().where(statsu=500)  # wrong
    queue.schedules().where(corn="* * * * *")  # wrong
    queue.journal.calls().where(stauts=200)  # wrong
    assert_type(queue.dead_letters().where(status=500), Results[DeadLetterView])
    assert_type(callback_capture.wait_for_callback(timeout=1, status=200), Callback)
    callback_capture.wait_for_failure(stauts=500)  # wrong
    callback_capture.wait_for_callback(2)  # wrong
    assert_type(callback_capture.callbacks().where(status=200), Results[Callback])
    callback_capture.assert_callback(stauts=200)  # wrong
    callback_capture.callbacks().where(stauts=200)  # wrong
    queue.destinations.respond("https://a.example.com/*", 200, after="1s")
    queue.faults.drop_callback(times=1, kind="callback")
    queue.faults.duplicate(lable="x")  # wrong
    print(queue.engine)  # wrong


@pytest.fixture(scope="session")
def fakecloud_session_settings() -> dict[str, Any]:
    return {"clock": "frozen", "kv_server": {"dialect": "vendor"}}


def test_the_other_fixtures(
    fakecloud_kv: KVServer,
    fakecloud_vector: VectorIndex,
    fakecloud_broker: Broker,
    fakecloud_queue: Queue,
    fakecloud_env: Cloud,
    fakecloud_session: Cloud,
    fakecloud_settings: dict[str, Any],
) -> None:
    assert_type(fakecloud_kv.ttl("key"), float | Any)
    assert 0 < fakecloud_kv.ttl("key") <= 60
    assert_type(fakecloud_session.env, dict[str, str])
    fakecloud_env.clock.advance(object())  # wrong
    fakecloud_session.kv_server(dialekt="vendor")  # wrong
    fakecloud_vector.vectors(limit="all")  # wrong
    fakecloud_broker.create_topic("t", partitions="3")  # wrong
    fakecloud_queue.publish(b"https://app.test")  # wrong
    fakecloud_kv.load(fakecloud_settings)
