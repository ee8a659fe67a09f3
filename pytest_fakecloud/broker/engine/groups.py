"""Consumer groups of a broker in memory: consume requests, members and rebalances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ...core.ids import RandomStream
from .. import errors
from ..model import (
    Assignments,
    EventKind,
    GroupDescription,
    MemberView,
    Record,
    TopicPartition,
    TopicPartitionOffset,
    consumer_config,
    distinct_positions,
    found_members,
)
from .log import Topic
from .offsets import GroupOffsets
from .state import (
    NO_CAUSE,
    BrokerState,
    ClockWaits,
    ConsumerGroup,
    GroupCopy,
    Instance,
    InstanceState,
    TimerKind,
    by_topic,
    cancel,
    partitions_text,
)


class MemoryGroups:
    """Reads and commits with a group, and changes its members.

    Each call is atomic; of a consume request, each attempt to read. Private methods, and those for
    the engine's other parts, expect that the state is locked.
    """

    def __init__(self, state: BrokerState, waits: ClockWaits, stream: RandomStream) -> None:
        self._state = state
        self._waits = waits
        self._settings = state.settings
        self._offsets = GroupOffsets(state, stream)

    def _start_timer(self, owner: Instance | ConsumerGroup, kind: TimerKind, delay_us: int) -> None:
        """Start a timer of any kind, for example one that was running when a group was copied."""
        on_due: dict[TimerKind, Callable[[Any], None]] = {
            "auto commit": self._offsets.auto_commit,
            "idle close": self._close_idle,
            "offset retention": self._offsets.forget,
            "rebalance": self._complete,
            "session": self._session_ran_out,
        }
        self._state.start_timer(owner, kind, delay_us, on_due[kind])

    # -- consuming -------------------------------------------------------------------------------

    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        """Return the next records for an instance. The first call creates it, configured by
        ``headers``.

        Waits for the first record. Returns ``[]`` at the timeout, and earlier if the group
        rebalances, the instance is deleted, or the server closes. Concurrent calls for the same
        instance take turns.
        """
        turn = object()
        with self._state:
            member = self._enter(group, instance, topics, headers)
            member.consuming += 1
            seen = (self._waits.epoch, member.epoch)

        def poll() -> list[Record] | None:
            with self._state:
                return self._poll_member(member, turn, seen)

        try:
            found = poll()
            if found is None and timeout_ms:
                found = self._waits.wait(member.signal, poll, timeout_ms)
            return found or []
        finally:
            with self._state:
                self._finish(member, turn)

    def _enter(
        self, group_name: str, name: str, topics: Sequence[str], headers: Mapping[str, str]
    ) -> Instance:
        """Return the instance of a consume request, which is created or rejoins if necessary.

        Raises ``BrokerError`` for unknown topics, invalid headers, and too many instances.
        """
        wanted = tuple(sorted(set(topics)))
        for topic in wanted:
            self._state.topic(topic)
        instance = self._state.find_instance(group_name, name)
        if instance is None or not instance.live:
            return self._create(group_name, name, wanted, headers)
        if instance.state == "expired":
            # Do not set the state to "joining": a joining instance may commit to any partition, but
            # this instance's former partitions may belong to another instance now.
            instance.state = "active"
            instance.topics = wanted
            self._rebalance(instance.group, f"{name} rejoined")
        elif wanted != instance.topics:
            instance.topics = wanted
            reason = f"{name} subscribed to {', '.join(wanted)}"
            self._rebalance(instance.group, reason)
        return instance

    def _create(
        self, group_name: str, name: str, topics: tuple[str, ...], headers: Mapping[str, str]
    ) -> Instance:
        config = consumer_config(headers, session_timeout_ms=self._settings.session_timeout_ms)
        groups = self._state.groups.values()
        live = [one.group.name for group in groups for one in group.instances.values() if one.live]
        scope = self._settings.instance_limit
        check_instance_limit(scope, group_name, live, self._state.topics.values())
        group = self._state.create_group(group_name)
        before = group.instances.get(name)
        instance = Instance(
            group, name, config, topics, self._state.clock.signal(), self._state.now_us
        )
        if before is not None:
            cancel(before)
            instance.state = "active"
        group.instances[name] = instance
        if before is not None and before.topics == topics:
            self._return(instance, before)
        else:
            text = f"{name} joined {group.name}, subscribed to {', '.join(topics)}"
            self._add_event("join", text, instance, topics=list(topics))
            self._rebalance(group, f"{name} joined", ("join", name))
        return instance

    def _return(self, instance: Instance, before: Instance) -> None:
        """Give the partitions of a static member to its new instance, without a rebalance.

        Like a new consumer, though, the instance starts at the committed offsets.
        """
        instance.assignment = before.assignment
        if instance.group.state == "Stable":
            self._activate(instance)
        kept = partitions_text(instance.assignment)
        text = (
            f"{instance.name} returned to {instance.group.name} within its session and keeps {kept}"
        )
        self._add_event("return", text, instance)

    def _poll_member(
        self, member: Instance, turn: object, seen: tuple[int, int]
    ) -> list[Record] | None:
        if seen != (self._waits.epoch, member.epoch):
            return []
        if member.holder is not None and member.holder is not turn:
            return None
        member.holder = turn
        return self._offsets.take(member)

    def _finish(self, instance: Instance, turn: object) -> None:
        """End a consume call. The next waiting call proceeds; after the last, idle timers start."""
        instance.consuming -= 1
        if instance.holder is turn:
            instance.holder = None
            if instance.consuming:
                self._state.woken.add(instance.signal)
        if instance.consuming or not instance.live:
            return
        for kind, left in self._idle_timers(instance).items():
            self._start_timer(instance, kind, left)

    def _idle_timers(self, instance: Instance) -> dict[TimerKind, int]:
        """Return the delays in microseconds of the timers that start when an instance is idle."""
        if self._settings.idle_close_ms is None:
            return {}
        return {"idle close": self._settings.idle_close_ms * 1000}

    # -- committing -----------------------------------------------------------------------------------

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        wanted = distinct_positions(offsets)
        with self._state:
            self._offsets.commit(group, instance, wanted)

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        with self._state:
            return self._offsets.committed(group, partitions)

    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        with self._state:
            self._state.partition(offset.topic, offset.partition)
            self._offsets.set_by_test(group, offset)

    def redeliver(
        self, group: str, last: int, topic: str | None, partition: int | None
    ) -> list[Record]:
        """Deliver a group's last records again, and return them by partition."""
        with self._state:
            found = self._state.group(group)
            if topic is not None:
                self._state.partition(topic, partition or 0)
            return self._offsets.redeliver(
                found,
                last,
                lambda tp: topic in (None, tp.topic) and partition in (None, tp.partition),
            )

    # -- members --------------------------------------------------------------------------------------

    def join(
        self, group: str, instance: str, topics: Sequence[str], auto_offset_reset: str = "latest"
    ) -> None:
        """Add an instance to a group without consuming. It is closed when idle, like any other."""
        with self._state:
            headers = {"auto-offset-reset": auto_offset_reset}
            member = self._enter(group, instance, topics, headers)
            member.consuming += 1
            self._finish(member, None)

    def delete(self, group: str, instance: str) -> None:
        with self._state:
            leaving = self._state.instance(group, instance)
            self._offsets.before_losing(leaving)
            self._add_event("leave", f"{instance} was deleted and left {group}", leaving)
            self._remove(leaving, f"{instance} left", "leave")

    def crash(self, group: str, instance: str) -> None:
        with self._state:
            crashed = self._state.instance(group, instance)
            self._vanish(crashed, "crashed", f"{instance} of {group} crashed")

    def expire(self, group: str, instance: str) -> None:
        with self._state:
            expired = self._state.find_instance(group, instance)
            if expired is None or not expired.member:
                known = {
                    each.name: [one.name for one in each.members()]
                    for each in self._state.groups.values()
                }
                raise errors.unknown_instance(group, instance, known, "member")
            self._session_over(expired)

    def _close_idle(self, instance: Instance) -> None:
        if instance.consuming or not instance.live:
            return
        self._offsets.before_losing(instance)
        text = f"{instance.name} of {instance.group.name} was idle and was closed"
        self._vanish(instance, "closed", text, idle=True)

    def _vanish(
        self, instance: Instance, state: InstanceState, text: str, *, idle: bool = False
    ) -> None:
        """Close an instance, which stays a member until its session expires if it is one."""
        kind: EventKind = "crash" if state == "crashed" else "close"
        if not instance.member:
            self._remove(instance, text, kind)
            self._add_event(kind, text, instance)
            return
        cancel(instance)
        self._release(instance)
        instance.epoch += 1
        self._state.woken.add(instance.signal)
        instance.state = state
        left = instance.config.session_timeout_ms
        self._start_timer(instance, "session", left * 1000)
        until = self._state.now_us + left * 1000
        text = f"{text}; it keeps {partitions_text(instance.assignment)} for {left} ms"
        held = [list(one) for one in sorted(instance.assignment)]
        self._add_event(kind, text, instance, keeps=held, until_us=until, idle=idle)

    def _session_ran_out(self, instance: Instance) -> None:
        if not instance.consuming:
            self._session_over(instance)

    def _session_over(self, instance: Instance) -> None:
        text = f"the session of {instance.name} in {instance.group.name} expired"
        self._add_event("expire", text, instance)
        reason = f"the session of {instance.name} expired"
        if not instance.live:
            self._remove(instance, reason, "expire")
            return
        self._revoke(instance)
        instance.epoch += 1
        instance.state = "expired"
        cancel(instance, "session")
        self._rebalance(instance.group, reason, ("expire", instance.name))

    def _remove(self, instance: Instance, reason: str, kind: str) -> None:
        was_member = instance.member
        cancel(instance)
        self._revoke(instance)
        instance.epoch += 1
        instance.state = "removed"
        del instance.group.instances[instance.name]
        if was_member:
            self._rebalance(instance.group, reason, (kind, instance.name))

    def _add_event(self, kind: EventKind, text: str, instance: Instance, **data: Any) -> None:
        group = instance.group.name
        self._state.add_event(kind, text, group=group, instance=instance.name, **data)

    # -- rebalances -----------------------------------------------------------------------------------

    def rebalance(self, group: str) -> None:
        with self._state:
            self._rebalance(self._state.group(group), "the test asked for it")

    def rebalance_subscribers(self, topic: str, reason: str) -> None:
        """Rebalance the groups that subscribe to a topic, or have kept their subscription to it."""
        for group in list(self._state.groups.values()):
            if any(topic in member.topics for member in group.members()):
                self._rebalance(group, reason)

    def _rebalance(
        self, group: ConsumerGroup, reason: str, cause: tuple[str, str] = NO_CAUSE
    ) -> None:
        """Revoke all partitions of a group and assign them again.

        ``cause`` is the kind of event and the instance that caused the rebalance, and ``reason``
        describes them. Members with auto-commit first commit the records that they received.
        """
        members = group.members()
        for instance in group.instances.values():
            self._offsets.before_losing(instance)
            self._revoke(instance)
        group.reason, group.cause = reason, cause
        if not members:
            group.generation += 1
            group.state = "Empty"
            self._add_rebalance_event(group, {})
            self._offsets.retain(group)
        elif self._settings.join_delay_ms:
            if group.state != "PreparingRebalance" or not group.timers:
                cancel(group)
                delay_us = self._settings.join_delay_ms * 1000
                self._start_timer(group, "rebalance", delay_us)
            group.state = "PreparingRebalance"
            self._state.add_event(
                "rebalance started",
                f"{group.name} rebalances: {reason}; all partitions are revoked",
                group=group.name,
                reason=reason,
                cause=cause,
            )
        else:
            self._complete(group)

    def _complete(self, group: ConsumerGroup) -> None:
        cancel(group)
        members = group.members()
        group.generation += 1
        group.state = "Stable"
        shares = range_assignment(
            {member.name: member.topics for member in members},
            {name: len(topic.logs) for name, topic in self._state.topics.items()},
        )
        for member in members:
            member.assignment = shares[member.name]
            if member.live:
                self._activate(member)
        self._add_rebalance_event(group, shares)

    def _add_rebalance_event(
        self, group: ConsumerGroup, shares: Mapping[str, Sequence[TopicPartition]]
    ) -> None:
        text = "; ".join(f"{name}: {partitions_text(share)}" for name, share in shares.items())
        self._state.add_event(
            "rebalance",
            f"{group.name} generation {group.generation} ({group.reason}): {text or 'no members'}",
            group=group.name,
            generation=group.generation,
            reason=group.reason,
            cause=group.cause,
            assignment={name: [tuple(tp) for tp in share] for name, share in shares.items()},
        )

    def _activate(self, instance: Instance) -> None:
        """Let an instance read its partitions from its start positions."""
        instance.state = "active"
        for tp in instance.assignment:
            self._state.topic(tp.topic)
            position = self._offsets.start_position(instance, tp)
            instance.positions[tp] = position
            if position is not None:
                instance.starts[tp] = position
            self._state.log(tp).watchers.add(instance.signal)
        self._state.woken.add(instance.signal)

    def _revoke(self, instance: Instance) -> None:
        """Take an instance's partitions away, and end its waiting calls."""
        self._release(instance)
        if instance.state != "joining":
            instance.epoch += 1
        instance.assignment = []
        self._state.woken.add(instance.signal)

    def _release(self, instance: Instance) -> None:
        """Stop reading the partitions of an instance, which keeps them."""
        for tp in instance.assignment:
            if tp.topic in self._state.topics:
                self._state.log(tp).watchers.discard(instance.signal)
        instance.positions.clear()
        instance.starts.clear()
        instance.delivered.clear()
        cancel(instance, "auto commit")

    # -- inspection and copies ------------------------------------------------------------------------

    def consumers(self) -> Assignments:
        """Return the partitions of live instances, sorted by group and instance."""
        with self._state:
            found: Assignments = {}
            for group, at in sorted(self._state.groups.items()):
                for name, instance in sorted(at.instances.items()):
                    if instance.live:
                        found.setdefault(group, {})[name] = by_topic(instance.assignment)
            return found

    def names(self) -> list[str]:
        with self._state:
            return sorted(self._state.groups)

    def describe(self, name: str) -> GroupDescription:
        """Return the current state of a group; raise ``BrokerError`` if it is unknown."""
        with self._state:
            for topic in self._state.topics:
                self._state.topic(topic)  # deletes the records that exceed its retention
            return _described(self._state.group(name), self._state.topics)

    def copies(self) -> list[GroupCopy]:
        copies = []
        for group in self._state.groups.values():
            left = {name: self._state.time_left(one) for name, one in group.instances.items()}
            for name, instance in group.instances.items():
                # The copy has no consume call in progress: add the timers that start at its end.
                if instance.consuming and instance.live:
                    left[name] |= self._idle_timers(instance)
            copy = group.copy(self._state.clock)
            copies.append(GroupCopy(copy, self._state.time_left(group), left))
        return copies

    def restore(self, copies: list[GroupCopy]) -> None:
        for group in self._state.groups.values():
            cancel(group)
            for instance in group.instances.values():
                # Calls that still wait on a removed instance start no timers.
                instance.state = "removed"
                cancel(instance)
                self._state.woken.add(instance.signal)
        self._state.groups.clear()
        for copy in copies:
            group = self._state.groups[copy.group.name] = copy.group.copy(self._state.clock)
            for name, instance in group.instances.items():
                for kind, left in copy.timers[name].items():
                    self._start_timer(instance, kind, left)
                for tp in instance.positions:
                    self._state.log(tp).watchers.add(instance.signal)
            for kind, left in copy.own_timers.items():
                self._start_timer(group, kind, left)


def check_instance_limit(
    scope: Literal["cluster", "group"] | None,
    group: str,
    live: Iterable[str],
    topics: Iterable[Topic],
) -> None:
    """Raise ``BrokerError`` if a group may not have another instance.

    ``live`` contains the name of the group of each live instance.
    """
    if scope is None:
        return
    active = sum(scope == "cluster" or name == group for name in live)
    partitions = sum(len(topic.logs) for topic in topics)
    if active + 1 > partitions:
        raise errors.too_many_instances(active, partitions)


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


def _described(group: ConsumerGroup, topics: Mapping[str, Topic]) -> GroupDescription:
    members = found_members(_member_view(group.instances[i]) for i in sorted(group.instances))
    starts: dict[TopicPartition, int] = {}
    read = set(group.committed)
    for member in group.members():
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
        behind = group.committed.get(tp, starts.get(tp, log.start))
        lag[tp] = max(0, log.end - max(behind, log.start))
    return GroupDescription(
        group.name,
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
