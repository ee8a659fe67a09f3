"""``KVServer``, as a tester uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pytest_fakecloud.kernel.errors import ContractError
from pytest_fakecloud.kernel.handle import Context
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.handle import KVServer

CONTENT: dict[str, Any] = {
    "text": "v",
    "number": "7",
    "hash": {"a": "1"},
    "list": ["1", "2"],
    "set": {"x", "y"},
    "zset": [("b", 1.0), ("a", 2.5)],
    "stream": [("1-1", {"k": "v"})],
}


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(now="2026-01-01T00:00:00Z")) as server:
        yield server


def ask(server: KVServer, *line: object) -> Any:
    return httpx.post(server.url, json=line, headers=server.headers).json()


class TestContents:
    def test_what_is_loaded_is_what_is_there(self, server: KVServer) -> None:
        server.load(CONTENT)
        assert server.values() == CONTENT
        assert server.keys() == list(CONTENT)
        assert server.keys("*set") == ["set", "zset"]
        assert server.value("hash") == {"a": "1"}
        assert server.value("missing") is None

    def test_values_can_be_loaded_again(self, server: KVServer) -> None:
        server.load(CONTENT)
        with KVServer(Context.alone()) as other:
            other.load(server.values())
            assert other.values() == CONTENT

    def test_loading_replaces_and_takes_numbers_and_bytes(self, server: KVServer) -> None:
        server.load({"k": ["old"], "n": 1})
        server.load({"k": {"f": 1.5}, b"\xff": b"\xfe", "n": 2})
        assert server.values() == {"k": {"f": "1.5"}, b"\xff": b"\xfe", "n": "2"}

    def test_commands_can_be_loaded(self, server: KVServer) -> None:
        server.load([["ZADD", "board", 1, "ann"], ("SET", "k", "v", "EX", 10)])
        assert server.value("board") == [("ann", 1.0)]
        assert (server.ttl("k"), server.ttl("board"), server.ttl("none")) == (10, -1, -2)

    @pytest.mark.parametrize(
        "data", [{"k": None}, {"k": [["nested"]]}, {"k": [("a", 1), "b"]}, ["SET k v"], [[]]]
    )
    def test_what_has_no_place_is_a_contract_error(self, server: KVServer, data: Any) -> None:
        with pytest.raises(ContractError):
            server.load(data)

    def test_execute(self, server: KVServer) -> None:
        assert server.execute("SET", "k", 1) == "OK"
        assert server.execute("INCRBY", "k", 2) == 3
        assert server.execute("HSET", "h", "f", b"\xff") == 1
        assert server.execute("HGETALL", "h") == ["f", b"\xff"]
        with pytest.raises(CommandError, match="WRONGTYPE"):
            server.execute("LPUSH", "k", "x")
        with pytest.raises(ContractError):
            server.execute()
        with pytest.raises(ContractError, match="is no argument"):
            server.execute("SET", "k", {"a": 1})  # type: ignore[arg-type]
        assert server.journal.calls() == []

    def test_expiry_follows_the_clock(self, server: KVServer) -> None:
        server.execute("SET", "k", "v", "EX", 60)
        server.clock.advance(60)
        assert server.values() == {}


class TestSettings:
    @pytest.mark.parametrize(
        "settings",
        [{"dialect": "mongo"}, {"daily_limit": -1}, {"max_request_size": "10MB"}, {"nope": 1}],
    )
    def test_unknown_ones_are_refused(self, settings: dict[str, Any]) -> None:
        with pytest.raises((ContractError, TypeError)):
            KVServer(Context.alone(), **settings)

    def test_a_share_is_one_of_a_real_server(self) -> None:
        with pytest.raises(ContractError, match="isolation='database' is a share of a real server"):
            KVServer(Context.alone(), isolation="database")

    def test_dialects(self) -> None:
        with KVServer(Context.alone(), dialect="redis") as server:
            assert server.execute("COMMAND", "COUNT") == len(server.execute("COMMAND"))
            assert server.execute("CONFIG", "GET", "databases") == ["databases", "16"]


class TestIdentity:
    def test_environment_of_the_clients(self, server: KVServer) -> None:
        assert server.env["UPSTASH_REDIS_REST_URL"] == server.env["KV_REST_API_URL"] == server.url
        assert server.env["UPSTASH_REDIS_REST_TOKEN"] == server.token
        assert server.env["KV_REST_API_READ_ONLY_TOKEN"] == server.read_only_token

    def test_official_clients(self, server: KVServer) -> None:
        assert server.client().set("k", "v") is True
        assert server.client(token=server.read_only_token).get("k") == "v"
        assert server.async_client() is not None

    def test_rotating_replaces_both_tokens(self, server: KVServer) -> None:
        old = (server.token, server.read_only_token)
        assert server.rotate_token() == server.token
        assert not {*old} & {server.token, server.read_only_token}


class TestBaseline:
    def test_reset(self, server: KVServer) -> None:
        server.load({"base": "1"})
        server.set_baseline()
        server.load({"more": "2"})
        server.between(1, run=lambda: None)
        server.reset()
        assert server.values() == {"base": "1"}
        assert not server.app.betweens

    def test_a_full_day_again_after_reset(self) -> None:
        with KVServer(Context.alone(), daily_limit=1) as server:
            assert ask(server, "PING") == {"result": "PONG"}
            assert "error" in ask(server, "PING")
            server.reset()
            assert ask(server, "PING") == {"result": "PONG"}

    def test_snapshots(self, server: KVServer) -> None:
        server.load(CONTENT)
        saved = server.snapshot()
        server.execute("FLUSHALL")
        server.restore(saved)
        assert server.values() == CONTENT


class TestBetween:
    LINES = (["GET", "n"], ["SET", "m", 1], ["GET", "n"], ["GET", "n"])

    def send(self, server: KVServer) -> list[Any]:
        answer = httpx.post(server.url + "/pipeline", json=self.LINES, headers=server.headers)
        return [item["result"] for item in answer.json()]

    def test_after_a_number_of_commands(self, server: KVServer) -> None:
        with server.between(2, run=["INCR", "n"]) as between:
            assert self.send(server) == [None, "OK", "1", "1"]
        assert (between.hits, between.place) == (1, 2)
        assert self.send(server) == ["1", "OK", "1", "1"]

    def test_between_two_names(self, server: KVServer) -> None:
        with server.between(("get", "get"), run=lambda: server.execute("INCR", "n")) as between:
            assert self.send(server) == [None, "OK", None, "1"]
        assert between.hits == 1

    def test_every_place_in_turn(self, server: KVServer) -> None:
        before = server.snapshot()
        seen = []
        for place in server.between(run=["INCR", "n"]):
            server.restore(before)
            seen.append((place, self.send(server)))
        assert seen == [
            (1, [None, "OK", "1", "1"]),
            (2, [None, "OK", "1", "1"]),
            (3, [None, "OK", None, "1"]),
            (4, [None, "OK", None, None]),
        ]

    def test_places_count_on_over_the_pipelines_of_one_turn(self, server: KVServer) -> None:
        hits = []
        between = server.between(run=lambda: hits.append(between.place))
        for _ in between:
            self.send(server)
            self.send(server)
        assert len(hits) == 6

    def test_one_per_pipeline_without_a_loop(self, server: KVServer) -> None:
        with server.between(run=["INCR", "n"]):
            assert self.send(server) == [None, "OK", "1", "1"]
            assert self.send(server) == ["1", "OK", "2", "2"]

    def test_misuse(self, server: KVServer) -> None:
        with pytest.raises(ContractError, match="first place"):
            server.between(0, run=lambda: None)
        with pytest.raises(ContractError, match="every place"):
            list(server.between(1, run=lambda: None))
