"""The wording of a story and of its cause."""

from __future__ import annotations

import pytest
import redis as redis_py
from upstash_redis import Redis

from pytest_fakecloud import BrokenSchedule, Cloud, KVServer


def broken() -> None:
    raise AssertionError("broken")


def test_transactions_show_their_commands(cloud: Cloud, kv: KVServer) -> None:
    client = redis_py.Redis.from_url(kv.database_url)

    def run() -> None:
        multi = Redis(kv.url, kv.token).multi()
        multi.incrby("a", 7)
        multi.exec()
        with client.pipeline() as pipeline:
            pipeline.incrby("a", 1)
            pipeline.execute()

    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(run, broken)
    assert "multi-exec of 1 (INCRBY a 7 <-- 7)" in found.value.story
    assert "EXEC of 1 (INCRBY a 1 <-- 8)" in found.value.story


def test_an_order_that_the_undisturbed_run_has_too_is_no_cause(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token)
    clients = {
        "ann": lambda: redis.set("a", "1"),
        "bob": lambda: redis.get("a"),
        "cat": redis.ping,
    }

    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(clients, broken, schedule="ann.1 switch cat")
    assert found.value.cause == ""
    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(clients, broken, schedule="ann.1 switch bob")
    assert found.value.cause.startswith("bob's GET a ")
    assert "came before ann's SET a 1" in found.value.cause


def test_a_given_schedule_that_holds_says_so(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token)
    found = cloud.explore(redis.ping, lambda: None, schedule="ping.1 crash")
    assert str(found).startswith("the promise held in the given schedule\n")


def test_a_long_turn_hides_reads_before_writes(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token)

    def run() -> None:
        for key in ("a", "b", "c"):
            redis.get(key)
        redis.set("d", "1")

    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(run, broken)
    assert "GET a → null" in found.value.story
    assert "SET d 1 → OK" in found.value.story
    assert "GET c" not in found.value.story
    assert "; 1 more call\n" in found.value.story


def test_calls_of_the_queue_are_told_in_words(cloud: Cloud) -> None:
    queue = cloud.queue()
    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(lambda: queue.client().dlq.list(), broken)
    assert ": list dead letters" in found.value.story
