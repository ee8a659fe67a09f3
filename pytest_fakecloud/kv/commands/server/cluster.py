"""Commands of clusters: CLUSTER, ASKING, READONLY and READWRITE.

Without ``cluster=``, each of them returns an error. With it, the nodes are fixed, so commands
that add or remove nodes are rejected. What a node claims is known to all at once, and replicas are never
behind (decided here). That a node gives up its slots, only it knows itself, as in real clusters.
"""

from __future__ import annotations

from collections.abc import Iterator

from ... import errors
from ...engine.cluster import SLOTS, Cluster, key_slot
from ...engine.replication import Node, NodeClient, node_of
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import OK, Map, Reply, Status
from ...syntax import I64_MAX, I64_MIN, parse_int, try_int
from ...table.registry import Args, command, variant
from ..arguments import readable
from .introspection import show_help

_MOST_PORT = 65_535
_TO_BUS = 10_000
"""The number that a node adds to its port for the port of the cluster's bus (specification)."""


def _cluster(session: Session) -> Cluster:
    cluster = session.engine.cluster
    if cluster is None:
        raise CommandError(errors.CLUSTER_DISABLED)
    return cluster


def _slot(text: bytes) -> int:
    slot = try_int(text)
    if slot is None or not 0 <= slot < SLOTS:
        raise CommandError(errors.INVALID_SLOT_RANGE)
    return slot


def _node(cluster: Cluster, id: bytes) -> Node:
    node = cluster.node(id)
    if node is None:
        raise CommandError(errors.unknown_node(id))
    return node


# -- clients ---------------------------------------------------------------------------------------


def _client(session: Session) -> NodeClient | None:
    """Return the connection to a node, which other interfaces do not have."""
    _cluster(session)
    return session.node


@command("ASKING")
def asking(session: Session, args: Args) -> Reply:
    """Let the next command use a slot that the node imports."""
    if client := _client(session):
        client.is_asking = True
    return OK


@variant("READONLY", "Let the connection read from a replica.", reads=True)
@variant("READWRITE", "Let a replica redirect all commands of the connection.", reads=False)
def readonly(session: Session, args: Args, *, reads: bool) -> Reply:
    if client := _client(session):
        client.reads_replica = reads
    return OK


# -- keys and slots --------------------------------------------------------------------------------


@command("CLUSTER KEYSLOT")
def keyslot(session: Session, args: Args) -> Reply:
    """Return the slot of a key."""
    _cluster(session)
    return key_slot(args[0])


@command("CLUSTER COUNTKEYSINSLOT")
def countkeysinslot(session: Session, args: Args) -> Reply:
    """Return the number of keys in a slot that the node has."""
    cluster = _cluster(session)
    slot = parse_int(args[0])
    if not 0 <= slot < SLOTS:
        raise CommandError(errors.INVALID_SLOT)
    return len(cluster.keys_in(session, slot))


@command("CLUSTER GETKEYSINSLOT")
def getkeysinslot(session: Session, args: Args) -> Reply:
    """Return keys in a slot that the node has."""
    cluster = _cluster(session)
    slot, count = map(parse_int, args)
    if not 0 <= slot < SLOTS or count < 0:
        raise CommandError(errors.INVALID_SLOT_OR_COUNT)
    return list(cluster.keys_in(session, slot)[:count])


# -- nodes -----------------------------------------------------------------------------------------


@command("CLUSTER MYID")
def myid(session: Session, args: Args) -> Reply:
    """Return the ID of the node."""
    _cluster(session)
    return node_of(session).id.encode()


@command("CLUSTER SLOTS")
def slots(session: Session, args: Args) -> Reply:
    """Return the ranges of slots, each with its node and the replicas of this."""
    cluster = _cluster(session)
    return [
        [first, last, *map(_address, (owner, *cluster.replicas_of(owner)))]
        for first, last, owner in cluster.ranges(node_of(session))
    ]


def _address(node: Node) -> Reply:
    return [node.host.encode(), node.port, node.id.encode(), Map()]


@command("CLUSTER SHARDS")
def shards(session: Session, args: Args) -> Reply:
    """Return each primary with its slots and its replicas."""
    cluster = _cluster(session)
    primaries = [node for node in cluster.nodes if node.primary is None]
    ranges = cluster.ranges(node_of(session))
    return [
        Map([
            b"slots", [slot for *ends, owner in ranges if owner is node for slot in ends],
            b"nodes", [_shard_node(member) for member in (node, *cluster.replicas_of(node))],
        ])
        for node in primaries
    ]  # fmt: skip


def _shard_node(node: Node) -> Reply:
    host = node.host.encode()
    role = b"master" if node.primary is None else b"replica"
    return Map([
        b"id", node.id.encode(), b"port", node.port, b"ip", host, b"endpoint", host,
        b"role", role, b"replication-offset", 0, b"health", b"online",
    ])  # fmt: skip


@command("CLUSTER NODES")
def nodes(session: Session, args: Args) -> Reply:
    """Return a line about each node."""
    cluster = _cluster(session)
    lines = [f"{_line(session, cluster, node)}\n" for node in cluster.nodes]
    return readable(session, "".join(lines).encode())


@variant("CLUSTER REPLICAS", "Return a line about each replica of a node.")
@variant("CLUSTER SLAVES", "Return a line about each replica of a node.")
def replicas(session: Session, args: Args) -> Reply:
    cluster = _cluster(session)
    node = _node(cluster, args[0])
    if node.primary is not None:
        raise CommandError(errors.NOT_A_MASTER)
    return [_line(session, cluster, replica).encode() for replica in cluster.replicas_of(node)]


def _line(session: Session, cluster: Cluster, node: Node) -> str:
    """Return the line of a node, as the node of the client knows it."""
    viewer, primary = node_of(session), node.primary
    flags = ["myself"] if node is viewer else []
    flags.append("master" if primary is None else "slave")
    words = [
        node.id, f"{node.address}@{_bus_port(node)}", ",".join(flags),
        "-" if primary is None else primary.id,
        "0", "0", str((primary or node).epoch), "connected",  # No node pings another one.
        *_slot_words(cluster, node, viewer),
    ]  # fmt: skip
    return " ".join(words)


def _slot_words(cluster: Cluster, node: Node, viewer: Node) -> Iterator[str]:
    for first, last, owner in cluster.ranges(viewer):
        if owner is node:
            yield str(first) if first == last else f"{first}-{last}"
    if node is viewer:
        # Only the node itself tells of the slots that move.
        for slot, target in cluster.migrating(node):
            yield f"[{slot}->-{target.id}]"
        for slot, source in cluster.importing(node):
            yield f"[{slot}-<-{source.id}]"


def _bus_port(node: Node) -> int:
    """Return the port of the cluster's bus, at which nothing listens. Below the own port if the usual
    one does not exist (decided here).
    """
    port = node.port + _TO_BUS
    return port if port <= _MOST_PORT else node.port - _TO_BUS


@command("CLUSTER INFO")
def info(session: Session, args: Args) -> Reply:
    """Return the state of the cluster."""
    cluster = _cluster(session)
    node = node_of(session)
    is_ok = cluster.is_serving(node) and not cluster.reports_failure()
    assigned = cluster.assigned(node)
    fields = {
        "cluster_state": "ok" if is_ok else "fail",
        "cluster_slots_assigned": assigned,
        "cluster_slots_ok": assigned,
        "cluster_slots_pfail": 0,
        "cluster_slots_fail": 0,
        "cluster_known_nodes": len(cluster.nodes),
        "cluster_size": len({owner for *_, owner in cluster.ranges(node)}),
        "cluster_current_epoch": cluster.epoch,
        "cluster_my_epoch": cluster.primary_of(node).epoch,
        "cluster_stats_messages_sent": 0,
        "cluster_stats_messages_received": 0,
        "total_cluster_links_buffer_limit_exceeded": 0,
    }
    lines = [f"{name}:{value}\r\n" for name, value in fields.items()]
    return readable(session, "".join(lines).encode())


@command("CLUSTER LINKS")
def links(session: Session, args: Args) -> Reply:
    """Return the connections between nodes; always none, because all nodes share their data."""
    _cluster(session)
    return []


@command("CLUSTER COUNT-FAILURE-REPORTS")
def count_failure_reports(session: Session, args: Args) -> Reply:
    """Return the number of nodes that report the failure of a node, which is always 0."""
    _node(_cluster(session), args[0])
    return 0


# -- changes of slots ------------------------------------------------------------------------------


@variant("CLUSTER ADDSLOTS", "Give slots without a node to this node.", adds=True)
@variant("CLUSTER DELSLOTS", "Let this node forget who has slots.", adds=False)
def change_slots(session: Session, args: Args, *, adds: bool) -> Reply:
    _cluster(session)
    return _change_slots(session, list(map(_slot, args)), adds)


@variant("CLUSTER ADDSLOTSRANGE", "Give ranges of slots without a node to this node.", adds=True)
@variant("CLUSTER DELSLOTSRANGE", "Let this node forget who has ranges of slots.", adds=False)
def change_slot_ranges(session: Session, args: Args, *, adds: bool) -> Reply:
    _cluster(session)
    if len(args) % 2:
        raise CommandError(errors.wrong_arity(session.command.full_name))
    changed: list[int] = []
    for first, last in zip(map(_slot, args[::2]), map(_slot, args[1::2]), strict=True):
        if first > last:
            raise CommandError(errors.slots_reversed(first, last))
        changed += range(first, last + 1)
    return _change_slots(session, changed, adds)


def _change_slots(session: Session, changed: list[int], adds: bool) -> Reply:
    cluster, node = _cluster(session), node_of(session)
    seen: set[int] = set()
    for slot in changed:
        if adds and cluster.owner(slot, node) is not None:
            raise CommandError(errors.slot_busy(slot))
        if not adds and cluster.owner(slot, node) is None:
            raise CommandError(errors.slot_unassigned(slot))
        if slot in seen:
            raise CommandError(errors.slot_repeated(slot))
        seen.add(slot)
    session.engine.change_nodes(cluster.assign if adds else cluster.give_up, changed, node)
    return OK


@command("CLUSTER FLUSHSLOTS")
def flushslots(session: Session, args: Args) -> Reply:
    """Let the node give up all its slots."""
    cluster, node = _cluster(session), node_of(session)
    if cluster.keys(session):
        raise CommandError(errors.FLUSHSLOTS_WITH_KEYS)
    own = [
        slot
        for first, last, owner in cluster.ranges(node)
        if owner is node
        for slot in range(first, last + 1)
    ]
    session.engine.change_nodes(cluster.give_up, own, node)
    return OK


@command("CLUSTER SETSLOT")
def setslot(session: Session, args: Args) -> Reply:
    """Begin to move a slot to another node, or end it."""
    cluster, node = _cluster(session), node_of(session)
    if node.primary is not None:
        raise CommandError(errors.SETSLOT_ON_REPLICA)
    slot, word = _slot(args[0]), args[1].upper()
    owner = cluster.owner(slot, node)
    if word == b"STABLE" and len(args) == 2:
        cluster.end_move(slot)
        return OK
    if len(args) != 3 or word not in (b"MIGRATING", b"IMPORTING", b"NODE"):
        raise CommandError(errors.SETSLOT_ACTION)
    if word == b"MIGRATING" and owner is not node:
        raise CommandError(errors.not_owner(slot))
    if word == b"IMPORTING" and owner is node:
        raise CommandError(errors.already_owner(slot))
    other = cluster.node(args[2])
    if other is None:
        unknown = errors.unknown_node if word == b"NODE" else errors.unknown_slot_node
        raise CommandError(unknown(args[2]))
    if word == b"MIGRATING":
        cluster.migrate(slot, other)
    elif word == b"IMPORTING":
        cluster.import_from(slot, other, node)
    else:
        if owner is node is not other and cluster.keys_in(session, slot):
            raise CommandError(errors.slot_with_keys(slot))
        session.engine.change_nodes(cluster.assign, [slot], other)
    return OK


# -- changes of nodes ------------------------------------------------------------------------------


@command("CLUSTER FAILOVER")
def failover(session: Session, args: Args) -> Reply:
    """Make this replica the primary."""
    cluster, node = _cluster(session), node_of(session)
    if args and (len(args) > 1 or args[0].upper() not in (b"FORCE", b"TAKEOVER")):
        raise CommandError(errors.SYNTAX)
    if node.primary is None:
        raise CommandError(errors.FAILOVER_ON_MASTER)
    session.engine.change_nodes(cluster.promote, node)
    return OK


@command("CLUSTER BUMPEPOCH")
def bumpepoch(session: Session, args: Args) -> Reply:
    """Raise the configuration epoch of the node above that of all others."""
    cluster, node = _cluster(session), node_of(session)
    if node.epoch and node.epoch == cluster.epoch:
        return Status(b"STILL %d" % node.epoch)
    cluster.epoch += 1
    node.epoch = cluster.epoch
    return Status(b"BUMPED %d" % node.epoch)


@command("CLUSTER SET-CONFIG-EPOCH")
def set_config_epoch(session: Session, args: Args) -> Reply:
    """Set the configuration epoch of a node without others."""
    cluster, node = _cluster(session), node_of(session)
    epoch = parse_int(args[0], I64_MIN, I64_MAX)
    if epoch < 0:
        raise CommandError(errors.invalid_epoch(epoch))
    if len(cluster.nodes) > 1:
        raise CommandError(errors.EPOCH_OF_SEVERAL)
    if node.epoch:
        raise CommandError(errors.EPOCH_SET)
    node.epoch = epoch
    cluster.epoch = max(cluster.epoch, epoch)
    return OK


@command("CLUSTER SAVECONFIG")
def saveconfig(session: Session, args: Args) -> Reply:
    """Save the configuration of the node; has no effect, because there is no such file."""
    _cluster(session)
    return OK


@command("CLUSTER MEET")
def meet(session: Session, args: Args) -> Reply:
    """Add a node; returns an error for one that the cluster does not have."""
    cluster = _cluster(session)
    port = try_int(args[1])
    if port is None:
        raise CommandError(errors.bad_base_port(args[1]))
    if len(args) > 2 and try_int(args[2]) is None:
        raise CommandError(errors.bad_bus_port(args[2]))
    if not any(node.host.encode() == args[0] and node.port == port for node in cluster.nodes):
        raise CommandError(errors.FIXED_NODES)
    return OK


@command("CLUSTER FORGET")
def forget(session: Session, args: Args) -> Reply:
    """Remove a node; always returns an error."""
    cluster, own = _cluster(session), node_of(session)
    node = _node(cluster, args[0])
    if node is own:
        raise CommandError(errors.FORGET_MYSELF)
    raise CommandError(errors.FORGET_MASTER if node is own.primary else errors.FIXED_NODES)


@command("CLUSTER REPLICATE")
def replicate(session: Session, args: Args) -> Reply:
    """Make the node a replica of another one; always returns an error."""
    _node(_cluster(session), args[0])
    raise CommandError(errors.FIXED_NODES)


@command("CLUSTER RESET")
def reset(session: Session, args: Args) -> Reply:
    """Remove the node from the cluster; always returns an error."""
    _cluster(session)
    if args and args[0].upper() not in (b"HARD", b"SOFT"):
        raise CommandError(errors.SYNTAX)
    raise CommandError(errors.FIXED_NODES)


@command("CLUSTER HELP")
def help_(session: Session, args: Args) -> Reply:
    """Return the subcommands of CLUSTER."""
    _cluster(session)
    return show_help(session, args, container="CLUSTER")
