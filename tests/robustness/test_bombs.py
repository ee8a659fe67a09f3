"""Small inputs that request a lot of work are rejected or answered quickly, with little memory."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.rdb.source import crc64
from pytest_fakecloud.kv.settings import KVConfig
from tests.budget import cases
from tests.harness import check_each

from .grammar import DOCUMENTS, EXTREMES, FILTERS, GLOBS, JSON_PATHS, MALFORMED, WRONG_SHAPES

SECONDS = 2.0
"""Maximum processor time of one input, in seconds; an unbounded search would take minutes."""


class Asked:
    """An engine with some keys, and a function that runs a command and returns errors as values."""

    def __init__(self) -> None:
        self.engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
        self.session = self.engine.session()

    def __call__(self, *words: str | bytes) -> Any:
        line = [word.encode() if isinstance(word, str) else word for word in words]
        began = time.thread_time()
        try:
            return self.engine.execute(self.session, line)
        except CommandError as error:
            return error
        finally:
            taken = time.thread_time() - began
            assert taken < SECONDS, (taken, [word[:80] for word in line])


@pytest.fixture
def ask() -> Asked:
    return Asked()


# -- dumps ----------------------------------------------------------------------------------------

KEYS = (
    "SET string text", "SET number 12345", "RPUSH list a b 3", "SADD ints 1 2 3", "SADD set a b c",
    "ZADD zset 1 a 2.5 b", "HSET hash f v g 2", "XADD stream 1-1 a 1", "XADD stream 2-1 b 2",
    "XGROUP CREATE stream g 0", "PFADD hll a b c", "ARRING array 3 a b c d",
    "JSON.SET json $ {\"a\":[1,2,{\"b\":null}]}",
)  # fmt: skip


def damaged(data: bytes, luck: random.Random) -> bytes:
    """Return the bytes with a few changes, often with a corrected checksum."""
    changed = bytearray(data)
    for _ in range(luck.choice([1, 1, 2, 5])):
        at = luck.randrange(len(changed) or 1)
        if changed and luck.random() < 0.6:
            changed[at] = luck.choice([0, 1, 0x7F, 0x80, 0xFF, luck.randrange(256)])
        else:
            changed[at : at + luck.choice([0, 1, 4])] = luck.randbytes(luck.choice([0, 1, 4]))
    return bytes(changed)


def restore_damaged(ask: Asked, seed: int, rounds: int) -> tuple[int, int]:
    """Restore damaged dumps of keys and functions; return how many were rejected and how many
    accepted.
    """
    luck = random.Random(seed)
    ask("FLUSHALL")
    for line in KEYS:
        assert not isinstance(ask(*line.split(" ")), CommandError), line
    ask("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
    names = ["string", "number", "list", "ints", "set", "zset", "hash", "stream", "hll", "json"]
    names += ["array"]
    dumps = [ask("DUMP", name) for name in names]
    functions = ask("FUNCTION", "DUMP")
    refused = taken = 0
    for _ in range(rounds):
        if luck.random() < 0.2:
            reply = ask("FUNCTION", "RESTORE", _damaged_dump(functions, luck), "REPLACE")
        else:
            data = _damaged_dump(luck.choice(dumps), luck)
            reply = ask("RESTORE", "copy", "0", data, "REPLACE")
            if reply == "OK" or not isinstance(reply, CommandError):
                _use(ask)
        if isinstance(reply, CommandError):
            refused += 1
        else:
            taken += 1
    assert ask("PING") is not None
    return refused, taken


FOOTER = 10
"""The number of bytes of version and checksum at the end of a dump."""


def _damaged_dump(data: bytes, luck: random.Random) -> bytes:
    """Damage a dump, usually with a corrected checksum, because otherwise only the checksum would
    be tested.
    """
    if luck.random() < 0.2:
        return damaged(data, luck)
    body = damaged(data[:-FOOTER], luck) + data[-FOOTER:-8]
    return body + crc64(body).to_bytes(8, "little")


def _use(ask: Asked) -> None:
    """Check that everything that was restored can be read, changed and dumped."""
    for line in ("TYPE copy", "DUMP copy", "OBJECT ENCODING copy", "COPY copy other REPLACE", "TTL copy",
                 "GET copy", "LRANGE copy 0 -1", "SMEMBERS copy", "ZRANGE copy 0 -1 WITHSCORES",
                 "HGETALL copy", "XRANGE copy - +", "XINFO STREAM copy FULL", "PFCOUNT copy",
                 "JSON.GET copy", "DEL copy"):  # fmt: skip
        ask(*line.split())


@pytest.mark.slow
def test_damaged_dumps(ask: Asked) -> None:
    refused, taken = restore_damaged(ask, 1, rounds := cases(1500))
    assert refused > rounds / 5
    assert taken > rounds / 30, "only check sums were tried"


@pytest.mark.long
def test_damaged_dumps_for_long(ask: Asked) -> None:
    for seed in range(100):
        restore_damaged(ask, random.randrange(2**32) + seed, 5000)


# -- requests of the key-value store --------------------------------------------------------------

CONTENT = {
    "text": "a" * 5000,
    "list": [str(number) for number in range(10)],
    "zset": [("a", 1.0), ("b", 2.0)],
    "hash": {"a": "1"},
    "set": {"a", "b"},
    "stream": [("1-1", {"a": "b"})],
    "array": {0: "a", 5: "b"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(now="2026-01-01T00:00:00Z")) as server:
        server.load(CONTENT)
        server.execute("JSON.SET", "doc", "$", '{"a": [1, 2, {"b": 1.5}]}')
        yield server
        assert list(server._context.violations) == []


def posted(server: KVServer, body: bytes, path: str = "/") -> Any:
    """Return the JSON of an answer, which takes little processor time."""
    began = time.thread_time()
    answer = server._app.respond(Request("POST", path, list(server.headers.items()), body))
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, bytes)
    assert time.thread_time() - began < SECONDS
    assert answer.status in (200, 400)
    return json.loads(answer.body)


def run(server: KVServer, *words: object) -> None:
    answer = posted(server, json.dumps(words).encode())
    assert isinstance(answer, dict)
    assert len(answer) == 1
    assert set(answer) <= {"result", "error"}


@pytest.mark.parametrize("path", ["/", "/pipeline", "/multi-exec"])
def test_bodies(server: KVServer, path: str) -> None:
    def check(name: str, body: bytes) -> None:
        posted(server, body, path)
        assert server.value("list") == CONTENT["list"]

    check_each(check, (MALFORMED | WRONG_SHAPES).items())


@pytest.mark.parametrize(
    "path",
    [
        "/%00", "/%", "/%zz", "/get/%ff", "//", "/get//", "/get/" + "a" * 50_000, "/" + "a/" * 5_000,
        "/get/k?x=%ff&_token", "/get?%", "/set/k/v?EX=&NX=", "/get/a%2Fb%2F..", "/pipeline/x",
    ],
)  # fmt: skip
def test_paths(server: KVServer, path: str) -> None:
    with requests.Session() as http:
        for method in ("GET", "POST", "PUT"):
            answer = http.request(method, server.url + path, headers=server.headers, timeout=30)
            assert answer.status_code in (200, 400)
            assert set(answer.json()) <= {"result", "error"}


@pytest.mark.slow
@pytest.mark.parametrize("glob", GLOBS, ids=range(len(GLOBS)))
def test_globs(server: KVServer, glob: str) -> None:
    server.load({"a" * 5000: "v"})
    for words in (
        ["KEYS", glob],
        ["SCAN", "0", "MATCH", glob, "COUNT", "100"],
        ["SSCAN", "set", "0", "MATCH", glob],
        ["CONFIG", "GET", glob],
        ["PUBSUB", "CHANNELS", glob],
        ["COMMAND", "LIST", "FILTERBY", "PATTERN", glob],
        ["ACL", "SETUSER", "u", "~" + glob],
    ):
        run(server, *words)


# Left out: lines that would rightly allocate half a gigabyte.
LINES = """
LRANGE list N N|LRANGE list 0 N|LTRIM none N N|SETRANGE none N x|GETBIT text N
BITFIELD new GET u63 N|BITFIELD new INCRBY i64 0 N|GETRANGE text N N|GETRANGE text 0 N
BITCOUNT text N N|BITPOS text 1 N|BITPOS text 1 0 N BIT|LINDEX list N|LPOP none N|LSET list N x
LREM list N zz|LPOS list 5 RANK N|LPOS list 5 COUNT N MAXLEN N|SRANDMEMBER set N|HRANDFIELD hash N
HRANDFIELD hash N WITHVALUES|ZRANDMEMBER zset N|ZRANDMEMBER zset N WITHSCORES|SPOP none N
ZPOPMIN none N|ZRANGE zset N N|ZRANGE zset 0 N REV|ZRANGEBYSCORE zset -inf +inf LIMIT N N
ZRANGEBYSCORE zset -inf +inf LIMIT 0 N|XRANGE stream - + COUNT N|XRANGE stream N N
XADD added MAXLEN N * a b|XADD added N-N a b|XTRIM stream MAXLEN ~ 5 LIMIT N
XREAD COUNT N STREAMS stream 0|SCAN N|SCAN 0 COUNT N|SSCAN set N|HSCAN hash 0 COUNT N|EXPIRE none N
PEXPIRE text N XX|SET gone v EX N|SET gone v PXAT N|GETEX gone EX N|HEXPIRE hash N XX FIELDS 1 a
RESTORE new N x|LCS text text IDX MINMATCHLEN N|GEORADIUS none 1 1 N km COUNT N|LMPOP N list LEFT
LMPOP 1 none LEFT COUNT N|ZUNION N zset|EVAL return{} N|SINTERCARD 1 set LIMIT N|INCRBY number N
DECRBY number N|HINCRBY hash n N|INCRBYFLOAT float N|INCRBYFLOAT float 1eN|LOLWUT VERSION N
LOLWUT VERSION 5 N N N|SLOWLOG GET N|ACL GENPASS N|ACL LOG N|CLIENT KILL ID N|SWAPDB N 0|WAIT 0 N
MEMORY USAGE text SAMPLES N|JSON.ARRTRIM doc $.none N N|JSON.ARRINSERT doc $.a N 1
JSON.ARRPOP none $.a N|JSON.ARRINDEX doc $.a 1 N N|JSON.NUMINCRBY doc $.a[0] N
JSON.NUMMULTBY doc $.a[0] N|JSON.GET doc $.a[N]|JSON.GET doc $.a[N:N:N]|SORT list LIMIT N N
COPY text new DB N|XAUTOCLAIM stream g c N 0 COUNT N|XPENDING stream g - + N|XSETID added N-0
ARGET array N|ARSET new N a|ARDEL array N|ARDELRANGE none N N|ARGETRANGE array N N|ARSCAN array 0 N
ARSCAN array 0 9 LIMIT N|ARGREP array N + MATCH a LIMIT N|AROP array 0 N SUM|ARSEEK array N
ARRING new N a b|ARLASTITEMS array N|XGROUP CREATE stream gN $ ENTRIESREAD N
BITOP NOT new none|OBJECT FREQ text
"""


@pytest.mark.parametrize("number", EXTREMES)
def test_extreme_numbers(server: KVServer, number: int) -> None:
    for line in filter(None, LINES.replace("\n", "|").split("|")):
        run(server, *re.sub(r"\bN\b|(?<=[eg])N\b", str(number), line).split())
    assert server.value("text") == CONTENT["text"]


@pytest.mark.parametrize("text", DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_documents(server: KVServer, text: str) -> None:
    for words in (
        ["JSON.SET", "big", "$", text],
        ["JSON.MERGE", "big", "$", text],
        ["JSON.ARRAPPEND", "big", "$", text],
        ["JSON.NUMINCRBY", "big", "$[0]", text],
        ["JSON.NUMMULTBY", "big", "$", "1e308"],
        ["JSON.GET", "big"],
        ["EVAL", "return cjson.decode(ARGV[1])", 0, text],
    ):
        run(server, *words)


DEEP_AND_WIDE = {
    "lists": "[" * 100 + "]" * 100,
    "objects": '{"a":' * 60 + "1" + "}" * 60,
    "wide": "[" + ",".join(['{"a":"' + "a" * 40 + '!"}'] * 200) + "]",
}


@pytest.mark.parametrize("path", JSON_PATHS, ids=range(len(JSON_PATHS)))
def test_json_paths(server: KVServer, path: str) -> None:
    for key, text in DEEP_AND_WIDE.items():
        server.execute("JSON.SET", key, "$", text)
        for name in ("GET", "TYPE", "ARRLEN", "RESP", "CLEAR", "TOGGLE", "DEL"):
            run(server, f"JSON.{name}", key, path)
        run(server, "JSON.SET", key, path, "1")


# -- filters, and scripts for long ----------------------------------------------------------------


@pytest.mark.parametrize("text", FILTERS, ids=range(len(FILTERS)))
def test_filters(text: str) -> None:
    with Cloud(seed=1) as cloud:
        index = cloud.vector_index(dimension=2)
        index.load(
            [{"id": str(n), "vector": [1, n], "metadata": {"a": "a" * 200}} for n in range(50)]
        )
        began = time.process_time()
        answer = requests.post(
            f"{index.url}/query",
            json={"vector": [1, 1], "topK": 3, "filter": text},
            headers=index.headers,
            timeout=30,
        )
        assert answer.status_code in (200, 400, 422)
        assert time.process_time() - began < SECONDS


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_hostile_scripts_for_long(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kv.scripting.hostile", str(seed + 100), "200"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.splitlines()[1].split()[0]) < SECONDS
