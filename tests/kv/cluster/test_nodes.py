"""What the nodes of a cluster have apart, and what they share."""

from __future__ import annotations

from contextlib import ExitStack, closing

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from tests.kv.comparison import wire
from tests.kv.comparison.faces import Port


def test_a_primary_sends_to_the_subscribers_of_its_replica_but_does_not_count_them() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(KVServer(Context.alone(), dialect="redis", cluster=3))
        user, _, _ = server.database_url.rpartition("@")
        assert server._engine.topology is not None
        primary, replica = (
            stack.enter_context(closing(Port(f"{user}@{node.address}", 3)))
            for node in server._engine.topology.nodes
            if 1 in (node.number, node.primary and node.primary.number)
        )
        replica.call([b"READONLY"])
        replica.call([b"SSUBSCRIBE", b"b"])
        assert primary.call([b"SPUBLISH", b"b", b"x"]) == 0
        assert replica.call([b"PING"]) == wire.Typed(b">", [b"smessage", b"b", b"x"])
