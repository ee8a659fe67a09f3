"""The nodes of a server that has several addresses: primaries, and the replicas that can replace them.

All nodes have the same data, so a replica never lags behind, and a failover loses no write (decided
here). A test that needs lost writes restores an earlier snapshot before the failover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import errors
from ..errors import CommandError

if TYPE_CHECKING:
    from ..table.registry import CommandSpec
    from .engine import KVEngine
    from .sessions import Session


@dataclass(eq=False)
class Node:
    """One address of a server. Its ``host`` and ``port`` are known once it listens."""

    number: int
    """Its place among the nodes, from 1 on."""
    id: str
    """40 hexadecimal digits, also the run ID."""
    epoch: int
    """The configuration epoch: the node with the higher one wins if two claim a slot."""
    primary: Node | None = None
    """The primary of a replica; None for a primary."""
    host: str = "127.0.0.1"
    port: int = 6379

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class NodeClient:
    """The connection of a client to a node."""

    def __init__(self, topology: Replication, node: Node) -> None:
        self.topology = topology
        self.node = node
        self.is_asking = False
        """Whether ASKING precedes the next command."""
        self.reads_replica = False
        """Whether READONLY has allowed to read from a replica."""


class Replication:
    """A primary and its replicas, which have the roles that a failover changes."""

    mode = "standalone"
    """The word for the kind of server in HELLO and INFO."""

    def __init__(self, primaries: int, replicas: int, new_id: Callable[[], str]) -> None:
        """Create this number of primaries, each with a number of replicas."""
        self.nodes: list[Node] = []
        """All nodes: first the primaries, then a replica of each, as they were at the start."""
        for number in range(1, primaries + 1):
            self.nodes.append(Node(number, new_id(), number if primaries > 1 else 0))
        for primary in self.nodes[:primaries] * replicas:
            number = len(self.nodes) + 1
            self.nodes.append(Node(number, new_id(), primary.epoch, primary))
        self.epoch = max(node.epoch for node in self.nodes)
        """The highest epoch."""
        self.sentinel_options: dict[str, str] = {}
        """The options that clients of a sentinel have set, by name."""
        self.on_promotion: Callable[[Node, Node], object] = lambda former, promoted: None
        """Called with the former and the new primary when a replica is promoted."""

    def replicas_of(self, primary: Node) -> list[Node]:
        return [node for node in self.nodes if node.primary is primary]

    def primary_of(self, node: Node) -> Node:
        """Return the primary whose data a node has: itself, unless it is a replica."""
        return node.primary or node

    def current_primary(self) -> Node:
        """Return the first primary."""
        return next(node for node in self.nodes if node.primary is None)

    def promote(self, replica: Node) -> None:
        """Make a replica the primary, and its former primary and the other replicas its replicas."""
        former = self.primary_of(replica)
        for node in (former, *self.replicas_of(former)):
            node.primary = replica
        replica.primary = None
        self.epoch += 1
        replica.epoch = self.epoch
        self.on_promotion(former, replica)

    def check(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``CommandError`` for a command of a client that its node does not serve."""
        client = session.node
        if client is None or client.node.primary is None:
            return
        commands = session.queued_commands if spec.name == "EXEC" else [(spec, line)]
        if any(command.write for command, _ in commands):
            raise CommandError(errors.READ_ONLY_REPLICA)

    def check_in_script(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``CommandError`` for a command of a client's script that its node does not serve."""
        self.check(session, spec, line)

    def keys(self, session: Session) -> Sequence[bytes]:
        """Return the keys that the node of a client has."""
        return list(session.db)

    def has_key(self, session: Session, key: bytes) -> bool:
        """Return whether the node of a client has a key that exists."""
        return True

    def has_all_keys(self) -> bool:
        """Return whether each node has all keys."""
        return True

    def follow(self, engine: KVEngine) -> None:
        """Let the clients of nodes whose role has changed know. Called while the lock is held."""
        for waiter in list(engine.waiters.values()):
            client = waiter.session.node
            if waiter.spec is None or client is None:
                continue
            try:
                self.check(waiter.session, waiter.spec, waiter.line)
            except CommandError as error:
                engine.waiters.pop(waiter.session.id, None)
                waiter.finish(error)

    def snapshot(self) -> ReplicationCopy:
        nodes = self.nodes
        primaries = [None if node.primary is None else nodes.index(node.primary) for node in nodes]
        epochs = [node.epoch for node in nodes]
        options = self.sentinel_options.copy()
        return ReplicationCopy(primaries, epochs, self.epoch, sentinel_options=options)

    def restore(self, saved: ReplicationCopy) -> None:
        for node, primary, epoch in zip(self.nodes, saved.primaries, saved.epochs, strict=True):
            node.primary = None if primary is None else self.nodes[primary]
            node.epoch = epoch
        self.epoch = saved.epoch
        self.sentinel_options = saved.sentinel_options.copy()


@dataclass
class ReplicationCopy:
    """A copy of the roles of nodes, which are listed by their places."""

    primaries: list[int | None]
    epochs: list[int]
    epoch: int
    sentinel_options: dict[str, str] = field(default_factory=dict, kw_only=True)


def at_same_node(session: Session, other: Session) -> bool:
    """Return whether a client's node has another client, too; other interfaces have all clients."""
    if session.node is None:
        return True
    return other.node is not None and other.node.node is session.node.node


def node_of(session: Session) -> Node:
    """Return the node to which a client is connected; the first primary for other interfaces."""
    if session.node is not None:
        return session.node.node
    topology = session.engine.topology
    assert topology is not None
    return topology.current_primary()


def info_fields(topology: Replication, node: Node) -> Iterator[str]:
    """Yield the fields of INFO about the role of a node."""
    if node.primary is None:
        replicas = topology.replicas_of(node)
        yield "role:master"
        yield f"connected_slaves:{len(replicas)}"
        for number, replica in enumerate(replicas):
            yield f"slave{number}:ip={replica.host},port={replica.port},state=online,offset=0,lag=0"
    else:
        primary = node.primary
        yield from (
            "role:slave", f"master_host:{primary.host}", f"master_port:{primary.port}",
            "master_link_status:up", "master_last_io_seconds_ago:0", "master_sync_in_progress:0",
            "slave_read_repl_offset:0", "slave_repl_offset:0", "slave_priority:100",
            "slave_read_only:1", "replica_announced:1", "connected_slaves:0",
        )  # fmt: skip
