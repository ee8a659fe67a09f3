"""Consumer groups and their instances, as data. Other modules contain the rules.

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

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ...core.timekeeper import Timekeeper
from ...core.timers import Signal, Timer
from ..model import ConsumerConfig, TopicPartition

InstanceState = Literal["joining", "active", "closed", "crashed", "expired", "removed"]
GroupState = Literal["Empty", "PreparingRebalance", "Stable", "Dead"]
TimerKind = Literal["auto commit", "idle close", "session", "rebalance", "offset retention"]
"""The kinds of timers: the first three belong to an instance, the others to a group."""
LIVE = ("joining", "active", "expired")
NO_CAUSE = ("", "")
# Maximum number of deliveries that a group remembers. Tests inspect far fewer, but a load test
# delivers without end.
_REMEMBERED_DELIVERIES = 10_000


@dataclass(slots=True, eq=False)
class Instance:
    """A consumer instance.

    ``positions`` contains the next offset to deliver for each partition (None if the reset policy
    is ``none`` and there is no offset to start from), ``delivered`` the next offset to commit.
    """

    group: ConsumerGroup = field(repr=False)
    name: str
    config: ConsumerConfig
    topics: tuple[str, ...]
    signal: Signal
    since_us: int
    state: InstanceState = "joining"
    assignment: list[TopicPartition] = field(default_factory=list)
    positions: dict[TopicPartition, int | None] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    delivered: dict[TopicPartition, int] = field(default_factory=dict)
    turn: int = 0
    """Number of responses with records. It selects the first partition in the next response."""
    epoch: int = 0
    """Incremented when partitions are revoked, so that long polls that started earlier end."""
    consuming: int = 0
    """Number of consume calls in progress."""
    holder: object | None = None
    """The consume call that may proceed. Other calls on the same instance wait."""
    timers: dict[TimerKind, Timer] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether the REST server still has a consumer for the instance."""
        return self.state in LIVE

    @property
    def member(self) -> bool:
        """Whether the group still includes the instance."""
        return self.state not in ("expired", "removed")

    def __str__(self) -> str:
        return f"{self.group.name}/{self.name}"


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A consumer group. ``generation`` counts its completed rebalances."""

    name: str
    generation: int = 0
    state: GroupState = "Empty"
    instances: dict[str, Instance] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    deliveries: deque[tuple[TopicPartition, int, int]] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED_DELIVERIES)
    )
    """For each delivery: partition, offset of the first record, and offset after the last record."""
    reason: str = ""
    """Why the latest rebalance was started, for people."""
    cause: tuple[str, str] = NO_CAUSE
    """The kind of event and the instance that caused the latest rebalance, or ``NO_CAUSE``."""
    timers: dict[TimerKind, Timer] = field(default_factory=dict)
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
        kept = [delivery for delivery in self.deliveries if delivery[0].topic != topic]
        self.deliveries.clear()
        self.deliveries.extend(kept)
        offsets: list[dict[TopicPartition, Any]] = [self.committed]
        for one in self.instances.values():
            offsets += [one.positions, one.starts, one.delivered]
        for known in offsets:
            for tp in [tp for tp in known if tp.topic == topic]:
                del known[tp]

    def copy(self, clock: Timekeeper) -> ConsumerGroup:
        """Return an independent copy without timers, in which no consume call is in progress."""
        copy = replace(
            self,
            instances={},
            committed=dict(self.committed),
            deliveries=self.deliveries.copy(),
            timers={},
        )
        for name, instance in self.instances.items():
            copy.instances[name] = replace(
                instance,
                group=copy,
                signal=clock.signal(),
                assignment=list(instance.assignment),
                positions=dict(instance.positions),
                starts=dict(instance.starts),
                delivered=dict(instance.delivered),
                consuming=0,
                holder=None,
                timers={},
            )
        return copy


class GroupCopy(NamedTuple):
    """A copy of a group, with the remaining microseconds of its own timers and of its instances'
    timers, by instance and kind.
    """

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
