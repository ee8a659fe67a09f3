"""Queues, schedules and workflows with late, repeated or reordered deliveries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest

from . import Scenario, workflow

if TYPE_CHECKING:
    from upstash_workflow import WorkflowContext

HOOK = "https://shop.example.com/hook"


def parts(cloud: Cloud) -> tuple[Any, Any, Redis, QStash]:
    kv, queue = cloud.kv_server(), cloud.queue()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    return kv, queue, redis, QStash(queue.token, base_url=queue.url)


def short_idempotency_key(cloud: Cloud, corrected: bool) -> Scenario:
    """A card is charged once for an order."""
    kv, queue, redis, qstash = parts(cloud)
    seconds = 30 * 86400 if corrected else 60

    def charge(request: DeliveredRequest) -> None:
        order = request.json()["order"]
        script = (
            "if redis.call('SET', KEYS[1], '1', 'NX', 'EX', ARGV[1]) then "
            "redis.call('INCR', KEYS[2]) end"
        )
        redis.eval(script, keys=[f"charged:{order}", "charges"], args=[str(seconds)])

    queue.destinations.call(HOOK, charge)

    def order() -> None:
        qstash.message.publish_json(url=HOOK, body={"order": "A-1"}, retries=5)

    def check() -> None:
        assert int(kv.value("charges") or 0) <= 1, "charged twice"

    return Scenario({"shop": order}, check)


def dedup_across_a_redrive(cloud: Cloud, corrected: bool) -> Scenario:
    """A parcel is sent once, even if an operator retries dead letters."""
    kv, queue, redis, qstash = parts(cloud)

    def ship(request: DeliveredRequest) -> None:
        body = request.json()
        name = body["order"] if corrected else request.message_id
        script = "if redis.call('SETNX', KEYS[1], '1') == 1 then redis.call('INCR', KEYS[2]) end"
        redis.eval(script, keys=[f"seen:{name}", "parcels"])

    queue.destinations.call(HOOK, ship)

    def order() -> None:
        qstash.message.publish_json(url=HOOK, body={"order": "A-1"}, retries=1)

    def operate() -> None:
        for letter in qstash.dlq.list().messages:
            qstash.message.publish(url=letter.url, body=letter.body, retries=1)
            qstash.dlq.delete(letter.dlq_id)

    def check() -> None:
        assert int(kv.value("parcels") or 0) <= 1, "two parcels for one order"

    return Scenario({"shop": order}, check, workers={"operator": operate})


def webhooks_out_of_order(cloud: Cloud, corrected: bool) -> Scenario:
    """A payment is made and refunded: its final state is refunded."""
    kv, queue, redis, qstash = parts(cloud)

    def note(request: DeliveredRequest) -> None:
        event = request.json()
        if corrected:
            script = (
                "if tonumber(ARGV[2]) > tonumber(redis.call('HGET', KEYS[1], 'number') or '0') then "
                "redis.call('HSET', KEYS[1], 'state', ARGV[1], 'number', ARGV[2]) end"
            )
            redis.eval(script, keys=["payment"], args=[event["state"], str(event["number"])])
        else:
            redis.hset("payment", values={"state": event["state"], "number": event["number"]})

    queue.destinations.call(HOOK, note)

    def pay() -> None:
        for number, state in enumerate(("paid", "refunded"), 1):
            qstash.message.publish_json(url=HOOK, body={"state": state, "number": number})

    def check(history: Any) -> None:
        if not history.errors and not history.crashed and not queue.dead_letters():
            assert kv.value("payment")["state"] == "refunded", "a refunded payment counts as paid"

    return Scenario({"bank": pay}, check)


def overlapping_schedule(cloud: Cloud, corrected: bool) -> Scenario:
    """New entries of a ledger are added up every minute: each counts once."""
    kv, queue, redis, qstash = parts(cloud)
    kv.load({"entries": "7"})

    def add_up(request: DeliveredRequest) -> None:
        if corrected:
            script = (
                "local new = redis.call('GET', KEYS[1]) - (redis.call('GET', KEYS[2]) or 0) "
                "redis.call('INCRBY', KEYS[3], new) "
                "redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]))"
            )
            redis.eval(script, keys=["entries", "done", "sum"])
            return
        entries, done = int(redis.get("entries") or 0), int(redis.get("done") or 0)
        if entries > done:
            multi = redis.multi()
            multi.incrby("sum", entries - done)
            multi.set("done", str(entries))
            multi.exec()

    queue.destinations.call(HOOK, add_up)

    def plan() -> None:
        qstash.schedule.create(destination=HOOK, cron="@every 1m")

    def check() -> None:
        assert int(kv.value("sum") or 0) <= 7, f"{kv.value('sum')} counted of 7"

    return Scenario({"shop": plan}, check)


def swallowed_compensation(cloud: Cloud, corrected: bool) -> Scenario:
    """A trip is a flight and a hotel: either both are booked or neither."""
    kv, queue, redis, qstash = parts(cloud)

    def cancel(request: DeliveredRequest) -> None:
        redis.delete("flight", "hotel")

    queue.destinations.call(HOOK, cancel)

    def book() -> None:
        if corrected:
            # Published before the bookings, to cancel an incomplete trip two hours later.
            qstash.message.publish_json(url=f"{HOOK}/later", body={}, delay="2h", retries=5)
        redis.set("flight", "booked")
        try:
            redis.set("hotel", "booked")
        except Exception:
            try:
                redis.delete("flight")
            except Exception:
                logging.getLogger(__name__).info("the flight could not be cancelled")

    def later(request: DeliveredRequest) -> None:
        script = (
            "if redis.call('EXISTS', KEYS[1], KEYS[2]) == 1 then "
            "redis.call('DEL', KEYS[1], KEYS[2]) end"
        )
        redis.eval(script, keys=["flight", "hotel"])

    queue.destinations.call(f"{HOOK}/later", later)

    def check() -> None:
        # Accept an incomplete trip if there are dead letters, because an operator handles these.
        if not queue.dead_letters():
            booked = {name for name in ("flight", "hotel") if kv.value(name)}
            assert len(booked) != 1, f"only the {booked} is booked"

    return Scenario({"customer": book}, check)


def work_outside_a_step(cloud: Cloud, corrected: bool) -> Scenario:
    """A workflow sends one welcome mail, and a second mail later."""
    kv, queue, redis, qstash = parts(cloud)

    def welcome(context: WorkflowContext[Any]) -> None:
        def mail() -> None:
            redis.hsetnx("mails", "welcome", "1")
            redis.incr("sent")

        if corrected:
            context.run("mail", lambda: redis.setnx("sent", 1))
        else:
            mail()
        context.sleep("a while", 60)
        context.run("thank", lambda: redis.hsetnx("mails", "thanks", "1"))

    def check() -> None:
        assert int(kv.value("sent") or 0) <= 1, "two mails of welcome"

    return Scenario({"shop": workflow(queue, qstash, welcome)}, check)


def events_out_of_order(cloud: Cloud, corrected: bool) -> Scenario:
    """The warehouse eventually shows the same state of an order as the shop."""
    kv, queue, redis, qstash = parts(cloud)

    def project(request: DeliveredRequest) -> None:
        version = request.json()["version"]
        if corrected:
            script = (
                "if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[1]) or '0') then "
                "redis.call('SET', KEYS[1], ARGV[1]) end"
            )
            redis.eval(script, keys=["shown"], args=[str(version)])
        else:
            redis.set("shown", str(version))

    queue.destinations.call(HOOK, project)

    def change() -> None:
        version = redis.incr("version")
        qstash.message.publish_json(url=HOOK, body={"version": version})

    def check(history: Any) -> None:
        if not history.errors and not history.crashed and not queue.dead_letters():
            assert kv.value("shown") == kv.value("version"), "the warehouse shows an old order"

    return Scenario({"ann": change, "bob": change}, check)
