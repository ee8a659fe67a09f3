"""Builds the views of topics and groups that tests inspect."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.found import found_of
from ..model import (
    GroupView,
    MemberView,
    TopicPartition,
    TopicView,
    found_members,
    record_fields,
)
from .groups.members import ConsumerGroup, Instance
from .log import Topic


def topic_view(topic: Topic) -> TopicView:
    """Return the current state of a topic."""
    return TopicView(
        topic.name,
        len(topic.logs),
        found_of(
            (record for log in topic.logs for record in log.records()),
            record_fields(len(topic.logs)),
            "record",
        ),
        [log.start for log in topic.logs],
        [log.end for log in topic.logs],
    )


def group_view(name: str, group: ConsumerGroup | None, topics: Mapping[str, Topic]) -> GroupView:
    """Return the current state of a group, which is ``Dead`` if the group does not exist."""
    if group is None:
        return GroupView(name, "Dead", 0, found_members(()), {}, {}, {}, {})
    members = found_members(_member_view(group.instances[i]) for i in sorted(group.instances))
    starts: dict[TopicPartition, int] = {}
    read = set(group.committed)
    for member in group.members():
        starts.update(member.starts)
        read |= {
            TopicPartition(name, number)
            for name in member.topics
            if name in topics
            for number in range(len(topics[name].logs))
        }
    lag = {}
    for tp in sorted(read):
        log = topics[tp.topic].logs[tp.partition]
        behind = group.committed.get(tp, starts.get(tp, log.start))
        lag[tp] = max(0, log.end - max(behind, log.start))
    return GroupView(
        name,
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
