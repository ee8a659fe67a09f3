"""Kafka's range assignor, which assigns partitions to the members of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...model import TopicPartition


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
