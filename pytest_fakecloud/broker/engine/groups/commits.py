"""Committed offsets: explicit, empty and automatic commits, and redelivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ... import errors
from ...model import EventKind, TopicPartition, TopicPartitionOffset
from .members import (
    ConsumerGroup,
    Instance,
    cancel,
    cancel_timers,
)
from .table import GroupTable


class Commits:
    """Commits, looks up and resets the committed offsets of all groups."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._settings = table.settings

    # -- committing ------------------------------------------------------------------------------

    def commit(
        self, group_name: str, name: str, offsets: Sequence[TopicPartitionOffset], now: int
    ) -> None:
        """Commit the given offsets or, if none are given, those of the records last delivered.

        Raises ``BrokerError`` for an unknown partition, a partition of another instance, an unknown
        instance, and during a rebalance; nothing is committed then.
        """
        for topic, partition, _ in offsets:
            self._table.partition(topic, partition, now)
        try:
            group, instance = self._table.instance(group_name, name)
        except errors.BrokerError:
            if self._settings.commit_by_unknown == "error":
                raise
            self.store(group_name, offsets, f"{name} (unknown)", now)
            return
        if instance.state == "expired":
            raise errors.unknown_member(group.name, name)
        if instance.state != "joining":
            if group.state != "Stable":
                raise errors.rebalance_in_progress(group.name)
            own = set(instance.assignment)
            for topic, partition, _ in offsets:
                if (topic, partition) not in own:
                    raise errors.not_assigned(group.name, name, topic, partition)
        self._store(
            group,
            offsets or [TopicPartitionOffset(*tp, at) for tp, at in instance.delivered.items()],
            "commit",
            name,
            now,
        )
        if any(instance.delivered.get(TopicPartition(t, p), at) != at for t, p, at in offsets):
            self.plan_auto_commit(group, instance, now)

    def store(
        self,
        group_name: str,
        offsets: Sequence[TopicPartitionOffset],
        by: str,
        now: int,
        kind: EventKind = "commit",
    ) -> None:
        """Commit offsets for a group, whichever instance owns the partitions; create the group if
        necessary.
        """
        group = self._table.groups.get(group_name)
        if group is None:
            group = self._table.groups[group_name] = ConsumerGroup(group_name)
        if group.state == "Empty":
            self.retain(group, now)
        self._store(group, offsets, kind, by, now)

    def set_by_test(self, group_name: str, offset: TopicPartitionOffset, now: int) -> None:
        """Set an offset for the test, and forget earlier deliveries, so that no later commit of
        them replaces it.
        """
        self.store(group_name, [offset], "the test", now, "offsets set")
        tp = TopicPartition(offset.topic, offset.partition)
        for instance in self._table.groups[group_name].members():
            instance.delivered.pop(tp, None)

    def committed(
        self, group_name: str, partitions: Sequence[TopicPartition], now: int
    ) -> list[TopicPartitionOffset]:
        """Return committed offsets in request order, with the setting ``never_committed`` for
        missing ones.
        """
        for topic, partition in partitions:
            self._table.partition(topic, partition, now)
        group = self._table.groups.get(group_name)
        if group is None and self._settings.unknown_group == "error":
            raise errors.unknown_group(group_name)
        stored = group.committed if group is not None else {}
        never = self._settings.never_committed
        return [TopicPartitionOffset(*tp, stored.get(tp, never)) for tp in partitions]

    def plan_auto_commit(self, group: ConsumerGroup, instance: Instance, now: int) -> None:
        """Schedule a commit at the instance's next tick, after a delivery or a commit elsewhere."""
        config = instance.config
        if not config.auto_commit or "auto commit" in instance.timers:
            return
        # Ticks count from the instance's creation. A tick without new deliveries would change
        # nothing, so only the next tick is scheduled, and only if needed. An interval of 0 means as
        # often as possible: once per millisecond.
        interval = max(1, config.auto_commit_interval_ms) * 1000
        due = instance.since_us + ((now - instance.since_us) // interval + 1) * interval
        self.plan_tick(group, instance, due)

    def plan_tick(self, group: ConsumerGroup, instance: Instance, due: int) -> None:
        """Schedule an automatic commit at a given time."""
        self._table.arm(
            group, instance, "auto commit", due, lambda at: self._tick(group, instance, at)
        )

    def _tick(self, group: ConsumerGroup, instance: Instance, at: int) -> None:
        cancel(instance, "auto commit")
        self._auto_commit(group, instance, at)

    def _auto_commit(self, group: ConsumerGroup, instance: Instance, at: int) -> None:
        offsets = [
            TopicPartitionOffset(*tp, offset)
            for tp, offset in instance.delivered.items()
            if group.committed.get(tp) != offset
        ]
        self._store(group, offsets, "auto commit", instance.name, at)

    def before_losing(self, group: ConsumerGroup, instance: Instance, at: int) -> None:
        """Commit the records delivered to an instance before it loses its partitions.

        Only with auto-commit, and only if the consumer is alive and still a member. This follows
        the code paths of Kafka's Java client (``ConsumerCoordinator``):

        - A rebalance caused by another member, new partitions or its own subscription:
          ``onJoinPrepare`` commits before it revokes. librdkafka also commits when it unassigns.
        - A clean close, after idling or by delete-consumer: ``close`` commits.
        - A crash: there is no client left to commit.
        - An expired session: the commit would be rejected as an unknown member's, so the records are
          delivered again. The other members, which rebalance because of it, do commit.

        Decided here, as for the ticks: only offsets of delivered records are committed. The Java
        client also commits its position in partitions without deliveries; librdkafka does not.
        """
        if instance.config.auto_commit and instance.state == "active":
            self._auto_commit(group, instance, at)

    def _store(
        self,
        group: ConsumerGroup,
        offsets: Iterable[TopicPartitionOffset],
        kind: EventKind,
        by: str,
        at: int,
    ) -> None:
        stored = [(topic, partition, offset) for topic, partition, offset in offsets]
        for topic, partition, offset in stored:
            group.committed[TopicPartition(topic, partition)] = offset
        if stored:
            changed = ", ".join(
                f"{topic}-{partition}={offset}" for topic, partition, offset in stored
            )
            self._table.tell(
                kind,
                f"{by} of {group.name} committed {changed}"
                + (" automatically" if kind == "auto commit" else ""),
                at,
                group=group.name,
                instance=by,
                offsets=stored,
            )

    # -- forgetting ------------------------------------------------------------------------------

    def retain(self, group: ConsumerGroup, now: int) -> None:
        """Start the retention period of a group that has just become empty; its offsets are kept
        until then.
        """
        retention = self._settings.offset_retention_ms
        if retention is None:
            self._table.set_timer(group, None)
        else:
            self.plan_forgetting(group, now + retention * 1000)

    def plan_forgetting(self, group: ConsumerGroup, due: int) -> None:
        """Schedule the deletion of the group, unless a member joins before."""
        self._table.set_timer(group, due, lambda at: self._forget(group, at), "offset retention")

    def _forget(self, group: ConsumerGroup, at: int) -> None:
        group.state = "Dead"
        for instance in group.instances.values():
            cancel_timers(instance)
        self._table.groups.pop(group.name, None)
        self._table.tell(
            "dead", f"{group.name} and its committed offsets are forgotten", at, group=group.name
        )

    # -- on command ------------------------------------------------------------------------------

    def redeliver(
        self, group: ConsumerGroup, last: int, only: Callable[[TopicPartition], bool], now: int
    ) -> list[TopicPartitionOffset]:
        """Rewind a group, including its committed offsets, to before its last deliveries.

        Returns the new offset of each affected partition. Records that were deleted from the log
        are not delivered again.
        """
        back: dict[TopicPartition, int] = {}
        left = last
        for tp, first, after in reversed(group.deliveries):
            if left <= 0:
                break
            if only(tp):
                # If a partition occurs again in the deliveries, it was rewound in between, so the
                # smaller offset counts.
                offset = max(first, after - left)
                left -= after - offset
                back[tp] = min(offset, back.get(tp, offset))
        first_delivered: dict[TopicPartition, int] = {}
        for tp, first, _ in group.deliveries:
            first_delivered[tp] = min(first, first_delivered.get(tp, first))
        moved = []
        for tp, offset in sorted(back.items()):
            owner = next((i for i in group.members() if tp in i.positions), None)
            if owner is None:
                # The next owner starts at the committed offset, so if that is smaller, delivery
                # starts there.
                offset = min(offset, group.committed.get(tp, first_delivered[tp]))
            offset = max(offset, self._table.log(tp).start)
            moved.append(TopicPartitionOffset(*tp, offset))
            if owner is not None:
                owner.positions[tp] = offset
                owner.starts[tp] = min(offset, owner.starts.get(tp, offset))
                owner.delivered.pop(tp, None)
                self._table.woken.add(owner.signal)
            # If there is no committed offset, set one: otherwise the next owner would start where
            # its reset policy says.
            committed = group.committed.get(tp)
            if (owner is None) if committed is None else committed > offset:
                group.committed[tp] = offset
        self._table.tell(
            "redeliver",
            f"{group.name} gets its last {last} record(s) again, from "
            + (", ".join(f"{t}-{p}={o}" for t, p, o in moved) or "nowhere: none was delivered"),
            now,
            group=group.name,
        )
        return moved
