"""redis-py's clients of a cluster, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.fake import KVServer
from tests.harness import wait_until

redis = pytest.importorskip("redis", minversion="6")

pytestmark = [
    # The client itself calls deprecated functions.
    pytest.mark.filterwarnings("ignore:Call to:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Call to:UserWarning"),
]
ONE_PER_NODE = ("b", "c", "a")
"""A key for each of three nodes."""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud
        assert cloud.violations() == []


@pytest.fixture(params=[True, 3], ids=["one node", "three nodes"])
def server(request: pytest.FixtureRequest, cloud: Cloud) -> KVServer:
    return cloud.kv_server(dialect="redis", cluster=request.param)


class Waiting:
    """An asynchronous client, whose methods return what they resolve to."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            return self._loop.run_until_complete(result) if asyncio.iscoroutine(result) else result

        return call if callable(method) else method


Connect = Callable[[KVServer], Any]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Return a function that opens a client of a cluster."""
    loop, clients = asyncio.new_event_loop(), []

    def opened(server: KVServer, **options: Any) -> Any:
        options |= {"decode_responses": True}
        if request.param == "sync":
            clients.append(redis.RedisCluster.from_url(server.database_url, **options))
            return clients[-1]
        client = redis.asyncio.RedisCluster.from_url(server.database_url, **options)
        clients.append(Waiting(client, loop))
        loop.run_until_complete(client.initialize())
        return clients[-1]

    yield opened
    for client in clients:
        client.close() if request.param == "sync" else client.aclose()
    loop.close()


def test_commands_reach_their_nodes(server: KVServer, connect: Connect) -> None:
    client = connect(server)
    for number in range(30):
        assert client.set(f"key:{number}", number) is True
    assert client.get("key:7") == "7"
    assert client.mget("{t}1", "{t}2") == [None, None]
    assert client.mset({"{t}1": "a", "{t}2": "b"}) is True
    assert client.delete("{t}1", "{t}2") == 2
    assert client.dbsize(target_nodes="primaries") == 30
    assert sorted(server.keys()) == sorted(f"key:{number}" for number in range(30))
    assert client.eval("return redis.call('GET', KEYS[1])", 1, "key:7") == "7"
    sha = client.script_load("return KEYS[1]")
    assert client.evalsha(sha, 1, "key:8") == "key:8"
    assert client.cluster_keyslot("foo") == 12182
    assert client.cluster_info()["cluster_state"] == "ok"
    # Every reply was that of the right node.
    assert not [call for call in server.journal.calls() if b"MOVED" in (call.response_body or b"")]


def test_all_keys_are_found_once(server: KVServer, connect: Connect) -> None:
    client = connect(server)
    server.load({f"key:{number}": str(number) for number in range(50)})
    if isinstance(client, Waiting):
        found = client._loop.run_until_complete(_all(client._client.scan_iter(count=7)))
    else:
        found = list(client.scan_iter(count=7))
    assert sorted(found) == sorted(server.keys())
    assert sorted(client.keys(target_nodes="primaries")) == sorted(server.keys())
    assert client.flushall(target_nodes="primaries")
    assert server.keys() == []


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


def test_keys_of_several_slots_are_refused(server: KVServer, connect: Connect) -> None:
    client = connect(server)
    with pytest.raises(redis.RedisClusterException, match="same"):
        client.mset({"a": 1, "b": 2})
    node = client.get_primaries()[0]
    with pytest.raises(redis.exceptions.ClusterCrossSlotError):
        client.execute_command("MGET", "a", "b", target_nodes=node)
    assert client.mset_nonatomic({"a": 1, "b": 2})
    assert client.mget_nonatomic("a", "b") == ["1", "2"]


def test_a_transaction_of_one_slot(cloud: Cloud) -> None:
    server = cloud.kv_server(dialect="redis", cluster=3)
    with redis.RedisCluster.from_url(server.database_url, decode_responses=True) as client:
        with client.pipeline(transaction=True) as pipe:
            pipe.set("{t}1", 1)
            pipe.incr("{t}1")
            assert pipe.execute() in ([True, 2], ["OK", 2])
        with client.pipeline() as pipe:
            for key in ONE_PER_NODE:
                pipe.set(key, key)
            assert pipe.execute() == [True] * 3


def test_messages(cloud: Cloud) -> None:
    server = cloud.kv_server(dialect="redis", cluster=3)
    with redis.RedisCluster.from_url(server.database_url, decode_responses=True) as client:
        sharded = client.pubsub()
        sharded.ssubscribe(*ONE_PER_NODE)
        heard: list[str] = []

        def listen(listener: Any, get: Callable[..., Any]) -> bool:
            message = get(ignore_subscribe_messages=True, timeout=0.1)
            heard.extend([message["data"]] if message else [])
            return message is not None

        wait_until(lambda: len(server.execute("PUBSUB", "SHARDCHANNELS")) == 3)
        for key in ONE_PER_NODE:
            assert client.spublish(key, key) == 1
        for _ in ONE_PER_NODE:
            wait_until(lambda: listen(sharded, sharded.get_sharded_message))
        assert sorted(heard) == sorted(ONE_PER_NODE)
        sharded.close()

        plain = client.pubsub()
        plain.subscribe("news")
        wait_until(lambda: server.execute("PUBSUB", "CHANNELS") == ["news"])
        # A message reaches all nodes, but each counts only its own clients.
        counts = [
            client.execute_command("PUBLISH", "news", "hello", target_nodes=node)
            for node in client.get_primaries()
        ]
        assert sorted(counts) == [0, 0, 1]
        heard.clear()
        for _ in range(3):
            wait_until(lambda: listen(plain, plain.get_message))
        assert heard == ["hello"] * 3
        plain.close()


def test_reads_from_replicas(cloud: Cloud) -> None:
    server = cloud.kv_server(dialect="redis", cluster=3)
    url = server.database_url
    with redis.RedisCluster.from_url(url, read_from_replicas=True, decode_responses=True) as client:
        client.set("b", 1)
        assert [client.get("b") for _ in range(4)] == ["1"] * 4
        client.set("b", 2)
        assert len(client.get_replicas()) == 3
    assert server.journal.calls(command="READONLY")


def test_another_database_is_refused(server: KVServer) -> None:
    refusal = pytest.raises(redis.ResponseError, match="SELECT is not allowed in cluster mode")
    with redis.Redis.from_url(f"{server.database_url}/1") as client, refusal:
        client.get("a")


def test_a_resharding_and_a_failover(cloud: Cloud, connect: Connect) -> None:
    server = cloud.kv_server(dialect="redis", cluster=3)
    client = connect(server)
    client.set("b", 0)
    server.faults.moved("b")
    server.faults.ask("c", times=2)
    server.faults.failover(key="a")
    for _ in range(3):
        for key in ONE_PER_NODE:
            client.incr(key)
    assert server.contents() == dict.fromkeys(ONE_PER_NODE, "3")
    server.faults.cluster_down(times=1, key="b")
    client.incr("b")  # which the client repeats
    assert server.value("b") == "4"
