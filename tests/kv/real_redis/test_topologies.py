"""Real servers that fail, take over from each other, and form clusters.

Redis and Valkey are started on ports; tests are skipped where neither is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("redis")
if os.name == "nt":
    pytest.skip("the servers are not for Windows", allow_module_level=True)

import redis
from redis.crc import key_slot

from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.acl import make_token
from pytest_fakecloud.kv.fake import KVServer
from tests.harness import wait_until

from ..backing import BINARIES, MISSING, Process, cluster_of_three, free_port, publishing
from ..test_routes import listening

pytestmark = pytest.mark.slow
PASSWORD = make_token(b"secret").decode()
NAMES = list(BINARIES) or [pytest.param("none", marks=MISSING)]


@pytest.fixture(params=NAMES, scope="module")
def binary(request: pytest.FixtureRequest) -> str:
    return BINARIES[request.param]


@pytest.fixture
def process(binary: str) -> Iterator[Process]:
    process = Process(binary, "--save", "", "--appendonly", "no")
    yield process
    process.close()


class TestFaults:
    def test_a_restarted_server(self, process: Process) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server(engine=f"redis://127.0.0.1:{process.port}")
            with httpx.Client(base_url=server.url, headers=server.headers) as http:
                assert http.get("/set/k/v").json() == {"result": "OK"}
                process.kill()
                for path, body in [
                    ("/", ["GET", "k"]),
                    ("/pipeline", [["GET", "k"]]),
                    ("/multi-exec", [["GET", "k"]]),
                ]:
                    answer = http.post(path, json=body)
                    assert answer.status_code == 503
                    assert "is not reachable" in answer.json()["error"]
                with pytest.raises(Exception, match="is not reachable"):
                    server.contents()
                process.start()
                assert http.get("/get/k").json() == {"result": None}
                assert http.get("/set/k/w").json() == {"result": "OK"}
                assert server.contents() == {"k": "w"}
                # It lost its users too, including the one that scripts run as.
                line = ["EVAL", "return redis.call('GET', KEYS[1])", 1, "k"]
                assert http.post("/", json=line).json() == {"result": "w"}
                assert http.post("/multi-exec", json=[line]).json() == [{"result": "w"}]
            assert cloud.violations() == []

    def test_a_server_that_hangs_is_given_up(self, process: Process) -> None:
        url = f"redis://127.0.0.1:{process.port}?socket_timeout=1"
        with Cloud() as cloud:
            server = cloud.kv_server(engine=url)
            process._process.send_signal(signal.SIGSTOP)
            try:
                answer = httpx.get(server.url + "/get/k", headers=server.headers)
            finally:
                process._process.send_signal(signal.SIGCONT)
            assert answer.status_code == 503
            answer = httpx.get(server.url + "/get/k", headers=server.headers)
            assert answer.json() == {"result": None}

    def test_closing_without_a_server_does_not_fail(self, process: Process) -> None:
        with Cloud() as cloud:
            cloud.kv_server(engine=f"redis://127.0.0.1:{process.port}")
            process.kill()

    def test_closing_with_a_server_that_hangs_does_not_wait_for_it(self, process: Process) -> None:
        with Cloud() as cloud:
            url = f"redis://127.0.0.1:{process.port}?socket_timeout=60"
            servers = [
                cloud.kv_server(engine=url, isolation=isolation, name=isolation)
                for isolation in ("prefix", "database", "none")
            ]
            for server in servers:
                server.execute("SET", "k", "v")
            process._process.send_signal(signal.SIGSTOP)
            try:
                closing = [threading.Thread(target=server.close) for server in servers]
                for thread in closing:
                    thread.start()
                for thread, server in zip(closing, servers, strict=True):
                    thread.join(20)
                    assert not thread.is_alive(), server.name
            finally:
                process._process.send_signal(signal.SIGCONT)


class TestLogin:
    def test_with_a_password(self, process: Process) -> None:
        process.call("CONFIG", "SET", "requirepass", "secret")
        place = f"127.0.0.1:{process.port}"
        with Cloud() as cloud:
            server = cloud.kv_server(engine=f"redis://:secret@{place}")
            server.load({"k": "v"})
            assert server.contents() == {"k": "v"}
            with pytest.raises(ContractError, match="is not reachable"):
                cloud.kv_server(engine=f"redis://:wrong@{place}")
            with pytest.raises(ContractError, match=r"NOAUTH|Authentication"):
                cloud.kv_server(engine=f"redis://{place}")

    def test_a_login_that_may_make_no_users(self, process: Process) -> None:
        process.call("ACL", "SETUSER", "ci", "on", ">pw", "~*", "&*", "+@all", "-acl")
        with Cloud() as cloud:
            server = cloud.kv_server(engine=f"redis://ci:pw@127.0.0.1:{process.port}")
            assert server.execute("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "k") == "OK"
            server.reset()
            assert server.keys() == []


def asked(process: Process, *words: object) -> Any:
    with redis.Redis(port=process.port, protocol=2, decode_responses=True) as client:
        return client.execute_command(*words)


def joined(nodes: list[Process]) -> bool:
    infos = (asked(node, "CLUSTER", "INFO") for node in nodes)
    return all(
        "cluster_state:ok" in info and "cluster_slots_assigned:16384" in info for info in infos
    )


@pytest.fixture(scope="module", autouse=True)
def cluster(binary: str) -> Iterator[list[Process]]:
    # The cluster is shared by the module: nodes wait two seconds for each other before they answer.
    with cluster_of_three(binary) as nodes:
        yield nodes


class TestCluster:
    @pytest.fixture
    def nodes(self, cluster: list[Process]) -> list[Process]:
        wait_until(lambda: joined(cluster))
        return cluster

    @pytest.fixture
    def cloud(self) -> Iterator[Cloud]:
        with Cloud() as cloud:
            yield cloud
            assert cloud.violations() == []

    def test_every_handle_has_one_slot(self, nodes: list[Process], cloud: Cloud) -> None:
        url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{nodes[0].port}"
        used = set()
        for _ in range(24):
            server = cloud.kv_server(engine=url)
            server.load({"a": "1", "b": "2", "{x}": "3"})
            assert server.execute("MGET", "a", "b", "{x}") == ["1", "2", "3"]
            assert server.execute("DBSIZE") == 3
            answer = httpx.post(
                server.url + "/multi-exec",
                json=[["SET", "a", 1], ["SUNIONSTORE", "u", "v"], ["KEYS", "*"]],
                headers=server.headers,
            )
            assert sorted(answer.json()[2]["result"]) == ["a", "b", "{x}"]
            used.add(server._engine.namespace.link._home()[1])  # type: ignore[attr-defined]
            server.close()
        assert used == {node.port for node in nodes}
        again = cloud.kv_server(engine=f"redis://127.0.0.1:{nodes[0].port}?cluster=true")
        again.load({"k": "v"})
        assert again.contents() == {"k": "v"}
        again.close()
        for node in nodes:
            assert (asked(node, "DBSIZE"), asked(node, "ACL", "USERS")) == (0, ["default"])

    def test_a_slot_that_moves_step_by_step(self, nodes: list[Process], cloud: Cloud) -> None:
        server = cloud.kv_server(engine=f"redis+cluster://127.0.0.1:{nodes[0].port}")
        server.load({"a": "1", "b": "2", "c": "3"})
        server.execute("ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "+@all")
        token = server.execute("ACL", "RESTTOKEN", "ann", PASSWORD)
        move = Move(server, nodes)
        with httpx.Client(base_url=server.url, headers=server.headers) as http:

            def several(*lines: list[object]) -> list[Any]:
                answer = http.post("/multi-exec", json=lines)
                assert answer.status_code == 200, answer.text
                return [item["result"] for item in answer.json()]

            move.begin()
            move.keys("a", "b")
            # Keys that have moved, new ones, and keys that have not moved.
            assert http.get("/get/a").json() == {"result": "1"}
            assert http.get("/set/new/x").json() == {"result": "OK"}
            assert http.get("/get/c").json() == {"result": "3"}
            assert http.get("/mget/a/b").json() == {"result": ["1", "2"]}
            assert several(["INCR", "a"], ["INCR", "b"]) == [2, 3]
            assert several(["INCR", "c"], ["GET", "c"]) == [4, "4"]
            script = "return redis.call('INCR', KEYS[1])"
            assert http.post("/", json=["EVAL", script, 1, "a"]).json() == {"result": 3}
            answer = httpx.get(f"{server.url}/get/a?_token={token}")
            assert answer.json() == {"result": "3"}
            # Neither node has all of the keys, so these commands wait for the end of the move.
            results: dict[str, Any] = {}
            waiting = [
                threading.Thread(target=lambda: results.update(keys=server.keys())),
                threading.Thread(target=lambda: results.update(size=http.get("/dbsize").json())),
                threading.Thread(target=lambda: results.update(mget=http.get("/mget/a/c").json())),
                threading.Thread(
                    target=lambda: results.update(several=several(["INCR", "a"], ["GET", "c"]))
                ),
            ]
            for thread in waiting:
                thread.start()
            waiting[0].join(0.1)
            assert results == {}
            move.keys("c", "new")
            move.end()
            for thread in waiting:
                thread.join(10)
            assert results.pop("mget")["result"] in (["3", "4"], ["4", "4"])
            assert results == {
                "keys": ["a", "b", "c", "new"],
                "size": {"result": 4},
                "several": [4, "4"],
            }
            # Commands without a key reach the new node as well.
            assert server.execute("DBSIZE") == 4
            assert sorted(http.get("/keys/*").json()["result"]) == ["a", "b", "c", "new"]
            assert several(["DBSIZE"]) == [4]
            answer = httpx.get(f"{server.url}/get/a?_token={token}")
            assert answer.json() == {"result": "4"}
            assert http.post("/", json=["EVAL", script, 1, "a"]).json() == {"result": 5}
            saved = server.snapshot()
            server.execute("FLUSHALL")
            server.restore(saved)
            assert server.contents() == {"a": "5", "b": "3", "c": "4", "new": "x"}

    def test_a_slot_that_moves_under_load(self, nodes: list[Process], cloud: Cloud) -> None:
        server = cloud.kv_server(engine=f"redis+cluster://127.0.0.1:{nodes[0].port}")
        server.load({f"key {at}": at for at in range(200)})
        stop = threading.Event()
        bad: list[str] = []
        done: list[int] = []

        def work(number: int) -> None:
            bodies = [
                ("/", ["INCR", f"n{number}"]),
                ("/pipeline", [["SET", f"p{number}", 1], ["GET", f"p{number}"]]),
                ("/multi-exec", [["INCR", f"m{number}"], ["EXPIRE", f"m{number}", 100]]),
                ("/multi-exec", [["INCR", f"x{number}"], ["INCR", f"y{number}"]]),
                ("/", ["MGET", "key 1", "key 150"]),
                ("/", ["EVAL", "return redis.call('INCR', KEYS[1])", 1, f"e{number}"]),
                ("/", ["DBSIZE"]),
            ]
            count = 0
            with httpx.Client(base_url=server.url, headers=server.headers, timeout=20) as http:
                while not stop.is_set():
                    for path, body in bodies:
                        answer = http.post(path, json=body)
                        if answer.status_code != 200 or '"error"' in answer.text:
                            bad.append(answer.text)
                            return
                    count += 1
            done.append(count)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(4):
                move = Move(server, nodes)
                move.begin()
                move.all()
                move.end()
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
        assert bad == []
        assert len(done) == 4
        assert min(done) >= 1
        for name in "nmxye":
            counts = [int(server.value(f"{name}{number}") or 0) for number in range(4)]
            assert sorted(counts) == sorted(done), name

    def test_a_stopped_node(self, nodes: list[Process], cloud: Cloud) -> None:
        server = cloud.kv_server(engine=f"redis+cluster://127.0.0.1:{nodes[0].port}")
        home = server._engine.namespace.link._home()[1]  # type: ignore[attr-defined]
        node = next(node for node in nodes if node.port == home)
        with httpx.Client(base_url=server.url, headers=server.headers) as http:
            assert http.get("/set/k/v").json() == {"result": "OK"}
            node.kill()
            for path in ("/get/k", "/set/k/w", "/keys/*"):
                answer = http.get(path)
                assert answer.status_code == 503
                assert "is not reachable" in answer.json()["error"]
            node.start()
            wait_until(lambda: http.get("/set/k/w").status_code == 200)
            script = "return redis.call('GET', KEYS[1])"
            assert http.post("/", json=["EVAL", script, 1, "k"]).json() == {"result": "w"}


class Move:
    """The slot of a fake on its way from its node to the next one."""

    def __init__(self, server: KVServer, nodes: list[Process]) -> None:
        self._prefix: bytes = server._engine.namespace.prefixes.keys  # type: ignore[attr-defined]
        self._slot = key_slot(self._prefix)
        self._nodes = nodes
        owner = next(
            node[1]
            for first, last, node, *_ in asked(nodes[0], "CLUSTER", "SLOTS")
            if first <= self._slot <= last
        )
        self._source = next(node for node in nodes if node.port == owner)
        self._target = nodes[(nodes.index(self._source) + 1) % len(nodes)]

    def begin(self) -> None:
        source, target = (asked(node, "CLUSTER", "MYID") for node in (self._source, self._target))
        asked(self._target, "CLUSTER", "SETSLOT", self._slot, "IMPORTING", source)
        asked(self._source, "CLUSTER", "SETSLOT", self._slot, "MIGRATING", target)

    def keys(self, *names: str) -> None:
        full = [self._prefix + name.encode() for name in names]
        self._migrate(full)

    def all(self) -> None:
        while keys := asked(self._source, "CLUSTER", "GETKEYSINSLOT", self._slot, 10):
            self._migrate(keys)

    def _migrate(self, keys: list[Any]) -> None:
        place = ("127.0.0.1", self._target.port)
        asked(self._source, "MIGRATE", *place, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        target = asked(self._target, "CLUSTER", "MYID")
        for node in (self._target, self._source, *self._nodes):
            asked(node, "CLUSTER", "SETSLOT", self._slot, "NODE", target)


class TestSentinel:
    @pytest.fixture
    def sentinel(self, binary: str, process: Process) -> Iterator[int]:
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="kv") as folder:
            file = Path(folder) / "sentinel.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
                f"sentinel monitor primary 127.0.0.1 {process.port} 1\n"
                "sentinel down-after-milliseconds primary 300\n"
                "sentinel failover-timeout primary 5000\n"
            )
            sentinel = subprocess.Popen(
                [binary, str(file), "--sentinel"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                yield port
            finally:
                sentinel.kill()
                sentinel.wait()

    def test_the_primary_it_names(self, process: Process, sentinel: int) -> None:
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel}/primary/2"
        with Cloud() as cloud:
            server = eventually_made(cloud, url)
            server.load({"k": "v"})
            assert server.contents() == {"k": "v"}
            assert process.call("DBSIZE") == ":0"

    @pytest.fixture
    def replica(self, binary: str, process: Process) -> Iterator[Process]:
        process.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica = Process(
            binary, "--save", "", "--replicaof", f"127.0.0.1 {process.port}", "--appendonly", "no"
        )
        wait_until(lambda: asked(replica, "ROLE")[3] == "connected")
        yield replica
        replica.close()

    def test_a_replica_takes_over(self, process: Process, replica: Process, sentinel: int) -> None:
        with Cloud() as cloud:
            server = eventually_made(cloud, f"redis+sentinel://127.0.0.1:{sentinel}/primary")
            watch = redis.Redis(port=sentinel, protocol=2, decode_responses=True)
            wait_until(lambda: len(watch.execute_command("SENTINEL", "REPLICAS", "primary")) == 1)
            watch.close()
            with (
                httpx.Client(base_url=server.url, headers=server.headers) as http,
                listening(server, "/subscribe/news") as lines,
            ):
                assert next(lines) == "data: subscribe,news,1"
                lines_sent = [["SET", "k", "v"], ["INCR", "n"]]
                assert http.post("/multi-exec", json=lines_sent).status_code == 200
                assert server.execute("EVAL", "return redis.call('GET', KEYS[1])", 1, "k") == "v"
                wait_until(lambda: asked(replica, "DBSIZE") == 2)
                process.kill()
                answers = [http.get("/get/k")]

                def served() -> bool:
                    answers.append(http.get("/set/other/x"))
                    return answers[-1].status_code == 200

                wait_until(served)
                assert answers[0].status_code == 503
                for answer in answers[:-1]:
                    assert answer.status_code == 503, answer.text
                    assert "is not reachable" in answer.json()["error"]
                assert server.contents() == {"k": "v", "n": "1", "other": "x"}
                answer = http.post("/multi-exec", json=lines_sent)
                assert [item["result"] for item in answer.json()] == ["OK", 2]
                # The new primary did not have the user that scripts run as.
                assert server.execute("EVAL", "return redis.call('GET', KEYS[1])", 1, "k") == "v"
                assert server.execute("FLUSHALL") == "OK"
                # The subscription continues.
                with publishing(server, "news", "again"):
                    assert next(lines) == "data: message,news,again"
            assert cloud.violations() == []


def eventually_made(cloud: Cloud, url: str) -> KVServer:
    made: list[KVServer] = []

    def make() -> bool:
        try:
            made.append(cloud.kv_server(engine=url))
        except ContractError:
            return False
        return True

    wait_until(make)
    return made[0]
