"""``maxmemory``: evictions in the order of the policy. `comparison/test_stock.py` compares errors."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud import Cloud
from tests.kv.comparison.faces import Port


def keys_left(policy: str, prepare: list[str]) -> tuple[list[str], int]:
    """Return the keys left after an eviction, and the number of evicted keys."""
    with Cloud(seed=1, clock="frozen", now="2026-01-01T00:00:00Z") as cloud:
        kv = cloud.kv_server(dialect="redis")
        port = Port(kv.database_url)

        def call(line: str) -> Any:
            return port.call([word.encode() for word in line.split()])

        call(f"CONFIG SET maxmemory-policy {policy} lfu-log-factor 0")
        for line in prepare:
            call(line)
            cloud.clock.advance("1s")
        used = int(call("INFO memory").partition(b"used_memory:")[2].split()[0])
        call(f"CONFIG SET maxmemory {used - 1}")
        call("PING")
        stats: bytes = call("INFO stats")
        evicted = int(stats.partition(b"evicted_keys:")[2].split()[0])
        left = sorted(kv.keys())
        port.close()
        return left, evicted


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
def test_keys_go_in_the_policys_order(policy: str, prepare: list[str], left: list[str]) -> None:
    assert keys_left(policy, prepare) == (left, 3 - len(left))


def test_any_key_may_go() -> None:
    left, evicted = keys_left("allkeys-random", SAME)
    assert (len(left), evicted) == (2, 1)


def test_listeners_hear_of_it() -> None:
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        listener, port = Port(kv.database_url), Port(kv.database_url)
        for line in (
            "CONFIG SET notify-keyspace-events Ee maxmemory-policy allkeys-lru",
            "SET a 1",
        ):
            port.call([word.encode() for word in line.split()])
        listener.call([b"PSUBSCRIBE", b"*"])
        port.call([b"CONFIG", b"SET", b"maxmemory", b"1"])
        port.call([b"GET", b"b"])
        assert listener.call([b"PING"])[1:] == [b"*", b"__keyevent@0__:evicted", b"a"]
        listener.close()
        port.close()


def test_the_testers_own_calls_always_have_room() -> None:
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        kv.execute("CONFIG", "SET", "maxmemory", "1")
        kv.load({"a": "1"})
        assert kv.execute("SET", "b", "2") == "OK"


def test_a_counter_of_accesses_ends_at_its_byte() -> None:
    with Cloud(seed=1, clock="frozen", now="2026-01-01T00:00:00Z") as cloud:
        kv = cloud.kv_server(dialect="redis")
        port = Port(kv.database_url)
        for line in ("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0", "SET k v"):
            port.call([word.encode() for word in line.split()])
        for _ in range(270):
            port.call([b"GET", b"k"])
        assert port.call([b"OBJECT", b"FREQ", b"k"]) == 255
        port.close()
