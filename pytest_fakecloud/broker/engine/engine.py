"""The broker engine in memory.

Sources: the vendor's API specification for the operations and their defaults; Kafka's Java client
for partitioning, range assignment, resets and commits. All other behaviour is decided here.
``BrokerConfig`` lists the behaviour that settings can change. The following cannot be changed:

- Retention removes single records (Kafka removes whole segments). It is applied whenever a log is read.
- A string that is not valid Unicode (a lone surrogate in JSON) is stored with ``?`` instead, as by
  Java's encoder.
- ``CompletingRebalance`` takes no time, so a group is never in that state.
- A commit after a rebalance is checked against the current owner of the partition, because callers
  send no generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Unpack

from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.settings import optional, whole
from ...core.timekeeper import Timekeeper
from ...core.timeparse import monotonic
from ...core.timers import Lane, Signal, Timer
from ...core.wording import counted, unknown_name
from .. import errors
from ..errors import string
from ..model import (
    INT64_MAX,
    GroupAssignments,
    GroupView,
    Metadata,
    ProducerRecord,
    Record,
    TopicOptions,
    TopicPartition,
    TopicPartitionOffset,
    TopicView,
)
from ..settings import BrokerConfig
from .groups.commits import Commits
from .groups.coordinator import Coordinator
from .groups.delivery import GroupDelivery
from .groups.members import ConsumerGroup, Instance
from .groups.table import GroupTable
from .guard import GroupListener, Guard
from .log import PartitionLog, Topic
from .placement import Placement
from .quota import BrokerQuota
from .views import group_view, topic_view

T = TypeVar("T")
_STATE: tuple[Lane, ...] = ("state",)
_AGAIN: Any = object()
_LONGEST_SLEEP = 3600.0
"""Maximum duration of a single sleep, in seconds. Every platform supports this value."""
MOST_PARTITIONS = 100_000
"""Maximum number of partitions in a topic. A larger number can only be a mistake and would exhaust
the memory.
"""


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """All topics and groups at a point in time."""

    topics: list[Topic]
    groups: Any
    partial: list[int]


class MemoryEngine:
    """A broker in memory. It is thread-safe, and its waiting calls wait on the fake clock.

    ``tell`` is called with each event of a group while no lock is held.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        settings: BrokerConfig | None = None,
        *,
        name: str = "broker",
        tell: GroupListener | None = None,
    ) -> None:
        self.settings = settings or BrokerConfig()
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._placement = Placement(
            self._topics, self.settings, ids.stream(name, "keyless partitions")
        )
        self._quota = BrokerQuota(self.settings.limits)
        self._partial: list[int] = []
        self._waiting: list[Signal] = []
        self._epoch = 0
        self._closed = False
        self.table = GroupTable(self._topics, self.settings, clock, self._call_at)
        self._guard = Guard(self.table, clock, tell)
        self.commits = Commits(self.table)
        self.delivery = GroupDelivery(self.table, self.commits, ids.stream(name, "interleaving"))
        self.groups = Coordinator(self.table, self.commits, self.delivery)

    # -- topics ----------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **options: Unpack[TopicOptions]) -> None:
        """Create a topic. Its retention and message size limit default to those of the plan.

        Raises ``ContractError`` for an invalid name, an existing topic, and numbers out of range.
        """
        topic = self._new_topic(name, partitions, **options)
        with self.locked() as now:
            if name in self._topics:
                raise ContractError(
                    f"topic {name!r} already exists; add_partitions() adds partitions to it"
                )
            self._check_partition_limit(partitions)
            self._topics[name] = topic
            self.groups.created(name, now)

    def _new_topic(
        self,
        name: str,
        partitions: int,
        *,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        max_message_bytes: int | None = None,
        first_offset: int = 0,
    ) -> Topic:
        """Return a new topic that is not part of the broker yet.

        Raises ``ContractError`` for invalid arguments.
        """
        limits = self.settings.limits
        string("a topic's name", name)
        if not errors.can_name_a_topic(name):
            raise ContractError(str(errors.invalid_topic(name)))
        whole(1, MOST_PARTITIONS).read("partitions", partitions, f"topic {name!r}")
        optional(whole(0)).read("retention_bytes", retention_bytes)
        optional(whole(1)).read("max_message_bytes", max_message_bytes)
        whole(0, INT64_MAX).read("first_offset", first_offset)
        return Topic(
            name,
            partitions,
            retention_ms=limits.retention_ms if retention_ms is None else retention_ms,
            retention_bytes=limits.retention_bytes if retention_bytes is None else retention_bytes,
            max_message_bytes=max_message_bytes or limits.max_message_bytes,
            first_offset=first_offset,
        )

    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create missing topics and append the test's messages. If an error is raised, nothing has
        changed.

        ``topics`` maps names to numbers of partitions; an existing topic keeps its partitions.
        Raises ``ContractError`` like ``create_topic()`` and ``BrokerError`` like ``produce()``.
        """
        with self.locked() as now_us:
            made = {
                name: self._new_topic(name, count)
                for name, count in topics.items()
                if name not in self._topics
            }
            self._check_partition_limit(sum(len(topic.logs) for topic in made.values()))
            self._topics.update(made)
            try:
                self._append(messages, now_us, by_client=False)
            except errors.BrokerError:
                for name in made:
                    del self._topics[name]
                raise
            for name in made:
                self.groups.created(name, now_us)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and committed offsets. Groups that consume it rebalance.

        Raises ``BrokerError`` for an unknown topic.
        """
        with self.locked() as now:
            topic = self.table.topic(name, now)
            self.table.woken.update(*(log.watchers for log in topic.logs))
            del self._topics[name]
            self.groups.deleted(name, now)

    def add_partitions(self, name: str, count: int) -> int:
        """Add partitions to a topic and return the new partition count.

        Groups that consume the topic rebalance. As in Kafka, keys may map to other partitions
        afterwards.
        """
        whole(1, MOST_PARTITIONS).read("count", count, "add_partitions()")
        with self.locked() as now:
            topic = self.table.topic(name, now)
            self._check_partition_limit(count)
            have = len(topic.logs)
            self.table.woken.update(*(log.watchers for log in topic.logs))
            topic.logs += [PartitionLog(name, have + number) for number in range(count)]
            self.groups.grew(name, now)
            return len(topic.logs)

    def set_retention(
        self, name: str, *, retention_ms: int | None, retention_bytes: int | None
    ) -> None:
        """Set a topic's retention; None means no limit."""
        optional(whole(0)).read("retention_bytes", retention_bytes)
        with self.locked() as now:
            topic = self.table.topic(name, now)
            topic.retention_ms = retention_ms
            topic.retention_bytes = retention_bytes
            topic.retain(now // 1000)

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        """Delete the records below an offset in one partition or in all of them; return their
        number.
        """
        with self.locked() as now:
            logs = (
                self.table.topic(name, now).logs
                if partition is None
                else [self.table.partition(name, partition, now)]
            )
            return sum(log.trim(before) for log in logs)

    def _check_partition_limit(self, more: int) -> None:
        limit = self.settings.limits.max_partitions
        have = sum(len(topic.logs) for topic in self._topics.values())
        if limit is not None and have + more > limit:
            raise ContractError(
                f"the plan allows {limit} partitions: {have} exist, and {more} more were requested"
            )

    # -- producing -------------------------------------------------------------------------------

    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        """Append messages and return their positions in request order.

        All messages are checked before any is appended. ``by_client`` is False for messages of the
        test, which do not count towards the plan's limits. Raises ``BrokerError`` for unknown
        topics and partitions, messages that are too large, negative timestamps, and a plan that is
        used up.
        """
        with self.locked() as now_us:
            error: errors.BrokerError | None = None
            if by_client and self._partial and self._partial[0] < len(messages):
                failing = self._partial.pop(0)
                messages = messages[:failing]
                error = errors.BrokerError(
                    "not_enough_replicas",
                    "Not enough in-sync replicas after appending "
                    f"{counted(failing, 'message')} of the batch",
                )
            places, problem = self._append(messages, now_us, by_client=by_client)
            error = problem or error
        if error is not None:
            raise error
        return places

    def _append(
        self, messages: Sequence[ProducerRecord], now_us: int, *, by_client: bool
    ) -> tuple[list[Metadata], errors.BrokerError | None]:
        """Append messages; return their positions, and the first error if not all were appended.

        Raises the error if no message was appended. With the ``"in order"`` setting, a part of a
        client's batch can be appended. Batches of the test are appended completely or not at all.
        """
        whole_batch = not by_client or self.settings.batches == "atomic"
        places, columns, problem = self._placement.plan(messages, now_us // 1000, whole=whole_batch)
        if problem is not None and (whole_batch or not places):
            raise problem
        if by_client:
            self._quota.take(
                len(places), sum(sum(c[4]) for c in columns.values()), self._stored, now_us
            )
        woken = self.table.woken
        for log, (timestamps, keys, values, headers, sizes) in columns.items():
            log.append(timestamps, keys, values, headers, sizes, by_client=by_client)
            woken |= log.watchers
        for name in {log.topic for log in columns}:
            topic = self._topics[name]
            topic.retain(now_us // 1000)
        return places, problem

    def _stored(self) -> int:
        return sum(log.size for topic in self._topics.values() for log in topic.logs)

    def fail_batches(self, keep: int, times: int) -> None:
        """Make the next ``times`` client batches of more than ``keep`` messages fail.

        The first ``keep`` messages of each such batch are appended.
        """
        with self.locked():
            self._partial += [keep] * times

    # -- reading without a group -----------------------------------------------------------------

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Return the records from each position on; wait until there is at least one record.

        Returns at most ``max_partition_bytes`` per position, and ``[]`` at the timeout. Raises
        ``BrokerError`` for unknown topics and partitions, for offsets outside the log, and if one
        partition is given with two offsets.
        """
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        wanted = distinct_positions(positions)
        signal = self._clock.signal()
        with self.locked() as now:
            epoch = self._epoch
            found = self._read(wanted, now)
            if found or not timeout_ms or not wanted:
                return found
            logs = [self.table.partition(topic, partition, now) for topic, partition, _ in wanted]
            for log in logs:
                log.watchers.add(signal)

        def poll() -> list[Record] | None:
            with self.locked() as now:
                if self._epoch != epoch:
                    return []
                return self._read(wanted, now) or None

        try:
            return self._wait(signal, poll, timeout_ms) or []
        finally:
            with self.locked():
                for log in logs:
                    log.watchers.discard(signal)

    def _read(self, wanted: Sequence[TopicPartitionOffset], now: int) -> list[Record]:
        parts: list[list[Record]] = []
        for topic, partition, offset in wanted:
            log = self.table.partition(topic, partition, now)
            beyond = offset > log.end
            if offset < log.start or (beyond and self.settings.fetch_beyond_end == "error"):
                raise errors.out_of_range(topic, partition, offset, log.start, log.end)
            if offset < log.end:
                parts.append(log.read(offset, None, self.settings.max_partition_bytes))
        if self.settings.fetch_single_topic and parts:
            first = parts[0][0].topic
            parts = [part for part in parts if part[0].topic == first]
        return [record for part in parts for record in part]

    def offsets(
        self,
        at: int | Literal["earliest", "latest"],
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """Return one offset for each partition, in request order.

        ``at`` is ``"earliest"`` or ``"latest"`` for the start or end of the log, or a time in ms
        for the first record at or after it.
        """
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        found = []
        with self.locked() as now:
            for tp in partitions:
                log = self.table.partition(*tp, now)
                if at == "earliest":
                    offset: int | None = log.start
                elif at == "latest":
                    offset = log.end
                else:
                    offset = log.offset_at(at)
                found.append(
                    TopicPartitionOffset(
                        *tp, self.settings.no_such_time if offset is None else offset
                    )
                )
        return found

    def topics(self) -> dict[str, int]:
        """Return partition counts by topic name."""
        with self.locked():
            return {name: len(topic.logs) for name, topic in self._topics.items()}

    # -- reading with a group --------------------------------------------------------------------

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
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        coordinator = self.groups
        turn = object()
        with self.locked() as now:
            at, member = coordinator.enter(group, instance, topics, headers, now)
            if member.consuming and self.settings.concurrent_consume == "error":
                raise errors.concurrent_consume(group, instance)
            member.consuming += 1
            seen = (self._epoch, member.epoch)
            try:
                found = self._poll_member(at, member, turn, seen, now)
            except errors.BrokerError:
                coordinator.finish(at, member, turn, now)
                raise
            if found is not None or not timeout_ms:
                coordinator.finish(at, member, turn, now)
                return found or []

        def poll() -> list[Record] | None:
            with self.locked() as now:
                return self._poll_member(at, member, turn, seen, now)

        try:
            return self._wait(member.signal, poll, timeout_ms) or []
        finally:
            with self.locked() as now:
                coordinator.finish(at, member, turn, now)

    def _poll_member(
        self, group: ConsumerGroup, member: Instance, turn: object, seen: tuple[int, int], now: int
    ) -> list[Record] | None:
        if seen != (self._epoch, member.epoch):
            return []
        if member.holder is not None and member.holder is not turn:
            return None
        member.holder = turn
        return self.delivery.take(group, member, now)

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Commit the given offsets or, if there are none, those of the records last delivered to
        the instance.
        """
        wanted = distinct_positions(offsets)
        with self.locked() as now:
            self.commits.commit(group, instance, wanted, now)

    def delete_consumer(self, group: str, instance: str) -> None:
        """Stop an instance cleanly and remove it from its group."""
        with self.locked() as now:
            self.groups.delete(group, instance, now)

    def consumers(self) -> list[GroupAssignments]:
        """Return the groups that have live instances, sorted by name."""
        with self.locked():
            return self.groups.assignments()

    def committed(
        self,
        group: str,
        instance: str,
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """Return a group's committed offsets in request order. The instance need not exist."""
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        with self.locked() as now:
            return self.commits.committed(group, partitions, now)

    # -- actions of tests ------------------------------------------------------------------------

    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        """Set a group's committed offset, even if an instance owns the partition.

        Creates the group if necessary.
        """
        with self.locked() as now:
            self.table.partition(offset.topic, offset.partition, now)
            self.commits.set_by_test(group, offset, now)

    def join(
        self, group: str, instance: str, topics: Sequence[str], auto_offset_reset: str = "latest"
    ) -> None:
        """Add an instance to a group without a client's request. It is closed when idle, like any
        other.
        """
        with self.locked() as now:
            headers = {"auto-offset-reset": auto_offset_reset}
            at, member = self.groups.enter(group, instance, topics, headers, now)
            member.consuming += 1
            self.groups.finish(at, member, None, now)

    def crash(self, group: str, instance: str) -> None:
        """Simulate the crash of an instance, which neither commits nor leaves its group."""
        with self.locked() as now:
            self.groups.crash(group, instance, now)

    def expire(self, group: str, instance: str) -> None:
        """End an instance's session immediately."""
        with self.locked() as now:
            self.groups.expire(group, instance, now)

    def rebalance(self, group: str) -> None:
        """Make a group rebalance; raise ``ContractError`` for an unknown group."""
        with self.locked() as now:
            self.groups.rebalance(self._known_group(group), "the test asked for it", now)

    def redeliver(
        self, group: str, last: int, topic: str | None, partition: int | None
    ) -> list[Record]:
        """Deliver a group's last records again, and return them by partition.

        Raises ``ContractError`` for an unknown group.
        """
        with self.locked() as now:
            found = self._known_group(group)
            if topic is not None:
                self.table.partition(topic, partition or 0, now)
            before = {tp: after for tp, _, after in found.deliveries}
            moved = self.commits.redeliver(
                found,
                last,
                lambda tp: topic in (None, tp.topic) and partition in (None, tp.partition),
                now,
            )
            records: list[Record] = []
            for name, number, offset in moved:
                log = self.table.partition(name, number, now)
                end = before[TopicPartition(name, number)]
                records += [record for record in log.read(offset) if record.offset < end]
        return records

    def _known_group(self, name: str) -> ConsumerGroup:
        found = self.table.groups.get(name)
        if found is None:
            raise ContractError(unknown_name("group", name, sorted(self.table.groups)))
        return found

    @contextmanager
    def reorder(self) -> Iterator[None]:
        """Mix the records of different partitions in seeded random order during a ``with`` block."""
        delivery = self.delivery
        before, delivery.random_interleave = delivery.random_interleave, True
        try:
            yield
        finally:
            delivery.random_interleave = before

    # -- views for tests -------------------------------------------------------------------------

    def topic_view(self, name: str) -> TopicView:
        """Return the current state of a topic."""
        with self.locked() as now:
            return topic_view(self.table.topic(name, now))

    def group_view(self, name: str) -> GroupView:
        """Return the current state of a group, which is ``Dead`` if the group does not exist."""
        with self.locked():
            return group_view(name, self.table.groups.get(name), self.table.topics)

    def group_names(self) -> list[str]:
        """Return the groups that have members or committed offsets, sorted."""
        with self.locked():
            return sorted(self.table.groups)

    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        """Return a topic's records in two lists: those produced by clients and those of the test."""
        with self.locked() as now:
            logs = self.table.topic(topic, now).logs
            return (
                [record for log in logs for record in log.records(by_client=True)],
                [record for log in logs for record in log.records(by_client=False)],
            )

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        """Call ``look`` whenever a topic changes, and return its first result that is not None.

        Returns None after ``seconds`` of wall-clock time.
        """
        signal = self._clock.signal()
        watched: list[PartitionLog] = []
        until = monotonic() + seconds
        self._waiting.append(signal)
        try:
            while True:
                version = signal.version
                with self.locked() as now:
                    # Watch the logs again after each change, because partitions may have been
                    # added, and a restore replaces all logs.
                    watched = list(self.table.topic(topic, now).logs)
                    for log in watched:
                        log.watchers.add(signal)
                found = look()
                left = until - monotonic()
                if found is not None or left <= 0:
                    return found
                signal.sleep(version, min(left, _LONGEST_SLEEP))
        finally:
            self._waiting.remove(signal)
            with self.locked():
                for log in watched:
                    log.watchers.discard(signal)

    # -- waiting ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Signal]:
        """The signals of the waiting calls. Concurrent calls for one instance share a signal."""
        return self._waiting

    def _wait(self, signal: Signal, poll: Callable[[], T | None], timeout_ms: int) -> T | None:
        clock = self._clock
        deadline = clock.now_us() + timeout_ms * 1000
        self._waiting.append(signal)
        try:
            while not self._closed:
                # Wake up when the next timer is due, too. With a running clock, there may be no
                # other thread that fires a timer which changes a group.
                until = self._next_change(deadline)

                def look(until: int = until) -> T | None:
                    found = poll()
                    return (
                        _AGAIN if found is None and self._next_change(deadline) < until else found
                    )

                found = clock.wait(signal, look, until)
                if found is _AGAIN:
                    continue
                if found is not None or until == deadline or clock.now_us() < until:
                    return found
                clock.settle()
            return None
        finally:
            self._waiting.remove(signal)

    def _next_change(self, deadline: int) -> int:
        due = None if self._clock.driving else self._clock.next_due_us(_STATE)
        return deadline if due is None else min(due, deadline)

    def interrupt(self) -> None:
        """Make every waiting call return an empty result immediately."""
        with self.locked():
            self._epoch += 1
            self.table.woken.update(self._waiting)

    def close(self) -> None:
        """Make current and future waiting calls return immediately."""
        self._closed = True
        self.interrupt()

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> BrokerSnapshot:
        """Return a copy of all topics and groups."""
        with self.locked() as now:
            return BrokerSnapshot(
                [topic.copy() for topic in self._topics.values()],
                self.groups.copy_groups(now),
                list(self._partial),
            )

    def restore(self, snapshot: BrokerSnapshot) -> None:
        """Restore a copy. Waiting calls return an empty result, and timers keep their remaining
        time.

        Raises ``ContractError`` for a copy of a real cluster's data.
        """
        if not isinstance(snapshot, BrokerSnapshot):
            raise ContractError(
                "the snapshot is from a real cluster: pass its records to load() instead"
            )
        with self.locked() as now:
            self._epoch += 1
            self.table.woken.update(self._waiting)
            self._topics.clear()
            self._topics.update({topic.name: topic.copy() for topic in snapshot.topics})
            self._partial[:] = snapshot.partial
            self._quota.reset()
            self.groups.restore_groups(snapshot.groups, now)

    # -- locking ---------------------------------------------------------------------------------

    def tell_to(self, tell: GroupListener) -> None:
        """Set the callback for events of groups."""
        self._guard.tell = tell

    def locked(self) -> Guard:
        """Return the engine's lock for a ``with`` block, which yields the current time in
        microseconds.

        Events are reported and waiting calls are woken after the lock is released.
        """
        return self._guard

    def _call_at(self, due_us: int, callback: Callable[[int], None], label: str) -> Timer:
        def fire(at_us: int) -> None:
            with self.locked():
                callback(at_us)

        return self._clock.call_at(due_us, fire, lane="state", label=label)


def distinct_positions(positions: Sequence[TopicPartitionOffset]) -> list[TopicPartitionOffset]:
    """Return the positions without duplicates.

    Raises ``BrokerError`` if a partition has two different offsets.
    """
    found: dict[TopicPartition, int] = {}
    for topic, partition, offset in positions:
        tp = TopicPartition(topic, partition)
        if found.setdefault(tp, offset) != offset:
            raise errors.BrokerError(
                "conflicting_offsets",
                f"Partition {topic}-{partition} is given twice with different offsets: "
                f"{found[tp]} and {offset}",
            )
    return [TopicPartitionOffset(*tp, offset) for tp, offset in found.items()]
