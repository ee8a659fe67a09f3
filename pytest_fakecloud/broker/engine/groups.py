"""The consumer groups of a broker in memory, for requests and for actions of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.ids import RandomStream
from ..model import (
    Assignments,
    GroupDescription,
    MemberView,
    Record,
    TopicPartition,
    TopicPartitionOffset,
    found_members,
)
from .coordinator import Coordinator
from .fetching import distinct_positions
from .log import Topic
from .members import ConsumerGroup, Instance, by_topic
from .offsets import GroupOffsets
from .rebalancing import Rebalancer
from .state import BrokerState
from .waits import ClockWaits


class MemoryGroups:
    """Reads and commits with a group, and changes its members.

    Each call is atomic; of a consume request, each attempt to read.
    """

    def __init__(self, state: BrokerState, waits: ClockWaits, stream: RandomStream) -> None:
        self._state = state
        self._waits = waits
        self._offsets = GroupOffsets(state, stream)
        self.rebalancer = Rebalancer(state, self._offsets)
        self.coordinator = Coordinator(state, self._offsets, self.rebalancer)

    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        """Return the next records for an instance. The first call creates it, configured by
        ``headers``.

        Waits for the first record. Returns ``[]`` at the timeout, and earlier if the group
        rebalances, the instance is deleted, or the server closes. Concurrent calls for the same
        instance take turns.
        """
        turn = object()
        with self._state:
            member = self.coordinator.enter(group, instance, topics, headers)
            member.consuming += 1
            seen = (self._waits.epoch, member.epoch)

        def poll() -> list[Record] | None:
            with self._state:
                return self._poll_member(member, turn, seen)

        try:
            found = poll()
            if found is None and timeout_ms:
                found = self._waits.wait(member.signal, poll, timeout_ms)
            return found or []
        finally:
            with self._state:
                self.coordinator.finish(member, turn)

    def _poll_member(
        self, member: Instance, turn: object, seen: tuple[int, int]
    ) -> list[Record] | None:
        if seen != (self._waits.epoch, member.epoch):
            return []
        if member.holder is not None and member.holder is not turn:
            return None
        member.holder = turn
        return self._offsets.take(member)

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        wanted = distinct_positions(offsets)
        with self._state:
            self._offsets.commit(group, instance, wanted)

    def delete(self, group: str, instance: str) -> None:
        with self._state:
            self.coordinator.delete(group, instance)

    def consumers(self) -> Assignments:
        """Return the partitions of live instances, sorted by group and instance."""
        with self._state:
            found: Assignments = {}
            for group, at in sorted(self._state.groups.items()):
                for name, instance in sorted(at.instances.items()):
                    if instance.live:
                        found.setdefault(group, {})[name] = by_topic(instance.assignment)
            return found

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        with self._state:
            return self._offsets.committed(group, partitions)

    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        with self._state:
            self._state.partition(offset.topic, offset.partition)
            self._offsets.set_by_test(group, offset)

    def join(
        self, group: str, instance: str, topics: Sequence[str], auto_offset_reset: str = "latest"
    ) -> None:
        """Add an instance to a group without consuming. It is closed when idle, like any other."""
        with self._state:
            headers = {"auto-offset-reset": auto_offset_reset}
            member = self.coordinator.enter(group, instance, topics, headers)
            member.consuming += 1
            self.coordinator.finish(member, None)

    def crash(self, group: str, instance: str) -> None:
        with self._state:
            self.coordinator.crash(group, instance)

    def expire(self, group: str, instance: str) -> None:
        with self._state:
            self.coordinator.expire(group, instance)

    def rebalance(self, group: str) -> None:
        with self._state:
            self.rebalancer.rebalance(self._state.group(group), "the test asked for it")

    def redeliver(
        self, group: str, last: int, topic: str | None, partition: int | None
    ) -> list[Record]:
        """Deliver a group's last records again, and return them by partition."""
        with self._state:
            found = self._state.group(group)
            if topic is not None:
                self._state.partition(topic, partition or 0)
            return self._offsets.redeliver(
                found,
                last,
                lambda tp: topic in (None, tp.topic) and partition in (None, tp.partition),
            )

    def describe(self, name: str) -> GroupDescription:
        """Return the current state of a group; raise ``BrokerError`` if it is unknown."""
        with self._state:
            for topic in self._state.topics:
                self._state.topic(topic)  # deletes the records that exceed its retention
            return _described(self._state.group(name), self._state.topics)

    def names(self) -> list[str]:
        with self._state:
            return sorted(self._state.groups)


def _described(group: ConsumerGroup, topics: Mapping[str, Topic]) -> GroupDescription:
    members = found_members(_member_view(group.instances[i]) for i in sorted(group.instances))
    starts: dict[TopicPartition, int] = {}
    read = set(group.committed)
    for member in group.members():
        starts.update(member.starts)
        read |= {
            TopicPartition(topic, number)
            for topic in member.topics
            if topic in topics
            for number in range(len(topics[topic].logs))
        }
    lag = {}
    for tp in sorted(read):
        log = topics[tp.topic].logs[tp.partition]
        behind = group.committed.get(tp, starts.get(tp, log.start))
        lag[tp] = max(0, log.end - max(behind, log.start))
    return GroupDescription(
        group.name,
        group.state,
        group.generation,
        members,
        {member.name: list(member.assignment) for member in group.members()},
        dict(sorted(group.committed.items())),
        {tp: at for member in members for tp, at in member.position.items()},
        lag,
    )


def _member_view(instance: Instance) -> MemberView:
    return MemberView(
        instance.name,
        instance.state,
        instance.topics,
        list(instance.assignment),
        dict(instance.positions),
        dict(instance.delivered),
        instance.config,
    )
