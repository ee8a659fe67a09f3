"""The data of a broker as plain JSON, for files that keep the state of a server.

Topics are kept with their records, offsets and limits, and groups with their committed offsets.
Instances are connections of clients, so they are not kept: their groups are empty. Decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ..cloud.fake import core_of
from ..core.errors import ContractError
from ..core.plain_data import from_plain, to_plain
from .engine.engine import BrokerSnapshot, MemoryEngine
from .engine.log import PartitionLog, Topic, columns_of
from .engine.state import ConsumerGroup, GroupCopy
from .fake import Broker
from .model import Header, ProducerRecord, TopicPartition, TopicPartitionOffset


class SavedRecord(NamedTuple):
    """A record; ``by_client`` is False for a record that a test or a file has added."""

    timestamp: int
    value: str
    key: str | None = None
    headers: tuple[Header, ...] = ()
    by_client: bool = True


class SavedPartition(NamedTuple):
    """The records of a partition; ``start`` is the offset of the first."""

    start: int = 0
    records: Sequence[SavedRecord] = ()


class SavedTopic(NamedTuple):
    """A topic with the fields of ``Topic``."""

    name: str
    partitions: Sequence[SavedPartition]
    max_message_bytes: int
    retention_ms: int | None = None
    retention_bytes: int | None = None
    turn: int = 0


class SavedGroup(NamedTuple):
    """A group. It is forgotten after ``forgotten_after_us`` unless an instance joins."""

    name: str
    generation: int = 0
    committed: Sequence[TopicPartitionOffset] = ()
    forgotten_after_us: int | None = None


class SavedBroker(NamedTuple):
    """The topics and groups of a broker."""

    topics: Sequence[SavedTopic] = ()
    groups: Sequence[SavedGroup] = ()


def saved(fake: Broker) -> Any:
    """Return the data of a broker as JSON, or None if a real cluster has it."""
    engine = core_of(fake).engine
    if not isinstance(engine, MemoryEngine):
        return None
    snapshot = engine.snapshot()
    retention_ms = engine.settings.offset_retention_ms
    after_us = None if retention_ms is None else retention_ms * 1000
    return to_plain(
        SavedBroker(
            list(map(_topic, snapshot.topics)), [_group(copy, after_us) for copy in snapshot.groups]
        )
    )


def _topic(topic: Topic) -> SavedTopic:
    return SavedTopic(
        topic.name,
        list(map(_partition, topic.logs)),
        topic.max_message_bytes,
        topic.retention_ms,
        topic.retention_bytes,
        topic.turn,
    )


def _partition(log: PartitionLog) -> SavedPartition:
    by_clients = {record.offset for record in log.records(by_client=True)}
    return SavedPartition(
        log.start,
        [
            SavedRecord(
                record.timestamp,
                record.value,
                record.key,
                record.headers,
                record.offset in by_clients,
            )
            for record in log.records()
        ],
    )


def _group(copy: GroupCopy, after_us: int | None) -> SavedGroup:
    committed = [TopicPartitionOffset(*tp, at) for tp, at in copy.group.committed.items()]
    forgotten_after_us = copy.own_timers.get("offset retention", after_us)
    return SavedGroup(copy.group.name, copy.group.generation, committed, forgotten_after_us)


def load_saved(fake: Broker, content: Any, where: str) -> None:
    """Replace the data of a broker by JSON that ``saved()`` returned.

    Raises ``ContractError``, which begins with the place, for any other JSON. Then nothing changes.
    """
    data = from_plain(SavedBroker, content, where)
    engine = core_of(fake).engine
    if not isinstance(engine, MemoryEngine):
        raise ContractError(
            f"{where}: the data of a real cluster cannot be replaced by that of a file"
        )
    topics = {}
    for number, topic in enumerate(data.topics):
        if topic.name in topics:
            raise ContractError(f"{where}.topics[{number}]: there are two topics {topic.name!r}")
        topics[topic.name] = _loaded_topic(topic)
    groups = [_loaded_group(group, topics, where) for group in data.groups]
    engine.restore(BrokerSnapshot(list(topics.values()), groups))


def _loaded_topic(topic: SavedTopic) -> Topic:
    logs = []
    for number, partition in enumerate(topic.partitions):
        log = PartitionLog(topic.name, number, partition.start)
        for by_client, records in groupby(partition.records, lambda record: record.by_client):
            columns = columns_of(
                ProducerRecord(
                    topic.name, item.value, item.key, number, item.timestamp, item.headers
                )
                for item in records
            )
            log.append(columns, by_client=by_client)
        logs.append(log)
    return Topic(
        topic.name,
        logs,
        max_message_bytes=topic.max_message_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        turn=topic.turn,
    )


def _loaded_group(saved_group: SavedGroup, topics: dict[str, Topic], where: str) -> GroupCopy:
    group = ConsumerGroup(saved_group.name)
    group.generation = saved_group.generation
    for topic, partition, offset in saved_group.committed:
        if topic not in topics or not 0 <= partition < len(topics[topic].logs):
            raise ContractError(
                f"{where}: the group {group.name!r} has an offset of {topic}-{partition}, which is "
                "not in the file"
            )
        group.committed[TopicPartition(topic, partition)] = offset
    after_us = saved_group.forgotten_after_us
    return GroupCopy(group, {} if after_us is None else {"offset retention": after_us}, {})
