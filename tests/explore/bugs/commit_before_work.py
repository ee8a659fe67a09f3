"""A consumer that mails a receipt for each order in a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from upstash_redis import Redis

from pytest_fakecloud import Broker, Cloud, nothing_lost

from . import Scenario

Record = dict[str, Any]
AUTO_COMMIT = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}


def consume(http: httpx.Client) -> list[Record]:
    answer = http.get("/consume/mailers/one/orders", headers=AUTO_COMMIT)
    answer.raise_for_status()
    records: list[Record] = answer.json()
    return records


def commit(http: httpx.Client, record: Record) -> None:
    place = {"topic": "orders", "partition": record["partition"], "offset": record["offset"] + 1}
    http.post("/commit/mailers/one", json=place).raise_for_status()


def send_receipt(redis: Redis, order: str) -> None:
    redis.sadd("receipts", order)


def mail(http: httpx.Client, redis: Redis) -> None:
    """Mail receipts until no orders are left."""
    while records := consume(http):
        for record in records:
            commit(http, record)
            send_receipt(redis, record["value"])


def mail_corrected(http: httpx.Client, redis: Redis) -> None:
    """Mail receipts, and commit each order only after its receipt was mailed."""
    while records := consume(http):
        for record in records:
            send_receipt(redis, record["value"])
            commit(http, record)


def place_order(http: httpx.Client, order: str) -> None:
    http.post("/produce/orders", json={"value": order}).raise_for_status()


def client_of(broker: Broker) -> httpx.Client:
    return httpx.Client(base_url=broker.url, auth=(broker.username, broker.password))


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis = Redis(server.url, server.token)
    http = client_of(broker)
    function: Callable[[httpx.Client, Redis], None] = mail_corrected if corrected else mail
    return Scenario(
        {"shop": lambda: place_order(http, "kettle")},
        nothing_lost("orders", lambda: server.value("receipts") or ()),
        workers={"mailer": lambda: function(http, redis)},
    )
