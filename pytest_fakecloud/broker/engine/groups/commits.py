"""Committed offsets of consumer groups: commits by clients, automatic commits and redelivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ....core.wording import counted
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
    """Stores, returns and rewinds the committed offsets of all groups."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._settings = table.settings

    # -- committing ------------------------------------------------------------------------------

    def commit(
        self, group_name: str, name: str, offsets: Sequence[TopicPartitionOffset], now: int
    ) -> None:
        """Commit the given offsets or, if there are none, those of the records last delivered.

        Raises ``BrokerError`` for an unknown partition, a partition of another instance, an unknown
        instance, and during a rebalance. Nothing is committed then.
        """
        for topic, partition, _ in offsets:
            self._table.partition(topic, partition, now)
        try:
            group, instance = self._table.instance(group_name, name)
        except errors.BrokerError:
            if self._settings.commit_by_unknown == "error":
                raise
            if offsets:
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
        """Commit offsets for a group, even if instances own the partitions.

        Creates the group if necessary.
        """
        group = self._table.groups.get(group_name)
        if group is None:
            group = self._table.groups[group_name] = ConsumerGroup(group_name)
        if group.state == "Empty":
            self.retain(group, now)
        self._store(group, offsets, kind, by, now)

    def set_by_test(self, group_name: str, offset: TopicPartitionOffset, now: int) -> None:
        """Set a committed offset for the test, and forget earlier deliveries in the partition.

        Otherwise an automatic commit of these deliveries would replace the offset.
        """
        self.store(group_name, [offset], "the test", now, "offsets set")
        tp = TopicPartition(offset.topic, offset.partition)
        for instance in self._table.groups[group_name].members():
            instance.delivered.pop(tp, None)

    def committed(
        self, group_name: str, partitions: Sequence[TopicPartition], now: int
    ) -> list[TopicPartitionOffset]:
        """Return committed offsets in request order.

        A partition without a committed offset has the value of the ``never_committed`` setting.
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
        """Schedule an automatic commit at the end of the instance's current commit interval.

        Called after a delivery, and after a commit of offsets other than the delivered ones.
        """
        config = instance.config
        if not config.auto_commit or "auto commit" in instance.timers:
            return
        # Schedule the end of the current interval only, because nothing changes at the end of an
        # interval without deliveries. Intervals start when the instance is created. An interval of
        # 0 means as often as possible, which is once per millisecond here.
        interval = max(1, config.auto_commit_interval_ms) * 1000
        due = instance.since_us + ((now - instance.since_us) // interval + 1) * interval
        self.plan_tick(group, instance, due)

    def plan_tick(self, group: ConsumerGroup, instance: Instance, due: int) -> None:
        """Schedule an automatic commit at the given time."""
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

        This happens only with auto-commit, and only if the consumer is alive and still a member. It
        follows the code paths of Kafka's Java client (``ConsumerCoordinator``):

        - A rebalance caused by another member, new partitions or its own subscription:
          ``onJoinPrepare`` commits before it revokes. librdkafka also commits when it unassigns.
        - A clean close, after idling or by delete-consumer: ``close`` commits.
        - A crash: there is no client left to commit.
        - An expired session: the commit would be rejected as an unknown member's, so the records are
          delivered again. The other members, which rebalance because of it, do commit.

        Decided here: only offsets of delivered records are committed, as in periodic commits. The
        Java client also commits its position in partitions without deliveries; librdkafka does not.
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

    # -- expiry of groups ------------------------------------------------------------------------

    def retain(self, group: ConsumerGroup, now: int) -> None:
        """Start the retention period of the offsets of a group that has just become empty."""
        retention = self._settings.offset_retention_ms
        if retention is None:
            self._table.set_timer(group, None)
        else:
            self.plan_forgetting(group, now + retention * 1000)

    def plan_forgetting(self, group: ConsumerGroup, due: int) -> None:
        """Schedule the deletion of a group. The deletion is cancelled if a member joins before."""
        self._table.set_timer(group, due, lambda at: self._forget(group, at), "offset retention")

    def _forget(self, group: ConsumerGroup, at: int) -> None:
        group.state = "Dead"
        for instance in group.instances.values():
            cancel_timers(instance)
        self._table.groups.pop(group.name, None)
        self._table.tell(
            "dead", f"{group.name} and its committed offsets are forgotten", at, group=group.name
        )

    # -- redelivery ------------------------------------------------------------------------------

    def redeliver(
        self, group: ConsumerGroup, last: int, only: Callable[[TopicPartition], bool], now: int
    ) -> list[TopicPartitionOffset]:
        """Rewind a group's positions and committed offsets to before its last deliveries.

        ``last`` is the number of records to deliver again. Returns the new offset of each affected
        partition. Records that were deleted from the log are not delivered again.
        """
        back: dict[TopicPartition, int] = {}
        left = last
        for tp, first, after in reversed(group.deliveries):
            if left <= 0:
                break
            if only(tp):
                # A partition that was rewound between deliveries occurs several times: use its
                # smallest offset.
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
                # Use the committed offset if it is smaller, because the next owner starts there.
                offset = min(offset, group.committed.get(tp, first_delivered[tp]))
            offset = max(offset, self._table.log(tp).start)
            moved.append(TopicPartitionOffset(*tp, offset))
            if owner is not None:
                owner.positions[tp] = offset
                owner.starts[tp] = min(offset, owner.starts.get(tp, offset))
                owner.delivered.pop(tp, None)
                self._table.woken.add(owner.signal)
            # Set a missing committed offset, too. Otherwise the next owner's reset policy would
            # determine where delivery starts.
            committed = group.committed.get(tp)
            if (owner is None) if committed is None else committed > offset:
                group.committed[tp] = offset
        self._table.tell(
            "redeliver",
            f"{group.name} gets {counted(last, 'record')} again, from "
            + (", ".join(f"{t}-{p}={o}" for t, p, o in moved) or "nowhere: none was delivered"),
            now,
            group=group.name,
        )
        return moved
