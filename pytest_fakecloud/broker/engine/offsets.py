"""Offsets of consumer groups: commits by clients, automatic commits, delivery and redelivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...core.errors import counted
from ...core.ids import RandomStream
from .. import errors
from ..model import NO_OFFSET, EventKind, Record, TopicPartition, TopicPartitionOffset
from .log import PartitionLog
from .state import BrokerState, ConsumerGroup, Instance, cancel


class GroupOffsets:
    """The committed offsets of all groups, and the positions of their instances."""

    def __init__(self, state: BrokerState, stream: RandomStream) -> None:
        self._state = state
        self._settings = state.settings
        self._stream = stream

    # -- committing ------------------------------------------------------------------------------

    def commit(self, group_name: str, name: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Commit the given offsets. Without any, commit up to the records last delivered.

        Raises ``BrokerError`` for an unknown partition, a partition of another instance, an unknown
        instance, and during a rebalance. Nothing is committed then.
        """
        for topic, partition, _ in offsets:
            self._state.partition(topic, partition)
        instance = self._state.find_instance(group_name, name)
        if instance is None or not instance.live:
            raise self._state.no_live_instance(group_name, name)
        group = instance.group
        if instance.state == "expired":
            raise errors.unknown_member(group.name, name)
        if instance.state != "joining":
            if group.state != "Stable":
                raise errors.rebalance_in_progress(group.name)
            own = set(instance.assignment)
            for topic, partition, _ in offsets:
                if (topic, partition) not in own:
                    raise errors.not_assigned(group.name, name, topic, partition)
        self._apply_commit(
            group,
            offsets or [TopicPartitionOffset(*tp, at) for tp, at in instance.delivered.items()],
            "commit",
            name,
        )
        if any(instance.delivered.get(TopicPartition(t, p), at) != at for t, p, at in offsets):
            self.plan_auto_commit(instance)

    def set_by_test(self, group_name: str, offset: TopicPartitionOffset) -> None:
        """Set an offset of a group that may not exist, even if an instance owns the partition.

        Forget deliveries from the partition, because their commit would replace the offset.
        """
        group = self._state.create_group(group_name)
        if group.state == "Empty":
            self.retain(group)
        self._apply_commit(group, [offset], "offsets set", "the test")
        tp = TopicPartition(offset.topic, offset.partition)
        for instance in group.members():
            instance.delivered.pop(tp, None)

    def committed(
        self, group_name: str, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        for topic, partition in partitions:
            self._state.partition(topic, partition)
        group = self._state.groups.get(group_name)
        if group is None:
            raise errors.unknown_group(group_name, self._state.groups)
        return [TopicPartitionOffset(*tp, group.committed.get(tp, NO_OFFSET)) for tp in partitions]

    def plan_auto_commit(self, instance: Instance) -> None:
        """Schedule an automatic commit at the end of the instance's current commit interval."""
        config = instance.config
        if not config.auto_commit or "auto commit" in instance.timers:
            return
        # Schedule the end of the current interval only, because nothing changes at the end of an
        # interval without deliveries. Intervals start when the instance is created. An interval of
        # 0 means as often as possible, which is once per millisecond here.
        interval = max(1, config.auto_commit_interval_ms) * 1000
        passed = self._state.now_us - instance.since_us
        left = interval - passed % interval
        self._state.start_timer(instance, "auto commit", left, self.auto_commit)

    def auto_commit(self, instance: Instance) -> None:
        cancel(instance, "auto commit")
        offsets = [
            TopicPartitionOffset(*tp, offset)
            for tp, offset in instance.delivered.items()
            if instance.group.committed.get(tp) != offset
        ]
        self._apply_commit(instance.group, offsets, "auto commit", instance.name)

    def before_losing(self, instance: Instance) -> None:
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
            self.auto_commit(instance)

    def _apply_commit(
        self,
        group: ConsumerGroup,
        offsets: Iterable[TopicPartitionOffset],
        kind: EventKind,
        by: str,
    ) -> None:
        stored = [(topic, partition, offset) for topic, partition, offset in offsets]
        for topic, partition, offset in stored:
            group.committed[TopicPartition(topic, partition)] = offset
        if stored:
            changed = ", ".join(
                f"{topic}-{partition}={offset}" for topic, partition, offset in stored
            )
            self._state.add_event(
                kind,
                f"{by} of {group.name} committed {changed}"
                + (" automatically" if kind == "auto commit" else ""),
                group=group.name,
                instance=by,
                offsets=stored,
            )

    # -- delivery --------------------------------------------------------------------------------

    def take(self, instance: Instance) -> list[Record] | None:
        """Return the next records for an instance, or None if there are none yet."""
        if instance.state != "active" or instance.group.state != "Stable":
            return None
        assignment = instance.assignment
        for tp in assignment:
            self._check_position(instance, tp)
        first = instance.turn % len(assignment) if assignment else 0
        left = self._settings.max_poll_records
        parts: list[list[Record]] = []
        for tp in assignment[first:] + assignment[:first]:
            position = instance.positions[tp]
            log = self._state.log(tp)
            if position is None or position >= log.end:
                continue
            records = log.read(position, left, self._settings.max_partition_bytes)
            after = position + len(records)
            instance.positions[tp] = instance.delivered[tp] = after
            instance.group.remember(tp, position, after)
            parts.append(records)
            left -= len(records)
            if left <= 0:
                break
        if not parts:
            return None
        instance.turn += 1
        self.plan_auto_commit(instance)
        return self._merged(parts)

    def _merged(self, parts: list[list[Record]]) -> list[Record]:
        if len(parts) == 1:
            return parts[0]
        if self._settings.interleave == "random":
            return mixed(parts, self._stream)
        return [record for part in parts for record in part]

    # -- positions -------------------------------------------------------------------------------

    def _check_position(self, instance: Instance, tp: TopicPartition) -> None:
        group = instance.group
        log = self._state.topic(tp.topic).logs[tp.partition]
        position = instance.positions.get(tp)
        if position is None:
            position = self.start_position(instance, tp)
            if position is None:
                committed = group.committed.get(tp)
                if committed is None:
                    raise errors.no_offset(*tp)
                raise errors.out_of_range(*tp, committed, log.start, log.end)
            instance.positions[tp] = position
        elif not log.start <= position <= log.end:
            reset = self._reset_position(instance, log)
            if reset is None:
                raise errors.out_of_range(*tp, position, log.start, log.end)
            instance.positions[tp] = reset
            self._state.add_event(
                "reset",
                f"{instance.name} of {group.name} was at {position} of {tp.topic}-{tp.partition}, "
                f"outside {log.start}..{log.end}, and was reset to {reset}",
                group=group.name,
                instance=instance.name,
            )

    def start_position(self, instance: Instance, tp: TopicPartition) -> int | None:
        """Return the committed offset or, if it is missing or outside the log, that of the reset
        policy, which is None for ``none``.
        """
        log = self._state.log(tp)
        committed = instance.group.committed.get(tp)
        if committed is not None and log.start <= committed <= log.end:
            return committed
        return self._reset_position(instance, log)

    @staticmethod
    def _reset_position(instance: Instance, log: PartitionLog) -> int | None:
        reset = instance.config.auto_offset_reset
        return {"earliest": log.start, "latest": log.end}.get(reset)

    # -- redelivery ------------------------------------------------------------------------------

    def redeliver(
        self, group: ConsumerGroup, last: int, only: Callable[[TopicPartition], bool]
    ) -> list[Record]:
        """Rewind a group by its ``last`` delivered records; return the records to deliver again.

        Records that were deleted from the log are not delivered again.
        """
        ends = {tp: after for tp, _, after in group.deliveries}
        moved = {
            tp: self._rewind(group, tp, offset)
            for tp, offset in sorted(_before_last(group, last, only).items())
        }
        offsets = ", ".join(f"{tp.topic}-{tp.partition}={at}" for tp, at in moved.items())
        self._state.add_event(
            "redeliver",
            f"{group.name} gets {counted(last, 'record')} again, from "
            + (offsets or "nowhere: none was delivered"),
            group=group.name,
        )
        return [
            record
            for tp, offset in moved.items()
            for record in self._state.partition(*tp).read(offset)
            if record.offset < ends[tp]
        ]

    def _rewind(self, group: ConsumerGroup, tp: TopicPartition, offset: int) -> int:
        """Make the next delivery from a partition start at an offset or before; return the start."""
        start = self._state.log(tp).start
        committed = group.committed.get(tp)
        owner = next((i for i in group.members() if tp in i.positions), None)
        if owner is None:
            # The next owner starts at the committed offset, so rewind at least to that one. Without
            # a committed offset, the next owner's reset policy would determine where it starts.
            if committed is None:
                committed = min(first for at, first, _ in group.deliveries if at == tp)
                group.committed[tp] = max(start, committed)
            offset = max(start, min(offset, committed))
        else:
            offset = max(start, offset)
            owner.positions[tp] = offset
            owner.starts[tp] = min(offset, owner.starts.get(tp, offset))
            owner.delivered.pop(tp, None)
            self._state.woken.add(owner.signal)
        if committed is not None and committed > offset:
            group.committed[tp] = offset
        return offset

    # -- expiry of groups ------------------------------------------------------------------------

    def retain(self, group: ConsumerGroup) -> None:
        """Start the retention period of the offsets of a group that has just become empty."""
        cancel(group)
        if self._settings.offset_retention_ms is not None:
            delay_us = self._settings.offset_retention_ms * 1000
            self._state.start_timer(group, "offset retention", delay_us, self.forget)

    def forget(self, group: ConsumerGroup) -> None:
        group.state = "Dead"
        for instance in group.instances.values():
            cancel(instance)
        self._state.groups.pop(group.name, None)
        self._state.add_event(
            "dead", f"{group.name} and its committed offsets are forgotten", group=group.name
        )


def mixed(parts: Sequence[Sequence[Record]], stream: RandomStream) -> list[Record]:
    """Return the records of several partitions in random order, each partition's in its order."""
    # Shuffle numbers of parts instead of records, to keep the order within each part.
    numbers = [number for number, part in enumerate(parts) for _ in part]
    stream.shuffle(numbers)
    sources = [iter(part) for part in parts]
    return [next(sources[number]) for number in numbers]


def _before_last(
    group: ConsumerGroup, last: int, only: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, int]:
    """Return the offset of the first of the last delivered records, by partition."""
    found: dict[TopicPartition, int] = {}
    left = last
    for tp, first, after in reversed(group.deliveries):
        if left <= 0:
            break
        if only(tp):
            # A partition that was rewound occurs several times: use its smallest offset.
            offset = max(first, after - left)
            left -= after - offset
            found[tp] = min(offset, found.get(tp, offset))
    return found
