"""Consumer groups of a broker in memory: consume requests, commits, members and rebalances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ...core.errors import counted
from ...core.ids import RandomStream
from .. import errors
from ..model import (
    NO_OFFSET,
    Assignments,
    ConsumeRequest,
    EventKind,
    GroupDescription,
    Record,
    TopicPartition,
    TopicPartitionOffset,
    consumer_config,
    distinct_positions,
)
from .log import PartitionLog, Topic
from .state import (
    NO_CAUSE,
    BrokerState,
    ClockWaits,
    ConsumerGroup,
    GroupCopy,
    GroupEvent,
    Instance,
    InstanceState,
    TimerKind,
    by_topic,
    cancel,
    commit_event,
    partitions_text,
    range_assignment,
)


class MemoryGroups:
    """Reads and commits with a group, and changes its members.

    Each call is atomic; of a consume request, each attempt to read. Private methods, and those for
    the engine's other parts, expect that the state is locked. ``stream`` mixes the partitions of a
    response.
    """

    def __init__(self, state: BrokerState, waits: ClockWaits, stream: RandomStream) -> None:
        self._state = state
        self._waits = waits
        self._settings = state.settings
        self._stream = stream

    def _start_timer(self, owner: Instance | ConsumerGroup, kind: TimerKind, delay_us: int) -> None:
        """Start a timer of an instance or a group, which replaces its timer of the same kind."""
        state = self._state
        due = state.now_us + delay_us
        planned = owner.timers.get(kind)
        if planned is not None:
            if planned.due_us == due:
                return
            planned.cancel()

        def fire(at_us: int) -> None:
            on_due: dict[TimerKind, Callable[[Any], None]] = {
                "auto commit": self._auto_commit,
                "idle close": self._close_idle,
                "offset retention": self._forget,
                "rebalance": self._complete,
                "session": self._session_over,
            }
            with state, state.lock:
                state.now_us = at_us
                # A timer that a signal's handler interrupted fires again.
                if not isinstance(owner, Instance) or owner.state != "removed":
                    on_due[kind](owner)

        # Wake the calls that wait in this group, because the new timer may be due first.
        group = owner if isinstance(owner, ConsumerGroup) else owner.group
        state.woken.update(i.signal for i in group.instances.values() if i.consuming)
        label = f"{kind} of {owner}"
        owner.timers[kind] = state.clock.call_at(due, fire, lane="state", label=label)

    # -- consuming -------------------------------------------------------------------------------

    def consume(self, request: ConsumeRequest) -> list[Record]:
        """Return the next records for an instance. The first call creates it.

        Waits for the first record. Returns ``[]`` at the timeout, and earlier if the group
        rebalances, the instance is deleted, or the server closes. Concurrent calls for the same
        instance take turns.
        """
        turn = object()
        with self._state, self._state.lock:
            member = self._enter(request)
            member.consuming += 1
            member.has_consumed = True
            seen = (self._waits.epoch, member.epoch)

        def poll() -> list[Record] | None:
            with self._state, self._state.lock:
                if seen != (self._waits.epoch, member.epoch):
                    return []
                if member.holder not in (None, turn):
                    return None
                member.holder = turn
                return self._take(member)

        try:
            records = poll()
            if records is None and request.timeout_ms:
                records = self._waits.wait(member.signal, poll, request.timeout_ms)
            return records or []
        finally:
            with self._state, self._state.lock:
                self._finish(member, turn)

    def _enter(self, request: ConsumeRequest) -> Instance:
        """Return the instance of a consume request, which is created or rejoins if necessary.

        Raises ``BrokerError`` for unknown topics, invalid headers, and too many instances.
        """
        name, wanted = request.instance, tuple(sorted(set(request.topics)))
        for topic in wanted:
            self._state.topic(topic)
        instance = self._state.find_instance(request.group, name)
        if instance is None or not instance.live:
            return self._create(request, wanted)
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

    def _create(self, request: ConsumeRequest, topics: tuple[str, ...]) -> Instance:
        timeout_ms, name = self._settings.session_timeout_ms, request.instance
        config = consumer_config(request.headers, session_timeout_ms=timeout_ms)
        groups = self._state.groups.values()
        live = [
            instance.group.name
            for group in groups
            for instance in group.instances.values()
            if instance.live
        ]
        scope = self._settings.instance_limit
        check_instance_limit(scope, request.group, live, self._state.topics.values())
        group = self._state.create_group(request.group)
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
            join = self._add_event(
                "join", text, instance, caused_by=request.call, topics=list(topics)
            )
            self._rebalance(group, f"{name} joined", join)
        return instance

    def _return(self, instance: Instance, before: Instance) -> None:
        """Give the partitions of a static member to its new instance, without a rebalance.

        Like a new consumer, though, the instance starts at the committed offsets.
        """
        instance.assignment = before.assignment
        if instance.group.state == "Stable":
            self._activate(instance)
        partitions = partitions_text(instance.assignment)
        text = (
            f"{instance.name} returned to {instance.group.name} within its session "
            f"and keeps {partitions}"
        )
        self._add_event("return", text, instance)

    def _finish(self, instance: Instance, turn: object) -> None:
        """End a consume call. The next waiting call proceeds; the last one starts the idle timer."""
        instance.consuming -= 1
        if instance.holder is turn:
            instance.holder = None
            if instance.consuming:
                self._state.woken.add(instance.signal)
        idle_ms = self._settings.idle_close_ms
        if instance.live and not instance.consuming and idle_ms is not None:
            self._start_timer(instance, "idle close", idle_ms * 1000)

    # -- committing ------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        instance: str,
        offsets: Sequence[TopicPartitionOffset],
        call: object = None,
    ) -> None:
        """Commit the offsets, all or none. Without any, commit up to the records last delivered. The
        event has the ``call`` as its cause.
        """
        wanted = distinct_positions(offsets)
        with self._state, self._state.lock:
            for topic, partition, _ in wanted:
                self._state.partition(topic, partition)
            member = self._state.instance(group, instance)
            if member.state == "expired":
                raise errors.unknown_member(group, instance)
            if member.state != "joining":
                if member.group.state != "Stable":
                    raise errors.rebalance_in_progress(group)
                own = set(member.assignment)
                for topic, partition, _ in wanted:
                    if (topic, partition) not in own:
                        raise errors.not_assigned(group, instance, topic, partition)
            delivered = member.delivered
            self._apply_commit(
                member.group,
                wanted or [TopicPartitionOffset(*tp, at) for tp, at in delivered.items()],
                "commit",
                instance,
                call,
            )
            if member.state == "active" and not member.has_consumed:
                # A real consumer joins again in its next poll, and then reads the committed offset.
                member.positions.update((TopicPartition(t, p), at) for t, p, at in wanted)
                member.starts.update((TopicPartition(t, p), at) for t, p, at in wanted)
            if any(delivered.get(TopicPartition(t, p), at) != at for t, p, at in wanted):
                self._plan_auto_commit(member)

    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        """Set an offset of a group that may not exist, even if an instance owns the partition.

        Forget deliveries from the partition, because their commit would replace the offset.
        """
        with self._state, self._state.lock:
            self._state.partition(offset.topic, offset.partition)
            consumer_group = self._state.create_group(group)
            if consumer_group.state == "Empty":
                self._retain(consumer_group)
            self._apply_commit(consumer_group, [offset], "offsets set", "the test")
            for instance in consumer_group.members():
                instance.delivered.pop(TopicPartition(offset.topic, offset.partition), None)

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        with self._state, self._state.lock:
            for topic, partition in partitions:
                self._state.partition(topic, partition)
            committed = self._state.group(group).committed
            return [TopicPartitionOffset(*tp, committed.get(tp, NO_OFFSET)) for tp in partitions]

    def _plan_auto_commit(self, instance: Instance) -> None:
        """Schedule an automatic commit at the end of the instance's current commit interval."""
        config = instance.config
        if not config.auto_commit or "auto commit" in instance.timers:
            return
        # Schedule the end of the current interval only, because nothing changes at the end of an
        # interval without deliveries. Intervals start when the instance is created. An interval of
        # 0 means as often as possible, which is once per millisecond here.
        interval = max(1, config.auto_commit_interval_ms) * 1000
        passed = self._state.now_us - instance.since_us
        until_commit = interval - passed % interval
        self._start_timer(instance, "auto commit", until_commit)

    def _auto_commit(self, instance: Instance) -> None:
        cancel(instance, "auto commit")
        offsets = [
            TopicPartitionOffset(*tp, offset)
            for tp, offset in instance.delivered.items()
            if instance.group.committed.get(tp) != offset
        ]
        self._apply_commit(instance.group, offsets, "auto commit", instance.name)

    def _before_losing(self, instance: Instance) -> None:
        """Commit the records delivered to an instance before it loses its partitions.

        This happens only with auto-commit, and only if the consumer is alive and still a member. It
        follows the code paths of Kafka's Java client (``ConsumerCoordinator``):

        - A rebalance caused by another member, new partitions or its own subscription:
          ``onJoinPrepare`` commits before it revokes. librdkafka also commits when it unassigns.
        - A clean close, after idling or by delete-consumer: ``close`` commits.
        - A crash: there is no client left to commit.
        - An expired session: the commit would be rejected as an unknown member's, so the records are
          delivered again. The other members, which rebalance because of it, do commit.

        Decided here: only offsets of delivered records are committed, as in periodic commits. The
        Java client also commits its position in partitions without deliveries; librdkafka does not.
        """
        if instance.config.auto_commit and instance.state == "active":
            self._auto_commit(instance)

    def _apply_commit(
        self,
        group: ConsumerGroup,
        offsets: Sequence[TopicPartitionOffset],
        kind: EventKind,
        by: str,
        call: object = None,
    ) -> None:
        for topic, partition, offset in offsets:
            group.committed[TopicPartition(topic, partition)] = offset
        if offsets:
            text, data = commit_event(kind, group.name, by, offsets)
            self._state.add_event(kind, text, caused_by=call, **data)

    # -- delivery --------------------------------------------------------------------------------

    def _take(self, instance: Instance) -> list[Record] | None:
        """Return the next records for an instance, or None if there are none yet."""
        if instance.state != "active" or instance.group.state != "Stable":
            return None
        assignment = instance.assignment
        for tp in assignment:
            self._check_position(instance, tp)
        first = instance.turn % len(assignment) if assignment else 0
        room = self._settings.max_poll_records
        parts: list[list[Record]] = []
        for tp in assignment[first:] + assignment[:first]:
            position = instance.positions[tp]
            log = self._state.log(tp)
            if position is None or position >= log.end:
                continue
            records = log.read(position, room, self._settings.max_partition_bytes)
            after = position + len(records)
            instance.positions[tp] = instance.delivered[tp] = after
            instance.group.remember(tp, position, after)
            parts.append(records)
            room -= len(records)
            if room <= 0:
                break
        if not parts:
            return None
        instance.turn += 1
        self._plan_auto_commit(instance)
        if len(parts) == 1:
            return parts[0]
        if self._settings.interleave == "random":
            return mixed(parts, self._stream)
        return [record for part in parts for record in part]

    # -- positions -------------------------------------------------------------------------------

    def _check_position(self, instance: Instance, tp: TopicPartition) -> None:
        group = instance.group
        log = self._state.topic(tp.topic).logs[tp.partition]
        position = instance.positions.get(tp)
        if position is None:
            position = self._start_position(instance, tp)
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
            text = (
                f"{instance.name} of {group.name} was at {position} of {tp.topic}-{tp.partition}, "
                f"outside {log.start}..{log.end}, and was reset to {reset}"
            )
            self._add_event("reset", text, instance)

    def _start_position(self, instance: Instance, tp: TopicPartition) -> int | None:
        """Return the committed offset or, if it is missing or outside the log, that of the reset
        policy, which is None for ``none``.
        """
        log = self._state.log(tp)
        committed = instance.group.committed.get(tp)
        if committed is not None and log.start <= committed <= log.end:
            return committed
        return self._reset_position(instance, log)

    @staticmethod
    def _reset_position(instance: Instance, log: PartitionLog) -> int | None:
        reset = instance.config.auto_offset_reset
        return {"earliest": log.start, "latest": log.end}.get(reset)

    # -- redelivery ------------------------------------------------------------------------------

    def redeliver(
        self, group: str, last: int, topic: str | None, partition: int | None
    ) -> list[Record]:
        """Rewind a group by its ``last`` delivered records; return those that still exist."""
        with self._state, self._state.lock:
            consumer_group = self._state.group(group)
            if topic is not None:
                self._state.partition(topic, partition or 0)
            ends = {tp: after for tp, _, after in consumer_group.deliveries}
            firsts = _before_last(consumer_group, last, topic, partition)
            moved = {tp: self._rewind(consumer_group, tp, at) for tp, at in sorted(firsts.items())}
            offsets = ", ".join(f"{tp.topic}-{tp.partition}={at}" for tp, at in moved.items())
            self._state.add_event(
                "redeliver",
                f"{group} gets {counted(last, 'record')} again, from "
                + (offsets or "nowhere: none was delivered"),
                group=group,
            )
            return [
                record
                for tp, offset in moved.items()
                for record in self._state.partition(*tp).read(offset)
                if record.offset < ends[tp]
            ]

    def _rewind(self, group: ConsumerGroup, tp: TopicPartition, offset: int) -> int:
        """Make the next delivery from a partition start at an offset or before; return the start."""
        start = self._state.log(tp).start
        committed = group.committed.get(tp)
        owner = next((i for i in group.members() if tp in i.positions), None)
        if owner is None:
            # The next owner starts at the committed offset, so rewind at least to that one. Without
            # a committed offset, the next owner's reset policy would determine where it starts.
            if committed is None:
                committed = min(first for at, first, _ in group.deliveries if at == tp)
                group.committed[tp] = max(start, committed)
            offset = max(start, min(offset, committed))
        else:
            offset = max(start, offset)
            owner.positions[tp] = offset
            owner.starts[tp] = min(offset, owner.starts.get(tp, offset))
            owner.delivered.pop(tp, None)
            self._state.woken.add(owner.signal)
        if committed is not None and committed > offset:
            group.committed[tp] = offset
        return offset

    # -- members --------------------------------------------------------------------------------------

    def join(self, request: ConsumeRequest) -> None:
        """Add an instance to a group without consuming. It is closed when idle, like any other."""
        with self._state, self._state.lock:
            member = self._enter(request)
            member.consuming += 1
            self._finish(member, None)

    def delete(self, group: str, instance: str, call: object = None) -> None:
        with self._state, self._state.lock:
            leaving = self._state.instance(group, instance)
            self._before_losing(leaving)
            text = f"{instance} was deleted and left {group}"
            event = self._add_event("leave", text, leaving, caused_by=call)
            self._remove(leaving, f"{instance} left", event)

    def crash(self, group: str, instance: str) -> None:
        with self._state, self._state.lock:
            crashed = self._state.instance(group, instance)
            self._vanish(crashed, "crashed", f"{instance} of {group} crashed")

    def expire(self, group: str, instance: str) -> None:
        with self._state, self._state.lock:
            self._session_over(self._state.instance(group, instance, "member"))

    def _close_idle(self, instance: Instance) -> None:
        if instance.consuming or not instance.live:
            return
        self._before_losing(instance)
        text = f"{instance.name} of {instance.group.name} was idle and was closed"
        self._vanish(instance, "closed", text, idle=True)

    def _vanish(
        self, instance: Instance, state: InstanceState, text: str, *, idle: bool = False
    ) -> None:
        """Close an instance, which stays a member until its session expires if it is one."""
        kind: EventKind = "crash" if state == "crashed" else "close"
        if not instance.member:
            self._remove(instance, text, self._add_event(kind, text, instance))
            return
        cancel(instance)
        self._release(instance)
        instance.epoch += 1
        self._state.woken.add(instance.signal)
        instance.state = state
        session_ms = instance.config.session_timeout_ms
        self._start_timer(instance, "session", session_ms * 1000)
        until = self._state.now_us + session_ms * 1000
        text = f"{text}; it keeps {partitions_text(instance.assignment)} for {session_ms} ms"
        held = [list(tp) for tp in sorted(instance.assignment)]
        self._add_event(kind, text, instance, keeps=held, until_us=until, idle=idle)

    def _session_over(self, instance: Instance) -> None:
        text = f"the session of {instance.name} in {instance.group.name} expired"
        event = self._add_event("expire", text, instance)
        reason = f"the session of {instance.name} expired"
        if not instance.live:
            self._remove(instance, reason, event)
            return
        instance.state = "expired"
        cancel(instance, "session")
        self._rebalance(instance.group, reason, event)

    def _remove(self, instance: Instance, reason: str, event: GroupEvent) -> None:
        was_member = instance.member
        cancel(instance)
        instance.state = "removed"
        self._revoke(instance)
        del instance.group.instances[instance.name]
        if was_member:
            self._rebalance(instance.group, reason, event)

    def _add_event(self, kind: EventKind, text: str, instance: Instance, **data: Any) -> GroupEvent:
        group = instance.group.name
        return self._state.add_event(kind, text, group=group, instance=instance.name, **data)

    # -- rebalances -----------------------------------------------------------------------------------

    def rebalance(self, group: str) -> None:
        with self._state, self._state.lock:
            self._rebalance(self._state.group(group), "the test asked for it")

    def rebalance_subscribers(self, topic: str, reason: str) -> None:
        """Rebalance the groups that subscribe to a topic, or have kept their subscription to it."""
        for group in list(self._state.groups.values()):
            if any(topic in member.topics for member in group.members()):
                self._rebalance(group, reason)

    def _rebalance(
        self, group: ConsumerGroup, reason: str, event: GroupEvent | None = None
    ) -> None:
        """Revoke all partitions of a group and assign them again.

        The ``event`` of an instance caused the rebalance, and ``reason`` describes it. Members with
        auto-commit first commit the records that they received.
        """
        members = group.members()
        for instance in group.instances.values():
            self._before_losing(instance)
            self._revoke(instance)
        group.reason = reason
        group.cause = NO_CAUSE if event is None else (event.kind, event.data["instance"])
        if not members:
            group.generation += 1
            group.state = "Empty"
            self._add_rebalance_event(group, {}, event)
            self._retain(group)
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
                cause=group.cause,
            )
        else:
            self._complete(group, event)

    def _complete(self, group: ConsumerGroup, event: GroupEvent | None = None) -> None:
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
        self._add_rebalance_event(group, shares, event)

    def _add_rebalance_event(
        self,
        group: ConsumerGroup,
        shares: Mapping[str, Sequence[TopicPartition]],
        event: GroupEvent | None,
    ) -> None:
        text = "; ".join(f"{name}: {partitions_text(share)}" for name, share in shares.items())
        self._state.add_event(
            "rebalance",
            f"{group.name} generation {group.generation} ({group.reason}): {text or 'no members'}",
            caused_by=event,
            group=group.name,
            generation=group.generation,
            reason=group.reason,
            cause=group.cause,
            assignment={name: [tuple(tp) for tp in share] for name, share in shares.items()},
        )

    def _activate(self, instance: Instance) -> None:
        """Let an instance read its partitions from its start positions."""
        instance.state, instance.has_consumed = "active", instance.consuming > 0
        for tp in instance.assignment:
            self._state.topic(tp.topic)
            position = self._start_position(instance, tp)
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

    def _retain(self, group: ConsumerGroup) -> None:
        """Start the retention period of the offsets of a group that has just become empty."""
        cancel(group)
        if self._settings.offset_retention_ms is not None:
            delay_us = self._settings.offset_retention_ms * 1000
            self._start_timer(group, "offset retention", delay_us)

    def _forget(self, group: ConsumerGroup) -> None:
        group.state = "Dead"
        for instance in group.instances.values():
            cancel(instance)
        self._state.groups.pop(group.name, None)
        self._state.add_event(
            "dead", f"{group.name} and its committed offsets are forgotten", group=group.name
        )

    # -- inspection and copies ------------------------------------------------------------------------

    def consumers(self) -> Assignments:
        """Return the partitions of live instances, sorted by group and instance."""
        with self._state, self._state.lock:
            consumers: Assignments = {}
            for group, at in sorted(self._state.groups.items()):
                for name, instance in sorted(at.instances.items()):
                    if instance.live:
                        consumers.setdefault(group, {})[name] = by_topic(instance.assignment)
            return consumers

    def names(self) -> list[str]:
        with self._state, self._state.lock:
            return sorted(self._state.groups)

    def describe(self, name: str) -> GroupDescription:
        """Return the current state of a group; raise ``BrokerError`` if it is unknown."""
        with self._state, self._state.lock:
            for topic in self._state.topics:
                self._state.topic(topic)  # deletes the records that exceed its retention
            return self._state.group(name).described(self._state.topics)

    def copies(self) -> list[GroupCopy]:
        copies = []
        idle_ms = self._settings.idle_close_ms
        for group in self._state.groups.values():
            timers = {
                name: self._state.time_left(instance) for name, instance in group.instances.items()
            }
            for name, instance in group.instances.items():
                # The copy has no consume call in progress: add the timer that starts at its end.
                if instance.consuming and instance.live and idle_ms is not None:
                    timers[name]["idle close"] = idle_ms * 1000
            copy = group.copy(self._state.clock)
            copies.append(GroupCopy(copy, self._state.time_left(group), timers))
        return copies

    def stop(self) -> None:
        """Stop all timers and remove all instances. Calls that wait on them start no timers."""
        for group in self._state.groups.values():
            cancel(group)
            for instance in group.instances.values():
                instance.state = "removed"
                cancel(instance)
                self._state.woken.add(instance.signal)
            group.instances.clear()

    def restore(self, copies: list[GroupCopy]) -> None:
        self.stop()
        self._state.groups.clear()
        for copy in copies:
            group = self._state.groups[copy.group.name] = copy.group.copy(self._state.clock)
            for name, instance in group.instances.items():
                for kind, delay_us in copy.timers[name].items():
                    self._start_timer(instance, kind, delay_us)
                for tp in instance.positions:
                    self._state.log(tp).watchers.add(instance.signal)
            for kind, delay_us in copy.own_timers.items():
                self._start_timer(group, kind, delay_us)


def check_instance_limit(
    scope: Literal["cluster", "group"] | None,
    group: str,
    live: Iterable[str],
    topics: Iterable[Topic],
) -> None:
    """Raise ``BrokerError`` for too many; ``live`` has the group of each live instance."""
    if scope is None:
        return
    active = sum(scope == "cluster" or name == group for name in live)
    partitions = sum(len(topic.logs) for topic in topics)
    if active + 1 > partitions:
        raise errors.too_many_instances(active, partitions)


def mixed(parts: Sequence[Sequence[Record]], stream: RandomStream) -> list[Record]:
    """Return the records of several partitions in random order, each partition's in its order."""
    # Shuffle numbers of parts instead of records, to keep the order within each part.
    numbers = [number for number, part in enumerate(parts) for _ in part]
    stream.shuffle(numbers)
    sources = [iter(part) for part in parts]
    return [next(sources[number]) for number in numbers]


def _before_last(
    group: ConsumerGroup, last: int, topic: str | None, partition: int | None
) -> dict[TopicPartition, int]:
    """Return the offset of the first of the last delivered records, by partition."""
    offsets: dict[TopicPartition, int] = {}
    remaining = last
    for tp, first, after in reversed(group.deliveries):
        if remaining <= 0:
            break
        if topic in (None, tp.topic) and partition in (None, tp.partition):
            # A partition that was rewound occurs several times: use its smallest offset.
            offset = max(first, after - remaining)
            remaining -= after - offset
            offsets[tp] = min(offset, offsets.get(tp, offset))
    return offsets
