"""Consumer groups: members, generations, rebalances, positions, commits and their timers.

An *instance* is what the REST server knows under a group and an instance name; as long as its group
knows it too it is a *member*. Instances are static members (the vendor maps their name to Kafka's
``group.instance.id``), so one that vanishes keeps its partitions until its session expires.

Instance states::

    joining -> active -> closed   (idled; still a member until its session expires)
                      -> crashed  (vanished without a commit; likewise)
                      -> expired  (known to the server, no longer a member; its next consume rejoins)

Nothing here locks or waits: the engine calls with its lock held, and carries out what was collected
in ``woken`` (signals to notify) and ``happened`` (events for the journal) after letting it go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..kernel.clock import Clock, Signal, Timer
from ..kernel.ids import RandomStream
from . import errors
from .assignment import range_assignment
from .log import PartitionLog, Topic
from .model import (
    ConsumerConfig,
    GroupAssignments,
    Record,
    Settings,
    TopicPartition,
    TopicPartitionOffset,
    distinct,
)

__all__ = ["Coordinator", "Group", "Happening", "Instance"]

InstanceState = Literal["joining", "active", "closed", "crashed", "expired", "removed"]
GroupState = Literal["Empty", "PreparingRebalance", "Stable", "Dead"]
LIVE = ("joining", "active", "expired")
# Enough for any test that looks back; a bound, because a load test may deliver for ever.
_REMEMBERED_DELIVERIES = 10_000


@dataclass(slots=True, eq=False)
class Instance:
    """A consumer instance. Offsets in ``positions`` are the next to deliver (None: the reset policy
    is ``none`` and there is nothing to start from), those in ``delivered`` the next to commit."""

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
    """How many answers with records it got; rotates which partition goes first."""
    epoch: int = 0
    """Grows whenever its partitions are taken away; ends the long polls that began before."""
    consuming: int = 0
    holder: object | None = None
    """The one consume call that may take records now."""
    timers: dict[str, Timer] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether the REST server has a consumer for it."""
        return self.state in LIVE

    @property
    def member(self) -> bool:
        """Whether the group counts it."""
        return self.state not in ("expired", "removed")


@dataclass(slots=True, eq=False)
class Group:
    """A consumer group; ``generation`` counts its completed rebalances."""

    name: str
    generation: int = 0
    state: GroupState = "Empty"
    instances: dict[str, Instance] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    deliveries: deque[tuple[TopicPartition, int, int]] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED_DELIVERIES)
    )
    """Partition, first offset and offset after the last, in the order of delivery."""
    reason: str = ""
    timer: Timer | None = None
    """Completes the rebalance under way, or forgets the empty group."""

    def members(self) -> list[Instance]:
        """The members by name."""
        return [
            self.instances[name] for name in sorted(self.instances) if self.instances[name].member
        ]


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth a line in the timeline of a failing test."""

    kind: str
    text: str
    at_us: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupCopy:
    """A group at one moment: ``timers`` has microseconds left by instance and kind, ``remaining``
    those of the group's own timer."""

    group: Group
    timers: dict[str, dict[str, int]]
    remaining: int | None


class Coordinator:
    """All groups of one broker. ``call_at`` plans a callback that will run with the engine's lock."""

    def __init__(
        self,
        topics: dict[str, Topic],
        settings: Settings,
        clock: Clock,
        stream: RandomStream,
        call_at: Callable[[int, Callable[[int], None], str], Timer],
    ) -> None:
        self.topics = topics
        self._settings = settings
        self._clock = clock
        self._stream = stream
        self._call_at = call_at
        self.random_interleave = settings.interleave == "random"
        self.groups: dict[str, Group] = {}
        self.woken: set[Signal] = set()
        self.happened: list[Happening] = []

    # -- consuming -------------------------------------------------------------------------------

    def enter(
        self,
        group_name: str,
        name: str,
        topics: Sequence[str],
        headers: Mapping[str, str],
        now: int,
    ) -> tuple[Group, Instance]:
        """The instance that a consume request is about: created, taken over or rejoined if need be.

        Raises ``BrokerError`` for unknown topics, bad configuration headers, and too many instances;
        then nothing has changed.
        """
        wanted = distinct(topics)
        for topic in wanted:
            self.topic(topic, now)
        group = self.groups.get(group_name)
        instance = group.instances.get(name) if group is not None else None
        if group is None or instance is None or not instance.live:
            return self._create(group_name, name, wanted, headers, now)
        if instance.state == "expired":
            instance.state = "joining"
            instance.topics = wanted
            self._rebalance(group, f"{name} rejoined", now)
        elif wanted != instance.topics and self._settings.resubscribe == "rebalance":
            instance.topics = wanted
            self._rebalance(group, f"{name} subscribed to {', '.join(wanted)}", now)
        return group, instance

    def _create(
        self,
        group_name: str,
        name: str,
        topics: tuple[str, ...],
        headers: Mapping[str, str],
        now: int,
    ) -> tuple[Group, Instance]:
        config = ConsumerConfig.read(headers, session_timeout_ms=self._settings.session_timeout_ms)
        self._check_instance_limit(group_name)
        group = self.groups.get(group_name)
        if group is None:
            group = self.groups[group_name] = Group(group_name)
        before = group.instances.get(name)
        instance = Instance(name, config, topics, self._clock.signal(), now)
        group.instances[name] = instance
        if before is not None and before.topics == topics:
            # A static member that returns within its session: no rebalance, but a new consumer,
            # which starts again from what was committed.
            _cancel_timers(before)
            instance.assignment = before.assignment
            if group.state == "Stable":
                self._activate(group, instance, now)
            self._tell(
                "return",
                f"{name} returned to {group.name} within its session and keeps "
                f"{_names(instance.assignment)}",
                now,
                group=group.name,
                instance=name,
            )
        else:
            if before is not None:
                _cancel_timers(before)
            self._tell(
                "join",
                f"{name} joined {group.name}, subscribed to {', '.join(topics)}",
                now,
                group=group.name,
                instance=name,
                topics=list(topics),
            )
            self._rebalance(group, f"{name} joined", now)
        return group, instance

    def _check_instance_limit(self, group_name: str) -> None:
        scope = self._settings.instance_limit
        if scope is None:
            return
        active = sum(
            instance.live
            for group in self.groups.values()
            if scope == "cluster" or group.name == group_name
            for instance in group.instances.values()
        )
        partitions = sum(len(topic.logs) for topic in self.topics.values())
        if active + 1 > partitions:
            raise errors.too_many_instances(active, partitions)

    def take(self, group: Group, instance: Instance, now: int) -> list[Record] | None:
        """The next records for an instance, or None when there are none yet.

        Raises ``BrokerError`` where the reset policy is ``none`` and a partition has no position.
        """
        if instance.state != "active" or group.state != "Stable":
            return None
        assignment = instance.assignment
        for tp in assignment:
            self._check_position(group, instance, tp, now)
        first = instance.turn % len(assignment) if assignment else 0
        left = self._settings.max_poll_records
        parts: list[list[Record]] = []
        for tp in assignment[first:] + assignment[:first]:
            position = instance.positions[tp]
            log = self._log(tp)
            if position is None or position >= log.end:
                continue
            records = log.read(position, left, self._settings.max_partition_bytes)
            after = position + len(records)
            instance.positions[tp] = instance.delivered[tp] = after
            _remember(group, tp, position, after)
            parts.append(records)
            left -= len(records)
            if left <= 0:
                break
        if not parts:
            return None
        instance.turn += 1
        self._plan_auto_commit(group, instance, now)
        return self._merged(parts)

    def finish(self, group: Group, instance: Instance, turn: object, now: int) -> None:
        """A consume call is over: the next one may take its turn, and idling begins."""
        instance.consuming -= 1
        if instance.holder is turn:
            instance.holder = None
            if instance.consuming:
                self.woken.add(instance.signal)
        if instance.consuming or not instance.live:
            return
        if self._settings.idle_close_ms is not None:
            self._arm(
                group,
                instance,
                "idle close",
                now + self._settings.idle_close_ms * 1000,
                lambda at: self._close_idle(group, instance, at),
            )
        if self._settings.heartbeats == "consume" and instance.member:
            self._arm_session(group, instance, now)

    def _merged(self, parts: list[list[Record]]) -> list[Record]:
        if len(parts) == 1:
            return parts[0]
        if not self.random_interleave:
            return [record for part in parts for record in part]
        # A shuffled list of part numbers keeps each part's own order.
        numbers = [number for number, part in enumerate(parts) for _ in part]
        self._stream.shuffle(numbers)
        sources = [iter(part) for part in parts]
        return [next(sources[number]) for number in numbers]

    # -- positions -------------------------------------------------------------------------------

    def _check_position(
        self, group: Group, instance: Instance, tp: TopicPartition, now: int
    ) -> None:
        log = self.topic(tp.topic, now).logs[tp.partition]
        position = instance.positions.get(tp)
        if position is None:
            position = self._start_position(group, instance, tp)
            if position is None:
                committed = group.committed.get(tp)
                if committed is None:
                    raise errors.no_offset(*tp)
                raise errors.out_of_range(*tp, committed, log.start, log.end)
            instance.positions[tp] = position
        elif not log.start <= position <= log.end:
            reset = self._reset_position(instance, log)
            if reset is None:
                raise errors.out_of_range(*tp, position, log.start, log.end)
            instance.positions[tp] = reset
            self._tell(
                "reset",
                f"{instance.name} of {group.name} was at {position} of {tp.topic}-{tp.partition}, "
                f"outside {log.start}..{log.end}, and was reset to {reset}",
                now,
                group=group.name,
                instance=instance.name,
            )

    def _start_position(self, group: Group, instance: Instance, tp: TopicPartition) -> int | None:
        log = self._log(tp)
        committed = group.committed.get(tp)
        if committed is not None and log.start <= committed <= log.end:
            return committed
        return self._reset_position(instance, log)

    @staticmethod
    def _reset_position(instance: Instance, log: PartitionLog) -> int | None:
        reset = instance.config.auto_offset_reset
        return {"earliest": log.start, "latest": log.end}.get(reset)

    # -- rebalancing -----------------------------------------------------------------------------

    def rebalance(self, group: Group, reason: str, now: int) -> None:
        """Take all partitions away and hand them out again, as after any change of membership."""
        self._rebalance(group, reason, now)

    def grew(self, topic: str, now: int) -> None:
        """A topic has more partitions: its subscribers rebalance."""
        for group in list(self.groups.values()):
            if any(topic in member.topics for member in group.members()):
                self._rebalance(group, f"{topic} has more partitions", now)

    def _rebalance(self, group: Group, reason: str, now: int) -> None:
        members = group.members()
        for instance in group.instances.values():
            self._revoke(instance)
        group.reason = reason
        if not members:
            self._empty(group, now)
        elif self._settings.join_delay_ms:
            if group.state != "PreparingRebalance" or group.timer is None:
                self._plan_completion(group, now + self._settings.join_delay_ms * 1000)
            group.state = "PreparingRebalance"
            self._tell(
                "rebalance started",
                f"{group.name} rebalances: {reason}; all partitions are revoked",
                now,
                group=group.name,
                reason=reason,
            )
        else:
            self._complete(group, now)

    def _complete(self, group: Group, at: int) -> None:
        self._set_timer(group, None)
        members = group.members()
        group.generation += 1
        group.state = "Stable"
        shares = range_assignment(
            {member.name: member.topics for member in members},
            {name: len(topic.logs) for name, topic in self.topics.items()},
        )
        for member in members:
            member.assignment = shares[member.name]
            if member.live:
                self._activate(group, member, at)
        text = "; ".join(f"{name}: {_names(shares[name])}" for name in shares)
        self._tell(
            "rebalance",
            f"{group.name} generation {group.generation} ({group.reason}): {text}",
            at,
            group=group.name,
            generation=group.generation,
            reason=group.reason,
            assignment={name: [tuple(tp) for tp in share] for name, share in shares.items()},
        )

    def _activate(self, group: Group, instance: Instance, now: int) -> None:
        instance.state = "active"
        for tp in instance.assignment:
            self.topic(tp.topic, now)
            position = self._start_position(group, instance, tp)
            instance.positions[tp] = position
            if position is not None:
                instance.starts[tp] = position
            self._log(tp).watchers.add(instance.signal)
        self.woken.add(instance.signal)

    def _revoke(self, instance: Instance) -> None:
        self._release(instance)
        if instance.state != "joining":
            instance.epoch += 1
        instance.assignment = []
        self.woken.add(instance.signal)

    def _release(self, instance: Instance) -> None:
        for tp in instance.assignment:
            self._log(tp).watchers.discard(instance.signal)
        instance.positions.clear()
        instance.starts.clear()
        instance.delivered.clear()
        _cancel(instance, "auto commit")

    def _empty(self, group: Group, now: int) -> None:
        group.generation += 1
        group.state = "Empty"
        self._tell(
            "rebalance",
            f"{group.name} generation {group.generation} ({group.reason}): no members",
            now,
            group=group.name,
            generation=group.generation,
            reason=group.reason,
            assignment={},
        )
        self._retain_offsets(group, now)

    def _retain_offsets(self, group: Group, now: int) -> None:
        retention = self._settings.offset_retention_ms
        if retention is None:
            self._set_timer(group, None)
        else:
            self._plan_forgetting(group, now + retention * 1000)

    def _plan_completion(self, group: Group, due: int) -> None:
        self._set_timer(group, due, lambda at: self._complete(group, at), "rebalance")

    def _plan_forgetting(self, group: Group, due: int) -> None:
        self._set_timer(group, due, lambda at: self._forget(group, at), "offset retention")

    def _forget(self, group: Group, at: int) -> None:
        group.state = "Dead"
        for instance in group.instances.values():
            _cancel_timers(instance)
        self.groups.pop(group.name, None)
        self._tell(
            "dead", f"{group.name} and its committed offsets are forgotten", at, group=group.name
        )

    # -- leaving ---------------------------------------------------------------------------------

    def instance(self, group_name: str, name: str) -> tuple[Group, Instance]:
        """A live instance; raises ``BrokerError`` for one the server does not have."""
        group = self.groups.get(group_name)
        instance = group.instances.get(name) if group is not None else None
        if group is None or instance is None or not instance.live:
            raise errors.unknown_instance(group_name, name)
        return group, instance

    def delete(self, group_name: str, name: str, now: int) -> None:
        """Stop an instance cleanly and take it out of its group."""
        group, instance = self.instance(group_name, name)
        self._commit_at_close(group, instance, now)
        if not self._settings.delete_leaves and instance.member:
            self._vanish(group, instance, "closed", f"{name} of {group.name} was deleted", now)
            return
        self._tell(
            "leave",
            f"{name} was deleted and left {group.name}",
            now,
            group=group.name,
            instance=name,
        )
        self._remove(group, instance, f"{name} left", now)

    def crash(self, group_name: str, name: str, now: int) -> None:
        """An instance vanishes: nothing is committed, and its session runs on without it."""
        group, instance = self.instance(group_name, name)
        self._vanish(group, instance, "crashed", f"{name} of {group.name} crashed", now)

    def expire(self, group_name: str, name: str, now: int) -> None:
        """The session of an instance ends now, whether its consumer lives or has vanished."""
        group = self.groups.get(group_name)
        instance = group.instances.get(name) if group is not None else None
        if group is None or instance is None or not instance.member:
            raise errors.unknown_instance(group_name, name)
        self._session_over(group, instance, now)

    def _close_idle(self, group: Group, instance: Instance, at: int) -> None:
        if instance.consuming or not instance.live:
            return
        self._commit_at_close(group, instance, at)
        self._vanish(
            group, instance, "closed", f"{instance.name} of {group.name} idled and was closed", at
        )

    def _vanish(
        self, group: Group, instance: Instance, state: InstanceState, text: str, now: int
    ) -> None:
        was_member = instance.member
        _cancel_timers(instance)
        self._release(instance)
        instance.epoch += 1
        self.woken.add(instance.signal)
        kind = "crash" if state == "crashed" else "close"
        if not was_member:
            instance.state = "removed"
            del group.instances[instance.name]
            self._tell(kind, text, now, group=group.name, instance=instance.name)
            return
        instance.state = state
        self._arm_session(group, instance, now)
        self._tell(
            kind,
            f"{text}; {_names(instance.assignment)} stay its own for "
            f"{instance.config.session_timeout_ms} ms",
            now,
            group=group.name,
            instance=instance.name,
        )

    def _session_over(self, group: Group, instance: Instance, at: int) -> None:
        self._tell(
            "expire",
            f"the session of {instance.name} in {group.name} expired",
            at,
            group=group.name,
            instance=instance.name,
        )
        reason = f"the session of {instance.name} expired"
        if not instance.live:
            self._remove(group, instance, reason, at)
            return
        self._revoke(instance)
        instance.epoch += 1
        instance.state = "expired"
        _cancel(instance, "session")
        self._rebalance(group, reason, at)

    def _remove(self, group: Group, instance: Instance, reason: str, now: int) -> None:
        was_member = instance.member
        _cancel_timers(instance)
        self._revoke(instance)
        instance.epoch += 1
        instance.state = "removed"
        del group.instances[instance.name]
        if was_member:
            self._rebalance(group, reason, now)

    # -- committing ------------------------------------------------------------------------------

    def commit(
        self, group_name: str, name: str, offsets: Sequence[TopicPartitionOffset], now: int
    ) -> None:
        """Store offsets verbatim, or with none given what was last delivered.

        Raises ``BrokerError`` where an offset names no partition or one of somebody else, for unknown
        instances and during a rebalance; then nothing has been stored.
        """
        for topic, partition, _ in offsets:
            self.partition(topic, partition, now)
        try:
            group, instance = self.instance(group_name, name)
        except errors.BrokerError:
            if self._settings.commit_by_unknown == "error":
                raise
            self.store(group_name, offsets, f"{name} (unknown)", now)
            return
        if instance.state == "expired":
            raise errors.unknown_member(group.name, name)
        if instance.state != "joining":
            if group.state != "Stable":
                raise errors.rebalance_in_progress(group.name)
            own = set(instance.assignment)
            for topic, partition, _ in offsets:
                if (topic, partition) not in own:
                    raise errors.not_assigned(group.name, name, topic, partition)
        self._store(
            group,
            offsets or [TopicPartitionOffset(*tp, at) for tp, at in instance.delivered.items()],
            "commit",
            name,
            now,
        )

    def store(
        self,
        group_name: str,
        offsets: Sequence[TopicPartitionOffset],
        by: str,
        now: int,
        kind: str = "commit",
    ) -> None:
        """Store offsets for a group whoever owns the partitions; creates the group."""
        group = self.groups.get(group_name)
        if group is None:
            group = self.groups[group_name] = Group(group_name)
        if group.state == "Empty":
            self._retain_offsets(group, now)
        self._store(group, offsets, kind, by, now)

    def committed(
        self, group_name: str, partitions: Sequence[TopicPartition], now: int
    ) -> list[TopicPartitionOffset]:
        """Committed offsets in request order, ``never_committed`` where there is none."""
        for topic, partition in partitions:
            self.partition(topic, partition, now)
        group = self.groups.get(group_name)
        if group is None and self._settings.unknown_group == "error":
            raise errors.unknown_group(group_name)
        stored = group.committed if group is not None else {}
        never = self._settings.never_committed
        return [TopicPartitionOffset(*tp, stored.get(tp, never)) for tp in partitions]

    def _plan_auto_commit(self, group: Group, instance: Instance, now: int) -> None:
        config = instance.config
        if not config.auto_commit or "auto commit" in instance.timers:
            return
        # Ticks count from the instance's creation; one without anything new would change nothing,
        # so only the next one is planned, and only after a delivery.
        interval = config.auto_commit_interval_ms * 1000
        due = instance.since_us + ((now - instance.since_us) // interval + 1) * interval
        self._arm(group, instance, "auto commit", due, lambda at: self._tick(group, instance, at))

    def _tick(self, group: Group, instance: Instance, at: int) -> None:
        _cancel(instance, "auto commit")
        self._auto_commit(group, instance, at)

    def _auto_commit(self, group: Group, instance: Instance, at: int) -> None:
        offsets = [TopicPartitionOffset(*tp, offset) for tp, offset in instance.delivered.items()]
        self._store(group, offsets, "auto commit", instance.name, at)

    def _commit_at_close(self, group: Group, instance: Instance, at: int) -> None:
        if instance.config.auto_commit and instance.state == "active":
            self._auto_commit(group, instance, at)

    def _store(
        self, group: Group, offsets: Iterable[TopicPartitionOffset], kind: str, by: str, at: int
    ) -> None:
        stored = [(topic, partition, offset) for topic, partition, offset in offsets]
        for topic, partition, offset in stored:
            group.committed[TopicPartition(topic, partition)] = offset
        if stored:
            changed = ", ".join(
                f"{topic}-{partition}={offset}" for topic, partition, offset in stored
            )
            self._tell(
                kind,
                f"{by} of {group.name} committed {changed}"
                + (" automatically" if kind == "auto commit" else ""),
                at,
                group=group.name,
                instance=by,
                offsets=stored,
            )

    # -- on command ------------------------------------------------------------------------------

    def redeliver(
        self, group: Group, last: int, only: Callable[[TopicPartition], bool], now: int
    ) -> list[TopicPartitionOffset]:
        """Put a group back before its last deliveries, committed offsets included.

        Where to, for each partition concerned; records that are gone from the log stay gone.
        """
        back: dict[TopicPartition, int] = {}
        left = last
        for tp, first, after in reversed(group.deliveries):
            if left <= 0:
                break
            if only(tp):
                # A partition delivered twice was put back in between; the earlier offset counts.
                offset = max(first, after - left)
                left -= after - offset
                back[tp] = min(offset, back.get(tp, offset))
        moved = []
        for tp, offset in sorted(back.items()):
            offset = max(offset, self._log(tp).start)
            moved.append(TopicPartitionOffset(*tp, offset))
            if group.committed.get(tp, -1) > offset:
                group.committed[tp] = offset
            for instance in group.members():
                if tp in instance.positions:
                    instance.positions[tp] = offset
                    instance.delivered.pop(tp, None)
                    self.woken.add(instance.signal)
        self._tell(
            "redeliver",
            f"{group.name} gets its last {last} record(s) again, from "
            + (", ".join(f"{t}-{p}={o}" for t, p, o in moved) or "nowhere: none was delivered"),
            now,
            group=group.name,
        )
        return moved

    # -- looking ---------------------------------------------------------------------------------

    def assignments(self) -> list[GroupAssignments]:
        """Groups with live instances, and the partitions each one reads."""
        found = []
        for name in sorted(self.groups):
            instances = self.groups[name].instances
            live = {
                i: _by_topic(instances[i].assignment)
                for i in sorted(instances)
                if instances[i].live
            }
            if live:
                found.append(GroupAssignments(name, live))
        return found

    def topic(self, name: str, now: int) -> Topic:
        """A topic with its retention applied; raises ``BrokerError`` for an unknown one."""
        topic = self.topics.get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self.topics))
        topic.retain(now // 1000)
        return topic

    def partition(self, name: str, partition: int, now: int) -> PartitionLog:
        """A partition's log; raises ``BrokerError`` for an unknown topic or partition."""
        topic = self.topic(name, now)
        if not 0 <= partition < len(topic.logs):
            raise errors.unknown_partition(name, partition, len(topic.logs))
        return topic.logs[partition]

    def _log(self, tp: TopicPartition) -> PartitionLog:
        return self.topics[tp.topic].logs[tp.partition]

    # -- timers and events -----------------------------------------------------------------------

    def _arm_session(self, group: Group, instance: Instance, now: int) -> None:
        self._arm(
            group,
            instance,
            "session",
            now + instance.config.session_timeout_ms * 1000,
            lambda at: self._session_ran_out(group, instance, at),
        )

    def _session_ran_out(self, group: Group, instance: Instance, at: int) -> None:
        if not instance.consuming:
            self._session_over(group, instance, at)

    def _arm(
        self, group: Group, instance: Instance, kind: str, due: int, callback: Callable[[int], None]
    ) -> None:
        planned = instance.timers.get(kind)
        if planned is not None:
            if planned.due_us == due and not planned.cancelled:
                return
            planned.cancel()
        label = f"{kind} of {group.name}/{instance.name}"
        instance.timers[kind] = self._call_at(due, callback, label)
        self._touch(group)

    def _set_timer(
        self,
        group: Group,
        due: int | None,
        callback: Callable[[int], None] | None = None,
        kind: str = "",
    ) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if due is not None and callback is not None:
            group.timer = self._call_at(due, callback, f"{kind} of {group.name}")
            self._touch(group)

    def _touch(self, group: Group) -> None:
        # Whoever waits in the group may have to wake for the new timer.
        self.woken.update(i.signal for i in group.instances.values() if i.consuming)

    def _tell(self, kind: str, text: str, at: int, **data: Any) -> None:
        self.happened.append(Happening(kind, text, at, data))

    # -- copies ----------------------------------------------------------------------------------

    def copy_groups(self, now: int) -> list[GroupCopy]:
        """Independent copies of the groups, with each timer as what is left of its time."""
        copies = []
        for group in self.groups.values():
            left = {
                name: {kind: timer.due_us - now for kind, timer in instance.timers.items()}
                for name, instance in group.instances.items()
            }
            idle = self._settings.idle_close_ms
            if idle is not None:
                for name, instance in group.instances.items():
                    if instance.live:
                        left[name].setdefault("idle close", idle * 1000)
            remaining = None if group.timer is None else group.timer.due_us - now
            copies.append(GroupCopy(_copied(group, self._clock), left, remaining))
        return copies

    def restore_groups(
        self,
        copies: list[GroupCopy],
        now: int,
    ) -> None:
        """Put copies in place of the present groups, and plan their timers from now."""
        for group in self.groups.values():
            self._set_timer(group, None)
            for instance in group.instances.values():
                _cancel_timers(instance)
                self.woken.add(instance.signal)
        self.groups.clear()
        for copy in copies:
            group = self.groups[copy.group.name] = _copied(copy.group, self._clock)
            for name, timers in copy.timers.items():
                for kind, left in timers.items():
                    self._resume(group, group.instances[name], kind, now + left)
            for instance in group.instances.values():
                for tp in instance.positions:
                    self._log(tp).watchers.add(instance.signal)
            if copy.remaining is not None:
                if group.state == "PreparingRebalance":
                    self._plan_completion(group, now + copy.remaining)
                else:
                    self._plan_forgetting(group, now + copy.remaining)

    def _resume(self, group: Group, instance: Instance, kind: str, due: int) -> None:
        if kind == "idle close":
            self._arm(group, instance, kind, due, lambda at: self._close_idle(group, instance, at))
        elif kind == "session":
            self._arm(
                group, instance, kind, due, lambda at: self._session_ran_out(group, instance, at)
            )
        else:
            self._arm(group, instance, kind, due, lambda at: self._tick(group, instance, at))


def _copied(group: Group, clock: Clock) -> Group:
    copy = replace(
        group,
        instances={},
        committed=dict(group.committed),
        deliveries=group.deliveries.copy(),
        timer=None,
    )
    for name, instance in group.instances.items():
        copy.instances[name] = replace(
            instance,
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


def _cancel(instance: Instance, kind: str) -> None:
    timer = instance.timers.pop(kind, None)
    if timer is not None:
        timer.cancel()


def _cancel_timers(instance: Instance) -> None:
    for kind in list(instance.timers):
        _cancel(instance, kind)


def _remember(group: Group, tp: TopicPartition, first: int, after: int) -> None:
    deliveries = group.deliveries
    if deliveries and deliveries[-1][0] == tp and deliveries[-1][2] == first:
        first = deliveries.pop()[1]
    deliveries.append((tp, first, after))


def _by_topic(assignment: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in assignment:
        topics.setdefault(topic, []).append(partition)
    return topics


def _names(assignment: Iterable[TopicPartition]) -> str:
    topics = _by_topic(assignment)
    return " ".join(f"{topic}{partitions}" for topic, partitions in topics.items()) or "nothing"
