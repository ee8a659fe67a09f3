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

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.command_fields import command_name
from pytest_fakecloud.kv.handle import KVServer
from tests.harness import check_each
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


IMPOSSIBLE: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {"comand": "SET"}, "did you mean 'command'"),
    ((), {"command": "SETT"}, "not a command; did you mean 'SET'"),
    ((), {"command": "SETT*"}, "not a command"),
    ((), {"command": "create"}, "not a command"),
    ((), {"command": "set k"}, "not a command"),
    ((), {"command": 1}, "can never match"),
    ((), {"command": b"SET"}, "can never match"),
    ((), {"words": "SET k v"}, "can never match"),
    ((), {"words": ["SET", 1]}, "can never match"),
    ((), {"words": [["SET", b"k"], ["GET", "k"]]}, "can never match"),
    ((), {"encoding": 64}, "can never match"),
    ((), {"method": "post"}, "pass 'POST'"),
    ((), {"method": "resp"}, "pass 'RESP'"),
    ((), {"status": "200"}, "can never match"),
    ((), {"path": 1}, "can never match"),
    (("post /set/k",), {}, "pass 'POST'"),
    (("sett",), {}, "neither a route nor a command; did you mean 'SET'"),
    (("create",), {}, "neither a route nor a command"),
    (("set k",), {}, "neither a route nor a command"),
]


@pytest.mark.usefixtures("way")
def test_impossible_commands_are_rejected(server: KVServer) -> None:
    def check(arguments: tuple[Any, ...], where: dict[str, Any], words: str) -> None:
        questions = [
            lambda: server.assert_called(*arguments, **where),
            lambda: server.assert_called(*arguments, **where, times=0),
            lambda: server.assert_not_called(*arguments, **where),
        ]
        if not arguments:
            questions += [
                lambda: server.journal.calls(**where),
                lambda: server.journal.calls().where(**where),
            ]
        for ask in questions:
            with pytest.raises(ContractError, match=re.escape(words)):
                ask()

    check_each(check, IMPOSSIBLE)


@pytest.mark.parametrize(
    "asked",
    [
        {"path": re.compile("/set")}, {"path": "/set/*"}, {"path": "/set/user:1/v"},
        {"path": lambda path: path.startswith("/set")}, {"target": "*user:1*"}, {"method": "POST"},
        {"status": 200}, {"status": lambda status: status < 300}, {"answer_json": {"result": "OK"}},
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


def test_unknown_names_match_with_a_pattern(server: KVServer) -> None:
    httpx.post(server.url, json=["NoSuch", "word"], headers=server.headers)
    assert server.assert_called(command=re.compile("^NOSUCH$"), status=400)
    with pytest.raises(AssertionError, match="never, found 1"):
        server.assert_not_called(command=re.compile("NOSUCH"))


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
        "wrong", [{"command": "SETT"}, {"command": 1}, {"comand": "SET"}, {"words": "SET k v"}]
    )
    def test_impossible_ones_are_rejected(self, server: KVServer, wrong: dict[str, Any]) -> None:
        with pytest.raises(ContractError):
            server.faults.respond(503, **wrong)


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
