"""The cause that a broken promise names is confirmed by runs under other schedules."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx
import pytest
from upstash_redis import Redis

from pytest_fakecloud import Cloud, History, KVServer

from .conftest import failure


@pytest.fixture
def redis(kv: KVServer) -> Redis:
    return Redis(kv.url, kv.token, rest_retries=0)


def test_time_is_the_cause_if_the_order_alone_breaks_nothing(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
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


def test_of_several_conflicts_the_decisive_one_is_named(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
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


def test_an_order_that_decides_nothing_is_no_cause(cloud: Cloud, redis: Redis) -> None:
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


def test_one_switch_replaces_several_events(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def client(amount: int) -> Callable[[], None]:
        def run() -> None:
            redis.set("total", int(redis.get("total") or 0) + amount)

        return run

    def three() -> None:
        assert kv.integer("total") == 3

    clients = {name: client(1) for name in ("ann", "bob", "cid")}
    found = failure(cloud, clients, three, kinds="switch")
    assert found.events == 1


def test_a_stuck_run_has_its_event_as_the_cause(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        try:
            redis.get("a")
        except httpx.HTTPError:
            threading.Event().wait()

    found = failure(cloud, run, lambda: None, schedule="run.1 drop")
    assert found.cause.startswith("run's GET a (test_cause.py:")
    assert found.cause.endswith(") is lost before it arrives")


@pytest.mark.parametrize(
    ("schedule", "report", "applied"),
    [
        ("run.9 drop", "the undisturbed run: no event was applied:\n", ""),
        (
            "run.1 lose_answer, run.9 drop",
            "the given schedule, of which these events were not applied: run.9 drop:\n",
            "run.1 lose_answer",
        ),
    ],
)
def test_events_that_were_not_applied_broke_nothing(
    cloud: Cloud, kv: KVServer, redis: Redis, schedule: str, report: str, applied: str
) -> None:
    def check() -> None:
        assert kv.integer("n") == 2

    found = failure(cloud, {"run": lambda: redis.incr("n")}, check, schedule=schedule)
    assert str(found).startswith(f"the promise was broken by {report}")
    assert found.schedule == applied
    assert found.events == len(list(filter(None, applied.split(","))))
