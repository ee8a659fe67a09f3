"""``KVServer``, as tests use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.acl import make_token
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer

CONTENT: dict[str, Any] = {
    "text": "v",
    "number": "7",
    "hash": {"a": "1"},
    "list": ["1", "2"],
    "set": {"x", "y"},
    "zset": [("b", 1.0), ("a", 2.5)],
    "stream": [("1-1", {"k": "v"})],
    "array": {0: "a", 2**64 - 2: "b"},
}


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(now="2026-01-01T00:00:00Z")) as server:
        yield server


def ask(server: KVServer, *line: object) -> Any:
    return httpx.post(server.url, json=line, headers=server.headers).json()


MISSING = {
    "value": None, "string": None, "integer": None, "hash": {}, "elements": [], "members": set(),
    "scores": {}, "entries": [], "array": {},
}  # fmt: skip


class TestContents:
    def test_loaded_data_are_the_same(self, server: KVServer) -> None:
        server.load(CONTENT)
        assert server.contents() == CONTENT
        assert server.keys() == list(CONTENT)
        assert server.keys("*set") == ["set", "zset"]
        assert server.value("hash") == {"a": "1"}
        assert server.value("missing") is None

    def test_a_document_is_plain_too(self, server: KVServer) -> None:
        server.execute("JSON.SET", "doc", "$", '{"a": [1, 2.5, true, null], "b": {"c": "x"}}')
        document = {"a": [1, 2.5, True, None], "b": {"c": "x"}}
        assert server.value("doc") == document
        server.value("doc")["a"].append("mine")
        assert server.contents() == {"doc": document}

    def test_each_type_has_a_reader(self, server: KVServer) -> None:
        server.load({**CONTENT, "n": "-7", "board": [("bob", 2.5), ("ann", 1.5)]})
        assert server.string("n") == "-7"
        assert server.integer("n") == -7
        assert server.hash("hash") == CONTENT["hash"]
        assert server.elements("list") == CONTENT["list"]
        assert server.members("set") == CONTENT["set"]
        assert list(server.scores("board").items()) == [("ann", 1.5), ("bob", 2.5)]
        assert server.entries("stream") == CONTENT["stream"]
        assert server.array("array") == CONTENT["array"]

    @pytest.mark.parametrize(("reader", "missing"), MISSING.items())
    def test_readers_return_for_a_missing_key_what_a_server_answers(
        self, server: KVServer, reader: str, missing: object
    ) -> None:
        read = getattr(server, reader)
        server.load({"k": "v"})
        assert read("none") == missing
        server.execute("PEXPIRE", "k", 1)
        server.clock.advance(1)
        assert read("k") == missing

    @pytest.mark.parametrize("reader", [*MISSING][1:])
    def test_readers_name_the_type_of_a_key_of_another_type(
        self, server: KVServer, reader: str
    ) -> None:
        server.load({**CONTENT, "string": "v"})
        server.execute("JSON.SET", "document", "$", "{}")
        types = {"integer": "string", "elements": "list", "members": "set", "scores": "zset"}
        own = {"entries": "stream"}.get(reader) or types.get(reader, reader)
        for key in ("string", "hash", "list", "set", "zset", "stream", "array", "document"):
            if key != own:
                held = "ReJSON-RL" if key == "document" else key
                with pytest.raises(
                    ContractError, match=f"'{key}' is of type {held}, not {own}: read"
                ):
                    getattr(server, reader)(key)

    def test_a_string_that_is_no_integer_is_an_error(self, server: KVServer) -> None:
        server.load({"words": "some words"})
        with pytest.raises(ContractError, match="'some words', which is not an integer"):
            server.integer("words")

    def test_a_ttl_is_in_seconds(self, server: KVServer) -> None:
        server.load([["SET", "timed", "v", "PX", 1500], ["SET", "forever", "v"]])
        assert (server.ttl("timed"), server.ttl(b"forever")) == (1.5, None)
        server.clock.advance(1)
        assert server.ttl("timed") == 0.5
        with pytest.raises(
            ContractError,
            match=r"'forevr' does not exist; did you mean 'forever'\? Existing keys: timed, forever$",
        ):
            server.ttl("forevr")
        server.clock.advance(1)
        with pytest.raises(
            ContractError, match=r"'timed' does not exist\. Existing keys: forever$"
        ):
            server.ttl("timed")
        server.execute("FLUSHALL")
        with pytest.raises(ContractError, match=r"b'\\xff' does not exist. Existing keys: none$"):
            server.ttl(b"\xff")

    def test_nothing_is_made_of_nothing(self, server: KVServer) -> None:
        server.execute("SET", "list", "gone")
        server.load({"list": [], "set": set(), "hash": {}, "flag": True, "no": False})
        assert server.contents() == {"flag": "true", "no": "false"}

    def test_values_can_be_loaded_again(self, server: KVServer) -> None:
        server.load(CONTENT)
        with KVServer(Context.alone()) as other:
            other.load(server.contents())
            assert other.contents() == CONTENT

    def test_loading_replaces_and_takes_numbers_and_bytes(self, server: KVServer) -> None:
        server.load({"k": ["old"], "n": 1})
        server.load({"k": {"f": 1.5}, b"\xff": b"\xfe", "n": 2})
        assert server.contents() == {"k": {"f": "1.5"}, b"\xff": b"\xfe", "n": "2"}

    def test_commands_can_be_loaded(self, server: KVServer) -> None:
        server.load([["ZADD", "board", 1, "ann"], ("SET", "k", "v", "EX", 10)])
        assert server.value("board") == [("ann", 1.0)]
        assert (server.ttl("k"), server.ttl("board")) == (10.0, None)

    def test_a_command_that_fails_while_loading_is_named(self, server: KVServer) -> None:
        with pytest.raises(CommandError, match="not a valid float") as caught:
            server.load({"fine": 1, "board": [("ann", "high")]})
        assert caught.value.__notes__ == ["while loading: 'ZADD' 'board' 'high' 'ann'"]

    def test_a_command_in_one_string_is_explained(self, server: KVServer) -> None:
        with pytest.raises(CommandError, match="not available") as caught:
            server.execute("SET k v")
        assert caught.value.__notes__ == ["pass each word as an argument: execute('SET', 'k', 'v')"]

    def test_a_string_with_surrogates_is_explained(self, server: KVServer) -> None:
        for call in (server.execute, server.value, server.keys, server.ttl):
            with pytest.raises(ContractError, match="pass bytes"):
                call("\ud800")

    def test_an_open_transaction_of_the_tester_is_its_own(self, server: KVServer) -> None:
        server.execute("MULTI")
        assert server.execute("SET", "queued", 1) == "QUEUED"
        server.load({"k": "v"})
        assert (server.contents(), server.ttl("k")) == ({"k": "v"}, None)
        assert server.execute("EXEC") == ["OK"]

    def test_the_tester_is_let_in_after_reset_of_the_client(self, server: KVServer) -> None:
        server.execute("MULTI")
        assert server.execute("RESET") == "RESET"
        assert server.execute("SET", "k", "v") == "OK"

    def test_execute(self, server: KVServer) -> None:
        assert server.execute("SET", "k", 1) == "OK"
        assert server.execute("INCRBY", "k", 2) == 3
        assert server.execute("HSET", "h", "f", b"\xff") == 1
        assert server.execute("HGETALL", "h") == ["f", b"\xff"]
        with pytest.raises(CommandError, match="WRONGTYPE"):
            server.execute("LPUSH", "k", "x")
        with pytest.raises(ContractError):
            server.execute()
        with pytest.raises(ContractError, match="is not a valid argument"):
            server.execute("SET", "k", {"a": 1})  # type: ignore[arg-type]
        assert server.journal.calls() == []

    def test_values_that_cannot_be_loaded(self, server: KVServer) -> None:
        text = "the value of 'cart:7': None is not a valid arg.*pass a string, bytes or a number"
        with pytest.raises(ContractError, match=text):
            server.load({"k": "v", "cart:7": None})  # type: ignore[dict-item]
        with pytest.raises(ContractError, match="the value of 'h': None is not"):
            server.load({"h": {"f": None}})  # type: ignore[dict-item]
        assert server.keys() == []

    def test_a_redis_client_at_the_rest_port_gets_a_hint(self, server: KVServer) -> None:
        with (
            redis.Redis.from_url(server.url.replace("http", "redis"), retry=None) as client,
            pytest.raises(redis.exceptions.InvalidResponse),
        ):
            client.ping()
        assert "a Redis client connects to database_url" in server.journal.events("refused")[0].text

    def test_expiry_follows_the_clock(self, server: KVServer) -> None:
        server.execute("SET", "k", "v", "EX", 60)
        server.clock.advance(60)
        assert server.contents() == {}


class TestSettings:
    def test_the_password_is_created_once(self) -> None:
        with KVServer(Context.alone()) as server, ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(lambda: server._password) for _ in range(8)]
            assert {future.result() for future in asked} == {urlsplit(server.database_url).password}

    @pytest.mark.parametrize(
        ("version", "announced"),
        [
            (None, "7.0.15"), ("7", "7.0.15"), ("7.0", "7.0.15"), ("7.2", "7.2.0"),
            ("8.0.3", "8.0.3"), ("255.255.255", "255.255.255"),
        ],
    )  # fmt: skip
    def test_a_stock_server_of_a_version(self, version: str | None, announced: str) -> None:
        with KVServer(Context.alone(), dialect="redis", version=version) as server:
            assert f"redis_version:{announced}\r\n" in str(server.execute("INFO", "server"))
            assert server.execute("EVAL", "return redis.REDIS_VERSION", 0) == announced
            server.execute("ZADD", "z", 0.1, "a")
            if announced == "7.0.15":
                assert server.execute("ZSCORE", "z", "a") == "0.10000000000000001"
                with pytest.raises(CommandError, match="wrong number of arguments"):
                    server.execute("ZRANK", "z", "a", "WITHSCORE")
            else:
                assert server.execute("ZRANK", "z", "a", "WITHSCORE") == [0, "0.1"]
            supported = server.execute("COMMAND", "INFO", "HEXPIRE") != [None]
            assert supported == announced.startswith(("8.", "255."))

    def test_dialects(self) -> None:
        with KVServer(Context.alone(), dialect="redis") as server:
            assert server.execute("COMMAND", "COUNT") == len(server.execute("COMMAND"))
            assert server.execute("CONFIG", "GET", "databases") == ["databases", "16"]


class TestIdentity:
    def test_environment_of_the_clients(self, server: KVServer) -> None:
        assert server.env["UPSTASH_REDIS_REST_URL"] == server.env["KV_REST_API_URL"] == server.url
        assert server.env["UPSTASH_REDIS_REST_TOKEN"] == server.token
        assert server.env["KV_REST_API_READ_ONLY_TOKEN"] == server.read_only_token

    def test_environment_of_redis_clients(self, server: KVServer) -> None:
        assert server.env["KV_URL"] == server.env["REDIS_URL"] == server.database_url
        with redis.Redis.from_url(server.env["REDIS_URL"]) as client:
            assert client.ping()

    def test_a_closed_server_names_its_database_port_and_a_real_one_has_none(self) -> None:
        with KVServer(Context.alone()) as memory:
            with KVServer(Context.alone(), engine=memory.database_url) as real:
                assert "UPSTASH_REDIS_REST_URL" in real.env
                assert "REDIS_URL" not in real.env
                with pytest.raises(ContractError, match="connect to that server"):
                    _ = real.database_url
            url = memory.database_url
        assert memory.env["REDIS_URL"] == url

    def test_the_server_is_up_since_the_fake_was_created(self) -> None:
        with Cloud(clock="frozen", now="2026-01-01T00:00:00Z") as cloud:
            server = cloud.kv_server()
            cloud.clock.advance(100)
            assert "uptime_in_seconds:100\r\n" in server.execute("INFO", "server")

    def test_the_database_port_has_its_setting(self) -> None:
        with KVServer(Context.alone()) as first:
            port = urlsplit(first.database_url).port
        assert port is not None
        with KVServer(Context.alone(), database_port=port, database_password="p@ss word") as server:
            assert server.database_url == f"redis://default:p%40ss%20word@127.0.0.1:{port}"
            with redis.Redis.from_url(server.database_url) as client:
                assert client.set("k", "v")
            with pytest.raises(ContractError, match=f"{port}"):
                KVServer(Context.alone(), database_port=port)

    @pytest.mark.parametrize("host", [None, "127.0.0.1", "::1", "localhost"])
    def test_a_stock_server_without_a_password(self, host: str | None) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server(dialect="redis", database_password="", host=host)
            parts = urlsplit(server.database_url)
            assert (parts.username, parts.password) == (None, None)
            assert parts.hostname is not None
            with redis.Redis(parts.hostname, parts.port or 0) as client:
                assert client.set("k", "v")
                assert client.config_get("requirepass") == {"requirepass": ""}
                client.config_set("requirepass", "secret")
                server.reset()
                assert client.execute_command("ACL", "WHOAMI") == b"default"
            # By default, the client tries again after such an error, for seconds.
            once = Retry(NoBackoff(), 0)
            with redis.Redis.from_url(server.database_url, retry=once) as client:
                assert client.get("k") is None
                with pytest.raises(redis.AuthenticationError, match="without any password"):
                    client.execute_command("AUTH", "x")
            # The REST interface, which a stock server does not have, still requires the token.
            for token in (None, "x", make_token(b"x").decode()):
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                assert httpx.get(f"{server.url}/get/k", headers=headers).status_code == 401
            assert httpx.get(f"{server.url}/get/k", headers=server.headers).status_code == 200
            server.rotate_password()
            with redis.Redis.from_url(server.database_url) as client:
                assert client.ping()
            with (
                redis.Redis(parts.hostname, parts.port or 0, retry=once) as client,
                pytest.raises(redis.AuthenticationError, match="must be called with"),
            ):
                client.ping()

    def test_the_database_port_is_at_the_host_of_the_fake(self) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server(host="::1")
            assert "@[::1]:" in server.database_url
            with redis.Redis.from_url(server.database_url) as client:
                assert client.ping()

    def test_official_clients(self, server: KVServer) -> None:
        assert server.client().set("k", "v") is True
        assert server.client(token=server.read_only_token).get("k") == "v"

        async def read() -> str | None:
            async with server.aio.client(token=server.read_only_token) as client:
                return await client.get("k")

        assert asyncio.run(read()) == "v"

    def test_rotating_replaces_both_tokens(self, server: KVServer) -> None:
        old = (server.token, server.read_only_token)
        assert server.rotate_token() == server.token
        assert not {*old} & {server.token, server.read_only_token}


class TestBaseline:
    def test_a_snapshot_has_the_cursor_of_an_array(self, server: KVServer) -> None:
        server.execute("ARRING", "ring", 2, "a", "b", "c")
        saved = server.snapshot()
        server.execute("ARRING", "ring", 5, "d", "e")
        for _ in range(2):
            server.restore(saved)
            assert server.array("ring") == {0: "c", 1: "b"}
            assert server.execute("ARRING", "ring", 2, "d") == 1

    def test_reset(self, server: KVServer) -> None:
        server.load({"base": "1"})
        server.set_baseline()
        server.load({"more": "2"})
        server.between(1, run=lambda: None)
        server.reset()
        assert server.contents() == {"base": "1"}
        assert not server._app.interruptions

    @pytest.mark.parametrize(
        "line", [["MULTI"], ["SUBSCRIBE", "news"], ["RESET"], ["CLIENT", "TRACKING", "ON"]]
    )
    def test_reset_ends_open_transactions(self, server: KVServer, line: list[str]) -> None:
        server.execute(*line)
        server.reset()
        assert server.execute("SET", "k", "v") == "OK"
        assert server.value("k") == "v"
        assert server.execute("PUBLISH", "news", "text") == 0

    def test_reset_clears_logs_and_statistics(self, server: KVServer) -> None:
        server.execute("ACL", "SETUSER", "u", "on", ">pw")
        token = server.execute("ACL", "RESTTOKEN", "u", "pw")
        httpx.get(server.url + "/get/k", headers={"Authorization": f"Bearer {token}"})
        server.execute("CONFIG", "SET", "slowlog-log-slower-than", 0)
        server.execute("PING")
        server.execute("CLIENT", "PAUSE", 60_000)
        server.execute("SET", "k", "v", "PX", 1)
        server.clock.advance(1)
        assert server.keys() == []
        assert len(server.execute("ACL", "LOG")) == 1
        assert server.execute("SLOWLOG", "LEN") > 0
        server.reset()
        assert server.execute("ACL", "LOG") == []
        assert server.execute("SLOWLOG", "LEN") == 0
        stats = server.execute("INFO", "stats")
        assert "total_error_replies:0" in stats
        assert "expired_keys:0" in stats
        assert "cmdstat_ping" not in server.execute("INFO", "commandstats")
        assert server._engine.pauses.delays_end_us == 0

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
        assert server.contents() == CONTENT

    def test_a_snapshot_of_the_other_dialect_is_refused(self, server: KVServer) -> None:
        server.load({"k": "v"})
        with KVServer(Context.alone(), dialect="redis") as other:
            for from_, to in ((server, other), (other, server)):
                with pytest.raises(ContractError, match="same dialect="):
                    to.restore(from_.snapshot())
            assert other.contents() == {}
        assert server.contents() == {"k": "v"}

    def test_a_server_that_is_down_opens_a_port_that_refuses(self, server: KVServer) -> None:
        server.faults.down()
        client = redis.Redis.from_url(server.database_url, retry=None)
        with client, pytest.raises(redis.RedisError):
            client.ping()
        server.faults.up()
        with client:
            assert client.ping() is True
        with server.faults.down(), client, pytest.raises(redis.RedisError):
            client.ping()
        with client:
            assert client.ping() is True


def test_completion_lists_only_what_a_test_uses(server: KVServer) -> None:
    assert {name for name in dir(server) if not name.startswith("_")} == {
        *("service", "fixture", "name", "url", "token", "headers", "env", "closed"),
        *("read_only_token", "database_url", "sentinel_address"),
        *("rotate_token", "rotate_password"),
        *("client", "aio", "execute", "between", "intercept"),
        *("load", "dump_rdb", "keys", "contents", "value", "ttl", "search_index", "searches"),
        *("string", "integer", "hash", "elements", "members", "scores", "entries", "array"),
        *("clock", "faults", "journal", "on_close", "close"),
        *("reset", "set_baseline", "snapshot", "restore"),
        *("assert_called", "assert_not_called", "assert_searched", "assert_not_searched"),
    }  # fmt: skip
    with server.between(run=print) as race:
        httpx.post(server.url + "/pipeline", json=[["PING"], ["PING"]], headers=server.headers)
    assert {name for name in dir(race) if not name.startswith("_")} == {"hits", "place", "remove"}


def test_reads_of_the_test_count_as_no_hits(server: KVServer) -> None:
    server.client().set("k", "v")
    server.client().get("k")
    server.value("k"), server.contents(), server.value("missing"), server.ttl("k")
    stats = server.execute("INFO", "stats")
    assert "keyspace_hits:1\r\nkeyspace_misses:0\r\n" in stats
