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
- A batch with an invalid message appends no messages. Messages without a key use the partitions in
  turn, a new one for each request. ``""`` is a key like any other.
- A fetch beyond the end of a log fails. ``/committed`` and ``/offsets`` return -1 if nothing was
  committed, or no record is at or after the time. Both a commit by an unknown instance and
  ``/committed`` of an unknown group are rejected.
- Sessions are kept alive in the background. A consume request with other topics changes the
  subscription, a second one on a busy instance waits, and delete-consumer removes the instance
  immediately.

``state`` contains topics and groups behind one lock, ``log`` the records of a partition, and the
positions of new ones. ``groups`` reads and commits records for the members of consumer groups. This
module contains what concerns topics, appending, and reading without a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from ...core.clock import Timekeeper
from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.settings import optional, whole
from ...core.timers import monotonic
from .. import errors
from ..errors import BrokerError, string
from ..model import (
    INT64_MAX,
    NO_OFFSET,
    Metadata,
    ProducerRecord,
    Record,
    TopicConfig,
    TopicPartition,
    TopicPartitionOffset,
    distinct_positions,
)
from ..settings import BrokerConfig, BrokerLimits
from .groups import MemoryGroups
from .log import PartitionLog, ProducePlan, Topic, plan_of, take_turns
from .state import BrokerState, ClockWaits, GroupCopy, GroupListener

T = TypeVar("T")
MOST_PARTITIONS = 100_000
"""Maximum number of partitions in a topic; a larger number could exhaust the memory."""
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_NAP_SECONDS = 0.05
"""Seconds after which a sleeping wait looks again whether its task was cancelled."""


class BrokerSnapshot(NamedTuple):
    """A copy of all topics and groups."""

    topics: list[Topic]
    groups: list[GroupCopy]


class MemoryEngine:
    """A broker in memory. It is thread-safe, and its waiting calls wait on the fake clock."""

    def __init__(self, clock: Timekeeper, ids: Ids, settings: BrokerConfig, name: str) -> None:
        self.settings = settings
        self.state = state = BrokerState(settings, clock)
        self._waits = ClockWaits(clock)
        self.interrupt = self._waits.interrupt
        self.groups = MemoryGroups(state, self._waits, ids.stream(name, "interleaving"))
        self.topics = MemoryTopics(state, self.groups.rebalance_subscribers)
        self.records = MemoryRecords(state, self._waits)

    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create the missing topics and append the messages of the test, or change nothing."""
        with self.state, self.state.lock:
            created = {
                name: self.topics.new(name, TopicConfig(count))
                for name, count in topics.items()
                if name not in self.state.topics
            }
            self.topics.check_limit(sum(len(topic.logs) for topic in created.values()))
            try:
                self.state.topics.update(created)
                plan = self.records.add(messages, by_client=False)
            except BaseException:
                # The messages are invalid, or a signal's handler has interrupted it.
                for name in created:
                    self.state.topics.pop(name, None)
                raise
            self.records.retain(plan)
            for name in created:
                self.groups.rebalance_subscribers(name, f"{name} was created")

    def close(self) -> None:
        """End all waiting calls, stop all timers, and forget the instances of the groups."""
        self._waits.close()
        with self.state, self.state.lock:
            self.groups.stop()

    def snapshot(self) -> BrokerSnapshot:
        with self.state, self.state.lock:
            return BrokerSnapshot(
                [topic.copy() for topic in self.state.topics.values()], self.groups.copies()
            )

    def restore(self, snapshot: BrokerSnapshot) -> None:
        """Restore a copy. Waiting calls return nothing, and timers keep their remaining time."""
        if not isinstance(snapshot, BrokerSnapshot):
            raise ContractError(
                "the snapshot is from a real cluster: pass its records to load() instead"
            )
        with self.state, self.state.lock:
            self._waits.interrupt()
            self.state.topics = {topic.name: topic.copy() for topic in snapshot.topics}
            self.records.quota.counts.clear()
            self.groups.restore(snapshot.groups)

    def set_listener(self, listener: GroupListener) -> None:
        """Call ``listener`` with each event of a group from now on, while no lock is held."""
        self.state.listener = listener


class MemoryTopics:
    """Creates, changes and deletes topics."""

    def __init__(
        self, state: BrokerState, rebalance_subscribers: Callable[[str, str], None]
    ) -> None:
        self._state = state
        self._rebalance_subscribers = rebalance_subscribers

    def create(self, name: str, config: TopicConfig) -> None:
        topic = self.new(name, config)
        with self._state, self._state.lock:
            if name in self._state.topics:
                raise topic_exists(name)
            self.check_limit(config.partitions)
            self._state.topics[name] = topic
            self._rebalance_subscribers(name, f"{name} was created")

    def new(self, name: str, config: TopicConfig) -> Topic:
        """Return a new topic that is not part of the broker yet."""
        limits = self._state.settings.limits
        config = checked_config(name, config, limits)
        whole(1, MOST_PARTITIONS).read("partitions", config.partitions, f"topic {name!r}")
        whole(0, INT64_MAX).read("first_offset", config.first_offset)
        return Topic(
            name=name,
            logs=[PartitionLog(name, n, config.first_offset) for n in range(config.partitions)],
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            max_message_bytes=config.max_message_bytes or limits.max_message_bytes,
        )

    def delete(self, name: str) -> None:
        with self._state, self._state.lock:
            topic = self._state.topic(name)
            self._state.woken.update(*(log.watchers for log in topic.logs))
            try:
                self._forget(name)
            except BaseException:
                # A signal's handler may have interrupted it, and groups would keep its partitions.
                self._forget(name)
                raise

    def _forget(self, name: str) -> None:
        self._state.topics.pop(name, None)
        for group in self._state.groups.values():
            group.forget(name)
        self._rebalance_subscribers(name, f"{name} was deleted")

    def add_partitions(self, name: str, count: int) -> int:
        """Add partitions. As in Kafka, keys may map to other partitions afterwards."""
        whole(1, MOST_PARTITIONS).read("count", count, "add_partitions()")
        with self._state, self._state.lock:
            topic = self._state.topic(name)
            self.check_limit(count)
            have = len(topic.logs)
            self._state.woken.update(*(log.watchers for log in topic.logs))
            topic.logs += [PartitionLog(name, have + number) for number in range(count)]
            self._rebalance_subscribers(name, f"{name} has more partitions")
            return len(topic.logs)

    def set_retention(
        self, name: str, *, retention_ms: int | None, retention_bytes: int | None
    ) -> None:
        optional(whole(0)).read("retention_bytes", retention_bytes)
        with self._state, self._state.lock:
            topic = self._state.topic(name)
            topic.retention_ms = retention_ms
            topic.retention_bytes = retention_bytes
            topic.retain(self._state.now_us // 1000)

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        with self._state, self._state.lock:
            logs = self._state.topic(name).logs
            if partition is not None:
                logs = [self._state.partition(name, partition)]
            return sum(log.trim(before) for log in logs)

    def check_limit(self, more: int) -> None:
        limit = self._state.settings.limits.max_partitions
        have = sum(len(topic.logs) for topic in self._state.topics.values())
        if limit is not None and have + more > limit:
            raise ContractError(
                f"the plan allows {limit} partitions: {have} exist, and {more} more were requested"
            )

    def check(self, name: str) -> int:
        """Return a topic's partition count; raise ``BrokerError`` if it does not exist."""
        with self._state, self._state.lock:
            return len(self._state.topic(name).logs)

    def bounds(self, name: str) -> list[tuple[int, int]]:
        """Return the start offset and the end offset of each of a topic's logs, by partition."""
        with self._state, self._state.lock:
            return [(log.start, log.end) for log in self._state.topic(name).logs]

    def counts(self) -> dict[str, int]:
        with self._state, self._state.lock:
            return {name: len(topic.logs) for name, topic in self._state.topics.items()}


def checked_config(name: str, config: TopicConfig, limits: BrokerLimits) -> TopicConfig:
    """Return a configuration, whose retention defaults to that of the plan.

    Raises ``ContractError`` unless a topic can have this name and these limits.
    """
    string("a topic's name", name)
    if not errors.can_name_a_topic(name):
        raise ContractError(str(errors.invalid_topic(name)))
    optional(whole(0)).read("retention_bytes", config.retention_bytes)
    optional(whole(1)).read("max_message_bytes", config.max_message_bytes)
    kept_ms, kept_bytes = config.retention_ms, config.retention_bytes
    return config._replace(
        retention_ms=limits.retention_ms if kept_ms is None else kept_ms,
        retention_bytes=limits.retention_bytes if kept_bytes is None else kept_bytes,
    )


def topic_exists(name: str) -> ContractError:
    return ContractError(f"topic {name!r} already exists; add_partitions() adds partitions to it")


class BrokerQuota:
    """Counts produced messages per second and per UTC day of the fake clock.

    The vendor does not document when these periods start. Whole seconds and UTC days are decided
    here.
    """

    def __init__(self, limits: BrokerLimits) -> None:
        self._windows = (
            (_SECOND_US, limits.messages_per_second, "second"),
            (_DAY_US, limits.messages_per_day, "day"),
        )
        self._storage = limits.storage_bytes
        self.counts: dict[tuple[str, int], int] = {}

    def take(self, messages: int, size: int, stored: Callable[[], int], now_us: int) -> None:
        """Count messages that are about to be appended.

        ``size`` is the total size of the messages in bytes, and ``stored`` returns the bytes stored
        so far. If the plan is used up, raises ``BrokerError`` (429) and counts nothing.
        """
        counts = {}
        for span, limit, name in self._windows:
            if limit is None:
                continue
            period = name, now_us // span
            used = self.counts.get(period, 0)
            if used + messages > limit:
                raise BrokerError(
                    "quota_exceeded",
                    f"Exceeded the plan's limit of {limit} messages per {name}: "
                    f"{used} were produced in this {name}, {messages} more were sent",
                )
            counts[period] = used + messages
        if self._storage is not None and stored() + size > self._storage:
            raise BrokerError(
                "quota_exceeded", f"Exceeded the plan's limit of {self._storage} bytes of storage"
            )
        self.counts = counts


class MemoryRecords:
    """Appends records, and reads records and offsets without a group."""

    def __init__(self, state: BrokerState, waits: ClockWaits) -> None:
        self._state = state
        self._waits = waits
        self.quota = BrokerQuota(state.settings.limits)

    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        """Append messages and return their positions in request order.

        ``by_client`` is False for messages of the test, which do not use up the plan. Raises
        ``BrokerError`` for invalid or too large messages, and for a plan that is used up.
        """
        with self._state, self._state.lock:
            return self.append(messages, by_client=by_client)

    def check(self, messages: Sequence[ProducerRecord]) -> None:
        """Raise ``BrokerError`` if a client's messages cannot be appended."""
        with self._state, self._state.lock:
            plan_of(self._state.topics, messages, 0)

    def append(self, messages: Sequence[ProducerRecord], *, by_client: bool) -> list[Metadata]:
        """Append messages and return their positions while the state is locked."""
        plan = self.add(messages, by_client=by_client)
        self.retain(plan)
        return plan.positions

    def add(self, messages: Sequence[ProducerRecord], *, by_client: bool) -> ProducePlan:
        """Append messages, all or none, without deleting those that are too old now."""
        now_us, topics = self._state.now_us, self._state.topics
        plan = plan_of(topics, messages, now_us // 1000)
        if by_client:
            size = sum(sum(columns.sizes) for columns in plan.columns.values())
            self.quota.take(len(plan.positions), size, self._stored, now_us)
        ends = {log: log.end for log in plan.columns}
        try:
            for log, columns in plan.columns.items():
                log.append(columns, by_client=by_client)
            take_turns(topics, plan)
            for log in ends:
                self._state.woken |= log.watchers
        except BaseException:
            # A signal's handler, such as that of pytest-timeout, may raise between two lists.
            for log, end in ends.items():
                log.cut(end)
            raise
        return plan

    def retain(self, plan: ProducePlan) -> None:
        """Delete records of the topics that a plan has appended to, as their retention says."""
        for name in {log.topic for log in plan.columns}:
            self._state.topics[name].retain(self._state.now_us // 1000)

    def _stored(self) -> int:
        return sum(log.size for topic in self._state.topics.values() for log in topic.logs)

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Return the records from each position on; wait until there is at least one record.

        Returns ``[]`` at the timeout. Raises ``BrokerError`` for positions outside the logs.
        """
        wanted = distinct_positions(positions)
        signal = self._state.clock.signal()
        with self._state, self._state.lock:
            epoch = self._waits.epoch
            records = self._read(wanted)
            if records or not timeout_ms or not wanted:
                return records
            logs = [self._state.partition(topic, partition) for topic, partition, _ in wanted]
            for log in logs:
                log.watchers.add(signal)

        def poll() -> list[Record] | None:
            with self._state, self._state.lock:
                if self._waits.epoch != epoch:
                    return []
                return self._read(wanted) or None

        try:
            return self._waits.wait(signal, poll, timeout_ms) or []
        finally:
            with self._state, self._state.lock:
                for log in logs:
                    log.watchers.discard(signal)

    def _read(self, wanted: Sequence[TopicPartitionOffset]) -> list[Record]:
        parts: list[list[Record]] = []
        for topic, partition, offset in wanted:
            log = self._state.partition(topic, partition)
            if not log.start <= offset <= log.end:
                raise errors.out_of_range(topic, partition, offset, log.start, log.end)
            if offset < log.end:
                parts.append(log.read(offset, None, self._state.settings.max_partition_bytes))
        if self._state.settings.fetch_single_topic and parts:
            first = parts[0][0].topic
            parts = [part for part in parts if part[0].topic == first]
        return [record for part in parts for record in part]

    def offsets(
        self, at: int | Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        """Return one offset for each partition, in request order.

        ``at`` is ``"earliest"`` or ``"latest"`` for the start or end of the log, or a time in ms
        for the first record at or after it.
        """
        offsets = []
        with self._state, self._state.lock:
            for tp in partitions:
                log = self._state.partition(*tp)
                if at == "earliest":
                    offset: int | None = log.start
                elif at == "latest":
                    offset = log.end
                else:
                    offset = log.offset_at(at)
                offsets.append(TopicPartitionOffset(*tp, NO_OFFSET if offset is None else offset))
        return offsets

    def all(self, name: str) -> list[Record]:
        """Return all records of a topic in (partition, offset) order."""
        with self._state, self._state.lock:
            return [record for log in self._state.topic(name).logs for record in log.records()]

    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        """Return a topic's records in two lists: those produced by clients and those of the test."""
        with self._state, self._state.lock:
            logs = self._state.topic(topic).logs
            return (
                [record for log in logs for record in log.records(by_client=True)],
                [record for log in logs for record in log.records(by_client=False)],
            )

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        """Call ``look`` after each change of a topic, until it returns a result or for ``seconds``."""
        signal = self._state.clock.signal()
        watched: list[PartitionLog] = []
        until = monotonic() + seconds
        self._waits.waiting.append(signal)
        try:
            while True:
                version = signal.version
                with self._state, self._state.lock:
                    # Watch again after each change: a restore, for example, replaces all logs.
                    watched = list(self._state.topic(topic).logs)
                    for log in watched:
                        log.watchers.add(signal)
                result = look()
                seconds_left = until - monotonic()
                if result is not None or seconds_left <= 0:
                    return result
                # Look again soon, because nothing signals that the waiting task was cancelled.
                signal.sleep(version, min(seconds_left, _NAP_SECONDS))
        finally:
            self._waits.waiting.remove(signal)
            with self._state, self._state.lock:
                for log in watched:
                    log.watchers.discard(signal)
