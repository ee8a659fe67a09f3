"""Applications whose effects are lost, repeated or out of order, each with a corrected version.

They have no promises, because exploration names the anomaly without one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest

from . import Make, Scenario
from .queues import HOOK, parts
from .reads import commit_past_a_failure
from .ten import commit_before_work

if TYPE_CHECKING:
    pass


def _unchecked(run: Mapping[str, Callable[[], object]], **more: Any) -> Scenario:
    return Scenario(run, lambda: None, **more)


# -- a record committed before its effect ----------------------------------------------------------


def commit_by_polling(cloud: Cloud, corrected: bool) -> Scenario:
    """A consumer whose offsets each poll commits notes the orders of a topic."""
    kv, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis = Redis(kv.url, kv.token, rest_retries=0)
    headers = {
        "Kafka-Auto-Offset-Reset": "earliest",
        "Kafka-Enable-Auto-Commit": str(not corrected).lower(),
        "Kafka-Auto-Commit-Interval": "0",
    }
    auth = (broker.username, broker.password)
    http = httpx.Client(base_url=broker.url, auth=auth, headers=headers)

    def note() -> None:
        while records := http.get("/consume/group/one/orders").raise_for_status().json():
            for record in records:
                with contextlib.suppress(*[] if corrected else [Exception]):
                    redis.sadd("orders", record["value"])
                place = {"topic": "orders", "partition": 0, "offset": record["offset"] + 1}
                if corrected:
                    http.post("/commit/group/one", json=place).raise_for_status()

    shop = {"shop": lambda: http.post("/produce/orders", json={"value": "kettle"})}
    return _unchecked(shop, workers={"clerk": note})


# -- a message acknowledged before its effect ------------------------------------------------------


def _handled(handle: Callable[[Redis, str, bool], None]) -> Make:
    def make(cloud: Cloud, corrected: bool) -> Scenario:
        _, queue, redis, qstash = parts(cloud)

        def on_message(request: DeliveredRequest) -> None:
            handle(redis, request.json()["order"], corrected)

        queue.destinations.call(HOOK, on_message)
        shop = lambda: qstash.message.publish_json(url=HOOK, body={"order": "A"}, retries=2)  # noqa: E731
        return _unchecked({"shop": shop})

    make.__name__ = handle.__name__
    return make


def swallowed_error(redis: Redis, order: str, corrected: bool) -> None:
    """A handler answers 200 although it could not store the order."""
    with contextlib.suppress(*[] if corrected else [Exception]):
        redis.hset("orders", order, "placed")


def marked_first(redis: Redis, order: str, corrected: bool) -> None:
    """A handler marks a message as handled before it has handled it."""
    if corrected:
        redis.sadd("parcels", order)
    elif redis.setnx(f"seen:{order}", "1"):
        redis.rpush("parcels", order)


def given_up(redis: Redis, order: str, corrected: bool) -> None:
    """A handler gives up after a second try, and answers 200."""
    for attempt in range(2):
        try:
            redis.zadd("queue", {order: 1})
            return
        except Exception:
            if corrected and attempt:
                raise
            if not corrected:
                return


# -- two stores, both of which are right -----------------------------------------------------------


def invalidated_page(cloud: Cloud) -> Scenario:
    """A page in a cache is deleted because a vector has changed."""
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    kv.load({"page": "old"})
    index.load([("kettle", [1.0, 2.0], {"cents": 30})])
    redis, client = Redis(kv.url, kv.token, rest_retries=0), index.client()

    def edit() -> None:
        client.update("kettle", metadata={"cents": 25})
        redis.delete("page")

    return _unchecked({"editor": edit})


def spent_code(cloud: Cloud) -> Scenario:
    """A code that expires is deleted when it is used."""
    kv, queue, redis, qstash = parts(cloud)
    kv.load({"code": "1234"})
    kv.execute("EXPIRE", "code", 600)
    queue.destinations.respond(HOOK, 200)

    def log_in() -> None:
        if redis.get("code") == "1234":
            redis.delete("code")
            qstash.message.publish_json(url=HOOK, body={"login": "ann"})

    return _unchecked({"ann": log_in})


def absent_vectors(cloud: Cloud) -> Scenario:
    """Vectors are deleted that do not exist."""
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    redis, notes = Redis(kv.url, kv.token, rest_retries=0), index.client()
    return _unchecked(
        {"author": lambda: (redis.hset("notes", "note", "draft"), notes.delete(["note"]))}
    )


def booked_once(cloud: Cloud) -> Scenario:
    """A script recognises a booking, so the browser sends it again."""
    _, queue, redis, qstash = parts(cloud)
    queue.destinations.respond(HOOK, 200)
    take = """
    if redis.call('EXISTS', KEYS[2]) == 0 then
      redis.call('DECR', KEYS[1])
      redis.call('HSET', KEYS[2], 'state', 'reserved')
    end
    """

    def book() -> None:
        redis.eval(take, keys=["seats", "booking"])
        qstash.message.publish_json(url=HOOK, body={}, deduplication_id="booking")

    return _unchecked({"browser": book})


HARMLESS = (booked_once, invalidated_page, spent_code, absent_vectors)


# -- a vector written after the deletion of what it belongs to -------------------------------------


def _embedded(embed: Callable[[Redis, Any, bool], None]) -> Make:
    """Someone embeds the note of a user, who leaves."""

    def make(cloud: Cloud, corrected: bool) -> Scenario:
        kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
        kv.load({"user:ann": {"note": "x"}, "users": {"ann"}})
        redis, notes = Redis(kv.url, kv.token, rest_retries=0), index.client()

        def leave() -> None:
            redis.delete("user:ann")
            redis.srem("users", "ann")
            notes.delete(prefix="ann:") if embed is embed_member else notes.delete(["ann:1"])

        run = {"writer": lambda: embed(redis, notes, corrected), "ann": leave}
        # The user who leaves also leaves her vectors if the second deletion fails.
        return _unchecked(run, options={"kinds": "switch"})

    make.__name__ = embed.__name__
    return make


def embed_member(redis: Redis, notes: Any, corrected: bool) -> None:
    if redis.sismember("users", "ann"):
        notes.upsert([("ann:1", [1, 2])])
    if corrected and not redis.sismember("users", "ann"):
        notes.delete(["ann:1"])


def embed_note(redis: Redis, notes: Any, corrected: bool) -> None:
    if redis.hget("user:ann", "note"):
        # Nobody deletes the vector of a note that is not the user's.
        notes.upsert([("all:1" if corrected else "ann:1", [1, 2])])


def embed_profile(redis: Redis, notes: Any, corrected: bool) -> None:
    if corrected:
        notes.upsert([("ann:1", [1, 2])])
    elif redis.exists("user:ann"):
        notes.upsert([("ann:1", [1, 2]), ("ann:2", [2, 1])])


DELETED = tuple(map(_embedded, (embed_member, embed_note, embed_profile)))
EFFECTS: dict[str, tuple[Make, ...]] = {
    "early commit": (commit_before_work, commit_past_a_failure, commit_by_polling),
    "early acknowledgement": tuple(map(_handled, (swallowed_error, marked_first, given_up))),
}
"""Applications by the name of their anomaly."""
