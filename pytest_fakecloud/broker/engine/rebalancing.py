"""Rebalances of groups, which assign partitions to members while the state's lock is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import TopicPartition
from .members import NO_CAUSE, ConsumerGroup, Instance, cancel, partitions_text
from .offsets import GroupOffsets
from .state import BrokerState


class Rebalancer:
    """Revokes the partitions of groups, and assigns them to the current members."""

    def __init__(self, state: BrokerState, offsets: GroupOffsets) -> None:
        self._state = state
        self._settings = state.settings
        self._offsets = offsets
        state.on_timer["rebalance"] = self._complete

    def rebalance_subscribers(self, topic: str, reason: str) -> None:
        """Rebalance the groups that subscribe to a topic, or have kept their subscription to it."""
        for group in list(self._state.groups.values()):
            if any(topic in member.topics for member in group.members()):
                self.rebalance(group, reason)

    def rebalance(
        self, group: ConsumerGroup, reason: str, cause: tuple[str, str] = NO_CAUSE
    ) -> None:
        """Revoke all partitions of a group and assign them again.

        ``cause`` is the kind of event and the instance that caused the rebalance, and ``reason``
        describes them. Members with auto-commit first commit the records that they received.
        """
        members = group.members()
        for instance in group.instances.values():
            self._offsets.before_losing(instance)
            self.revoke(instance)
        group.reason, group.cause = reason, cause
        if not members:
            group.generation += 1
            group.state = "Empty"
            self._add_rebalance_event(group, {})
            self._offsets.retain(group)
        elif self._settings.join_delay_ms:
            if group.state != "PreparingRebalance" or not group.timers:
                cancel(group)
                delay_us = self._settings.join_delay_ms * 1000
                self._state.start_timer(group, "rebalance", delay_us)
            group.state = "PreparingRebalance"
            self._state.add_event(
                "rebalance started",
                f"{group.name} rebalances: {reason}; all partitions are revoked",
                group=group.name,
                reason=reason,
                cause=cause,
            )
        else:
            self._complete(group)

    def _complete(self, group: ConsumerGroup) -> None:
        cancel(group)
        members = group.members()
        group.generation += 1
        group.state = "Stable"
        shares = range_assignment(
            {member.name: member.topics for member in members},
            {name: len(topic.logs) for name, topic in self._state.topics.items()},
        )
        for member in members:
            member.assignment = shares[member.name]
            if member.live:
                self.activate(member)
        self._add_rebalance_event(group, shares)

    def _add_rebalance_event(
        self, group: ConsumerGroup, shares: Mapping[str, Sequence[TopicPartition]]
    ) -> None:
        text = "; ".join(f"{name}: {partitions_text(share)}" for name, share in shares.items())
        self._state.add_event(
            "rebalance",
            f"{group.name} generation {group.generation} ({group.reason}): {text or 'no members'}",
            group=group.name,
            generation=group.generation,
            reason=group.reason,
            cause=group.cause,
            assignment={name: [tuple(tp) for tp in share] for name, share in shares.items()},
        )

    def activate(self, instance: Instance) -> None:
        """Let an instance read its partitions from its start positions."""
        instance.state = "active"
        for tp in instance.assignment:
            self._state.topic(tp.topic)
            position = self._offsets.start_position(instance, tp)
            instance.positions[tp] = position
            if position is not None:
                instance.starts[tp] = position
            self._state.log(tp).watchers.add(instance.signal)
        self._state.woken.add(instance.signal)

    def revoke(self, instance: Instance) -> None:
        """Take an instance's partitions away, and end its waiting calls."""
        self.release(instance)
        if instance.state != "joining":
            instance.epoch += 1
        instance.assignment = []
        self._state.woken.add(instance.signal)

    def release(self, instance: Instance) -> None:
        """Stop reading the partitions of an instance, which keeps them."""
        for tp in instance.assignment:
            if tp.topic in self._state.topics:
                self._state.log(tp).watchers.discard(instance.signal)
        instance.positions.clear()
        instance.starts.clear()
        instance.delivered.clear()
        cancel(instance, "auto commit")


def range_assignment(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member.

    ``subscriptions`` maps members to their topics, ``partitions`` topics to their partition counts.
    Topics without a partition count have been deleted and are not assigned.

    For each topic, every member receives a range of consecutive partitions, in the order of the
    members' names. If the partitions cannot be divided evenly, the first members receive one more.
    The Java assignor sorts static members by their ``group.instance.id``, which is their name here.
    Source: Kafka's range assignor.
    """
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    for topic in sorted(wanted & partitions.keys()):
        members = [member for member in assignment if topic in subscriptions[member]]
        share, more = divmod(partitions[topic], len(members))
        first = 0
        for index, member in enumerate(members):
            count = share + (index < more)
            assignment[member] += [TopicPartition(topic, n) for n in range(first, first + count)]
            first += count
    return assignment
