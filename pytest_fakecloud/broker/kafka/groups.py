"""Consumer groups on a real cluster, and their instances in this process.

A record counts as delivered when a consume request returns it, not when librdkafka reads it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException

from ...core.timekeeper import Timekeeper
from ...core.timers import monotonic
from .. import errors
from ..engine.groups import check_instance_limit
from ..engine.state import GroupListener, Waits, by_topic, commit_event
from ..errors import BrokerError
from ..model import (
    NO_OFFSET,
    Assignments,
    ConsumerConfig,
    ConsumeRequest,
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
from .cluster import unsupported
from .instance import KafkaInstance, Partition
from .topics import KafkaRecords


class KafkaGroups:
    """The consumer instances in this process, and requests to their groups.

    The methods are those of ``MemoryGroups``; actions that a cluster cannot perform raise
    ``ContractError``. A call for an instance also waits for earlier calls for the instance.
    """

    def __init__(self, records: KafkaRecords, clock: Timekeeper, waits: Waits) -> None:
        self.add_event: GroupListener = lambda *event, **details: None
        self._records = records
        self._topics = topics = records.topics
        self.cluster = topics.cluster
        self._names = topics.cluster.names
        self.settings = topics.settings
        self.clock = clock
        self._waits = waits
        self._lock = threading.Lock()
        self._instances: dict[tuple[str, str], KafkaInstance] = {}
        self._used: set[str] = set()
        """The groups that have been used. They are deleted when the fake is closed."""

    # -- consuming -------------------------------------------------------------------------------

    def consume(self, request: ConsumeRequest) -> list[Record]:
        until = self.clock.now_us() + request.timeout_ms * 1000
        with self._subscribed(request) as member:
            if member is None:
                return []
            return [self._records.record(message) for message in self._next(member, until)]

    def join(self, request: ConsumeRequest) -> None:
        with self._subscribed(request):
            pass

    @contextmanager
    def _subscribed(self, request: ConsumeRequest) -> Iterator[KafkaInstance | None]:
        """Yield a subscribed instance, or None if another request has it until the timeout."""
        for topic in request.topics:
            self._topics.check(topic)
        member = self._enter(request.group, request.instance, request.headers)
        if not member.consume_lock.acquire(timeout=request.timeout_ms / 1000):
            yield None
            return
        try:
            member.subscribe([self._names.real(topic) for topic in sorted(set(request.topics))])
            yield member
        finally:
            member.consume_lock.release()

    def _enter(self, group: str, instance: str, headers: Mapping[str, str]) -> KafkaInstance:
        with self._lock:
            member = self._instances.get((group, instance))
            if member is None:
                config = consumer_config(
                    headers, session_timeout_ms=self.settings.session_timeout_ms
                )
                live = [name for name, _ in self._instances]
                scope = self.settings.instance_limit
                check_instance_limit(scope, group, live, self._topics.known.values())
                given = self._client_settings(group, instance, config)
                try:
                    member = KafkaInstance(self, group, instance, config, given)
                except KafkaException as error:
                    text = self._names.public(str(error))
                    raise errors.illegal_argument(
                        f"The Kafka client rejects the configuration: {text}"
                    ) from None
                self._instances[group, instance] = member
                self._used.add(group)
            return member

    def _client_settings(self, group: str, instance: str, config: ConsumerConfig) -> dict[str, Any]:
        reset = "error" if config.auto_offset_reset == "none" else config.auto_offset_reset
        settings: dict[str, Any] = {
            "group.id": self._names.real(group),
            "partition.assignment.strategy": "range",
            "enable.auto.commit": config.auto_commit,
            # 0 means never in librdkafka, but as often as possible in the Java client.
            "auto.commit.interval.ms": max(1, config.auto_commit_interval_ms),
            "enable.auto.offset.store": False,
            "auto.offset.reset": reset,
            "session.timeout.ms": config.session_timeout_ms,
            "max.poll.interval.ms": max(300_000, config.session_timeout_ms),
            "fetch.wait.max.ms": 500,
        }
        if self.cluster.address.static:
            settings["group.instance.id"] = instance
        return self.cluster.address.settings(settings)

    def remove(self, member: KafkaInstance) -> None:
        with self._lock:
            if self._instances.get((member.group, member.name)) is member:
                del self._instances[member.group, member.name]

    def _next(self, member: KafkaInstance, until: int) -> list[Any]:
        epoch = (self._waits.epoch, member.epoch)

        def poll() -> list[Any] | None:
            if epoch != (self._waits.epoch, member.epoch) or member.stopped:
                return []
            if member.in_doubt:
                self._check_cluster(member)
            most, most_bytes = self.settings.max_poll_records, self.settings.max_partition_bytes
            return member.take(most, most_bytes) or None

        self._waits.waiting.append(member.signal)
        try:
            return self.clock.wait(member.signal, poll, until) or []
        finally:
            self._waits.waiting.remove(member.signal)

    def _check_cluster(self, member: KafkaInstance) -> None:
        """Raise ``BrokerError`` if an instance lost its connections to an unavailable cluster."""
        # Clear the flag first, so that a connection that is lost during the check sets it again.
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
            raise self._unknown_instance(group, instance)
        member.stop()
        member.join(self.cluster.address.timeout)

    def _unknown_instance(self, group: str, instance: str) -> BrokerError:
        known: dict[str, list[str]] = {name: [] for name in self.names()}
        with self._lock:
            for name, each in self._instances:
                known.setdefault(name, []).append(each)
        return errors.unknown_instance(group, instance, known)

    # -- committing ------------------------------------------------------------------------------

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        wanted = distinct_positions(offsets)
        for topic, partition, _ in wanted:
            self._topics.check_partition(topic, partition)
        real = self._real(wanted)
        with self._lock:
            member = self._instances.get((group, instance))
        if member is None:
            raise self._unknown_instance(group, instance)
        if member.state == "expired":
            raise errors.unknown_member(group, instance)
        if member.state == "rebalancing":
            raise errors.rebalance_in_progress(group)
        real = real or member.buffer.delivered
        if not real:
            return
        if member.state == "joining":
            self._store(group, real)
        else:
            assigned = member.buffer.assigned
            for topic, partition in real:
                if (topic, partition) not in assigned:
                    raise errors.not_assigned(group, instance, self._names.shown(topic), partition)
            member.commit(real, self.cluster.address.timeout)
        member.resume_after_commit(real)
        self.report_commit(group, instance, real)

    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        """Set a group's committed offset. The cluster rejects this while the group has members."""
        self._topics.check_partition(offset.topic, offset.partition)
        real = self._real([offset])
        self._store(group, real)
        self.report_commit(group, "the test", real, "offsets set")

    def store(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Restore a group's committed offsets, without an event."""
        self._store(group, {(self._names.real(t), n): at for (t, n), at in offsets.items()})

    def _real(self, offsets: Sequence[TopicPartitionOffset]) -> dict[Partition, int]:
        return {(self._names.real(topic), number): at for topic, number, at in offsets}

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        for tp in partitions:
            self._topics.check_partition(*tp)
        found = self.all_committed(group)
        if not found and not self.members(group):
            raise errors.unknown_group(group, self.names())
        return [TopicPartitionOffset(*tp, found.get(tp, NO_OFFSET)) for tp in partitions]

    def _store(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets without being a member, which a group without members accepts."""
        if offsets:
            with self._lock:
                self._used.add(group)
            self.cluster.commit(self._names.real(group), offsets)

    def report_commit(
        self,
        group: str,
        instance: str,
        offsets: Mapping[Partition, int],
        kind: EventKind = "commit",
    ) -> None:
        if offsets:
            stored = [(*self._names.shown_partition(tp), at) for tp, at in offsets.items()]
            text, data = commit_event(kind, group, instance, stored)
            self.add_event(kind, text, **data)

    def all_committed(self, group: str) -> dict[TopicPartition, int]:
        """Return all offsets that a group has committed in the fake's topics."""
        own = [
            (self._names.real(name), number)
            for name, count in self._topics.counts().items()
            for number in range(count)
        ]
        found = self.cluster.group_offsets(self._names.real(group), own) if own else {}
        return {self._names.shown_partition(tp): at for tp, at in found.items()}

    # -- lookups ---------------------------------------------------------------------------------

    def consumers(self) -> Assignments:
        with self._lock:
            instances = dict(self._instances)
        found: Assignments = {}
        for (group, name), member in sorted(instances.items()):
            assigned = map(self._names.shown_partition, sorted(member.buffer.assigned))
            found.setdefault(group, {})[name] = by_topic(assigned)
        return found

    def describe(self, name: str) -> GroupDescription:
        members, committed, known = self.members(name), self.all_committed(name), self.names()
        if not members and not committed and name not in known:
            raise errors.unknown_group(name, known)
        views = found_members(self._view(each, members[each]) for each in sorted(members))
        if any(member.state in ("joining", "rebalancing") for member in members.values()):
            state = "PreparingRebalance"
        else:
            state = "Stable" if members else "Empty"
        return GroupDescription(
            name,
            state,
            # An approximation: the number of revocations in this process.
            sum(member.epoch for member in members.values()),
            views,
            {view.name: view.assignment for view in views},
            dict(sorted(committed.items())),
            {tp: at for view in views for tp, at in view.position.items()},
            self._lag(views, committed),
        )

    def _view(self, name: str, member: KafkaInstance) -> MemberView:
        shown = self._names.shown_partition
        delivered = {shown(tp): at for tp, at in member.buffer.delivered.items()}
        return MemberView(
            name,
            member.state if member.state in ("active", "expired") else "joining",
            tuple(self._names.shown(topic) for topic in member.topics),
            [shown(tp) for tp in sorted(member.buffer.assigned)],
            dict(delivered),
            delivered,
            member.config,
        )

    def _lag(
        self, members: Iterable[MemberView], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        read = {tp.topic for tp in committed}
        read.update(topic for member in members for topic in member.topics)
        lag = {}
        for topic in sorted(read):
            for number, (start, end) in enumerate(self._topics.bounds(topic)):
                tp = TopicPartition(topic, number)
                lag[tp] = max(0, end - max(committed.get(tp, start), start))
        return lag

    def members(self, group: str) -> dict[str, KafkaInstance]:
        with self._lock:
            return {name: member for (g, name), member in self._instances.items() if g == group}

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._used)

    # Actions of tests that only the in-memory engine can perform.
    crash = unsupported("crash() of an instance")
    expire = unsupported("expire() of a session")
    rebalance = unsupported("rebalance()")
    redeliver = unsupported("redeliver()")

    # -- ending ----------------------------------------------------------------------------------

    def forget(self) -> list[str]:
        """Forget the groups that have been used; return their names on the cluster."""
        with self._lock:
            groups, self._used = [self._names.real(name) for name in self._used], set()
        return groups

    def stop_all(self) -> Callable[[float], None]:
        """Start to stop all instances; return a function that waits for that, up to a timeout."""
        with self._lock:
            members, self._instances = list(self._instances.values()), {}
        for member in members:
            member.stop()

        def join(seconds: float) -> None:
            until = monotonic() + seconds
            for member in members:
                member.join(max(0.0, until - monotonic()))

        return join
