"""The scenarios of clusters, played on a fake and on a real cluster: each reply is the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from tests.harness import check_each, wait_until
from tests.kv.backing import BINARIES, MISSING, OneNodeCluster, cluster_of_three
from tests.kv.comparison import wire
from tests.kv.comparison.faces import Port
from tests.kv.conftest import argv
from tests.kv.scenarios import Scenario, scenarios

pytestmark = pytest.mark.slow
ONE_NODE = {
    name: steps
    for name, (settings, steps) in scenarios("vendor/server/cluster").items()
    if settings["cluster"] is True
}
_CHANGING = re.compile(rb"\b[0-9a-f]{40}\b|(?<=@)\d+")
"""IDs, and the port of the bus."""
_ABOUT_NODES = (
    "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER INFO", "CLUSTER MYID",
    "CLUSTER HELP", "CLUSTER LINKS", "INFO cluster",
)  # fmt: skip


NAMES = ["redis"] if "redis" in BINARIES else [pytest.param("none", marks=MISSING)]
A_MOVE = """
1 MSET {b}1 x {b}2 y
1 CLUSTER SETSLOT 3300 MIGRATING $2
2 CLUSTER SETSLOT 3300 IMPORTING $1
1 GET {b}1
1 GET {b}new
1 SET {b}new 1
1 MGET {b}1 {b}new
1 EVAL "return 1" 1 {b}new
1 MULTI
1 GET {b}new
1 EXEC
2 GET {b}1
1 MIGRATE $host $port2 {b}1 0 1000
1 GET {b}1
1 MGET {b}1 {b}2
2 ASKING
2 GET {b}1
2 GET {b}1
2 ASKING
2 MGET {b}1 {b}2
2 ASKING
2 SET {b}new 5
2 ASKING
2 MULTI
2 GET {b}1
2 GET {b}new
2 EXEC
2 GET {b}1
2 ASKING
2 PING
2 GET {b}1
1 CLUSTER COUNTKEYSINSLOT 3300
2 CLUSTER COUNTKEYSINSLOT 3300
1 CLUSTER GETKEYSINSLOT 3300 9
1 DBSIZE
2 DBSIZE
1 CLUSTER SETSLOT 3300 NODE $2
1 MIGRATE $host $port2 {b}2 0 1000
2 CLUSTER SETSLOT 3300 NODE $2
1 CLUSTER SETSLOT 3300 NODE $2
3 CLUSTER SETSLOT 3300 NODE $2
1 GET {b}2
2 GET {b}2
3 GET {b}2
2 MGET {b}1 {b}2 {b}new
1 CLUSTER SLOTS
3 CLUSTER SLOTS
1 READONLY
1 GET {b}2
3 GET foo
2 GET foo
2 MGET foo b
2 EVAL "return redis.call('GET', 'foo')" 0
2 EVAL "return redis.call('GET', 'f')" 1 {b}1
1 SPUBLISH foo x
1 SSUBSCRIBE foo
3 DBSIZE
1 FLUSHALL
2 DBSIZE
2 CLUSTER SETSLOT 3300 MIGRATING $3
2 CLUSTER SETSLOT 3300 STABLE
2 GET {b}none
"""
"""Commands to the nodes, by number: slot 3300 moves from the first to the second one."""


def _play(real: OneNodeCluster, steps: Scenario) -> None:
    with (
        KVServer(Context.alone(), dialect="redis", cluster=True) as server,
        closing(Port(server.database_url)) as port,
    ):
        kept: list[dict[bytes, bytes]] = [{}, {}]
        for line, expected in steps:
            words = argv((line.removeprefix("port> "),))
            replies = [
                client.call([names.get(word, unquote_to_bytes(word)) for word in words])
                for client, names in zip((port, real), kept, strict=True)
            ]
            if isinstance(expected, str) and expected.startswith("$"):
                for names, reply in zip(kept, replies, strict=True):
                    names[expected.encode()] = reply
            ours, theirs = (
                normal(words, reply, address_of(url))
                for reply, url in zip(replies, (server.database_url, real.url), strict=True)
            )
            assert ours == theirs, line


@pytest.mark.parametrize("name", NAMES)
def test_one_node(name: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(len(ONE_NODE)) as pool:
        # A node waits for two seconds before it takes writes: all nodes do it at the same time.
        started = [pool.submit(OneNodeCluster, name) for _ in ONE_NODE]
        nodes = [stack.enter_context(closing(node.result(30))) for node in started]

        def play(scenario: str, node: OneNodeCluster) -> None:
            _play(node, ONE_NODE[scenario])

        check_each(play, zip(ONE_NODE, nodes, strict=True))


@pytest.fixture(params=NAMES)
def real(request: pytest.FixtureRequest) -> Iterator[OneNodeCluster]:
    with closing(OneNodeCluster(request.param)) as server:
        yield server


def test_the_replies_about_all_nodes(real: OneNodeCluster) -> None:
    with KVServer(Context.alone(), dialect="redis", cluster=True) as server:
        for resp in (2, 3):
            with closing(Port(server.database_url, resp)) as port:
                real.call([b"HELLO", b"%d" % resp])
                for line in _ABOUT_NODES:
                    words = argv((line,))
                    ours, theirs = (
                        normal(words, client.call(words), address_of(url))
                        for client, url in ((port, server.database_url), (real, real.url))
                    )
                    assert ours == theirs, line


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_moves(name: str) -> None:
    with ExitStack() as stack:
        theirs, ours = _both(stack, name)
        for line in A_MOVE.split("\n")[1:-1]:
            assert ours.call(line) == theirs.call(line), line


VIEWS = """
1 SET {b}a x
4 SSUBSCRIBE {b}a
1 CLUSTER DELSLOTS 3300 3301
4 PING
1 CLUSTER DELSLOTS 3300
1 CLUSTER SLOTS
2 CLUSTER SLOTS
1 CLUSTER INFO
2 CLUSTER INFO
1 GET {b}a
2 GET {b}a
1 GET b
1 GET foo
2 GET foo
1 SPUBLISH foo x
1 SPUBLISH {b}a x
1 CLUSTER COUNTKEYSINSLOT 3300
1 CLUSTER SETSLOT 3300 MIGRATING $2
2 CLUSTER ADDSLOTS 3300
1 CLUSTER ADDSLOTS 3300
1 CLUSTER INFO
1 CLUSTER ADDSLOTS 3301
1 CLUSTER INFO
1 GET {b}a
2 CLUSTER FLUSHSLOTS
2 CLUSTER SLOTS
2 CLUSTER INFO
1 CLUSTER SLOTS
3 CLUSTER DELSLOTS 6000
3 CLUSTER DELSLOTS 6000
3 GET foo
1 CLUSTER ADDSLOTS 6000
3 CLUSTER ADDSLOTS 6000
2 CLUSTER ADDSLOTSRANGE 5461 5999 6001 10922
1 CLUSTER SLOTS ...
2 CLUSTER SLOTS ...
3 CLUSTER SLOTS ...
3 CLUSTER DELSLOTS 0
3 CLUSTER SLOTS ...
3 GET foo
"""
"""Commands to the nodes: each knows itself which slots have no node. An ellipsis: after a moment. The
answer to 4's PING is the message that came before it.
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_node_takes_slots_away_only_from_what_it_knows(name: str) -> None:
    with ExitStack() as stack:
        theirs, ours = _both(stack, name, connections=2, resp=3)
        for line in VIEWS.split("\n")[1:-1]:
            command = line.removesuffix(" ...")
            reply = ours.call(command)
            if command == line:
                assert theirs.call(command) == reply, line
            else:
                wait_until(lambda: theirs.call(command) == reply)  # noqa: B023


CLIENTS_OF_NODES = """
4 CLIENT SETNAME subscriber
5 CLIENT SETNAME subscriber
4 SUBSCRIBE foo
5 SUBSCRIBE foo
5 SUBSCRIBE bar
5 PSUBSCRIBE f*
4 SSUBSCRIBE b
1 PUBSUB CHANNELS
2 PUBSUB CHANNELS f*
3 PUBSUB CHANNELS
1 PUBSUB CHANNELS b*
1 PUBSUB NUMSUB foo bar none
2 PUBSUB NUMSUB foo bar none
1 PUBSUB NUMPAT
2 PUBSUB NUMPAT
1 PUBSUB SHARDCHANNELS
2 PUBSUB SHARDCHANNELS
1 PUBSUB SHARDNUMSUB b
2 PUBSUB SHARDNUMSUB b
1 CLIENT LIST
2 CLIENT LIST
1 CLIENT LIST TYPE pubsub
3 CLIENT LIST TYPE pubsub
3 CLIENT KILL TYPE pubsub
2 CLIENT KILL TYPE pubsub
1 CLIENT LIST
2 CLIENT LIST
"""
"""Commands to the nodes; 4, 5 and 6 are a second connection to each."""


@pytest.mark.parametrize("name", NAMES)
def test_each_node_has_its_own_clients(name: str) -> None:
    with ExitStack() as stack:
        theirs, ours = _both(stack, name, connections=2, resp=3)
        for line in CLIENTS_OF_NODES.split("\n")[1:-1]:
            expected, reply = theirs.call(line), ours.call(line)
            if "CLIENT LIST" in line:
                expected, reply = _names(expected), _names(reply)
            assert reply == expected, line


def _text(reply: bytes | wire.Typed) -> bytes:
    """Return a string, which RESP3 can send as verbatim one."""
    if isinstance(reply, bytes):
        return reply
    assert isinstance(reply.value, bytes)
    return reply.value


def _names(clients: bytes | wire.Typed) -> list[bytes]:
    """Return the names in a reply of CLIENT LIST."""
    return re.findall(rb" name=(\S*)", _text(clients))


def _both(
    stack: ExitStack, name: str, connections: int = 1, resp: int = 2
) -> tuple[_Nodes, _Nodes]:
    """Connect to the nodes of a real cluster and of a fake, this number of times to each node."""
    processes = stack.enter_context(cluster_of_three(BINARIES[name]))
    server = stack.enter_context(KVServer(Context.alone(), dialect="redis", cluster=3))
    nodes = server._engine.topology.nodes[:3]  # type: ignore[union-attr]
    password = f":{server.env['REDIS_URL'].split(':')[2].split('@')[0]}@"
    urls = [
        [f"redis://127.0.0.1:{process.port}" for process in processes],
        [f"redis://{password}{node.address}" for node in nodes],
    ]
    theirs, ours = (
        _Nodes([stack.enter_context(closing(Port(url, resp))) for url in cluster * connections])
        for cluster in urls
    )
    wait_until(theirs.know_each_other)
    return theirs, ours


class _Nodes:
    """The nodes of a cluster, whose replies have no IDs and ports in them."""

    def __init__(self, ports: list[Port]) -> None:
        self._ports = ports
        self._ids = [port.call([b"CLUSTER", b"MYID"]) for port in ports]
        self._numbers = [b"%d" % port._socket.getpeername()[1] for port in ports]

    def know_each_other(self) -> bool:
        return all(
            b"cluster_state:ok" in info and b"cluster_known_nodes:3" in info
            for info in (_text(port.call([b"CLUSTER", b"INFO"])) for port in self._ports)
        )

    def call(self, line: str) -> Any:
        number, _, command = line.partition(" ")
        words = {b"$host": b"127.0.0.1", b"$port2": self._numbers[1]}
        words |= {b"$%d" % place: id for place, id in enumerate(self._ids, 1)}
        port = self._ports[int(number) - 1]
        reply = port.call([words.get(word, word) for word in argv((command,))])
        if command == "CLUSTER SLOTS":  # without the replicas, which only the fake has
            reply = [owned[:3] for owned in reply]
        if command == "CLUSTER INFO":
            reply = re.findall(rb"cluster_(?:state|slots.*|size|.*epoch):\w+", _text(reply))
        return self._normal(reply)

    def _normal(self, reply: Any) -> Any:
        if isinstance(reply, tuple):
            return type(reply)(*map(self._normal, reply))
        if isinstance(reply, list):
            return list(map(self._normal, reply))
        if isinstance(reply, bytes):
            for place, (id, number) in enumerate(zip(self._ids, self._numbers, strict=True)):
                reply = reply.replace(id, b"id%d" % place).replace(number, b"port%d" % place)
            return reply
        if isinstance(reply, int) and b"%d" % reply in self._numbers:
            return self._numbers.index(b"%d" % reply) - 3
        return reply


def address_of(url: str) -> str:
    return url.rpartition("/")[2].rpartition("@")[2]


def normal(words: list[bytes], reply: Any, address: str) -> Any:
    """Return a reply without what differs from run to run, and without the address of its server."""
    host, _, port = address.encode().rpartition(b":")
    if isinstance(reply, tuple):
        return type(reply)(*[normal(words, part, address) for part in reply])
    if isinstance(reply, list):
        return [normal(words, item, address) for item in reply]
    if isinstance(reply, bytes):
        # A real node does not know its host before it has met another one.
        for part in (host, port):
            reply = reply.replace(part, b"")
        return b"INFO" if words[:2] == [b"INFO", b"server"] else _CHANGING.sub(b"?", reply)
    return 0 if reply == int(port) or words[:1] == [b"HELLO"] else reply
