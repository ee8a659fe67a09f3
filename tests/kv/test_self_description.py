"""What a server tells of itself, field by field: as Redis 7.0 has it, and as redis-py reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.handle import Context
from pytest_fakecloud.kv.handle import KVServer
from tests.kv.comparison.servers import RealServer, available
from tests.kv.comparison.wire import Status
from tests.kv.resp.test_port import Client

SETTING = ["SET k v", "SET e v EX 100", "LPUSH l 1 2", "SELECT 3", "SET other v", "SELECT 0"]
SECTIONS = ["Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU", "Modules",
            "Errorstats", "Cluster", "Keyspace"]  # fmt: skip
BEYOND_7_0 = {"ZRANK": "arity", "ZREVRANK": "arity"}
"""Where the table follows a later server."""


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(), dialect="redis") as server:
        yield server


@pytest.fixture
def fake(server: KVServer) -> Iterator[Client]:
    client = Client(server)
    for line in SETTING:
        client(line)
    yield client
    client.close()


@pytest.fixture(scope="module")
def real() -> Iterator[RealServer]:
    found = [binary for name, binary in available() if name == "redis"]
    if not found:
        pytest.skip("no redis-server is installed")
    server = RealServer("redis", found[0])
    if not server.version.startswith("7.0"):
        server.close()
        pytest.skip("another version than 7.0")
    for line in SETTING:
        server.call(line.encode().split())
    yield server
    server.close()


def _fields(text: bytes) -> list[str]:
    return [line.partition(":")[0] for line in text.decode().splitlines()]


@pytest.mark.parametrize("section", SECTIONS)
def test_info_has_the_fields_of_redis_in_their_order(
    fake: Client, real: RealServer, section: str
) -> None:
    theirs = _fields(real.call([b"INFO", section.lower().encode()]))
    assert _fields(fake("INFO", section.lower())) == theirs
    assert theirs[0] == f"# {section}"


def test_the_list_of_clients_has_the_fields_of_redis_in_their_order(
    fake: Client, real: RealServer
) -> None:
    def names(line: bytes) -> list[bytes]:
        return [word.partition(b"=")[0] for word in line.split()]

    for line in ("CLIENT INFO", "CLIENT LIST"):
        assert names(fake(line)) == names(real.call(line.encode().split()))


def _flat(reply: list[Any]) -> list[Any]:
    return [
        item if index % 2 == 0 or not isinstance(item, list) else _flat(item)
        for index, item in enumerate(reply)
        if index % 2 == 0 or isinstance(item, list)
    ]


def test_memory_stats_have_the_fields_of_redis_in_their_order(
    fake: Client, real: RealServer
) -> None:
    ours = fake("MEMORY STATS")
    assert _flat(ours) == _flat(real.call([b"MEMORY", b"STATS"]))
    facts = dict(zip(ours[::2], ours[1::2], strict=True))
    assert facts[b"keys.count"] == 4
    assert facts[b"total.allocated"] == facts[b"overhead.total"] + facts[b"dataset.bytes"]
    assert facts[b"dataset.bytes"] > 0
    info = fake("INFO memory").decode()
    assert f"used_memory:{facts[b'total.allocated']}\r\n" in info


def _comparable(entry: list[Any]) -> dict[str, Any]:
    _, arity, flags, first, last, step, categories, tips, keys, children = entry
    return {
        "arity": arity,
        "flags": sorted(flags),
        "place": (first, last, step),
        "categories": sorted(categories),
        "tips": sorted(tips),
        "keys": keys,
        "children": sorted(child[0] for child in children),
    }


def test_command_info_is_that_of_redis(fake: Client, real: RealServer) -> None:
    names = [name.upper() for name in real.call(b"COMMAND LIST FILTERBY PATTERN *".split())]
    theirs = real.call([b"COMMAND", b"INFO", *names])
    ours = fake("COMMAND", "INFO", *names)
    wrong = {}
    for name, mine, yours in zip(names, ours, theirs, strict=True):
        if mine is None or name in (b"DEBUG", b"MODULE"):
            continue
        left, right = _comparable(mine), _comparable(yours)
        for what in left:
            if what == "children":
                assert set(left[what]) >= set(right[what])
            elif left[what] != right[what] and BEYOND_7_0.get(name.decode()) != what:
                wrong[name.decode(), what] = (left[what], right[what])
    assert wrong == {}


def test_command_docs_say_since_when_and_what_is_deprecated(fake: Client, real: RealServer) -> None:
    told = (b"since", b"group", b"doc_flags", b"deprecated_since", b"replaced_by")

    def facts(reply: list[Any]) -> dict[bytes, dict[bytes, Any]]:
        found: dict[bytes, dict[bytes, Any]] = {}
        for name, entry in zip(reply[::2], reply[1::2], strict=True):
            pairs = dict(zip(entry[::2], entry[1::2], strict=True))
            found[name] = {key: value for key, value in pairs.items() if key in told}
            found |= facts(pairs.get(b"subcommands", []))
        return found

    ours, theirs = facts(fake("COMMAND DOCS")), facts(real.call([b"COMMAND", b"DOCS"]))
    shared = {name for name in theirs if name in ours}
    assert len(shared) > 300
    assert {n: ours[n] for n in shared} == {n: theirs[n] for n in shared}


def test_redis_py_reads_it_all(server: KVServer, fake: Client) -> None:
    redis = pytest.importorskip("redis")
    for protocol in (2, 3):
        with redis.Redis.from_url(server.database_url, protocol=protocol) as client:
            info = client.info("everything")
            assert info["used_memory_human"].endswith("K")
            assert info["maxmemory_human"] == "0B"
            assert (info["db0"]["keys"], info["db0"]["expires"]) == (3, 1)
            assert info["db3"]["keys"] == 1
            assert info["os"] == "Linux x86_64"
            assert client.memory_stats()["db.0"]["overhead.hashtable.expires"] > 0
            assert client.client_info()["tot-mem"] == 0
            command = client.command()["mget"]
            assert command["tips"] == [b"request_policy:multi_shard"]


def test_states_are_flags_of_the_list(server: KVServer, fake: Client) -> None:
    def flags(client: Client) -> str:
        lines = fake("CLIENT LIST").decode().splitlines()
        own = client.socket.getsockname()
        line = next(line for line in lines if f" addr={own[0]}:{own[1]} " in line)
        found = dict(word.split("=", 1) for word in line.split())
        return f"{found['flags']} {found['redir']}"

    other = Client(server)
    try:
        assert flags(other) == "N -1"
        assert other("CLIENT NO-EVICT ON") == Status(b"OK")
        other("WATCH", "k")
        other("MULTI")
        fake("SET", "k", "changed")
        assert flags(other) == "xde -1"
        other("DISCARD")
        other("HELLO", 3)
        other("CLIENT TRACKING ON BCAST")
        assert flags(other) == "tBe 0"
        other("RESET")
        other("AUTH", other.password)
        other.send("BLPOP", "nothing", 0)
        engine = server._engine
        while not engine.waiters:
            pass
        assert flags(other) == "b -1"
    finally:
        other.close()
