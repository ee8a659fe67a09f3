"""Matching the fields of recorded commands, however they were sent."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.command_fields import command_name
from pytest_fakecloud.kv.fake import KVServer
from tests.ids import steady


def by_path(server: KVServer) -> None:
    httpx.post(f"{server.url}/set/user:1/v", headers=server.headers)
    httpx.post(f"{server.url}/XGroup/create/s/g/$/MKSTREAM", headers=server.headers)


def by_body(server: KVServer) -> None:
    for line in (["set", "user:1", "v"], ["XGroup", "create", "s", "g", "$", "MKSTREAM"]):
        httpx.post(server.url, json=line, headers=server.headers)


def in_one(endpoint: str) -> Callable[[KVServer], None]:
    def send(server: KVServer) -> None:
        lines = [["set", "user:1", "v"], ["XGroup", "create", "s", "g", "$", "MKSTREAM"]]
        httpx.post(f"{server.url}/{endpoint}", json=lines, headers=server.headers)

    return send


def over_the_port(server: KVServer) -> None:
    with redis.Redis.from_url(server.database_url) as client:
        client.set("user:1", "v")
        client.xgroup_create("s", "g", "$", mkstream=True)


WAYS = {
    "path": by_path,
    "body": by_body,
    "pipeline": in_one("pipeline"),
    "transaction": in_one("multi-exec"),
    "port": over_the_port,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, server: KVServer) -> str:
    WAYS[request.param](server)
    return str(request.param)


MEANT = [
    *("set", "SET", "s*T", "xgroup", "XGROUP", "xgroup create", "XGROUP *"),
    re.compile("^SET$"),
    re.compile("(?i)group cr"),
]


@pytest.mark.usefixtures("way")
class TestCommands:
    @pytest.mark.parametrize("name", MEANT, ids=steady)
    def test_happened_however_they_are_named(self, server: KVServer, name: Any) -> None:
        assert len(server.assert_called(name, times=1)) == 1
        assert len(server.assert_called(command=name, times=1)) == 1
        assert len(server.journal.calls(command=name)) == 1
        assert len(server.journal.calls().where(command=name)) == 1
        for arguments, where in (((name,), {}), ((), {"command": name})):
            with pytest.raises(AssertionError, match="never, found 1"):
                server.assert_not_called(*arguments, **where)

    @pytest.mark.parametrize("name", [lambda name: name == "SET", ANY])
    def test_may_be_asked_by_a_function(self, server: KVServer, name: Any) -> None:
        assert server.assert_called(command=name)
        with pytest.raises(AssertionError, match="never, found"):
            server.assert_not_called(command=name)

    @pytest.mark.parametrize("name", ["get", "XGROUP DESTROY", "G*", re.compile("GET")], ids=steady)
    def test_that_did_not_happen_did_not(self, server: KVServer, name: Any) -> None:
        server.assert_not_called(name)
        server.assert_not_called(command=name)
        with pytest.raises(AssertionError, match="SET"):
            server.assert_called(command=name)

    @pytest.mark.parametrize(
        "words",
        [
            lambda lines: any(line[0].upper() == "SET" for line in lines),
            ["SET", "user:*", ANY],
            ["set", "user:1", "v"],
            [re.compile("(?i)set"), "user:1", "v"],
        ],
        ids=["function", "globs", "line", "pattern"],
    )
    def test_may_be_asked_by_their_words(self, server: KVServer, way: str, words: Any) -> None:
        if isinstance(words, list) and isinstance(words[0], str) and way == "port":
            words = ["SET", *words[1:]]  # the client's spelling
        elif isinstance(words, list) and words[0] == "SET":
            words = ["set", *words[1:]]
        assert server.assert_called(words=words, times=1)
        with pytest.raises(AssertionError, match="never, found 1"):
            server.assert_not_called(words=words)


def test_words_match_all_lines(server: KVServer) -> None:
    in_one("pipeline")(server)
    server.assert_called(words=[["set", "user:*", "v"], ["XGroup", ANY, "s", "g", "$", "MKSTREAM"]])
    server.assert_not_called(words=[["set", "user:*", "v"]])
    server.assert_not_called(words=["set", "user:1"])
    server.assert_not_called(words=[])


@pytest.mark.parametrize(
    "asked",
    [
        {"path": re.compile("/set")}, {"path": "/set/*"}, {"path": "/set/user:1/v"},
        {"path": lambda path: path.startswith("/set")}, {"target": "*user:1*"}, {"method": "POST"},
        {"status": 200}, {"status": lambda status: status < 300}, {"response_json": {"result": "OK"}},
        {"route": "command", "command": "set"},
    ],
    ids=steady,
)  # fmt: skip
def test_assert_not_called_fails_for_a_call(server: KVServer, asked: dict[str, Any]) -> None:
    by_path(server)
    assert server.assert_called(**asked)
    with pytest.raises(AssertionError, match="never, found"):
        server.assert_not_called(**asked)


@pytest.mark.parametrize("what", ["/set/*", "/set/user:1/v", "POST /set/*", re.compile("/set")])
def test_assert_not_called_fails_for_a_path(server: KVServer, what: Any) -> None:
    by_path(server)
    with pytest.raises(AssertionError, match="never, found 1"):
        server.assert_not_called(what)


NAMES_HANDSHAKE: list[dict[str, Any]] = [
    {"what": "AUTH"},
    {"what": "hello", "status": 500},
    {"what": re.compile("^SELECT")},
    {"command": "CLIENT INFO"},
    {"command": "SEL*", "key": "k"},
    {"command": ["GET", "CLIENT SETINFO"]},
    {"words": ["SELECT", "4"]},
    {"words": [["GET", "k"], ["SELECT", "4"]]},
]


@pytest.mark.parametrize("asked", [
    {"key": "b"}, {"what": "SET", "key": "HELLO"}, {"what": re.compile("DEL")}, {"command": "HSET"},
    {"words": ["SET", "SELECT"]}, {"route": "database-port", "status": 500}, *NAMES_HANDSHAKE,
], ids=steady)  # fmt: skip
def test_failures_list_the_set_up_of_connections_if_a_condition_names_it(
    server: KVServer, asked: dict[str, Any]
) -> None:
    with redis.Redis.from_url(server.database_url) as client:
        client.get("a")
    handshake = server.journal.calls(command="CLIENT")
    with pytest.raises(AssertionError) as failed:
        server.assert_called(**asked, times=70)
    listed = [call for call in handshake if f"<Call {call.number} " in str(failed.value)]
    assert handshake
    assert bool(listed) is (asked in NAMES_HANDSHAKE)


def test_failures_list_the_set_up_of_connections_if_there_was_nothing_else(
    server: KVServer,
) -> None:
    with redis.Redis.from_url(server.database_url) as client:
        client.connection_pool.get_connection()
    with pytest.raises(AssertionError, match="CLIENT SETINFO"):
        server.assert_called("GET")


def test_unknown_names_match_with_a_pattern(server: KVServer) -> None:
    httpx.post(server.url, json=["NoSuch", "word"], headers=server.headers)
    assert server.assert_called(command=re.compile("^NOSUCH$"), status=400)
    with pytest.raises(AssertionError, match="never, found 1"):
        server.assert_not_called(command=re.compile("NOSUCH"))


def send_lines(server: KVServer, endpoint: str, *lines: str) -> None:
    httpx.post(
        f"{server.url}/{endpoint}", json=[line.split() for line in lines], headers=server.headers
    )


BY_KEY = ["user:1", "user:*", re.compile(r"^user:\d$"), lambda key: key.startswith("user")]


@pytest.mark.parametrize("key", BY_KEY, ids=steady)
class TestKeys:
    @pytest.mark.usefixtures("way")
    def test_select_calls(self, server: KVServer, key: Any) -> None:
        for where in ({"key": key}, {"key": key, "command": "set"}):
            assert len(server.assert_called(**where, times=1)) == 1
            assert len(server.journal.calls(**where)) == 1
            assert len(server.journal.calls().where(**where)) == 1
            with pytest.raises(AssertionError, match="never, found 1"):
                server.assert_not_called(**where)
        server.assert_called("SET", key=key)
        server.assert_not_called("XGROUP", key=key)
        server.assert_not_called(command="XGROUP CREATE", key=key)
        server.assert_called("XGROUP", key="s")
        server.assert_not_called("SET", key="s")

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize(
        ("where", "hits"),
        [({}, 1), ({"command": "SET"}, 1), ({"command": "XGROUP"}, 0), ({"route": "xgroup"}, 0)],
        ids=steady,
    )
    def test_select_requests_for_faults(
        self, server: KVServer, way: str, key: Any, where: dict[str, Any], hits: int
    ) -> None:
        fault = server.faults.respond(503, key=key, **where)
        with contextlib.suppress(redis.RedisError):
            WAYS[way](server)
        assert fault.hits == hits


class TestKeysOfOneCommand:
    """Conditions on a request with several commands hold only if one command satisfies all."""

    @pytest.mark.parametrize("endpoint", ["pipeline", "multi-exec"])
    def test_a_name_and_a_key(self, server: KVServer, endpoint: str) -> None:
        send_lines(server, endpoint, "SET a 1", "MGET b c")
        server.assert_called("MGET", key="c")
        server.assert_called(command="*GET", key=re.compile("b|c"))
        for where in ({"key": "b"}, {"key": lambda key: key in "bc"}):
            server.assert_not_called("SET", **where)
            server.assert_not_called(command=lambda name: name == "SET", **where)
        with pytest.raises(AssertionError, match="no single command matches SET key='b'"):
            server.assert_called("SET", key="b")

    def test_a_name_and_a_search_index(self, server: KVServer) -> None:
        send_lines(server, "pipeline", "SEARCH.DESCRIBE one", "SEARCH.QUERY two {}")
        server.assert_called("SEARCH.QUERY", index="two")
        server.assert_not_called("SEARCH.QUERY", index="one")

    @pytest.mark.parametrize("command", ["SET", ["SET", "GET"], ANY])
    @pytest.mark.parametrize("key", ["a", "b", ["a", "b"], ANY])
    def test_a_whole_list_is_about_the_whole_request(
        self, server: KVServer, command: Any, key: Any
    ) -> None:
        send_lines(server, "pipeline", "SET a 1", "GET b")
        is_about_one = isinstance(command, str) and isinstance(key, str)
        server.assert_called(command=command, key=key, times=int(not is_about_one or key == "a"))

    def test_a_path_has_no_command(self, server: KVServer) -> None:
        send_lines(server, "pipeline", "SET a 1", "GET b")
        server.assert_called("/pipeline", key="b")
        server.assert_called("pipeline", key="b", command="GET")
        server.assert_not_called("/pipeline", key="b", command="SET")

    def test_in_the_journal_of_a_cloud(self) -> None:
        with Cloud() as cloud:
            server, index = cloud.kv_server(), cloud.vector_index()
            send_lines(server, "pipeline", "SET a 1", "GET b")
            httpx.post(index.url + "/upsert", json={"id": "a"}, headers=index.headers)
            assert len(cloud.journal.calls(command="SET", key="a")) == 1
            cloud.journal.assert_not_called("SET", key="b")


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("MSET a 1 b 2", ["a", "b"]),
        ("EVAL return 2 a b c", ["a", "b"]),
        ("XREADGROUP GROUP g i STREAMS s t > >", ["s", "t"]),
        ("ZUNIONSTORE to 2 a b WEIGHTS 1 2", ["to", "a", "b"]),
        ("SORT list BY w_* GET o_* STORE to", ["list", "to"]),
        ("OBJECT ENCODING k", ["k"]),
        ("GEORADIUS k 0 0 1 m STORE to", ["k", "to"]),
        ("PUBLISH channel text", []),
        ("SPUBLISH channel text", []),
        ("PING", []),
        ("SET", []),
        ("EVAL return many a", []),
        ("NOSUCH word", []),
    ],
)
def test_keys_are_found_in_the_line(server: KVServer, line: str, keys: list[str]) -> None:
    httpx.post(server.url, json=line.split(), headers=server.headers)
    [call] = server.assert_called(key=keys) if keys else server.journal.calls()
    assert call.facts["key"] == keys
    for key in keys:
        server.assert_called(key=key)
    server.assert_not_called(key=lambda key: key not in keys)


@pytest.mark.parametrize("key", BY_KEY, ids=steady)
@pytest.mark.parametrize("way", WAYS)
def test_violations_are_allowed_by_key(way: str, key: Any) -> None:
    def fail(request: Any) -> None:
        raise AssertionError("the test's own check")

    with Cloud() as cloud:
        server = cloud.kv_server()
        for kind, function in (("assertion", fail), ("bug", lambda request: 1 / 0)):
            with contextlib.suppress(redis.RedisError), server.faults.call(function, key="user:1"):
                WAYS[way](server)
            assert {violation.kind for violation in cloud.violations()} == {kind}
            cloud.allow(kind, key="s:*")
            assert cloud.violations()
            cloud.allow(kind, key=key)
            assert not cloud.violations()


def test_a_violation_with_too_many_keys_is_not_allowed_by_key() -> None:
    keys = [f"user:{number}" for number in range(10_000)]
    with Cloud() as cloud:
        server = cloud.kv_server()
        server.faults.call(lambda request: 1 / 0)
        httpx.post(server.url, json=["MGET", *keys], headers=server.headers)
        cloud.allow("bug", key="user:*")
        assert cloud.violations().only().kind == "bug"
        cloud.allow("bug")
        assert not cloud.violations()


class TestKeysThatTheJournalHasCut:
    @pytest.mark.parametrize(
        ("lines", "where", "is_known"),
        [
            ([f"SET key:{number} v" for number in range(1000)], {"key": "key:999"}, False),
            (["SET a <large>"], {"key": "a", "command": "SET"}, True),
            (["SET a <large>"], {"key": "b", "command": "SET"}, True),
            (["SET a <large>", "GET b"], {"key": "b"}, True),
            (["SET a <large>", "GET b"], {"key": "c", "command": "GET"}, True),
            (["SET a <large>", "GET b"], {"key": "b", "command": "GET"}, False),
        ],
        ids=steady,
    )
    def test_cannot_be_decided(
        self, lines: list[str], where: dict[str, Any], is_known: bool
    ) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server()
            cloud.journal.keep_bytes = 10_000
            send_lines(server, "pipeline", *(x.replace("<large>", "v" * 20_000) for x in lines))
            assert server.journal.calls()[0].cut
            if is_known:
                keys = [line.split()[1] for line in lines]
                server.assert_called(**where, times=int(where["key"] in keys))
            else:
                with pytest.raises(ContractError, match=r"cannot tell the (key|words)"):
                    server.assert_not_called(**where)

    def test_at_the_port(self, server: KVServer) -> None:
        large = "v" * 1024 * 1024
        with redis.Redis.from_url(server.database_url, retry=None) as client:
            client.set("k", large)
            server.assert_called("SET", key="k")
            server.assert_not_called("SET", key="other")
            client.mset({**{f"key:{number}": "v" for number in range(200)}, "big": large})
            with pytest.raises(ContractError, match="cannot tell the key"):
                server.assert_not_called(key="big")
            server.faults.drop(key="big")
            with pytest.raises(redis.RedisError, match="cannot tell the key"):
                client.mset({**{f"key:{number}": "v" for number in range(200)}, "big": large})


class TestFaults:
    @pytest.mark.parametrize("name", MEANT, ids=steady)
    def test_go_by_the_same_names(self, server: KVServer, name: Any) -> None:
        with server.faults.respond(503, command=name) as fault:
            in_one("pipeline")(server)
            ask = httpx.post(server.url, json=["GET", "k"], headers=server.headers)
        assert (fault.hits, ask.status_code) == (1, 200)

    @pytest.mark.parametrize("name", MEANT, ids=steady)
    def test_go_by_the_same_names_at_the_port(self, server: KVServer, name: Any) -> None:
        fault = server.faults.respond(503, command=name)
        client = redis.Redis.from_url(server.database_url, retry=None)
        for send in (
            lambda: client.set("user:1", "v"),
            lambda: client.xgroup_create("s", "g", "$", mkstream=True),
        ):
            with contextlib.suppress(redis.RedisError):
                send()
        client.close()
        assert fault.hits == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["get", "k"], "GET"),
        (["xgroup", "create", "s"], "XGROUP CREATE"),
        (["client"], "CLIENT"),
        (["nosuch", "word"], "NOSUCH"),
    ],
)
def test_the_name_of_a_line(line: list[str], name: str) -> None:
    assert command_name(line) == name
