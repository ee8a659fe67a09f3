"""The topics and consumer groups of a broker in memory, behind one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...core.timekeeper import Timekeeper
from ...core.timers import Signal
from .. import errors
from ..model import EventKind, TopicPartition
from ..settings import BrokerConfig
from .log import PartitionLog, Topic
from .members import ConsumerGroup, Instance, TimerKind

GroupListener = Callable[..., object]
"""Called with the kind of an event, a description, the time in microseconds, and details."""


class BrokerState:
    """The topics and groups by name. ``with state:`` locks them; all methods expect this.

    While they are locked, ``now_us`` is the time of the operation: that of the clock or, in a
    timer's callback, the time at which the timer was due. When the lock is released, the signals in
    ``woken`` are notified, and ``listener`` is called with the events recorded since it was last
    called.
    """

    def __init__(self, settings: BrokerConfig, clock: Timekeeper) -> None:
        self.settings = settings
        self.clock = clock
        self.listener: GroupListener | None = None
        self.on_timer: dict[TimerKind, Callable[[Any], None]] = {}
        """The callbacks of timers; they are called with the timer's owner."""
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, ConsumerGroup] = {}
        self.woken: set[Signal] = set()
        self.now_us = 0
        self._events: list[tuple[EventKind, str, int, dict[str, Any]]] = []
        self._lock = threading.Lock()

    # These methods make it a context manager, because a generator would slow down every call.

    def __enter__(self) -> None:
        self._lock.acquire()
        self.now_us = self.clock.now_us()

    def __exit__(self, *error: object) -> None:
        woken, self.woken = self.woken, set()
        events, self._events = self._events, []
        self._lock.release()
        try:
            if self.listener is not None:
                for kind, text, at_us, data in events:
                    self.listener(kind, text, at_us=at_us, **data)
        finally:
            for signal in woken:
                signal.notify()

    def topic(self, name: str) -> Topic:
        """Return a topic without expired records; raise ``BrokerError`` if it is unknown."""
        topic = self.topics.get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self.topics))
        topic.retain(self.now_us // 1000)
        return topic

    def partition(self, name: str, partition: int) -> PartitionLog:
        """Return a partition's log; raise ``BrokerError`` for an unknown topic or partition."""
        topic = self.topic(name)
        if not 0 <= partition < len(topic.logs):
            raise errors.unknown_partition(name, partition, len(topic.logs))
        return topic.logs[partition]

    def log(self, tp: TopicPartition) -> PartitionLog:
        return self.topics[tp.topic].logs[tp.partition]

    def create_group(self, name: str) -> ConsumerGroup:
        """Return a consumer group, which is created if it does not exist."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = ConsumerGroup(name)
        return group

    def find_instance(self, group_name: str, name: str) -> Instance | None:
        """Return an instance, which may have been closed or may have crashed, or None."""
        group = self.groups.get(group_name)
        return None if group is None else group.instances.get(name)

    def instance(self, group_name: str, name: str) -> Instance:
        """Return a live instance; raise ``BrokerError`` if it or its group is unknown."""
        instance = self.find_instance(group_name, name)
        if instance is None or not instance.live:
            raise self.no_live_instance(group_name, name)
        return instance

    def no_live_instance(self, group_name: str, name: str) -> errors.BrokerError:
        """Return the error for an instance that does not exist or is not live."""
        known = {
            group.name: [one.name for one in group.instances.values() if one.live]
            for group in self.groups.values()
        }
        return errors.unknown_instance(group_name, name, known)

    def group(self, name: str) -> ConsumerGroup:
        """Return a consumer group; raise ``BrokerError`` if it is unknown."""
        group = self.groups.get(name)
        if group is None:
            raise errors.unknown_group(name, self.groups)
        return group

    def start_timer(self, owner: Instance | ConsumerGroup, kind: TimerKind, delay_us: int) -> None:
        """Start a timer of an instance or a group, which replaces its timer of the same kind."""
        due = self.now_us + delay_us
        planned = owner.timers.get(kind)
        if planned is not None:
            if planned.due_us == due:
                return
            planned.cancel()

        def fire(at_us: int) -> None:
            with self:
                self.now_us = at_us
                self.on_timer[kind](owner)

        # Wake the calls that wait in this group, because the new timer may be due first.
        group = owner if isinstance(owner, ConsumerGroup) else owner.group
        self.woken.update(i.signal for i in group.instances.values() if i.consuming)
        owner.timers[kind] = self.clock.call_at(due, fire, lane="state", label=f"{kind} of {owner}")

    def time_left(self, owner: Instance | ConsumerGroup) -> dict[TimerKind, int]:
        """Return the remaining microseconds of the timers of an instance or a group."""
        return {kind: timer.due_us - self.now_us for kind, timer in owner.timers.items()}

    def add_event(self, kind: EventKind, text: str, **data: Any) -> None:
        """Record an event of a group when the lock is released."""
        self._events.append((kind, text, self.now_us, data))
