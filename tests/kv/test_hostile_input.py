"""Hostile input: every request is answered in JSON, and neither bugs nor lost data result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from pytest_fakecloud.handle import Context
from pytest_fakecloud.kv.handle import KVServer

DEEP = 100_000
I64_MAX = 2**63 - 1
EXTREMES = [2**31, 2**62, I64_MAX, -I64_MAX - 1, -1, 2**63, 10**30]
CONTENT = {
    "text": "a" * 5000,
    "list": [str(number) for number in range(10)],
    "zset": [("a", 1.0), ("b", 2.0)],
    "hash": {"a": "1"},
    "set": {"a", "b"},
    "stream": [("1-1", {"a": "b"})],
}


@pytest.fixture(scope="module")
def context() -> Context:
    return Context.alone(now="2026-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def server(context: Context) -> Iterator[KVServer]:
    with KVServer(context) as server:
        server.load(CONTENT)
        server.execute("JSON.SET", "doc", "$", '{"a": [1, 2, {"b": 1.5}]}')
        yield server


@pytest.fixture(scope="module")
def http(server: KVServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=server.headers, trust_env=False) as client:
        yield client


@pytest.fixture(autouse=True)
def _no_bug(context: Context) -> Iterator[None]:
    yield
    assert list(context.problems) == []


def ask(http: httpx.Client, body: bytes, path: str = "/") -> object:
    """Return the answer, once a client can parse it."""
    answer = http.post(path, content=body, timeout=30)
    assert answer.status_code in (200, 400)
    return answer.json()


def run(http: httpx.Client, *words: object) -> object:
    return ask(http, json.dumps(words).encode())


def assert_answered(answer: object) -> None:
    assert isinstance(answer, dict)
    assert len(answer) == 1
    assert set(answer) <= {"result", "error"}


BODIES = {
    "opened deep": b"[" * DEEP,
    "closed deep": b"[" * DEEP + b"]" * DEEP,
    "objects deep": b'{"a":' * DEEP,
    "mixed deep": b'[{"a":' * DEEP,
    "no UTF-8": b'["SET","k","\xff\xfe"]',
    "no UTF-8 at all": b"\xff" * 100,
    "UTF-16": '["PING"]'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf["PING"]',
    "11 MB": b'["SET","k","' + b"x" * 11_000_000 + b'"]',
    "11 MB in an array": b'[["SET","k","' + b"x" * 11_000_000 + b'"]]',
    "11 MB of nothing": b"x" * 11_000_000,
    "null": b"null",
    "null argument": b'["GET",null]',
    "object argument": b'["GET",{}]',
    "array argument": b'["GET",[]]',
    "three arrays": b'[[["GET","a"]]]',
    "a string": b'"GET"',
    "a number": b"5",
    "a boolean": b"[true]",
    "empty": b"",
    "cut off": b'["SET","k"',
    "too large a float": b'["SET","k",1e999]',
    "not a number": b'["SET","k",NaN]',
    "infinite": b'["SET","k",-Infinity]',
    "empty name": b'[""]',
    "empty names": b'[[""],["PING"]]',
    "half a surrogate": b'["ECHO","\\ud800"]',
    "many digits": b'["ECHO",' + b"9" * 100_000 + b"]",
    "many arguments": b'["DEL"' + b',"k"' * 100_000 + b"]",
    "many commands": b"[" + b'["PING"],' * 5_000 + b'["PING"]]',
}


@pytest.mark.parametrize("path", ["/", "/pipeline", "/multi-exec"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies(server: KVServer, http: httpx.Client, path: str, body: bytes) -> None:
    ask(http, body, path)
    assert server.value("list") == CONTENT["list"]


@pytest.mark.parametrize(
    "path",
    [
        "/%00", "/%", "/%zz", "/get/%ff", "//", "/get//", "/get/" + "a" * 50_000, "/" + "a/" * 5_000,
        "/get/k?x=%ff&_token", "/get?%", "/set/k/v?EX=&NX=", "/get/a%2Fb%2F..", "/pipeline/x",
    ],
)  # fmt: skip
def test_paths(http: httpx.Client, path: str) -> None:
    for method in ("GET", "POST", "PUT"):
        answer = http.request(method, path, timeout=30)
        assert answer.status_code in (200, 400)
        assert set(answer.json()) <= {"result", "error"}


PATTERNS = [
    "a*a*a*a*a*b", "*a" * 500 + "b", "a*" * 200 + "b", "[" * 1000, "[^" * 100, "\\" * 999,
    "?" * 5000, "[a-" * 1000, "*" * 10_000 + "b",
    "a" * 1_000_000, "*" + "[ab]" * 2000 + "c*", "?*" * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
@pytest.mark.slow
def test_patterns(server: KVServer, http: httpx.Client, pattern: str) -> None:
    server.load({"a" * 5000: "v"})
    for words in (
        ["KEYS", pattern],
        ["SCAN", "0", "MATCH", pattern, "COUNT", "100"],
        ["SSCAN", "set", "0", "MATCH", pattern],
        ["CONFIG", "GET", pattern],
        ["PUBSUB", "CHANNELS", pattern],
        ["COMMAND", "LIST", "FILTERBY", "PATTERN", pattern],
        ["ACL", "SETUSER", "u", "~" + pattern],
    ):
        assert_answered(run(http, *words))


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
XGROUP CREATE stream gN $ ENTRIESREAD N|BITOP NOT new none|OBJECT FREQ text
"""


@pytest.mark.parametrize("number", EXTREMES)
def test_extreme_numbers(server: KVServer, http: httpx.Client, number: int) -> None:
    for line in LINES.replace("\n", "|").split("|"):
        if line:
            words = re.sub(r"\bN\b|(?<=[eg])N\b", str(number), line).split()
            assert_answered(run(http, *words))
    assert server.value("text") == CONTENT["text"]


DOCUMENTS = [
    "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP, "9" * 100_000, "1e400", "-", "nul", "[1,]",
    '"\\ud800"', "1" + "0" * 5000, '"' + "x" * 1_000_000 + '"', "[" + "1," * 100_000 + "1]",
]  # fmt: skip


@pytest.mark.parametrize("text", DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_documents(http: httpx.Client, text: str) -> None:
    for words in (
        ["JSON.SET", "big", "$", text],
        ["JSON.MERGE", "big", "$", text],
        ["JSON.ARRAPPEND", "big", "$", text],
        ["JSON.NUMINCRBY", "big", "$[0]", text],
        ["JSON.GET", "big"],
        ["EVAL", "return cjson.decode(ARGV[1])", 0, text],
    ):
        assert_answered(run(http, *words))


JSON_PATHS = [
    "$" + ".a" * 20_000, "$" + "..*" * 30, "$.." * 1000, "$" + "[*]" * 1000, "$[" * 1000,
    "$[?(@.a=='x" * 500, "$[?(" + "(" * 1000 + "@.a" + ")" * 1000 + ")]", "$" + "[0,0]" * 60,
    '$[?(@=~"(a+)+$")]', "$['" + "x" * 100_000 + "']", "$[?@.a" + "&&@.a" * 1000 + "]", "$[::0]",
]  # fmt: skip


@pytest.mark.parametrize("path", JSON_PATHS, ids=range(len(JSON_PATHS)))
def test_json_paths(server: KVServer, http: httpx.Client, path: str) -> None:
    server.execute("JSON.SET", "deep", "$", "[" * 100 + "]" * 100)
    names = ("GET", "TYPE", "ARRLEN", "RESP", "CLEAR", "TOGGLE", "DEL")
    for name in names:
        assert_answered(run(http, f"JSON.{name}", "deep", path))
    run(http, "JSON.SET", "deep", path, "1")
