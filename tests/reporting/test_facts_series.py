"""Facts about commands that belong together: said where they hold, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.journal import recorder_of
from pytest_fakecloud.reporting.applications import Served
from pytest_fakecloud.reporting.facts import facts
from pytest_fakecloud.reporting.rows import scene_of

from .test_facts import Scene, kv, timed, told


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


def pipelined(path: str, *lines: list[Any]) -> Scene:
    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        httpx.post(f"{server.url}/{path}", json=lines, headers=server.headers)

    return run


def connected(use: Callable[[redis.Redis, redis.Redis], object]) -> Scene:
    """Two clients on connections of their own."""

    def run(cloud: Cloud) -> None:
        url = cloud.kv_server().database_url
        with (
            redis.Redis.from_url(url, decode_responses=True) as one,
            redis.Redis.from_url(url, decode_responses=True) as two,
        ):
            use(one, two)

    return run


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
    """Each message fails, and its receiver writes the same for both."""
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
SAID: list[tuple[str, Scene, str]] = [
    (
        "a pipeline",
        pipelined("pipeline", ["SET", "a", "x"], ["INCR", "a"], ["GET", "a"]),
        "kv_server: 1 of the 3 commands of this pipeline failed; the other 2 were carried out",
    ),
    (
        "a transaction over REST",
        pipelined("multi-exec", ["SET", "a", "x"], ["INCR", "a"]),
        "kv_server: 1 of the 2 commands of this transaction failed; the other one was carried out",
    ),
    (
        "a transaction on a connection",
        connected(transaction),
        "kv_server: 1 of the 3 commands of this transaction failed; the other 2 were carried out",
    ),
    (
        "a watch that came late",
        connected(stock(watch_first=False)),
        'kv_server: this SET wrote "3" over "4", which another connection had written after this '
        "one's GET of "
        '"5"; its WATCH came later still',
    ),
    (
        "a page",
        kv(["MSET", *FORTY], ["SCAN", 0, "COUNT", 10]),
        "kv_server: this SCAN had more to come (its cursor is 11, not 0), and no call went on "
        "with it",
    ),
    (
        "a page of a hash",
        kv(["HSET", "h", *FIELDS], ["HSCAN", "h", 0]),
        "kv_server: this HSCAN had more to come (its cursor is 101, not 0), and no call went on "
        "with it",
    ),
    (
        "a page with a cursor that nobody gave",
        kv(["MSET", *FORTY], ["SCAN", 0, "COUNT", 10], ["SCAN", 31, "COUNT", 30]),
        "kv_server: this SCAN had more to come (its cursor is 11, not 0), and no call went on "
        "with it",
    ),
    (
        "a page from the middle",
        kv(["MSET", *FORTY], ["SCAN", 21, "COUNT", 10]),
        "kv_server: this SCAN had more to come (its cursor is 31, not 0), and no call went on "
        "with it",
    ),
    (
        "a scan that began again before its end",
        kv(["MSET", *FORTY], ["SCAN", 0, "COUNT", 10], ["SCAN", 0, "COUNT", 20]),
        "kv_server: this SCAN had more to come (its cursor is 21, not 0), and no call went on "
        "with it",
    ),
    (
        "a counter made anew",
        timed(["SET", "n", 0, "EX", 60], ["INCR", "n"], "61s", ["INCR", "n"]),
        "kv_server: n had expired, so this INCR made it anew, and without an expiry",
    ),
    (
        "scores that are the same",
        kv(["ZADD", "z", 0, "9:a", 0, "10:b"], ["ZRANGE", "z", 0, 0, "REV"]),
        "kv_server: all 2 members of z have the score 0, so they stand in the order of their text",
    ),
    (
        "an entry again",
        connected(entries(acknowledges=False)),
        "kv_server: group g of s got 1-0, 2-0 again; it has acknowledged nothing (no XACK came)",
    ),
    (
        "more than one failed, and one was carried out",
        pipelined("pipeline", ["SET", "a", "x"], ["INCR", "a"], ["LPUSH", "a", "x"]),
        "kv_server: 2 of the 3 commands of this pipeline failed; the other one was carried out",
    ),
    (
        "a page of a hash after one of another",
        kv(
            ["HSET", "h", *FIELDS],
            ["HSET", "small", "f", "v"],
            ["HSCAN", "h", 0],
            ["HSCAN", "small", 0],
        ),
        "kv_server: this HSCAN had more to come (its cursor is 101, not 0), and no call went on "
        "with it",
    ),
    (
        "a scan that began again after all of it",
        kv(
            ["MSET", *FORTY],
            ["SCAN", 0, "COUNT", 30],
            ["SCAN", 31, "COUNT", 30],
            ["SCAN", 0, "COUNT", 20],
        ),
        "kv_server: this SCAN had more to come (its cursor is 21, not 0), and no call went on "
        "with it",
    ),
    (
        "a counter of two made anew",
        timed(["PING"], ["SET", "n", 4, "PX", 60_000], "61s", ["INCRBY", "n", 2]),
        "kv_server: n had expired, so this INCRBY made it anew, and without an expiry",
    ),
    (
        "a counter with an expiry of its own made anew",
        timed(["SET", "n", 4], ["EXPIRE", "n", 60], "61s", ["DECR", "n"]),
        "kv_server: n had expired, so this DECR made it anew, and without an expiry",
    ),
    (
        "a counter that lived until an instant made anew",
        timed(["INCR", "n"], ["EXPIREAT", "n", NOON + 60], "60s", ["INCR", "n"]),
        "kv_server: n had expired, so this INCR made it anew, and without an expiry",
    ),
    (
        "a counter that lived until a millisecond made anew",
        timed(["SET", "n", 4, "PXAT", (NOON + 60) * 1000], "60s", ["INCR", "n"]),
        "kv_server: n had expired, so this INCR made it anew, and without an expiry",
    ),
    (
        "a counter that was read with a span made anew",
        timed(["INCR", "n"], ["GETEX", "n", "EX", 60], "60s", ["INCR", "n"]),
        "kv_server: n had expired, so this INCR made it anew, and without an expiry",
    ),
    (
        "scores that are the same, with options",
        kv(
            ["SET", "s", 1],
            ["ZADD", "z", "CH", "nx", 1, "a"],
            ["ZADD", "z", 1, "b"],
            ["ZRANK", "z", "a"],
        ),
        "kv_server: all 2 members of z have the score 1, so they stand in the order of their text",
    ),
    (
        "NX on many members",
        kv(["ZADD", "z", *SCORED], ["PING"], ["ZADD", "z", "NX", *SCORED]),
        "kv_server: this ZADD changed nothing: z had m0, m1, m2 and 2 more already (NX only adds)",
    ),
    (
        "many entries again",
        connected(many_entries),
        "kv_server: group g of s got 1-0, 2-0, 3-0 and 2 more again; it has acknowledged nothing "
        "(no XACK came)",
    ),
    (
        "a lock that an attempt left",
        marks(500, 200, key="lock:7"),
        "kv_server: this SET changed nothing: lock:7 was there, from attempt 1 of msg_0bf3, which "
        "had failed",
    ),
    (
        "a write that a retry repeats after a 400",
        counts(400, 200),
        "kv_server: this INCR repeats one of attempt 1 of msg_0bf3, which had failed after it",
    ),
    (
        "a write that a retry repeats",
        counts(500, 200),
        "kv_server: this INCR repeats one of attempt 1 of msg_0bf3, which had failed after it",
    ),
    (
        "a mark of an attempt that failed",
        marks(500, 200),
        "kv_server: this SET changed nothing: done:7 was there already (NX), from attempt 1 of "
        "msg_0bf3, which had failed",
    ),
]
SILENT: list[tuple[str, Scene]] = [
    ("a pipeline that went well", pipelined("pipeline", ["SET", "a", 1], ["INCR", "a"])),
    ("a pipeline of one", pipelined("pipeline", ["SET", "a", 1])),
    ("a command that failed", kv(["SET", "a", "x"], ["INCR", "a"])),
    (
        "a counter that is set anew",
        timed(["SET", "n", 1, "EX", 9], "10s", ["SET", "n", 1], ["INCR", "n"]),
    ),
    (
        "a counter whose expiry was taken",
        timed(["SET", "n", 0, "EX", 9], ["INCR", "n"], ["PERSIST", "n"], ["INCR", "n"]),
    ),
    (
        "a counter that was deleted",
        timed(["INCR", "n"], ["EXPIRE", "n", 9], ["DEL", "n"], ["INCR", "n"]),
    ),
    ("an order by score", kv(["ZADD", "z", 0, "a", 0, "b"], ["ZRANGE", "z", 0, 9, "BYSCORE"])),
    (
        "a score that was counted",
        kv(["ZADD", "z", 0, "a", 0, "b"], ["ZADD", "z", "INCR", 1, "a"], ["ZRANGE", "z", 0, 0]),
    ),
    ("an entry of another group", connected(other_group)),
    ("writes of two messages", two_messages),
    ("a field that was set", kv(["HSETNX", "h", "f", 1], ["HSETNX", "h", "g", 1])),
    ("a score that stayed", kv(["ZADD", "z", 1, "a"], ["ZADD", "z", "XX", 1, "a"])),
    ("a set that had it", kv(["SADD", "s", "a"], ["SADD", "s", "a"], ["EXISTS", "no", "none"])),
    (
        "a value that was read in the same step",
        kv(["SET", "s", 1, "GET"], ["SET", "t", 1, "XX", "GET"]),
    ),
    ("a pipeline of errors", pipelined("pipeline", ["LPUSH"], ["GET"])),
    ("a transaction that was undone", pipelined("multi-exec", ["SET", "a", 1], ["NOSUCH"])),
    ("a watch in time", connected(stock(watch_first=True))),
    (
        "all pages",
        kv(["MSET", *FORTY], ["SCAN", 0, "COUNT", 30], ["SCAN", 31, "COUNT", 30]),
    ),
    ("one page that is all", kv(["SET", "a", 1], ["SCAN", 0])),
    (
        "a counter with its expiry again",
        timed(["INCR", "n"], ["EXPIRE", "n", 9], "10s", ["INCR", "n"], ["EXPIRE", "n", 9]),
    ),
    ("a counter that lives", timed(["INCR", "n"], ["EXPIRE", "n", 9], "5s", ["INCR", "n"])),
    ("scores that differ", kv(["ZADD", "z", 0, "a", 1, "b"], ["ZRANGE", "z", 0, 0])),
    ("one member", kv(["ZADD", "z", 0, "a"], ["ZRANGE", "z", 0, 0])),
    ("an order by text", kv(["ZADD", "z", 0, "a", 0, "b"], ["ZRANGE", "z", "-", "+", "BYLEX"])),
    (
        "a score that was raised",
        kv(["ZADD", "z", 0, "a", 0, "b"], ["ZINCRBY", "z", 2, "a"], ["ZRANGE", "z", 0, 0]),
    ),
    ("entries that were acknowledged", connected(entries(acknowledges=True))),
    ("a mark of an attempt that worked", marks(200)),
    ("a write of an attempt that worked", counts(200)),
    ("a counter that begins", kv(*[["SET", "n", 0, "NX", "EX", 60], ["INCR", "n"]] * 2)),
]


@pytest.mark.parametrize(
    ("scene", "text"), [each[1:] for each in SAID], ids=[each[0] for each in SAID]
)
def test_what_happened_is_said(cloud: Cloud, scene: Scene, text: str) -> None:
    scene(cloud)
    assert told(cloud) == [text]


@pytest.mark.parametrize("scene", [each[1] for each in SILENT], ids=[each[0] for each in SILENT])
def test_what_did_not_happen_is_not(cloud: Cloud, scene: Scene) -> None:
    scene(cloud)
    assert told(cloud) == []


@pytest.mark.parametrize(
    ("first", "count"),
    [
        ({"status": 500}, 1),
        ({"status": 400}, 1),
        ({"status": 200, "raised": "KeyError"}, 1),
        ({"status": None}, 1),
        ({"status": 399}, 0),
        ({"status": 500, "alone": False}, 0),
        ({"status": 500, "ended": 0}, 0),
        ({"status": 500, "target": "POST /other"}, 0),
    ],
    ids=["500", "400", "raised", "unknown", "399", "beside others", "not ended", "another"],
)
def test_a_write_that_a_request_repeats_after_a_failure_is_said(
    cloud: Cloud, first: dict[str, Any], count: int
) -> None:
    server = cloud.kv_server()
    reserve = recorder_of(cloud.journal).reserve
    served = []
    for how in (first, {"status": 200}):
        began = reserve()
        httpx.post(server.url, json=["INCR", "n"], headers=server.headers)
        usual: dict[str, Any] = {
            "target": "POST /pay",
            "framework": "Flask",
            "environ": None,
            "thread": 0,
        }
        usual |= {"began": began, "at_us": 0, "ended": reserve()}
        served.append(Served(**{**usual, **how}))  # type: ignore[arg-type]
    found = facts(cloud, scene_of(cloud, list(cloud.journal.entries)), served=served)
    text = "kv_server: this INCR repeats one of an earlier POST /pay, which had failed after it"
    assert [one.text for one in found] == [text] * count


def test_a_mark_by_setnx_that_an_attempt_left_is_said(cloud: Cloud) -> None:
    marks(500, 200, options=(), key="done:7", name="SETNX")(cloud)
    assert told(cloud)[-1] == (
        "kv_server: this SETNX changed nothing: done:7 was there, from attempt 1 of msg_0bf3, which "
        "had failed"
    )
