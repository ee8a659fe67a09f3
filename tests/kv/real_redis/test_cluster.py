"""Commands for several nodes of a cluster, without servers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("redis")

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.real_redis import links as cluster
from pytest_fakecloud.kv.real_redis.links import Address, ClusterLink, Login
from pytest_fakecloud.kv.reply import OK, Reply

SLOTS = [[0, 9000, [b"", 1]], [9001, 16383, [b"", 2]]]


class Nodes(ClusterLink):
    """Two nodes that do what the user in the URL sends, and reject what others send."""

    def __init__(self) -> None:
        super().__init__([("h", 1)], {})
        self.ran: list[tuple[Address | None, bytes]] = []

    def _run(
        self, argv: list[bytes], login: Login | None, node: Address | None, *, asking: bool = False
    ) -> Reply:
        if argv[0] == b"CLUSTER":
            return SLOTS
        if login is not None:
            raise CommandError(b"NOPERM")
        if argv[0] == b"acl":
            self.ran.append((node, argv[1]))
        return OK

    def _batch(self, lines: Any, login: Any, node: Any, first: Any) -> list[Reply]:
        self.ran += [(node, line[1]) for line in lines[:-1]]
        results = [CommandError(b"ERR") if line[-1] == b"bad" else OK for line in lines[:-1]]
        return [*results, results]


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def test_users_are_changed_on_every_primary(nodes: Nodes) -> None:
    nodes.call([b"acl", b"setuser", b"ann"])
    assert nodes.ran == [(("h", 1), b"setuser"), (("h", 2), b"setuser")]


def test_a_rejected_change_reaches_no_other_primary(nodes: Nodes) -> None:
    with pytest.raises(CommandError, match="NOPERM"):
        nodes.call([b"acl", b"deluser", b"ann"], (b"bob", b"pw"))
    assert nodes.ran == []


def test_transactions_change_users_on_every_primary(nodes: Nodes) -> None:
    nodes.transaction([[b"acl", b"deluser", b"ann"], [b"acl", b"setuser", b"bad"]])
    here = [(("h", 1), b"deluser"), (("h", 1), b"setuser")]
    assert nodes.ran == [*here, (("h", 2), b"deluser")]


def test_nodes_that_point_at_each_other_are_not_asked_in_a_busy_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Address | None] = []

    class Confused(Nodes):
        def _run(
            self,
            argv: list[bytes],
            login: Login | None,
            node: Address | None,
            *,
            asking: bool = False,
        ) -> Reply:
            asked.append(node)
            if len(asked) == 6:
                return OK
            other = 2 if node == ("h", 1) else 1
            raise CommandError(b"MOVED 0 h:%d" % other)

    pauses: list[float] = []
    monkeypatch.setattr(cluster, "_pause", lambda: pauses.append(cluster.PAUSE))
    nodes = Confused()
    nodes._slot_node = ("h", 1)
    assert nodes.call([b"GET", b"k"]) == OK
    assert (len(asked), len(pauses)) == (6, 4)
