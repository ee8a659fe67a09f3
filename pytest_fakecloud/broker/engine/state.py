"""The topics and consumer groups of a broker in memory, behind one lock, and calls that wait.

An *instance* is a consumer of the REST server, identified by its group and its name. It is a
*member* as long as its group includes it. Instances are static members, because the vendor maps
their name to Kafka's ``group.instance.id``. An instance that disappears therefore keeps its
partitions until its session expires.

Instance states::

    joining -> active -> closed   (idle for too long; a member until its session expires)
                      -> crashed  (disappeared without a commit; a member until its session expires)
                      -> expired  (no longer a member; its next consume request rejoins)
           -> removed (from any state: deleted, or replaced by a restored copy)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

from ...core.clock import Timekeeper
from ...core.signals import Signal
from ...core.timers import Lane, Timer
from .. import errors
from ..model import (
    ConsumerConfig,
    EventKind,
    GroupDescription,
    MemberView,
    TopicPartition,
    found_members,
)
from ..settings import BrokerConfig
from .log import PartitionLog, Topic

InstanceState = Literal["joining", "active", "closed", "crashed", "expired", "removed"]
GroupState = Literal["Empty", "PreparingRebalance", "Stable", "Dead"]
TimerKind = Literal["auto commit", "idle close", "session", "rebalance", "offset retention"]
"""The kinds of timers: the first three belong to an instance, the others to a group."""
LIVE = ("joining", "active", "expired")
NO_CAUSE = ("", "")
# Maximum number of deliveries that a group remembers. Tests inspect far fewer, but a load test
# delivers without end.
_REMEMBERED_DELIVERIES = 10_000


class Instance:
    """A consumer instance.

    ``positions`` contains the next offset to deliver for each partition (None if the reset policy
    is ``none`` and there is no offset to start from), ``delivered`` the next offset to commit.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        name: str,
        config: ConsumerConfig,
        topics: tuple[str, ...],
        signal: Signal,
        since_us: int,
    ) -> None:
        self.group, self.name, self.config, self.topics = group, name, config, topics
        self.signal, self.since_us = signal, since_us
        self.state: InstanceState = "joining"
        self.assignment: list[TopicPartition] = []
        self.positions: dict[TopicPartition, int | None] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.delivered: dict[TopicPartition, int] = {}
        self.turn = 0
        """Number of responses with records. It selects the first partition in the next response."""
        self.epoch = 0
        """Incremented when partitions are revoked, so that long polls that started earlier end."""
        self.consuming = 0
        """Number of consume calls in progress."""
        self.has_consumed = False
        """Whether it has called consume since it got its partitions."""
        self.holder: object | None = None
        """The consume call that may proceed. Other calls on the same instance wait."""
        self.timers: dict[TimerKind, Timer] = {}

    @property
    def live(self) -> bool:
        """Whether the REST server still has a consumer for the instance."""
        return self.state in LIVE

    @property
    def member(self) -> bool:
        """Whether the group still includes the instance."""
        return self.state not in ("expired", "removed")

    def view(self) -> MemberView:
        return MemberView(
            self.name,
            self.state,
            self.topics,
            list(self.assignment),
            dict(self.positions),
            dict(self.delivered),
            self.config,
        )

    def __str__(self) -> str:
        return f"{self.group.name}/{self.name}"


class ConsumerGroup:
    """A consumer group. ``generation`` counts its completed rebalances."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.state: GroupState = "Empty"
        self.instances: dict[str, Instance] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.deliveries: deque[tuple[TopicPartition, int, int]]
        self.deliveries = deque(maxlen=_REMEMBERED_DELIVERIES)
        """For each delivery: partition, offset of the first record, and offset after the last record."""
        self.reason = ""
        """Why the latest rebalance was started, for people."""
        self.cause = NO_CAUSE
        """The kind of event and the instance that caused the latest rebalance, or ``NO_CAUSE``."""
        self.timers: dict[TimerKind, Timer] = {}
        """The timer that completes the current rebalance, or deletes the empty group."""

    def __str__(self) -> str:
        return self.name

    def members(self) -> list[Instance]:
        """Return the members, sorted by name."""
        return [instance for _, instance in sorted(self.instances.items()) if instance.member]

    def remember(self, tp: TopicPartition, first: int, after: int) -> None:
        """Add a delivery, as a part of the previous delivery if it continues that one."""
        deliveries = self.deliveries
        if deliveries and deliveries[-1][0] == tp and deliveries[-1][2] == first:
            first = deliveries.pop()[1]
        deliveries.append((tp, first, after))

    def forget(self, topic: str) -> None:
        """Remove all offsets and deliveries in a topic."""
        remaining = [delivery for delivery in self.deliveries if delivery[0].topic != topic]
        self.deliveries.clear()
        self.deliveries.extend(remaining)
        offsets: list[dict[TopicPartition, Any]] = [self.committed]
        for instance in self.instances.values():
            offsets += [instance.positions, instance.starts, instance.delivered]
        for positions in offsets:
            for tp in [tp for tp in positions if tp.topic == topic]:
                del positions[tp]

    def described(self, topics: Mapping[str, Topic]) -> GroupDescription:
        members = found_members(instance.view() for _, instance in sorted(self.instances.items()))
        starts: dict[TopicPartition, int] = {}
        read = set(self.committed)
        for member in self.members():
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
            behind = self.committed.get(tp, starts.get(tp, log.start))
            lag[tp] = max(0, log.end - max(behind, log.start))
        return GroupDescription(
            self.name,
            self.state,
            self.generation,
            members,
            {member.name: list(member.assignment) for member in self.members()},
            dict(sorted(self.committed.items())),
            {tp: at for member in members for tp, at in member.position.items()},
            lag,
        )

    def copy(self, clock: Timekeeper) -> ConsumerGroup:
        """Return an independent copy without timers, in which no consume call is in progress."""
        same = copy(self)
        same.instances, same.timers = {}, {}
        same.committed, same.deliveries = dict(self.committed), self.deliveries.copy()
        for name, instance in self.instances.items():
            same.instances[name] = member = copy(instance)
            member.group, member.signal = same, clock.signal()
            member.assignment = instance.assignment.copy()
            member.positions = instance.positions.copy()
            member.starts = instance.starts.copy()
            member.delivered = instance.delivered.copy()
            member.consuming, member.holder, member.timers = 0, None, {}
        return same


class GroupCopy(NamedTuple):
    """A copy of a group, with the remaining microseconds of its and its instances' timers."""

    group: ConsumerGroup
    own_timers: dict[TimerKind, int]
    timers: dict[str, dict[TimerKind, int]]


def cancel(owner: Instance | ConsumerGroup, *kinds: TimerKind) -> None:
    """Cancel the timers of these kinds, or all timers, of an instance or of a group."""
    for kind in kinds or list(owner.timers):
        timer = owner.timers.pop(kind, None)
        if timer is not None:
            timer.cancel()


def by_topic(assignment: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in assignment:
        topics.setdefault(topic, []).append(partition)
    return topics


def partitions_text(assignment: Iterable[TopicPartition]) -> str:
    topics = by_topic(assignment)
    return " ".join(f"{topic}{partitions}" for topic, partitions in topics.items()) or "nothing"


def commit_event(
    kind: EventKind, group: str, by: str, offsets: Iterable[tuple[str, int, int]]
) -> tuple[str, dict[str, Any]]:
    """Return the description and the data of the event of a commit ``by`` an instance."""
    stored = [tuple(offset) for offset in offsets]
    changed = ", ".join(f"{topic}-{partition}={at}" for topic, partition, at in stored)
    ending = " automatically" if kind == "auto commit" else ""
    data = {"group": group, "instance": by, "offsets": stored}
    return f"{by} of {group} committed {changed}{ending}", data


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


GroupListener = Callable[..., object]
"""Called with the kind of an event, a description, the time in microseconds, what caused the event, and
details; returns the recorded event.
"""


class GroupEvent(NamedTuple):
    """An event that is recorded when the lock is released."""

    kind: EventKind
    text: str
    at_us: int
    caused_by: object
    """The request, or an earlier event, that caused this one; None if it is neither."""
    data: dict[str, Any]


class BrokerState:
    """The topics and groups by name. All methods expect that ``with state, state.lock:`` locks them.

    When the lock has been released, the signals in ``woken`` are notified, and ``listener`` is called
    with the events recorded since it was last called.
    """

    def __init__(self, settings: BrokerConfig, clock: Timekeeper) -> None:
        self.settings = settings
        self.clock = clock
        self.listener: GroupListener | None = None
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, ConsumerGroup] = {}
        self.woken: set[Signal] = set()
        self._times_us: dict[int, int] = {}
        """The time of the operation that each thread makes, by the thread's ID."""
        self._events: list[GroupEvent] = []
        self.lock = threading.Lock()
        """A lock that is taken and released by code written in C. A signal's handler can raise in
        ``__enter__`` and ``__exit__`` below, but then only delays what they do.
        """

    def __enter__(self) -> None:
        self._times_us.pop(threading.get_ident(), None)

    def __exit__(self, *error: object) -> None:
        self._times_us.pop(threading.get_ident(), None)
        if not self.woken and not self._events:
            return
        with self.lock:
            woken, self.woken = self.woken, set()
            events, self._events = self._events, []
        try:
            if self.listener is not None:
                recorded: dict[int, object] = {}
                for event in events:
                    cause = recorded.get(id(event.caused_by), event.caused_by)
                    recorded[id(event)] = self.listener(
                        event.kind, event.text, at_us=event.at_us, caused_by=cause, **event.data
                    )
        finally:
            for signal in woken:
                signal.notify()

    @property
    def now_us(self) -> int:
        """The time of the operation: the clock's when it is first read while the state is locked, or
        in a timer's callback, which sets it, the time at which the timer was due.
        """
        thread = threading.get_ident()
        now_us = self._times_us.get(thread)
        if now_us is None:
            now_us = self._times_us[thread] = self.clock.now_us()
        return now_us

    @now_us.setter
    def now_us(self, now_us: int) -> None:
        self._times_us[threading.get_ident()] = now_us

    def topic(self, name: str) -> Topic:
        """Return a topic without expired records; raise ``BrokerError`` if it is unknown."""
        topic = self.topics.get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self.topics))
        topic.retain(self.now_us // 1000)
        return topic

    def partition(self, name: str, partition: int) -> PartitionLog:
        topic = self.topic(name)
        if not 0 <= partition < len(topic.logs):
            raise errors.unknown_partition(name, partition, len(topic.logs))
        return topic.logs[partition]

    def log(self, tp: TopicPartition) -> PartitionLog:
        return self.topics[tp.topic].logs[tp.partition]

    def create_group(self, name: str) -> ConsumerGroup:
        """Return a consumer group, which is created if it does not exist."""
        if name not in self.groups:
            self.groups[name] = ConsumerGroup(name)
        return self.groups[name]

    def find_instance(self, group_name: str, name: str) -> Instance | None:
        """Return an instance, which may have been closed or may have crashed, or None."""
        group = self.groups.get(group_name)
        return None if group is None else group.instances.get(name)

    def instance(self, group_name: str, name: str, noun: str = "live instance") -> Instance:
        """Return an instance that is live, or a member if ``noun`` is ``member``.

        Raises ``BrokerError`` if it or its group is unknown.
        """
        fits = attrgetter("member" if noun == "member" else "live")
        instance = self.find_instance(group_name, name)
        if instance is None or not fits(instance):
            instances = {
                group.name: [
                    instance.name for instance in group.instances.values() if fits(instance)
                ]
                for group in self.groups.values()
            }
            raise errors.unknown_instance(group_name, name, instances, noun)
        return instance

    def group(self, name: str) -> ConsumerGroup:
        group = self.groups.get(name)
        if group is None:
            raise errors.unknown_group(name, self.groups)
        return group

    def time_left(self, owner: Instance | ConsumerGroup) -> dict[TimerKind, int]:
        """Return the remaining microseconds of the timers of an instance or a group."""
        return {kind: timer.due_us - self.now_us for kind, timer in owner.timers.items()}

    def add_event(
        self, kind: EventKind, text: str, *, caused_by: object = None, **data: Any
    ) -> GroupEvent:
        """Record an event of a group when the lock is released."""
        event = GroupEvent(kind, text, self.now_us, caused_by, data)
        self._events.append(event)
        return event


T = TypeVar("T")
_STATE: tuple[Lane, ...] = ("state",)
_EARLIER: Any = object()
"""Result of polling if a timer has been started that is due before the next known change."""


class Waits:
    """The waiting calls, with their signals. Calls for one instance share a signal.

    A call that began in an earlier ``epoch`` returns an empty result.
    """

    def __init__(self) -> None:
        self.waiting: list[Signal] = []
        self.epoch = 0

    def interrupt(self) -> None:
        """Make every waiting call return an empty result immediately."""
        self.epoch += 1
        for signal in list(self.waiting):
            signal.notify()


class ClockWaits(Waits):
    """Calls that wait on the fake clock."""

    def __init__(self, clock: Timekeeper) -> None:
        super().__init__()
        self._clock = clock
        self._closed = False

    def wait(self, signal: Signal, poll: Callable[[], T | None], timeout_ms: int) -> T | None:
        """Call ``poll`` after each notification until it returns a result, or until the timeout."""
        clock = self._clock
        until = deadline = clock.now_us() + timeout_ms * 1000

        def look() -> T | None:
            result = poll()
            return _EARLIER if result is None and self._next_change(deadline) < until else result

        self.waiting.append(signal)
        try:
            while not self._closed:
                until = self._next_change(deadline)
                result = clock.wait(signal, look, until)
                if result is _EARLIER:
                    continue
                if result is not None or until == deadline or clock.now_us() < until:
                    return result
                # With a running clock, there may be no other thread that fires a timer of a group.
                clock.settle()
            return None
        finally:
            self.waiting.remove(signal)

    def _next_change(self, deadline: int) -> int:
        due = None if self._clock.is_moving else self._clock.next_due_us(_STATE)
        return deadline if due is None else min(due, deadline)

    def close(self) -> None:
        """Make current and future waiting calls return immediately."""
        self._closed = True
        self.interrupt()
