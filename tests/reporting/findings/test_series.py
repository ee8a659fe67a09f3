"""Findings about series of commands, and similar cases without a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.journal import recorder_of
from pytest_fakecloud.reporting.applications import Served

from .cases import Scene, check, connected, kinds, kv, pipelined, timed


def transaction(one: redis.Redis, two: redis.Redis) -> None:
    with one.pipeline() as pipe:
        pipe.set("a", "x").incr("a").get("a")
        pipe.execute(raise_on_error=False)


def stock(*, watch_first: bool) -> Callable[[redis.Redis, redis.Redis], None]:
    """Two clients that both read a stock and take one of it."""

    def use(one: redis.Redis, two: redis.Redis) -> None:
        one.set("stock", "5")
        with one.pipeline() as pipe:
            if watch_first:
                pipe.watch("stock")
            left = int(pipe.immediate_execute_command("GET", "stock"))
            two.set("stock", "4")
            if not watch_first:
                pipe.watch("stock")
            pipe.multi()
            pipe.set("stock", str(left - 2))
            try:
                pipe.execute()
            except redis.WatchError:
                return

    return use


def entries(*, acknowledges: bool) -> Callable[[redis.Redis, redis.Redis], None]:
    def use(one: redis.Redis, two: redis.Redis) -> None:
        one.xgroup_create("s", "g", "0", mkstream=True)
        one.xadd("s", {"a": "1"}, id="1-0")
        one.xadd("s", {"a": "2"}, id="2-0")
        one.xreadgroup("g", "w", {"s": ">"})
        if acknowledges:
            one.xack("s", "g", "1-0")
        one.xautoclaim("s", "g", "w2", 0)

    return use


def many_entries(one: redis.Redis, two: redis.Redis) -> None:
    one.xgroup_create("s", "g", "0", mkstream=True)
    for number in range(1, 6):
        one.xadd("s", {"a": "1"}, id=f"{number}-0")
    one.xreadgroup("g", "w", {"s": ">"})
    one.xclaim("s", "g", "w2", 0, [f"{number}-0" for number in range(1, 6)])


def other_group(one: redis.Redis, two: redis.Redis) -> None:
    """Both groups get the entry; the one that claims it has acknowledged it."""
    for group in ("g", "h"):
        one.xgroup_create("s", group, "0", mkstream=True)
    one.xadd("s", {"a": "1"}, id="1-0")
    for group in ("g", "h"):
        one.xreadgroup(group, "w", {"s": ">"})
    one.xack("s", "g", "1-0")
    one.xautoclaim("s", "g", "w2", 0)
    one.xautoclaim("s", "h", "w2", 3_600_000)


def two_messages(cloud: Cloud) -> None:
    """Each message fails, and its receiver makes the same calls for both."""
    server, queue = cloud.kv_server(), cloud.queue()

    def take(request: Any) -> int:
        httpx.post(server.url, json=["INCR", "n"], headers=server.headers)
        return 500

    queue.destinations.call("https://app.example.com/hook", take)
    for _ in range(2):
        queue.publish("https://app.example.com/hook", retries=0)
        queue.run_until_idle()


def counts(*answers: int) -> Scene:
    """A receiver that counts each message before it answers."""

    def run(cloud: Cloud) -> None:
        server, queue = cloud.kv_server(), cloud.queue()
        left = iter(answers)

        def take(request: Any) -> int:
            for command in (["INCR", "n"], ["SADD", "s", "a"]):
                httpx.post(server.url, json=command, headers=server.headers)
            return next(left)

        queue.destinations.call("https://app.example.com/hook", take)
        queue.publish("https://app.example.com/hook", retries=len(answers) - 1)
        queue.run_until_idle()

    return run


def marks(
    *answers: int,
    options: tuple[Any, ...] = ("NX", "EX", 60),
    key: str = "done:7",
    name: str = "SET",
) -> Scene:
    """A receiver that marks each message before it answers."""

    def run(cloud: Cloud) -> None:
        server, queue = cloud.kv_server(), cloud.queue()
        left = iter(answers)

        def take(request: Any) -> int:
            command = [name, key, 1, *options]
            httpx.post(server.url, json=command, headers=server.headers)
            return next(left)

        queue.destinations.call("https://app.example.com/hook", take)
        queue.publish("https://app.example.com/hook", retries=len(answers) - 1)
        queue.run_until_idle()

    return run


FORTY = [word for number in range(40) for word in (f"m{number}", "v")]
FIELDS = [word for number in range(600) for word in (f"f{number}", "v")]
NOON = 1_772_366_400  # 2026-03-01T12:00:00Z
SCORED = [word for number in range(5) for word in (1, f"m{number}")]


def ranges(*pages: list[int]) -> Scene:
    return kv(["RPUSH", "list", *"abcde"], *(["LRANGE", "list", *page] for page in pages))


CASES: dict[str, Scene] = {
    "a pipeline": pipelined("pipeline", ["SET", "a", "x"], ["INCR", "a"], ["GET", "a"]),
    "a transaction over REST": pipelined("multi-exec", ["SET", "a", "x"], ["INCR", "a"]),
    "a transaction on a connection": connected(transaction),
    "a watch that came late": connected(stock(watch_first=False)),
    "a page": kv(["MSET", *FORTY], ["SCAN", 0, "COUNT", 10]),
    "a page of a hash": kv(["HSET", "h", *FIELDS], ["HSCAN", "h", 0]),
    "a page with a cursor that nobody gave": kv(
        ["MSET", *FORTY], ["SCAN", 0, "COUNT", 10], ["SCAN", 31, "COUNT", 30]
    ),
    "a page from the middle": kv(["MSET", *FORTY], ["SCAN", 21, "COUNT", 10]),
    "a scan that began again before its end": kv(
        ["MSET", *FORTY], ["SCAN", 0, "COUNT", 10], ["SCAN", 0, "COUNT", 20]
    ),
    "a counter made anew": timed(["SET", "n", 0, "EX", 60], ["INCR", "n"], "61s", ["INCR", "n"]),
    "scores that are the same": kv(
        ["ZADD", "z", 0, "9:a", 0, "10:b"], ["ZRANGE", "z", 0, 0, "REV"]
    ),
    "an entry again": connected(entries(acknowledges=False)),
    "more than one failed, and one was carried out": pipelined(
        "pipeline", ["SET", "a", "x"], ["INCR", "a"], ["LPUSH", "a", "x"]
    ),
    "a page of a hash after one of another": kv(
        ["HSET", "h", *FIELDS],
        ["HSET", "small", "f", "v"],
        ["HSCAN", "h", 0],
        ["HSCAN", "small", 0],
    ),
    "a scan that began again after all of it": kv(
        ["MSET", *FORTY],
        ["SCAN", 0, "COUNT", 30],
        ["SCAN", 31, "COUNT", 30],
        ["SCAN", 0, "COUNT", 20],
    ),
    "a counter of two made anew": timed(
        ["PING"], ["SET", "n", 4, "PX", 60_000], "61s", ["INCRBY", "n", 2]
    ),
    "a counter with an expiry of its own made anew": timed(
        ["SET", "n", 4], ["EXPIRE", "n", 60], "61s", ["DECR", "n"]
    ),
    "a counter that lived until an instant made anew": timed(
        ["INCR", "n"], ["EXPIREAT", "n", NOON + 60], "60s", ["INCR", "n"]
    ),
    "a counter that lived until a millisecond made anew": timed(
        ["SET", "n", 4, "PXAT", (NOON + 60) * 1000], "60s", ["INCR", "n"]
    ),
    "a counter that was read with a span made anew": timed(
        ["INCR", "n"], ["GETEX", "n", "EX", 60], "60s", ["INCR", "n"]
    ),
    "scores that are the same, with options": kv(
        ["SET", "s", 1],
        ["ZADD", "z", "CH", "nx", 1, "a"],
        ["ZADD", "z", 1, "b"],
        ["ZRANK", "z", "a"],
    ),
    "NX on many members": kv(["ZADD", "z", *SCORED], ["PING"], ["ZADD", "z", "NX", *SCORED]),
    "many entries again": connected(many_entries),
    "a lock that an attempt left": marks(500, 200, key="lock:7"),
    "a write that a retry repeats after a 400": counts(400, 200),
    "a write that a retry repeats": counts(500, 200),
    "a mark of an attempt that failed": marks(500, 200),
    "a pipeline that went well": pipelined("pipeline", ["SET", "a", 1], ["INCR", "a"]),
    "a pipeline of one": pipelined("pipeline", ["SET", "a", 1]),
    "a command that failed": kv(["SET", "a", "x"], ["INCR", "a"]),
    "a counter that is set anew": timed(
        ["SET", "n", 1, "EX", 9], "10s", ["SET", "n", 1], ["INCR", "n"]
    ),
    "a counter whose expiry was taken": timed(
        ["SET", "n", 0, "EX", 9], ["INCR", "n"], ["PERSIST", "n"], ["INCR", "n"]
    ),
    "a counter that was deleted": timed(
        ["INCR", "n"], ["EXPIRE", "n", 9], ["DEL", "n"], ["INCR", "n"]
    ),
    "an order by score": kv(["ZADD", "z", 0, "a", 0, "b"], ["ZRANGE", "z", 0, 9, "BYSCORE"]),
    "a score that was counted": kv(
        ["ZADD", "z", 0, "a", 0, "b"], ["ZADD", "z", "INCR", 1, "a"], ["ZRANGE", "z", 0, 0]
    ),
    "an entry of another group": connected(other_group),
    "writes of two messages": two_messages,
    "a field that was set": kv(["HSETNX", "h", "f", 1], ["HSETNX", "h", "g", 1]),
    "a score that stayed": kv(["ZADD", "z", 1, "a"], ["ZADD", "z", "XX", 1, "a"]),
    "a set that had it": kv(["SADD", "s", "a"], ["SADD", "s", "a"], ["EXISTS", "no", "none"]),
    "a value that was read in the same step": kv(
        ["SET", "s", 1, "GET"], ["SET", "t", 1, "XX", "GET"]
    ),
    "a pipeline of errors": pipelined("pipeline", ["LPUSH"], ["GET"]),
    "a transaction that was undone": pipelined("multi-exec", ["SET", "a", 1], ["NOSUCH"]),
    "a watch in time": connected(stock(watch_first=True)),
    "all pages": kv(["MSET", *FORTY], ["SCAN", 0, "COUNT", 30], ["SCAN", 31, "COUNT", 30]),
    "one page that is all": kv(["SET", "a", 1], ["SCAN", 0]),
    "a counter with its expiry again": timed(
        ["INCR", "n"], ["EXPIRE", "n", 9], "10s", ["INCR", "n"], ["EXPIRE", "n", 9]
    ),
    "a counter that lives": timed(["INCR", "n"], ["EXPIRE", "n", 9], "5s", ["INCR", "n"]),
    "scores that differ": kv(["ZADD", "z", 0, "a", 1, "b"], ["ZRANGE", "z", 0, 0]),
    "one member": kv(["ZADD", "z", 0, "a"], ["ZRANGE", "z", 0, 0]),
    "an order by text": kv(["ZADD", "z", 0, "a", 0, "b"], ["ZRANGE", "z", "-", "+", "BYLEX"]),
    "a score that was raised": kv(
        ["ZADD", "z", 0, "a", 0, "b"], ["ZINCRBY", "z", 2, "a"], ["ZRANGE", "z", 0, 0]
    ),
    "entries that were acknowledged": connected(entries(acknowledges=True)),
    "a mark of an attempt that worked": marks(200),
    "a write of an attempt that worked": counts(200),
    "pages that overlap": ranges([0, 2], [2, 4], [4, 6]),
    "pages that do not overlap": ranges([0, 1], [2, 3], [4, 5]),
    "pages of the list's other end": ranges([0, 1], [1, 3], [-2, -1]),
    "a counter that begins": kv(*[["SET", "n", 0, "NX", "EX", 60], ["INCR", "n"]] * 2),
}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [(["GET /orders", "GET /orders", "POST /export"], ["limit_shared"]), (["GET /orders"] * 3, [])],
)
def test_a_limit_that_two_endpoints_share(
    cloud: Cloud, targets: list[str], expected: list[str]
) -> None:
    server = cloud.kv_server()
    reserve = recorder_of(cloud.journal).reserve
    served = []
    for target, status in zip(targets, (200, 200, 429), strict=True):
        began = reserve()
        httpx.post(server.url, json=["INCR", "limit"], headers=server.headers)
        served.append(Served(began, 0, target, "Flask", None, 0, reserve(), status))
    assert kinds(cloud, served=served) == expected


@pytest.mark.parametrize(
    ("first", "count"),
    [
        ({"status": 500}, 1),
        ({"status": 200, "raised": "KeyError"}, 1),
        ({"status": None}, 1),
        ({"status": 429}, 0),
        ({"status": 500, "body": "another"}, 0),
        ({"status": 500, "headers": (("HTTP_COOKIE", "bob"),)}, 0),
        ({"status": 500, "alone": False}, 0),
        ({"status": 500, "ended": 0}, 0),
        ({"status": 500, "target": "POST /other"}, 0),
    ],
    ids=["500", "raised", "unknown", "429", "another body", "another user", "not alone",
         "not ended", "another path"],
)  # fmt: skip
def test_a_write_is_repeated_only_by_the_same_request_after_a_failure(
    cloud: Cloud, first: dict[str, Any], count: int
) -> None:
    server = cloud.kv_server()
    reserve = recorder_of(cloud.journal).reserve
    served = []
    for how in (first, {"status": 200}):
        began = reserve()
        httpx.post(server.url, json=["INCR", "n"], headers=server.headers)
        usual: dict[str, Any] = {"target": "POST /pay", "framework": "Flask", "environ": None}
        usual |= {"thread": 0, "began": began, "at_us": 0, "ended": reserve()}
        served.append(Served(**{**usual, **how}))
    assert kinds(cloud, served=served) == ["repeated_after_failure"] * count


CASES["a mark by SETNX that an attempt left"] = marks(
    500, 200, options=(), key="done:7", name="SETNX"
)
test_findings = check("series", CASES)
