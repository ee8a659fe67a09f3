"""Run the JavaScript clients of clusters and sentinels in Node: ioredis, node-redis and BullMQ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.fake import KVServer

from . import node

pytestmark = pytest.mark.slow


def place_of(server: KVServer) -> dict[str, Any]:
    """Return the address and the password of a server's first node."""
    url = urlsplit(server.database_url)
    return {"host": url.hostname, "port": url.port, "password": url.password}


def words(server: KVServer) -> dict[str, Callable[..., Any]]:
    """Return the functions that the tests in JavaScript call."""
    return {
        "flush": lambda: server.execute("FLUSHALL"),
        "moved": lambda key: server.faults.moved(key).hits,
        "ask": lambda key: server.faults.ask(key, times=1).hits,
        "failover": lambda key: server.faults.failover(key=key).hits,
        "contents": server.contents,
        "switch": lambda: switch(server),
    }


def switch(server: KVServer) -> None:
    """Let the sentinel begin a failover."""
    host, port = server.sentinel_address
    with redis.Redis(host, port) as client:
        client.execute_command("SENTINEL", "FAILOVER", "mymaster")


def test_clusters() -> None:
    node.need("ioredis", "redis", "bullmq")
    with Cloud() as cloud:
        one, three = (cloud.kv_server(dialect="redis", cluster=nodes) for nodes in (1, 3))
        clusters = {
            "one node": {**place_of(one), "nodes": 1},
            "three nodes": {**place_of(three), "nodes": 3},
        }
        with node.control(words(three)) as control:
            environment = {"FAKE_CLUSTERS": json.dumps(clusters), **control}
            outcome = node.run("cluster.test.mjs", environment)
        assert outcome.passed == 20
        assert cloud.violations() == []


def test_a_sentinel() -> None:
    node.need("ioredis", "redis")
    with Cloud() as cloud:
        server = cloud.kv_server(dialect="redis", sentinel=True)
        host, port = server.sentinel_address
        place = {"host": host, "port": port, "password": place_of(server)["password"]}
        with node.control(words(server)) as control:
            environment = {"FAKE_SENTINEL": json.dumps(place), **control}
            outcome = node.run("sentinel.test.mjs", environment)
        assert outcome.passed == 2
        assert cloud.violations() == []
