"""A sentinel, a primary and a replica: replies compared with real ones, failovers, and clients."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.fake import KVServer
from tests.harness import wait_until
from tests.kv.backing import BINARIES, MISSING, Process, free_port
from tests.kv.comparison.faces import Port
from tests.kv.comparison.wire import Error, Status, Typed
from tests.kv.conftest import argv

redis = pytest.importorskip("redis", minversion="6")

COMPARED = (
    "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "SENTINEL GET-MASTER-ADDR-BY-NAME nope",
    "SENTINEL MASTERS", "SENTINEL MASTER mymaster", "SENTINEL MASTER nope",
    "SENTINEL REPLICAS mymaster", "SENTINEL SLAVES mymaster", "SENTINEL REPLICAS nope",
    "SENTINEL SENTINELS mymaster", "SENTINEL SENTINELS nope", "SENTINEL CKQUORUM mymaster",
    "SENTINEL CKQUORUM nope", "SENTINEL FAILOVER nope", "SENTINEL RESET nope*", "SENTINEL MYID",
    "SENTINEL PENDING-SCRIPTS", "SENTINEL FLUSHCONFIG", "SENTINEL NOPE", "SENTINEL",
    "SENTINEL GET-MASTER-ADDR-BY-NAME", "SENTINEL MASTERS x",
    "SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 1 0 *", "SENTINEL MONITOR mymaster 127.0.0.1 1 1",
    "SENTINEL REMOVE nope", "SENTINEL SET nope quorum 1", "GET a", "SELECT 0", "MULTI", "PING",
    "PUBLISH a b", "PUBLISH __sentinel__:hello b", "ROLE", "ACL WHOAMI", "CLIENT GETNAME",
    "CLIENT SETNAME x", "INFO sentinel", "INFO replication", "ECHO x", "TIME", "EVAL 1 0",
    "CONFIG GET maxmemory", "SENTINEL HELP", "SENTINEL HELP x", "SENTINEL CONFIG",
    "SENTINEL CONFIG GET", "SENTINEL CONFIG NOPE x", "SENTINEL CONFIG GET *",
    "SENTINEL CONFIG SET announce-port 7", "SENTINEL CONFIG SET ANNOUNCE-IP 1.2.3.4",
    "SENTINEL CONFIG SET announce-port x", "SENTINEL CONFIG SET announce-port 70000",
    "SENTINEL CONFIG SET resolve-hostnames maybe", "SENTINEL CONFIG SET nope 1",
    "SENTINEL CONFIG SET sentinel-user u", "SENTINEL CONFIG GET announce-*",
    "SENTINEL CONFIG GET sentinel-user", "SENTINEL CONFIG GET nope",
    "SENTINEL CONFIG SET announce-port 0", "SENTINEL DEBUG", "SENTINEL DEBUG ping-period",
    "SENTINEL DEBUG nope 1", "SENTINEL DEBUG info-period x", "SENTINEL DEBUG info-period 0",
    "SENTINEL DEBUG election-timeout 9000 INFO-PERIOD 9000", "SENTINEL SIMULATE-FAILURE",
    "SENTINEL SIMULATE-FAILURE help", "SENTINEL SIMULATE-FAILURE nope", "SENTINEL INFO-CACHE",
    "SENTINEL INFO-CACHE nope", "SENTINEL SET mymaster nope 1", "SENTINEL SET mymaster quorum x",
    "SENTINEL SET mymaster quorum 0", "SENTINEL SET mymaster quorum",
    "SENTINEL SET mymaster quorum 1 nope",
    "SENTINEL SET mymaster QUORUM 1 failover-timeout 9000 parallel-syncs 2",
    "SENTINEL SET mymaster rename-command CONFIG y", "SENTINEL SET mymaster auth-pass",
    "SENTINEL MASTER mymaster",
    "SENTINEL SET mymaster notification-script /nope", "SENTINEL MONITOR new 127.0.0.1 1 x",
    "SENTINEL MONITOR new 127.0.0.1 x 1", "SENTINEL MONITOR new no-host 1 1", "SENTINEL RESET",
)  # fmt: skip
CHANGING = {
    b"runid", b"last-ok-ping-reply", b"last-ping-reply", b"down-after-milliseconds", b"info-refresh",
    b"role-reported-time", b"slave-repl-offset", b"master-link-down-time", b"last-ping-sent",
    b"link-pending-commands",
}  # fmt: skip
"""Fields that real sentinels measure, or that differ from server to server."""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud
        assert cloud.violations() == []


@pytest.fixture
def server(cloud: Cloud) -> KVServer:
    return cloud.kv_server(dialect="redis", sentinel=True, database_password="")


def sentinel_of(server: KVServer, resp: int = 2) -> Port:
    host, port = server.sentinel_address
    return Port(f"redis://{host}:{port}", resp)


def ports_of(server: KVServer) -> list[int]:
    return [node.port for node in server._engine.topology.nodes]  # type: ignore[union-attr]


@contextmanager
def real_sentinel(binary: str) -> Iterator[tuple[int, list[int]]]:
    """Start a primary, a replica and a sentinel; yield the sentinel's port, and those of the servers."""
    with ExitStack() as stack:
        primary = Process(binary, "--save", "", "--appendonly", "no")
        stack.callback(primary.close)
        primary.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        link = f"127.0.0.1 {primary.port}"
        replica = Process(binary, "--save", "", "--replicaof", link, "--appendonly", "no")
        stack.callback(replica.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kv")))
        port, file = free_port(), folder / "sentinel.conf"
        file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor mymaster 127.0.0.1 {primary.port} 1\n"
        )
        process = subprocess.Popen([binary, str(file), "--sentinel"], stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield port, [primary.port, replica.port]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["redis"] if "redis" in BINARIES else [pytest.param("none", marks=MISSING)]
)
def test_the_replies_of_a_real_sentinel(name: str, server: KVServer) -> None:
    with real_sentinel(BINARIES[name]) as (port, real_ports), ExitStack() as stack:

        def knows_the_replica() -> bool:
            try:
                with closing(Port(f"redis://127.0.0.1:{port}")) as client:
                    [fields] = client.call(argv(("SENTINEL REPLICAS mymaster",)))
            except (OSError, ValueError):
                return False
            return b"ok" in fields

        wait_until(knows_the_replica, 30)
        for resp in (2, 3):
            ours = stack.enter_context(closing(sentinel_of(server, resp)))
            theirs = stack.enter_context(closing(Port(f"redis://127.0.0.1:{port}", resp)))
            for line in COMPARED:
                replies = (
                    normal(client.call(argv((line,))), ports)
                    for client, ports in ((ours, ports_of(server)), (theirs, real_ports))
                )
                first, second = replies
                if line == "SENTINEL MYID":
                    assert len(first) == len(second) == 40
                else:
                    assert first == second, line


def normal(reply: Any, ports: list[int]) -> Any:
    """Return a reply without what differs from run to run."""
    if isinstance(reply, Typed):
        return Typed(reply.kind, normal(reply.value, ports))
    if isinstance(reply, list):
        changing = [word in CHANGING for word in reply if isinstance(word, bytes)]
        if any(changing):
            reply = [
                b"?" if at % 2 and reply[at - 1] in CHANGING else word
                for at, word in enumerate(reply)
            ]
        return [normal(part, ports) for part in reply]
    if isinstance(reply, bytes):
        for place, port in enumerate(ports):
            reply = reply.replace(b"%d" % port, b"port%d" % place)
    return reply


def test_a_failover_by_command(server: KVServer) -> None:
    primary, replica = ports_of(server)
    with (
        closing(sentinel_of(server)) as sentinel,
        closing(sentinel_of(server)) as listener,
        closing(Port(f"redis://127.0.0.1:{primary}")) as old,
        closing(Port(f"redis://127.0.0.1:{replica}")) as new,
    ):
        listener.call([b"PSUBSCRIBE", b"*"])
        assert old.call(argv(("SET k 1",))) == Status(b"OK")
        refusal = Error(b"READONLY You can't write against a read only replica.")
        assert new.call(argv(("SET k 2",))) == refusal
        assert new.call(argv(("GET k",))) == b"1"
        assert old.call(argv(("WAIT 1 1000",))) == 1
        assert sentinel.call(argv(("SENTINEL FAILOVER mymaster",))) == Status(b"OK")
        channels = {}
        while b"+slave" not in channels:
            _, _, channel, message = listener.next()
            channels[channel] = message
        assert list(channels)[:2] == [b"+new-epoch", b"+try-failover"]
        assert channels[b"+switch-master"] == (
            f"mymaster 127.0.0.1 {primary} 127.0.0.1 {replica}".encode()
        )
        address = argv(("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster",))
        assert sentinel.call(address) == [b"127.0.0.1", b"%d" % replica]
        assert old.call(argv(("SET k 3",))) == refusal
        assert old.call(argv(("MULTI",))) == Status(b"OK")
        assert isinstance(old.call(argv(("SET k 3",))), Error)
        assert new.call(argv(("SET k 3",))) == Status(b"OK")
        assert old.call(argv(("DISCARD",))) == Status(b"OK")
        assert old.call(argv(("ROLE",)))[:3] == [b"slave", b"127.0.0.1", replica]
        assert b"role:slave" in old.call(argv(("INFO replication",)))
    server.reset()
    assert ports_of(server) == [primary, replica]
    with closing(sentinel_of(server)) as sentinel:
        assert sentinel.call(address) == [b"127.0.0.1", b"%d" % primary]


def test_redis_py_follows_the_primary(server: KVServer) -> None:
    sentinel = redis.Sentinel([server.sentinel_address], decode_responses=True)
    primary, replica = ports_of(server)
    assert sentinel.discover_master("mymaster") == ("127.0.0.1", primary)
    assert sentinel.discover_slaves("mymaster") == [("127.0.0.1", replica)]
    with pytest.raises(redis.sentinel.MasterNotFoundError):
        sentinel.discover_master("nope")
    with sentinel.master_for("mymaster") as master, sentinel.slave_for("mymaster") as slave:
        master.set("k", "1")
        assert slave.get("k") == "1"
        with pytest.raises(redis.ReadOnlyError):
            slave.set("k", "2")
        server.faults.failover(command="INCRBY")
        with pytest.raises(redis.ConnectionError):
            master.incr("k")
        # The next connection is to the new primary.
        assert master.incr("k") == 2
        assert sentinel.discover_master("mymaster") == ("127.0.0.1", replica)
    assert server.value("k") == "2"
    for client in sentinel.sentinels:
        client.close()


def test_the_asynchronous_client(server: KVServer) -> None:
    async def run() -> None:
        sentinel = redis.asyncio.Sentinel([server.sentinel_address], decode_responses=True)
        async with sentinel.master_for("mymaster") as master:
            await master.set("k", "1")
            server.faults.failover(command="INCRBY")
            with pytest.raises(redis.ConnectionError):
                await master.incr("k")
            assert await master.incr("k") == 2
        for client in sentinel.sentinels:
            await client.aclose()

    asyncio.run(run())


def test_another_name(cloud: Cloud) -> None:
    server = cloud.kv_server(dialect="redis", sentinel="orders")
    with closing(sentinel_of(server)) as sentinel:
        assert sentinel.call([b"ROLE"]) == [b"sentinel", [b"orders"]]
        greeting = sentinel.call([b"HELLO", b"2"])
        assert b"role" not in greeting
        assert b"sentinel" in greeting
        for line in ("MONITOR other 127.0.0.1 1 1", "REMOVE orders"):
            reply = sentinel.call(argv((f"SENTINEL {line}",)))
            assert reply == Error(b"ERR The nodes of this server are fixed")
        for line, text in (
            ("SENTINEL MASTER mymaster", errors.NO_SUCH_MASTER),
            ("SENTINEL MONITOR orders 127.0.0.1 1 1", errors.DUPLICATE_MASTER),
            ("PUBLISH a b", errors.ONLY_HELLO),
        ):
            assert sentinel.call(argv((line,))) == Error(text)


def test_a_reset_also_resets_the_options_of_a_sentinel(server: KVServer) -> None:
    with closing(sentinel_of(server)) as sentinel:
        lines = ("SENTINEL MASTER mymaster", "SENTINEL CONFIG GET *", "SENTINEL DEBUG")
        before = [sentinel.call(argv((line,))) for line in lines]
        for change in (
            "SET mymaster quorum 2",
            "CONFIG SET announce-port 7",
            "DEBUG ping-period 5",
        ):
            assert sentinel.call(argv((f"SENTINEL {change}",))) == Status(b"OK")
        changed = [sentinel.call(argv((line,))) for line in lines]
        assert all(first != second for first, second in zip(before, changed, strict=True))
    server.reset()
    with closing(sentinel_of(server)) as sentinel:
        assert [sentinel.call(argv((line,))) for line in lines] == before


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("MONITOR other 127.0.0.1 1 0", errors.INVALID_QUORUM),
        ("MONITOR other 127.0.0.1 x 1", errors.INVALID_PORT),
        ("MONITOR other host.example 1 1", errors.INVALID_HOST),
        ("SIMULATE-FAILURE nope", errors.UNKNOWN_SIMULATION),
        ("CONFIG NOPE x", errors.SENTINEL_CONFIG_FORMS),
        ("CONFIG SET nope 1", errors.unknown_sentinel_config("nope")),
        ("CONFIG SET announce-port x", errors.invalid_sentinel_config("x", "announce-port")),
        ("SET mymaster notification-script /nope", errors.SCRIPTS_DENIED),
        ("SET mymaster nope 1", errors.unknown_sentinel_option("SET", "nope")),
        ("SET mymaster quorum 0", errors.invalid_sentinel_option("0", "SET", "quorum")),
    ],
)
def test_an_option_or_a_value_that_a_sentinel_rejects(
    line: str, text: bytes, server: KVServer
) -> None:
    with closing(sentinel_of(server)) as sentinel:
        assert sentinel.call(argv((f"SENTINEL {line}",))) == Error(text)


def test_the_text_of_info(server: KVServer) -> None:
    with closing(sentinel_of(server)) as sentinel:
        text = sentinel.call([b"INFO"])
        headings = [line for line in text.split(b"\r\n") if line.startswith(b"#")]
        assert headings == [b"# Server", b"# Clients", b"# Stats", b"# CPU", b"# Sentinel"]
        assert b"redis_mode:sentinel" in text
        name, infos = sentinel.call(argv(("SENTINEL INFO-CACHE mymaster",)))
        assert name == b"mymaster"
        assert [info.partition(b"role:")[2][:6] for _, info in infos] == [b"master", b"slave\r"]


def test_a_server_without_a_sentinel(cloud: Cloud) -> None:
    server = cloud.kv_server(dialect="redis")
    with pytest.raises(ContractError, match="sentinel=True"):
        assert server.sentinel_address


@pytest.mark.parametrize(
    "settings",
    [
        {"sentinel": True},
        {"cluster": True},
        {"dialect": "redis", "sentinel": True, "cluster": True},
        {"dialect": "redis", "sentinel_port": 0},
        {"dialect": "redis", "node_ports": [0]},
        {"dialect": "redis", "cluster": 3, "node_ports": [0] * 6},
    ],
)
def test_settings_that_contradict_each_other(cloud: Cloud, settings: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        cloud.kv_server(**settings)
