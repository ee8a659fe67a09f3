"""The tests of clusters of redis-py, run file by file against a cluster without modules.

A server has the ports that these tests name: 16379, and the five that follow for a cluster of six nodes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

from tests.kv.suites import redis_py
from tests.kv.suites.servers import Outcome, Server, cluster, fake

PORT = 16379
LEFT_OUT = ("onlynoncluster", *(mark for mark in redis_py.LEFT_OUT if mark != "onlycluster"))
"""Markers of tests that need another kind of server."""


@dataclass
class ClusterSuite:
    """The tests on clusters of this number of nodes."""

    TITLE: str
    nodes: int
    SERVERS: dict[str, Server] = field(init=False)

    def __post_init__(self) -> None:
        ports = range(PORT, PORT + self.nodes)
        self.SERVERS = {
            "real": functools.partial(cluster, ports),
            "fake": functools.partial(fake, ports),
        }

    def units(self, source: Path) -> list[str]:
        """Return the files whose tests are about clusters."""
        files = sorted((source / "tests").rglob("test_cluster*.py"))
        return [file.relative_to(source).as_posix() for file in files]

    def run(self, source: Path, port: int, unit: str, limit: float) -> Outcome:
        """Run one file against the cluster with a node on `port`, for at most `limit` seconds."""
        options = ("--redis-cluster-nodes", str(self.nodes))
        return redis_py.run(source, port, unit, limit, left_out=LEFT_OUT, options=options)


ONE_NODE = ClusterSuite("Clusters of redis-py 8.1.0, one node", 1)
SIX_NODES = ClusterSuite("Clusters of redis-py 8.1.0, six nodes", 6)
