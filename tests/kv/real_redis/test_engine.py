"""The REST interface in front of real servers: the same tests as in memory, and some of its own.

Redis and Valkey are started on private sockets; tests are skipped where neither is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import AbstractConnection

pytest.importorskip("redis")
if os.name == "nt":
    pytest.skip("the servers need Unix sockets", allow_module_level=True)

from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.inspect.data import PageQuery
from pytest_fakecloud.kv import errors, model
from pytest_fakecloud.kv import sse as streams
from pytest_fakecloud.kv.acl import make_token
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.inspect.data import LISTS, content
from pytest_fakecloud.kv.real_redis import namespace as namespaces
from pytest_fakecloud.kv.real_redis.links import ClusterLink, open_link
from pytest_fakecloud.kv.real_redis.rewriting import Answered, Prefixes, Rewriter
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING
from pytest_fakecloud.process import surroundings
from tests.harness import wait_until

from ...budget import cases
from ...clients.surface import Used
from ...harness import check_each, in_threads, together
from .. import test_routes
from ..backing import BINARIES, CLUSTER, MISSING, OWN, Server, publishing, started
from ..test_routes import EVENTS, STORIES, listening, shown

pytestmark = pytest.mark.slow
test_upstash_redis = pytest.importorskip("tests.clients.test_upstash_redis")
PASSWORD = make_token(b"secret").decode()
"""A password that the vendor's dialect accepts, too."""
SCENARIOS = tuple(test_upstash_redis.SCENARIOS)

NAMES = list(BINARIES) or [pytest.param("none", marks=MISSING)]
SHARES = [
    # The first server with the prefix, the last one (another, if two are installed) with the rest.
    *((name, "prefix") for name in [*BINARIES][:1]),
    *((name, isolation) for name in [*BINARIES][-1:] for isolation in ("database", "none")),
    *((name + CLUSTER, "prefix") for name in [*BINARIES][-1:]),
    (OWN, "prefix"),
]
SHARES = SHARES if BINARIES else [*SHARES, pytest.param(("none", "prefix"), marks=MISSING)]  # type: ignore[list-item]


def emptied(real: Server) -> None:
    for line in ("FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH", "CONFIG SET notify-keyspace-events"):
        words = line.encode().split()
        real.call(words if words[0] != b"CONFIG" else [*words, b""])
    for name in set(real.call([b"ACL", b"USERS"])) - {b"default", b"default_ro"}:
        real.call([b"ACL", b"DELUSER", name])


@pytest.fixture(scope="module", autouse=True)
def shared_tls_context() -> Iterator[None]:
    """Share one TLS context among clients: it costs twenty times the rest of a test."""
    surroundings.shared_tls_contexts[0].enter(surroundings)
    surroundings.shared_tls_contexts[0].refresh()
    yield
    surroundings.shared_tls_contexts[0].leave(surroundings)


@pytest.fixture(scope="module", params=SHARES, ids=lambda share: "-".join(share))
def share(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def real(share: tuple[str, str]) -> Iterator[Server]:
    real = started(share[0])
    yield real
    left = real.call([b"KEYS", b"*"]), set(real.call([b"ACL", b"USERS"]))
    real.close()
    if share[1] != "none":
        assert left[0] == [], "fakes left something behind"
        assert left[1] <= {b"default", b"default_ro"}, "fakes left something behind"


@pytest.fixture
def isolation(share: tuple[str, str]) -> str:
    return share[1]


@pytest.fixture
def make(real: Server, isolation: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KVServer]:
    made = partial(KVServer, engine=real.url, isolation=isolation)
    if isolation == "none":
        # With this isolation, the data of earlier tests stay.
        emptied(real)

    def made_if_possible(*arguments: Any, **settings: Any) -> KVServer:
        try:
            return made(*arguments, **settings)
        except ContractError as error:
            if "in-memory engine" not in str(error):
                raise
            pytest.skip(str(error))

    monkeypatch.setattr(test_routes, "KVServer", made_if_possible)
    return made


@pytest.fixture
def server(make: Callable[..., KVServer], context: Context) -> Iterator[KVServer]:
    with make(context) as server:
        if server._engine.settings.isolation == "none":  # type: ignore[attr-defined]
            server.set_baseline()
        yield server
        assert [violation.text for violation in context.violations if violation.kind == "bug"] == []


def at_once(cls: type) -> type:
    """Run the parametrized tests of a class on one fake, one set of parameters after another."""
    for name, test in vars(cls.__mro__[1]).items():
        if name.startswith("test_") and name not in vars(cls):
            wanted = signature(test).parameters
            marks = getattr(test, "pytestmark", [])
            if "context" not in wanted and any(mark.name == "parametrize" for mark in marks):
                setattr(cls, name, together(test))
    return cls


def again(cls: type) -> type:
    """Return a class with the same tests for real servers."""
    return pytest.mark.usefixtures("make")(at_once(type(cls.__name__, (cls,), {})))


def test_keys_are_listed_with_their_values(server: KVServer) -> None:
    server.load({"list": [1, 2, 3], "text": "abc"})
    keys = LISTS["keys"]
    rows = keys.page(server, PageQuery())["items"]
    assert [(row["key"], row["length"], row["preview"]) for row in rows] == [
        ("list", 3, ""), ("text", 3, "abc"),
    ]  # fmt: skip
    assert keys.item is not None
    item = keys.item(server, "text", PageQuery())
    assert (item["value"], item["is_editable"]) == ("abc", True)
    view = content(server)
    assert (view["count"], view["memory"]) == (2, None)


def test_pending_entries_of_streams_are_listed(server: KVServer) -> None:
    for line in (
        "XADD orders 1-1 item kettle", "XADD orders 1-2 item pan", "XADD orders 1-3 item lid",
        "XGROUP CREATE orders mailers 0", "XGROUP CREATE orders idlers $",
        "XREADGROUP GROUP mailers ada COUNT 2 STREAMS orders >", "XDEL orders 1-2",
    ):  # fmt: skip
        server.execute(*line.split())
    keys, pending = LISTS["keys"], LISTS["pending"]
    rows = pending.page(server, PageQuery())["items"]
    assert [(row["id"], row["consumer"], row["deliveries"], row["preview"]) for row in rows] == [
        ("orders mailers 1-1", "ada", 1, '{"item": "kettle"}'), ("orders mailers 1-2", "ada", 1, ""),
    ]  # fmt: skip
    assert rows[0]["idle_ms"] >= 0
    assert keys.item is not None
    groups = keys.item(server, "orders", PageQuery())["groups"]
    shown_groups = [(group["name"], group["waiting"], group["pending"]) for group in groups]
    assert shown_groups == [("idlers", 0, 0), ("mailers", 1, 2)]
    assert [consumer["name"] for consumer in groups[1]["consumers"]] == ["ada"]


TestMethods = again(test_routes.TestMethods)


class TestStories(again(test_routes.TestStories)):  # type: ignore[misc]
    @pytest.mark.parametrize("name", [name for name, (_, lines) in STORIES.items()
                                      if not name.startswith("in memory") and "\n@" not in
                                      "\n".join(lines)])  # fmt: skip
    def test_story(self, context: Context, name: str) -> None:
        """Play the stories that are for real servers too."""
        super().test_story(context, name)


def sent(server: KVServer, line: Any, path: str = "/") -> Any:
    answer = httpx.post(server.url + path, json=line, headers=server.headers)
    reply = shown(answer.json())
    failed = isinstance(reply, str) and reply.startswith("-")
    assert answer.status_code == (400 if failed else 200)
    return reply


def at_the_start_of_a_second(server: KVServer) -> int:
    """Wait for a point early in a second of the server's clock; return the second."""
    wait_until(lambda: server.clock.now_us() % 1_000_000 < 200_000)
    return server.clock.now_us() // 1_000_000


@pytest.mark.usefixtures("make")
class TestLimits(test_routes.TestLimits):
    @pytest.fixture
    def once(self, share: tuple[str, str]) -> None:
        if share != SHARES[0]:
            pytest.skip("real time is waited for once: what counts stands in front of each server")

    @pytest.mark.usefixtures("once")
    def test_daily_limit_until_midnight(
        self, make: Callable[..., KVServer], context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Midnight does not come on demand in real time, so a day lasts for a second here.
        monkeypatch.setattr(model, "_DAY_US", 1_000_000)
        text = f"-{errors.max_daily_requests(3, 3).decode()}"
        with make(context, daily_limit=3) as server:
            line = ["INCR", "n"]
            at_the_start_of_a_second(server)
            assert sent(server, [line] * 5, "/pipeline") == [1, 2, 3, text, text]
            assert sent(server, line) == text
            wait_until(lambda: sent(server, line) == 4)

    @pytest.mark.usefixtures("once")
    def test_commands_per_second(self, make: Callable[..., KVServer], context: Context) -> None:
        text = f"-{errors.max_requests(2, 2).decode()}"
        with make(context, max_requests_per_second=2) as server:
            at_the_start_of_a_second(server)
            lines = [["INCR", "n"]] * 3
            assert sent(server, lines, "/pipeline") == [1, 2, text]
            assert sent(server, lines, "/multi-exec") == text
            wait_until(lambda: sent(server, ["INCR", "n"]) == 3)


@at_once
class TestStreams(test_routes.TestStreams):
    def test_monitor(self, server: KVServer, http: httpx.Client) -> None:
        with listening(server, "/monitor") as lines:
            assert next(lines) == 'data: "OK"'
            http.post("/", json=["SET", "k", 'a"b\n'])
            line = next(lines)
        assert line.endswith('"SET" "k" "a\\"b\\n"')
        assert re.match(r"data: \d{10}\.\d{6} \[0 ", line)

    def test_silence_is_filled_with_heartbeats(  # type: ignore[override]
        self, server: KVServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streams, "HEARTBEAT_US", 20_000)
        with http.stream("GET", "/subscribe/news", headers=EVENTS) as response:
            lines = response.iter_lines()
            # Messages sent before the subscription are lost.
            assert "data: subscribe,news,1" in lines
            assert next(line for line in lines if line.startswith(":")) == ": heartbeat"
            server.execute("PUBLISH", "news", "x")
            assert "data: message,news,x" in lines

    def test_keys_expire_while_clients_listen(self, server: KVServer) -> None:
        if server._engine.settings.isolation != "none":  # type: ignore[attr-defined]
            pytest.skip("CONFIG SET reaches beyond a fake's share of a real server")
        server.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
        with listening(server, "/psubscribe/__keyevent*") as lines:
            next(lines)
            server.execute("SET", "k", "v", "PX", 20)
            assert next(lines) == "data: pmessage,__keyevent*,__keyevent@0__:expired,k"

    def test_a_subscription_outlives_its_connection(self, server: KVServer, real: Server) -> None:
        with listening(server, "/subscribe/news") as lines:
            assert next(lines) == "data: subscribe,news,1"
            real.call([b"CLIENT", b"KILL", b"TYPE", b"pubsub"])
            with publishing(server, "news", "again"):
                assert next(lines) == "data: message,news,again"

    def test_patterns_are_counted(self, server: KVServer) -> None:
        with listening(server, "/psubscribe/n*") as lines:
            assert next(lines) == "data: psubscribe,n*,1"
            assert server.execute("PUBSUB", "NUMPAT") == 1


class TestAnyInput:
    def test_the_answer_is_one_the_service_gives(self, server: KVServer) -> None:
        words = st.sampled_from([*COMMANDS]) | st.text(max_size=4)
        argument = (
            st.text(max_size=3) | st.integers() | st.sampled_from(["0", "1", "k", "STORE", "*"])
        )
        lines = st.builds(lambda name, rest: [*name.split(), *rest], words, st.lists(argument))

        @settings(database=None, max_examples=cases(10))
        @given(
            path=st.sampled_from(["/", "/pipeline", "/multi-exec"]),
            body=test_routes.ANY_BODY
            | st.lists(lines, max_size=4).map(lambda value: json.dumps(value).encode())
            | lines.map(lambda line: json.dumps(line).encode()),
        )
        def check(path: str, body: bytes) -> None:
            headers = [("Authorization", f"Bearer {server.token}")]
            answer = server._app.respond(Request("POST", path, headers, body))
            assert isinstance(answer, Answer)
            assert answer.status in (200, 400), (body, answer.body)
            assert "bug" not in [violation.kind for violation in server._app.violations]

        check()
        httpx.get(server.url + "/flushall", headers=server.headers)
        assert server.keys() == []


class TestOfficialClient:
    """The scenarios of the official Python client, sync and async in turn for the servers.

    Both send the same: `tests/clients/test_upstash_redis.py` compares them.
    """

    @pytest.mark.parametrize("name", SCENARIOS)
    def test_scenario(
        self, make: Callable[..., KVServer], share: tuple[str, str], name: str
    ) -> None:
        flavour = test_upstash_redis.FLAVOURS[SHARES.index(share) % 2]
        test_upstash_redis.run(name, flavour, Used(), lambda: make(Context.alone()))


class TestDatabasePort:
    def test_it_is_the_servers_own(self, server: KVServer) -> None:
        with pytest.raises(ContractError, match="has no database port: connect to that server"):
            _ = server.database_url

    @pytest.mark.skip("the server in front of which the fake is has the port, and no fake of it")
    def test_redis_py(self) -> None:
        """`tests/clients/test_redis_py.py` tests the in-memory engine's port."""


class TestFake:
    DATA: ClassVar[dict[str, Any]] = {
        "text": "v",
        "bytes": b"\xff\x00",
        "hash": {"a": "1", "b": "2"},
        "list": ["x", "y", "x"],
        "set": {"m", "n"},
        "board": [("ann", 1.5), ("bob", 2.0)],
        "stream": [("1-1", {"f": "v"}), ("2-0", {"g": "w"})],
    }

    def test_a_real_server_has_no_search_of_ours(self, server: KVServer) -> None:
        with pytest.raises(ContractError, match="search needs the in-memory engine"):
            server.search_index("books").explain("b:1", {})

    def test_a_close_is_enough(self, server: KVServer) -> None:
        server.close()
        server.close()
        assert server.closed

    def test_loaded_data_can_be_read(self, server: KVServer) -> None:
        server.load(self.DATA)
        assert server.contents() == self.DATA
        assert server.keys() == sorted(self.DATA)
        assert server.keys("b*") == ["board", "bytes"]
        assert server.value("none") is None
        assert server.scores("board") == dict(self.DATA["board"])
        with pytest.raises(ContractError, match=r"is of type zset, not hash: read it with scores"):
            server.hash("board")

    def test_arrays_can_be_read(self, server: KVServer) -> None:
        if server.execute("COMMAND", "INFO", "ARSET") == [None]:
            pytest.skip("the server has no arrays")
        values = {"array": {0: "a", 2**64 - 2: "b"}}
        server.load(values)
        assert server.contents() == values
        assert server.array("array") == values["array"]

    def test_ttl(self, server: KVServer) -> None:
        server.execute("SET", "k", "v", "EX", 100)
        assert 98 < server.ttl("k") <= 100
        assert (server.execute("PERSIST", "k"), server.ttl("k")) == (1, None)
        with pytest.raises(ContractError, match=r"'none' does not exist\. Existing keys: "):
            server.ttl("none")

    def test_a_snapshot_of_the_other_engine_is_refused(self, server: KVServer) -> None:
        server.load({"k": "v"})
        with KVServer(Context.alone()) as memory:
            for from_, to in ((server, memory), (memory, server)):
                with pytest.raises(ContractError, match="another kind of kv_server"):
                    to.restore(from_.snapshot())
        assert server.contents() == {"k": "v"}

    def test_snapshots_bring_values_and_expiry_back(self, server: KVServer) -> None:
        server.load(self.DATA)
        server.execute("SET", "soon", "v", "EX", 100)
        saved = server.snapshot()
        server.execute("FLUSHALL")
        server.execute("SET", "other", "x")
        for _ in range(2):
            server.restore(saved)
            assert server.contents() == {**self.DATA, "soon": "v"}
            assert 97 < server.ttl("soon") <= 100
        server.reset()
        assert server.keys() == []

    def test_many_keys_are_copied_in_batches(self, server: KVServer) -> None:
        server.load({f"key {at}": at for at in range(1234)})
        saved = server.snapshot()
        server.reset()
        assert server.execute("DBSIZE") == 0
        server.restore(saved)
        assert server.execute("DBSIZE") == 1234

    def test_users_are_copied(self, server: KVServer, share: tuple[str, str]) -> None:
        if share[0] == OWN:
            pytest.skip("this server has no selectors")
        server.execute(
            "ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~a)", "(%R~b* +get)", "+@read"
        )
        saved = server.snapshot()
        server.execute("ACL", "DELUSER", "ann")
        server.execute("ACL", "SETUSER", "bob", "on", "nopass")
        server.restore(saved)
        assert sorted(server.execute("ACL", "USERS")) == ["ann", "default"]

    def test_the_baseline_is_what_was_set(self, server: KVServer) -> None:
        server.load({"k": "v"})
        server.set_baseline()
        server.execute("DEL", "k")
        server.reset()
        assert server.contents() == {"k": "v"}

    def test_faults_and_races(self, server: KVServer, http: httpx.Client) -> None:
        server.faults.respond(500, {"error": "ERR"}, command="GET", times=1)
        assert http.get("/get/k").status_code == 500
        assert http.get("/get/k").status_code == 200
        with server.between(("GET", "SET"), run=["SET", "k", "stolen"]) as between:
            http.post("/pipeline", json=[["GET", "k"], ["SET", "k", 1, "NX"]])
        assert (between.hits, server.value("k")) == (1, "stolen")

    def test_many_clients_at_once(self, server: KVServer) -> None:
        def work() -> None:
            with httpx.Client(base_url=server.url, headers=server.headers) as http:
                for _ in range(20):
                    lines = [["INCR", "n"], ["INCR", "m"]]
                    first, second = http.post("/multi-exec", json=lines).json()
                    torn.append(first != second)

        torn: list[bool] = []
        in_threads(*[work] * 8)
        assert torn == [False] * 160
        assert server.value("n") == "160"


class TestScripts:
    """The vendor's flag in the shebang line of a script, which real servers do not know."""

    CODES: ClassVar[list[str]] = [
        "#!lua flags=allow-key-locking\nreturn {KEYS[1], ARGV[1]}",
        "#!lua flags=no-writes,allow-key-locking\nreturn {KEYS[1], ARGV[1]}",
        "#!lua flags=allow-key-locking,no-writes\nreturn {KEYS[1], ARGV[1]}",
        "#!lua\nreturn {KEYS[1], ARGV[1]}",
        "return {KEYS[1], ARGV[1]}",
    ]

    def test_a_digest_is_that_of_the_clients_text(self, server: KVServer) -> None:
        check_each(partial(self.has_its_digest, server), [(code,) for code in self.CODES])

    def has_its_digest(self, server: KVServer, code: str) -> None:
        run = server.execute
        # The server's script cache is shared, and may hold this script already.
        code = f"{code} -- {server.token} {self.CODES.index(code)}"
        sha = hashlib.sha1(code.encode()).hexdigest()
        with pytest.raises(CommandError, match="NOSCRIPT"):
            run("EVALSHA", sha, 1, "k", "x")
        assert run("EVAL", code, 1, "k", "x") == ["k", "x"]
        assert run("EVALSHA", sha.upper(), 1, "k", "x") == ["k", "x"]
        assert run("SCRIPT", "EXISTS", sha, "0" * 40) == [1, 0]
        code += "."
        sha = hashlib.sha1(code.encode()).hexdigest()
        assert run("SCRIPT", "LOAD", code) == sha
        assert run("EVALSHA", sha, 1, "k", "x") == ["k", "x"]
        if "no-writes" in code:
            assert run("EVALSHA_RO", sha, 1, "k", "x") == ["k", "x"]
        lines = [["EVAL", code, 1, "k", "x"], ["EVALSHA", sha, 1, "k", "y"]]
        assert sent(server, lines, "/multi-exec") == [["k", "x"], ["k", "y"]]

    def test_other_flags_are_the_servers(self, server: KVServer) -> None:
        for flags in ("no-writes", "allow-key-locking,no-writes"):
            code = f"#!lua flags={flags}\nreturn redis.call('SET', KEYS[1], 1)"
            with pytest.raises(CommandError, match="not allowed from read-only scripts"):
                server.execute("EVAL", code, 1, "k")
        for flag in ("nonsense", "nonsense,allow-key-locking"):
            with pytest.raises(CommandError, match="Unexpected flag in script shebang: nonsense"):
                server.execute("EVAL", f"#!lua flags={flag}\nreturn 1", 0)

    def test_real_ones_refuse_it(
        self, make: Callable[..., KVServer], share: tuple[str, str]
    ) -> None:
        if share[0] == OWN:
            pytest.skip("this server knows the flag")
        with (
            make(Context.alone(), dialect="redis") as server,
            pytest.raises(CommandError, match="Unexpected flag in script shebang"),
        ):
            server.execute("EVAL", self.CODES[0], 1, "k", "x")


class TestUsers:
    def test_tokens_follow_their_user(self, server: KVServer, http: httpx.Client) -> None:
        def ask(path: str) -> httpx.Response:
            return httpx.get(server.url + path, headers={"Authorization": f"Bearer {token}"})

        rules = [
            "on",
            f">{PASSWORD}",
            "~cache:*",
            "+@read",
            "+@write",
            "+multi",
            "+exec",
            "-flushdb",
        ]
        assert http.post("/", json=["ACL", "SETUSER", "ann", *rules]).json() == {"result": "OK"}
        token = http.get(f"/acl/resttoken/ann/{PASSWORD}").json()["result"]
        assert ask("/set/cache:1/v").json() == {"result": "OK"}
        assert ask("/acl/whoami").json()["error"].startswith("NOPERM")
        for path in ("/get/other", "/set/other/v", "/flushdb", "/eval/return%201/0"):
            answer = ask(path)
            assert (answer.status_code, answer.json()["error"][:6]) == (400, "NOPERM")
            mark = server._engine.namespace.prefixes.users.decode()  # type: ignore[attr-defined]
            assert not mark or mark not in answer.text
        http.get("/acl/setuser/ann/+flushdb")
        assert ask("/flushdb").json() == {"result": "OK"}
        assert server.keys() == []
        lines = [["SET", "cache:1", 1], ["GET", "cache:1"]]
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(server.url + "/multi-exec", json=lines, headers=headers)
        assert answer.json() == [{"result": "OK"}, {"result": "1"}]
        answer = httpx.post(server.url + "/multi-exec", json=[["GET", "x"]], headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("EXECABORT")
        http.get("/acl/setuser/ann/-multi")
        lines = [["DEL", "cache:1"], ["SET", "cache:1", 2]]
        answer = httpx.post(server.url + "/multi-exec", json=lines, headers=headers)
        assert (answer.status_code, answer.json()["error"][:6]) == (400, "NOPERM")
        assert server.value("cache:1") == "1"
        http.get("/acl/deluser/ann")
        assert ask("/get/cache:1").status_code == 401

    def test_a_deleted_user_is_rejected_on_its_open_connection(
        self, server: KVServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        http.post("/", json=["ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "+@all"])
        headers = {
            "Authorization": f"Bearer {http.get(f'/acl/resttoken/ann/{PASSWORD}').json()['result']}"
        }
        assert httpx.get(f"{server.url}/get/a", headers=headers).json() == {"result": None}
        # As if the server closed the connection a moment after the pool has looked at it.
        monkeypatch.setattr(AbstractConnection, "can_read", lambda *arguments, **options: False)
        http.get("/acl/deluser/ann")
        answer = httpx.get(f"{server.url}/get/a", headers=headers)
        assert answer.status_code == 401, answer.text

    def test_tokens_for_wrapped_passwords(self, server: KVServer, http: httpx.Client) -> None:
        def ask(*line: object) -> Any:
            return http.post("/", json=["ACL", *line]).json()

        first, second = "correct horse battery", "battery horse correct"
        wrapping = [ask("GENTOKEN", "ann", password)["result"] for password in (first, second)]
        rules = ["on", *(f">{token}" for token in wrapping), "~*", "+get"]
        assert ask("SETUSER", "ann", *rules) == {"result": "OK"}
        tokens = [ask("RESTTOKEN", "ann", password)["result"] for password in (first, second)]
        assert ask("SETUSER", "ann", f"<{wrapping[0]}") == {"result": "OK"}
        statuses = [httpx.get(f"{server.url}/get/k?_token={token}").status_code for token in tokens]
        assert statuses == [401, 200]
        assert "Wrong password" in ask("RESTTOKEN", "ann", first)["error"]
        assert ask("GENTOKEN", "ann", "123") == {"error": "ERR The password is too weak"}
        assert "wrong number of arguments" in ask("GENTOKEN", "ann", first, "x")["error"]

    def test_wrong_ones(self, server: KVServer, http: httpx.Client) -> None:
        for name, password in [("nobody", "x"), ("default", ""), ("default_ro", "x")]:
            answer = http.post("/", json=["ACL", "RESTTOKEN", name, password])
            text = f'ERR Wrong password or user "{name}" does not exist'
            assert answer.json() == {"error": text}
        assert http.get("/acl/setuser/default/off").status_code == 400
        assert http.get("/acl/deluser/default").status_code == 400
        for token in ("acl-", "acl-!!", "acl-MTpi", "acl-OTk6YQ"):
            assert httpx.get(f"{server.url}/ping?_token={token}").status_code == 401

    def test_names_are_the_clients_own(self, server: KVServer, share: tuple[str, str]) -> None:
        if share[0] == OWN:
            pytest.skip("this server has no rules for reading only")
        server.execute(
            "ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~a:*", "%R~b:*", "&news", "+get"
        )
        assert sorted(server.execute("ACL", "USERS")) == ["ann", "default"]
        lines = server.execute("ACL", "LIST")
        line = next(line for line in lines if line.startswith("user ann on "))
        assert "~a:* %R~b:*" in line
        assert "&news" in line
        user = server.execute("ACL", "GETUSER", "ann")
        assert "~a:* %R~b:*" in user
        assert server.execute("ACL", "DRYRUN", "ann", "SET", "k", "v") != "OK"
        assert server.execute("ACL", "WHOAMI") == "default"


def test_a_deeply_nested_reply_is_cut_off(http: httpx.Client) -> None:
    script = "local t = {} for i = 1, 3000 do t = {t, 'x', {1}} end return t"
    reply = http.post("/", json=["EVAL", script, 0]).json()["result"]
    depth = 0
    while isinstance(reply, list):
        assert reply[1:] == ["x", [1]] or depth == 99
        reply, depth = reply[0], depth + 1
    assert (depth, reply) == (100, "ERR reached lua stack limit")
    assert http.post("/", json=["ECHO", "next"]).json() == {"result": "next"}


def test_connections_send_no_library_name(real: Server, make: Callable[..., KVServer]) -> None:
    with make(Context.alone()) as server:
        server.execute("SET", "k", "v")
        clients = str(real.call([b"CLIENT", b"LIST"]))
        assert " cmd=" in clients
        assert "redis-py" not in clients


class TestSharing:
    """Two fakes on one server do not see each other's data."""

    @pytest.fixture(autouse=True)
    def apart(self, isolation: str) -> None:
        if isolation == "none":
            pytest.skip('isolation="none" shows all there is, and lets everything be done')

    @pytest.fixture
    def other(self, make: Callable[..., KVServer]) -> Iterator[KVServer]:
        with make(Context.alone()) as other:
            other.load({"k": "theirs", "theirs": "x", "l": ["1"]})
            yield other

    def test_commands_about_all_keys(self, server: KVServer, other: KVServer) -> None:
        before = other.contents()
        run = server.execute
        assert (run("DBSIZE"), run("RANDOMKEY"), run("KEYS", "*")) == (0, None, [])
        assert run("SCAN", 0, "COUNT", 1000) == ["0", []]
        server.load({"mine": "v", "ml": ["2", "1"]})
        assert sorted(run("KEYS", "*")) == ["mine", "ml"]
        assert run("KEYS", "m?") == ["ml"]
        assert run("RANDOMKEY") in ("mine", "ml")
        assert run("DBSIZE") == 2
        assert run("SCAN", 0, "MATCH", "ml", "COUNT", 1000)[1] == ["ml"]
        cursor, names = run("SCAN", 0, "COUNT", 1000, "WITHTYPE")
        assert (cursor, sorted(names)) == ("0", ["list", "mine", "ml", "string"])
        assert run("SCAN", 0, "TYPE", "list", "COUNT", 1000)[1] == ["ml"]
        for line in (["FLUSHALL", "NOW"], ["FLUSHDB", "SYNC", "SYNC"]):
            with pytest.raises(CommandError, match="syntax error"):
                run(*line)
        assert run("DBSIZE") == 2
        assert run("FLUSHALL") == "OK"
        assert (server.keys(), other.contents()) == ([], before)

    def test_in_a_transaction_too(self, server: KVServer, other: KVServer) -> None:
        before = other.contents()
        server.load({"a": "1", "b": "2"})
        lines = [["DBSIZE"], ["FLUSHDB"], ["DBSIZE"], ["SET", "c", 3], ["KEYS", "*"]]
        assert sent(server, lines, "/multi-exec") == [2, "OK", 0, "OK", ["c"]]
        assert other.contents() == before

    def test_keys_that_come_back(self, server: KVServer, other: KVServer) -> None:
        run = server.execute
        server.load({"l": ["a"], "z": [("m", 1.0)], "s": [("1-1", {"f": "v"})]})
        assert run("LMPOP", 2, "x", "l", "LEFT") == ["l", ["a"]]
        assert run("ZMPOP", 1, "z", "MIN") == ["z", [["m", "1"]]]
        assert run("XREAD", "BLOCK", 0, "STREAMS", "s", "0") == [["s", [["1-1", ["f", "v"]]]]]
        assert run("XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", "$") is None
        assert run("EVAL", "return KEYS", 2, "a", "b") == ["a", "b"]
        run("XGROUP", "CREATE", "s", "g", "0")
        read = run("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
        assert read == [["s", [["1-1", ["f", "v"]]]]]

    def test_keys_in_unusual_places(self, server: KVServer, other: KVServer) -> None:
        run = server.execute
        before = other.contents()
        server.load({"l": ["2", "1"], "w_1": "9", "w_2": "3", "h": {"f": "x"}})
        assert run("SORT", "l", "BY", "w_*", "GET", "#", "GET", "w_*") == ["2", "3", "1", "9"]
        assert run("SORT", "l", "LIMIT", 0, 1, "STORE", "a", "STORE", "k") == 1
        assert (server.value("k"), server.value("a")) == (["1"], None)
        run("GEOADD", "g", 13.4, 52.5, "berlin")
        assert run("GEORADIUS", "g", 13, 52, 200, "km", "STORE", "a", "STORE", "theirs") == 1
        assert run("COPY", "l", "k", "REPLACE") == 1
        assert run("COPY", "l", "m", "DB", 0) == 1
        for line in (["COPY", "l", "n", "DB", "5"], ["MOVE", "l", "5"]):
            with pytest.raises(CommandError, match="DB index is out of range"):
                run(*line)
        assert run("BITOP", "OR", "k", "w_1", "w_2") == 1
        assert run("OBJECT", "ENCODING", "h") in ("listpack", "ziplist")
        assert run("WAIT", 1, 0) == 0
        assert run("UNLINK") == 0
        assert other.contents() == before

    def test_scripts_stay_inside(self, server: KVServer, other: KVServer) -> None:
        run = server.execute
        before = other.contents()
        assert run("EVAL", "return redis.call('SET', KEYS[1], 'v')", 1, "k") == "OK"
        full = other._engine.namespace.prefixes.keys.decode() + "k"  # type: ignore[attr-defined]
        if server._engine.settings.isolation == "prefix":  # type: ignore[attr-defined]
            for code in (f"redis.call('DEL', '{full}')", "redis.call('SET', 'k', 'v')"):
                for line in (["EVAL", code, 0], ["EVAL_RO", code, 0]):
                    with pytest.raises(CommandError):
                        run(*line)
        with pytest.raises(CommandError):
            run("EVAL", "return redis.call('FLUSHALL')", 0)
        lines = [["EVAL", "return redis.call('FLUSHALL')", 0]]
        assert sent(server, lines, "/multi-exec")[0].startswith("-")
        assert (server.value("k"), other.contents()) == ("v", before)

    def test_channels(self, server: KVServer, other: KVServer) -> None:
        with listening(other, "/subscribe/news") as lines:
            assert next(lines) == "data: subscribe,news,1"
            assert server.execute("PUBLISH", "news", "x") == 0
            assert server.execute("PUBSUB", "CHANNELS") == []
            assert other.execute("PUBSUB", "CHANNELS", "n*") == ["news"]
            assert server.execute("PUBSUB", "NUMPAT") == 0

    def test_the_monitor_shows_only_ones_own(self, server: KVServer, other: KVServer) -> None:
        with listening(server, "/monitor") as lines:
            next(lines)
            other.execute("SET", "k", "secret")
            server.execute("SET", "k", "v")
            assert next(lines).endswith('"SET" "k" "v"')

    def test_monitors_end_one_by_one(self, server: KVServer) -> None:
        with listening(server, "/monitor") as left:
            next(left)
            with listening(server, "/monitor") as lines:
                next(lines)
                server.execute("SET", "k", "1")
                assert next(lines).endswith('"SET" "k" "1"')
                assert next(left).endswith('"SET" "k" "1"')
            server.execute("SET", "k", "2")
            assert next(left).endswith('"SET" "k" "2"')
            server.close()
            with pytest.raises(httpx.RemoteProtocolError):
                list(left)

    def test_users(self, server: KVServer, other: KVServer) -> None:
        server.execute(
            "ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "allkeys", "allchannels", "+@all"
        )
        assert other.execute("ACL", "USERS") == ["default"]
        token = server.execute("ACL", "RESTTOKEN", "ann", PASSWORD)
        assert httpx.get(f"{other.url}/ping?_token={token}").status_code == 401
        server.load({"k": "v"})
        answer = httpx.get(f"{server.url}/get/k?_token={token}")
        assert answer.json() == {"result": "v"}

    BEYOND = (
        "CONFIG SET maxmemory 1", "SCRIPT FLUSH", "FUNCTION FLUSH", "FUNCTION LIST", "SAVE",
         "ACL LOAD", "ACL LOG", "SLOWLOG GET", "LATENCY RESET", "MODULE LOAD x", "BGSAVE",
         "CONFIG RESETSTAT", "MEMORY PURGE", "SHUTDOWN", "DEBUG SLEEP 1", "SWAPDB 0 1", "SYNC",
         "MIGRATE h 1 k 0 1", "REPLICAOF h 1", "FAILOVER",
    )  # fmt: skip

    def test_commands_beyond_the_share_are_rejected(self, server: KVServer) -> None:
        def is_refused(line: str) -> None:
            with pytest.raises(CommandError, match="is not available with this engine") as caught:
                server.execute(*line.split())
            text = str(caught.value)
            assert "in-memory engine" in text or "server process" in text

        check_each(is_refused, [(line,) for line in self.BEYOND])


class TestWholeServer:
    """Commands that only ``isolation="none"`` permits."""

    @pytest.fixture(autouse=True)
    def whole(self, isolation: str) -> None:
        if isolation != "none":
            pytest.skip("reaches beyond a fake's share of a real server")

    def test_snapshots_hold_functions_and_every_user(self, server: KVServer) -> None:
        def library(name: str) -> list[str]:
            code = f"redis.register_function('{name}', function() return '{name}' end)"
            return ["FUNCTION", "LOAD", f"#!lua name={name}\n{code}"]

        server.execute(*library("kept"))
        server.execute("ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "+get")
        saved = server.snapshot()
        server.execute("FUNCTION", "FLUSH")
        server.execute(*library("later"))
        server.execute("ACL", "DELUSER", "ann")
        server.execute("ACL", "SETUSER", "bob", "on", "nopass")
        server.execute("ACL", "SETUSER", "fakecloud-1234+scripts", "on")
        server.restore(saved)
        assert server.execute("FCALL", "kept", 0) == "kept"
        with pytest.raises(CommandError, match="Function not found"):
            server.execute("FCALL", "later", 0)
        assert sorted(server.execute("ACL", "USERS")) == [
            "ann", "default", "fakecloud-1234+scripts",
        ]  # fmt: skip


class TestSettings:
    @pytest.fixture(autouse=True)
    def numbered(self, share: tuple[str, str]) -> None:
        if share[0] == OWN:
            pytest.skip("has one database, as the service has")
        if share[0].endswith(CLUSTER):
            pytest.skip("has one database, as every cluster has")

    def test_a_clock_that_is_not_real_time(self, real: Server) -> None:
        url = real.url
        for clock in ({"now": "2026-01-01T00:00:00Z"}, {"clock": "frozen"}):
            with Cloud(**clock) as cloud, pytest.raises(ContractError, match="in-memory engine"):
                cloud.kv_server(engine=url)

    def test_time_cannot_be_moved_while_it_is_attached(self, real: Server) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server(engine=real.url)
            for move in (
                lambda: cloud.clock.advance(1),
                lambda: cloud.clock.move_to("2100-01-01T00:00:00Z"),
                cloud.clock.freeze,
                cloud.clock.advance_to_next,
            ):
                with pytest.raises(ContractError, match="in-memory engine"):
                    move()
            server.close()
            cloud.clock.advance(1)

    def test_a_prefix_that_processes_share(self, real: Server) -> None:
        emptied(real)  # With isolation="none", the data of earlier tests stay.
        url = f"{real.url}?prefix=team:"
        with Cloud() as cloud:
            first, second = (cloud.kv_server(engine=url) for _ in range(2))
            first.load({"k": "v"})
            assert second.contents() == {"k": "v"}
            assert real.call([b"KEYS", b"*"]) == [b"team:k"]
            first.execute("ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "+get")
            token = first.execute("ACL", "RESTTOKEN", "ann", PASSWORD)
            assert httpx.get(f"{second.url}/get/k?_token={token}").json() == {"result": "v"}
            first.close()
            assert second.contents() == {"k": "v"}
            second.execute("FLUSHALL")
            second.execute("ACL", "DELUSER", "ann")

    def test_a_prefix_with_the_signs_of_patterns(self, real: Server) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server(engine=f"{real.url}?prefix=t[a]*:")
            assert server.execute("EVAL", "return redis.call('SET', KEYS[1], 'v')", 1, "k") == "OK"
            server.execute("ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "&n*", "+get")
            token = server.execute("ACL", "RESTTOKEN", "ann", PASSWORD)
            assert httpx.get(f"{server.url}/get/k?_token={token}").json() == {"result": "v"}
            user = server.execute("ACL", "GETUSER", "ann")
            assert user[user.index("keys") + 1] == "~*"
            assert user[user.index("channels") + 1] == "&n*"
            server.execute("DEL", "k")
            server.execute("ACL", "DELUSER", "ann")

    def test_a_database_that_cannot_be_emptied_is_not_kept(self, real: Server) -> None:
        real.call(b"ACL SETUSER ann on >pw ~* &* +@all -flushdb".split())
        url = real.url.replace("://", "://ann:pw@") + "?db=5"
        with Cloud() as cloud, pytest.raises(ContractError, match="rejected a command: NOPERM"):
            cloud.kv_server(engine=url, isolation="database")
        real.call([b"ACL", b"DELUSER", b"ann"])
        assert real.call([b"EXISTS", b"pytest-fakecloud:database:5"]) == 0

    def test_without_isolation_all_there_is_is_shown_and_kept(self, real: Server) -> None:
        url = f"{real.url}?db=9"
        with Cloud() as cloud:
            server = cloud.kv_server(engine=url, isolation="none")
            server.load({"k": "v"})
            with pytest.raises(ContractError, match="set_baseline"):
                server.reset()
            server.set_baseline()
            server.execute("SET", "other", "x")
            assert server.execute("CONFIG", "SET", "maxmemory", "0") == "OK"
            server.reset()
            assert server.contents() == {"k": "v"}
        real.call([b"SELECT", b"9"])
        assert real.call([b"GET", b"k"]) == b"v"
        real.call([b"FLUSHDB"])
        real.call([b"SELECT", b"0"])

    def test_databases_are_given_out_once(self, real: Server) -> None:
        url = real.url
        with Cloud() as cloud:
            servers = [cloud.kv_server(engine=url, isolation="database") for _ in range(15)]
            numbers = {server._engine.namespace.link.database for server in servers}
            assert numbers == set(range(1, 16))
            with pytest.raises(ContractError, match="every database but 0"):
                cloud.kv_server(engine=url, isolation="database")
            with pytest.raises(ContractError, match=r"database 3 .* is in use"):
                cloud.kv_server(engine=f"{url}?db=3", isolation="database")
            servers[0].close()
            again = cloud.kv_server(engine=url, isolation="database")
            assert again._engine.namespace.link.database in numbers

    def test_a_lost_database_belongs_to_the_other_process(
        self, real: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = real.url
        real.call([b"SELECT", b"0"])
        with Cloud() as cloud:
            server = cloud.kv_server(engine=url, isolation="database")
            number = server._engine.namespace.link.database
            server.execute("ACL", "SETUSER", "ann")
            saved = server.snapshot()
            monkeypatch.setattr(namespaces, "_EXTEND_SECONDS", 0)
            claim = b"pytest-fakecloud:database:%d" % number
            real.call([b"DEL", claim])
            assert server.execute("SET", "k", "v") == "OK", "the claim was free"
            real.call([b"SET", claim, b"other"])
            for _ in range(2):
                for use in (
                    lambda: server.execute("GET", "k"),
                    server.contents,
                    server.reset,
                    server.snapshot,
                    lambda: server.restore(saved),
                ):
                    with pytest.raises(ContractError, match=f"has claimed database {number}"):
                        use()
            server.close()
            assert b"fakecloud-db%d-ann" % number in real.call([b"ACL", b"USERS"])
            assert real.call([b"GET", claim]) == b"other"
            real.call([b"DEL", claim])
        with Cloud() as cloud:
            cloud.kv_server(engine=f"{url}?db={number}", isolation="database")


class TestAddresses:
    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"engine": "mysql://x"}, "supported schemes: redis"),
            ({"engine": "redis://"}, "supported schemes: redis"),
            ({"engine": "redis://127.0.0.1:x/0"}, "is not a valid URL"),
            ({"engine": "redis://u:secret@127.0.0.1:1"}, "is not reachable"),
            ({"engine": "redis://127.0.0.1:1?colour=red"}, "unexpected keyword argument 'colour'"),
            ({"engine": "redis://127.0.0.1:1?password=secret&colour=red"}, "is not a valid URL"),
            ({"engine": "redis+cluster://127.0.0.1:1,127.0.0.1:x"}, "is not a valid URL"),
            ({"engine": "redis://u:secret@[::1/0"}, "is not a valid URL: Invalid IPv6 URL"),
            ({"engine": "u:secret@127.0.0.1:1"}, "'***@127.0.0.1:1' is not the URL of a server"),
            ({"engine": "redis+cluster://127.0.0.1:1,"}, "'' is not a host name"),
            ({"engine": "redis+cluster://127.0.0.1:1,::1"}, "is not a valid URL"),
            ({"engine": "redis+cluster://127.0.0.1:1?cluster=1"}, "is not reachable"),
            ({"engine": "redis+sentinel://127.0.0.1:1,127.0.0.1:x/x"}, "is not a valid URL"),
            ({"engine": "redis+sentinel://127.0.0.1:1"}, "does not name the primary"),
            ({"engine": "redis+sentinel://127.0.0.1:1/x"}, "is not reachable"),
            ({"engine": "redis+cluster://127.0.0.1:1"}, "is not reachable"),
            ({"engine": "redis+cluster://127.0.0.1:1", "isolation": "none"}, "single database"),
            ({"engine": "redis://127.0.0.1:1", "isolation": "all"}, "'database' or 'none'"),
        ],
    )
    def test_mistakes_are_named(self, settings: dict[str, str], text: str) -> None:
        with Cloud() as cloud, pytest.raises(ContractError) as caught:
            cloud.kv_server(**settings)
        assert text in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_addresses_of_nodes(self) -> None:
        link = open_link("redis+cluster://u:p@[::1]:7000,example.org,127.0.0.1:7001")
        assert isinstance(link, ClusterLink)
        assert link._nodes == [("::1", 7000), ("example.org", 6379), ("127.0.0.1", 7001)]


class TestRewriting:
    """Every command of the table keeps its keys inside the share."""

    def rewriter(self) -> Rewriter:
        prefixes = Prefixes(b"P:", b"C:", b"U-", shared=True)
        return Rewriter(prefixes, fraction=lambda: 0.5, patterns=lambda: 0)

    def test_every_key_gets_its_prefix(self) -> None:
        keyed = [spec for spec in COMMANDS.values() if spec.keys]
        assert len(keyed) > 200
        check_each(self.keeps_its_keys_inside, [(spec,) for spec in keyed])

    def keeps_its_keys_inside(self, spec: Any) -> None:
        rewriter = self.rewriter()
        for count in range(spec.least, spec.least + 6):
            for filler in (b"1", b"2", b"STORE", b"STREAMS", b"k"):
                argv = [*spec.name.encode().split(), *[filler] * count][:count]
                try:
                    sent = rewriter.prepare(spec, list(argv))
                except CommandError:
                    continue
                if isinstance(sent, Answered) or sent.emulated:
                    continue
                for place, key in spec.key_positions(sent.argv):
                    if not key.is_channel:
                        assert sent.argv[place].startswith(b"P:"), sent.argv

    def test_undeclared_commands_are_rejected(self) -> None:
        assert EVERYTHING.find([b"NOSUCH"]) is None
        with pytest.raises(CommandError, match="unknown command"):
            self.rewriter().prepare(None, [b"NOSUCH", b"k"])


def test_nothing_of_it_is_imported_without_an_engine() -> None:
    import sys

    code = (
        "import json, sys\n"
        "from pytest_fakecloud.cloud.cloud import Cloud\n"
        "with Cloud() as cloud: cloud.kv_server()\n"
        "print(json.dumps([name for name in ('redis', 'confluent_kafka') if name in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []
