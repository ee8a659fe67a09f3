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

from . import Make, Scenario, workflow
from .queues import HOOK, parts
from .reads import commit_past_a_failure
from .ten import commit_before_work

if TYPE_CHECKING:
    from upstash_workflow import WorkflowContext


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


# -- two stores, one of which is not written -------------------------------------------------------


def saved_not_sent(cloud: Cloud, corrected: bool) -> Scenario:
    """An order is stored, and then published; corrected, a relay publishes what is in the outbox."""
    _, queue, redis, qstash = parts(cloud)

    def ship(request: DeliveredRequest) -> None:
        redis.sadd("shipped", request.json()["order"])

    queue.destinations.call(HOOK, ship)

    def place() -> None:
        if corrected:
            redis.hset("outbox", "A", "placed")
            return
        redis.hset("orders", "A", "placed")
        qstash.message.publish_json(url=HOOK, body={"order": "A"})

    def relay() -> None:
        for order in redis.hgetall("outbox") or {}:
            qstash.message.publish_json(url=HOOK, body={"order": order})
            redis.hdel("outbox", order)

    return _unchecked({"shop": place}, workers={"relay": relay} if corrected else {})


def sent_not_saved(cloud: Cloud, corrected: bool) -> Scenario:
    """A mail is sent for an account that may not exist; corrected, the message creates both."""
    _, queue, redis, qstash = parts(cloud)

    def mail(request: DeliveredRequest) -> None:
        if corrected:
            redis.hset("accounts", "ann", "new")
        redis.sadd("mails", "ann")

    queue.destinations.call(HOOK, mail)

    def register() -> None:
        qstash.message.publish_json(url=HOOK, body={})
        if not corrected:
            redis.hset("accounts", "ann", "new")

    return _unchecked({"shop": register})


def saved_not_produced(cloud: Cloud, corrected: bool) -> Scenario:
    """A price is stored, and a record tells of it; corrected, the price expires with its lease."""
    kv, broker = cloud.kv_server(), cloud.broker(topics={"prices": 1})
    redis = Redis(kv.url, kv.token, rest_retries=0)
    http = httpx.Client(base_url=broker.url, auth=(broker.username, broker.password))

    def change() -> None:
        redis.set("price", "25", ex=60 if corrected else None)
        http.post("/produce/prices", json={"value": "25"}).raise_for_status()

    return _unchecked({"shop": change})


def account_erased_first(cloud: Cloud, corrected: bool) -> Scenario:
    """An account is deleted before its notes, which nobody finds then; corrected, afterwards."""
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    kv.load({"account:ann": {"mail": "ann@example.com"}})
    index.load({"ann/1": [1.0, 0.0]})
    redis, notes = Redis(kv.url, kv.token, rest_retries=0), index.client()

    def erase() -> None:
        if redis.exists("account:ann"):
            deletions = [lambda: redis.delete("account:ann"), lambda: notes.delete(["ann/1"])]
            for delete in reversed(deletions) if corrected else deletions:
                delete()

    return _unchecked({"support": erase})


def archived_not_removed(cloud: Cloud, corrected: bool) -> Scenario:
    """A note is archived, but may still be found; corrected, a sweep removes what is archived."""
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    index.load({"note": [1.0, 0.0]})
    redis, notes = Redis(kv.url, kv.token, rest_retries=0), index.client()

    def archive() -> None:
        redis.hset("notes", "note", "archived")
        notes.delete(["note"])

    def sweep() -> None:
        if redis.hget("notes", "note") == "archived":
            notes.delete(["note"])

    return _unchecked({"author": archive}, workers={"sweeper": sweep} if corrected else {})


def emptied_basket(cloud: Cloud, corrected: bool) -> Scenario:
    """A basket is deleted before it is ordered; corrected, it is ordered first, and once."""
    kv, queue, redis, qstash = parts(cloud)
    kv.load({"basket": "kettle"})
    queue.destinations.respond(HOOK, 200)

    def order() -> None:
        if goods := redis.get("basket"):
            if not corrected:
                redis.delete("basket")
            qstash.message.publish_json(url=HOOK, body={"goods": goods}, deduplication_id="1")
            if corrected:
                redis.delete("basket")

    return _unchecked({"shop": order})


HALF_DELETED = (account_erased_first, archived_not_removed, emptied_basket)


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


# -- an effect of a workflow outside its steps -----------------------------------------------------


def _workflow(effect: Callable[[Redis, httpx.Client], object]) -> Make:
    def make(cloud: Cloud, corrected: bool) -> Scenario:
        _, queue, redis, qstash = parts(cloud)
        broker = cloud.broker(topics={"mails": 1})
        http = httpx.Client(base_url=broker.url, auth=(broker.username, broker.password))

        def run(context: WorkflowContext[Any]) -> None:
            if corrected:
                context.run("effect", lambda: bool(effect(redis, http)))
            else:
                effect(redis, http)
            context.run("end", lambda: redis.set("ended", "1"))

        # A step that is delivered again repeats its effect, with or without the flaw.
        return _unchecked({"shop": workflow(queue, qstash, run)}, options={"kinds": "switch"})

    make.__name__ = effect.__name__
    return make


def charged(redis: Redis, http: httpx.Client) -> object:
    """A workflow charges its customer."""
    return redis.hincrby("charged", "ann", 5)


def logged(redis: Redis, http: httpx.Client) -> object:
    """A workflow logs a mail."""
    return redis.rpush("log", "mailed ann")


def told(redis: Redis, http: httpx.Client) -> object:
    """A workflow tells the consumers of a topic."""
    return http.post("/produce/mails", json={"value": "ann"}).raise_for_status().status_code


# -- messages that overtake each other -------------------------------------------------------------

NEWER = (
    "if tonumber(ARGV[2]) > tonumber(redis.call('HGET', KEYS[1], 'number') or '0') then "
    "redis.call('HSET', KEYS[1], 'state', ARGV[1], 'number', ARGV[2]) end"
)


def _told_in_order(write: Callable[[Redis, str], object]) -> Make:
    def make(cloud: Cloud, corrected: bool) -> Scenario:
        _, queue, redis, qstash = parts(cloud)

        def on_message(request: DeliveredRequest) -> None:
            number = str(request.json()["number"])
            if corrected:
                redis.eval(NEWER, keys=["state"], args=[number, number])
            else:
                write(redis, number)

        queue.destinations.call(HOOK, on_message)

        def tell() -> None:
            for number in (1, 2):
                qstash.message.publish_json(url=HOOK, body={"number": number})

        return _unchecked({"shop": tell})

    make.__name__ = write.__name__
    return make


def replaced(redis: Redis, number: str) -> object:
    """A handler stores the state of a message."""
    return redis.set("state", number)


def replaced_field(redis: Redis, number: str) -> object:
    """A handler stores the state of a message in a field."""
    return redis.hset("state", "number", number)


def replaced_document(redis: Redis, number: str) -> object:
    """A handler stores a document."""
    return redis.mset({"state": f'{{"number": {number}}}'})


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
    "dual write": (saved_not_sent, sent_not_saved, saved_not_produced, *HALF_DELETED),
    "effect outside a step": tuple(map(_workflow, (charged, logged, told))),
    "overtaken message": tuple(map(_told_in_order, (replaced, replaced_field, replaced_document))),
}
"""Applications by the name of their anomaly."""
