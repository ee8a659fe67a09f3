"""A cluster: the slots that each node serves, and the check whether a node serves a command.

All nodes share one database, in which a key belongs to the node that owns its slot. While a slot moves,
the keys that have moved already belong to the node that imports it. All nodes know at once what a node
claims (decided here); between real nodes, this takes a moment. That a node does not claim a slot any
longer, the others are not told, as in real clusters: they leave it where it was.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from .. import errors
from ..errors import CommandError, Redirection
from ..scripting import errors as script_errors
from .replication import Node, NodeClient, Replication, ReplicationCopy

if TYPE_CHECKING:
    from ..table.keys import KeySpec
    from ..table.registry import CommandSpec
    from .engine import KVEngine
    from .sessions import Session

SLOTS = 16384
_LAST = frozenset({"EXEC", "DISCARD", "RESET"})
"""Commands that end a transaction."""


def key_slot(key: bytes) -> int:
    """Return the slot of a key or a channel: the checksum of its hash tag, or of the whole key
    (specification).
    """
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    tag = key[start + 1 : end] if end > start + 1 else key
    return crc_hqx(tag, 0) % SLOTS


@dataclass
class _Move:
    """A slot on its way: its source knows the target, its target the source, or both."""

    target: Node | None = None
    """The node to which the owner migrates the slot."""
    source: Node | None = None
    """The node from which ``importer`` imports the slot."""
    importer: Node | None = None
    moved: set[bytes] = field(default_factory=set)
    """The keys that have left the owner."""


@dataclass
class ClusterCopy(ReplicationCopy):
    """A copy of the roles of nodes, of the owners of slots, and of what single nodes know of these."""

    owners: list[int]
    unassigned: dict[Node, set[int]]


class Cluster(Replication):
    """The nodes of a cluster, and which of them owns each slot."""

    mode = "cluster"

    def __init__(self, primaries: int, replicas: int, new_id: Callable[[], str]) -> None:
        super().__init__(primaries, replicas, new_id)
        self._owners: list[int] = []
        """For each slot, the place of its owner in ``nodes``."""
        for place in range(primaries):  # as redis-cli divides them
            end = round(SLOTS / primaries * (place + 1))
            self._owners += [place] * (end - len(self._owners))
        self._unassigned: dict[Node, set[int]] = {}
        """For each node, the slots that have no owner as far as it knows; nodes without such are left
        out.
        """
        self._moves: dict[int, _Move] = {}
        self.reports_failure: Callable[[], bool] = lambda: False
        """Returns whether the state of the cluster is ``fail``, although each slot has an owner."""

    # -- what clients and commands ask for -----------------------------------------------------------

    def owner(self, slot: int, viewer: Node) -> Node | None:
        """Return the owner of a slot, as far as a node knows it."""
        if slot in self._unassigned.get(viewer, ()):
            return None
        return self.nodes[self._owners[slot]]

    def node(self, id: bytes) -> Node | None:
        """Return the node with this ID."""
        return next((node for node in self.nodes if node.id.encode() == id.lower()), None)

    def ranges(self, viewer: Node) -> list[tuple[int, int, Node]]:
        """Return the first and the last slot of each run of slots with an owner that a node knows, and
        this owner.
        """
        places: list[int | None] = [*self._owners]
        for slot in self._unassigned.get(viewer, ()):
            places[slot] = None
        runs: list[tuple[int, int, Node]] = []
        first = 0
        for place, run in groupby(places):
            following = first + len(list(run))
            if place is not None:
                runs.append((first, following - 1, self.nodes[place]))
            first = following
        return runs

    def assigned(self, viewer: Node) -> int:
        """Return the number of slots with an owner that a node knows."""
        return SLOTS - len(self._unassigned.get(viewer, ()))

    def is_serving(self, viewer: Node) -> bool:
        """Return whether a node knows an owner of each slot. Otherwise, it serves no keys, as real nodes
        do by default.
        """
        return viewer not in self._unassigned

    def migrating(self, node: Node) -> Iterator[tuple[int, Node]]:
        """Yield the slots that a node migrates, each with the node that gets it."""
        for slot, target in self.all_migrating():
            if self.nodes[self._owners[slot]] is node:
                yield slot, target

    def all_migrating(self) -> Iterator[tuple[int, Node]]:
        """Yield the slots that any node migrates, each with the node that gets it."""
        for slot, move in sorted(self._moves.items()):
            if move.target is not None:
                yield slot, move.target

    def importing(self, node: Node) -> Iterator[tuple[int, Node]]:
        """Yield the slots that a node imports, each with the node from which it comes."""
        for slot, move in sorted(self._moves.items()):
            if move.source is not None and move.importer is node:
                yield slot, move.source

    # -- the keys of a node --------------------------------------------------------------------------

    def _holds(self, node: Node, key: bytes) -> bool:
        """Return whether a node has a key, if it exists."""
        slot = key_slot(key)
        move = self._moves.get(slot)
        if move is not None and key in move.moved:
            return node is (move.importer or move.target)
        return self.nodes[self._owners[slot]] is self.primary_of(node)

    def keys(self, session: Session) -> Sequence[bytes]:
        client = session.node
        if client is None or self.has_all_keys():
            return list(session.db)
        return [key for key in session.db if self._holds(client.node, key)]

    def has_key(self, session: Session, key: bytes) -> bool:
        return session.node is None or self._holds(session.node.node, key)

    def has_all_keys(self) -> bool:
        return not self._moves and len({*self._owners}) == 1

    def keys_in(self, session: Session, slot: int) -> list[bytes]:
        """Return the keys of a slot that the client's node has."""
        return [key for key in self.keys(session) if key_slot(key) == slot]

    def move_keys(self, keys: Iterable[bytes]) -> None:
        """Let keys be at the node that imports their slot."""
        for key in keys:
            move = self._moves.get(key_slot(key))
            if move is not None:
                move.moved.add(key)

    # -- changes -------------------------------------------------------------------------------------

    def migrate(self, slot: int, target: Node) -> None:
        """Let the owner of a slot migrate it to another node."""
        self._moves.setdefault(slot, _Move()).target = target

    def import_from(self, slot: int, source: Node, importer: Node) -> None:
        """Let a node import a slot from another one."""
        move = self._moves.setdefault(slot, _Move())
        move.source, move.importer = source, importer

    def end_move(self, slot: int) -> None:
        """Leave a slot and its keys where they are."""
        self._moves.pop(slot, None)

    def assign(self, slots: Collection[int], node: Node) -> None:
        """Give slots and their keys to a node, and end their moves."""
        self._claim(slots, node)
        for slot in slots:
            self._moves.pop(slot, None)

    def _claim(self, slots: Collection[int], node: Node) -> None:
        place = self.nodes.index(node)
        for slot in slots:
            self._owners[slot] = place
        for viewer, unassigned in list(self._unassigned.items()):
            unassigned.difference_update(slots)
            if not unassigned:
                del self._unassigned[viewer]

    def give_up(self, slots: Iterable[int], viewer: Node) -> None:
        """Let a node forget the owner of slots. It does not last if another node claims the slot."""
        unassigned = {
            slot
            for slot in slots
            if (owner := self.nodes[self._owners[slot]]) is viewer
            or self.owner(slot, owner) is None
        }
        if unassigned:
            self._unassigned.setdefault(viewer, set()).update(unassigned)

    def next_primary(self, node: Node) -> Node:
        """Return the primary that follows a node, to which a slot can move."""
        primaries = [other for other in self.nodes if other.primary is None]
        return primaries[(primaries.index(self.primary_of(node)) + 1) % len(primaries)]

    def promote(self, replica: Node) -> None:
        former = self.primary_of(replica)
        super().promote(replica)
        slots = [slot for slot in range(SLOTS) if self.owner(slot, replica) is former]
        self._claim(slots, replica)

    def follow(self, engine: KVEngine) -> None:
        super().follow(engine)
        for session in engine.connected.copy().values():
            client = session.node
            if client is None or not session.subscriptions["shard"]:
                continue
            lost = [
                name
                for name in session.subscriptions["shard"]
                if self.owner(key_slot(name), client.node) is not self.primary_of(client.node)
            ]
            if lost:
                engine.pubsub.unsubscribe(session, "shard", lost)

    def snapshot(self) -> ClusterCopy:
        unassigned = {node: slots.copy() for node, slots in self._unassigned.items()}
        owners = self._owners.copy()
        return ClusterCopy(**vars(super().snapshot()), owners=owners, unassigned=unassigned)

    def restore(self, saved: ReplicationCopy) -> None:
        super().restore(saved)
        assert isinstance(saved, ClusterCopy)
        self._owners = saved.owners.copy()
        self._unassigned = {node: slots.copy() for node, slots in saved.unassigned.items()}
        self._moves.clear()

    # -- the check of a command ----------------------------------------------------------------------

    def check(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        client = session.node
        if client is None:
            return
        is_asking = client.is_asking or "asking" in spec.flags
        stays_in_transaction = session.transaction is not None and spec.name not in _LAST
        if spec.name not in ("ASKING", "MULTI") and not stays_in_transaction:
            client.is_asking = False
        commands = session.queued_commands if spec.name == "EXEC" else [(spec, line)]
        self._check_commands(session, client, commands, is_asking)

    def check_in_script(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        client = session.node
        if client is None:
            return
        try:
            # A script may use what its own line was allowed to.
            self._check_commands(session, client, [(spec, line)], True, reads_replica=True)
        except Redirection as error:
            if error.text.startswith(b"CLUSTERDOWN The"):
                raise CommandError(script_errors.CLUSTER_DOWN) from None
            raise CommandError(script_errors.NOT_LOCAL) from None

    def _check_commands(
        self,
        session: Session,
        client: NodeClient,
        commands: Collection[tuple[CommandSpec, list[bytes]]],
        is_asking: bool,
        *,
        reads_replica: bool = False,
    ) -> None:
        """Raise ``Redirection`` unless the client's node serves all keys of these commands."""
        node = client.node
        keys = [
            (line[place], key) for spec, line in commands for place, key in spec.key_positions(line)
        ]
        writes = any(spec.write for spec, _ in commands)
        if not keys:
            if writes and node.primary is not None:
                raise CommandError(errors.READ_ONLY_REPLICA)
            return
        slot = key_slot(keys[0][0])
        owner = self.owner(slot, node)
        if owner is None:
            raise Redirection(errors.SLOT_NOT_SERVED)
        if any(key_slot(key) != slot for key, _ in keys):
            raise Redirection(errors.CROSSSLOT)
        if not self.is_serving(node) and not all(key.is_channel for _, key in keys):
            raise Redirection(errors.CLUSTER_DOWN)
        if slot in self._moves and not any(spec.name == "MIGRATE" for spec, _ in commands):
            move = self._moves[slot]
            if owner is node and move.target is not None:
                self._check_migrating(session, move.target, slot, keys)
            elif move.importer is node and is_asking:
                self._check_importing(session, slot, keys, writes)
                return
        if owner is not node:
            reads = (client.reads_replica or reads_replica) and not writes
            if node.primary is owner and (reads or all(key.is_channel for _, key in keys)):
                return
            raise Redirection(errors.moved(slot, owner.address))

    def _check_migrating(
        self, session: Session, target: Node, slot: int, keys: list[tuple[bytes, KeySpec]]
    ) -> None:
        """Raise ``Redirection`` unless all keys are still at the node that migrates their slot."""
        existing = self._existing(session, slot, keys)
        if not all(existing):
            if any(existing):
                raise Redirection(errors.TRYAGAIN)
            raise Redirection(errors.ask(slot, target.address))

    def _check_importing(
        self, session: Session, slot: int, keys: list[tuple[bytes, KeySpec]], writes: bool
    ) -> None:
        """Raise ``Redirection`` if one of several keys has not arrived at the node that imports their
        slot. Keys that a client writes there have arrived.
        """
        if len({key for key, _ in keys}) > 1 and not all(self._existing(session, slot, keys)):
            raise Redirection(errors.TRYAGAIN)
        if writes:
            self.move_keys(key for key, _ in keys)

    def _existing(
        self, session: Session, slot: int, keys: list[tuple[bytes, KeySpec]]
    ) -> list[bool]:
        """Return for each key, but not for channels, whether it is at the client's node."""
        session.engine.update_time()
        return [
            self.has_key(session, key) and session.db.find(key) is not None
            for key, spec in keys
            if not spec.is_channel
        ]
