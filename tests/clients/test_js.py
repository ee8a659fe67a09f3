"""Run the official JavaScript clients in Node.

Skipped if Node or a package is missing: `npm ci` in `tests/clients/js` installs the packages. The
same test file of the key-value client runs in memory and in front of each installed server, that of
the broker's client with both engines: the second is Kafka's, on librdkafka's mock cluster.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.vector.fake import VectorIndex
from tests.kv.backing import BINARIES, MISSING, OWN, started
from tests.queue.scene import attempts_among

from . import node

# -- the key-value service ------------------------------------------------------------------------

NOW = "2026-01-01T00:00:00Z"
NAMES = ("single", "scripts", "several", "auto", "messages", "limits")
NEEDED = ("ARSET", "HEXPIRE", "JSON.SET")
"""Commands that some servers lack; tests that need one name it."""
TESTS = 23
IN_MEMORY = "memory"
ENGINES = [IN_MEMORY, OWN, *(BINARIES or [pytest.param("none", marks=MISSING)])]

Make = Callable[[Context, str], KVServer]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make(engine: str) -> Iterator[Make]:
    """Return a function that opens named servers in front of one engine."""
    if engine == IN_MEMORY:
        yield lambda context, name: KVServer(context, name=name)
        return
    pytest.importorskip("redis")
    real = started(engine)
    try:

        def made(context: Context, name: str) -> KVServer:
            # SCRIPT FLUSH and FUNCTION affect a whole server, so only a fake without isolation may
            # run them.
            options: dict[str, Any] = {"isolation": "none"} if name == "scripts" else {}
            return KVServer(context, name=name, engine=real.url, **options)

        yield made
    finally:
        real.close()


def lacking(server: KVServer, engine: str) -> dict[str, str]:
    """Return the commands of the list that a server lacks, each with the reason."""
    if engine == IN_MEMORY:
        return {}
    infos = zip(NEEDED, server.execute("COMMAND", "INFO", *NEEDED), strict=True)
    return {name: f"{engine} has no {name}" for name, info in infos if not info}


@pytest.mark.slow
def test_the_key_value_clients(make: Make, engine: str) -> None:
    node.need("@upstash/redis", "@upstash/ratelimit")
    context = Context.alone(seed=1)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(make(context, name)) for name in NAMES}
        connections = {
            name: {"url": made.url, "token": made.token, "readOnlyToken": made.read_only_token}
            for name, made in servers.items()
        }
        lacks = lacking(servers["single"], engine)
        environment = {"FAKE_KV_SERVERS": connections, "FAKE_KV_LACKS": lacks}
        outcome = node.run(
            "redis.test.mjs", {name: json.dumps(value) for name, value in environment.items()}
        )
        assert outcome.passed + len(outcome.skipped) >= TESTS
        # Every exclusion has a reason, and everything else that the engine has is included.
        assert set(outcome.skipped.values()) == set(lacks.values())
        assert context.violations == []
        # Commands of one tick were sent together.
        assert [call.route for call in servers["auto"].journal.calls()] == ["pipeline"] * 2
        routes = [call.route for call in servers["messages"].journal.calls()]
        assert {"subscribe", "psubscribe"} <= set(routes)
        assert servers["messages"].execute("PUBSUB", "CHANNELS") == []


@pytest.mark.slow
def test_every_method_of_the_key_value_client() -> None:
    node.need("@upstash/redis")
    context = Context.alone(seed=1, now=NOW)
    with KVServer(context, name="one") as first, KVServer(context, name="another") as another:
        connections = [{"url": server.url, "token": server.token} for server in (first, another)]
        node.run("redis-methods.test.mjs", {"FAKE_KV_SERVERS": json.dumps(connections)})
        assert context.violations == []


@pytest.mark.slow
def test_the_expected_answers_have_the_declared_types() -> None:
    node.need("@upstash/redis", "typescript", "@types/node")
    # Without the declarations of browsers, which take as long as the rest.
    target = ["--target", "es2022", "--lib", "es2022"]
    options = ["--noEmit", "--allowJs", "--strict", "--module", "nodenext", *target]
    process = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", *options, "--skipLibCheck", "--types", "node",
         "redis-methods.test.mjs"],
        cwd=node.HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout


@pytest.mark.slow
def test_every_export_of_the_clients_is_used() -> None:
    node.need(*json.loads((node.HERE / "package.json").read_text())["dependencies"])
    node.run("exports.test.mjs", {})


@pytest.mark.parametrize(("file", "tests"), [("search", 20), ("redis-vector", 3)])
def test_the_search_and_vector_clients(file: str, tests: int) -> None:
    node.need("@upstash/redis")
    context = Context.alone(seed=1)
    with KVServer(context) as server:
        connection = {"url": server.url, "token": server.token}
        outcome = node.run(f"{file}.test.mjs", {"FAKE_KV_SERVER": json.dumps(connection)})
        assert outcome.passed == tests
        assert context.violations == []


# -- the vector index ------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense", "dimension": 2},
    "sparse": {"kind": "sparse"},
    "hybrid": {"kind": "hybrid", "dimension": 2},
    "dense with embedding": {"kind": "dense", "embedding": True},
    "hybrid with embedding": {"kind": "hybrid", "embedding": True},
}


@pytest.mark.slow
def test_the_vector_client() -> None:
    node.need("@upstash/vector")
    context = Context.alone(seed=1)
    with ExitStack() as stack:
        indexes = {
            kind: stack.enter_context(VectorIndex(context, **settings))
            for kind, settings in KINDS.items()
        }
        connections = {
            kind: {"url": index.url, "token": index.token} for kind, index in indexes.items()
        }
        outcome = node.run("vector.test.mjs", {"FAKE_VECTOR_INDEXES": json.dumps(connections)})
        assert outcome.passed >= 21
        # Only the request to the bare address has no route.
        assert [violation.kind for violation in context.violations] == ["unrouted"]
        indexes["hybrid"].assert_queried(top_k=1, times=1)


# -- the queue -------------------------------------------------------------------------------------


@pytest.fixture
def queue_environment(name: str) -> Iterator[dict[str, str]]:
    with Cloud(clock="frozen", seed=1, delivery="driven") as cloud:
        queue: Any = cloud.queue(dev_credentials=name == "qstash-dev")
        chat = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}
        event = (
            "data: " + json.dumps({"choices": [{"delta": {"content": "hel"}}]}) + "\n\n"
        ).encode()
        queue.destinations.call(
            "api/llm",
            lambda request: (
                (200, event + b"data: [DONE]\n\n", {"Content-Type": "text/event-stream"})
                if request.json().get("stream")
                else (200, json.dumps(chat).encode(), {"Content-Type": "application/json"})
            ),
        )
        queue.set_baseline()
        words = {
            "idle": lambda: len(queue.run_until_idle()),
            "advance": lambda duration: len(attempts_among(queue.clock.advance(duration))),
            "reset": queue.reset,
            "now": cloud.clock.now_ms,
        }
        with node.control(words) as control:
            yield {**queue.env, **control}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qstash", "qstash-dev", "workflow"])
def test_the_queue_clients(name: str, queue_environment: dict[str, str]) -> None:
    node.need(f"@upstash/{name.removesuffix('-dev')}")
    assert node.run(f"{name}.test.mjs", queue_environment).passed > 0


# -- the broker ------------------------------------------------------------------------------------


def words(broker: Broker) -> dict[str, Callable[..., Any]]:
    """Return the functions through which the JavaScript tests control the broker."""

    def until_parked() -> int:
        until = monotonic() + 10
        while not broker._engine._waits.waiting:
            assert monotonic() < until, "no call waits"
        return len(broker._engine._waits.waiting)

    def fault(kind: str, status: int | None, route: str, times: int) -> int:
        if kind == "answer":
            broker.faults.respond(status or 500, route=route, times=times)
        else:
            broker.faults.lose_response(route=route, times=times)
        return times

    return {
        "create_topic": lambda name, partitions: broker.create_topic(name, partitions).name,
        "advance": lambda duration: len(broker.clock.advance(duration)),
        "now": broker.clock.now_ms,
        "calls": lambda route: len(broker.journal.calls(route=route)),
        "until_parked": until_parked,
        "fault": fault,
    }


SKIPPED = {"memory": [], "kafka": ["topicPartitionOffsets at a time"]}
"""The tests of the JavaScript file that an engine cannot support."""
CANNOT = ["virtual time", "groups without delay", "offsets by time"]
"""A real cluster does not support these; the last one only fails on the mock cluster (librdkafka
issue 4755).
"""


@pytest.fixture
def on_kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Yield the settings of a broker that uses the mock cluster."""
    pytest.importorskip("confluent_kafka")
    from pytest_fakecloud.broker.real_kafka import engine as kafka_engine

    from ..broker.real_kafka.mock_cluster import SETTINGS, MockCluster, library

    path = library()
    if path is None:
        pytest.skip("this librdkafka shows no mock cluster")
    mock = MockCluster(path)
    monkeypatch.setattr(kafka_engine, "Cluster", mock.administered())
    yield {"engine": f"kafka://{mock.bootstrap}?{SETTINGS}", "session_timeout": "1300ms"}
    mock.close()


@pytest.fixture(params=["memory", "kafka"])
def broker_engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def broker_environment(
    request: pytest.FixtureRequest, broker_engine: str
) -> Iterator[dict[str, str]]:
    settings = request.getfixturevalue("on_kafka") if broker_engine == "kafka" else {}
    cannot = "\n".join(CANNOT if broker_engine == "kafka" else [])
    # The JavaScript client encodes each character of the credentials as one byte, that is, in
    # Latin-1.
    with (
        Cloud(seed=1) as cloud,
        cloud.broker(
            username="jürgen", password="pässwörd", instance_limit=None, **settings
        ) as broker,
        node.control(words(broker)) as control,
    ):
        yield {**broker.env, **control, "FAKE_CANNOT": cannot}


@pytest.mark.slow
def test_the_broker_client(broker_environment: dict[str, str], broker_engine: str) -> None:
    node.need("@upstash/kafka")
    outcome = node.run("kafka.test.mjs", broker_environment)
    assert list(outcome.skipped) == SKIPPED[broker_engine]
    assert outcome.passed >= 29 - len(outcome.skipped), outcome.output
