"""Orders that are stored together with a message, which a relay sends."""

from __future__ import annotations

from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest, once

from . import Scenario

WAREHOUSE = "https://warehouse.example.com/ship"


def order(redis: Redis, number: str) -> None:
    """Store an order, and a message for the warehouse in the outbox."""
    change = redis.multi()
    change.hset("orders", number, "placed")
    change.lrem("outbox", 0, number)
    change.rpush("outbox", number)
    change.exec()


def relay(redis: Redis, qstash: QStash) -> None:
    """Send the messages in the outbox."""
    while number := redis.lindex("outbox", 0):
        qstash.message.publish_json(url=WAREHOUSE, body={"order": number})
        redis.lrem("outbox", 1, number)


def ship(redis: Redis, number: str) -> None:
    """Send a parcel."""
    redis.rpush("parcels", number)


def ship_corrected(redis: Redis, number: str) -> None:
    """Send a parcel for an order, unless a parcel has already been sent."""
    redis.hsetnx("parcels", number, "on its way")


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server, queue = cloud.kv_server(), cloud.queue()
    redis = Redis(server.url, server.token)
    qstash = QStash(queue.token, base_url=queue.url)
    function = ship_corrected if corrected else ship

    def handle(request: DeliveredRequest) -> None:
        function(redis, request.json()["order"])

    queue.destinations.call(WAREHOUSE, handle)
    return Scenario(
        {"shop": lambda: order(redis, "A-1")},
        once("parcels"),
        workers={"relay": lambda: relay(redis, qstash)},
        # Repeated deliveries break the promise as well, but this scenario is about the relay.
        options={} if corrected else {"kinds": "crash"},
    )
