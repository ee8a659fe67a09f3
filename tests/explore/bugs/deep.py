"""Applications with bugs of several disturbances: retries, poison messages, redrives, compensations.

No single disturbance breaks them, and few pairs do: each failure must meet what the last one left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis as redispy
from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest

from . import Make, Scenario
from .queues import HOOK, parts

_ENDS = ("crash", "drop", "lose_response")
_NO_SWITCHES = ("crash", "drop", "lose_response", "respond", "delay", "slow")


def _tries(times: int, call: Callable[[], object]) -> bool:
    """Try a call several times; return whether it succeeded."""
    for _ in range(times):
        try:
            call()
        except Exception:
            continue
        return True
    return False


def _somewhere(kv: Any, item: str, *keys: str) -> None:
    """Assert that a job is in one of several lists and sets."""
    assert any(item in (kv.value(key) or ()) for key in keys), f"{item} is lost"


def buried_job(cloud: Cloud, corrected: bool) -> Scenario:
    """A worker buries a job that it has begun three times: four crashes."""
    kv, _, redis, _ = parts(cloud)
    kv.load({"jobs": ["a"]})

    def bury(job: str) -> None:
        if corrected:
            redis.rpush("dead", job)
        redis.lrem("busy", 1, job)
        if not corrected:
            redis.rpush("dead", job)

    def work() -> None:
        while redis.lmove("busy", "jobs"):
            pass
        while job := redis.lmove("jobs", "busy"):
            if redis.hincrby("attempts", job, 1) > 3:
                bury(job)
            else:
                redis.sadd("done", job)
                redis.lrem("busy", 1, job)

    def check() -> None:
        _somewhere(kv, "a", "jobs", "busy", "done", "dead")

    return Scenario({}, check, workers={"worker": work})


def poisoned_entry(cloud: Cloud, corrected: bool) -> Scenario:
    """A worker acknowledges an entry that was delivered three times, then puts it aside."""
    kv = cloud.kv_server()
    kv.execute("XGROUP", "CREATE", "jobs", "group", "0", "MKSTREAM")
    kv.execute("XADD", "jobs", "1-1", "name", "a")
    client = redispy.Redis.from_url(kv.database_url, decode_responses=True, protocol=2)

    def work() -> None:
        for pending in client.xpending_range("jobs", "group", "-", "+", 10):
            [(entry, fields)] = client.xclaim(
                "jobs", "group", "one", 0, [pending["message_id"]], retrycount=None
            )
            if pending["times_delivered"] >= 3:
                if corrected:
                    client.sadd("aside", fields["name"])
                client.xack("jobs", "group", entry)
                client.sadd("aside", fields["name"])
            else:
                client.sadd("done", fields["name"])
                client.xack("jobs", "group", entry)
        for _, entries in client.xreadgroup("group", "one", {"jobs": ">"}, count=1) or []:
            for entry, fields in entries:
                client.sadd("done", fields["name"])
                client.xack("jobs", "group", entry)

    def check() -> None:
        is_pending = client.xpending("jobs", "group")["pending"]
        assert is_pending or kv.value("done") or kv.value("aside"), "a is lost"

    return Scenario({}, check, workers={"worker": work})


def refund_after_failures(cloud: Cloud, corrected: bool) -> Scenario:
    """A handler gives up an order at its third delivery: it marks the order, then refunds it."""
    kv, queue, redis, qstash = parts(cloud)

    def book(request: DeliveredRequest) -> None:
        if redis.get("state") in ("booked", "failed"):
            return
        if redis.incr("attempts") < 3:
            redis.set("state", "booked")
        elif corrected:
            redis.mset({"refund": "50", "state": "failed"})
        else:
            redis.set("state", "failed")
            redis.set("refund", "50")

    queue.destinations.call(HOOK, book)

    def order() -> None:
        qstash.message.publish_json(url=HOOK, body={"order": "A"}, retries=5)

    def check() -> None:
        if kv.value("state") == "failed":
            assert kv.value("refund") == "50", "a failed order is not refunded"

    return Scenario({"shop": order}, check)


def twice_overtaken(cloud: Cloud, corrected: bool) -> Scenario:
    """A report's lease expires twice; its third owner does not trust the others any more."""
    kv, _, redis, _ = parts(cloud)

    def work() -> None:
        while not redis.set("lease", "taken", nx=True, ex=30):
            if redis.get("published"):
                return
            time.sleep(10)
        owner = redis.incr("owners")
        if redis.set("published", owner, nx=owner < 3 or corrected):
            redis.rpush("publishers", owner)

    def check() -> None:
        assert len(kv.value("publishers") or ()) < 2, "published twice"

    clients = dict.fromkeys(("one", "two", "three"), work)
    return Scenario(clients, check, options={"kinds": _NO_SWITCHES})


def failed_compensation(cloud: Cloud, corrected: bool) -> Scenario:
    """A trip whose payment fails gives its hotel back, with one retry, or notes that it must."""
    kv, _, redis, _ = parts(cloud)
    kv.load({"rooms": "5"})

    def travel() -> None:
        redis.decr("rooms")
        if _tries(1, lambda: redis.set("paid", "yes")):
            return
        if _tries(2, lambda: redis.incr("rooms")) or not corrected:
            return
        raise RuntimeError("a person must give the room back")

    def check(history: Any) -> None:
        gave_up = history.errors or history.crashed
        is_fair = kv.value("paid") or kv.value("rooms") == "5"
        assert gave_up or is_fair, "a room is booked but not paid"

    return Scenario({"guest": travel}, check, options={"kinds": ("respond", "drop", "crash")})


def parked_message(cloud: Cloud, corrected: bool) -> Scenario:
    """A relay parks a message after three failures: it removes it, then parks it."""
    kv, queue, redis, _ = parts(cloud)
    qstash = QStash(queue.token, base_url=queue.url, retry=False)
    kv.load({"outbox": ["a"]})
    queue.destinations.respond(HOOK, 200)

    def relay() -> None:
        while name := redis.lindex("outbox", 0):
            if int(redis.get("failures") or 0) < 3:
                try:
                    qstash.message.publish_json(url=HOOK, body={"name": name})
                except Exception:
                    redis.incr("failures")
                    continue
                redis.sadd("sent", name)
                redis.lpop("outbox")
                continue
            if corrected:
                redis.rpush("parked", name)
            redis.lpop("outbox")
            if not corrected:
                redis.rpush("parked", name)

    def check() -> None:
        _somewhere(kv, "a", "outbox", "sent", "parked")

    return Scenario({}, check, workers={"relay": relay}, options={"kinds": _ENDS})


def open_breaker(cloud: Cloud, corrected: bool) -> Scenario:
    """A breaker opens after three failures; only its third failure sets the time to close it."""
    kv, _, redis, _ = parts(cloud)

    def call() -> None:
        for _ in range(5):
            if redis.get("open"):
                return
            try:
                redis.set("stored", "yes")
                return
            except Exception:
                if redis.incr("failures") == 3:
                    redis.set("open", "yes", ex=60 if corrected else None)

    def check() -> None:
        cloud.clock.advance("1h")
        assert not kv.value("open"), "the breaker is open for ever"

    return Scenario({"client": call}, check)


def redriven_twice(cloud: Cloud, corrected: bool) -> Scenario:
    """An operator redrives dead letters: the second time without the name that guards the effect."""
    kv, queue, redis, qstash = parts(cloud)

    def ship(request: DeliveredRequest) -> None:
        body = request.json()
        guard = body["order"] if body["redrives"] < 2 or corrected else request.message_id
        script = "if redis.call('SETNX', KEYS[1], '1') == 1 then redis.call('INCR', KEYS[2]) end"
        redis.eval(script, keys=[f"shipped:{guard}", "parcels"])

    queue.destinations.call(HOOK, ship)

    def order() -> None:
        qstash.message.publish_json(url=HOOK, body={"order": "A", "redrives": 0}, retries=1)

    def operate() -> None:
        for letter in queue.dead_letters():
            body = letter.message.json()
            body["redrives"] += 1
            qstash.message.publish_json(url=HOOK, body=body, retries=1)
            qstash.dlq.delete(letter.id)

    def check() -> None:
        assert int(kv.value("parcels") or 0) <= 1, "two parcels for one order"

    return Scenario({"shop": order}, check, workers={"operator": operate})


def skipped_record(cloud: Cloud, corrected: bool) -> Scenario:
    """A consumer skips a record that has failed twice: it commits, then puts the record aside."""
    kv, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis, http = Redis(kv.url, kv.token, rest_retries=0), broker.client()
    broker.produce("orders", "a")
    http.headers.update(
        {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
    )

    def commit(record: Any) -> None:
        place = {key: record[key] for key in ("topic", "partition")}
        place["offset"] = record["offset"] + 1
        http.post("/commit/group/one", json=place).raise_for_status()

    def work() -> None:
        http.post("/delete-consumer/group/one")
        poll = {"topic": "orders", "timeout": 0}
        while records := http.post("/consume/group/one", json=poll).raise_for_status().json():
            for record in records:
                if redis.hincrby("attempts", record["offset"], 1) < 3:
                    redis.sadd("done", record["value"])
                    commit(record)
                    continue
                if corrected:
                    redis.sadd("aside", record["value"])
                commit(record)
                redis.sadd("aside", record["value"])

    def check() -> None:
        if broker.group("group").committed if broker.groups() else {}:
            _somewhere(kv, "a", "done", "aside")

    return Scenario({}, check, workers={"worker": work}, options={"kinds": _ENDS})


def rebuilt_after_restarts(cloud: Cloud, corrected: bool) -> Scenario:
    """A job rebuilds an index if it was started three times: it empties it first."""
    kv, _, redis, _ = parts(cloud)
    index = cloud.vector_index(dimension=2)
    client = index.client()
    client.upsert([("old", [1, 1])])

    def build() -> None:
        if redis.get("built"):
            return
        if redis.incr("starts") >= 3 and not corrected:
            redis.set("built", "yes")
            client.reset()
        client.upsert([("new", [1, 2])])
        redis.set("built", "yes")

    def check() -> None:
        if kv.value("built"):
            assert index.vectors(), "the index is empty"

    return Scenario({}, check, workers={"job": build}, options={"kinds": _ENDS})


def failed_over(cloud: Cloud, corrected: bool) -> Scenario:
    """A monitor replaces a primary that it missed three times: it removes it first."""
    kv, _, redis, _ = parts(cloud)
    kv.load({"primary": "one"})

    def watch() -> None:
        for _ in range(3):
            try:
                redis.set("seen", "yes")
            except Exception:
                if redis.incr("missed") < 3:
                    continue
                if corrected:
                    redis.set("primary", "two")
                    return
                redis.delete("primary")
                redis.set("primary", "two")

    def check() -> None:
        assert kv.value("primary"), "there is no primary"

    return Scenario({"monitor": watch}, check)


def resumed_import(cloud: Cloud, corrected: bool) -> Scenario:
    """An import that stopped three times leaves out the row at which it stopped."""
    kv, _, redis, _ = parts(cloud)
    kv.load({"rows": ["a", "b"]})

    def work() -> None:
        stops = redis.incr("starts") - 1
        at = int(redis.get("cursor") or 0)
        if stops == 3 and not corrected:
            at += 1  # It takes the row at which it stopped last for the culprit.
            redis.set("cursor", at)
        while row := redis.lindex("rows", at):
            redis.sadd("imported", row)
            at += 1
            redis.set("cursor", at)

    def check() -> None:
        if kv.value("cursor") == "2":
            _somewhere(kv, "a", "imported")

    return Scenario({}, check, workers={"job": work})


def escalated_twice(cloud: Cloud, corrected: bool) -> Scenario:
    """A reminder is escalated if it failed twice; a failure of the escalation starts over."""
    kv, queue, redis, qstash = parts(cloud)

    def remind(request: DeliveredRequest) -> int:
        failures = int(redis.get("failures") or 0)
        if failures < 2:
            redis.incr("failures")
            redis.set("reminded", "yes")
            redis.set("failures", "0")
            return 200
        if not corrected or redis.setnx("escalated", "yes"):
            redis.incr("escalations")
        redis.set("failures", "0")
        return 200

    queue.destinations.call(HOOK, remind)

    def start() -> None:
        qstash.message.publish_json(url=HOOK, body={}, retries=5)

    def check() -> None:
        assert int(kv.value("escalations") or 0) <= 1, "escalated twice"

    return Scenario({"shop": start}, check)


def recounted_by_a_retry(cloud: Cloud, corrected: bool) -> Scenario:
    """A retry counts the payments anew; the one that arrives in the meantime is forgotten."""
    kv, queue, redis, qstash = parts(cloud)
    count = "redis.call('SET', KEYS[2], redis.call('SCARD', KEYS[1])) "
    add = "if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then redis.call('INCR', KEYS[2]) return 1 end "

    def pay(request: DeliveredRequest) -> None:
        keys = ["payments", "total"]
        if redis.eval(add, keys=keys, args=[request.text]) or not request.retried:
            return
        if corrected:
            redis.eval(count, keys=keys)
        else:
            redis.set("total", redis.scard("payments"))

    queue.destinations.call(HOOK, pay)

    def shop() -> None:
        for payment in ("a", "b"):
            qstash.message.publish(url=HOOK, body=payment, retries=2)

    def check() -> None:
        assert int(kv.value("total") or 0) == len(kv.value("payments") or ()), (
            "a payment is missing"
        )

    return Scenario({"shop": shop}, check)


def closed_during_a_retry(cloud: Cloud, corrected: bool) -> Scenario:
    """The day is closed while the second delivery of an order is at work."""
    kv, queue, redis, qstash = parts(cloud)
    kv.load({"day": "open"})
    add = "if redis.call('GET', KEYS[1]) then return redis.call('SADD', KEYS[2], ARGV[1]) end"

    def book(request: DeliveredRequest) -> None:
        order = request.text
        if corrected or not request.retried:
            redis.eval(add, keys=["day", "orders"], args=[order])
        elif redis.get("day"):
            redis.sadd("orders", order)

    queue.destinations.call(HOOK, book)

    def shop() -> None:
        qstash.message.publish(url=HOOK, body="A", retries=2, retry_delay="90000")

    def close() -> None:
        redis.delete("day")
        redis.set("closing", redis.scard("orders"))

    def check() -> None:
        closing = kv.value("closing")
        assert closing is None or int(closing) == len(kv.value("orders") or ()), "an order is late"

    return Scenario({"shop": shop, "close": close}, check)


DEEP: tuple[Make, ...] = (
    buried_job,
    poisoned_entry,
    refund_after_failures,
    twice_overtaken,
    failed_compensation,
    parked_message,
    open_breaker,
    redriven_twice,
    skipped_record,
    rebuilt_after_restarts,
    failed_over,
    resumed_import,
    escalated_twice,
    recounted_by_a_retry,
    closed_during_a_retry,
)
"""The applications. Most bugs need three or four disturbances, those of leases and redrives two."""
