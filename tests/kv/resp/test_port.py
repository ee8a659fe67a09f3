"""The database port: both protocols, connection state, blocking, pushes, faults, and REST."""

from __future__ import annotations

import gc
import re
import selectors
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.faults.answers import Response
from pytest_fakecloud.http import hub
from pytest_fakecloud.http.app import FAULTS
from pytest_fakecloud.http.messages import AnyResponse, Proceed, Request
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.resp.port import PortConnection
from pytest_fakecloud.kv.resp.wire import Outbox
from tests.budget import cases
from tests.harness import in_threads, wait_until
from tests.kv.comparison import wire
from tests.kv.comparison.wire import Error, NilArray, Status, Typed
from tests.kv.conftest import NOW
from tests.notations import Player, scenarios

OK = Status(b"OK")
PATIENCE = 10.0


class Client:
    def __init__(self, server: KVServer, *, login: bool = True) -> None:
        where, _, port = server.database_url.rpartition(":")
        self.port = int(port)
        self.password = where.rpartition("@")[0].rpartition(":")[2]
        self.server = server
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.settimeout(PATIENCE)
        self.stream = self.socket.makefile("rb")
        if login:
            assert self("AUTH", self.password) == OK

    def __call__(self, *words: Any) -> Any:
        self.send(*words)
        return self.read()

    def each(self, *lines: str) -> list[Any]:
        return [self(line) for line in lines]

    def send(self, *words: Any) -> None:
        if len(words) == 1 and isinstance(words[0], str):
            words = tuple(words[0].split())
        self.argv = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.raw(wire.pack(self.argv))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Any:
        return wire.read(self.stream)

    def silent(self) -> bool:
        self.socket.settimeout(0.05)
        try:
            return not self.stream.peek(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE)
            self.stream = self.socket.makefile("rb")

    def ended(self) -> bool:
        try:
            return self.stream.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


Connect = Callable[..., Client]


@pytest.fixture(autouse=True, params=["DefaultSelector", "PollSelector", "SelectSelector"])
def selector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the port with each selector that this system has."""
    if request.param == "DefaultSelector":
        yield request.param
        return
    if not hasattr(selectors, request.param):
        pytest.skip(f"this system has no {request.param}")
    monkeypatch.setattr(selectors, "DefaultSelector", getattr(selectors, request.param))
    own = hub.Hub()
    monkeypatch.setattr(hub, "_shared", own)
    yield request.param
    own.stop()


@pytest.fixture
def server(context: Context) -> Iterator[KVServer]:
    with KVServer(context) as server:
        yield server
        assert context.violations == []


@pytest.fixture
def connect(server: KVServer) -> Iterator[Connect]:
    with ExitStack() as stack:

        def open_one(to: KVServer = server, **options: Any) -> Client:
            client = Client(to, **options)
            stack.callback(client.close)
            return client

        yield open_one


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


def blocked(server: KVServer, count: int = 1) -> None:
    wait_until(lambda: len(server._engine.waiters) == count)


DIALOGUES = scenarios(Path(__file__).with_name("dialogues.txt"))


def shown(reply: Any) -> str:
    """Return a reply as the dialogues have it."""
    if isinstance(reply, Typed):
        return reply.kind.decode() + shown(reply.value).strip("'")
    if isinstance(reply, NilArray):
        return "nil[]"
    if isinstance(reply, Status | Error):
        return "+-"[isinstance(reply, Error)] + reply.text.decode()
    if isinstance(reply, list):
        return f"[{', '.join(map(shown, reply))}]"
    return "nil" if reply is None else repr(reply).removeprefix("b")


class Dialogue(Player):
    """Plays actions of clients and of the test; ``stack`` closes the clients."""

    def __init__(self, server: KVServer, stack: ExitStack, lines: list[str]) -> None:
        super().__init__()
        self.server = server
        self.stack = stack
        self.values = set(re.findall(r"\$(\w+)", "\n".join(lines)))
        self.kept["password"] = server.database_url.rpartition("@")[0].rpartition(":")[2]
        self.clients: dict[str, Client] = {}

    @property
    def fake(self) -> KVServer:
        return self.server

    def client(self, name: str) -> Client:
        if name not in self.clients:
            client = self.clients[name] = Client(self.server, login=name != "new")
            self.stack.callback(client.close)
            if name in self.values:
                self.kept[name] = str(client("CLIENT ID"))
        return self.clients[name]

    def step(self, line: str, reply: str) -> None:
        name, _, words = line.partition(": ")
        if name == "test":
            self.server.execute(*words.split())
        elif name.startswith("blocked "):
            blocked(self.server, int(name.split()[1]))
        elif name == "running":
            wait_until(lambda: self.server._engine.scripting.running)
        else:
            say(self.client(name), words, reply, raw=name == "raw")


@pytest.mark.parametrize("name", DIALOGUES)
def test_dialogue(name: str) -> None:
    context = Context.alone(now=NOW)
    context.timekeeper.wait_cap = 60.0
    settings, lines = DIALOGUES[name]
    with KVServer(context, **settings) as server, ExitStack() as stack:
        Dialogue(server, stack, lines).play(lines)
        assert context.violations == []


def say(client: Client, words: str, expected: str, *, raw: bool) -> None:
    if words in ("silent", "ended"):
        assert getattr(client, words)()
        return
    if raw:
        client.raw(words.encode().decode("unicode_escape").encode())
    elif " ; " in words:
        client.each(*words.split(" ; "))
    elif words:
        client.send(*wire.words(words))
    if expected:
        reply = shown(client.read())
        beginning, dots, _ = expected.partition(" ...")
        assert expected == "*" or (reply.startswith(beginning) if dots else reply == expected)


class TestAddress:
    def test_the_url_has_the_password_and_a_port_of_its_own(self, server: KVServer) -> None:
        url = server.database_url
        assert url.startswith(f"redis://default:{server._password}@127.0.0.1:")
        assert str(url.rsplit(":", 1)[1]) not in server.url

    def test_it_closes_with_the_fake(self, selector: str) -> None:
        with KVServer(Context.alone()) as server:
            client = Client(server)
        assert client.ended()
        client.close()
        if selector == "DefaultSelector":
            with pytest.raises(ConnectionError):
                socket.create_connection(("127.0.0.1", client.port))
        # poll() and select() keep a closed socket open until they return.
        wait_until(lambda: not accepts_connections(client.port))

    def test_a_port_in_use(self, context: Context, connect: Connect) -> None:
        with (
            KVServer(context, dialect="redis") as server,
            socket.create_server(("127.0.0.1", 0)) as other,
        ):
            reply = connect(server)(f"CONFIG SET port {other.getsockname()[1]}")
        assert reply == Error(errors.config_failed("port", errors.CANNOT_LISTEN))

    def test_reset_keeps_clients(self, server: KVServer, client: Client, connect: Connect) -> None:
        client("SET k 1")
        url = server.database_url
        server.reset()
        assert server.database_url == url
        assert client("GET k") is None
        assert connect()("PING") == Status(b"PONG")

    def test_reset_of_the_password(
        self, server: KVServer, client: Client, connect: Connect
    ) -> None:
        server.set_baseline()
        old = server.token, server.read_only_token, server.database_url
        server.rotate_password()
        assert not set(old) & {server.token, server.read_only_token, server.database_url}
        late = connect(login=False)
        refused = Error(b"WRONGPASS invalid username-password pair or user is disabled.")
        assert late("AUTH", client.password) == refused
        assert connect()("PING") == Status(b"PONG")
        # Data return to the baseline, credentials do not.
        server.reset()
        assert late("AUTH", client.password) == refused
        for token in old[:2]:
            answer = httpx.get(f"{server.url}/ping", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 401


class TestRestBeside:
    def test_both_ways_on_one_port(self, server: KVServer, client: Client) -> None:
        client("SET k v")
        base = f"http://127.0.0.1:{client.port}"
        with httpx.Client(base_url=base, headers=server.headers) as http:
            assert http.get("/get/k").json() == {"result": "v"}
            assert http.post("/", json=["INCR", "n"]).json() == {"result": 1}
            assert http.get("/get/k", headers={"Authorization": "x"}).status_code == 401
        assert client("GET n") == b"1"
        server.assert_called("INCR", times=1)

    def test_a_request_in_pieces(self, server: KVServer, client: Client) -> None:
        with socket.create_connection(("127.0.0.1", client.port)) as sock:
            sock.settimeout(PATIENCE)
            sock.sendall(b"GET /ping?_tok")
            threading.Event().wait(0.02)
            sock.sendall(f"en={server.token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")

    @pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
    def test_redis_cli(self, server: KVServer) -> None:
        done = subprocess.run(
            ["redis-cli", "-u", server.database_url, "--no-auth-warning"],
            input="SET k 1\nINCR k\nLPUSH l a b\nLRANGE l 0 -1\nHELLO 3\nHGETALL none\nNOSUCH x\n",
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        lines = [line for line in done.stdout.splitlines() if line]
        assert lines[:5] == ["OK", "2", "2", "b", "a"]
        assert lines[-1] == errors.not_available("NOSUCH").decode()


class TestLogin:
    def test_announced_lengths_are_limited_before_login(self, connect: Connect) -> None:
        client = connect(login=False)
        client.raw(b"*11\r\n")
        assert client.read() == Error(b"ERR Protocol error: unauthenticated multibulk length")
        assert client.ended()


class TestProtocol:
    def test_a_pipeline_is_answered_in_order(self, client: Client) -> None:
        lines = [[b"SET", b"k%d" % n, b"x" * n] for n in range(0, 2000, 4)]
        client.raw(b"".join(map(wire.pack, lines)))
        assert {client.read() for _ in lines} == {OK}
        client.raw(b"".join(wire.pack([b"STRLEN", line[1]]) for line in lines))
        assert [client.read() for _ in lines] == list(range(0, 2000, 4))

    def test_large_words(self, client: Client) -> None:
        value = bytes(range(256)) * 20_000
        assert client("SET", "k", value) == OK
        assert client("GET k") == value

    def test_no_more_connections_than_a_plan_has(self) -> None:
        with KVServer(Context.alone(now=NOW), max_connections=1) as server, Client(server).socket:
            refused = Client(server, login=False)
            assert refused("PING") == Error(errors.max_connections(1, 1))
            assert refused.stream.read() == b""

    def test_errors_quote_bytes_as_they_came(self, client: Client) -> None:
        assert client(b"\xff\xfe") == Error(errors.not_available(b"\xff\xfe"))

    def test_error_text_of_the_dialect(self) -> None:
        with KVServer(Context.alone(), int_text="int") as server:
            client = Client(server)
            client("SET k x")
            text = Error(b"ERR value is not an int or out of range")
            assert client("INCR k") == text
            client.each("MULTI", "INCR k")
            assert client("EXEC") == [text]
            client.close()


class TestTransactions:
    def test_an_ended_connection_runs_nothing(self, server: KVServer, client: Client) -> None:
        client.each("MULTI", "SET k 1")
        client.close()
        wait_until(lambda: not server._engine.connected)
        assert server.keys() == []


WAITING = [
    ("BLPOP k j 0", "RPUSH j v", [b"j", b"v"]),
    ("BLPOP k 0\r\nPING", "RPUSH k v", [b"k", b"v"]),
    ("BRPOP k 0", "RPUSH k a b", [b"k", b"b"]),
    ("BRPOPLPUSH k d 0", "RPUSH k v", b"v"),
    ("BLMOVE k d LEFT RIGHT 0", "RPUSH k v", b"v"),
    ("BLMPOP 0 1 k LEFT COUNT 2", "RPUSH k a b c", [b"k", [b"a", b"b"]]),
    ("BZPOPMIN k 0", "ZADD k 1 a 2 b", [b"k", b"a", b"1"]),
    ("BZPOPMAX k 0", "ZADD k 1 a 2 b", [b"k", b"b", b"2"]),
    ("BZMPOP 0 1 k MIN", "ZADD k 1 a", [b"k", [[b"a", b"1"]]]),
    ("XREAD BLOCK 0 STREAMS k $", "XADD k 1-1 f v", [[b"k", [[b"1-1", [b"f", b"v"]]]]]),
    (
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
        "XADD s 1-1 f v",
        [[b"s", [[b"1-1", [b"f", b"v"]]]]],
    ),
]
"""Commands that wait, what ends the wait, and the reply."""


class TestWaiting:
    @pytest.mark.parametrize(("line", "fill", "reply"), WAITING)
    @pytest.mark.parametrize("one_leaves", [False, True])
    def test_until_there_is_something(
        self, server: KVServer, connect: Connect, line: str, fill: str, reply: Any, one_leaves: bool
    ) -> None:
        server.execute("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        clients = [connect() for _ in range(1 + one_leaves)]
        for count, client in enumerate(clients, 1):
            client.raw(line.encode() + b"\r\n")
            blocked(server, count)
        # Under the lock, no other thread can remove the disconnected client.
        with server._engine.lock:
            for client in clients[:-1]:
                client.close()
            server.execute(*fill.split())
        assert clients[-1].read() == reply
        blocked(server, 0)

    def test_a_disconnected_client_takes_nothing(self, server: KVServer, client: Client) -> None:
        client.send("BLPOP k 0")
        blocked(server)
        client.socket.shutdown(socket.SHUT_RDWR)
        blocked(server, 0)
        server.execute("RPUSH", "k", "v")
        assert server.value("k") == ["v"]

    def test_a_killed_client_takes_nothing(self, server: KVServer, client: Client) -> None:
        client.send("BLPOP k 0")
        blocked(server)
        with server._engine.lock:
            server.execute("CLIENT", "KILL", "TYPE", "normal")
            server.execute("RPUSH", "k", "v")
        assert server.value("k") == ["v"]
        assert client.ended()

    def test_closing_wakes_everybody(self) -> None:
        with KVServer(Context.alone()) as server:
            client = Client(server)
            client.send("BLPOP k 0")
            blocked(server)
            began = monotonic()
        assert monotonic() - began < 1.0
        assert client.ended()
        client.close()

    @pytest.mark.skipif(not hasattr(socket, "MSG_DONTWAIT"), reason="cannot be seen here")
    def test_a_client_that_closed_after_more_lines(self, server: KVServer, client: Client) -> None:
        client.raw(b"BLPOP k 0\r\nSET late 1\r\n")
        blocked(server)
        client.raw(b"SET later 1\r\n")
        client.close()
        blocked(server, 0)
        server.execute("RPUSH", "k", "v")
        wait_until(lambda: not server._engine.connected)
        assert server.contents() == {"k": ["v"]}

    def test_a_client_that_closes_after_more_lines_is_noticed_without_polling(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_fakecloud.core.clock._nap", lambda: 2 * PATIENCE)
        client.send("BLPOP k 0")
        blocked(server)
        client.send("SET later 1")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.ended()
        assert server.contents() == {}

    @pytest.mark.parametrize(
        ("before", "line", "after"),
        [("PING", "BLPOP k 0", "RPUSH k v"), ("CLIENT PAUSE 60000", "GET k", "CLIENT UNPAUSE")],
    )
    def test_a_waiting_client_may_send_more_lines_over_tls(
        self, before: str, line: str, after: str
    ) -> None:
        with Cloud(tls=True) as cloud:
            server = cloud.kv_server(dialect="redis")
            server.execute("ACL", "SETUSER", "default", "nopass")
            assert cloud.authority is not None
            context = ssl.create_default_context(cafile=cloud.authority.ca_file)
            address = ("127.0.0.1", int(server.database_url.rpartition(":")[2]))
            with (
                socket.create_connection(address, PATIENCE) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
                client.makefile("rb") as replies,
            ):
                client.sendall(b"PING\r\n")
                assert wire.read(replies) == Status(b"PONG")
                server.execute(*before.split())
                client.sendall(line.encode() + b"\r\n")
                engine = server._engine
                wait_until(lambda: bool(engine.waiters or engine.pauses.delayed))
                client.sendall(b"ECHO more\r\n")
                wait_until(lambda: any(port.connection.early for port in server._app.clients))
                server.execute(*after.split())
                assert wire.read(replies) in ([b"k", b"v"], None)
                assert wire.read(replies) == b"more"


class TestOrder:
    """Commands whose replies are not awaited run in the order of their arrival (real servers)."""

    @pytest.fixture(autouse=True)
    def tells_order(self, selector: str) -> None:
        names = ("EpollSelector", "KqueueSelector")
        if selector != "DefaultSelector" or selectors.DefaultSelector.__name__ not in names:
            pytest.skip("only epoll and kqueue list sockets in the order of arrival")

    @pytest.mark.parametrize("tls", [False, True])
    def test_a_message_reaches_a_subscriber_that_has_not_read_its_confirmation(
        self, tls: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", PATIENCE)
        with Cloud(tls=tls) as cloud, ExitStack() as stack:
            server = cloud.kv_server()
            options = {"ssl_ca_certs": cloud.authority.ca_file} if cloud.authority else {}
            client = redis.Redis.from_url(server.database_url, **options)
            pubsub = stack.enter_context(stack.enter_context(client).pubsub())
            publishers = [
                client.publish,
                lambda channel, text: server.execute("PUBLISH", channel, text),
            ]
            if not tls:
                publishers.append(stack.enter_context(server.client()).publish)
            for number in range(cases(100)):
                channel = f"channel:{number}"
                pubsub.subscribe(channel)
                assert publishers[number % len(publishers)](channel, "text") == 1

    def test_the_fake_has_the_data_that_a_client_has_sent(
        self, server: KVServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", PATIENCE)
        clients = [connect() for _ in range(3)]
        for number in range(cases(50)):
            for client in clients:
                client.send("RPUSH", f"list:{number}", client.port)
            assert server.elements(f"list:{number}") == [str(client.port) for client in clients]

    def test_data_that_the_test_changes_are_those_that_a_client_has_sent(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", PATIENCE)
        for number in range(cases(20)):
            client.send("SET", "key", f"sent {number}")
            before = server.snapshot()
            client.send("SET", "key", "later")
            server.load({"key": "loaded"})
            assert server.string("key") == "loaded"
            client.send("SET", "key", "later")
            server.restore(before)
            assert server.string("key") == f"sent {number}"

    def test_the_journals_have_the_calls_that_a_client_has_sent(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", PATIENCE)
        for number in range(cases(30)):
            client.send("SET", f"key:{number}", "v")
            if number % 2:
                server.assert_called("SET", key=f"key:{number}")
            else:
                server._context.journal.assert_called("SET", key=f"key:{number}")
        client.send("SET", "key", "v")
        server.journal.clear()
        assert server.string("key") == "v"
        server.assert_not_called()

    def test_a_fault_does_not_affect_commands_that_a_client_has_sent(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", PATIENCE)
        for number in range(1, cases(20)):
            client.send("INCR", "n")
            with server.faults.respond(500, command="INCR"):
                assert client.read() == number
                assert isinstance(client("INCR", "n"), Error)

    def test_searches_that_a_client_has_sent_are_found(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", PATIENCE)
        server.execute(
            *["SEARCH.CREATE", "i", "ON", "HASH", "PREFIX", "1", "p:", "SCHEMA", "f", "TEXT"]
        )
        for number in range(1, cases(20)):
            client.send("SEARCH.QUERY", "i", "{}")
            server.assert_searched("i", times=number)

    @pytest.mark.parametrize("moment", ["before", "after", "between"])
    def test_code_of_the_test_can_use_other_connections(
        self, moment: Any, server: KVServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", 10 * PATIENCE)
        client, other = connect(), connect()
        with ExitStack() as stack:
            if moment == "between":
                run = partial(other, "INCR", "n")
                stack.enter_context(server.between(("ECHO", "GET"), run=run))
            else:
                server.faults.call(lambda: other("INCR", "n"), moment, command="GET", times=1)
            client("ECHO", "a")
            assert client("GET", "n") == (None if moment == "after" else b"1")
        assert server.integer("n") == 1

    def test_other_connections_overtake_a_command_that_a_fault_delays(
        self, server: KVServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "PATIENCE_SECONDS", 10 * PATIENCE)
        server.faults.delay(10 * PATIENCE, command="INCR")
        client, other = connect(), connect()
        client.send("INCR", "n")
        assert other("GET", "n") is None


class TestNobodyWaits:
    """The hub's thread serves others while a command waits, whatever it waits for."""

    @pytest.mark.parametrize(
        "line",
        [
            "BLPOP list 0",
            "GET paused",
            "GET delayed",
            "GET function",
            "GET hanging",
            "GET between",
            "GET locked",
            "EVAL while\ttrue\tdo\tend 0",
        ],
    )
    def test_while_a_command_waits(self, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
        over = threading.Event()
        with Cloud() as cloud, ExitStack() as stack:
            busy = cloud.kv_server(dialect="redis")
            idle = cloud.kv_server(dialect="redis")
            client, other = Client(busy), Client(busy)
            if line == "GET paused":
                client("CLIENT PAUSE 60000")
            busy.faults.delay(PATIENCE, key="delayed")
            busy.faults.call(lambda: over.wait(PATIENCE), key="function")
            busy.faults.hang(key="hanging")
            if line == "GET between":
                run = partial(over.wait, PATIENCE)
                interruption = stack.enter_context(busy.between(("SET", "GET"), run=run))
                client("SET between 1")
            if line == "GET locked":
                stack.enter_context(busy._engine.lock)
            client.send(*line.split(" "))
            for _ in range(3):
                assert Client(idle)("PING") == Status(b"PONG")
            if line == "GET between":
                wait_until(lambda: interruption.hits)
            if line.startswith("EVAL"):
                wait_until(lambda: other("PING") != Status(b"PONG"))
                assert other("SCRIPT KILL") == OK
            over.set()
            stack.close()
            for used in (client, other):
                used.close()

    def test_commands_that_wait_for_a_script_keep_their_order(
        self, server: KVServer, connect: Connect
    ) -> None:
        clients = [connect() for _ in range(6)]
        with server._engine.lock:  # as during a script
            for number, client in enumerate(clients):
                client.send("RPUSH", "list", number)
                hub.default_hub().catch_up()
        for client in clients:
            client.read()
        assert server.elements("list") == [str(number) for number in range(6)]


class TestListening:
    def test_many_messages_keep_their_order(self, server: KVServer, client: Client) -> None:
        client("SUBSCRIBE a")
        for n in range(500):
            server.execute("PUBLISH", "a", str(n))
        assert [client.read()[2] for _ in range(500)] == [b"%d" % n for n in range(500)]

    def test_a_disconnected_subscriber_is_forgotten(self, server: KVServer, client: Client) -> None:
        client("SUBSCRIBE a")
        client.close()
        wait_until(lambda: server.execute("PUBSUB", "NUMSUB", "a") == ["a", 0])

    @pytest.mark.parametrize("limit", ["pubsub 1000000 0 0", "normal 0 0 0 pubsub 1mb 0 0"])
    def test_a_slow_subscriber_is_disconnected(
        self, server: KVServer, client: Client, limit: str
    ) -> None:
        server.execute("CONFIG", "SET", "client-output-buffer-limit", limit)
        client("SUBSCRIBE a")
        for _ in range(200):
            server.execute("PUBLISH", "a", "x" * 100_000)
        wait_until(lambda: server.execute("PUBSUB", "NUMSUB", "a") == ["a", 0])

    def test_the_usual_limit_is_the_real_servers(self, server: KVServer, client: Client) -> None:
        client("SUBSCRIBE a")
        (connection,) = server._app.clients
        sent = 0
        while not connection.session.closing:
            server.execute("PUBLISH", "a", "x" * 1_000_000)
            sent += 1
        # The limit of waiting bytes, plus what the system's buffers hold.
        assert 33 < sent < 60
        wait_until(lambda: server.execute("PUBSUB", "NUMSUB", "a") == ["a", 0])

    def test_a_stalled_listener_takes_one_thread_whatever_is_published(
        self, server: KVServer, client: Client
    ) -> None:
        client("SUBSCRIBE a")
        workers = server._mount.hub.workers
        before = len(workers.threads)
        for _ in range(2000):
            assert server.execute("PUBLISH", "a", "x" * 10_000) == 1
        assert len(workers.threads) <= before + 1
        for _ in range(2000):
            assert client.read()[2] == b"x" * 10_000
        server.execute("PUBLISH", "a", "the last")
        assert client.read()[2] == b"the last"

    def test_a_pipelines_replies_are_sent_while_it_runs(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.execute("SET", "k", "x" * 100_000)
        put: list[int] = []
        original = Outbox.put

        def count(outbox: Outbox, *parts: bytes) -> None:
            original(outbox, *parts)
            put.append(outbox._connection.unsent_bytes)

        monkeypatch.setattr(Outbox, "put", count)
        client.raw(b"GET k\r\n" * 300)
        for _ in range(300):
            assert len(client.read()) == 100_000
        assert len(put) == 300
        assert max(put) < 500_000

    def test_counts_of_waiting_bytes_end_at_nothing(self, server: KVServer, client: Client) -> None:
        client.each("HELLO 3", "SUBSCRIBE a")
        (connection,) = server._app.clients

        def publish() -> None:
            for _ in range(300):
                server.execute("PUBLISH", "a", "m")

        def ping() -> None:
            client.raw(b"PING\r\n" * 300)
            for _ in range(1500):
                client.read()

        in_threads(ping, *[publish] * 4)
        wait_until(lambda: connection.connection.unsent_bytes == 0)

    @pytest.mark.parametrize("line", ["GET k", "BLPOP l 0"])
    def test_messages_follow_the_reply_that_a_fault_holds_back(
        self, server: KVServer, client: Client, line: str
    ) -> None:
        client.each("HELLO 3", "CLIENT TRACKING ON", "SUBSCRIBE a")
        server.execute("RPUSH", "l", "v")
        executed = threading.Event()

        def publish() -> None:
            server.execute("PUBLISH", "a", "m")
            server.execute("SET", "k", "1")
            executed.set()

        server.faults.call(publish, "after", command=line.split()[0])
        client.send(line)
        assert executed.wait(PATIENCE)
        assert client.read() in (None, [b"l", b"v"])
        assert client.read() == Typed(b">", [b"message", b"a", b"m"])
        if line == "GET k":
            assert client.read() == Typed(b">", [b"invalidate", [b"k"]])

    def test_messages_follow_the_reply_that_ends_a_wait(
        self, server: KVServer, client: Client
    ) -> None:
        client.each("HELLO 3", "SUBSCRIBE a")
        client.send("BLPOP k 0")
        blocked(server)
        server.execute("PUBLISH", "a", "before")
        with server._engine.lock:
            server.execute("RPUSH", "k", "v")
            server.execute("PUBLISH", "a", "after")
        assert client.read() == Typed(b">", [b"message", b"a", b"before"])
        assert client.read() == [b"k", b"v"]
        assert client.read() == Typed(b">", [b"message", b"a", b"after"])

    def test_monitor(self, server: KVServer, connect: Connect) -> None:
        watching, working = connect(), connect()
        assert watching("MONITOR") == OK
        working("SET k 'v'")
        line = watching.read()
        assert line.endswith(b'] "SET" "k" "\'v\'"')
        assert working.socket.getsockname()[0].encode() in line
        working("AUTH", "default", "secret")
        assert watching.read().endswith(b'] "AUTH" "(redacted)" "(redacted)"')
        assert watching("GET k") == Error(b"ERR Replica can't interact with the keyspace")

    @pytest.mark.parametrize("name", ["EVAL", "EVAL_RO", "EVALSHA", "FCALL"])
    def test_scripts_are_monitored_before_their_calls(
        self, server: KVServer, connect: Connect, name: str
    ) -> None:
        watching, working = connect(), connect()
        code = b"return redis.call('GET', 'k')"
        sha = server.execute("SCRIPT", "LOAD", code)
        server.execute(
            "FUNCTION",
            "LOAD",
            b"#!lua name=l\nredis.register_function('f', function() %s end)" % code,
        )
        which = {"EVALSHA": sha, "FCALL": "f"}.get(name, code)
        for _ in range(2):
            assert watching("MONITOR") == OK
        working(name, which, 0)
        first, second = watching.read(), watching.read()
        assert f'] "{name}" '.encode() in first
        assert second.endswith(b'[0 lua] "GET" "k"')

    def test_a_broken_redirection_follows_the_reply(
        self, server: KVServer, connect: Connect
    ) -> None:
        client, target = connect(), connect()
        client("HELLO 3")
        number = target("CLIENT ID")
        client(f"CLIENT TRACKING ON REDIRECT {number}")
        target.close()
        wait_until(lambda: number not in server._engine.connected)
        client.each("GET k", "MULTI", "SET k 1")
        assert client("EXEC") == [OK]
        assert client.read() == Typed(b">", [b"tracking-redir-broken", number])
        client("GET k")
        assert client("SET k 2") == OK
        assert client.read() == Typed(b">", [b"tracking-redir-broken", number])


class TestClients:
    def test_list_and_kill(self, server: KVServer, connect: Connect) -> None:
        first, second = connect(), connect()
        lines = first("CLIENT LIST").decode().splitlines()
        assert [f"laddr=127.0.0.1:{first.port}" in line for line in lines] == [True, True]
        assert "cmd=client|list" in lines[0]
        assert "cmd=auth" in lines[1]
        assert first(f"CLIENT KILL LADDR 127.0.0.1:{first.port} SKIPME yes") == 1
        assert second.ended()
        third = connect()
        third.send("BLPOP k 0")
        blocked(server)
        assert first(f"CLIENT KILL ID {two_id(first, third)}") == 1
        assert third.ended()
        assert first(f"CLIENT KILL ID {first('CLIENT ID')} SKIPME no") == 1
        assert first.ended()

    def test_a_client_that_is_killed_after_its_last_command_ran(
        self, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The hub's thread has not sent the reply yet."""
        receive = PortConnection.receive

        def receive_and_be_killed(connection: PortConnection, data: bytes) -> bool:
            is_open = receive(connection, data)
            in_threads(connection.session.disconnect)
            return is_open

        monkeypatch.setattr(PortConnection, "receive", receive_and_be_killed)
        assert client("PING") == Status(b"PONG")
        assert client.ended()

    def test_a_client_that_is_killed_in_a_pause(self, server: KVServer, connect: Connect) -> None:
        first, second = connect(), connect()
        first("CLIENT PAUSE 60000 WRITE")
        second.send("SET k 1")
        assert second.silent()
        server._renew_connections()
        assert second.ended()
        assert server.keys() == []
        server.assert_called("SET", outcome="dropped")


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return False
    return True


def two_id(connection: Client, other: Client) -> int:
    host, port = other.socket.getsockname()
    for line in connection("CLIENT LIST").decode().splitlines():
        if f"addr={host}:{port} " in line:
            return int(line.split()[0].removeprefix("id="))
    raise AssertionError("not listed")


class TestFrozenClock:
    @pytest.fixture
    def context(self) -> Context:
        context = Context.alone(now=NOW)
        context.timekeeper.wait_cap = 60.0
        return context

    def test_it_does_not_hang(self, context: Context, client: Client) -> None:
        context.timekeeper.wait_cap = 0.05
        assert client("BLPOP k 0") == NilArray()

    def test_a_client_out_of_time_takes_nothing(self, server: KVServer, client: Client) -> None:
        client.send("BLPOP k 30")
        blocked(server)
        with server._engine.lock:
            server.clock.advance(30)
            server.execute("RPUSH", "k", "v")
        assert client.read() == NilArray()
        assert server.value("k") == ["v"]

    def test_a_soft_limit_counts_on_the_clock(self, server: KVServer, client: Client) -> None:
        server.execute("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 1000000 60")
        client("SUBSCRIBE a")
        for _ in range(100):
            assert server.execute("PUBLISH", "a", "x" * 100_000) == 1
        server.clock.advance(61)
        server.execute("PUBLISH", "a", "once more")
        wait_until(lambda: server.execute("PUBSUB", "NUMSUB", "a") == ["a", 0])


QUEUED = Status(b"QUEUED")
ABORTED = Error(b"EXECABORT Transaction discarded because of previous errors.")
UNAVAILABLE = Error(b"ERR Service Unavailable")
NO_MULTI = Error(b"ERR EXEC without MULTI")
LOADING = Error(b"EXECABORT Transaction discarded because of: LOADING wait")
TRANSACTION_FAULTS = [
    ("GET", 503, None, ["MULTI", "SET k 1", "GET k", "EXEC", "GET k"],
     [OK, QUEUED, UNAVAILABLE, ABORTED, None]),
    ("EXEC", 503, {"error": "LOADING wait"}, ["WATCH w", "MULTI", "SET k 1", "EXEC", "EXEC"],
     [OK, OK, QUEUED, LOADING, NO_MULTI]),
    ("EXEC", 200, {"result": None}, ["MULTI", "SET k 1", "EXEC"], [OK, QUEUED, NilArray()]),
    ("MULTI", 503, None, ["MULTI", "GET k", "EXEC"], [UNAVAILABLE, None, NO_MULTI]),
    ("DISCARD", 503, None, ["MULTI", "DISCARD", "SET k 1", "EXEC"],
     [OK, UNAVAILABLE, QUEUED, ABORTED]),
]  # fmt: skip
"""Commands that a fault answers, with what, commands around them, and their replies."""


class TestJournalAndFaults:
    def test_commands_are_calls(self, server: KVServer, client: Client) -> None:
        client.each("SET k v", "NOSUCH")
        call = server.assert_called("SET", times=1).only()
        assert (call.method, call.route, call.status) == ("RESP", "database-port", 200)
        assert call.request_json() == ["SET", "k", "v"]
        assert call.response_body == b"+OK\r\n"
        assert server.journal.calls(status=400).last.facts["command"] == ["NOSUCH"]

    def test_passwords_are_not_kept(self, server: KVServer, client: Client) -> None:
        assert client.password not in repr([call.request_body for call in server.journal.calls()])

    @pytest.mark.parametrize(
        ("options", "reply"),
        [
            ({"status": 503}, Error(b"ERR Service Unavailable")),
            ({"status": 400, "body": {"error": "LOADING wait"}}, Error(b"LOADING wait")),
            ({"status": 400, "body": "zu groß"}, Error("ERR zu groß".encode())),
            ({"status": 200, "body": {"result": ["a", 1, None]}}, [b"a", 1, None]),
            ({"status": 200, "body": {"result": "OK"}}, OK),
            ({"status": 200, "body": {"result": [1.5, {"a": 1}]}}, [b"1.5", b'{"a": 1}']),
            ({"status": 200, "body": "text"}, b"text"),
        ],
    )
    def test_answer(
        self, server: KVServer, client: Client, options: dict[str, Any], reply: Any
    ) -> None:
        server.faults.respond(**options, command="get", times=1)
        assert client("SET k 1") == OK
        assert client("GET k") == reply
        assert client("GET k") == b"1"

    @pytest.mark.parametrize(("command", "status", "body", "lines", "replies"), TRANSACTION_FAULTS)
    def test_transactions(
        self,
        server: KVServer,
        client: Client,
        command: str,
        status: int,
        body: Any,
        lines: list[str],
        replies: list[Any],
    ) -> None:
        server.faults.respond(status, body, command=command, times=1)
        assert client.each(*lines) == replies
        assert server.keys() == []

    @pytest.mark.parametrize(
        "named", [{}, {"route": "database-port"}, {"when": lambda request: True}]
    )
    def test_faults_that_name_no_command_skip_the_handshake(
        self, named: dict[str, Any], server: KVServer, connect: Connect
    ) -> None:
        server.faults.respond(503, times=1, **named)
        client = connect()
        assert client.each("CLIENT SETINFO LIB-NAME x", "SELECT 0") == [OK, OK]
        assert client.each("MULTI", "PING") == [UNAVAILABLE, Status(b"PONG")]

    @pytest.mark.parametrize(
        "named", [{"command": "AUTH"}, {"route": "AUTH"}, {"words": ["AUTH", "*"]}]
    )
    def test_faults_that_name_a_command_of_the_handshake_apply_to_it(
        self, named: dict[str, Any], server: KVServer, connect: Connect
    ) -> None:
        server.faults.respond(503, times=1, **named)
        client = connect(login=False)
        assert client("AUTH", client.password) == UNAVAILABLE
        assert client("AUTH", client.password) == OK
        assert [call.reached for call in server.journal.calls()] == [False, True]

    def test_commands_before_authentication_use_no_fault(
        self, server: KVServer, connect: Connect
    ) -> None:
        fault = server.faults.respond(503, times=1)
        client = connect(login=False)
        assert client("GET k") == Error(b"NOAUTH Authentication required.")
        assert b"NOSUCH" in client("NOSUCH").text
        assert [call.reached for call in server.journal.calls()] == [False, False]
        assert (client("AUTH", client.password), client("GET k")) == (OK, UNAVAILABLE)
        assert fault.hits == 1

    def test_an_error_instead_of_queued_discards(self, server: KVServer, client: Client) -> None:
        busy = Response(503, {"error": "BUSY wait"})
        server.faults.call(lambda: busy, "after", command="INCR", times=1)
        assert client.each("MULTI", "INCR n", "EXEC") == [OK, Error(b"BUSY wait"), ABORTED]
        assert server.keys() == []

    def test_a_dropped_transaction_is_dropped_as_a_whole(
        self, server: KVServer, connect: Connect
    ) -> None:
        for name, done in (("drop", None), ("lose_response", "1")):
            for command in ("INCR", "EXEC"):
                getattr(server.faults, name)(command=command, times=1)
                client = connect()
                client.raw(b"MULTI\r\nINCR n\r\nINCR m\r\nEXEC\r\nINCR after\r\n")
                client.stream.read()
                expected = done if command == "EXEC" else None
                assert [server.value(key) for key in ("n", "m", "after")] == [expected] * 2 + [None]

    def test_invalid_answers_to_a_queued_command(
        self, context: Context, server: KVServer, client: Client
    ) -> None:
        server.faults.respond(200, {"result": "stale"}, command="GET")
        client("MULTI")
        assert b"QUEUED" in client("GET k").text
        assert client("EXEC").text.startswith(b"EXECABORT")
        (violation,) = context.violations
        assert "inject an error" in violation.text
        context.violations.clear()

    def test_replies_that_are_switched_off_stay_off(self, server: KVServer, client: Client) -> None:
        server.faults.respond(503, command="INCR")
        client.raw(b"CLIENT REPLY SKIP\r\nINCR n\r\nPING 1\r\n")
        assert client.read() == b"1"
        client.raw(b"CLIENT REPLY OFF\r\nINCR n\r\nCLIENT REPLY ON\r\n")
        assert client.read() == OK

    def test_a_command_arrives_once(
        self, context: Context, server: KVServer, client: Client
    ) -> None:
        def twice(request: Request, proceed: Proceed) -> AnyResponse:
            proceed()
            return proceed()

        once_again = server._app.chain.add(FAULTS, twice)
        assert b"cannot arrive twice" in client("INCR n").text
        once_again()
        assert server.value("n") == "1"
        assert "use lose_response" in context.violations.pop().text

    def test_drop_and_lose(self, server: KVServer, connect: Connect) -> None:
        server.faults.drop(command="INCR", times=1)
        client = connect()
        client.send("INCR n")
        assert client.ended()
        assert server.value("n") is None
        server.faults.lose_response(command="INCR", times=1)
        client = connect()
        client.send("INCR n")
        assert client.ended()
        assert server.value("n") == "1"
        assert [c.outcome for c in server.journal.calls(command="INCR")] == ["dropped", "lost"]

    @pytest.mark.parametrize("kind", ["lose_response", "truncate", "wait", "pause"])
    def test_a_client_that_has_reset_its_connection_is_no_bug(
        self, kind: str, server: KVServer, client: Client, context: Context
    ) -> None:
        """The reply to the first command is unsent when the second one ends the connection or waits."""

        def reset() -> None:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.stream.close()
            client.socket.close()

        server.faults.call(reset, "after", command="ECHO")
        if kind == "lose_response":
            server.faults.lose_response(command="GET")
        elif kind == "truncate":
            server.faults.truncate(keep=4, command="GET")
        elif kind == "pause":
            pause = ("CLIENT", "PAUSE", "60000")
            server.faults.call(lambda: server.execute(*pause), "after", command="ECHO")
        client.raw(b"ECHO hello\r\nGET key\r\nBLPOP key 0\r\n")
        wait_until(lambda: not server._app.clients)
        assert not context.violations

    def test_truncate(self, server: KVServer, client: Client) -> None:
        server.faults.truncate(keep=4, command="ECHO")
        client.send("ECHO hello")
        assert client.stream.read() == b"$5\r\n"

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_fault_that_answers_with_bytes_of_the_protocol(
        self, context: Context, server: KVServer, client: Client, moment: Any
    ) -> None:
        def shorten() -> Response:
            return Response(body=b"$5", headers={"Content-Type": "application/x-resp"})

        server.faults.call(shorten, moment, command="ECHO")
        text = client("ECHO hello").text
        assert b"the fault call shorten %b answers with bytes" % moment.encode() in text
        assert "use truncate" in context.violations.pop().text
        assert client("PING") == Status(b"PONG")
        answer = httpx.post(server.url, json=["ECHO", "hello"], headers=server.headers)
        assert answer.content == b"$5"
        outcomes = [call.outcome for call in server.journal.calls(command="ECHO")]
        assert outcomes == ["answered", "altered" if moment == "after" else "answered"]

    def test_a_reply_that_replaces_the_one_of_an_executed_command(
        self, server: KVServer, client: Client
    ) -> None:
        server.faults.call(lambda: Response(body={"result": 9}), "after", command="INCR")
        assert client("INCR n") == 9
        assert server.journal.calls(command="INCR").only().outcome == "altered"

    def test_delay(self, server: KVServer, client: Client) -> None:
        server.faults.delay(0.05, command="PING", times=1)
        began = monotonic()
        assert client("PING") == Status(b"PONG")
        assert monotonic() - began >= 0.04

    def test_hang(self, server: KVServer, client: Client) -> None:
        server.faults.hang(command="PING")
        client.send("PING")
        assert client.silent()

    def test_down_and_up(self, server: KVServer, client: Client, connect: Connect) -> None:
        server.faults.down()
        assert client.ended()
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", client.port))
        server.faults.up()
        assert connect()("PING") == Status(b"PONG")

    def test_a_bug_of_ours_is_an_error_and_a_violation(
        self, context: Context, server: KVServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: Any) -> None:
            raise ValueError("broken")

        monkeypatch.setattr(type(server._engine), "run", broken)
        assert client("PING") == Error(b"ERR internal error: ValueError('broken')")
        monkeypatch.undo()
        assert client("PING") == Status(b"PONG")
        assert [violation.kind for violation in context.violations] == ["bug"]
        context.violations.clear()

    def test_messages_do_not_follow_a_truncated_reply(
        self, server: KVServer, client: Client
    ) -> None:
        client.each("HELLO 3", "SUBSCRIBE a")
        server.faults.truncate(keep=4, command="ECHO")
        server.faults.call(lambda: server.execute("PUBLISH", "a", "m"), "after", command="ECHO")
        client.send("ECHO hello")
        assert client.stream.read() == b"$5\r\n"

    def test_limits(self) -> None:
        with KVServer(Context.alone(), max_request_size=100, daily_limit=4) as server:
            client = Client(server, login=False)
            assert client("GET", "x" * 200) == Error(b"NOAUTH Authentication required.")
            assert client("AUTH", client.password) == OK
            assert client("SET", "k", "x" * 200) == Error(errors.max_request_size(100, 204))
            client("MULTI")
            client("SET", "k", "x" * 200)
            assert client("EXEC").text.startswith(b"EXECABORT")
            assert client("SELECT", "x" * 200) == Error(errors.max_request_size(100, 206))
            assert b"NOSUCH" in client("NOSUCH").text
            assert client("PING") == Status(b"PONG")
            assert client("GET k") == Error(errors.max_daily_requests(4, 4))
            assert client("PING") == Error(errors.max_daily_requests(4, 4))
            assert client("SELECT 0") == OK
            client.close()


OF_BROWSERS = {
    "TLS": b"\x16\x03\x01\x01\x00\x01\r\n<commands>",
    "TLS without a NUL byte": b"\x16\x03\x01\r\n<commands>",
    "a NUL byte in front": b"\0\r\n<commands>",
    "a NUL byte in a line": b"PING\0\r\n<commands>",
    "a NUL byte in a count": b"*1\0\r\n<commands>",
    "POST": b"POST / x\r\n<commands>",
    "a header": b"host: x\r\n<commands>",
    "POST as an array": b"*1\r\n$4\r\npost\r\n<commands>",
    "an HTTP request": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n<commands>",
    "a TLS ticket with a request line": b"\x16\x03\x01 x HTTP/1.1\r\n<commands>",
}


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("name", OF_BROWSERS)
def test_bytes_of_a_browser_run_nothing(server: KVServer, name: str, size: int) -> None:
    address = urlsplit(server.database_url)
    commands = (
        f"\r\nAUTH {address.password}\r\nSET k v\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
    )
    data = OF_BROWSERS[name].replace(b"<commands>", commands.encode())
    client = socket.create_connection((address.hostname, address.port), timeout=30)
    # The server may end the connection before everything is sent.
    with client, suppress(ConnectionError):
        for at in range(0, len(data), size):
            client.sendall(data[at : at + size])
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    assert server.keys() == []


@pytest.mark.parametrize("pipelined", [1, 50])
def test_the_journal_keeps_little_of_a_small_command(
    server: KVServer, client: Client, pipelined: int
) -> None:
    for _ in range(2):
        client.raw(wire.pack([b"SET", b"key", b"value"]) * pipelined)
        assert [client.read() for _ in range(pipelined)] == [OK] * pipelined
    first, *_, last = server.journal.entries[-2 * pipelined :]
    shared = {id(part) for part in gc.get_referents(first)}
    own = [part for part in gc.get_referents(last) if id(part) not in shared]
    words = next(part for part in own if isinstance(part, tuple))
    in_lists = 2 * 8  # the fake's journal and the cloud's
    assert sum(map(sys.getsizeof, [last, *own, *words])) + in_lists <= 600
    call = server.journal.calls(command="SET").last
    assert call.request_json() == ["SET", "key", "value"]
    assert call.response_body == b"+OK\r\n"


def test_secured_connections_are_pushed_to_as_well() -> None:
    trustme = pytest.importorskip("trustme")
    redis = pytest.importorskip("redis")
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    context = Context.alone()
    context.tls = tls
    with KVServer(context) as server, ExitStack() as stack:
        assert server.database_url.startswith("rediss://")
        client = redis.Redis.from_url(server.database_url, ssl_cert_reqs="none")
        stack.callback(client.close)
        assert client.set("k", b"x" * 300_000)
        assert len(client.get("k")) == 300_000
        listener = client.pubsub(ignore_subscribe_messages=True)
        stack.callback(listener.close)
        listener.subscribe("c")
        wait_until(lambda: server.execute("PUBLISH", "c", "first") == 1)
        messages: list[Any] = []

        def message() -> bool:
            heard = listener.get_message(timeout=1)
            if heard is not None:
                messages.append(heard["data"])
            return bool(messages)

        wait_until(message)
        assert messages == [b"first"]


_LARGE_VALUE = """
import resource, socket, sys
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer

def most():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak

size, part = 32 * 1024 * 1024, bytes((255, 1)) * 32768
with KVServer(Context.alone(), max_request_size=None) as server:
    where, _, port = server.database_url.rpartition(":")
    password = where.rpartition("@")[0].rpartition(":")[2]
    sock = socket.create_connection(("127.0.0.1", int(port)), 30)
    sock.sendall(b"AUTH %b\\r\\n" % password.encode())
    assert sock.recv(100) == b"+OK\\r\\n"
    before = most()
    sock.sendall(b"*3\\r\\n$3\\r\\nSET\\r\\n$1\\r\\nk\\r\\n$%d\\r\\n" % size)
    for _ in range(size // len(part)):
        sock.sendall(part)
    sock.sendall(b"\\r\\nGET k\\r\\n")
    missing = len(b"+OK\\r\\n$33554432\\r\\n\\r\\n") + size
    while missing:
        missing -= len(sock.recv(min(missing, 65536)))
    for call in server.journal.calls(command="SET") + server.journal.calls(command="GET"):
        assert call.cut, call
    print(most() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no figures of memory there")
def test_a_large_value_is_never_there_more_than_a_few_times() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LARGE_VALUE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # In kilobytes: the bytes received, the value, and some overhead.
    assert int(done.stdout) < 32 * 1024 * 3


def test_large_commands_are_recorded_by_their_beginning(server: KVServer, client: Client) -> None:
    value = b"v" * 2_000_000
    assert client("SET", "k", value) == OK
    assert client("GET", "k") == value
    client("APPEND", "k", "w")
    setting, getting, appending = server.journal.calls(route="database-port")[1:]
    assert setting.cut == {"request_body": 2_000_004, "words": 2_000_004}
    assert getting.cut == {"response_body": 2_000_012}
    assert appending.cut == {}
    server.assert_called("SET", times=1)
    with pytest.raises(ContractError, match="cannot tell the words"):
        server.assert_called(words=[["SET", "k", "v"]])
