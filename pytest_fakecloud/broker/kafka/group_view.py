"""The state of a consumer group on a real cluster, as far as its instances in this process know."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import GroupView, MemberView, TopicPartition, found_members
from .instance import KafkaInstance
from .topics import KafkaTopics


def group_view(
    topics: KafkaTopics,
    name: str,
    members: Mapping[str, KafkaInstance],
    committed: Mapping[TopicPartition, int],
) -> GroupView:
    """Return the state of a group.

    Its state and generation are approximated: the cluster's generation is not known, so the number
    of revocations in this process stands for it.
    """
    views = found_members(_member_view(topics, each, members[each]) for each in sorted(members))
    return GroupView(
        name,
        _state(members, committed),
        sum(member.epoch for member in members.values()),
        views,
        {view.name: view.assignment for view in views},
        dict(sorted(committed.items())),
        {tp: at for view in views for tp, at in view.position.items()},
        _lag(topics, members, committed),
    )


def _state(members: Mapping[str, KafkaInstance], committed: Mapping[TopicPartition, int]) -> str:
    if any(member.state in ("joining", "rebalancing") for member in members.values()):
        return "PreparingRebalance"
    if members:
        return "Stable"
    return "Empty" if committed else "Dead"


def _member_view(topics: KafkaTopics, name: str, member: KafkaInstance) -> MemberView:
    delivered = {_shown(topics, tp): at for tp, at in member.buffer.delivered.items()}
    return MemberView(
        name,
        member.state if member.state in ("active", "expired") else "joining",
        tuple(topics.shown(topic) for topic in member.topics),
        [_shown(topics, tp) for tp in sorted(member.buffer.assigned)],
        dict(delivered),
        delivered,
        member.config,
    )


def _shown(topics: KafkaTopics, tp: tuple[str, int]) -> TopicPartition:
    return TopicPartition(topics.shown(tp[0]), tp[1])


def _lag(
    topics: KafkaTopics,
    members: Mapping[str, KafkaInstance],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    read = {tp.topic for tp in committed}
    for member in members.values():
        read |= {topics.shown(topic) for topic in member.topics}
    lag = {}
    for topic in sorted(read):
        starts, ends = topics.bounds(topic)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            tp = TopicPartition(topic, number)
            lag[tp] = max(0, end - max(committed.get(tp, start), start))
    return lag
