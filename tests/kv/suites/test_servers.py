"""The fake that other projects' suites run against starts, alone and as a cluster."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.kv.backing import free_port
from tests.kv.comparison.faces import Port
from tests.kv.suites import servers


@pytest.mark.parametrize(("nodes", "primaries"), [(0, 0), (1, 1), (6, 3)])
def test_a_fake_serves_this_number_of_nodes(nodes: int, primaries: int) -> None:
    ports = [free_port() for _ in range(nodes)]
    with servers.fake(ports) as port, closing(Port(f"redis://127.0.0.1:{port}")) as client:
        assert client.call([b"CONFIG", b"GET", b"cluster-enabled"])[1] == (
            b"yes" if nodes else b"no"
        )
        if nodes:
            assert port == ports[0]
            assert len(client.call([b"CLUSTER", b"SLOTS"])) == primaries
