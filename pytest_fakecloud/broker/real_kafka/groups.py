"""Consumer groups on a real cluster, and their instances in this process.

Each instance is a client of librdkafka, and a thread that polls it continuously, so that it takes
part in rebalances and keeps its position between consume requests. Records that it reads are
buffered. They count as delivered when a consume request returns them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClusterPartition

from ...core.clock import Timekeeper
from ...core.threads import DaemonThread
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
from .cluster import Unavailable, complete, unsupported, when_disconnected
from .topics import KafkaRecords

_POLL_SECONDS = 0.02
"""Seconds between two polls if the last one returned no records."""
_CONFIRMATION_POLL_SECONDS = 0.001
"""Seconds between two polls while a commit waits for its confirmation, which arrives in a poll."""
_TASK_SECONDS = 5.0
"""Time limit in seconds for calls in the thread. They do not wait for the cluster."""

Partition = tuple[str, int]
"""The name of a topic on the cluster, and the number of a partition."""


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
                client_settings = self._client_settings(group, instance, config)
                try:
                    member = KafkaInstance(self, group, instance, config, client_settings)
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

    def delete(self, group: str, instance: str, call: object = None) -> None:
        with self._lock:
            member = self._instances.pop((group, instance), None)
        if member is None:
            raise self._unknown_instance(group, instance)
        member.stop()
        member.join(self.cluster.address.timeout)

    def _unknown_instance(self, group: str, instance: str) -> BrokerError:
        instances: dict[str, list[str]] = {name: [] for name in self.names()}
        with self._lock:
            for name, instance_name in self._instances:
                instances.setdefault(name, []).append(instance_name)
        return errors.unknown_instance(group, instance, instances)

    # -- committing ------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        instance: str,
        offsets: Sequence[TopicPartitionOffset],
        call: object = None,
    ) -> None:
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
        self.report_commit(group, instance, real, call=call)

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
        offsets = self.all_committed(group)
        if not offsets and not self.members(group):
            raise errors.unknown_group(group, self.names())
        return [TopicPartitionOffset(*tp, offsets.get(tp, NO_OFFSET)) for tp in partitions]

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
        call: object = None,
    ) -> None:
        if offsets:
            stored = [(*self._names.shown_partition(tp), at) for tp, at in offsets.items()]
            text, data = commit_event(kind, group, instance, stored)
            self.add_event(kind, text, caused_by=call, **data)

    def all_committed(self, group: str) -> dict[TopicPartition, int]:
        """Return all offsets that a group has committed in the fake's topics."""
        own = [
            (self._names.real(name), number)
            for name, count in self._topics.counts().items()
            for number in range(count)
        ]
        offsets = self.cluster.group_offsets(self._names.real(group), own) if own else {}
        return {self._names.shown_partition(tp): at for tp, at in offsets.items()}

    # -- lookups ---------------------------------------------------------------------------------

    def consumers(self) -> Assignments:
        with self._lock:
            instances = dict(self._instances)
        consumers: Assignments = {}
        for (group, name), member in sorted(instances.items()):
            assigned = map(self._names.shown_partition, sorted(member.buffer.assigned))
            consumers.setdefault(group, {})[name] = by_topic(assigned)
        return consumers

    def describe(self, name: str) -> GroupDescription:
        members, committed, names = self.members(name), self.all_committed(name), self.names()
        if not members and not committed and name not in names:
            raise errors.unknown_group(name, names)
        views = found_members(self._view(member, members[member]) for member in sorted(members))
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


class KafkaInstance:
    """A consumer instance with its subscription, its partitions and its buffered records.

    ``client_settings`` configure the Kafka consumer, which is paused when ``max_poll_records``
    records are buffered. The instance tells ``groups`` of its events, of commits that no request
    waits for, and when it has stopped by itself. Names of topics are those on the cluster.
    ``signal`` is notified of changes.

    Requests call the methods from several threads. Only the instance's own thread uses the Kafka
    consumer and changes ``state``, ``epoch`` and the assignment; a method whose name begins with
    ``_in_thread`` runs there.
    """

    def __init__(
        self,
        groups: KafkaGroups,
        group: str,
        name: str,
        config: ConsumerConfig,
        client_settings: dict[str, Any],
    ) -> None:
        self.group = group
        self.name = name
        self.config = config
        self.topics: tuple[str, ...] = ()
        self.signal = groups.clock.signal()
        self.consume_lock = threading.Lock()
        """Held by the consume request that is in progress."""
        self.epoch = 0
        """Incremented when buffered records are discarded, so that waiting requests end."""
        self.stopped = False
        self.state: Literal["joining", "active", "rebalancing", "expired"] = "joining"
        """``joining`` until the first assignment, ``expired`` after the session has ended."""
        self.in_doubt = False
        """Whether the client has lost its connections since the cluster last responded."""
        self.buffer = RecordBuffer()
        self._groups = groups
        self._cluster = groups.cluster
        self._paused = False
        self._used = monotonic()
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """Calls that requests make in the thread, because a client belongs to one thread."""
        self._commits: list[tuple[dict[Partition, int], Future[Any]]] = []
        """The requested commits that the cluster has not confirmed yet; their futures receive an
        error or None.
        """
        callbacks = {
            "on_commit": self._in_thread_confirm,
            "error_cb": when_disconnected(self._doubt),
        }
        self._consumer = Consumer({**client_settings, **callbacks})
        self._thread = DaemonThread("consumer", self._in_thread)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._used = monotonic()
        if tuple(topics) == self.topics:
            return
        if self._thread.ident is None:
            self._thread.start()
        self.ask(
            lambda consumer: consumer.subscribe(
                list(topics),
                on_assign=self._in_thread_assign,
                on_revoke=self._in_thread_revoke,
                on_lost=self._in_thread_lose,
            )
        )
        self.topics = tuple(topics)

    def ask(self, what: Callable[[Any], Any]) -> Any:
        """Call ``what(consumer)`` in the instance's thread, which must not call this method."""
        result: Future[Any] = Future()
        self._tasks.put(partial(complete, result, lambda: what(self._consumer)))
        if self.stopped:
            raise Unavailable("the instance has ended")
        try:
            return result.result(_TASK_SECONDS)
        except TimeoutError:
            raise Unavailable("it did not respond") from None

    def commit(self, offsets: dict[Partition, int], seconds: float) -> None:
        """Commit as a member of the group, and wait at most ``seconds`` for the confirmation.

        Raises ``BrokerError``. The thread continues to poll meanwhile. librdkafka's own synchronous
        commit would take as long as a session timeout if the cluster is unavailable.
        """
        partitions = [ClusterPartition(*tp, offset) for tp, offset in offsets.items()]
        confirmation: Future[Any] = Future()
        pending = (dict(offsets), confirmation)
        self._commits.append(pending)
        try:
            self.ask(lambda consumer: consumer.commit(offsets=partitions, asynchronous=True))
            problem = confirmation.result(seconds)
        except KafkaException as error:
            raise self._cluster.translated(error) from None
        except TimeoutError:
            raise Unavailable("it did not confirm the commit") from None
        finally:
            self._commits.remove(pending)
        if problem is not None:
            raise self._cluster.translated(problem)

    def take(self, most: int, most_bytes: int) -> list[Any]:
        """Return the next messages, which then count as delivered.

        Raises ``BrokerError`` if there are no messages and a partition cannot be read.
        """
        unreadable = self.buffer.unreadable()
        if unreadable is not None:
            topic, partition = self._cluster.names.shown_partition(unreadable)
            group = self._cluster.names.real(self.group)
            committed = self._cluster.group_offsets(group, [unreadable])
            if not committed:
                raise errors.no_offset(topic, partition)
            raise BrokerError(
                "offset_out_of_range",
                f"Offset out of range: {committed[unreadable]} is outside of the log of "
                f"{topic}-{partition}",
            )
        messages, offsets = self.buffer.take(most, most_bytes)
        self._used = monotonic()
        if offsets and self.config.auto_commit:
            stored = [ClusterPartition(*tp, offset) for tp, offset in offsets.items()]
            # Ignore errors. If these offsets are not stored, for example because the partitions
            # have just been revoked, the records are delivered a second time.
            with suppress(KafkaException, BrokerError):
                self.ask(lambda consumer: consumer.store_offsets(offsets=stored))
        return messages

    def resume_after_commit(self, offsets: Mapping[Partition, int]) -> None:
        """Start reading at committed offsets, in partitions that had no offset to start from."""
        partitions = self.buffer.pop_unreadable(offsets)
        if not partitions:
            return
        try:
            starts = {tp: offsets[tp] for tp in partitions}
            self.ask(lambda consumer: self._in_thread_reassign(consumer, starts))
        except (KafkaException, BrokerError):
            # Report these partitions again, because they are still not read.
            self.buffer.mark_unreadable(partitions)
            raise

    def stop(self) -> None:
        """Start to leave the group and to end the thread. Waiting requests return immediately."""
        self.stopped = True
        self._tasks.put(lambda: None)  # Wakes the thread.
        self.signal.close()

    def join(self, seconds: float) -> None:
        """Wait at most ``seconds`` until the instance has left its group and its thread has ended."""
        if self._thread.ident is None:
            self._consumer.close()
        elif self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _add_event(self, kind: EventKind, text: str, **data: Any) -> None:
        group, name = self.group, self.name
        text = f"group {group!r}: {name!r} {kind}: {self._cluster.names.public(text)}"
        self._groups.add_event(kind, text, group=group, instance=name, **data)

    def _doubt(self) -> None:
        self.in_doubt = True
        self.signal.notify()

    def _in_thread(self) -> None:
        try:
            while not self.stopped:
                self._in_thread_step()
        except (KafkaException, RuntimeError) as error:
            self._add_event("lost", f"the client of the cluster ended: {error}")
            self._groups.remove(self)
        finally:
            self.stopped = True
            self._in_thread_run_tasks()
            for _, confirmation in list(self._commits):
                if not confirmation.done():
                    confirmation.set_exception(Unavailable("the instance has ended"))
            self._consumer.close()
            self.signal.close()

    def _in_thread_run_tasks(self, seconds: float = 0) -> None:
        """Make all requested calls, and wait at most ``seconds`` for the first one."""
        with suppress(Empty):
            self._tasks.get(timeout=seconds)()
            while True:
                self._tasks.get_nowait()()

    def _in_thread_step(self) -> None:
        self._in_thread_run_tasks()
        self._in_thread_pause_or_resume()
        messages = self._consumer.consume(self._groups.settings.max_poll_records, 0)
        if messages:
            self._in_thread_receive(messages)
            return
        self._in_thread_run_tasks(_CONFIRMATION_POLL_SECONDS if self._commits else _POLL_SECONDS)
        idle_ms = self._groups.settings.idle_close_ms
        if idle_ms is not None and monotonic() - self._used > idle_ms / 1000:
            self.stopped = True
            self._groups.remove(self)

    def _in_thread_receive(self, messages: list[Any]) -> None:
        for message in messages:
            problem = message.error()
            if problem is None:
                self.buffer.add(message)
            elif problem.code() == KafkaError._AUTO_OFFSET_RESET:
                self.buffer.mark_unreadable([(message.topic(), message.partition())])
        self.signal.notify()

    def _in_thread_pause_or_resume(self) -> None:
        size, most = len(self.buffer), self._groups.settings.max_poll_records
        if size >= most and not self._paused:
            self._consumer.pause(self._consumer.assignment())
            self._paused = True
        elif size <= most // 2 and self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False

    def _in_thread_confirm(self, error: Any, partitions: list[Any]) -> None:
        # An automatic commit also confirms a requested commit of the same offsets.
        offsets = {(tp.topic, tp.partition): tp.offset for tp in partitions}
        problem = error or next((tp.error for tp in partitions if tp.error), None)
        for wanted, confirmation in list(self._commits):
            if wanted == offsets and not confirmation.done():
                confirmation.set_result(problem)
                return
        stored = {tp: at for tp, at in offsets.items() if at >= 0}
        if problem is None and stored:
            kind: EventKind = "auto commit" if self.config.auto_commit else "commit"
            self._groups.report_commit(self.group, self.name, stored, kind)

    def _in_thread_reassign(self, consumer: Any, starts: Mapping[Partition, int]) -> None:
        # A partition without a position is fetched only after a new assignment.
        partitions = []
        for partition in consumer.position(consumer.assignment()):
            tp = (partition.topic, partition.partition)
            start = partition.offset if partition.offset >= 0 else OFFSET_STORED
            partitions.append(ClusterPartition(*tp, starts.get(tp, start)))
        consumer.assign(partitions)

    def _in_thread_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.buffer.assign([(tp.topic, tp.partition) for tp in partitions])
        self.state = "active"
        self._paused = False
        self._add_event("assigned", _shown(partitions), partitions=len(partitions))
        self.signal.notify()

    def _in_thread_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._in_thread_give_up("rebalancing")
        self._add_event("revoked", _shown(partitions), partitions=len(partitions))

    def _in_thread_lose(self, consumer: Any, partitions: list[Any]) -> None:
        self._in_thread_give_up("expired")
        self._add_event("expire", f"its session is over; lost {_shown(partitions)}")

    def _in_thread_give_up(self, state: Literal["rebalancing", "expired"]) -> None:
        self.buffer.discard()
        self.state = state
        self.epoch += 1
        self.signal.notify()


def _shown(partitions: list[Any]) -> str:
    return ", ".join(sorted(f"{tp.topic}-{tp.partition}" for tp in partitions)) or "nothing"


class RecordBuffer:
    """The buffered messages of an instance's partitions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[Any] = deque()
        self._assigned: set[Partition] = set()
        self._delivered: dict[Partition, int] = {}
        self._unreadable: set[Partition] = set()
        """Partitions without a valid offset to start from."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def assigned(self) -> set[Partition]:
        with self._lock:
            return set(self._assigned)

    @property
    def delivered(self) -> dict[Partition, int]:
        """The offset after the last record that was taken, by partition."""
        with self._lock:
            return dict(self._delivered)

    def assign(self, partitions: Collection[Partition]) -> None:
        """Replace the partitions of the instance. Buffered messages stay."""
        with self._lock:
            self._assigned = set(partitions)
            self._delivered.clear()
            self._unreadable.clear()

    def discard(self) -> None:
        with self._lock:
            for collection in (self._messages, self._assigned, self._delivered, self._unreadable):
                collection.clear()

    def add(self, message: Any) -> None:
        """Append a message, unless its partition has been revoked."""
        with self._lock:
            if (message.topic(), message.partition()) in self._assigned:
                self._messages.append(message)

    def take(self, most: int, most_bytes: int) -> tuple[list[Any], dict[Partition, int]]:
        """Remove and return the next messages, and the offsets after them by partition."""
        taken: list[Any] = []
        sizes: dict[Partition, int] = {}
        full: set[Partition] = set()
        remaining: deque[Any] = deque()
        with self._lock:
            while self._messages and len(taken) < most:
                message = self._messages.popleft()
                partition = message.topic(), message.partition()
                size = sizes.get(partition, 0) + len(message)
                if partition in full or (partition in sizes and size > most_bytes):
                    # Let all later records of this partition wait, too, to keep the order.
                    full.add(partition)
                    remaining.append(message)
                    continue
                sizes[partition] = size
                taken.append(message)
                self._delivered[partition] = message.offset() + 1
            self._messages = remaining + self._messages
            return taken, {partition: self._delivered[partition] for partition in sizes}

    def unreadable(self) -> Partition | None:
        """Return a partition that cannot be read, or None; None also while there are messages."""
        with self._lock:
            return None if self._messages else next(iter(self._unreadable), None)

    def mark_unreadable(self, partitions: Collection[Partition]) -> None:
        with self._lock:
            self._unreadable.update(partitions)

    def pop_unreadable(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return which of the partitions were unreadable, and mark them as readable."""
        with self._lock:
            unreadable = self._unreadable & set(partitions)
            self._unreadable -= unreadable
            return unreadable
