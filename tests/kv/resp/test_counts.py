"""INFO and SLOWLOG about failed, rejected and blocked commands, compared with a real server."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from tests.harness import wait_until
from tests.kv.comparison.faces import Port
from tests.kv.comparison.servers import running

FULL = "CONFIG SET maxmemory 1"
ALONE = "CONFIG SET min-replicas-to-write 1"
STORIES: dict[str, tuple[str, ...]] = {
    "a command of a script is refused": (FULL, "EVAL|return redis.call('SET', 'x', 'y')|0"),
    "a script caught that": (FULL, "EVAL|return redis.pcall('SET', 'x', 'y').err|0"),
    "a script returned that": (FULL, "EVAL|return redis.pcall('SET', 'x', 'y')|0"),
    "a command of a script fails": ("EVAL|return redis.call('SELECT', 99)|0",),
    "a script caught a failure": ("EVAL|return redis.pcall('SELECT', 99).err|0",),
    "a script returned a failure": ("EVAL|return redis.pcall('SELECT', 99)|0",),
    "a script changed a failure": (
        "EVAL|local r = redis.pcall('SELECT', 99) r.err = 'MINE x' return r|0",
    ),
    "a script raised": ("EVAL|error('x')|0",),
    "a script raised a table": ("EVAL|error({err = 'MINE x'})|0",),
    "a script returned an error of its own": ("EVAL|return redis.error_reply('MINE x')|0",),
    "a script called nothing": ("EVAL|return redis.call()|0", "EVAL|return redis.call('NO')|0"),
    "a script called a command with too little": ("EVAL|return redis.call('GET')|0",),
    "a script that reads wrote": ("EVAL_RO|return redis.call('SET', 'x', 'y')|0",),
    "a script caught that it may not": ("EVAL_RO|return redis.pcall('SET', 'x', 'y').err|0",),
    "a script was of the wrong type": ("SET text 1", "EVAL|return redis.call('LPUSH', 'text', 1)|0"),
    "a script is no Lua": ("EVAL|return (|0", "EVALSHA|nosuch|0"),
    "a command is refused": ("GET", "NOSUCH", "LPUSH text"),
    "a transaction fails": ("SET text 1", "MULTI", "LPUSH text 1", "SELECT 99", "EXEC"),
    "a transaction is refused": ("MULTI", "GET", "EXEC"),
    "no replicas": (ALONE, "SET a b", "GET a", "MULTI", "SET a b", "EXEC"),
    "no replicas for a script": (
        ALONE, "EVAL|return redis.call('SET', 'a', 'b')|0", "EVAL|return redis.call('GET', 'a')|0",
        "EVAL|#!lua flags=no-writes\nreturn redis.call('GET', 'a')|0",
        "EVAL|#!lua\nreturn redis.call('GET', 'a')|0", "EVALSHA_RO|nosuch|0",
    ),
    "no replicas, yet with no lag to speak of": (
        ALONE, "CONFIG SET min-replicas-max-lag 0", "SET a b",
    ),
}  # fmt: skip
LIMITS = "maxmemory 0 min-replicas-to-write 0 min-replicas-max-lag 10 slowlog-log-slower-than 10000"
FIGURES = re.compile(rb"(calls|rejected_calls|failed_calls)=(\d+)")


def words(line: str) -> list[bytes]:
    parts = line.split("|") if "|" in line else line.split()
    return [part.encode() for part in parts]


def counted(client: Any) -> dict[bytes, Any]:
    """Return calls, rejections and failures of each command, and errors by their class word."""
    found: dict[bytes, Any] = {}
    for section in (b"commandstats", b"errorstats"):
        for line in client.call([b"INFO", section]).splitlines():
            name, colon, told = line.partition(b":")
            if colon and not name.startswith((b"cmdstat_info", b"cmdstat_config")):
                found[name] = FIGURES.findall(told) or told
    total = re.search(rb"total_error_replies:(\d+)", client.call([b"INFO", b"stats"]))
    assert total is not None
    found[b"all errors"] = total[1]
    return found


def reset(client: Any) -> None:
    client.call([b"CONFIG", b"SET", *LIMITS.encode().split()])
    client.call([b"FLUSHALL"])
    client.call([b"CONFIG", b"RESETSTAT"])


def told(connect: Any, name: str) -> Any:
    client = connect()
    reset(client)
    replies = [client.call(words(line)) for line in STORIES[name]]
    found = counted(client)
    reset(client)
    client.close()
    return replies, found


@pytest.fixture(scope="module")
def port() -> Iterator[Any]:
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        yield lambda: Port(kv.database_url)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with running() as server:
        yield server.again


@pytest.mark.parametrize("name", STORIES)
def test_errors_are_counted_as_a_real_server_counts_them(port: Any, server: Any, name: str) -> None:
    ours, theirs = told(port, name), told(server, name)
    assert ours == theirs


WAITS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "served": ((), "BLPOP l 0", ("LPUSH l x",)),
    "served by a transaction": ((), "BLPOP l 0", ("MULTI", "LPUSH l x", "SLOWLOG RESET", "EXEC")),
    "out of time": ((), "BLPOP l 0.05", ()),
    "told that its group is gone": (
        ("XGROUP CREATE s g $ MKSTREAM",), "XREADGROUP GROUP g ann BLOCK 0 STREAMS s >",
        ("XGROUP DESTROY s g",),
    ),
    "told that its target is another thing": (
        ("SET to x",), "BLMOVE from to LEFT LEFT 0", ("LPUSH from x",),
    ),
}  # fmt: skip


def waited(connect: Any, name: str) -> Any:
    """Return a blocked client's reply, its statistics, and its lines in the slow log."""
    before, line, then = WAITS[name]
    one, other = connect(), connect()
    reset(other)
    for each in before:
        other.call(words(each))
    other.call(b"CONFIG SET slowlog-log-slower-than 0".split())
    other.call([b"SLOWLOG", b"RESET"])
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(one.call(words(line))))
    waiting.start()
    if then:
        wait_until(lambda: b"blocked_clients:1" in other.call([b"INFO", b"clients"]))
    for each in then:
        other.call(words(each))
    waiting.join(10)
    logged = [entry[3] for entry in other.call([b"SLOWLOG", b"GET", b"-1"])]
    found = counted(other)
    found.pop(b"cmdstat_slowlog|reset")
    reset(other)
    one.close()
    other.close()
    return got, logged.count(words(line)), found


@pytest.mark.parametrize("name", WAITS)
def test_a_command_that_waited_is_logged_when_it_is_over(port: Any, server: Any, name: str) -> None:
    ours, theirs = waited(port, name), waited(server, name)
    assert ours == theirs


def test_a_command_that_waited_took_as_long_as_it_waited() -> None:
    with Cloud(clock="frozen", seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        client, got = Port(kv.database_url), []
        waiting = threading.Thread(target=lambda: got.append(client.call(words("BLPOP l 0"))))
        waiting.start()
        wait_until(lambda: "blocked_clients:1" in kv.execute("INFO", "clients"))
        cloud.clock.advance(3)
        kv.execute("LPUSH", "l", "x")
        waiting.join(10)
        assert got == [[b"l", b"x"]]
        ((_, _, micros, line, _, _),) = kv.execute("SLOWLOG", "GET")
        assert (micros, line) == (3_000_000, ["BLPOP", "l", "0"])
        client.close()


SECRETS: list[list[bytes]] = [
    line.encode().split()
    for line in (
        "ACL SETUSER tom on >secret ~* +@all", "AUTH tom secret", "AUTH tom wrong", "AUTH secret",
        "HELLO 2 AUTH tom secret SETNAME x", "hello 2 setname x auth tom secret", "HELLO 2",
        "CONFIG SET masterauth secret", "config set masteruser u Requirepass secret hz 10",
        "CONFIG SET requirepass", "ACL GETUSER tom", "ACL DELUSER nobody", "CONFIG GET requirepass",
        "MIGRATE 127.0.0.1 1 k 0 10 AUTH secret", "MIGRATE 127.0.0.1 1 k 0 10 COPY AUTH2 tom secret",
        "ECHO secret", "ACL WHOAMI", "CONFIG RESETSTAT",
    )
] + [[b"CONFIG", b"SET", b"requirepass", b""]]  # fmt: skip


def logged(connect: Any) -> tuple[Any, Any]:
    """Return what the slow log and MONITOR show of lines with secrets."""
    client, watcher = connect(), connect()
    client.call(b"CONFIG SET slowlog-log-slower-than 0".split())
    client.call([b"SLOWLOG", b"RESET"])
    watcher.call([b"MONITOR"])
    for line in SECRETS:
        client.call(line)
    entries = [entry[3] for entry in client.call([b"SLOWLOG", b"GET", b"-1"])]
    client.call([b"ECHO", b"the end"])
    shown: list[bytes] = []
    while not shown or b"the end" not in shown[-1]:
        shown.append(watcher.next().text.partition(b"] ")[2])
    client.call(b"CONFIG SET slowlog-log-slower-than 10000".split())
    client.call([b"ACL", b"DELUSER", b"tom"])
    client.close()
    watcher.close()
    return entries, shown


def test_secrets_are_left_out_of_logs_as_on_a_real_server(server: Any) -> None:
    # The lines change the password of the port.
    with Cloud(seed=1) as cloud:
        url = cloud.kv_server(dialect="redis").database_url
        ours, theirs = logged(lambda: Port(url)), logged(server)
    assert ours == theirs
    assert [b"ACL", b"SETUSER", *[b"(redacted)"] * 5] in ours[0]


READS = (
    """
GET there|GET not|GET gone|MGET there not gone|EXISTS there not gone there|STRLEN there|STRLEN not
TYPE there|TYPE not|TTL there|TTL not|TTL gone|OBJECT ENCODING there|OBJECT ENCODING not|DUMP not
GETRANGE there 0 1|GETBIT not 1|BITCOUNT there|SUBSTR there 0 1|TOUCH there not|LCS there not
SET there x|SET new x|SET there x GET|SET not x GET|SETNX there x|GETSET there x|GETDEL not|GETEX there
INCR number|INCR not|APPEND there x|SETRANGE there 0 x|SETBIT there 0 1|DEL there not|UNLINK not
EXPIRE there 10|EXPIRE not 10|PERSIST there|RENAME there other|COPY there to|COPY not to
LLEN list|LLEN not|LRANGE list 0 -1|LINDEX list 0|LPOS list a|LPUSH list x|LPUSH not x|LPUSHX not x
LPOP list|LPOP not|LSET list 0 x|LREM list 0 x|LTRIM list 0 1|LMOVE list not LEFT LEFT|RPOPLPUSH not list
SISMEMBER set a|SMEMBERS set|SCARD not|SADD set x|SREM set x|SPOP not|SRANDMEMBER set|SINTER set not
SINTERSTORE to set not|SUNIONSTORE to set not|SDIFF set not|SMOVE set to a|SINTERCARD 2 set not
HGET hash f|HGET not f|HGETALL hash|HMGET hash f g|HSET hash f 2|HDEL not f|HINCRBY hash f 1|HLEN hash
ZSCORE zset a|ZRANGE zset 0 -1|ZRANK not a|ZADD zset 2 b|ZREM not a|ZCARD zset|ZPOPMIN not
MEMORY USAGE there|ZINCRBY zset 1 a
ZUNIONSTORE to 2 zset not|ZRANGESTORE to zset 0 -1|ZUNION 2 zset not|ZDIFF 2 zset not|ZMSCORE zset a b
XLEN stream|XLEN not|XRANGE stream - +|XADD stream 9-9 f v|XREAD STREAMS stream not 0 0|XDEL not 1-1
XINFO STREAM stream|XACK stream g 1-1|XTRIM stream MAXLEN 5|GEOADD geo 1 1 b|GEOPOS geo a|GEODIST not a b
GEOSEARCH geo FROMMEMBER a BYRADIUS 1 km|PFADD hll b|PFCOUNT hll not|PFMERGE hll not|BITOP NOT to there
SORT list ALPHA|SORT not|SORT_RO list ALPHA|KEYS *|SCAN 0|DBSIZE|SSCAN set 0|HSCAN hash 0|ZSCAN not 0
BITFIELD_RO not GET u8 0|SETEX there 10 x|MSET there x not y|MSETNX there x not y
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
FILLED = (
    """
SET there text|SET number 5|RPUSH list a b|SADD set a b|HSET hash f 1|ZADD zset 1 a|XADD stream 1-1 f v
GEOADD geo 1 1 a|PFADD hll a|SET gone x PX 1
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


def looked_up(client: Any) -> dict[str, tuple[int, int]]:
    """Return how many existing and missing keys each line read."""

    def figures() -> tuple[int, int]:
        told = client.call([b"INFO", b"stats"])
        found = re.findall(rb"keyspace_(?:hits|misses):(\d+)", told)
        return int(found[0]), int(found[1])

    counts = {}
    for line in READS:
        client.call([b"FLUSHALL"])
        for each in FILLED:
            client.call(each.encode().split())
        wait_until(lambda: client.call([b"PTTL", b"gone"]) == -2)
        before = figures()
        client.call(line.encode().split())
        after = figures()
        counts[line] = (after[0] - before[0], after[1] - before[1])
    return counts


@pytest.mark.slow
def test_keys_are_found_and_missed_as_on_a_real_server(port: Any, server: Any) -> None:
    mine, theirs = port(), server()
    ours, real = looked_up(mine), looked_up(theirs)
    assert {line: (ours[line], real[line]) for line in READS if ours[line] != real[line]} == {}
    assert sum(map(sum, ours.values())) > 80
    mine.close()
    theirs.close()
