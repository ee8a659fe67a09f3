"""Large replies: the same answers in pieces, in little memory, and rejected above a limit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_fakecloud.handle import Context
from pytest_fakecloud.kv import routes
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.handle import KVServer
from pytest_fakecloud.kv.reply import Map, Status, to_json
from pytest_fakecloud.kv.resp import port
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
        told = b"".join(routes.json_of(reply, base64))
        several = b"".join(routes.json_array(routes.json_of(reply, base64) for _ in range(2)))
    kind = "error" if isinstance(reply, CommandError) else "result"
    expected = {kind: to_json(reply, base64)}
    assert orjson.loads(told) == expected
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

        whole = [ask(*each) for each in REQUESTS]
        monkeypatch.setattr(routes, "STREAMED", 100)
        for request, before in zip(REQUESTS, whole, strict=True):
            answer = ask(*request)
            assert answer.headers["Transfer-Encoding"] == "chunked", request
            assert (answer.status_code, answer.content) == (before.status_code, before.content)
            assert answer.headers["Content-Type"] == before.headers["Content-Type"]
        assert http.head(f"{server.url}/get/k", headers=server.headers).content == b""


def test_a_reply_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "STREAMED", 1000)
    for module in (routes, port):
        monkeypatch.setattr(module, "LARGEST", 1000)
    text = "ERR max request size exceeded"
    with KVServer(Context.alone()) as server, httpx.Client(trust_env=False) as http:
        server.execute("SET", "k", "v" * 600)
        for path, body in (
            ("", ["MGET", "k", "k"]),
            ("/pipeline", [["GET", "k"], ["GET", "k"]]),
            ("/multi-exec", [["GET", "k"], ["GET", "k"]]),
        ):
            answer = http.post(server.url + path, json=body, headers=server.headers)
            assert (answer.status_code, answer.json()) == (400, {"error": text})
        client = Client(server)
        assert client("MGET", "k", "k") == Error(text.encode())
        server.execute("APPEND", "k", "v" * 400)
        assert client("GET", "k") == b"v" * 1000
        assert http.get(f"{server.url}/get/k", headers=server.headers).status_code == 200
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
    for name in ("LARGEST", "STREAMED"):
        monkeypatch.setattr(routes, name, 2 * size)
    with (
        KVServer(Context.alone(), max_request_size=None) as server,
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
