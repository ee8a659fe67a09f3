"""Applications whose bugs need three or more events, of services that follow each other."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest, History

from . import Make, Scenario
from .queues import parts

_SINGLE = ("respond", "drop", "lose_response", "crash", "delay")
"""Kinds of disturbances without those that repeat."""
_PAY = "https://shop.example.com/paid"
_CHARGE = "https://shop.example.com/charge"
_FAILED = "https://shop.example.com/failed"


def late_payment(cloud: Cloud, corrected: bool) -> Scenario:
    """A seat is reserved for 20 minutes; the callback of a payment may come after that."""
    kv, queue, redis, qstash = parts(cloud)
    sell = (
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PERSIST', KEYS[1]) "
        "redis.call('SADD', KEYS[2], ARGV[1]) else redis.call('SADD', KEYS[3], ARGV[1]) end"
    )

    def paid(request: DeliveredRequest) -> None:
        name = request.json()["name"]
        redis.incr(f"callbacks:{name}")
        if corrected:
            redis.eval(sell, keys=["seat", "tickets", "refunds"], args=[name])
        else:
            redis.sadd("tickets", name)
            redis.persist("seat")

    queue.destinations.call(_PAY, paid)

    def buy(name: str, tries: int) -> bool:
        for attempt in range(tries):
            if redis.set("seat", name, nx=True, ex=1200):
                qstash.message.publish_json(url=_PAY, body={"name": name}, retries=5)
                return True
            if attempt < tries - 1:
                time.sleep(1201)
        return False

    def check() -> None:
        tickets = kv.value("tickets") or ()
        assert len(tickets) < 2, f"the seat is sold to {sorted(tickets)}"

    return Scenario(
        {"ann": lambda: buy("ann", 1), "bob": lambda: buy("bob", 2)},
        check,
        options={"kinds": _SINGLE},
    )


def unknown_charge(cloud: Cloud, corrected: bool) -> Scenario:
    """A trip whose card is not charged in three attempts is cancelled: its room is given back."""
    kv, queue, redis, qstash = parts(cloud)

    def charge(request: DeliveredRequest) -> None:
        redis.incr("attempts")
        redis.set("charge", "50", nx=True)

    def cancel(request: DeliveredRequest) -> None:
        # An attempt that failed may have charged the card before its answer was lost.
        if corrected:
            redis.delete("room", "charge")
        else:
            redis.delete("room")

    queue.destinations.call(_CHARGE, charge)
    queue.destinations.call(_FAILED, cancel)

    def book() -> None:
        redis.set("room", "7")
        qstash.message.publish_json(url=_CHARGE, body={}, retries=2, failure_callback=_FAILED)

    def check() -> None:
        assert kv.value("room") or not kv.value("charge"), "a trip without a room is charged"

    return Scenario({"guest": book}, check, options={"kinds": _SINGLE})


def trimmed_log(cloud: Cloud, corrected: bool) -> Scenario:
    """Events of an account are folded into a snapshot, which then trims the log by their number."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    fold = (
        "local sum = redis.call('GET', KEYS[2]) or '0' "
        "for _, amount in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do sum = sum + amount end "
        "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[2], sum)"
    )
    add = (
        "local events = redis.call('LRANGE', KEYS[1], 0, -1) "
        "if redis.call('EXISTS', KEYS[3]) == 1 or #events == 0 then return 0 end "
        "for _, amount in ipairs(events) do redis.call('INCRBY', KEYS[2], amount) end "
        "redis.call('SET', KEYS[3], #events) return #events"
    )

    def snapshot() -> None:
        if corrected:
            redis.eval(fold, keys=["log", "sum"])
            return
        # Another one may have died before it trimmed the log.
        folded = redis.get("folded") or redis.eval(add, keys=["log", "sum", "folded"])
        if folded:
            redis.ltrim("log", int(folded), -1)
            redis.delete("folded")

    def pay() -> None:
        redis.rpush("log", "5")
        redis.rpush("log", "7")

    def check(history: History) -> None:
        wanted = {12} if "ann" in history.results else {0, 5, 12}
        balance = int(kv.value("sum") or 0) + sum(map(int, kv.value("log") or ()))
        assert balance in wanted, f"the balance is {balance}"

    return Scenario(
        {"one": snapshot, "two": snapshot, "ann": pay}, check, options={"kinds": "switch"}
    )


def reused_slot(cloud: Cloud, corrected: bool) -> Scenario:
    """Slots are taken from a linked list of free ones: its head is replaced if it is unchanged."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    kv.load({"head": "a 0", "next:a": "b", "next:b": "c", "next:c": "-"})
    replace = (
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
        "if ARGV[3] then redis.call('SET', KEYS[2], ARGV[3]) end "
        "redis.call('SET', KEYS[1], ARGV[2]) return 1"
    )

    def _next(version: str) -> str:
        return str(int(version) + corrected)

    def take() -> str:
        while True:
            head = str(redis.get("head"))
            slot, version = head.split()
            following = f"{redis.get(f'next:{slot}')} {_next(version)}"
            if redis.eval(replace, keys=["head"], args=[head, following]):
                return slot

    def give(slot: str) -> None:
        while True:
            head = str(redis.get("head"))
            first, version = head.split()
            new_head = f"{slot} {_next(version)}"
            if redis.eval(replace, keys=["head", f"next:{slot}"], args=[head, new_head, first]):
                return

    def hold() -> None:
        slot = take()
        assert redis.sadd("held", slot), f"{slot} is held twice"

    def lend() -> None:
        redis.set("lent", take())

    def take_back() -> None:
        if slot := redis.getdel("lent"):
            give(slot)

    def check() -> None:
        free = str(kv.value("head")).split()[0]
        assert free not in (kv.value("held") or ()), f"{free} is free and held"

    clients = {"ann": hold, "bob": lend, "carl": hold, "dan": take_back}
    return Scenario(clients, check, options={"kinds": "switch"})


def moved_shard(cloud: Cloud, corrected: bool) -> Scenario:
    """A counter moves from shard to shard; who counts in an old one carries the count over."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    kv.load({"home": "a", "shard:a": "5"})
    move = (
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
        "redis.call('SET', KEYS[1], ARGV[2]) "
        "redis.call('SET', KEYS[3], redis.call('GETDEL', KEYS[2])) return 1"
    )
    carry = (
        "if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then "
        "redis.call('DECR', KEYS[1]) redis.call('INCR', KEYS[2]) end"
    )
    count = "return redis.call('INCR', 'shard:' .. redis.call('GET', KEYS[1]))"

    def visit() -> None:
        if corrected:
            redis.eval(count, keys=["home"])
            return
        home = redis.get("home")
        redis.incr(f"shard:{home}")
        now = redis.get("home")
        if now != home:
            redis.eval(carry, keys=[f"shard:{home}", f"shard:{now}"])

    def rebalance(old: str, new: str) -> None:
        redis.eval(move, keys=["home", f"shard:{old}", f"shard:{new}"], args=[old, new])

    def check() -> None:
        total = kv.value(f"shard:{kv.value('home')}")
        assert total == "6", f"{total} visits are counted"

    moves = {f"{old}_to_{new}": partial(rebalance, old, new) for old, new in ("ab", "bc", "ca")}
    return Scenario({"visitor": visit, **moves}, check, options={"kinds": "switch"})


def revived_document(cloud: Cloud, corrected: bool) -> Scenario:
    """Documents are embedded again while others are hidden, and purged in the round after that."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    index = cloud.vector_index(dimension=2)
    index.load([("note", [1.0, 2.0], {"hidden": False})])
    vectors = index.client()

    def embed() -> None:
        note: Any = vectors.fetch("note", include_metadata=True)[0]
        if note is None or note.metadata["hidden"]:
            return
        if corrected:
            vectors.update("note", vector=[2.0, 1.0])
            return
        vectors.upsert([("note", [2.0, 1.0], note.metadata)])
        if redis.sismember("hidden", "note"):
            vectors.update("note", metadata={"hidden": True})

    def hide() -> None:
        redis.sadd("hidden", "note")
        vectors.update("note", metadata={"hidden": True})

    def purge() -> None:
        names = redis.smembers("marked")
        if names:
            vectors.delete(list(names))
            redis.srem("hidden", *names)
            redis.sadd("purged", *names)
        for name in redis.smembers("hidden"):
            redis.sadd("marked", name)

    def check() -> None:
        purged = kv.value("purged") or ()
        assert not purged or not vectors.info().vector_count, "a purged document is back"

    clients = {"embedder": embed, "owner": hide, "mark": purge, "sweep": purge}
    return Scenario(clients, check, options={"kinds": "switch"})


EVENTS: tuple[Make, ...] = (
    late_payment,
    unknown_charge,
    trimmed_log,
    reused_slot,
    moved_shard,
    revived_document,
)
