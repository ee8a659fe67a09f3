"""Test the complete client of redis-py on the database port, sync and async.

Every scenario runs with both clients. A last test fails for each method and parameter that no
scenario uses and that is not excused.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from tests.clients.surface import Api, Kept, Scenarios, Used, check_complete, surface

redis = pytest.importorskip("redis", minversion="8.1")

from redis.commands.core import HashDataPersistOptions  # noqa: E402
from redis.commands.vectorset.commands import QuantizationOptions  # noqa: E402

pytestmark = [
    # The client itself calls deprecated or unstable functions.
    pytest.mark.filterwarnings("ignore:Call to:UserWarning"),
    pytest.mark.filterwarnings("ignore:Call to:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Call (UN)?WATCH from:DeprecationWarning"),
]
NOW_S = 1767225600
NOW = "2026-01-01T00:00:00Z"
FLAVOURS: dict[str, Any] = {"sync": redis.Redis, "async": redis.asyncio.Redis}

NEWER = "a command later than those of this service, refused as unknown"
MODULE = "a module the service does not have"
LOCAL = "concerns the client's own objects, nothing is sent"
CLUSTERS = "for clusters, which this is not"
FRAME = "called for every client by the frame of these tests"
FAMILIES = {
    **dict.fromkeys(("ar", "himport", "hotkeys"), NEWER),
    **dict.fromkeys(("get_", "set_re", "load_external_module", "parse_response", "digest_local",
                     "initialize", "from_pool", "auto_close_connection_pool"), LOCAL),
    **dict.fromkeys(("aclose", "close"), FRAME),
    "sentinel": "for sentinels, which this is not",
    "cluster": CLUSTERS,
    "keyspace_notifications": "listens to notifications by pub/sub, which the scenarios do bare",
}  # fmt: skip
_MODULES = "bf cf cms ft tdigest topk ts"
_NEWER = "blmovem lmovem stralgo"
_NEWER_OPTIONS = (
    "xread(max_count) xread(max_size) xreadgroup(max_count) xreadgroup(max_size) "
    "client_kill_filter(maxage)"
)
_LOCAL = "client from_url(auto_close_connection_pool) json(encoder) json(decoder)"
_ENDING = "debug_segfault shutdown psync sync client_reply quit reset"
EXCUSED = {
    **dict.fromkeys(_MODULES.split(), MODULE),
    **dict.fromkeys(f"{_NEWER} {_NEWER_OPTIONS}".split(), NEWER),
    **dict.fromkeys(_LOCAL.split(), LOCAL),
    **dict.fromkeys(_ENDING.split(), "ends or confuses the connection, by the client's account"),
    **dict.fromkeys(("readonly(target_nodes)", "readwrite(target_nodes)"), CLUSTERS),
    "from_url(single_connection_client)": "an option of the constructor, given there",
}


@dataclass
class World:
    """The server and clients of one scenario."""

    server: KVServer
    flavour: str
    used: Used
    loop: asyncio.AbstractEventLoop
    stack: ExitStack

    def client(self, **options: Any) -> Any:
        """Return another recorded client, which is closed at the end."""
        cls = FLAVOURS[self.flavour]
        self.used.note("redis", "from_url", ["url"])
        target = cls.from_url(self.server.database_url, decode_responses=True, **options)
        self.stack.callback(self.close, target)
        return Api(target, {cls: "redis"}, self.used, self.loop)

    def close(self, client: Any) -> None:
        if self.flavour == "sync":
            client.close()
        else:
            self.loop.run_until_complete(client.aclose())

    def wait(self, value: Any) -> Any:
        """Return a value, or the result of an awaitable."""
        if asyncio.iscoroutine(value) or isinstance(value, asyncio.Future):
            return self.loop.run_until_complete(value)
        return value

    def later(self, *line: str) -> None:
        """Run a command as soon as a client waits for a key."""
        server = self.server

        def run() -> None:
            pause = threading.Event()
            while not server._engine.waiters and not pause.wait(0.002):
                pass
            server.execute(*line)

        thread = threading.Thread(target=run)
        thread.start()
        self.stack.callback(thread.join)


SCENARIOS = scenario = Scenarios()
"""Each needs a dialect, or the version of a stock server."""


def run(name: str, flavour: str, used: Used, **options: Any) -> None:
    dialect, function = SCENARIOS[name]
    with ExitStack() as stack:
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        context = Context.alone(now=NOW)
        # redis-py has options that Redis 7.0 lacks.
        version = {"vendor": None, "redis": "7.2"}.get(dialect, dialect)
        settings: Any = {}
        if version is not None:
            settings = {"dialect": "redis", "version": version, "modules": ["ReJSON"]}
        server = stack.enter_context(KVServer(context, **settings))
        world = World(server, flavour, used, loop, stack)
        function(world, world.client(**options))
        assert context.violations == []


def flat(value: Any) -> Any:
    """Convert tuples to lists, because the type depends on the protocol."""
    if isinstance(value, list | tuple):
        return [flat(item) for item in value]
    return value


@scenario("vendor")
def strings(w: World, r: Any) -> None:
    assert r.set("k", "v", ex=10) is True
    assert r.set("k", "w", nx=True) is None
    assert r.set("k", "w", xx=True, keepttl=True) is True
    assert r.set("k", "x", get=True, px=5000) == "w"
    assert r.set("k", "x", exat=NOW_S + 5) is True
    assert r.set("k", "x", pxat=NOW_S * 1000 + 5000) is True
    assert r.set("k", "y", ifeq="x") is True
    assert r.set("k", "z", ifne="y") is None
    digest = r.digest("k")
    assert r.set("k", "z", ifdeq=digest) is True
    assert r.set("k", "z", ifdne=r.digest("k")) is None
    assert r.setex(name="k", time=10, value="v") is True
    assert r.psetex(name="k", time_ms=10_000, value="v") is True
    assert r.setnx(name="k", value="v") is False
    assert r.append(key="k", value="w") == 2
    assert r.strlen("k") == 2
    assert r.getrange(key="k", start=0, end=0) == "v"
    assert r.substr(name="k", start=0, end=0) == "v"
    assert r.setrange(name="k", offset=1, value="x") == 2
    assert r.getset(name="k", value="1") == "vx"
    assert r.incr(name="k", amount=2) == 3
    assert r.incrby(name="k", amount=2) == 5
    assert r.decr(name="k", amount=1) == 4
    assert r.decrby(name="k", amount=1) == 3
    assert r.incrbyfloat(name="k", amount=0.5) == 3.5
    for option, value in (("ex", 5), ("px", 5000), ("exat", NOW_S + 5), ("pxat", NOW_S * 1000 + 9)):
        assert r.getex("k", **{option: value}) == "3.5"
    assert r.getex("k", persist=True) == "3.5"
    assert r.getdel("k") == "3.5"
    assert r.mset(mapping={"a": 1, "b": 2}) is True
    assert r.msetnx(mapping={"b": 1, "c": 2}) is False
    assert r.mget("a", "b", "c") == ["1", "2", None]
    assert r.mget(["a"], "b") == ["1", "2"]
    for option, value in (("ex", 5), ("px", 5000), ("exat", NOW_S + 5), ("pxat", NOW_S * 1000 + 9)):
        assert r.msetex({"a": 1}, **{option: value}) == 1
    assert r.msetex({"a": 1}, keepttl=True, data_persist_option=None) == 1
    assert r.lcs("a", "b", len=True) == 0
    assert r.lcs("a", "a", idx=True, minmatchlen=1, withmatchlen=True)
    r.set("d", "1")
    assert r.delex("d", ifeq="2") == 0
    assert r.delex("d", ifne="1") == 0
    assert r.delex("d", ifdne=r.digest("d")) == 0
    assert r.delex("d", ifdeq=r.digest("d")) == 1
    assert r.setbit("bits", 7, 1) == 0
    assert r.getbit("bits", 7) == 1
    assert r.bitcount("bits", start=0, end=7, mode="BIT") == 1
    assert r.bitpos("bits", bit=1, start=0, end=-1, mode="BYTE") == 7
    assert r.bitop("NOT", "o", "bits") == 1
    with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
        r.bitop(operation="AND", dest="o")
    field = r.bitfield("f", default_overflow="SAT").incrby("u8", 0, 300)
    assert w.wait(field.execute()) == [255]
    assert r.bitfield_ro("f", "u8", 0, items=[("u4", 4)]) == [255, 15]


@scenario("redis")
def keys(w: World, r: Any) -> None:
    r.mset({"a": "1", "b": "2"})
    assert r.exists("a", "b", "none") == 2
    assert r.copy(source="a", destination="c", replace=True) is True
    assert r.copy("a", "c", destination_db=1) is True
    assert r.move(name="b", db=1) is True
    assert r.swapdb(first=0, second=1) is True
    assert r.swapdb(0, 1) is True
    assert r.select(index=0) is True
    assert r.rename(src="c", dst="d") is True
    assert r.renamenx(src="d", dst="a") is False
    assert sorted(r.keys(pattern="*")) == ["a", "d"]
    assert r.randomkey() in ("a", "d")
    assert r.touch("a") == 1
    assert r.type("a") == "string"
    assert r.dbsize() == 2
    for method, value in (("expire", 10), ("pexpire", 10_000)):
        call = getattr(r, method)
        assert call(name="a", time=value) is True
        for option, done in (("nx", False), ("xx", True), ("gt", False), ("lt", False)):
            assert call("a", value, **{option: True}) is done
        assert r.ttl("a") == 10
        assert r.persist("a") is True
    for method, value in (("expireat", NOW_S + 10), ("pexpireat", (NOW_S + 10) * 1000)):
        call = getattr(r, method)
        assert call(name="a", when=value) is True
        for option, done in (("nx", False), ("xx", True), ("gt", False), ("lt", False)):
            assert call("a", value, **{option: True}) is done
    assert r.expiretime("a") == NOW_S + 10
    assert r.pexpiretime("a") == (NOW_S + 10) * 1000
    assert r.pttl("a") == 10_000
    assert r.object(infotype="encoding", key="a") == "int"
    assert r.scan(cursor=0, match="*", count=10, _type="STRING")[0] == 0
    assert sorted(r.scan_iter(match="*", count=1, _type="STRING")) == ["a", "d"]
    assert r.unlink("a") == 1
    assert r.delete("d", "none") == 1
    assert r.flushdb(asynchronous=True) is True
    assert r.flushall(asynchronous=False) is True
    assert r.wait(num_replicas=0, timeout=1) == 0


@scenario("redis")
def payloads(w: World, r: Any) -> None:
    raw = FLAVOURS[w.flavour].from_url(w.server.database_url)
    w.stack.callback(w.close, raw)
    both = Api(raw, {type(raw): "redis"}, w.used, w.loop)
    both.set("k", b"\xff\x00")
    payload = both.dump(name="k")
    assert both.restore(name="j", ttl=5000, value=payload, replace=True) == b"OK"
    assert both.get("j") == b"\xff\x00"
    assert both.restore("l", (NOW_S + 5) * 1000, payload, absttl=True, idletime=3) == b"OK"
    assert both.restore("m", 0, payload, frequency=3) == b"OK"


@scenario("vendor")
def hashes(w: World, r: Any) -> None:
    assert r.hset(name="h", key="b", value="2", mapping={"c": 3}, items=["a", 1]) == 3
    assert r.hmset(name="h", mapping={"d": 4}) is True
    assert r.hsetnx(name="h", key="a", value="x") == 0
    assert r.hget(name="h", key="a") == "1"
    assert r.hgetall("h") == {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert r.hmget("h", ["a"], "none") == ["1", None]
    assert r.hexists(name="h", key="a") is True
    assert r.hkeys("h") == ["a", "b", "c", "d"]
    assert r.hvals("h") == ["1", "2", "3", "4"]
    assert r.hlen("h") == 4
    assert r.hstrlen(name="h", key="a") == 1
    assert r.hincrby(name="h", key="a", amount=2) == 3
    assert r.hincrbyfloat(name="h", key="a", amount=0.5) == 3.5
    assert len(flat(r.hrandfield(key="h", count=2, withvalues=True))) in (2, 4)
    assert r.hscan(name="h", cursor=0, match="a", count=5) == (0, {"a": "3.5"})
    assert r.hscan("h", no_values=True)[1] == ["a", "b", "c", "d"]
    assert r.hscan_iter(name="h", match="a", count=5) == [("a", "3.5")]
    assert r.hscan_iter("h", no_values=True) == ["a", "b", "c", "d"]
    assert r.hdel("h", "c", "d") == 2
    for method, argument, value in (
        ("hexpire", "seconds", 10), ("hpexpire", "milliseconds", 10_000),
        ("hexpireat", "unix_time_seconds", NOW_S + 10),
        ("hpexpireat", "unix_time_milliseconds", (NOW_S + 10) * 1000),
    ):  # fmt: skip
        call = getattr(r, method)
        w.used.note("redis", method, [argument])
        assert call("h", value, "a") == [1]
        for option, done in (("nx", 0), ("xx", 1), ("gt", 0), ("lt", 0)):
            assert call("h", value, "a", **{option: True}) == [done]
        assert r.httl("h", "a") == [10]
        assert r.hpttl("h", "a") == [10_000]
        assert r.hexpiretime("h", "a") == [NOW_S + 10]
        assert r.hpexpiretime("h", "a") == [(NOW_S + 10) * 1000]
        assert r.hpersist("h", "a") == [1]
    for option, value in (("ex", 5), ("px", 5000), ("exat", NOW_S + 5), ("pxat", NOW_S * 1000 + 9)):
        assert r.hgetex("h", "a", **{option: value}) == ["3.5"]
        assert r.hsetex("h", "a", "1", **{option: value}) == 1
        r.hset("h", "a", "3.5")
    assert r.hgetex("h", "a", persist=True) == ["3.5"]
    assert r.hsetex("h", mapping={"a": 1}, items=["b", 2], keepttl=True) == 1
    option = HashDataPersistOptions.FNX
    assert r.hsetex("h", key="a", value="1", data_persist_option=option, ex=5) == 0
    assert r.hgetdel("h", "a", "b") == ["1", "2"]


@scenario("vendor")
def lists(w: World, r: Any) -> None:
    assert r.rpush("l", "a", "b", "c") == 3
    assert r.lpush("l", "z") == 4
    assert r.lpushx("l", "y") == 5
    assert r.rpushx("none", "y") == 0
    assert r.lrange(name="l", start=0, end=-1) == ["y", "z", "a", "b", "c"]
    assert r.lindex(name="l", index=0) == "y"
    assert r.linsert(name="l", where="BEFORE", refvalue="z", value="q") == 6
    assert r.llen("l") == 6
    assert r.lpos(name="l", value="q", rank=1, count=1, maxlen=10) == [1]
    assert r.lrem(name="l", count=1, value="q") == 1
    assert r.lset(name="l", index=0, value="x") is True
    assert r.ltrim(name="l", start=0, end=3) is True
    assert r.lmove(first_list="l", second_list="m", src="LEFT", dest="RIGHT") == "x"
    assert flat(r.lmpop(2, "l", "m", direction="LEFT", count=2)) == ["l", ["z", "a"]]
    assert r.rpoplpush(src="l", dst="m") == "b"
    assert r.lpop(name="m", count=1) == ["b"]
    assert r.rpop(name="m", count=1) == ["x"]
    r.rpush("n", 3, 1, 2)
    r.mset({"w_1": 3, "w_2": 2, "w_3": 1})
    assert r.sort(name="n", start=0, num=2, by="w_*", get="#", desc=False) == ["3", "2"]
    assert r.sort("n", get=["#", "w_*"], groups=True) == [("1", "3"), ("2", "2"), ("3", "1")]
    assert r.sort("n", alpha=True, store="o") == 3
    assert r.sort_ro(key="n", start=0, num=1, by="w_*", get=["#"], desc=True, alpha=True) == ["1"]


@scenario("vendor")
def waiting(w: World, r: Any) -> None:
    cases: list[tuple[str, dict[str, Any], tuple[str, ...], Any]] = [
        ("blpop", {"keys": ["k"], "timeout": 0}, ("RPUSH", "k", "v"), ["k", "v"]),
        ("brpop", {"keys": "k", "timeout": 0}, ("RPUSH", "k", "v"), ["k", "v"]),
        ("brpoplpush", {"src": "k", "dst": "d", "timeout": 0}, ("RPUSH", "k", "v"), "v"),
        (
            "blmove",
            {"first_list": "k", "second_list": "d", "timeout": 0, "src": "LEFT", "dest": "RIGHT"},
            ("RPUSH", "k", "v"),
            "v",
        ),
        ("bzpopmin", {"keys": "z", "timeout": 0}, ("ZADD", "z", "1", "m"), ["z", "m", 1.0]),
        ("bzpopmax", {"keys": ["z"], "timeout": 0}, ("ZADD", "z", "1", "m"), ["z", "m", 1.0]),
    ]
    for name, arguments, line, reply in cases:
        w.later(*line)
        assert flat(getattr(r, name)(**arguments)) == reply
    w.later("RPUSH", "k", "v")
    assert flat(r.blmpop(0, 1, "k", direction="LEFT", count=1)) == ["k", ["v"]]
    for end in ("min", "max"):
        w.later("ZADD", "z", "1", "m")
        popped = r.bzmpop(timeout=0, numkeys=1, keys=["z"], count=1, **{end: True})
        assert flat(popped)[0] == "z"
    w.server._timekeeper.wait_cap = 0.02
    assert r.blpop("none", timeout=1) is None


@scenario("vendor")
def sets(w: World, r: Any) -> None:
    assert r.sadd("s", "a", "b", "c") == 3
    assert r.sadd("t", "b") == 1
    assert r.scard("s") == 3
    assert r.smembers("s") == {"a", "b", "c"}
    assert r.sismember(name="s", value="a") == 1
    assert r.smismember("s", ["a"], "z") == [1, 0]
    assert r.sdiff(["s"], "t") == {"a", "c"}
    assert r.sinter(["s"], "t") == {"b"}
    assert r.sunion(["s"], "t") == {"a", "b", "c"}
    assert r.sintercard(numkeys=2, keys=["s", "t"], limit=5) == 1
    assert r.sdiffcard(numkeys=2, keys=["s", "t"], limit=5) == 2
    assert r.sunioncard(numkeys=2, keys=["s", "t"], limit=2, approx=True) == 2
    assert r.sdiffstore("d", ["s"], "t") == 2
    assert r.sinterstore("d", ["s"], "t") == 1
    assert r.sunionstore("d", ["s"], "t") == 3
    assert r.smove(src="s", dst="t", value="a") == 1
    assert r.srandmember(name="s", number=1)[0] in "bc"
    assert r.sscan(name="s", cursor=0, match="b", count=5) == (0, ["b"])
    assert r.sscan_iter(name="s", match="b", count=5) == ["b"]
    assert r.srem("s", "b") == 1
    assert list(r.spop(name="s", count=1)) == ["c"]


@scenario("redis")
def sorted_sets(w: World, r: Any) -> None:
    assert r.zadd(name="z", mapping={"a": 1, "b": 2, "c": 3}) == 3
    assert r.zadd("z", {"a": 9, "d": 4}, nx=True) == 1
    assert r.zadd("z", {"a": 5}, xx=True, ch=True, gt=True) == 1
    assert r.zadd("z", {"a": 1}, lt=True, ch=True) == 1
    assert r.zadd("z", {"a": 0}, incr=True) == 1.0
    assert r.zcard("z") == 4
    assert r.zcount(name="z", min=1, max=2) == 2
    assert r.zincrby(name="z", amount=1, value="a") == 2.0
    assert r.zincrby("z", -1, "a") == 1.0
    assert r.zscore(name="z", value="a") == 1.0
    assert r.zmscore(key="z", members=["a", "none"]) == [1.0, None]
    assert r.zrank(name="z", value="b") == 1
    assert flat(r.zrank("z", "b", withscore=True, score_cast_func=float)) == [1, 2.0]
    assert flat(r.zrevrank(name="z", value="b", withscore=True, score_cast_func=float)) == [2, 2.0]
    score = {"withscores": True, "score_cast_func": float}
    assert flat(r.zrange(name="z", start=0, end=0, desc=False, **score)) == [["a", 1.0]]
    assert r.zrange("z", 1, 3, byscore=True, offset=1, num=1) == ["b"]
    assert r.zrange("z", "[a", "[b", bylex=True) == ["a", "b"]
    assert flat(r.zrevrange(name="z", start=0, end=0, **score)) == [["d", 4.0]]
    page = {"start": 0, "num": 1}
    assert flat(r.zrangebyscore(name="z", min=2, max=3, **page, **score)) == [["b", 2.0]]
    assert flat(r.zrevrangebyscore(name="z", max=3, min=2, **page, **score)) == [["c", 3.0]]
    assert r.zrangebylex(name="z", min="-", max="+", **page) == ["a"]
    assert r.zrevrangebylex(name="z", max="+", min="-", **page) == ["d"]
    assert r.zlexcount(name="z", min="-", max="+") == 4
    assert r.zrangestore(dest="y", name="z", start=0, end=1) == 2
    both = {"offset": 0, "num": 1, "desc": True}
    assert r.zrangestore("y", "z", 4, 1, byscore=True, **both) == 1
    assert r.zrangestore("y", "z", "+", "-", bylex=True, **both) == 1
    r.zadd("p", {"a": 10, "b": 20})
    r.zadd("q", {"b": 1})
    assert flat(r.zdiff(keys=["p", "q"], withscores=True)) in ([["a", 10.0]], ["a", b"10"])
    assert r.zdiffstore(dest="o", keys=["p", "q"]) == 1
    assert flat(r.zinter(keys={"p": 1, "q": 2}, aggregate="SUM", withscores=True)) == [["b", 22.0]]
    assert r.zintercard(numkeys=2, keys=["p", "q"], limit=5) == 1
    assert r.zinterstore(dest="o", keys=["p", "q"], aggregate="MAX") == 1
    assert flat(r.zunion(keys=["q", "p"], aggregate="MIN", **score)) == [["b", 1.0], ["a", 10.0]]
    assert r.zunionstore(dest="o", keys=["p", "q"], aggregate="SUM") == 2
    assert flat(r.zmpop(num_keys=1, keys=["o"], min=True, count=1))[0] == "o"
    assert flat(r.zmpop(1, ["o"], max=True))[0] == "o"
    assert len(r.zrandmember(key="p", count=2, withscores=True)) in (2, 4)
    scan = {"match": "a", "count": 5, "score_cast_func": float}
    assert flat(r.zscan(name="p", cursor=0, **scan)) == [0, [["a", 10.0]]]
    assert flat(r.zscan_iter(name="p", **scan)) == [["a", 10.0]]
    assert flat(r.zpopmin(name="p", count=1)) in ([["a", 10.0]], ["a", 10.0])
    assert flat(r.zpopmax(name="p", count=1)) in ([["b", 20.0]], ["b", 20.0])
    assert r.zrem("z", "d") == 1
    assert r.zremrangebyrank(name="z", min=0, max=0) == 1
    assert r.zremrangebyscore(name="z", min=2, max=2) == 1
    assert r.zremrangebylex(name="z", min="-", max="+") == 1


@scenario("redis")
def places(w: World, r: Any) -> None:
    palermo = (13.361389, 38.115556, "Palermo")
    assert r.geoadd(name="g", values=(*palermo, 15.087269, 37.502669, "Catania")) == 2
    assert r.geoadd("g", palermo, nx=True) == 0
    assert r.geoadd("g", palermo, xx=True, ch=True) == 0
    assert r.geodist(name="g", place1="Palermo", place2="Catania", unit="km") == 166.2742
    assert r.geohash("g", "Palermo") == ["sqc8b49rny0"]
    assert r.geopos("g", "Palermo", "none")[1] is None
    shown = {"withdist": True, "withcoord": True, "withhash": True, "count": 1, "any": True}
    centre = {"longitude": 15, "latitude": 37, "unit": "km"}
    assert len(r.georadius(name="g", radius=200, sort="ASC", **centre, **shown)) == 1
    assert r.georadius("g", radius=200, store="o", **centre) == 2
    assert r.georadius("g", radius=200, store_dist="o", **centre) == 2
    member = {"member": "Palermo", "radius": 10, "unit": "km"}
    assert len(r.georadiusbymember(name="g", sort="ASC", **member, **shown)) == 1
    assert r.georadiusbymember("g", store="o", **member) == 1
    assert r.georadiusbymember("g", store_dist="o", **member) == 1
    assert len(r.geosearch(name="g", sort="ASC", **member, **shown)) == 1
    box = {**centre, "width": 400, "height": 400, "sort": "ASC", "count": 1, "any": True}
    assert len(r.geosearch("g", **box)) == 1
    assert r.geosearchstore(dest="o", name="g", storedist=True, **box) == 1
    assert r.geosearchstore("o", "g", **member) == 1
    assert r.pfadd("hll", "a", "b") == 1
    assert r.pfcount("hll") == 2
    assert r.pfmerge("hll2", "hll") is True


@scenario("vendor")
def streams(w: World, r: Any) -> None:
    assert r.xadd(name="s", fields={"a": 1}, id="1-1") == "1-1"
    assert r.xadd("s", {"a": 2}, "2-1", maxlen=9, approximate=True, limit=9) == "2-1"
    assert r.xadd("s", {"a": 3}, "3-1", minid="1-0") == "3-1"
    assert r.xadd("none", {"a": 1}, nomkstream=True) is None
    assert r.xlen("s") == 3
    assert r.xrange(name="s", min="-", max="+", count=1) == [("1-1", {"a": "1"})]
    assert r.xrevrange(name="s", max="+", min="-", count=1) == [("3-1", {"a": "3"})]
    assert r.xread(streams={"s": "2-1"}, count=5, block=0)
    assert r.xgroup_create(name="s", groupname="g", id="0", entries_read=0) is True
    assert r.xgroup_create("t", "g", mkstream=True) is True
    assert r.xgroup_createconsumer(name="s", groupname="g", consumername="c") == 1
    group = {"groupname": "g", "consumername": "c"}
    assert r.xreadgroup(**group, streams={"s": ">"}, count=1, block=0)
    assert r.xreadgroup(**group, streams={"s": ">"}, noack=False)
    assert r.xpending(name="s", groupname="g")["pending"] == 3
    pending = r.xpending_range(
        name="s", groupname="g", min="-", max="+", count=9, consumername="c", idle=0
    )
    assert len(pending) == 3
    assert r.xack("s", "g", "1-1") == 1
    claim = {"min_idle_time": 0, **group}
    assert r.xclaim(name="s", message_ids=["2-1"], **claim)
    assert r.xclaim("s", message_ids=["2-1"], idle=5, retrycount=2, force=True, **claim)
    assert r.xclaim("s", message_ids=["2-1"], time=NOW_S * 1000, justid=True, **claim) == ["2-1"]
    assert r.xautoclaim(name="s", start_id="0-0", count=9, **claim)[0] == "0-0"
    assert r.xautoclaim("s", justid=True, **claim) == ["2-1", "3-1"]
    assert r.xinfo_stream(name="s", full=False)["length"] == 3
    assert r.xinfo_stream("s", full=True)["length"] == 3
    assert len(r.xinfo_groups("s")) == 1
    assert len(r.xinfo_consumers(name="s", groupname="g")) == 1
    assert r.xackdel("s", "g", "2-1", ref_policy="KEEPREF") == [1]
    assert r.xdelex("s", "3-1", ref_policy="DELREF") == [1]
    assert r.xgroup_setid(name="s", groupname="g", id="0", entries_read=0) is True
    assert r.xgroup_delconsumer(**{"name": "s", **group}) == 0
    assert r.xgroup_destroy(name="s", groupname="g") == 1
    assert r.xtrim(name="s", maxlen=0, approximate=False) == 1
    assert r.xtrim("s", minid="9-0", limit=9) == 0
    assert r.xdel("s", "1-1") == 0


@scenario("redis")
def scripts(w: World, r: Any) -> None:
    code = "return {KEYS[1], ARGV[1]}"
    assert r.eval(code, 1, "k", "a") == ["k", "a"]
    assert r.eval_ro(code, 1, "k", "a") == ["k", "a"]
    sha = r.script_load(code)
    assert r.evalsha(sha, 1, "k", "a") == ["k", "a"]
    assert r.evalsha_ro(sha, 1, "k", "a") == ["k", "a"]
    assert r.script_exists(sha, "none") == [True, False]
    assert r.script_flush(sync_type="SYNC") is True
    script = r.register_script(script=code)
    # The object knows its client and loads itself if the server no longer has it.
    assert w.wait(script(keys=["k"], args=["a"])) == ["k", "a"]
    with pytest.raises(redis.ResponseError, match="No scripts in execution"):
        r.script_kill()
    library = (
        "#!lua name=lib\n"
        "redis.register_function{function_name='f', flags={'no-writes'},"
        " callback=function(keys, args) return args[1] end}"
    )
    assert r.function_load(code=library, replace=True) == "lib"
    assert r.fcall("f", 0, "x") == "x"
    assert r.fcall_ro("f", 0, "x") == "x"
    assert len(r.function_list(library="lib", withcode=True)) == 1
    assert r.function_stats() is not None
    raw = FLAVOURS[w.flavour].from_url(w.server.database_url)
    w.stack.callback(w.close, raw)
    both = Api(raw, {type(raw): "redis"}, w.used, w.loop)
    payload = both.function_dump()
    assert r.function_delete(library="lib") in (True, "OK")
    assert both.function_restore(payload=payload, policy="APPEND") in (True, b"OK")
    assert r.function_flush(mode="SYNC") in (True, "OK")
    with pytest.raises(redis.ResponseError, match="No scripts in execution"):
        r.function_kill()


@scenario("vendor")
def documents(w: World, r: Any) -> None:
    json = r.json()
    assert w.wait(json.set("d", "$", {"n": 1})) is True
    assert w.wait(json.get("d", "$.n")) == [1]
    assert w.wait(json.numincrby("d", "$.n", 2)) in ([3], [[3]])


@scenario("vendor")
def channels(w: World, r: Any) -> None:
    pubsub = r.pubsub()
    w.stack.callback(lambda: w.wait(pubsub.aclose() if w.flavour == "async" else pubsub.close()))

    def message() -> Any:
        return w.wait(pubsub.get_message(timeout=20))

    w.wait(pubsub.subscribe("c"))
    assert message()["type"] == "subscribe"
    w.wait(pubsub.psubscribe("p*"))
    assert message()["type"] == "psubscribe"
    assert r.publish(channel="c", message="hi") == 1
    assert message() == {"type": "message", "pattern": None, "channel": "c", "data": "hi"}
    assert r.publish("p1", "there") == 1
    assert message()["pattern"] == "p*"
    assert r.pubsub_channels(pattern="*") == ["c"]
    assert r.pubsub_numpat() == 1
    assert flat(r.pubsub_numsub("c")) == [["c", 1]]
    assert r.pubsub_shardchannels(pattern="*") == []
    assert flat(r.pubsub_shardnumsub("c")) in ([["c", 0]], [("c", 0)])
    assert r.spublish(shard_channel="c", message="x") == 0
    w.wait(pubsub.unsubscribe("c"))
    assert message()["type"] == "unsubscribe"
    w.wait(pubsub.punsubscribe())
    assert message()["type"] == "punsubscribe"


@scenario("vendor")
def several_at_once(w: World, r: Any) -> None:
    for transaction in (True, False):
        pipeline = r.pipeline(transaction=transaction, shard_hint=None)
        pipeline.set("n", 1)
        pipeline.incr("n")
        assert w.wait(pipeline.execute()) == [True, 2]
    pipeline = r.pipeline()
    w.wait(pipeline.watch("n"))
    pipeline.multi()
    pipeline.incr("n")
    w.server.execute("SET", "n", "5")
    with pytest.raises(redis.WatchError):
        w.wait(pipeline.execute())
    w.wait(pipeline.aclose() if w.flavour == "async" else pipeline.close())

    def change(pipe: Any) -> None:
        pipe.multi()
        pipe.incr("n")

    options = {"shard_hint": None, "value_from_callable": False, "watch_delay": None}
    assert r.transaction(change, "n", **options) == [6]
    lock = r.lock(
        name="lock", timeout=5, sleep=0.01, blocking=True, blocking_timeout=1, lock_class=None,
        thread_local=True, raise_on_release_error=True,
    )  # fmt: skip
    assert w.wait(lock.acquire()) is True
    assert w.wait(lock.locked()) is True
    assert w.wait(lock.owned()) is True
    assert w.wait(lock.extend(5)) is True
    assert w.wait(lock.reacquire()) is True
    w.wait(lock.release())
    assert r.watch("n") in (None, True, "OK")
    assert r.unwatch() in (None, True, "OK")
    assert r.execute_command("GET", "n") == "6"


@scenario("redis")
def connections(w: World, r: Any) -> None:
    r = w.client(single_connection_client=True)
    assert r.ping() is True
    assert r.echo(value="hi") == "hi"
    assert r.client_setname(name="me") is True
    assert r.client_getname() == "me"
    number = r.client_id()
    assert r.client_info()["id"] in (number, str(number))
    assert r.client_getredir() in (-1, 0)
    assert r.client_setinfo(attr="lib-name", value="mine") in (True, "OK")
    assert r.client_no_evict(mode="ON") in (True, "OK")
    assert r.client_no_touch(mode="OFF") in (True, "OK")
    assert len(r.client_list(_type="normal")) >= 1
    assert len(r.client_list(client_id=[number])) == 1
    assert r.client_pause(timeout=1, all=False) is True
    assert r.client_unpause() in (True, "OK")
    assert r.client_unblock(client_id=number, error=True) is False
    tracking = {"clientid": None, "prefix": ["a"], "bcast": True, "noloop": True}
    tracking |= {"optin": False, "optout": False}
    assert r.client_tracking(on=True, **tracking) in (True, "OK")
    assert r.client_trackinginfo() is not None
    assert r.client_tracking_off(**tracking) in (True, "OK")
    assert r.client_tracking_on(**tracking) in (True, "OK")
    other = w.client(single_connection_client=True)
    theirs = other.client_id()
    assert r.client_kill_filter(_id=theirs, _type="normal", skipme=True) == 1
    assert r.client_kill_filter(addr="1.1.1.1:1", laddr="1.1.1.1:1", user="default") == 0
    with pytest.raises(redis.ResponseError, match="No such client"):
        r.client_kill(address="1.1.1.1:1")
    assert r.auth(password=w.server.database_url.split(":")[2].split("@")[0], username="default")
    with pytest.raises(redis.ResponseError):
        r.readonly()
    with pytest.raises(redis.ResponseError):
        r.readwrite()


@scenario("redis")
def watching_commands(w: World, r: Any) -> None:
    monitor = r.monitor()
    if w.flavour == "sync":
        r.ping()
        with monitor:
            r.set("k", "v")
            assert monitor.next_command()["command"] == "SET k v"
    else:

        async def watch() -> str:
            async with monitor:
                await asyncio.to_thread(w.server.execute, "SET", "k", "v")
                return str((await monitor.next_command())["command"])

        assert w.loop.run_until_complete(watch()) == "SET k v"


@scenario("redis")
def the_server(w: World, r: Any) -> None:
    assert r.info(section="server")["redis_mode"] == "standalone"
    assert r.info("server", "clients")["redis_mode"] == "standalone"
    assert flat(r.time())[0] in (NOW_S, str(NOW_S))
    assert r.config_get("maxmemory", "save")["maxmemory"] == "0"
    assert r.config_set("maxmemory", 0, "hz", 10) is True
    assert r.config_resetstat() is True
    with pytest.raises(redis.ResponseError):
        r.config_rewrite()
    assert r.command_count() > 200
    assert "get" in r.command()
    assert r.command_getkeys("GET", "k") == ["k"]
    assert r.command_getkeysandflags("GET", "k")[0][0] == "k"
    assert "get" in r.command_list(category="read")
    assert r.command_list(pattern="xa*")
    assert r.command_list(module="none") == []
    assert r.slowlog_len() == 0
    assert r.slowlog_get(num=5) == []
    assert r.slowlog_reset() is True
    r.set("k", "v")
    assert r.memory_usage(key="k", samples=5) > 0
    assert r.memory_stats()
    assert r.memory_purge() is True
    assert r.memory_malloc_stats()
    assert r.latency_history(event="command") == []
    assert r.latency_latest() == []
    assert r.latency_reset("command") == 0
    assert r.lastsave() is not None
    assert r.save() is True
    assert r.bgsave(schedule=True)
    assert r.bgrewriteaof()
    assert r.role()[0] == "master"
    assert r.lolwut(5)
    assert "ReJSON" in str(r.module_list())
    for name, arguments in (
        ("module_load", {"path": "x"}), ("module_unload", {"name": "x"}),
        ("module_loadex", {"path": "x", "options": ["a", "b"], "args": ["c"]}),
        ("replicaof", {}), ("debug_object", {"key": "k"}),
    ):  # fmt: skip
        with pytest.raises(redis.ResponseError):
            getattr(r, name)(**arguments)
    with pytest.raises(redis.ResponseError):
        r.module_load("x", "y")
    with pytest.raises(redis.ResponseError):
        r.replicaof("1.1.1.1", 1)
    assert r.slaveof(host=None, port=None) is True
    with pytest.raises(redis.RedisError):
        r.migrate(
            host="127.0.0.1", port=1, keys=["k"], destination_db=0, timeout=1, copy=True,
            replace=True, auth="x",
        )  # fmt: skip
    assert r.waitaof(num_local=0, num_replicas=0, timeout=1)


@scenario("redis")
def what_the_client_does_not_offer(w: World, r: Any) -> None:
    for name in (
        "hello", "failover", "command_info", "memory_doctor", "memory_help", "latency_doctor",
        "latency_graph",
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            getattr(r, name)()
    for name in ("command_docs", "latency_histogram", "script_debug"):
        with pytest.raises(NotImplementedError):
            getattr(r, name)("x")
    assert not w.server.journal.calls(lambda call: call.facts["command"] != ["HELLO"]).where(
        lambda call: call.facts["command"] not in (["CLIENT SETINFO"], ["AUTH"])
    )


@scenario("redis")
def users(w: World, r: Any) -> None:
    assert r.acl_whoami() == "default"
    assert "read" in r.acl_cat()
    assert "get" in r.acl_cat(category="read")
    assert len(r.acl_genpass(bits=128)) == 32
    assert r.acl_setuser(
        username="ann", enabled=True, nopass=False, passwords=["+pw"],
        hashed_passwords=["+" + "a" * 64], categories=["+@read"], commands=["+set", "-get"],
        keys=["a*"], channels=["c*"], selectors=[("+get", "~b*")], reset=True, reset_keys=True,
        reset_channels=True, reset_passwords=False,
    )  # fmt: skip
    assert r.acl_setuser("ann", enabled=True, reset_passwords=True, passwords=["+pw"])
    details = r.acl_getuser(username="ann")
    assert details["enabled"] is True
    assert r.acl_users() == ["ann", "default"]
    assert len(r.acl_list()) == 2
    assert r.acl_dryrun("ann", "set", "a1", "v") in (True, "OK")
    assert "no permissions" in str(r.acl_dryrun("ann", "del", "a1"))
    w.used.note("redis", "from_url", ["kwargs"])
    where = w.server.database_url.split("@")[1]
    target = FLAVOURS[w.flavour].from_url(f"redis://ann:pw@{where}", decode_responses=True)
    w.stack.callback(w.close, target)
    ann = Api(target, {type(target): "redis"}, w.used, w.loop)
    assert ann.set("a1", "v") is True
    with pytest.raises(redis.exceptions.NoPermissionError):
        ann.delete("a1")
    assert r.acl_log(count=5)[0]["object"] == "del"
    assert r.acl_log_reset() is True
    assert r.acl_help()
    for name in ("acl_load", "acl_save"):
        with pytest.raises(redis.ResponseError, match="not configured to use an ACL file"):
            getattr(r, name)()
    assert r.acl_deluser("ann") == 1


@scenario("8.8")
def bounded_counters(w: World, r: Any) -> None:
    assert r.increx("n") == [1, 1]
    assert r.increx("n", byint=5, ubound=7) == [6, 5]
    assert r.increx("n", byint=5, lbound=0, ubound=7) == [6, 0]
    assert r.increx("n", byint=5, ubound=7, saturate=True, ex=100, enx=True) == [7, 1]
    assert r.ttl("n") == 100
    for option, value in (
        ("ex", 9),
        ("px", 9000),
        ("exat", NOW_S + 9),
        ("pxat", NOW_S * 1000 + 9000),
    ):
        r.increx("n", **{option: value})
        assert r.ttl("n") == 9
    r.increx("n", persist=True)
    assert r.ttl("n") == -1
    r.set("x", "1.8")
    number, applied = map(float, r.increx("x", byfloat=0.7, ubound=2, saturate=True))
    assert (number, applied) == (2.0, pytest.approx(0.2))


@scenario("8.8")
def counted_members(w: World, r: Any) -> None:
    for key in ("a", "b", "c"):
        r.zadd(key, {"a1": 5, "a3": 7})
    assert flat(r.zinter(["a", "b", "c"], aggregate="COUNT", withscores=True)) == [
        ["a1", 3],
        ["a3", 3],
    ]
    weighted = r.zunion({"a": 1, "b": 2, "c": 3}, aggregate="COUNT", withscores=True)
    assert flat(weighted) == [["a1", 6], ["a3", 6]]
    assert r.zunionstore("d", ["a", "b"], aggregate="COUNT") == 2
    assert r.zinterstore("d", ["a", "b"], aggregate="COUNT") == 2
    assert r.zscore("d", "a1") == 2


@scenario("8.8")
def released_entries(w: World, r: Any) -> None:
    r.xadd("s", {"a": "b"}, id="1-1")
    r.xadd("s", {"a": "b"}, id="1-2")
    r.xgroup_create("s", "g", id="0")
    r.xreadgroup("g", "gone", {"s": ">"}, count=1)
    assert r.xnack("s", "g", "FAIL", "1-1") == 1
    assert r.xnack("s", "g", "SILENT", "1-1", "9-9", retrycount=3, force=True) == 1
    assert r.xpending("s", "g")["pending"] == 1
    [entry] = r.xpending_range("s", "g", "-", "+", 9)
    assert (entry["consumer"], entry["time_since_delivered"], entry["times_delivered"]) == (
        "",
        -1,
        3,
    )
    reply = r.xreadgroup("g", "c", {"s": ">"}, claim_min_idle_time=5000)
    entries = reply["s"][0] if isinstance(reply, dict) else reply[0][1]
    assert flat(entries) == [["1-1", {"a": "b"}, -1, 3], ["1-2", {"a": "b"}, 0, 0]]
    assert r.xinfo_stream("s", full=True)["groups"][0]["nacked-count"] == 0


@scenario("8.8")
def idempotent_entries(w: World, r: Any) -> None:
    first = r.xadd("s", {"a": "b"}, idmp=("p", b"1"))
    assert r.xadd("s", {"a": "c"}, idmp=("p", b"1")) == first
    second = r.xadd("s", {"a": "b"}, idmpauto="q")
    assert r.xadd("s", {"a": "b"}, idmpauto="q", ref_policy="KEEPREF", maxlen=9) == second != first
    info = r.xinfo_stream("s")
    names = ("pids-tracked", "iids-tracked", "iids-added", "iids-duplicates")
    assert [info[name] for name in names] == [2, 2, 2, 2]
    assert r.xcfgset("s", idmp_duration=5, idmp_maxsize=3) in (True, "OK")
    info = r.xinfo_stream("s")
    assert [info[name] for name in ("idmp-duration", "idmp-maxsize", *names[:2])] == [5, 3, 0, 0]
    assert r.xtrim("s", maxlen=1, approximate=False, ref_policy="DELREF") == 1


@scenario("8.8")
def vector_sets(w: World, r: Any) -> None:
    vset = r.vset()
    points = {"A": [1.0, 1.0], "B": [-1.0, -1.0], "C": [-1.0, 1.0], "D": [1.0, -1.0]}
    for name, vector in points.items():
        attributes = {"x": vector[0], "name": name}
        assert w.wait(vset.vadd("v", vector, name, cas=True, ef=9, attributes=attributes)) == 1
    east = struct.pack("<2f", 1, 0)
    assert w.wait(vset.vadd("v", east, "E", quantization=QuantizationOptions.Q8, numlinks=8)) == 1
    assert w.wait(vset.vadd("v", points["A"], "A")) == 0
    assert w.wait(vset.vcard("v")) == 5
    assert w.wait(vset.vdim("v")) == 2
    assert w.wait(vset.vsim("v", [0.9, 0.1])) == ["E", "A", "D", "C", "B"]
    assert w.wait(vset.vsim("v", east, count=1, truth=True, no_thread=True, ef=5)) == ["E"]
    scores = w.wait(vset.vsim("v", "A", with_scores=True, epsilon=0.5))
    assert scores == {"A": 1.0, "E": 0.8535534143447876, "C": 0.5, "D": 0.5}
    found = w.wait(vset.vsim("v", "A", with_attribs=True, filter=".x < 0", filter_ef=5))
    assert found == {"C": {"x": -1.0, "name": "C"}, "B": {"x": -1.0, "name": "B"}}
    both = w.wait(vset.vsim("v", "E", with_scores=True, with_attribs=True, count=2))
    assert both["E"] == {"score": 1.0, "attributes": None}
    assert both["A"]["attributes"] == {"x": 1.0, "name": "A"}
    assert w.wait(vset.vemb("v", "E")) == [1, 0]
    assert w.wait(vset.vemb("v", "none")) is None
    raw = w.wait(vset.vemb("v", "E", raw=True))
    kind = raw["quantization"]
    assert (kind if isinstance(kind, str) else kind.decode(), raw["raw"]) == ("int8", b"\x7f\x00")
    assert (raw["l2"], raw["range"]) == (1.0, 1.0)
    [links] = w.wait(vset.vlinks("v", "A", with_scores=True))
    assert links["B"] == 0.0
    assert w.wait(vset.vlinks("v", "A")) == [["E", "C", "D", "B"]]
    info = w.wait(vset.vinfo("v"))
    assert (info["quant-type"], info["size"], info["hnsw-max-node-uid"]) == ("int8", 5, 6)
    assert w.wait(vset.vsetattr("v", "E", {"x": 1})) == 1
    assert w.wait(vset.vgetattr("v", "E")) == {"x": 1}
    assert w.wait(vset.vsetattr("v", "E", {})) == 1
    assert w.wait(vset.vgetattr("v", "E")) is None
    assert sorted(w.wait(vset.vrandmember("v", 9))) == ["A", "B", "C", "D", "E"]
    assert w.wait(vset.vrange("v", "[B", "+", 2)) == ["B", "C"]
    assert w.wait(vset.vrem("v", "A")) == 1
    assert w.wait(vset.vadd("r", [1.0, 2.0, 3.0, 4.0], "a", reduce_dim=2)) == 1
    assert w.wait(vset.vdim("r")) == 2
    exact = [1.0, 4.32, 0.0, 0.05, -2.9]
    w.wait(vset.vadd("f", exact, "a", quantization=QuantizationOptions.NOQUANT))
    assert w.wait(vset.vemb("f", "a")) == [
        struct.unpack("f", struct.pack("f", n))[0] for n in exact
    ]
    w.wait(vset.vadd("b", exact, "a", quantization=QuantizationOptions.BIN))
    assert w.wait(vset.vemb("b", "a")) == [1, 1, -1, 1, -1]


CALLS = Kept(run)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, flavour: str) -> None:
    CALLS.run(name, flavour)


OF_BOTH_PROTOCOLS = [
    "keys", "waiting", "streams", "several_at_once", "scripts", "bounded_counters", "counted_members",
    "released_entries", "idempotent_entries", "vector_sets",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_BOTH_PROTOCOLS)
def test_the_older_protocol(name: str) -> None:
    run(name, "sync", Used(), protocol=2)


def excused(name: str) -> bool:
    name = name.removeprefix("redis.")
    method = name.partition("(")[0]
    return name in EXCUSED or method in EXCUSED or method.startswith(tuple(FAMILIES))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_of_the_surface_is_left_out(flavour: str) -> None:
    used = CALLS.calls(SCENARIOS, flavour)
    wanted = surface(FLAVOURS[flavour], "redis")
    check_complete(__file__, {name for name in wanted - used if not excused(name)})


def test_client_side_caching() -> None:
    with KVServer(Context.alone()) as server, ExitStack() as stack:
        from redis.cache import CacheConfig

        client = redis.Redis.from_url(
            server.database_url, protocol=3, cache_config=CacheConfig(), decode_responses=True
        )
        stack.callback(client.close)
        server.execute("SET", "k", "1")
        assert client.get("k") == "1"
        assert client.get("k") == "1"
        asked = [call for call in server.journal.calls() if call.facts["command"] == ["GET"]]
        assert len(asked) == 1
        server.execute("SET", "k", "2")
        pause = threading.Event()
        for _ in range(200):
            if client.get("k") == "2":
                break
            pause.wait(0.01)
        assert client.get("k") == "2"


def test_mixed_with_rest() -> None:
    with KVServer(Context.alone()) as server:
        rest = server.client()
        client = redis.Redis.from_url(server.database_url, decode_responses=True)
        rest.set("k", "v")
        assert client.get("k") == "v"
        client.rpush("l", "a", "b")
        assert rest.lrange("l", 0, -1) == ["a", "b"]
        client.close()
