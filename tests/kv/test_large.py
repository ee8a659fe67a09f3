"""Large replies: the same answers in pieces, in little memory, and rejected above a limit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv import errors, routes
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.reply import Map, Status, to_json
from pytest_fakecloud.kv.values import json as json_values
from tests.kv.resp.test_port import Client, Error

STRINGS = st.binary(max_size=20) | st.text("aé𝒳\0", max_size=12).map(str.encode)
REPLIES = st.recursive(
    st.integers(-9, 9) | STRINGS | st.none() | st.sampled_from([Status(b"OK"), CommandError(b"E x")]),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=2).map(lambda x: Map(x * 2)),
    max_leaves=8,
)  # fmt: skip


@given(REPLIES, st.booleans())
@example(b"abcde\xc3", False)
def test_pieces_are_the_json_of_the_whole(reply: Any, base64: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "_PIECE", 3)
        body = b"".join(routes.json_of(reply, base64))
        several = b"".join(routes.json_array(routes.json_of(reply, base64) for _ in range(2)))
    kind = "error" if isinstance(reply, CommandError) else "result"
    expected = {kind: to_json(reply, base64)}
    assert orjson.loads(body) == expected
    assert orjson.loads(several) == [expected, expected]


@pytest.mark.parametrize("base64", [False, True])
def test_no_piece_is_large(base64: bool) -> None:
    value = b"\0" * 8_000_000
    tracemalloc.start()
    try:
        size = sum(map(len, routes.json_of(value, base64)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > len(value)
    assert peak < len(value) / 2


REQUESTS = [
    ("", ["GET", "k"], {}),
    ("", ["GET", "k"], {"Upstash-Encoding": "base64"}),
    ("", ["GET", "k"], {"Upstash-Response-Format": "resp2"}),
    ("", ["LRANGE", "list", 0, -1], {}),
    ("/pipeline", [["GET", "k"], ["NO"], ["GET", "list"]], {}),
    ("/pipeline", [["GET", "k"], ["NO"]], {"Upstash-Response-Format": "resp2"}),
    ("/multi-exec", [["GET", "k"], ["GET", "list"]], {}),
]


def test_an_answer_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with KVServer(Context.alone()) as server, httpx.Client(trust_env=False) as http:
        server.execute("SET", "k", "é" * 500)
        server.execute("RPUSH", "list", "a", "b" * 500)

        def ask(path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
            return http.post(server.url + path, json=body, headers={**server.headers, **headers})

        whole = [ask(*request) for request in REQUESTS]
        monkeypatch.setattr(routes, "STREAMED", 100)
        for request, before in zip(REQUESTS, whole, strict=True):
            answer = ask(*request)
            assert answer.headers["Transfer-Encoding"] == "chunked", request
            assert (answer.status_code, answer.content) == (before.status_code, before.content)
            assert answer.headers["Content-Type"] == before.headers["Content-Type"]
        assert http.head(f"{server.url}/get/k", headers=server.headers).content == b""


@pytest.mark.parametrize(
    "line",
    [
        "MGET k k", "LRANGE list 0 -1", "HGETALL hash", "SMEMBERS set", "SUNION set set",
        "ZRANGE zset 0 -1", "XRANGE s - +", "JSON.MGET doc doc $", "JSON.MGET doc doc $.a",
        "EVAL return{redis.call('GET','k'),redis.call('GET','k')} 0",
    ],
)  # fmt: skip
def test_replies_are_limited_like_requests(line: str) -> None:
    long, other = "v" * 600, "w" * 600
    with KVServer(Context.alone(), max_request_size=1000) as server:
        for command in (
            ["SET", "k", long], ["RPUSH", "list", long, other], ["SADD", "set", long, other],
            ["HSET", "hash", "a", long, "b", other], ["ZADD", "zset", "1", long, "2", other],
            ["XADD", "s", "*", "a", long, "b", other], ["JSON.SET", "doc", "$", f'{{"a":"{long}"}}'],
        ):  # fmt: skip
            server.execute(*command)
        beginning = "ERR max request size exceeded. Limit: 1000 bytes, Actual: "
        answer = httpx.post(server.url, json=line.split(), headers=server.headers)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(beginning)
        client = Client(server)
        assert client(*line.split()).text.startswith(beginning.encode())
        client.socket.close()


def test_replies_of_a_pipeline_are_limited_together() -> None:
    with (
        KVServer(Context.alone(), max_request_size=1000) as server,
        httpx.Client(trust_env=False) as http,
    ):
        server.execute("SET", "k", "v" * 600)
        text = errors.max_request_size(1000, 1200).decode()
        for path in ("/pipeline", "/multi-exec"):
            body = [["GET", "k"], ["GET", "k"]]
            answer = http.post(server.url + path, json=body, headers=server.headers)
            assert (answer.status_code, answer.json()) == (400, {"error": text})
            assert server.journal.calls()[-1].reached, "the commands have run"
        server.execute("APPEND", "k", "v" * 400)
        assert http.get(f"{server.url}/get/k", headers=server.headers).status_code == 200


def test_keys_and_scan_have_the_limits_of_the_service() -> None:
    keys = [word for number in range(3000) for word in (f"k{number}", "v")]
    with KVServer(Context.alone(), max_matching_keys=2000) as server:
        server.execute("MSET", *keys)

        def ask(*line: object) -> object:
            answer: dict[str, object] = httpx.post(
                server.url, json=line, headers=server.headers
            ).json()
            return answer.get("result", answer.get("error"))

        client = Client(server)
        assert ask("KEYS", "*") == "ERR too many keys to fetch, please use SCAN"
        assert client("KEYS", "*") == Error(b"ERR too many keys to fetch, please use SCAN")
        assert len(server.execute("KEYS", "*")) == 3000
        assert len(client("KEYS", "k1*")) == 1111
        for options in ((), ("MATCH", "*"), ("TYPE", "string")):
            assert len(client("SCAN", "0", "COUNT", "100000", *options)[1]) <= 1000
        client.socket.close()


def test_a_stock_server_has_none_of_these_limits() -> None:
    with KVServer(Context.alone(), dialect="redis") as server:
        server.execute("MSET", *(word for n in range(12_000) for word in (f"k{n}", "v")))
        client = Client(server)
        assert len(client("KEYS", "*")) == 12_000
        assert len(client("SCAN", "0", "COUNT", "100000")[1]) == 12_000
        assert client("SET", "k", "v" * 11_000_000).text == b"OK"
        assert len(client("GET", "k")) == 11_000_000
        client.socket.close()


@pytest.mark.parametrize("part", ["INDENT", "NEWLINE", "SPACE"])
def test_the_layout_of_a_document_is_bounded_before_it_is_written(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_values, "LARGEST", 10_000)
    with KVServer(Context.alone()) as server:
        client = Client(server)
        nested = "[" * 20 + '{"a":1,"b":{"c":2}}' + "]" * 20
        client("JSON.SET", "doc", "$", nested)
        assert len(client("JSON.GET", "doc", part, "x" * 10)) > len(nested)
        refused = client("JSON.GET", "doc", part, "x" * 9_000)
        assert refused == Error(b"ERR max request size exceeded")
        client.socket.close()


def test_the_port_sends_large_strings_inside_lists() -> None:
    with KVServer(Context.alone()) as server:
        server.execute("SET", "k", "v" * 2_000_000)
        client = Client(server)
        assert client("MGET", "k", "none", "k") == [b"v" * 2_000_000, None, b"v" * 2_000_000]
        client.socket.close()
        [call] = server.journal.calls(command="MGET")
        assert call.cut == {"response_body": 4_000_033}


def test_no_request_copies_a_large_value_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2_000_000
    monkeypatch.setattr(routes, "STREAMED", 2 * size)
    with (
        KVServer(Context.alone(), max_request_size=2 * size) as server,
        httpx.Client(headers=server.headers, timeout=60, trust_env=False) as http,
    ):
        server.execute("SETRANGE", "k", size - 1, "x")
        for path, body in (("", ["MGET"] + ["k"] * 30), ("/pipeline", [["GET", "k"]] * 30)):
            tracemalloc.start()
            try:
                answer = http.post(server.url + path, json=body)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert (answer.status_code, list(answer.json())) == (400, ["error"])
            assert peak < size * 8, path
