"""Injected faults of servers with several nodes: slots that move, nodes and clusters that fail.

They supplement the common faults. They apply to commands with keys that a client sends to the primary of
their slot, immediately before the command runs: what it then replies follows from the changed nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from ..core.errors import ContractError, shown
from ..faults.fault import Fault, ServiceFault
from ..http.messages import ConnectionEffect, Request
from . import errors
from .engine.cluster import SLOTS, Cluster, key_slot
from .engine.replication import Node
from .errors import CommandError
from .reply import encode

if TYPE_CHECKING:
    from .._typing.kv import KVFaultPlan as FaultPlan
    from .._typing.kv import KVMatchers
    from ..core.clock import Timekeeper
    from ..core.ids import RandomStream
    from ..faults.injector import Injector
    from .engine.engine import KVEngine
    from .engine.sessions import Session
    from .settings import KVConfig
else:
    from ..faults.plan import FaultPlan

NodeFaultKind = Literal["failover", "cluster_down", "moved", "ask"]
KINDS: tuple[NodeFaultKind, ...] = get_args(NodeFaultKind)
"""The kinds of faults of nodes. Of several that apply to a command, the first one does."""


class NodeFault(ServiceFault):
    """A fault of nodes; with a slot, only of commands with keys in this slot."""

    def __init__(
        self,
        injector: Injector,
        kind: NodeFaultKind,
        slot: int | None,
        matchers: Mapping[str, Any],
        at_end: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(injector, kind, kind if slot is None else f"{kind} slot={slot}", matchers)
        self.slot = slot
        self._at_end = at_end

    def _end(self) -> None:
        super()._end()
        if self._at_end is not None:
            self._at_end()

    @property
    def _shortfall(self) -> str:
        keys = "keys" if self.slot is None else f"keys in slot {self.slot}"
        return f"{super()._shortfall}: each needs a command with {keys}, sent to their primary"


class KVFaults(FaultPlan):
    """The fault plan of a key-value server, with the common faults and those of nodes."""

    def __init__(self, stream: RandomStream, clock: Timekeeper, config: KVConfig) -> None:
        super().__init__(stream, clock)
        self._config = config
        self._nodes = NodeFaults(self._injector)

    def moved(self, slot: int | str | bytes | None = None, **matchers: Unpack[KVMatchers]) -> Fault:
        """Move a slot and its keys to the next primary before a command, which is answered with MOVED.

        ``slot`` is a number, a key in the slot, or None for the slot of the command's keys. Happens
        once unless ``times`` is given.
        """
        self._need("moved")
        matchers = {"times": 1, **matchers}
        return self._add(NodeFault(self._injector, "moved", _slot(slot), matchers))

    def ask(self, slot: int | str | bytes | None = None, **matchers: Unpack[KVMatchers]) -> Fault:
        """Answer with ASK, because the keys of a slot have moved to the next primary, but not the slot.

        ``slot`` is that of ``moved()``. When the fault ends, after ``times`` commands or when it is
        removed, the slot belongs to the other node.
        """
        self._need("ask")
        arrive = self._nodes.end_migrations
        return self._add(NodeFault(self._injector, "ask", _slot(slot), matchers, arrive))

    def cluster_down(self, **matchers: Unpack[KVMatchers]) -> Fault:
        """Answer with CLUSTERDOWN, as a cluster does that has lost too many nodes. CLUSTER INFO reports
        the state ``fail`` as long as the fault can fire.
        """
        self._need("cluster_down")
        return self._add(NodeFault(self._injector, "cluster_down", None, matchers))

    def failover(self, **matchers: Unpack[KVMatchers]) -> Fault:
        """Let the primary that gets a command fail, so that its replica takes over.

        The command is not executed, and the node closes all connections. Afterwards it is a replica
        of the new primary. No write is lost, unless the test restores an earlier snapshot. Happens
        once unless ``times`` is given.
        """
        self._need("failover")
        matchers = {"times": 1, **matchers}
        return self._add(NodeFault(self._injector, "failover", None, matchers))

    def _is_possible(self, kind: str) -> bool:
        least_nodes = {"moved": 2, "ask": 2, "cluster_down": 1}
        if kind == "failover":
            return self._config.replicas > 0
        return self._config.cluster >= least_nodes.get(kind, 0)

    def _need(self, name: str) -> None:
        if not self._is_possible(name):
            needed = {
                "cluster_down": "cluster=True", "failover": "cluster=3 or sentinel=True",
            }.get(name, "cluster=3")  # fmt: skip
            raise ContractError(
                f"faults.{name}() needs a server with more nodes than this one: start it with "
                f"dialect='redis', {needed}"
            )


def nodes_of(plan: KVFaults) -> NodeFaults:
    """Return what applies the faults of nodes of a plan."""
    return plan._nodes


class NodeFaults:
    """Applies faults of nodes to the commands of clients."""

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self._engine: Callable[[], KVEngine | None] = lambda: None
        """Returns the engine, which refers to this object."""
        self._migrating: set[int] = set()
        """The slots that a fault has begun to migrate."""

    def connect(self, engine: KVEngine) -> None:
        """Apply the faults to the nodes of an engine."""
        self._engine = weakref.ref(engine)
        if engine.cluster is not None:
            engine.cluster.reports_failure = self._is_down

    @property
    def is_active(self) -> bool:
        """Whether any fault can fire."""
        return bool(self._injector.active)

    def _is_down(self) -> bool:
        return any(fault.kind == "cluster_down" for fault in self._injector.active)

    def before(
        self, session: Session, request: Request, line: list[bytes]
    ) -> CommandError | ConnectionEffect | None:
        """Apply the faults of a command before it runs. Return the error instead of its reply, or the
        end of its connection, if it does not run.
        """
        slot = served_slot(session, line)
        if slot is None:
            return None

        def fits(fault: Any) -> bool:
            return fault.slot in (None, slot)

        claim = self._injector.claim
        kind = next((kind for kind in KINDS if claim(kind, request, fits) is not None), None)
        if kind is None:
            return None
        target = target_of(kind, session)
        _add_data(request, slot=slot, node=target.number)
        happen_to_nodes(kind, session, line, slot, target)
        if kind == "ask":
            self._migrating.add(slot)
        if kind == "failover":
            return ConnectionEffect("drop", reset=True)
        return CommandError(errors.CLUSTER_DOWN) if kind == "cluster_down" else None

    def after(self, request: Request) -> None:
        """Let slots arrive whose fault has answered its last command."""
        if self._migrating and not any(fault.kind == "ask" for fault in self._injector.active):
            _add_data(request, arrives=1)
            self.end_migrations()

    def end_migrations(self) -> None:
        """Let the slots arrive that a fault has begun to migrate, unless they were moved since."""
        engine = self._engine()
        if engine is not None and self._migrating:
            arrive(engine, self._migrating)
            self._migrating.clear()


def _slot(slot: object) -> int | None:
    if slot is None:
        return None
    if isinstance(slot, str | bytes):
        return key_slot(encode(slot))
    if not isinstance(slot, int) or isinstance(slot, bool) or not 0 <= slot < SLOTS:
        raise ContractError(
            f"{shown(slot)} is not a slot: pass a number below {SLOTS}, or a key such as 'user:1'"
        )
    return slot


def _add_data(request: Request, **data: int) -> None:
    """Record in the call what its last fault has done, with which a replay repeats it."""
    *others, entry = request.call.faults
    request.call.faults = (*others, {**entry, **{name: str(value) for name, value in data.items()}})


# -- what happens to nodes -------------------------------------------------------------------------


def served_slot(session: Session, line: list[bytes]) -> int | None:
    """Return the slot of a command's keys if the client's node is their primary, and serves them."""
    client, topology = session.node, session.engine.topology
    spec = session.engine.table.find(line)
    if client is None or spec is None or client.node.primary is not None or client.is_asking:
        return None
    slots = {key_slot(line[place]) for place, _ in spec.key_positions(line)}
    if not isinstance(topology, Cluster):
        return min(slots, default=None)
    if len(slots) != 1:
        return None
    [slot] = slots
    return slot if topology.owner(slot, client.node) is client.node else None


def possible_faults(session: Session, line: list[bytes]) -> tuple[NodeFaultKind, ...]:
    """Return the kinds of faults that can happen to nodes before a command of a client."""
    if served_slot(session, line) is None:
        return ()
    cluster, node = session.engine.cluster, _node_of(session)
    has_several = cluster is not None and cluster.next_primary(node) is not node
    topology = session.engine.topology
    has_replicas = topology is not None and bool(topology.replicas_of(node))
    is_possible = {
        "failover": has_replicas,
        "cluster_down": cluster is not None,
        "moved": has_several,
        "ask": has_several,
    }
    return tuple(kind for kind in KINDS if is_possible[kind])


def target_of(kind: NodeFaultKind, session: Session) -> Node:
    """Return the node to which a fault moves slots: of another kind than ``failover``, the next primary;
    for ``cluster_down``, which moves none, the client's own node.
    """
    node, topology = _node_of(session), session.engine.topology
    if kind == "failover" and topology is not None:
        return topology.replicas_of(node)[0]
    if kind == "cluster_down" or not isinstance(topology, Cluster):
        return node
    return topology.next_primary(node)


def happen_to_nodes(
    kind: NodeFaultKind, session: Session, line: list[bytes], slot: int, target: Node
) -> None:
    """Let a fault of this kind happen to the nodes before a command of a client."""
    engine = session.engine
    topology, cluster = engine.topology, engine.cluster
    if kind == "cluster_down":
        session.abort_transaction()
    elif kind == "failover" and topology is not None:
        engine.change_nodes(topology.promote, target)
    elif kind == "moved" and cluster is not None:
        engine.change_nodes(cluster.assign, [slot], target)
    elif kind == "ask" and cluster is not None:
        with engine.lock:
            _migrate(session, cluster, line, slot, target)


def _migrate(
    session: Session, cluster: Cluster, line: list[bytes], slot: int, target: Node
) -> None:
    """Migrate a slot to a node that has its keys already, also those of a command that do not exist."""
    spec = session.engine.table.find(line)
    assert spec is not None
    cluster.migrate(slot, target)
    cluster.import_from(slot, _node_of(session), target)
    cluster.move_keys(key for key in session.db if key_slot(key) == slot)
    cluster.move_keys(line[place] for place, _ in spec.key_positions(line))


def arrive(engine: KVEngine, slots: Collection[int]) -> None:
    """Let slots arrive that migrate, unless they were moved since."""
    cluster = engine.cluster
    if cluster is not None:
        for slot, target in list(cluster.all_migrating()):
            if slot in slots:
                engine.change_nodes(cluster.assign, [slot], target)


def _node_of(session: Session) -> Node:
    assert session.node is not None
    return session.node.node
