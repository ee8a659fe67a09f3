"""Workers and handlers that lose work, or do it twice, each with a corrected version.

They have no promises, because exploration names the anomaly without one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import redis as redispy
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest

from . import Make, Scenario
from .queues import HOOK, parts

if TYPE_CHECKING:
    pass


def _unchecked(run: Callable[[], object], **workers: Callable[[], object]) -> Scenario:
    return Scenario({"web": run}, lambda: None, workers=workers)


def _entries(client: Any, start: str, consumer: str = "one") -> list[Any]:
    reply = client.xreadgroup("group", consumer, {"jobs": start}, count=1)
    return [entry for _, entries in reply or [] for entry in entries]


def _stream(cloud: Cloud) -> Any:
    kv = cloud.kv_server()
    kv.execute("XGROUP", "CREATE", "jobs", "group", "0", "MKSTREAM")
    return redispy.Redis.from_url(kv.database_url, decode_responses=True, protocol=2)


# -- work that counts as done ----------------------------------------------------------------------


def cursor_first(cloud: Cloud, corrected: bool) -> Scenario:
    """A worker stores its position before it has handled the records, or afterwards."""
    _, _, redis, _ = parts(cloud)

    def work() -> None:
        at = int(redis.get("cursor") or 0)
        while row := redis.lindex("rows", at):
            at += 1
            if not corrected:
                redis.set("cursor", at)
            redis.sadd("view", row)
            if corrected:
                redis.set("cursor", at)

    return _unchecked(lambda: redis.rpush("rows", "a", "b"), worker=work)


def removed_first(cloud: Cloud, corrected: bool) -> Scenario:
    """A worker removes what is due before it publishes it, or afterwards."""
    _, queue, redis, qstash = parts(cloud)
    queue.destinations.call(HOOK, lambda request: None)

    def work() -> None:
        for name in redis.zrange("due", 0, -1):
            if corrected or redis.zrem("due", name):
                qstash.message.publish_json(url=HOOK, body={"name": name})
            if corrected:
                redis.zrem("due", name)

    return _unchecked(lambda: redis.zadd("due", {"a": 1, "b": 2}), worker=work)


def flushed(cloud: Cloud, corrected: bool) -> Scenario:
    """A worker takes a count, and adds it to the total in a second command, or in a script."""
    _, _, redis, _ = parts(cloud)
    flush = (
        "local n = redis.call('GETDEL', KEYS[1]) "
        "if n then redis.call('INCRBY', KEYS[2], n) end return n"
    )

    def work() -> None:
        if corrected:
            redis.eval(flush, keys=["views", "total"])
        elif count := redis.getdel("views"):
            redis.incrby("total", int(count))

    return _unchecked(lambda: redis.incr("views"), worker=work)


def committed_batch(cloud: Cloud, corrected: bool) -> Scenario:
    """A consumer commits all that it has received, or the record that it has handled."""
    kv, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis, http = Redis(kv.url, kv.token, rest_retries=0), broker.client()
    http.headers.update(
        {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
    )

    def order() -> None:
        for value in "ab":
            http.post("/produce/orders", json={"value": value}).raise_for_status()

    def work() -> None:
        http.post("/delete-consumer/group/one")
        poll = {"topic": "orders", "timeout": 0}
        while records := http.post("/consume/group/one", json=poll).raise_for_status().json():
            for record in records:
                redis.sadd("done", record["value"])
                place = {key: record[key] for key in ("topic", "partition")}
                place["offset"] = record["offset"] + 1
                http.post("/commit/group/one", json=place if corrected else None).raise_for_status()

    return _unchecked(order, worker=work)


def buried_entry(cloud: Cloud, corrected: bool) -> Scenario:
    """A worker acknowledges a job before it puts it aside; others claim those that are pending."""
    client = _stream(cloud)

    def work() -> None:
        claimed = client.xautoclaim("jobs", "group", "one", 60_000)[1]
        for entry, fields in claimed + _entries(client, ">"):
            if not corrected:
                client.xack("jobs", "group", entry)
            client.xadd("aside", {**fields, "entry": entry})
            client.xack("jobs", "group", entry)

    return _unchecked(lambda: client.xadd("jobs", {"name": "a"}), worker=work)


EARLY: tuple[Make, ...] = (cursor_first, removed_first, flushed, committed_batch, buried_entry)


# -- messages --------------------------------------------------------------------------------------


def _handled(handle: Callable[[Redis, Any, bool], int | None]) -> Make:
    def make(cloud: Cloud, corrected: bool) -> Scenario:
        _, queue, redis, qstash = parts(cloud)

        def on_message(request: DeliveredRequest) -> int | None:
            return handle(redis, request.json(), corrected)

        queue.destinations.call(HOOK, on_message)

        def send() -> None:
            for kind in ("order", "payment"):
                qstash.message.publish_json(url=HOOK, body={"kind": kind, "id": "A"}, retries=3)

        return _unchecked(send)

    make.__name__ = handle.__name__
    return make


def random_invoice(redis: Redis, body: Any, corrected: bool) -> int | None:
    """An invoice has a random number, or that of its order."""
    number = body["id"] if corrected else uuid.uuid4()
    redis.hset(f"invoice:{number}", "amount", 5)
    return None


def announced_twice(cloud: Cloud, corrected: bool) -> Scenario:
    """The first of two clients announces something."""
    _, queue, redis, qstash = parts(cloud)
    queue.destinations.respond(HOOK, 200)

    def announce() -> None:
        if not redis.get("announced") and redis.set("announced", "yes", nx=corrected):
            qstash.message.publish_json(url=HOOK, body={"news": "open"})

    return Scenario({"one": announce, "two": announce}, lambda: None)


def retagged(cloud: Cloud, corrected: bool) -> Scenario:
    """Two clients each add a tag to the metadata of a vector, or of a vector of their own."""
    index = cloud.vector_index(dimension=2)
    client = index.client()
    ids = ("note:one", "note:two") if corrected else ("note", "note")
    client.upsert([(vector_id, [1, 2], {"tags": ""}) for vector_id in ids])

    def tag(id: str, name: str) -> None:
        [vector] = client.fetch([id], include_metadata=True)
        client.upsert([(id, [1, 2], {"tags": f"{vector.metadata['tags']} {name}"})])

    run = {name: partial(tag, id, name) for id, name in zip(ids, ("one", "two"), strict=True)}
    return Scenario(run, lambda: None)


REPEATED: tuple[Make, ...] = (_handled(random_invoice),)
