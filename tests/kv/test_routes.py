"""The REST interface, by the rules of its specification."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.handle import Context
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.kv.handle import KVServer
from pytest_fakecloud.kv.sse import EventStream
from tests.harness import wait_until

from ..harness import sections

NOW = "2026-01-01T23:59:50Z"
EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture
def context() -> Context:
    return Context.alone(now=NOW)


STORIES = sections(Path(__file__).with_name("stories.txt"))
SETTING = re.compile(r"(\w+)=(\w+)")
LINE = re.compile(r"(?:([A-Z]+) )?(/\S*)(?: (.+))? => (?:(\d+) )?(.+)")


def shown(answer: Any) -> Any:
    if isinstance(answer, list):
        return [shown(item) for item in answer]
    [(kind, value)] = answer.items()
    assert kind in ("result", "error")
    return value if kind == "result" else f"-{value}"


def agree(found: Any, expected: Any) -> bool:
    """Return whether a reply is the expected one, of which an error may be only the beginning."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(agree, found, expected))
    if isinstance(expected, str) and expected.endswith(" ..."):
        return str(found).startswith(expected[:-3].rstrip())
    return bool(found == expected)


def sent(server: KVServer, line: Any, path: str = "/") -> Any:
    answer = httpx.post(server.url + path, json=line, headers=server.headers)
    reply = shown(answer.json())
    failed = isinstance(reply, str) and reply.startswith("-")
    assert answer.status_code == (400 if failed else 200)
    return reply


class TestMethods:
    @pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
    def test_a_path_command_takes_each(self, http: httpx.Client, method: str) -> None:
        assert http.request(method, "/set/k/v").json() == {"result": "OK"}
        assert http.request(method, "/get/k").json() == {"result": "v"}

    def test_head_runs_without_a_body(self, http: httpx.Client) -> None:
        answer = http.head("/set/k/v")
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Content-Length"] == str(len('{"result":"OK"}'))
        assert http.get("/get/k").json() == {"result": "v"}

    @pytest.mark.parametrize(
        "method", ["DELETE", "PATCH", "OPTIONS", "PROPFIND", "BREW", "CONNECT"]
    )
    @pytest.mark.parametrize("path", ["/", "/get/k", "/pipeline", "/multi-exec", "/subscribe/a"])
    def test_any_other_is_405(self, http: httpx.Client, method: str, path: str) -> None:
        answer = http.request(method, path)
        assert answer.status_code == 405
        assert list(answer.json()) == ["error"]

    def test_a_405_is_not_recorded_as_a_command(self, server: KVServer, http: httpx.Client) -> None:
        http.delete("/get/k")
        http.post("/", json=["GET", "k"])
        assert server.assert_called("GET", times=1).only().method == "POST"


class TestStories:
    @pytest.mark.parametrize("name", STORIES)
    def test_story(self, context: Context, name: str) -> None:
        settings = {word: int(n) if n.isdigit() else n for word, n in SETTING.findall(name)}
        with KVServer(context, **settings) as server:
            self.play(server, STORIES[name])

    def play(self, server: KVServer, lines: list[str]) -> None:
        for line in lines:
            found = LINE.fullmatch(line)
            assert found, f"not a line of a story: {line}"
            method, path, body, status, reply = found.groups()
            expected = reply if reply.startswith("-") else json.loads(reply)
            answer = httpx.request(
                method or ("POST" if body else "GET"),
                server.url + path,
                content=unquote_to_bytes(body or ""),
                headers={} if status == "401" else server.headers,
            )
            failed = isinstance(expected, str) and expected.startswith("-")
            assert answer.status_code == int(status or (400 if failed else 200)), line
            assert answer.headers["Content-Type"] == "application/json", line
            assert agree(shown(answer.json()), expected), (line, shown(answer.json()))
        assert server._app.problems == []


class TestCommands:
    def test_bytes_of_paths_and_bodies(self, server: KVServer, http: httpx.Client) -> None:
        http.get("/set/a%2Fb/x%20y%2F%FF")
        assert server.value("a/b") == b"x y/\xff"
        body = b"\x00 any / bytes? \xff"
        assert http.post("/set/k", content=body).json() == {"result": "OK"}
        assert server.value("k") == body

    def test_any_content_type(self, http: httpx.Client) -> None:
        headers = {"Content-Type": "text/plain"}
        assert http.post("/", content=b'["PING"]', headers=headers).json() == {"result": "PONG"}

    def test_big_integers_are_numbers(self, http: httpx.Client) -> None:
        http.get("/set/n/9223372036854775806")
        assert http.get("/incr/n").content == b'{"result":9223372036854775807}'


class TestDialectOfErrors:
    def test_the_word_inside_a_reply_and_in_the_native_format(self, context: Context) -> None:
        text = "ERR value is not an int or out of range"
        script = "return {redis.pcall('INCRBY', KEYS[1], 'x')}"
        with KVServer(context, int_text="int") as server:
            lines = [["MULTI"], ["INCRBY", "n", "x"], ["EXEC"], ["EVAL", script, 1, "n"]]
            url, headers = server.url + "/pipeline", server.headers
            answer = httpx.post(url, json=lines, headers=headers).json()
            assert answer[2:] == [{"result": [text]}, {"result": [text]}]
            headers["Upstash-Response-Format"] = "resp2"
            raw = f"-{text}\r\n".encode()
            for path in ("/pipeline", "/"):
                line: Any = ["INCRBY", "n", "x"]
                body = [line] if path == "/pipeline" else line
                assert httpx.post(server.url + path, json=body, headers=headers).content == raw


class TestEncoding:
    def test_invalid_utf8_is_replaced(self, http: httpx.Client) -> None:
        http.get("/set/k/a%FF%FEb")
        assert http.get("/get/k").json() == {"result": "a��b"}
        http.get("/bitop/not/d/k")
        assert "�" in http.get("/get/d").json()["result"]

    @pytest.mark.parametrize("name", ["Upstash-Encoding", "Service-Encoding"])
    def test_base64(self, http: httpx.Client, name: str) -> None:
        headers = {name: "base64"}

        def ask(*line: object) -> Any:
            return http.post("/", json=line, headers=headers).json()["result"]

        assert ask("SET", "k", "OK") == "OK"
        assert ask("GET", "k") == base64.b64encode(b"OK").decode()
        assert ask("APPEND", "k", "a") == 3
        assert ask("GET", "none") is None
        assert ask("MGET", "k", "none") == ["T0th", None]
        assert ask("TYPE", "k") == base64.b64encode(b"string").decode()
        assert ask("EVAL", "return {'a', {'b'}}", 0) == ["YQ==", ["Yg=="]]
        http.get("/set/bytes/%FF%00")
        assert base64.b64decode(ask("GET", "bytes")) == b"\xff\x00"
        error = http.post("/", json=["LPUSH", "k", 1], headers=headers).json()["error"]
        assert error.startswith("WRONGTYPE")

    @pytest.mark.parametrize("name", ["Upstash-Response-Format", "Service-Response-Format"])
    def test_resp2(self, http: httpx.Client, name: str) -> None:
        headers = {name: "resp2"}
        answer = http.post("/", json=["SET", "k", "v"], headers=headers)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.content == b"+OK\r\n"
        lines = [["GET", "k"], ["GET", "none"], ["LPUSH", "k", 1], ["MGET", "k"]]
        answer = http.post("/pipeline", json=lines, headers=headers)
        assert answer.content == (
            b"$1\r\nv\r\n$-1\r\n"
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
            b"*1\r\n$1\r\nv\r\n"
        )
        answer = http.get("/nosuch", headers=headers)
        assert (answer.status_code, answer.content[:4]) == (400, b"-ERR")

    def test_formats_that_do_not_go_together(self, http: httpx.Client) -> None:
        resp2 = {"Upstash-Response-Format": "resp2"}
        assert http.get("/ping", headers={"Upstash-Response-Format": "xml"}).status_code == 400
        assert http.get("/ping", headers={**resp2, "Upstash-Encoding": "base64"}).status_code == 400
        assert http.get("/ping", headers={"Upstash-Response-Format": "json"}).status_code == 200

    @pytest.mark.parametrize("name", ["Upstash-Response-Format", "Service-Response-Format"])
    @pytest.mark.parametrize(
        "lines",
        [
            [["SET", "k", "v"], ["GET", "k"], ["GET", "none"], ["LPUSH", "k", 1]],
            [["SET", "k", "v"], ["GET"]],
            [["GET", {}]],
            [],
            {},
        ],
    )
    def test_a_transaction_is_answered_in_json(
        self, http: httpx.Client, name: str, lines: object
    ) -> None:
        plain = http.post("/multi-exec", json=lines)
        answer = http.post("/multi-exec", json=lines, headers={name: "resp2"})
        assert answer.headers["Content-Type"] == "application/json"
        assert (answer.status_code, answer.json()) == (plain.status_code, plain.json())

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

    def test_failures_bring_no_sync_token(self, http: httpx.Client) -> None:
        for answer in (http.get("/nosuch"), http.post("/multi-exec", json=[["NOSUCH"]])):
            assert answer.status_code == 400
            assert "Upstash-Sync-Token" not in answer.headers

    def test_sync_token_under_each_name_that_asks(self, http: httpx.Client) -> None:
        names = ["Upstash-Sync-Token", "Service-Sync-Token"]
        answer = http.get("/ping", headers=dict.fromkeys(names, ""))
        assert all(answer.headers[name] for name in names)


class TestTokens:
    def test_header_or_query(self, server: KVServer) -> None:
        for answer in (
            httpx.get(server.url + "/ping", headers=server.headers),
            httpx.get(server.url + f"/ping?_token={server.token}"),
            httpx.post(server.url + f"/?_token={server.token}", json=["PING"]),
            httpx.post(server.url + f"/pipeline?_token={server.token}", json=[["PING"]]),
        ):
            assert answer.status_code == 200

    @pytest.mark.parametrize("path", ["/ping", "/nosuch/path", "/?_token=wrong", "/pipeline"])
    def test_missing_or_wrong_is_401(self, server: KVServer, path: str) -> None:
        for headers in ({}, {"Authorization": "Bearer nope"}, {"Authorization": "Basic x"}):
            answer = httpx.get(server.url + path, headers=headers)
            assert answer.status_code == 401
            assert answer.json() == {"error": "WRONGPASS invalid or missing auth token"}

    def test_read_only(self, server: KVServer) -> None:
        headers = {"Authorization": f"Bearer {server.read_only_token}"}
        server.load({"k": "v", "h": {"a": "1"}})

        def ask(path: str) -> httpx.Response:
            return httpx.get(server.url + path, headers=headers)

        for path in (
            "/get/k", "/hgetall/h", "/ttl/k", "/dbsize", "/ping", "/exists/k", "/time", "/echo/x",
            "/type/k", "/client/setinfo/lib-name/x",
        ):  # fmt: skip
            assert ask(path).status_code == 200
        for path in (
            "set/k/w", "del/k", "getex/k", "keys/*", "scan/0", "eval/return%201/0", "evalsha/abc/0",
            "flushall", "publish/a/b", "config/get/*", "info", "acl/whoami", "sort_ro/k",
            "script/load/x",
        ):  # fmt: skip
            answer = ask(f"/{path}")
            assert answer.status_code == 400
            name = path.partition("/")[0]
            text = (
                f"NOPERM this user has no permissions to run the '{name}' command or its subcommand"
            )
            assert answer.json() == {"error": text}
        assert server.value("k") == "v"

    def test_resetting_the_password_revokes_both(self, server: KVServer) -> None:
        old = [server.token, server.read_only_token]
        server.rotate_password()
        for token in old:
            assert httpx.get(server.url + f"/ping?_token={token}").status_code == 401
        for token in (server.token, server.read_only_token):
            assert httpx.get(server.url + f"/ping?_token={token}").status_code == 200


class TestLimits:
    def test_request_size(self, http: httpx.Client, server: KVServer) -> None:
        answer = http.post("/set/k", content=b"x" * 11_000_000)
        told = (400, {"error": "ERR max request size exceeded"})
        assert (answer.status_code, answer.json()) == told
        assert server.keys() == []
        assert http.post("/set/k", content=b"x" * 9_000_000).json() == {"result": "OK"}

    def test_daily_limit_until_midnight(self, context: Context) -> None:
        text = "-ERR max daily request limit exceeded"
        with KVServer(context, daily_limit=3) as server:
            line = ["INCR", "n"]
            assert sent(server, [line] * 5, "/pipeline") == [1, 2, 3, text, text]
            assert sent(server, line) == text
            server.clock.advance(9)
            assert sent(server, line) == text
            server.clock.advance(1)
            assert sent(server, line) == 4

    def test_commands_per_second(self, context: Context) -> None:
        text = "-ERR max requests limit exceeded. "
        with KVServer(context, max_requests_per_second=2) as server:
            lines = [["INCR", "n"]] * 3
            assert sent(server, lines, "/pipeline") == [1, 2, text]
            assert sent(server, lines, "/multi-exec") == text
            server.clock.advance(1)
            assert sent(server, ["INCR", "n"]) == 3

    def test_a_key_has_at_most_32_kilobytes(self, server: KVServer) -> None:
        fits, long = "k" * 32768, "k" * 32769
        text = "-ERR max key size exceeded. Limit: 32768 bytes, Actual: 32769 bytes"
        assert sent(server, ["SET", fits, long]) == "OK"
        assert sent(server, ["GET", long]) is None
        for line in (["SET", long, 1], ["MSET", "a", 1, long, 1], ["RENAME", fits, long],
                     ["HSET", long, "f", "v"], ["XADD", long, "*", "a", 1]):  # fmt: skip
            assert sent(server, line) == text
        assert sent(server, [["INCR", long]], "/pipeline") == [text]
        assert server.keys() == [fits]

    @pytest.mark.parametrize("settings", [{"max_key_size": None}, {"dialect": "redis"}])
    def test_unless_told_otherwise(self, context: Context, settings: dict[str, Any]) -> None:
        with KVServer(context, **settings) as server:
            assert sent(server, ["SET", "k" * 40_000, 1]) == "OK"

    def test_limits_of_data_in_scripts(self, context: Context) -> None:
        with KVServer(context, max_record_size=3) as server:
            script = "return redis.call('SET', KEYS[1], ARGV[1])"
            told = sent(server, ["EVAL", script, 1, "k" * 32769, 1])
            assert "ERR max key size exceeded. Limit: 32768 bytes" in told
            told = sent(server, ["EVAL", script, 1, "k", "four"])
            assert "max single record size exceeded" in told
            assert server.execute("SET", "k", "four") == "OK"

    def test_open_streams(self, context: Context) -> None:
        with KVServer(context, max_connections=1) as server:
            url, headers = server.url, {**server.headers, **EVENTS}
            with listening(server, "/subscribe/news") as lines:
                next(lines)
                refused = httpx.get(f"{url}/subscribe/news", headers=headers, timeout=5)
                assert refused.status_code == 400
                assert refused.json() == {"error": "ERR max concurrent connections exceeded"}
                assert httpx.get(f"{url}/ping", headers=server.headers).status_code == 200

    def test_pending_entries_of_a_consumer(self, context: Context) -> None:
        with KVServer(context, max_pending_entries=2) as server:
            server.load({"s": [("1-1", {"a": "1"}), ("2-1", {"a": "1"}), ("3-1", {"a": "1"})]})
            server.execute("XGROUP", "CREATE", "s", "g", "0")
            line = ["XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"]
            assert len(sent(server, line)[0][1]) == 2
            assert sent(server, line).startswith(
                "-ERR XReadGroup is cancelled. Pending Entries List limit per consumer is about to "
                "be reached. Limit: 2, Current PEL size: 2, Requested Read: 1"
            )


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
        gone = server._time.signal()
        silent = server._time.wait(
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
        server._time.wait_cap = 0.01
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
        server.execute("ACL", "SETUSER", "u", "on", ">pw", "+@all", "&news")
        token = server.execute("ACL", "RESTTOKEN", "u", "pw")
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
            assert answer.json() == {"error": f"ERR Command is not available: '{name}'"}


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)
ANY_HEADERS = [
    ("Upstash-Encoding", "base64"), ("Service-Response-Format", "resp2"), ("Upstash-Sync-Token", ""),
]  # fmt: skip
ANY_BODY = st.binary(max_size=30) | ANY_JSON.map(lambda value: json.dumps(value).encode())


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
            answer = server._app.answer(Request(method, path + query, headers, body))
            assert isinstance(answer, Answer)
            assert answer.status in (200, 400, 405)
            assert "bug" not in [problem.kind for problem in server._app.problems]


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
