"""A consumer that adds up the orders in a topic."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from upstash_redis import Redis

from pytest_fakecloud import Cloud

from . import Scenario
from .commit_before_work import Record, client_of, commit, consume, place_order


def add_up(redis: Redis, record: Record) -> None:
    """Add an order to the revenue."""
    redis.incrby("revenue", int(record["value"]))


ADD = """
local at = tonumber(ARGV[1])
if at < tonumber(redis.call('HGET', KEYS[1], 'next') or 0) then return 0 end
redis.call('HINCRBY', KEYS[1], 'total', ARGV[2])
return redis.call('HSET', KEYS[1], 'next', at + 1)
"""


def add_up_corrected(redis: Redis, record: Record) -> None:
    """Add an order to the revenue, once for each offset."""
    arguments = [str(record["offset"]), record["value"]]
    redis.eval(ADD, keys=[f"revenue:{record['partition']}"], args=arguments)


def count(http: httpx.Client, redis: Redis, add: Callable[[Redis, Record], None]) -> None:
    """Add up orders until none are left."""
    while records := consume(http):
        for record in records:
            add(redis, record)
            commit(http, record)


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis = Redis(server.url, server.token)
    http = client_of(broker)
    add = add_up_corrected if corrected else add_up

    def check() -> None:
        booked = server.value("revenue:0") or {"total": 0}
        revenue = int(booked["total"] if corrected else server.value("revenue") or 0)
        ordered = sum(int(record.value) for record in broker.records("orders"))
        assert revenue == ordered, f"revenue of {revenue} from orders of {ordered}"

    return Scenario(
        {"shop": lambda: place_order(http, "30")},
        check,
        workers={"accountant": lambda: count(http, redis, add)},
    )
