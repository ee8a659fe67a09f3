"""Run the JavaScript clients of clusters in Node: ioredis, node-redis and BullMQ."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.fake import KVServer

from . import node

pytestmark = pytest.mark.slow


def place_of(server: KVServer) -> dict[str, Any]:
    """Return the address and the password of a server's first node."""
    url = urlsplit(server.database_url)
    return {"host": url.hostname, "port": url.port, "password": url.password}


def test_clusters() -> None:
    node.need("ioredis", "redis", "bullmq")
    with Cloud() as cloud:
        clusters = {
            name: {**place_of(cloud.kv_server(dialect="redis", cluster=nodes)), "nodes": nodes}
            for name, nodes in (("one node", 1), ("three nodes", 3))
        }
        outcome = node.run("cluster.test.mjs", {"FAKE_CLUSTERS": json.dumps(clusters)})
        assert outcome.passed == 18
        assert cloud.violations() == []
