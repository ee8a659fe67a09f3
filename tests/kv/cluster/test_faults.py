"""Faults of clusters: slots that move, primaries that fail, and a cluster that is down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.kv.fake import KVServer
from tests.kv.comparison.faces import Port
from tests.kv.comparison.wire import Error, Status

redis = pytest.importorskip("redis", minversion="6")

OK = Status(b"OK")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud


@pytest.fixture
def server(cloud: Cloud) -> KVServer:
    return cloud.kv_server(dialect="redis", cluster=3, database_password="")


class Nodes:
    """Connections to the nodes of a cluster, by number."""

    def __init__(self, server: KVServer) -> None:
        self.topology = server._engine.topology  # type: ignore[union-attr]
        self._ports = {node.number: self._connect(node) for node in self.topology.nodes}

    def _connect(self, node: Any) -> Port:
        return Port(f"redis://{node.address}")

    def reconnect(self, number: int) -> None:
        self._ports[number].close()
        self._ports[number] = self._connect(self.topology.nodes[number - 1])

    def __call__(self, number: int, line: str) -> Any:
        reply = self._ports[number].call([word.encode() for word in line.split()])
        for node in self.topology.nodes:
            if isinstance(reply, Error) and reply.text.endswith(node.address.encode()):
                return f"{reply.text.decode().removesuffix(node.address)}{node.number}"
        return reply.text.decode() if isinstance(reply, Error) else reply

    def close(self) -> None:
        for port in self._ports.values():
            port.close()


@pytest.fixture
def nodes(server: KVServer) -> Iterator[Nodes]:
    with closing(Nodes(server)) as nodes:
        yield nodes


def test_a_slot_moves_once(server: KVServer, nodes: Nodes) -> None:
    server.load({"b": "1"})
    fault = server.faults.moved("b")
    assert nodes(1, "PING") == Status(b"PONG")
    assert nodes(2, "GET b") == "MOVED 3300 1"  # not its node
    assert nodes(1, "GET f") is None  # another slot
    assert fault.hits == 0
    assert nodes(1, "GET b") == "MOVED 3300 2"
    assert fault.hits == 1
    assert nodes(1, "GET b") == "MOVED 3300 2"
    assert nodes(2, "GET b") == b"1"
    assert nodes(3, "GET b") == "MOVED 3300 2"
    [call] = server.journal.calls(key="b", fault="moved slot=3300")
    assert (call.facts["node"], call.reached) == (1, True)
    server.reset()
    assert nodes(1, "GET b") is None


def test_the_keys_of_a_slot_move_before_the_slot(server: KVServer, nodes: Nodes) -> None:
    server.load({"{b}1": "1", "{b}2": "2"})
    server.faults.ask(3300, times=2)
    assert nodes(1, "GET {b}1") == "ASK 3300 2"
    assert nodes(2, "GET {b}1") == "MOVED 3300 1"
    assert nodes(2, "ASKING") == OK
    assert nodes(2, "MGET {b}1 {b}2") == [b"1", b"2"]
    assert nodes(1, "SET {b}new 3") == "ASK 3300 2"
    assert nodes(2, "ASKING") == OK
    # The slot has arrived.
    assert nodes(2, "SET {b}new 3") == OK
    assert nodes(1, "GET {b}1") == "MOVED 3300 2"
    assert nodes(2, "GET {b}new") == b"3"


def test_a_slot_arrives_when_its_fault_is_removed(server: KVServer, nodes: Nodes) -> None:
    with server.faults.ask("b") as fault:
        for _ in range(3):
            assert nodes(1, "GET b") == "ASK 3300 2"
        assert fault.hits == 3
    assert nodes(1, "GET b") == "MOVED 3300 2"


def test_a_transaction_during_a_move(server: KVServer, nodes: Nodes) -> None:
    server.faults.moved(key="b")
    assert nodes(1, "MULTI") == OK
    assert nodes(1, "SET b 1") == "MOVED 3300 2"
    assert nodes(1, "EXEC") == "EXECABORT Transaction discarded because of previous errors."
    assert server.keys() == []


def test_a_cluster_that_is_down(server: KVServer, nodes: Nodes) -> None:
    with server.faults.cluster_down(command="SET"):
        assert nodes(1, "SET b 1") == "CLUSTERDOWN The cluster is down"
        assert nodes(1, "GET b") is None
        assert b"cluster_state:fail" in nodes(2, "CLUSTER INFO")
        assert nodes(1, "MULTI") == OK
        assert nodes(1, "SET b 1") == "CLUSTERDOWN The cluster is down"
        assert nodes(1, "EXEC").startswith("EXECABORT")
    assert b"cluster_state:ok" in nodes(2, "CLUSTER INFO")
    assert nodes(1, "SET b 1") == OK


def test_a_replica_takes_over(server: KVServer, nodes: Nodes) -> None:
    assert nodes(1, "SET b 1") == OK
    server.faults.failover(command="SET")
    with pytest.raises((EOFError, ConnectionError)):
        nodes(1, "SET b 2")
    nodes.reconnect(1)
    assert nodes(1, "GET b") == "MOVED 3300 4"
    assert nodes(4, "GET b") == b"1"
    assert nodes(4, "SET b 3") == OK
    assert [replica[1] for replica in nodes(4, "CLUSTER SLOTS")[0][2:]] == [
        nodes.topology.nodes[number - 1].port for number in (4, 1)
    ]
    assert nodes(1, "READONLY") == OK
    assert nodes(1, "GET b") == b"3"
    server.reset()
    assert nodes(1, "GET b") is None


def test_other_clients_of_a_failing_node(server: KVServer, nodes: Nodes) -> None:
    with closing(Port(server.database_url)) as other:
        other.call([b"SUBSCRIBE", b"news"])
        server.faults.failover()
        with pytest.raises((EOFError, ConnectionError)):
            nodes(1, "SET b 2")
        with pytest.raises((EOFError, ConnectionError)):
            other.next()
    assert nodes(2, "PING") == Status(b"PONG")


def test_lost_writes(server: KVServer, nodes: Nodes) -> None:
    """Those that have not reached the replica are lost: an earlier snapshot has none of them."""
    nodes(1, "SET b 1")
    replica = server.snapshot()
    nodes(1, "SET b 2")

    def lag() -> None:
        server.restore(replica)

    server.faults.call(lag, "before", command="GET", times=1)
    server.faults.failover(command="GET")
    with pytest.raises((EOFError, ConnectionError)):
        nodes(1, "GET b")
    assert nodes(4, "GET b") == b"1"


def test_an_application_survives(cloud: Cloud, server: KVServer) -> None:
    with redis.RedisCluster.from_url(server.database_url, decode_responses=True) as client:
        server.faults.moved("b")
        client.set("b", 1)
        server.faults.ask("b", times=2)
        assert [client.incr("b") for _ in range(3)] == [2, 3, 4]
        server.faults.failover(key="c")
        client.set("c", 1)
        assert client.get("c") == "1"
    assert server.contents() == {"b": "4", "c": "1"}
    assert cloud.violations() == []


def test_faults_that_were_not_used(cloud: Cloud, server: KVServer) -> None:
    server.faults.moved(5)
    server.close()
    [violation] = cloud.violations()
    assert "a command with keys in slot 5, sent to their primary" in violation.text


@pytest.mark.parametrize(
    ("settings", "call"),
    [
        ({}, lambda faults: faults.moved()),
        ({"dialect": "redis"}, lambda faults: faults.cluster_down()),
        ({"dialect": "redis", "cluster": True}, lambda faults: faults.ask()),
        ({"dialect": "redis", "cluster": 1}, lambda faults: faults.failover()),
        ({"dialect": "redis", "cluster": 3}, lambda faults: faults.moved(16384)),
        ({"dialect": "redis", "cluster": 3}, lambda faults: faults.ask(True)),
    ],
)
def test_faults_that_are_impossible(cloud: Cloud, settings: dict[str, Any], call: Any) -> None:
    faults = cloud.kv_server(**settings).faults
    with pytest.raises(ContractError, match=r"cluster=|is not a slot"):
        call(faults)
    assert list(faults) == []
