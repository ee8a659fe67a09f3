"""Test the complete official Python client, sync and async.

Every scenario runs with both clients and its own server: here in memory on a frozen clock, and in
front of real servers in `tests/kv/real_redis/test_engine.py`. A scenario that some engines cannot run
names what it needs, or has a step that asks `World`. A last test runs all scenarios again in
memory, records the methods and parameters that they use, and fails for each one that is neither
used nor excused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.fake import KVServer
from tests.clients.surface import Api, Kept, Scenarios, Used, check_complete, surface

upstash_redis = pytest.importorskip("upstash_redis")

from upstash_redis import AsyncRedis, Redis  # noqa: E402
from upstash_redis import asyncio as upstash_asyncio  # noqa: E402
from upstash_redis import client as upstash_client  # noqa: E402
from upstash_redis.asyncio import client as upstash_async_client  # noqa: E402
from upstash_redis.errors import UpstashError  # noqa: E402

NOW = "2026-01-01T00:00:00Z"
NOW_S = 1767225600
FLAVOURS = (Redis, AsyncRedis)
WHOLE_SERVER = "a server that is all this test's"
LATE = 20
"""Seconds of wall-clock time that may pass before a scenario reads a remaining TTL."""

EXCUSED = {
    "redis.search": "has a surface of its own: test_upstash_search.py",
    "redis.close": "called for every client by the frame of these tests",
    "pipeline.execute": "the way commands get into the pipeline, used by every one of them",
    "pipeline.execute(command)": "the way commands get into the pipeline",
    "bitfield.execute(command)": "takes none",
}


@dataclass(frozen=True)
class Left:
    """A remaining duration, of which some may have passed."""

    amount: int
    late: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.amount - self.late <= other <= self.amount

    __hash__ = None  # type: ignore[assignment]


@dataclass
class World:
    """The server and client of one scenario."""

    server: KVServer
    api: Any
    flavour: type
    groups: dict[type, str]
    used: Used
    loop: asyncio.AbstractEventLoop
    stack: ExitStack

    @property
    def real(self) -> bool:
        """Whether a server in wall-clock time runs the commands."""
        return not isinstance(self.server._engine, KVEngine)

    @property
    def now_s(self) -> int:
        """Return the server's time in seconds."""
        return int(self.server.execute("TIME")[0]) if self.real else NOW_S

    def left(self, amount: int, *, ms: bool = False) -> object:
        """Return a value that equals a TTL that was set to ``amount``, or a slightly smaller one."""
        return Left(amount, LATE * (1000 if ms else 1)) if self.real else amount

    def pass_time(self, seconds: float, until: Callable[[], bool]) -> None:
        """Let time pass; in front of a real server, it is wall-clock time, and less of it."""
        if not self.real:
            self.server.clock.advance(seconds)
        end = monotonic() + LATE
        while not until():
            assert self.real, "the time passed and changed nothing"
            assert monotonic() < end, "it never happened"
            threading.Event().wait(0.005)

    def lacks(self, need: str) -> str | None:
        """Return why the scenario cannot run here, or None if it can."""
        if not self.real:
            return None
        if need == WHOLE_SERVER:
            alone = self.server._engine.settings.isolation == "none"  # type: ignore[attr-defined]
            return None if alone else f"needs {need}"
        info = self.server.execute("COMMAND", "INFO", need)[0]
        return None if info else f"the server has no {need}"

    def client(self, target: Any) -> Any:
        """Return another recorded client, which is closed at the end."""
        self.stack.callback(close, target, self.loop)
        return Api(target, self.groups, self.used, self.loop)


def close(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    result = client.close()
    if result is not None:
        loop.run_until_complete(result)


@cache
def groups_of(flavour: type) -> dict[type, str]:
    client: Any = flavour(url="http://127.0.0.1:9", token="x", allow_telemetry=False)
    pipeline = client.pipeline()
    groups = {
        flavour: "redis", type(client.json): "json", type(client.bitfield("k")): "bitfield",
        type(client.bitfield_ro("k")): "bitfield_ro", type(pipeline): "pipeline",
        type(pipeline.json): "pipeline_json", type(pipeline.bitfield("k")): "pipeline_bitfield",
    }  # fmt: skip
    loop = asyncio.new_event_loop()
    close(client, loop)
    loop.close()
    return groups


SCENARIOS = scenario = Scenarios()
"""Some need a command or another feature that not all engines have."""


def in_memory() -> KVServer:
    return KVServer(Context.alone(now=NOW))


def run(name: str, flavour: type, used: Used, make: Callable[[], KVServer] = in_memory) -> None:
    needs, function = SCENARIOS[name]
    with ExitStack() as stack:
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        server = stack.enter_context(make())
        groups = groups_of(flavour)
        world = World(server, None, flavour, groups, used, loop, stack)
        missing = world.lacks(needs) if needs else None
        if missing is not None:
            pytest.skip(missing)
        world.api = world.client(flavour(url=server.url, token=server.token))
        function(world, world.api)
        assert server._context.violations == []


@scenario()
def connections(w: World, r: Any) -> None:
    options = {
        "rest_encoding": None, "rest_retries": 0, "rest_retry_interval": 0.1,
        "allow_telemetry": False, "read_your_writes": False,
    }  # fmt: skip
    w.used.note("redis", "__init__", ["url", "token", *options])
    plain = w.client(w.flavour(url=w.server.url, token=w.server.token, **options))
    plain.set("k", "v")
    headers = {name.lower() for name in w.server.journal.calls().last.request_headers}
    assert not {"upstash-encoding", "upstash-sync-token"} & headers
    assert plain.get("k") == "v"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in w.server.env.items():
            patch.setenv(name, value)
        w.used.note("redis", "from_env", options)
        assert w.client(w.flavour.from_env(**options)).get("k") == "v"  # type: ignore[attr-defined]
    wrong = w.client(w.flavour(url=w.server.url, token="no", rest_retries=0))
    with pytest.raises(UpstashError, match="WRONGPASS invalid or missing auth token"):
        wrong.ping()
    assert r.ping() == "PONG"
    assert r.ping("hi") == "hi"
    assert r.echo("hi") == "hi"
    assert r.client_setinfo("LIB-NAME", "me") == "OK"
    assert r.execute(["SET", "raw", 1]) is True
    assert r.execute(["GET", "raw"]) == "1"
    with pytest.raises(UpstashError, match="not available: 'NOSUCH'"):
        r.execute(["NOSUCH"])


@scenario()
def sync_tokens(w: World, r: Any) -> None:
    r.set("k", "v")
    r.get("k")
    sent = [call.request_headers.get("Upstash-Sync-Token") for call in w.server.journal.calls()]
    assert sent[0] == ""
    assert sent[1]


@scenario()
def strings(w: World, r: Any) -> None:
    assert r.set("k", "v") is True
    assert r.set("k", "v2", nx=True) is False
    assert r.set("none", "v", xx=True) is False
    assert r.set("k", "v2", xx=True, get=True) == "v"
    now_s = w.now_s
    assert r.set("k", "v", ex=100) is True
    assert r.ttl("k") == w.left(100)
    assert r.set("k", "v", keepttl=True) is True
    assert r.ttl("k") == w.left(100)
    assert r.set("k", "v", px=150_001) is True
    assert r.pttl("k") == w.left(150_001, ms=True)
    assert r.set("k", "v", exat=now_s + 200) is True
    assert r.ttl("k") == w.left(200)
    assert r.set("k", "v", pxat=now_s * 1000 + 30_001) is True
    assert r.pttl("k") == w.left(30_001, ms=True)
    assert r.set("doc", {"a": [1, True]}) is True
    assert w.server.value("doc") == '{"a": [1, true]}'
    assert r.setex("k", 100, "v") is True
    assert r.ttl("k") == w.left(100)
    assert r.psetex("k", 200_000, "v") is True
    assert r.ttl("k") == w.left(200)
    assert r.setnx("k", "x") is False
    assert r.append("k", "w") == 2
    assert r.strlen("k") == 2
    assert r.getrange("k", 0, 0) == "v"
    assert r.substr("k", 1, 1) == "w"
    assert r.setrange("k", 1, "x") == 2
    assert r.get("k") == "vx"
    assert r.getset("k", "1") == "vx"
    assert r.incr("k") == 2
    assert r.incrby("k", 3) == 5
    assert r.decr("k") == 4
    assert r.decrby("k", 2) == 2
    assert r.incrbyfloat("k", 0.5) == 2.5
    for option, value in (
        ("ex", 100), ("px", 100_000), ("exat", now_s + 100), ("pxat", now_s * 1000 + 100_000),
    ):  # fmt: skip
        assert r.getex("k", **{option: value}) == "2.5"
        assert r.ttl("k") == w.left(100)
    assert r.getex("k", persist=True) == "2.5"
    assert r.ttl("k") == -1
    assert r.getdel("k") == "2.5"
    assert r.mset({"a": "1", "b": 2}) is True
    assert r.msetnx({"b": "1", "c": "2"}) is False
    assert r.mget("a", "b", "c") == ["1", "2", None]
    assert r.get("c") is None
    with pytest.raises(UpstashError, match="not an integer"):
        r.incr("doc")
    r.set("bytes", "\u00e9\u4e2d\U0001f600")
    assert r.get("bytes") == "\u00e9\u4e2d\U0001f600"


@scenario()
def bits(w: World, r: Any) -> None:
    assert r.setbit("b", 7, 1) == 0
    assert r.getbit("b", 7) == 1
    assert r.bitcount("b") == 1
    assert r.bitcount("b", 0, 0) == 1
    assert r.bitpos("b", 1) == 7
    assert r.bitpos("b", 1, 0, 0) == 7
    assert r.bitop("NOT", "n", "b") == 1
    assert r.bitop("OR", "o", "b", "n") == 1
    assert r.bitfield("f").set("u8", 0, 250).incrby("u8", 0, 10).overflow("SAT").incrby(
        "u8", 0, 255
    ).get("u8", 0).execute() == [0, 4, 255, 255]
    assert r.bitfield_ro("f").get("u8", 0).get("u4", 4).execute() == [255, 15]


@scenario()
def keys(w: World, r: Any) -> None:
    r.mset({"a": "1", "b": "2"})
    assert r.exists("a", "b", "c") == 2
    assert r.copy("a", "c") is True
    assert r.copy("b", "c", replace=True) is True
    assert r.copy("none", "c") is False
    assert r.rename("c", "d") is True
    assert r.renamenx("d", "a") is False
    assert sorted(r.keys("*")) == ["a", "b", "d"]
    assert r.randomkey() in ("a", "b", "d")
    assert r.touch("a", "b", "none") == 2
    assert r.type("a") == "string"
    assert r.dbsize() == 3
    for method, value in (("expire", 100), ("pexpire", 100_000)):
        call = getattr(r, method)
        assert call("a", value) is True
        assert call("a", value, nx=True) is False
        assert call("a", value * 2, xx=True) is True
        assert call("a", value, gt=True) is False
        assert call("a", value, lt=True) is True
        assert r.ttl("a") == w.left(100)
        assert r.persist("a") is True
    for method, unit in (("expireat", 1), ("pexpireat", 1000)):
        call = getattr(r, method)
        at = (w.now_s + 100) * unit
        assert call("a", at) is True
        assert call("a", at, nx=True) is False
        assert call("a", at + 5 * unit, xx=True) is True
        assert call("a", at, gt=True) is False
        assert call("a", at, lt=True) is True
        assert r.pttl("a") == w.left(100_000, ms=True)
        assert r.persist("a") is True
    cursor, page = r.scan(0)
    assert (cursor, sorted(page)) == (0, ["a", "b", "d"])
    pages: list[list[str]] = []
    while cursor != 0 or not pages:
        cursor, page = r.scan(cursor, match="*", count=1, type="string")
        pages.append(page)
    assert sorted(name for page in pages for name in page) == ["a", "b", "d"]
    # A server decides how many keys a page has; in memory, a page has the requested number.
    assert w.real or [len(page) for page in pages] == [1, 1, 1]
    assert r.unlink("a", "none") == 1
    assert r.delete("b", "d") == 2
    assert r.flushdb() is True
    assert r.flushdb(flush_type="SYNC") is True
    assert r.flushall() is True
    assert r.flushall(flush_type="ASYNC") is True


@scenario()
def the_time(w: World, r: Any) -> None:
    first = r.time()
    assert first == (NOW_S, 0) or 0 <= w.now_s - first[0] <= LATE
    w.pass_time(1.5, lambda: r.time() > first)
    assert w.real or r.time() == (NOW_S + 1, 500_000)


@scenario()
def hashes(w: World, r: Any) -> None:
    assert r.hset("h", "a", "1") == 1
    assert r.hset("h", values={"b": "2", "c": 3}) == 2
    assert r.hset("h", field="a", value="1") == 0
    assert r.hmset("h", {"d": "4"}) is True
    assert r.hsetnx("h", "a", "x") is False
    assert r.hget("h", "a") == "1"
    assert r.hget("h", "none") is None
    assert r.hmget("h", "a", "none") == ["1", None]
    assert r.hgetall("h") == {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert r.hgetall("none") == {}
    assert r.hexists("h", "a") is True
    assert r.hlen("h") == 4
    assert r.hkeys("h") == ["a", "b", "c", "d"]
    assert r.hvals("h") == ["1", "2", "3", "4"]
    assert r.hstrlen("h", "a") == 1
    assert r.hincrby("h", "a", 4) == 5
    assert r.hincrbyfloat("h", "a", 0.5) == 5.5
    assert r.hrandfield("h") in ("a", "b", "c", "d")
    assert sorted(r.hrandfield("h", count=4)) == ["a", "b", "c", "d"]
    assert r.hrandfield("h", count=4, withvalues=True)["b"] == "2"
    assert r.hscan("h", 0) == (0, {"a": "5.5", "b": "2", "c": "3", "d": "4"})
    assert r.hscan("h", 0, match="[ab]", count=10) == (0, {"a": "5.5", "b": "2"})
    assert r.hdel("h", "c", "d", "none") == 2


@scenario("HPEXPIRE")
def expiring_fields(w: World, r: Any) -> None:
    r.hset("h", values={"a": "1", "b": "2"})
    now_s = w.now_s
    for method, value in (("hexpire", 100), ("hpexpire", 100_000)):
        call = getattr(r, method)
        assert call("h", "a", value) == [1]
        assert call("h", ["a", "none"], value, nx=True) == [0, -2]
        assert call("h", "a", value * 2, xx=True) == [1]
        assert call("h", "a", value, gt=True) == [0]
        assert call("h", "a", value, lt=True) == [1]
        assert r.httl("h", ["a", "b"]) == [w.left(100), -1]
        assert r.hpttl("h", "a") == [w.left(100_000, ms=True)]
        assert r.hpersist("h", "a") == [1]
    for method, unit in (("hexpireat", 1), ("hpexpireat", 1000)):
        call = getattr(r, method)
        at = (now_s + 100) * unit
        assert call("h", "a", at) == [1]
        assert call("h", "a", at, nx=True) == [0]
        assert call("h", "a", at + unit, xx=True) == [1]
        assert call("h", "a", at, gt=True) == [0]
        assert call("h", "a", at, lt=True) == [1]
        assert r.hexpiretime("h", "a") == [now_s + 100]
        assert r.hpexpiretime("h", "a") == [(now_s + 100) * 1000]
        assert r.hpersist("h", "a") == [1]
    for option, value in (
        ("ex", 100), ("px", 100_000), ("exat", now_s + 100), ("pxat", now_s * 1000 + 100_000),
    ):  # fmt: skip
        assert r.hgetex("h", "a", "none", **{option: value}) == ["1", None]
        assert r.httl("h", "a") == [w.left(100)]
        assert r.hgetex("h", "a", persist=True) == ["1"]
        assert r.httl("h", "a") == [-1]
        assert r.hsetex("h", "a", "1", **{option: value}) == 1
        assert r.httl("h", "a") == [w.left(100)]
    assert r.hsetex("h", values={"a": "1"}, keepttl=True) == 1
    assert r.httl("h", "a") == [w.left(100)]
    assert r.hsetex("h", field="a", value="x", fnx=True, ex=50) == 0
    assert r.hsetex("h", field="none", value="x", fxx=True, ex=50) == 0
    assert r.hgetall("h") == {"a": "1", "b": "2"}
    assert r.hpexpire("h", "a", 30) == [1]
    w.pass_time(0.03, lambda: r.hgetall("h") == {"b": "2"})
    assert r.hgetdel("h", "b", "none") == ["2", None]
    # An empty hash may remain for a moment after its fields have expired.
    w.pass_time(0, lambda: r.exists("h") == 0)


@scenario()
def lists(w: World, r: Any) -> None:
    assert r.rpush("l", "b", "c") == 2
    assert r.lpush("l", "a") == 3
    assert r.lpushx("none", "a") == 0
    assert r.rpushx("l", "d") == 4
    assert r.lrange("l", 0, -1) == ["a", "b", "c", "d"]
    assert r.lindex("l", 1) == "b"
    assert r.llen("l") == 4
    assert r.linsert("l", "BEFORE", "b", "x") == 5
    assert r.lset("l", 1, "b") is True
    assert r.lpos("l", "b") == 1
    assert r.lpos("l", "b", rank=2) == 2
    assert r.lpos("l", "b", count=0, maxlen=10) == [1, 2]
    assert r.lrem("l", 1, "b") == 1
    assert r.lmove("l", "m") == "a"
    assert r.lmove("l", "m", "RIGHT", "LEFT") == "d"
    assert r.lmove("l", "m", wherefrom="LEFT", whereto="RIGHT") == "b"
    assert r.rpoplpush("m", "l") == "b"
    assert r.lpop("l") == "b"
    assert r.rpop("m", count=5) == ["a", "d"]
    assert r.lpop("l", count=5) == ["c"]
    assert r.rpop("none") is None
    r.rpush("l", "a", "b", "c")
    assert r.ltrim("l", 1, 1) == "OK"
    assert r.lrange("l", 0, -1) == ["b"]


@scenario()
def sets(w: World, r: Any) -> None:
    assert r.sadd("s", "a", "b", "c") == 3
    assert r.sadd("t", "b", "d") == 2
    assert r.scard("s") == 3
    assert set(r.smembers("s")) == {"a", "b", "c"}
    assert r.sismember("s", "a") is True
    assert r.smismember("s", "a", "x") == [1, 0]
    assert set(r.sdiff("s", "t")) == {"a", "c"}
    assert set(r.sinter("s", "t")) == {"b"}
    assert set(r.sunion("s", "t")) == {"a", "b", "c", "d"}
    assert r.sdiffstore("d", "s", "t") == 2
    assert r.sinterstore("d", "s", "t") == 1
    assert r.sunionstore("d", "s", "t") == 4
    assert r.smove("s", "t", "a") is True
    assert r.srandmember("s") in ("b", "c")
    assert len(r.srandmember("s", count=5)) == 2
    assert r.sscan("s")[0] == 0
    assert r.sscan("s", cursor=0, match="b", count=5) == (0, ["b"])
    assert r.srem("s", "b", "x") == 1
    assert r.spop("s") == "c"
    assert len(r.spop("d", count=9)) == 4


@scenario()
def sorted_sets(w: World, r: Any) -> None:
    assert r.zadd("z", {"a": 1, "b": 2, "c": 3}) == 3
    assert r.zadd("z", {"a": 9, "d": 4}, nx=True) == 1
    assert r.zadd("z", {"a": 1.5, "e": 5}, xx=True, ch=True) == 1
    assert r.zadd("z", {"a": 1}, gt=True) == 0
    assert r.zadd("z", {"a": 1}, lt=True, ch=True) == 1
    assert r.zadd("z", {"a": 1}, incr=True) == 2.0
    assert r.zincrby("z", -1, "a") == 1.0
    assert r.zcard("z") == 4
    assert r.zcount("z", 2, "+inf") == 3
    assert r.zscore("z", "a") == 1.0
    assert r.zscore("z", "none") is None
    assert r.zmscore("z", ["a", "none"]) == [1.0, None]
    assert r.zrank("z", "b") == 1
    assert r.zrevrank("z", "b") == 2
    assert r.zrange("z", 0, 1) == ["a", "b"]
    assert r.zrange("z", 0, 1, withscores=True) == [("a", 1.0), ("b", 2.0)]
    assert r.zrange("z", 3, 1, sortby="BYSCORE", rev=True, offset=0, count=2) == ["c", "b"]
    assert r.zrange("z", "[a", "[b", sortby="BYLEX") == ["a", "b"]
    assert r.zrevrange("z", 0, 0, withscores=True) == [("d", 4.0)]
    assert r.zrangebyscore("z", 1, 3, withscores=True, offset=1, count=1) == [("b", 2.0)]
    assert r.zrevrangebyscore("z", 3, 1, withscores=True, offset=1, count=1) == [("b", 2.0)]
    r.zadd("x", {"a": 0, "b": 0, "c": 0})
    assert r.zrangebylex("x", "[a", "(c", offset=0, count=1) == ["a"]
    assert r.zrevrangebylex("x", "(c", "-", offset=0, count=1) == ["b"]
    assert r.zlexcount("x", "-", "+") == 3
    assert r.zrangestore("y", "z", 0, 1) == 2
    assert r.zrangestore("y", "z", 4, 1, sortby="BYSCORE", rev=True, offset=0, count=2) == 2
    r.zadd("p", {"a": 10, "b": 20})
    r.zadd("q", {"b": 1, "c": 2})
    assert r.zdiff(["p", "q"]) == ["a"]
    assert r.zdiff(["p", "q"], withscores=True) == [("a", 10.0)]
    assert r.zdiffstore("o", ["p", "q"]) == 1
    assert r.zinter(["p", "q"]) == ["b"]
    assert r.zinter(["p", "q"], weights=[1, 2], aggregate="SUM", withscores=True) == [("b", 22.0)]
    assert r.zinterstore("o", ["p", "q"], weights=[1, 2], aggregate="MAX") == 1
    assert r.zunion(["p", "q"]) == ["c", "a", "b"]
    assert r.zunion(["p", "q"], weights=[1, 1], aggregate="MIN", withscores=True) == [
        ("b", 1.0),
        ("c", 2.0),
        ("a", 10.0),
    ]
    assert r.zunionstore("o", ["p", "q"], weights=[1, 1], aggregate="SUM") == 3
    assert r.zrandmember("p") in ("a", "b")
    assert sorted(r.zrandmember("p", count=5)) == ["a", "b"]
    assert sorted(r.zrandmember("p", count=5, withscores=True)) == [("a", 10.0), ("b", 20.0)]
    assert r.zscan("p", 0) == (0, [("a", 10.0), ("b", 20.0)])
    assert r.zscan("p", 0, match="a", count=5) == (0, [("a", 10.0)])
    assert r.zpopmin("p") == [("a", 10.0)]
    assert r.zpopmax("q", count=5) == [("c", 2.0), ("b", 1.0)]
    assert r.zpopmin("p", count=1) == [("b", 20.0)]
    assert r.zpopmax("o") == [("b", 21.0)]
    assert r.zrem("z", "a", "none") == 1
    assert r.zremrangebyrank("z", 0, 0) == 1
    assert r.zremrangebyscore("z", 3, 3) == 1
    assert r.zremrangebylex("x", "[a", "[b") == 2


@scenario()
def places(w: World, r: Any) -> None:
    palermo = (13.361389, 38.115556, "Palermo")
    catania = (15.087269, 37.502669, "Catania")
    assert r.geoadd("g", palermo, catania) == 2
    assert r.geoadd("g", palermo, nx=True) == 0
    assert r.geoadd("g", (13.4, 38.1, "Palermo"), xx=True, ch=True) == 1
    r.geoadd("g", palermo)
    assert r.geodist("g", "Palermo", "Catania") == 166274.1516
    assert r.geodist("g", "Palermo", "Catania", unit="KM") == 166.2742
    assert r.geodist("g", "Palermo", "none") is None
    assert r.geohash("g", "Palermo", "none") == ["sqc8b49rny0", None]
    position = r.geopos("g", "Palermo", "none")
    assert position[0] == pytest.approx(palermo[:2], abs=1e-5)
    assert position[1] is None
    everything = {"withdist": True, "withhash": True, "withcoord": True}
    shown = {"count": 1, "any": True, "order": "ASC"}
    centre = (15, 37)
    for method in ("georadius", "georadius_ro"):
        call = getattr(r, method)
        assert call("g", *centre, 200, "KM") == ["Palermo", "Catania"]
        members = call("g", *centre, 100, "KM", **everything, **shown)
        assert (members[0].member, members[0].distance) == ("Catania", 56.4413)
        assert members[0].longitude == pytest.approx(15.087269, abs=1e-5)
    assert r.georadius("g", *centre, 200, "KM", store="st") == 2
    assert r.georadius("g", *centre, 200, "KM", storedist="st") == 2
    for method in ("georadiusbymember", "georadiusbymember_ro"):
        call = getattr(r, method)
        assert call("g", "Palermo", 10, "KM") == ["Palermo"]
        assert call("g", "Palermo", 10, "KM", **everything, **shown)[0].distance == 0.0
    assert r.georadiusbymember("g", "Palermo", 10, "KM", store="st") == 1
    assert r.georadiusbymember("g", "Palermo", 10, "KM", storedist="st") == 1
    assert r.geosearch("g", member="Palermo", unit="KM", radius=10, **shown) == ["Palermo"]
    box = {"longitude": 15, "latitude": 37, "unit": "KM", "width": 400, "height": 400}
    assert [hit.member for hit in r.geosearch("g", **box, **everything, order="ASC")] == [
        "Catania",
        "Palermo",
    ]
    assert r.geosearchstore("st", "g", **box, **shown, storedist=True) == 1
    assert r.geosearchstore("st", "g", member="Palermo", unit="KM", radius=10) == 1


@scenario()
def counting_distinct(w: World, r: Any) -> None:
    assert r.pfadd("p", "a", "b", "c") is True
    assert r.pfadd("q", "c", "d") is True
    assert r.pfcount("p", "q") == 4
    assert r.pfmerge("m", "p", "q") is True
    assert r.pfcount("m") == 4


@scenario()
def messages(w: World, r: Any) -> None:
    assert r.publish("c", "hi") == 0


@scenario()
def scripts(w: World, r: Any) -> None:
    code = "return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}"
    r.set("k", "v")
    assert r.eval(code, keys=["k"], args=["x"]) == ["k", "x", "v"]
    assert r.eval_ro(code, keys=["k"], args=["x"]) == ["k", "x", "v"]
    sha = r.script_load(code)
    assert r.evalsha(sha, keys=["k"], args=["x"]) == ["k", "x", "v"]
    assert r.evalsha_ro(sha, keys=["k"], args=["x"]) == ["k", "x", "v"]
    assert r.script_exists(sha, "none") == [True, False]
    with pytest.raises(UpstashError, match=r"NOSCRIPT No matching script\."):
        r.evalsha("0" * 40)
    with pytest.raises(UpstashError, match="commands are not allowed from read-only scripts"):
        r.eval_ro("return redis.call('SET', KEYS[1], 1)", keys=["k"])


@scenario(WHOLE_SERVER)
def forgotten_scripts(w: World, r: Any) -> None:
    for options in ({}, {"flush_type": "SYNC"}):
        sha = r.script_load("return 1")
        assert r.evalsha(sha) == 1
        assert r.script_flush(**options) is True
        assert r.script_exists(sha) == [False]
        with pytest.raises(UpstashError, match="NOSCRIPT"):
            r.evalsha(sha)


@scenario()
def streams(w: World, r: Any) -> None:
    assert r.xadd("s", "1-1", {"a": 1}) == "1-1"
    assert r.xadd("s", "2-1", {"a": 2}, maxlen=10, approximate_trim=False) == "2-1"
    assert r.xadd("s", "3-1", {"a": 3}, minid="1-0", approximate_trim=True, limit=10) == "3-1"
    assert r.xadd("none", "*", {"a": 1}, nomkstream=True) is None
    assert r.xlen("s") == 3
    assert r.xrange("s") == [[f"{n}-1", ["a", f"{n}"]] for n in (1, 2, 3)]
    assert len(r.xrange("s", start="-", end="+", count=1)) == 1
    assert len(r.xrevrange("s", end="+", start="-", count=2)) == 2
    assert r.xread({"s": "2-1"}, count=5)[0][0] == "s"
    assert r.xgroup_create("s", "g", id="0") == "OK"
    assert r.xgroup_create("t", "g", mkstream=True) == "OK"
    assert r.xgroup_createconsumer("s", "g", "c") == 1
    read = r.xreadgroup("g", "c", {"s": ">"}, count=2)
    assert read[0][0] == "s"
    assert len(read[0][1]) == 2
    assert r.xreadgroup("g", "d", {"s": ">"}, noack=True)[0][0] == "s"
    assert r.xpending("s", "g")[0] == 2
    shown = r.xpending("s", "g", start="-", end="+", count=5, consumer="c", idle=0)
    assert [entry[0] for entry in shown] == ["1-1", "2-1"]
    assert r.xack("s", "g", "1-1") == 1
    assert len(r.xclaim("s", "g", "d", 0, "2-1")) == 1
    assert r.xclaim("s", "g", "d", 0, "2-1", justid=True) == ["2-1"]
    assert r.xautoclaim("s", "g", "c", 0, start="0-0", count=5)[0] == "0-0"
    assert r.xautoclaim("s", "g", "c", 0, start="0-0", justid=True)[1] == ["2-1"]
    assert len(r.xinfo_groups("s")) == 1
    assert len(r.xinfo_consumers("s", "g")) == 2
    assert r.xgroup_setid("s", "g", "0", entries_read=0) == "OK"
    assert r.xgroup_delconsumer("s", "g", "c") == 1
    assert r.xdel("s", "3-1") == 1
    assert r.xgroup_destroy("s", "g") == 1
    assert r.xtrim("s", maxlen=1, approximate=False) == 1
    roughly = r.xtrim("s", minid="9-0", approximate=True, limit=10)
    assert roughly + r.xtrim("s", minid="9-0", approximate=False) == 1
    r.xadd("s", "10-1", {"a": 1})
    assert r.xdel("s", "10-1", "99-1") == 1


@scenario("XACKDEL")
def entries_and_their_references(w: World, r: Any) -> None:
    for number in (1, 2, 3):
        r.xadd("s", f"{number}-1", {"a": number})
    r.xgroup_create("s", "g", id="0")
    r.xreadgroup("g", "c", {"s": ">"}, count=1)
    assert r.xackdel("s", "g", "1-1", "9-1", option="KEEPREF") == [1, -1]
    r.xreadgroup("g", "c", {"s": ">"}, count=1)
    assert r.xack("s", "g", "2-1") == 1
    assert r.xackdel("s", "g", "2-1") == [1]
    assert r.xinfo_consumers("s", "none") == []
    assert r.xdelex("s", "3-1", option="DELREF") == [1]
    assert r.xlen("s") == 0


@scenario("JSON.SET")
def documents(w: World, r: Any) -> None:
    j = r.json
    assert j.set("d", "$", {"n": 1, "s": "x", "a": [1, 2], "b": True, "o": {"k": 1}}) is True
    assert j.set("d", "$.n", 2, xx=True) is True
    assert j.set("d", "$.n", 3, nx=True) is False
    assert j.get("d", "$.n") == [2]
    assert j.get("d")[0]["s"] == "x"
    assert j.get("d", "$.n", "$.s") == {"$.n": [2], "$.s": ["x"]}
    assert j.get("none") is None
    assert j.type("d", "$.n") == ["integer"]
    assert j.type("d") == ["object"]
    assert j.arrappend("d", "$.a", 3, 4) == [4]
    assert j.arrindex("d", "$.a", 3) == [2]
    assert j.arrindex("d", "$.a", 3, start=0, stop=2) == [-1]
    assert j.arrinsert("d", "$.a", 0, 0) == [5]
    assert j.arrlen("d", "$.a") == [5]
    assert j.arrpop("d", "$.a") == [4]
    assert j.arrpop("d", "$.a", index=0) == [0]
    assert j.arrtrim("d", "$.a", 0, 1) == [2]
    assert j.numincrby("d", "$.n", 2) == [4]
    assert j.nummultby("d", "$.n", 2) == [8]
    assert j.objkeys("d", "$.o") == [["k"]]
    assert j.objlen("d", "$.o") == [1]
    assert j.strappend("d", "$.s", "y") == [2]
    assert j.strlen("d", "$.s") == [2]
    assert j.set("deep", "$", {"a": 2, "b": 3, "nested": {"a": 4, "b": None}}) is True
    assert (j.get("deep", "$..a"), j.get("deep", "$..b")) == ([4, 2], [None, 3])
    assert j.mget(["deep"], "$..a") == [[4, 2]]
    assert j.numincrby("deep", "$..a", 1) == [5, 3]
    assert j.delete("deep", "$..a") == 2
    assert j.toggle("d", "$.b") == [False]
    assert j.merge("d", "$.o", {"k": None, "m": 2}) is True
    assert j.get("d", "$.o") == [{"m": 2}]
    assert j.resp("d", "$.n") == [8]
    assert j.mset([("d", "$.n", 1), ("e", "$", {"n": 2})]) is True
    assert j.mget(["d", "e", "none"], "$.n") == [[1], [2], None]
    assert j.clear("d", "$.a") == 1
    assert j.forget("d", "$.a") == 1
    assert j.delete("d", "$.s") == 1
    assert j.delete("d") == 1
    with pytest.raises(UpstashError):
        j.set("d", "$.none.x", 1)


@scenario()
def several_at_once(w: World, r: Any) -> None:
    for pipeline in (r.pipeline(), r.multi()):
        pipeline.set("a", 1).incr("a").hset("h", "f", "v")
        pipeline.bitfield("b").set("u8", 0, 1).execute()
        assert pipeline.exec() == [True, 2, 1, [0]]
        w.server.execute("FLUSHALL")
    pipeline = r.pipeline()
    pipeline.set("a", "x")
    pipeline.reset()
    pipeline.set("b", "x")
    assert pipeline.exec() == [True]
    assert r.exists("a") == 0
    pipeline = r.multi()
    pipeline.set("c", "x")
    pipeline.incr("c")
    with pytest.raises(UpstashError, match="not an integer"):
        pipeline.exec()
    assert w.server.value("c") == "x"
    routes = [call.route for call in w.server.journal.calls()]
    assert {"pipeline", "multi-exec"} <= set(routes)


@scenario("JSON.SET")
def several_documents_at_once(w: World, r: Any) -> None:
    for pipeline in (r.pipeline(), r.multi()):
        pipeline.set("a", 1)
        pipeline.json.set("d", "$", {"n": 1})
        pipeline.json.get("d", "$.n")
        assert pipeline.exec() == [True, True, [1]]


CALLS = Kept(run)


@pytest.mark.parametrize("flavour", FLAVOURS, ids=["sync", "async"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, flavour: type) -> None:
    CALLS.run(name, flavour)


@pytest.mark.parametrize("flavour", FLAVOURS, ids=["sync", "async"])
@pytest.mark.slow
def test_nothing_of_the_surface_is_left_out(flavour: type) -> None:
    used = CALLS.calls(SCENARIOS, flavour)
    groups = groups_of(flavour)
    wanted: set[str] = set()
    for cls, group in groups.items():
        if not group.startswith("pipeline"):
            # Instance attributes are not methods of the class.
            wanted |= surface(cls, group, skip=lambda name: name in ("client", "command"))
        elif group == "pipeline":
            wanted |= {"pipeline.exec", "pipeline.reset"}
    wanted |= {f"redis.__init__({name})" for name in ("url", "token", "rest_encoding")}
    wanted |= {
        f"redis.{method}({name})"
        for method in ("__init__", "from_env")
        for name in ("rest_encoding", "rest_retries", "rest_retry_interval", "allow_telemetry")
    }
    check_complete(__file__, wanted - used - set(EXCUSED))
    assert sorted(set(EXCUSED) & used) == []


def test_the_pipelines_offer_the_same_commands() -> None:
    """Every method of a pipeline must be a command of the client, which the scenarios call."""
    for module in (upstash_client, upstash_async_client):
        for cls in (value for name, value in vars(module).items() if name.endswith("Pipeline")):
            names = {name for name in dir(cls) if not name.startswith("_")}
            assert names - {"exec", "reset", "execute"} <= set(dir(Redis))
    assert upstash_asyncio.Redis is AsyncRedis
