"""The consumer groups of a broker, with the state that all operations on groups share.

The engine calls these functions with its lock held. After it has released the lock, it notifies the
signals in ``woken`` and records the events in ``happened``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.timekeeper import Timekeeper
from ....core.timers import Signal, Timer
from ... import errors
from ...model import EventKind, TopicPartition
from ...settings import BrokerConfig
from ..log import PartitionLog, Topic
from .members import ConsumerGroup, Happening, Instance


class GroupTable:
    """All groups by name. ``call_at`` schedules a callback that runs with the engine's lock held."""

    def __init__(
        self,
        topics: dict[str, Topic],
        settings: BrokerConfig,
        clock: Timekeeper,
        call_at: Callable[[int, Callable[[int], None], str], Timer],
    ) -> None:
        self.topics = topics
        self.settings = settings
        self.clock = clock
        self._call_at = call_at
        self.groups: dict[str, ConsumerGroup] = {}
        self.woken: set[Signal] = set()
        self.happened: list[Happening] = []

    # -- lookups ---------------------------------------------------------------------------------

    def topic(self, name: str, now: int) -> Topic:
        """Return a topic after deleting the records that exceed its retention.

        Raises ``BrokerError`` for an unknown topic.
        """
        topic = self.topics.get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self.topics))
        topic.retain(now // 1000)
        return topic

    def partition(self, name: str, partition: int, now: int) -> PartitionLog:
        """Return a partition's log; raise ``BrokerError`` for an unknown topic or partition."""
        topic = self.topic(name, now)
        if not 0 <= partition < len(topic.logs):
            raise errors.unknown_partition(name, partition, len(topic.logs))
        return topic.logs[partition]

    def log(self, tp: TopicPartition) -> PartitionLog:
        return self.topics[tp.topic].logs[tp.partition]

    def instance(self, group_name: str, name: str) -> tuple[ConsumerGroup, Instance]:
        """Return a group and one of its live instances; raise ``BrokerError`` if either is unknown."""
        group = self.groups.get(group_name)
        instance = group.instances.get(name) if group is not None else None
        if group is None or instance is None or not instance.live:
            raise errors.unknown_instance(group_name, name)
        return group, instance

    # -- timers and events -----------------------------------------------------------------------

    def arm(
        self,
        group: ConsumerGroup,
        instance: Instance,
        kind: str,
        due: int,
        callback: Callable[[int], None],
    ) -> None:
        """Start an instance's timer of the given kind, replacing the previous timer of that kind."""
        planned = instance.timers.get(kind)
        if planned is not None:
            if planned.due_us == due and not planned.cancelled:
                return
            planned.cancel()
        label = f"{kind} of {group.name}/{instance.name}"
        instance.timers[kind] = self._call_at(due, callback, label)
        self._touch(group)

    def set_timer(
        self,
        group: ConsumerGroup,
        due: int | None,
        callback: Callable[[int], None] | None = None,
        kind: str = "",
    ) -> None:
        """Replace the group's own timer. If ``due`` is None, only cancel the current timer."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if due is not None and callback is not None:
            group.timer = self._call_at(due, callback, f"{kind} of {group.name}")
            self._touch(group)

    def _touch(self, group: ConsumerGroup) -> None:
        # Wake the calls that wait in this group, so that they wait for the new timer if it is due
        # first.
        self.woken.update(i.signal for i in group.instances.values() if i.consuming)

    def tell(self, kind: EventKind, text: str, at: int, **data: Any) -> None:
        self.happened.append(Happening(kind, text, at, data))
