"""The REST interface, by the rules of its specification.

``stories.txt`` has requests with their answers, in a notation of ``tests/notations.py``: `/set/k?EX=9 <
v => "OK"`. A reply is the JSON of the result, an error (`-ERR ...`) with the status 400 unless one is
given, or the bytes of the whole answer after a status; those of a pipeline are in a list. `$token`,
`$read_only` and `$command` are the tokens of the server and the name of the command in the path; a
request with an empty `Authorization` has no such header. `"$name"` as a reply keeps it.
A story `in memory: ...` and one in which time passes are not played in front of real servers.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.http.messages import Answer, Request, Stream
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.acl import make_token
from pytest_fakecloud.kv.errors import RestError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.routes import commands_of_body
from pytest_fakecloud.kv.sse import EventStream
from tests.harness import wait_until

from ..notations import Fetched, RestPlayer, scenarios

NOW = "2026-01-01T23:59:50Z"
EVENTS = {"Accept": "text/event-stream"}
STORIES = scenarios(Path(__file__).with_name("stories.txt"))


@pytest.fixture
def context() -> Context:
    return Context.alone(now=NOW)


def shown(answer: Any) -> Any:
    if isinstance(answer, list):
        return [shown(item) for item in answer]
    [(kind, value)] = answer.items()
    assert kind in ("result", "error")
    return value if kind == "result" else f"-{value}"


def agree(actual: Any, expected: Any) -> bool:
    """Return whether a reply is the expected one, of which an error may be only the beginning."""
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(agree, actual, expected))
    if isinstance(expected, str) and expected.endswith(" ..."):
        return str(actual).startswith(expected[:-3].rstrip())
    return bool(actual == expected)


class Requests(RestPlayer):
    """Plays ``stories.txt``."""

    def line(self, text: str, below: list[str]) -> None:
        self.kept |= {"token": self.fake.token, "read_only": self.fake.read_only_token}
        if text[0] == "/":
            text = f"{'POST' if ' < ' in text else 'GET'} {text}"
            self.kept["command"] = text.split()[1].split("/")[1]
        super().line(text, below)

    def authorized(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [header for header in super().authorized(headers) if header != ("Authorization", "")]

    def check(self, answer: Fetched, reply: str) -> None:
        match = re.fullmatch(r"(?:(\d{3}) )?(.*)", self.without_headers(answer, reply))
        assert match
        status, text = match.groups()
        failed = text.startswith(("-", '"-'))
        assert answer.status == int(status or (400 if failed else 200)), answer
        if text.startswith("b"):
            assert answer.body == ast.literal_eval(text)
            return
        assert answer.headers["Content-Type"] == "application/json"
        reply = shown(answer.json())
        if text[:2] == '"$':
            self.kept[text[2:-1]] = reply
        elif text:
            assert agree(reply, text if text[0] == "-" else json.loads(text)), reply


class TestStories:
    @pytest.mark.parametrize("name", STORIES)
    def test_story(self, context: Context, name: str) -> None:
        settings, lines = STORIES[name]
        with KVServer(context, **settings) as server:
            Requests(server).play(lines)
            assert {violation.kind for violation in server._app.violations} <= {"unrouted"}


class TestMethods:
    def test_head_runs_without_a_body(self, http: httpx.Client) -> None:
        answer = http.head("/set/k/v")
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Content-Length"] == str(len('{"result":"OK"}'))
        assert http.get("/get/k").json() == {"result": "v"}

    def test_a_405_is_not_recorded_as_a_command(self, server: KVServer, http: httpx.Client) -> None:
        http.delete("/get/k")
        http.post("/", json=["GET", "k"])
        assert server.assert_called("GET", times=1).only().method == "POST"


class TestEncoding:
    @pytest.mark.parametrize("sent", [{}, {"Upstash-Sync-Token": ""}, {"Upstash-Sync-Token": "9"}])
    def test_a_success_has_a_new_sync_token(self, http: httpx.Client, sent: dict[str, str]) -> None:
        requests: list[tuple[str, str, Any]] = [
            ("GET", "/set/k/v", None),
            ("HEAD", "/get/k", None),
            ("POST", "/", ["PING"]),
            ("POST", "/", ["EVAL", "return 1", 0]),
            ("POST", "/pipeline", [["PING"], ["INCR", "k"]]),
            ("POST", "/multi-exec", [["SET", "k", "w"]]),
        ]
        seen: list[str] = []
        for form in ({}, {"Upstash-Encoding": "base64"}):
            for method, path, body in requests:
                answer = http.request(method, path, json=body, headers={**sent, **form})
                seen.append(answer.headers["Upstash-Sync-Token"])
        resp2 = http.get("/get/k", headers={**sent, "Upstash-Response-Format": "resp2"})
        seen.append(resp2.headers["Upstash-Sync-Token"])
        assert all(seen)
        assert len(set(seen)) == len(seen) == 13

    def test_sync_token_under_each_name_that_asks(self, http: httpx.Client) -> None:
        names = ["Upstash-Sync-Token", "Service-Sync-Token"]
        answer = http.get("/ping", headers=dict.fromkeys(names, ""))
        assert all(answer.headers[name] for name in names)

    @pytest.mark.parametrize("token", ["7", "007", "-7", "7" * 30, "7e0", "seven", ""])
    def test_the_journal_has_the_tokens_that_were_sent(
        self, server: KVServer, http: httpx.Client, token: str
    ) -> None:
        sent = {"Upstash-Sync-Token": token}
        server.faults.respond(200, {"result": 1}, headers=sent, times=1)
        answers = [http.get("/ping").headers.get("Upstash-Sync-Token") for _ in range(2)]
        calls = server.journal.calls()
        recorded = [call.response_headers.getlist("upstash-sync-token") for call in calls]
        assert recorded == [[token], [answers[1]]]
        assert calls[0].response_headers == sent
        assert calls.where(response_headers={"Upstash-Sync-Token": answers[1]}) == [calls[1]]


class TestTokens:
    def test_resetting_the_password_revokes_both(self, server: KVServer) -> None:
        old = [server.token, server.read_only_token]
        server.rotate_password()
        for token in old:
            assert httpx.get(server.url + f"/ping?_token={token}").status_code == 401
        for token in (server.token, server.read_only_token):
            assert httpx.get(server.url + f"/ping?_token={token}").status_code == 200


class TestLimits:
    def test_open_streams(self, context: Context) -> None:
        with KVServer(context, max_connections=1) as server:
            url, headers = server.url, {**server.headers, **EVENTS}
            with listening(server, "/subscribe/news") as lines:
                next(lines)
                refused = httpx.get(f"{url}/subscribe/news", headers=headers, timeout=5)
                assert refused.status_code == 400
                assert refused.json() == {"error": errors.max_connections(1, 1).decode()}
                assert httpx.get(f"{url}/ping", headers=server.headers).status_code == 200


def events(response: httpx.Response) -> Iterator[str]:
    return (line for line in response.iter_lines() if line.startswith("data: "))


@contextmanager
def listening(server: KVServer, path: str, token: str = "") -> Iterator[Iterator[str]]:
    headers = {"Authorization": f"Bearer {token or server.token}", **EVENTS}
    with httpx.stream("GET", server.url + path, headers=headers) as response:
        yield events(response)


class TestStreams:
    def test_subscribe(self, server: KVServer, http: httpx.Client) -> None:
        with http.stream("POST", "/subscribe/news", headers=EVENTS, content=b"[]") as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            lines = events(response)
            assert next(lines) == "data: subscribe,news,1"
            assert http.get("/pubsub/numsub/news").json() == {"result": ["news", 1]}
            assert http.post("/publish/news", content=b"a,b").json() == {"result": 1}
            assert next(lines) == "data: message,news,a,b"
            assert server.execute("PUBLISH", "news", "two\nlines") == 1
            assert [next(lines), next(lines)] == ["data: message,news,two", "data: lines"]

    def test_psubscribe(self, server: KVServer, http: httpx.Client) -> None:
        with listening(server, "/psubscribe/n*") as lines:
            assert next(lines) == "data: psubscribe,n*,1"
            http.get("/publish/news/%22x%22")
            assert next(lines) == 'data: pmessage,n*,news,"x"'

    def test_keys_expire_while_clients_listen(self, server: KVServer) -> None:
        server.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
        with listening(server, "/psubscribe/__keyevent*") as lines:
            next(lines)
            server.execute("SET", "k", "v", "EX", 5)
            server.clock.advance(5)
            assert next(lines) == "data: pmessage,__keyevent*,__keyevent@0__:expired,k"

    def test_a_disconnected_client_is_unsubscribed(self, server: KVServer) -> None:
        with listening(server, "/subscribe/news") as lines:
            next(lines)
        gone = server._timekeeper.signal()
        silent = server._timekeeper.wait(
            gone,
            lambda: not server.execute("PUBSUB", "CHANNELS") or None,
            server.clock.now_us() + 5_000_000,
        )
        assert silent or server.execute("PUBSUB", "CHANNELS") == []

    def test_monitor(self, server: KVServer, http: httpx.Client) -> None:
        with listening(server, "/monitor") as lines:
            assert next(lines) == 'data: "OK"'
            http.post("/", json=["SET", "k", 'a"b\n'])
            line = next(lines)
        assert line.startswith("data: 1767311990.000000 [0 127.0.0.1:")
        assert line.endswith('"SET" "k" "a\\"b\\n"')

    def test_silence_is_filled_with_heartbeats(self, server: KVServer) -> None:
        server._timekeeper.wait_cap = 0.01
        headers = {**server.headers, **EVENTS}
        with httpx.stream("GET", f"{server.url}/subscribe/news", headers=headers) as response:
            lines = response.iter_lines()
            assert next(line for line in lines if line.startswith(":")) == ": heartbeat"

    def test_permissions(self, server: KVServer) -> None:
        headers = {"Authorization": f"Bearer {server.read_only_token}", **EVENTS}
        assert httpx.get(server.url + "/monitor", headers=headers).status_code == 400
        assert httpx.get(server.url + "/monitor", headers=EVENTS).status_code == 401

    @pytest.mark.parametrize(
        ("path", "rules"),
        [
            ("/subscribe/news", ["DELUSER", "u"]),
            ("/psubscribe/news", ["SETUSER", "u", "resetchannels"]),
            ("/monitor", ["DELUSER", "u"]),
        ],
    )
    def test_a_stream_ends_with_its_permission(
        self, server: KVServer, path: str, rules: list[str]
    ) -> None:
        password = make_token(b"secret").decode()
        server.execute("ACL", "SETUSER", "u", "on", f">{password}", "+@all", "&news")
        token = server.execute("ACL", "RESTTOKEN", "u", password)
        with listening(server, path, token) as lines:
            next(lines)
            server.execute("ACL", *rules)
            for _ in lines:
                """Read to the end."""
        # A real server notices a little later that the subscriber has gone.
        wait_until(lambda: server.execute("PUBLISH", "news", "secret") == 0)

    def test_the_body_of_a_stream_is_no_word_of_its_command(self, server: KVServer) -> None:
        with server.faults.respond(503, command="SUBSCRIBE"):
            headers = {**server.headers, **EVENTS}
            httpx.post(server.url + "/subscribe/news", headers=headers, json=[])
        assert server.journal.calls().only().facts["words"] == [["subscribe", "news"]]

    def test_closing_the_server_ends_the_stream(self, server: KVServer) -> None:
        with listening(server, "/subscribe/a") as lines:
            next(lines)
            server.close()
            with suppress(httpx.HTTPError):
                for _ in lines:
                    """Read to the end."""


NOT_OVER_REST = [
    ["BLPOP", "BRPOP", "BRPOPLPUSH", "BZPOPMAX", "BZPOPMIN", "BLMOVE", "BLMPOP", "BZMPOP"],
    ["WATCH", "UNWATCH", "DISCARD"],
    ["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SPUBLISH", "MONITOR"],
    ["AUTH", "HELLO", "QUIT", "RESET", "SELECT"],
    ["CLUSTER", "ASKING", "READONLY", "READWRITE"],
]


class TestAvailability:
    @pytest.mark.parametrize("name", [name for group in NOT_OVER_REST for name in group])
    def test_what_rest_does_not_have(self, http: httpx.Client, name: str) -> None:
        for line in ([name], [name.lower(), "a", "0"]):
            answer = http.post("/", json=line)
            assert answer.status_code == 400
            assert answer.json()["error"].startswith(f"ERR Command is not available: '{name}")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)
ANY_HEADERS = [
    ("Upstash-Encoding", "base64"), ("Service-Response-Format", "resp2"), ("Upstash-Sync-Token", ""),
]  # fmt: skip
ANY_BODY = st.binary(max_size=30) | ANY_JSON.map(lambda value: json.dumps(value).encode())


def parsed(body: bytes) -> list[list[bytes]] | None:
    try:
        lines = json.loads(body.decode(), parse_int=str, parse_float=str)
    except ValueError:
        return None
    if not isinstance(lines, list) or not lines or [] in lines:
        return None
    if not all(isinstance(line, list) and all(isinstance(w, str) for w in line) for line in lines):
        return None
    return [[word.encode() for word in line] for line in lines]


class TestPipelines:
    @given(
        st.lists(
            st.sampled_from([
                '"', '"', ",", '","', '"],["', "],[", "a", "\\", "\n", " ", "\x7f", "\0", "é", "[", "]",
                "1", "null", '""',
            ]),
            max_size=12,
        ).map("".join),
        st.sampled_from([('[["', '"]]'), ("[[", "]]"), ("", "")]),
    )  # fmt: skip
    def test_commands_are_those_of_the_json(self, text: str, ends: tuple[str, str]) -> None:
        body = text.join(ends).encode()
        commands = None
        with suppress(RestError):
            commands = commands_of_body(body)
        assert commands == parsed(body)


class TestAnyInput:
    @given(
        method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "X"]),
        path=st.sampled_from(
            ["/", "/pipeline", "/multi-exec", "/set/k", "/monitor", "/subscribe/a"]
        )
        | st.binary(max_size=12).map(lambda raw: "/" + raw.decode("latin-1")),
        query=st.sampled_from(["", "?EX=1", "?=", "?%ff=%", "?a&b=&&c=d"]),
        body=ANY_BODY,
        headers=st.lists(st.sampled_from(ANY_HEADERS), max_size=2),
    )
    def test_the_answer_is_one_the_service_gives(
        self, method: str, path: str, query: str, body: bytes, headers: list[tuple[str, str]]
    ) -> None:
        with KVServer(Context.alone()) as server:
            headers = [*headers, ("Authorization", f"Bearer {server.token}")]
            answer = server._app.respond(Request(method, path + query, headers, body))
            assert isinstance(answer, Answer)
            assert answer.status in (200, 400, 405)
            assert "bug" not in [violation.kind for violation in server._app.violations]


@pytest.mark.parametrize("route", ["subscribe", "psubscribe"])
def test_a_stream_receives_what_is_published_after_its_head(server: KVServer, route: str) -> None:
    accept = {"Accept": "text/event-stream", "Authorization": f"Bearer {server.token}"}
    stream = server._app.respond(Request("GET", f"/{route}/c", list(accept.items())))
    assert isinstance(stream, Stream)
    assert server.execute("PUBLISH", "c", "hello") == 1
    events = [chunk for _, chunk in zip(range(2), filter(None, stream.chunks), strict=False)]
    assert b"message,c" in events[1]
    stream.end()
    assert server.execute("PUBLISH", "c", "hello") == 0


def test_an_unread_stream_ends(server: KVServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fakecloud.kv.sse.EVENTS_LIMIT", 1_000_000)
    streams: list[EventStream] = []
    original = EventStream.put

    def put(stream: EventStream, text: bytes) -> None:
        original(stream, text)
        streams.append(stream)

    monkeypatch.setattr(EventStream, "put", put)
    with listening(server, "/subscribe/c") as lines:
        assert next(lines) == "data: subscribe,c,1"
        for _ in range(400):
            server.execute("PUBLISH", "c", "x" * 100_000)
        (stream,) = set(streams)
        assert stream._signal.closed
        assert not stream._events
        # Events that are being sent still arrive, then the stream ends.
        assert sum(line.startswith("data: message,c,x") for line in lines) < 400
    assert server.execute("PUBSUB", "NUMSUB", "c") == ["c", 0]


def test_a_stream_that_is_read_continues(server: KVServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fakecloud.kv.sse.EVENTS_LIMIT", 10_000)
    with listening(server, "/subscribe/c") as lines:
        assert next(lines) == "data: subscribe,c,1"
        for number in range(100):
            server.execute("PUBLISH", "c", f"{number}" + "x" * 1000)
            assert next(lines).startswith(f"data: message,c,{number}x")
