"""Consumer groups on a real cluster: their instances in this process, and their committed offsets.

A record counts as delivered when a consume request returns it, not when librdkafka reads it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from confluent_kafka import KafkaException

from ...core.timekeeper import Timekeeper
from ...core.timeparse import monotonic
from .. import errors
from ..engine.fetching import distinct_positions
from ..errors import BrokerError
from ..model import (
    ConsumerConfig,
    EventKind,
    GroupAssignments,
    GroupView,
    MemberView,
    Record,
    TopicPartition,
    TopicPartitionOffset,
    consumer_config,
    found_members,
)
from ..settings import BrokerConfig
from .cluster import Address, real_only
from .fetching import KafkaFetching, Waits
from .instance import KafkaInstance
from .topics import KafkaTopics, public_names


class KafkaGroups:
    """The consumer instances in this process, with the methods of ``MemoryGroups``.

    ``tell`` is called with events of their groups.
    """

    def __init__(
        self,
        topics: KafkaTopics,
        cluster: Any,
        address: Address,
        settings: BrokerConfig,
        clock: Timekeeper,
        waits: Waits,
        fetching: KafkaFetching,
    ) -> None:
        self.tell: Any = None
        self._topics = topics
        self.public = topics.public
        self._fetching = fetching
        self._cluster = cluster
        self._address = address
        self._settings = settings
        self._clock = clock
        self._waits = waits
        self._lock = threading.Lock()
        self._instances: dict[tuple[str, str], KafkaInstance] = {}
        self._groups: set[str] = set()

    # -- consuming -------------------------------------------------------------------------------

    @public_names
    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        for topic in topics:
            self._topics.check(topic)
        until = self._clock.now_us() + timeout_ms * 1000
        member = self._enter(group, instance, headers)
        if not self._take_turn(member, group, instance, timeout_ms):
            return []
        try:
            self._subscribe(member, topics)
            return [self._fetching.record(one) for one in self._await(member, until)]
        finally:
            member.turn.release()

    def _take_turn(self, member: KafkaInstance, group: str, instance: str, timeout_ms: int) -> bool:
        if member.turn.acquire(blocking=False):
            return True
        if self._settings.concurrent_consume == "error":
            raise errors.concurrent_consume(group, instance)
        return member.turn.acquire(timeout=timeout_ms / 1000)

    def _subscribe(self, member: KafkaInstance, topics: Sequence[str]) -> None:
        if not member.topics or self._settings.resubscribe == "rebalance":
            member.subscribe([self._topics.real(topic) for topic in sorted(set(topics))])

    def _enter(self, group: str, instance: str, headers: Mapping[str, str]) -> KafkaInstance:
        with self._lock:
            member = self._instances.get((group, instance))
            if member is None:
                config = consumer_config(
                    headers, session_timeout_ms=self._settings.session_timeout_ms
                )
                self._check_limit(group)
                member = self._make(group, instance, config)
                self._instances[group, instance] = member
                self._groups.add(group)
            return member

    def _check_limit(self, group: str) -> None:
        scope = self._settings.instance_limit
        if scope is None:
            return
        active = sum(scope == "cluster" or name == group for name, _ in self._instances)
        limit = sum(len(topic.logs) for topic in self._topics.known.values())
        if active + 1 > limit:
            raise errors.too_many_instances(active, limit)

    def _make(self, group: str, instance: str, config: ConsumerConfig) -> KafkaInstance:
        reset = "error" if config.auto_offset_reset == "none" else config.auto_offset_reset
        settings: dict[str, Any] = {
            "group.id": self._topics.real(group),
            "partition.assignment.strategy": "range",
            "enable.auto.commit": config.auto_commit,
            # Use 1 ms instead of 0, which means never in librdkafka, but as often as possible in
            # the Java client.
            "auto.commit.interval.ms": max(1, config.auto_commit_interval_ms),
            "enable.auto.offset.store": False,
            "auto.offset.reset": reset,
            "session.timeout.ms": config.session_timeout_ms,
            "max.poll.interval.ms": max(300_000, config.session_timeout_ms),
            "fetch.wait.max.ms": 500,
        }
        if self._address.static:
            settings["group.instance.id"] = instance
        key = (group, instance)

        def tell(kind: EventKind, text: str, data: dict[str, Any]) -> None:
            if self.tell is not None:
                self.tell(
                    kind,
                    f"group {group!r}: {instance!r} {kind}: {self._topics.public(text)}",
                    group=group,
                    instance=instance,
                    **data,
                )

        def gone(member: KafkaInstance) -> None:
            with self._lock:
                if self._instances.get(key) is member:
                    del self._instances[key]

        try:
            return KafkaInstance(
                self._clock,
                config,
                self._address.settings(settings),
                keep=self._settings.max_poll_records,
                idle_ms=self._settings.idle_close_ms,
                tell=tell,
                gone=gone,
                held=lambda tp: self._cluster.group_offsets(self._topics.real(group), [tp]).get(tp),
                unasked=lambda offsets: self._told(
                    group, instance, offsets, "auto commit" if config.auto_commit else "commit"
                ),
            )
        except KafkaException as error:
            raise errors.illegal_argument(
                f"The Kafka client rejects the configuration: {error}"
            ) from None

    def _await(self, member: KafkaInstance, until: int) -> list[Any]:
        epoch = (self._waits.epoch, member.epoch)

        def poll() -> list[Any] | None:
            if epoch != (self._waits.epoch, member.epoch) or member.stopped:
                return []
            if member.in_doubt:
                self._ask_for(member)
            most, most_bytes = self._settings.max_poll_records, self._settings.max_partition_bytes
            return member.take(most, most_bytes) or None

        self._waits.waiting.append(member.signal)
        try:
            return self._clock.wait(member.signal, poll, until) or []
        finally:
            self._waits.waiting.remove(member.signal)

    def _ask_for(self, member: KafkaInstance) -> None:
        # Clear the flag before the request, so that a connection that is lost meanwhile sets it
        # again.
        member.in_doubt = False
        try:
            self._topics.look(fresh=True)
        except BrokerError:
            member.in_doubt = True
            raise

    def delete(self, group: str, instance: str) -> None:
        with self._lock:
            member = self._instances.pop((group, instance), None)
        if member is None:
            raise errors.unknown_instance(group, instance)
        member.stop()
        member.join(self._address.timeout)

    # -- committing ------------------------------------------------------------------------------

    @public_names
    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        wanted = distinct_positions(offsets)
        for topic, partition, _ in wanted:
            self._topics.check_partition(topic, partition)
        real = {(self._topics.real(t), p): o for t, p, o in wanted}
        with self._lock:
            member = self._instances.get((group, instance))
        if member is None:
            if self._settings.commit_by_unknown == "error":
                raise errors.unknown_instance(group, instance)
            self._store(group, real)
            self._told(group, f"{instance} (unknown)", real)
            return
        if member.state == "expired":
            raise errors.unknown_member(group, instance)
        if member.state == "rebalancing":
            raise errors.rebalance_in_progress(group)
        real = real or member.delivered()
        if not real:
            return
        if member.state == "joining":
            # Commit without being a member, which a group without members accepts.
            self._store(group, real)
        else:
            assigned = member.assigned
            for topic, partition in real:
                if (topic, partition) not in assigned:
                    raise errors.not_assigned(group, instance, self._topics.shown(topic), partition)
            member.commit(real, self._address.timeout)
        member.committed(real)
        self._told(group, instance, real)

    @public_names
    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        """Set a group's committed offset. The cluster rejects this while the group has members."""
        self._fetching.offsets("earliest", [TopicPartition(offset.topic, offset.partition)])
        real = {(self._topics.real(offset.topic), offset.partition): offset.offset}
        self._store(group, real)
        self._told(group, "the test", real, "offsets set")

    def store(self, group: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Commit offsets for a group without being a member."""
        self._store(group, {(self._topics.real(t), p): o for t, p, o in offsets})

    def _store(self, group: str, real: Mapping[tuple[str, int], int]) -> None:
        if real:
            with self._lock:
                self._groups.add(group)
            self._cluster.commit(self._topics.real(group), real)

    def _told(
        self,
        group: str,
        instance: str,
        real: Mapping[tuple[str, int], int],
        kind: EventKind = "commit",
    ) -> None:
        if self.tell is None or not real:
            return
        offsets = [(self._topics.shown(topic), number, at) for (topic, number), at in real.items()]
        shown = ", ".join(f"{topic}-{number}={at}" for topic, number, at in offsets)
        self.tell(
            kind,
            f"group {group!r}: {instance!r} committed {shown}"
            + (" automatically" if kind == "auto commit" else ""),
            group=group,
            instance=instance,
            offsets=offsets,
        )

    @public_names
    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        for tp in partitions:
            self._topics.check_partition(*tp)
        held = self.all_committed(group)
        if not held and not self.members(group) and self._settings.unknown_group == "error":
            raise errors.unknown_group(group)
        never = self._settings.never_committed
        return [TopicPartitionOffset(*tp, held.get(tp, never)) for tp in partitions]

    def all_committed(self, group: str) -> dict[TopicPartition, int]:
        own = [
            (self._topics.real(name), number)
            for name, count in self._topics.counts().items()
            for number in range(count)
        ]
        held = self._cluster.group_offsets(self._topics.real(group), own) if own else {}
        return {
            TopicPartition(self._topics.shown(t), number): at for (t, number), at in held.items()
        }

    # -- lookups ---------------------------------------------------------------------------------

    def consumers(self) -> list[GroupAssignments]:
        with self._lock:
            instances = dict(self._instances)
        found: dict[str, dict[str, dict[str, list[int]]]] = {}
        for (group, name), member in sorted(instances.items()):
            topics: dict[str, list[int]] = {}
            for topic, partition in sorted(member.assigned):
                topics.setdefault(self._topics.shown(topic), []).append(partition)
            found.setdefault(group, {})[name] = topics
        return [GroupAssignments(group, members) for group, members in found.items()]

    @public_names
    def view(self, name: str) -> GroupView:
        members = self.members(name)
        committed = self.all_committed(name)
        lag = _lag(self._topics, members, committed)
        views = found_members(
            _member(self._topics, each, members[each]) for each in sorted(members)
        )
        state = "Stable" if members else "Empty" if committed else "Dead"
        if any(member.state in ("joining", "rebalancing") for member in members.values()):
            state = "PreparingRebalance"
        return GroupView(
            name,
            state,
            sum(member.epoch for member in members.values()),
            views,
            {view.name: view.assignment for view in views},
            dict(sorted(committed.items())),
            {tp: at for view in views for tp, at in view.position.items()},
            lag,
        )

    def members(self, group: str) -> dict[str, KafkaInstance]:
        with self._lock:
            return {name: member for (g, name), member in self._instances.items() if g == group}

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._groups)

    # -- actions of tests ------------------------------------------------------------------------

    @public_names
    def join(
        self, group: str, instance: str, topics: Sequence[str], auto_offset_reset: str = "latest"
    ) -> None:
        for topic in topics:
            self._topics.check(topic)
        member = self._enter(group, instance, {"auto-offset-reset": auto_offset_reset})
        if self._take_turn(member, group, instance, 0):
            try:
                self._subscribe(member, topics)
            finally:
                member.turn.release()

    def crash(self, group: str, instance: str) -> NoReturn:
        raise real_only("crash() of an instance")

    def expire(self, group: str, instance: str) -> NoReturn:
        raise real_only("expire() of a session")

    def rebalance(self, group: str) -> NoReturn:
        raise real_only("rebalance()")

    def redeliver(self, group: str, *which: object) -> NoReturn:
        raise real_only("redeliver()")

    def reorder(self) -> NoReturn:
        raise real_only("reorder()")

    # -- ending ----------------------------------------------------------------------------------

    def stop_all(self) -> Callable[[float], None]:
        """Start to stop all instances, and return a function that waits until they have stopped.

        The function takes the maximum number of seconds to wait.
        """
        with self._lock:
            members, self._instances = list(self._instances.values()), {}
        for member in members:
            member.stop()

        def join(seconds: float) -> None:
            until = monotonic() + seconds
            for member in members:
                member.join(max(0.0, until - monotonic()))

        return join

    def forget(self) -> list[str]:
        with self._lock:
            groups, self._groups = [self._topics.real(name) for name in self._groups], set()
        return groups


def _member(topics: KafkaTopics, name: str, member: KafkaInstance) -> MemberView:
    delivered = {_own(topics, tp): at for tp, at in member.delivered().items()}
    return MemberView(
        name,
        member.state if member.state in ("active", "expired") else "joining",
        tuple(topics.shown(topic) for topic in member.topics),
        [_own(topics, tp) for tp in sorted(member.assigned)],
        dict(delivered),
        delivered,
        member.config,
    )


def _own(topics: KafkaTopics, tp: tuple[str, int]) -> TopicPartition:
    return TopicPartition(topics.shown(tp[0]), tp[1])


def _lag(
    topics: KafkaTopics,
    members: Mapping[str, KafkaInstance],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    read = {tp.topic for tp in committed}
    for member in members.values():
        read |= {topics.shown(topic) for topic in member.topics}
    lag = {}
    for topic in sorted(read):
        starts, ends = topics.bounds(topic)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            tp = TopicPartition(topic, number)
            lag[tp] = max(0, end - max(committed.get(tp, start), start))
    return lag
