"""``maxmemory``: evictions in the order of the policy. `comparison/test_stock.py` compares errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, CommandError
from pytest_fakecloud.kv.fake import KVServer
from tests.kv.comparison.faces import Port

Call = Callable[[str], Any]


def send(port: Port, line: str) -> Any:
    return port.call(line.encode().split())


@pytest.fixture
def kv() -> Iterator[KVServer]:
    with Cloud(seed=1, clock="frozen", now="2026-01-01T00:00:00Z") as cloud:
        yield cloud.kv_server(dialect="redis")


@pytest.fixture
def call(kv: KVServer) -> Iterator[Call]:
    port = Port(kv.database_url)
    yield partial(send, port)
    port.close()


def keys_left(kv: KVServer, call: Call, policy: str, prepare: list[str]) -> tuple[list[str], int]:
    call(f"CONFIG SET maxmemory-policy {policy} lfu-log-factor 0")
    for line in prepare:
        call(line)
        kv.clock.advance("1s")
    used = int(call("INFO memory").partition(b"used_memory:")[2].split()[0])
    call(f"CONFIG SET maxmemory {used - 1}")
    call("PING")
    evicted = int(call("INFO stats").partition(b"evicted_keys:")[2].split()[0])
    return sorted(kv.keys()), evicted


SAME = ["SET a 1", "SET b 1", "SET c 1"]


@pytest.mark.parametrize(
    ("policy", "prepare", "left"),
    [
        ("noeviction", SAME, ["a", "b", "c"]),
        ("allkeys-lru", [*SAME, "GET a"], ["a", "c"]),
        ("allkeys-lfu", [*SAME, "GET a", "GET a", "GET c", "GET c"], ["a", "c"]),
        ("volatile-lru", [*SAME, "EXPIRE c 900", "EXPIRE a 900", "GET c"], ["b", "c"]),
        ("volatile-ttl", [*SAME, "EXPIRE a 900", "EXPIRE b 500"], ["a", "c"]),
        ("volatile-random", [*SAME, "EXPIRE b 500"], ["a", "c"]),
        ("volatile-lru", SAME, ["a", "b", "c"]),
    ],
)
def test_keys_go_in_the_policys_order(
    kv: KVServer, call: Call, policy: str, prepare: list[str], left: list[str]
) -> None:
    assert keys_left(kv, call, policy, prepare) == (left, 3 - len(left))


@pytest.mark.parametrize(
    ("policy", "prepare", "left"),
    [
        ("allkeys-lrm", [*SAME, "GET a"], ["b", "c"]),
        ("allkeys-lrm", [*SAME, "APPEND a 1", "GET b"], ["a", "c"]),
        ("allkeys-lrm", [*SAME, "DEL a", "SET a 1"], ["a", "c"]),
        ("volatile-lrm", [*SAME, "EXPIRE b 900", "EXPIRE a 900", "GET b"], ["a", "c"]),
        ("volatile-lrm", SAME, ["a", "b", "c"]),
    ],
)
def test_the_least_recently_modified_key_goes_first(
    policy: str, prepare: list[str], left: list[str]
) -> None:
    with Cloud(seed=1, clock="frozen") as cloud:
        kv = cloud.kv_server(dialect="redis", version="8.6")
        with closing(Port(kv.database_url)) as port:
            call = partial(send, port)
            assert keys_left(kv, call, policy, prepare) == (left, 3 - len(left))


def test_modifications_are_restored_with_the_keys() -> None:
    with Cloud(seed=1, clock="frozen") as cloud:
        kv = cloud.kv_server(dialect="redis", version="8.6")
        with closing(Port(kv.database_url)) as port:
            call = partial(send, port)
            call("CONFIG SET maxmemory-policy allkeys-lrm")
            for line in ("SET a 1", "SET b 1"):
                call(line)
                kv.clock.advance("1s")
            saved = kv.snapshot()
            call("SET a 2")
            kv.restore(saved)
            assert keys_left(kv, call, "allkeys-lrm", ["SET c 1"]) == (["b", "c"], 1)


@pytest.mark.parametrize(("dialect", "version"), [("redis", "8.4"), ("vendor", None)])
def test_other_servers_lack_the_policies(dialect: Any, version: str | None) -> None:
    with Cloud(seed=1, clock="frozen") as cloud:
        kv = cloud.kv_server(dialect=dialect, version=version)
        with pytest.raises(CommandError, match="must be one of the following"):
            kv.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lrm")


def test_any_key_may_go(kv: KVServer, call: Call) -> None:
    left, evicted = keys_left(kv, call, "allkeys-random", SAME)
    assert (len(left), evicted) == (2, 1)


@pytest.mark.parametrize(
    ("volatile", "evicted", "left"),
    [("b", 1, {"ac"}), ("bc", 2, {"a"}), ("b", 2, {"a", "c"}), ("", 1, {"ab", "ac", "bc"})],
)
def test_the_vendors_policy_evicts_keys_with_a_ttl_first(
    volatile: str, evicted: int, left: set[str]
) -> None:
    remaining = set()
    for seed in range(20):
        with Cloud(seed=seed, clock="frozen") as cloud:
            kv = cloud.kv_server()
            kv.load(dict.fromkeys("abc", "x" * 1000))
            kv.execute("CONFIG", "SET", "maxmemory-policy", "optimistic-volatile")
            assert kv.execute("CONFIG", "GET", "maxmemory-policy")[1] == "optimistic-volatile"
            for key in volatile:
                kv.execute("EXPIRE", key, 900)
            kv.execute("CONFIG", "SET", "maxmemory", 5_000 - 1_000 * evicted)
            httpx.get(f"{kv.url}/ping", headers=kv.headers)
            remaining.add("".join(sorted(kv.keys())))
    assert remaining == left


@pytest.mark.parametrize("dialect", ["redis", "vendor"])
def test_keys_of_a_large_database_are_sampled(dialect: str) -> None:
    """Few keys with a TTL go before all others, and keys that were used recently stay."""
    policy = "allkeys-lru" if dialect == "redis" else "optimistic-volatile"
    with Cloud(seed=1, clock="frozen") as cloud:
        kv = cloud.kv_server(dialect=dialect)
        kv.load({f"old{n:04}": "x" for n in range(1500)})
        for n in range(20):
            kv.execute("EXPIRE", f"old{n:04}", 900)
        cloud.clock.advance("1s")
        kv.load({f"new{n:04}": "x" for n in range(500)})
        memory = kv.execute("INFO", "memory")
        used = int(memory.partition("used_memory:")[2].split()[0])
        kv.execute("CONFIG", "SET", "maxmemory-policy", policy)
        kv.execute("CONFIG", "SET", "maxmemory", used * 9 // 10)
        left = kv.keys()
        old = sum(key.startswith("old") for key in left)
        if dialect == "redis":
            assert 1500 - old > 150
            assert len(left) - old == 500
        else:
            assert not set(left) & {f"old{n:04}" for n in range(20)}
            assert old < 1480
            assert len(left) - old < 500


def test_a_stock_server_lacks_the_vendors_policy(call: Call) -> None:
    error = call("CONFIG SET maxmemory-policy optimistic-volatile")
    assert b"argument(s) must be one of the following: volatile-lru" in error.text
    assert b"optimistic" not in error.text


def test_listeners_hear_of_it(kv: KVServer, call: Call) -> None:
    listener = Port(kv.database_url)
    call("CONFIG SET notify-keyspace-events Ee maxmemory-policy allkeys-lru")
    call("SET a 1")
    listener.call([b"PSUBSCRIBE", b"*"])
    call("CONFIG SET maxmemory 1")
    call("GET b")
    assert listener.call([b"PING"])[1:] == [b"*", b"__keyevent@0__:evicted", b"a"]
    listener.close()


def test_the_testers_own_calls_always_have_room(kv: KVServer) -> None:
    kv.execute("CONFIG", "SET", "maxmemory", "1")
    kv.load({"a": "1"})
    assert kv.execute("SET", "b", "2") == "OK"


def test_a_counter_of_accesses_ends_at_its_byte(call: Call) -> None:
    call("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0 lfu-decay-time 0")
    call("SET k v")
    for _ in range(270):
        call("GET k")
    assert call("OBJECT FREQ k") == 255
