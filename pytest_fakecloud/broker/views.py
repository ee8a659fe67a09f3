"""What a tester sees of topics and groups: plain values taken at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.journal import Found
from .engine.groups.members import Group, Instance
from .engine.log import Topic
from .model import ConsumerConfig, Record, TopicPartition
from .settings import string, whole

__all__ = ["GroupView", "MemberView", "TopicView", "group_view", "topic_view"]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic: its records in (partition, offset) order, and the ends of each partition's log."""

    name: str
    partitions: int
    records: Found[Record]
    start_offsets: list[int]
    end_offsets: list[int]

    def partition(self, number: int) -> Found[Record]:
        """The records of one partition, oldest first; ``ContractError`` for one it has not."""
        whole("partition", number, 0, self.partitions - 1)
        return self.records.where(partition=number)

    def by_key(self, key: str) -> Found[Record]:
        """The records with a key, oldest first."""
        string("key", key)
        return self.records.where(key=key)


@dataclass(frozen=True, slots=True)
class MemberView:
    """A consumer instance.

    ``state`` is ``joining``, ``active``, ``closed``, ``crashed`` or ``expired``; ``position`` the
    next offset to deliver (None: no offset and reset policy ``none``); ``delivered`` the offset an
    empty commit would store.
    """

    name: str
    state: str
    topics: tuple[str, ...]
    assignment: list[TopicPartition]
    position: dict[TopicPartition, int | None]
    delivered: dict[TopicPartition, int]
    config: ConsumerConfig


@dataclass(frozen=True, slots=True)
class GroupView:
    """A consumer group.

    ``state`` is Kafka's word (``Empty``, ``PreparingRebalance``, ``Stable``, ``Dead`` for one that
    does not exist). ``lag`` counts, for each partition the group reads or has committed, the
    records behind its committed offset; where nothing is committed, those from where its owner
    started, or all.
    """

    name: str
    state: str
    generation: int
    members: Found[MemberView]
    assignment: dict[str, list[TopicPartition]]
    committed: dict[TopicPartition, int]
    position: dict[TopicPartition, int | None]
    lag: dict[TopicPartition, int]

    @property
    def total_lag(self) -> int:
        """The lag of all partitions together."""
        return sum(self.lag.values())


def topic_view(topic: Topic) -> TopicView:
    """A topic as it is now."""
    return TopicView(
        topic.name,
        len(topic.logs),
        Found(record for log in topic.logs for record in log.records()),
        [log.start for log in topic.logs],
        [log.end for log in topic.logs],
    )


def group_view(name: str, group: Group | None, topics: dict[str, Topic]) -> GroupView:
    """A group as it is now; one that does not exist is ``Dead`` and has nothing."""
    if group is None:
        return GroupView(name, "Dead", 0, Found(), {}, {}, {}, {})
    members = Found(_member_view(group.instances[i]) for i in sorted(group.instances))
    starts: dict[TopicPartition, int] = {}
    read = set(group.committed)
    for member in group.members():
        starts.update(member.starts)
        read |= {TopicPartition(t, n) for t in member.topics for n in range(len(topics[t].logs))}
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
