"""Large replies: sent as a whole, and rejected above a limit."""

from __future__ import annotations

import tracemalloc

import httpx
import pytest

from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.cloud.config import Transport
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.values import json as json_values
from tests.kv.resp.test_port import Client, Error


@pytest.mark.parametrize("transport", ["socket", "inprocess"])
def test_a_large_reply_is_sent_as_a_whole(transport: Transport) -> None:
    value = "v" * 17 * 2**20
    with Cloud(transport=transport) as cloud:
        server = cloud.kv_server(dialect="redis")
        server.execute("SET", "k", value)
        answer = httpx.get(f"{server.url}/get/k", headers=server.headers, timeout=60)
        [call] = server.journal.calls(command="GET")
    assert answer.content == b'{"result":"%b"}' % value.encode()
    assert call.outcome == "answered"


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


def test_no_request_copies_a_large_value_again_and_again() -> None:
    size = 2_000_000
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
