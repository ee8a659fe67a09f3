"""The cause that a broken promise names is confirmed by runs under other schedules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import BrokenSchedule, Cloud, History, KVServer


def failure(cloud: Cloud, *args: Any, **options: Any) -> BrokenSchedule:
    """Explore, and return the broken promise."""
    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(*args, **options)
    return found.value


def test_time_is_the_cause_if_the_order_alone_breaks_nothing(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    cloud.clock.advance("0.5s")

    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            redis.hset("seen", name, "yes")
            redis.set(f"second:{name}", int(time.time()))

        return run

    def check() -> None:
        assert kv.value("second:ann") == kv.value("second:bob")

    clients = {"ann": client("ann"), "bob": client("bob")}
    found = failure(cloud, clients, check, schedule="ann.0 jump edge")
    assert found.cause == "ann starts 0.5 s later"
    cloud.explore(clients, check, schedule="ann.1 switch bob")


def test_of_several_conflicts_the_decisive_one_is_named(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    sent: list[str] = []

    def secretary() -> None:
        for start in (0, 2):
            sent.extend(redis.zrange("members", start, start + 1))

    def check() -> None:
        stayed = {"ada", "cleo", "dan"}
        assert stayed <= set(sent)

    def setup() -> None:
        sent.clear()
        for name in ("ada", "bo", "cleo", "dan"):
            kv.execute("ZADD", "members", "0", name)

    clients = {
        "secretary": secretary,
        "bo": lambda: redis.zrem("members", "bo"),
        "finn": lambda: redis.zadd("members", {"finn": 0}),
    }
    found = failure(cloud, clients, check, setup=setup, schedule="secretary.2 delay 30")
    assert "bo's ZREM members bo" in found.cause
    assert "came between secretary's ZRANGE members 0 1" in found.cause


def test_an_order_that_decides_nothing_is_no_cause(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def reads() -> None:
        redis.get("other")
        redis.get("n")

    def writes() -> None:
        redis.set("n", 1)
        redis.set("other", 1)

    def check(history: History) -> None:
        assert "reads.2" not in history.schedule

    found = failure(
        cloud, {"reads": reads, "writes": writes}, check, schedule="reads.2 switch writes"
    )
    assert found.cause == ""


def test_one_switch_replaces_several_events(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def client(amount: int) -> Callable[[], None]:
        def run() -> None:
            redis.set("total", int(redis.get("total") or 0) + amount)

        return run

    def three() -> None:
        assert kv.integer("total") == 3

    clients = {name: client(1) for name in ("ann", "bob", "cid")}
    found = failure(cloud, clients, three, kinds="switch")
    assert found.events == 1
