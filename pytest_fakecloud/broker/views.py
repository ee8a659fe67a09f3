"""Views of topics and consumer groups, with the actions that a test takes on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..cloud.actions import action_as
from ..cloud.fake import core_of
from ..core.errors import ContractError
from ..core.field_types import TEXT, OneOf, WholeNumber
from ..core.journal import Results, results_of
from ..core.matching import Field, ItemFields
from ..core.settings import optional, whole
from ..core.timers import Duration
from .model import (
    GROUP_STATES,
    TOPIC,
    GroupDescription,
    MemberView,
    Record,
    TopicPartition,
    milliseconds,
    record_fields,
)

if TYPE_CHECKING:
    from .fake import Broker, BrokerEngine


class _NamedView:
    """A view of what has this name in a broker."""

    __slots__ = ("_broker", "name")

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self.name = name

    @contextmanager
    def _settled(self, **names: str) -> Iterator[BrokerEngine]:
        """Fire due timers, and yield the engine, whose errors become ``ContractError`` in the block."""
        with self._broker._settled(**names):
            yield core_of(self._broker).engine

    def _owner(self) -> tuple[Broker, tuple[Any, ...]]:
        return self._broker, (self.name,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._owner() == self._owner()

    def __hash__(self) -> int:
        return hash(self._owner())


class TopicView(_NamedView):
    """A topic of a broker.

    Properties show the current state. They raise ``ContractError`` if the topic no longer exists.
    Views are equal if they are of the same topic.
    """

    __slots__ = ()

    name: str
    """The topic's name."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        with self._settled() as engine:
            return engine.topics.check(self.name)

    @property
    def records(self) -> Results[Record]:
        """The records in (partition, offset) order."""
        with self._settled() as engine:
            count = engine.topics.check(self.name)
            records = engine.records.all(self.name)
        return results_of(records, record_fields(count), "record")

    @property
    def start_offsets(self) -> list[int]:
        """For each partition, the offset of its oldest record."""
        with self._settled() as engine:
            return [start for start, _ in engine.topics.bounds(self.name)]

    @property
    def end_offsets(self) -> list[int]:
        """For each partition, the offset that its next record will get."""
        with self._settled() as engine:
            return [end for _, end in engine.topics.bounds(self.name)]

    @action_as("topic.delete")
    def delete(self) -> None:
        """Delete the topic with its records and committed offsets. Its groups rebalance."""
        with self._settled() as engine:
            engine.topics.delete(self.name)

    @action_as("topic.add_partitions")
    def add_partitions(self, count: int = 1) -> int:
        """Add partitions, rebalance the topic's groups, and return the new partition count."""
        with self._settled() as engine:
            return engine.topics.add_partitions(self.name, count)

    @action_as("topic.set_retention")
    def set_retention(
        self, retention: Duration | None = None, *, retention_bytes: int | None = None
    ) -> None:
        """Set how long the topic keeps records, and how many bytes per partition; None: no limit."""
        with self._settled() as engine:
            engine.topics.set_retention(
                self.name, retention_ms=milliseconds(retention), retention_bytes=retention_bytes
            )

    @action_as("topic.delete_records")
    def delete_records(self, *, before: int, partition: int | None = None) -> int:
        """Delete the records below an offset in one partition or in all; return their number."""
        whole(0).read("before", before)
        optional(whole(0)).read("partition", partition)
        with self._settled() as engine:
            return engine.topics.delete_records(self.name, partition, before)

    def __repr__(self) -> str:
        try:
            return f"<Topic {self.name}, partitions: {self.partitions}>"
        except ContractError as error:
            return f"<Topic {self.name}: {error}>"


def description_of(group: GroupView) -> GroupDescription:
    """Return all data of a group at one moment."""
    return group._described()


class GroupView(_NamedView):
    """A consumer group of a broker.

    Properties show the current state. They raise ``ContractError`` if the group no longer exists:
    a group without members and committed offsets is forgotten after ``offset_retention``. Views are
    equal if they are of the same group.
    """

    __slots__ = ()

    name: str
    """The group's name."""

    def _described(self) -> GroupDescription:
        """Return all data of the group at one moment."""
        with self._settled() as engine:
            return engine.groups.describe(self.name)

    @property
    def state(self) -> str:
        """Kafka's state of the group: ``Empty``, ``PreparingRebalance`` or ``Stable``."""
        return self._described().state

    @property
    def generation(self) -> int:
        """The number of completed rebalances."""
        return self._described().generation

    @property
    def members(self) -> Results[MemberView]:
        """The consumer instances by name.

        Each has ``name``, ``state`` (``joining``, ``active``, ``closed``, ``crashed`` or
        ``expired``), ``topics``, ``assignment``, ``position``, ``delivered`` (the offsets that a
        commit without offsets would store) and ``config``: ``auto_commit``,
        ``auto_commit_interval_ms``, ``auto_offset_reset`` and ``session_timeout_ms``. The items do
        not change later.
        """
        return self._described().members

    @property
    def assignment(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each member, by its name."""
        return self._described().assignment

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The committed offsets."""
        return self._described().committed

    @property
    def position(self) -> dict[TopicPartition, int | None]:
        """The next offset to deliver in each partition that has an owner; None if there is no
        offset and the reset policy is ``none``.
        """
        return self._described().position

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The number of records after the committed offset, for each partition that the group reads
        or has committed.

        Without a committed offset, it is the number of records after the position at which the
        partition's owner started, or of all records if there is no owner.
        """
        return self._described().lag

    @property
    def total_lag(self) -> int:
        """The sum of the lags of all partitions."""
        return self._described().total_lag

    @action_as("group.rebalance")
    def rebalance(self) -> None:
        """Make the group rebalance, after the usual automatic commits of its members."""
        with self._settled() as engine:
            engine.groups.rebalance(self.name)

    @action_as("group.leave")
    def leave(self, instance: str) -> None:
        """Make an instance leave the group, as a delete-consumer request does."""
        with self._settled(instance=instance) as engine:
            engine.groups.delete(self.name, instance)

    @action_as("group.expire")
    def expire(self, instance: str) -> None:
        """End an instance's session, reassign its partitions, and reject its later commits."""
        with self._settled(instance=instance) as engine:
            engine.groups.expire(self.name, instance)

    def __repr__(self) -> str:
        try:
            described = self._described()
        except ContractError as error:
            return f"<Group {self.name}: {error}>"
        return f"<Group {self.name} {described.state}, members: {len(described.members)}>"


TOPIC_FIELDS = ItemFields(
    TopicView, name=Field(TOPIC, optional=False), partitions=Field(WholeNumber(1), optional=False)
)
"""Fields by which topics can be filtered."""
GROUP_FIELDS = ItemFields(
    GroupView,
    name=Field(TEXT, optional=False),
    state=Field(OneOf("state of a group", GROUP_STATES), optional=False),
    **dict.fromkeys(("generation", "total_lag"), Field(WholeNumber(0), optional=False)),
)
"""Fields by which groups can be filtered."""
