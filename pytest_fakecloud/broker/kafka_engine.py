"""The second engine: the same broker operations, carried out by a real Kafka cluster.

It stands behind the same REST face as the in-memory engine: routes, credentials, faults, journal and
the texts of refusals are the fake's; logs, groups and time are the cluster's. With
``isolation="prefix"`` (the default) topics and groups carry a prefix of the handle's own, so any
number of suites share a cluster; ``"none"`` shows all there is. Decided here:

- Topics are looked up before they are used, since asking a cluster about one may create it.
- Partitions are chosen here (Java's murmur2 for keys, one partition for the keyless of a request),
  so they are those of the in-memory engine.
- Offsets count as consumed when a request takes the records, not when librdkafka reads them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from ..kernel.clock import Clock, Signal
from ..kernel.errors import ContractError
from ..kernel.ids import Ids
from ..kernel.instants import monotonic
from . import errors
from .engine import distinct_positions
from .errors import BrokerError
from .kafka_cluster import Address, Cluster, Unavailable, translated
from .kafka_instance import KafkaInstance
from .log import Topic
from .model import (
    ConsumerConfig,
    GroupAssignments,
    Header,
    Message,
    Metadata,
    Record,
    TopicPartition,
    TopicPartitionOffset,
)
from .placement import Placement
from .settings import Settings

__all__ = ["KafkaCopy", "KafkaEngine", "real_only"]

CREATE_TIME = 1
_FRESH = 1.0
"""Seconds for which the list of topics is taken as current."""
_DELIVERY_MS = 5000
_STEP = 0.05


def real_only(what: str) -> ContractError:
    """The error for what only the in-memory engine can do."""
    return ContractError(
        f"{what} is not possible with a real cluster: use the in-memory engine (leave out engine=)"
    )


class KafkaCopy:
    """Topics, records and committed offsets of a handle at one moment; None when not taken."""

    def __init__(
        self,
        topics: dict[str, int] | None,
        messages: Sequence[Message] = (),
        commits: Mapping[str, dict[tuple[str, int], int]] | None = None,
    ) -> None:
        self.topics = topics
        self.messages = messages
        self.commits = dict(commits or {})


class KafkaEngine:
    """One broker whose logs and groups are a cluster's.

    ``url`` is ``kafka://host:port,…`` with librdkafka settings in its query (see ``Address``).
    Calls may come from any thread. Raises ``ContractError`` for an address without meaning, a
    cluster that does not answer, settings only the in-memory engine has, and a clock that is not
    real time.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        url: str,
        *,
        name: str = "broker",
        isolation: Literal["prefix", "none"] = "prefix",
        cluster: Any = None,
    ) -> None:
        if isolation not in ("prefix", "none"):
            raise ContractError(f"isolation={isolation!r} is unknown: give 'prefix' or 'none'")
        self._address = address = Address(url)
        _check_settings(settings, static=address.static)
        clock.check_real_time()
        self.settings = settings
        self.clock = clock
        self.isolation = isolation
        self._cluster = cluster if cluster is not None else Cluster(address)
        self._kept = isolation == "none" or address.prefix is not None
        self._mark = "" if isolation == "none" else address.prefix or _mark()
        self._generation = 0
        self._lock = threading.Lock()
        self._known: dict[str, Topic] = {}
        self._known_at = float("-inf")
        self._placement = Placement(self._known, settings, ids.stream(name, "keyless partitions"))
        self._instances: dict[tuple[str, str], KafkaInstance] = {}
        self._groups: set[str] = set()
        self.by_tester: set[tuple[str, int, int]] = set()
        """Where the records are that a tester put in."""
        self.waiting: list[Signal] = []
        """The signal of each call that waits now."""
        self.tell: Any = None
        self._epoch = 0
        self._first_copy = True
        self.closed = False
        try:
            self._cluster.topics()
        except BrokerError as error:
            raise ContractError(f"cannot use the cluster at {address.where}: {error}") from None
        self._producer = Producer(
            address.settings(
                {
                    "acks": "all",
                    "linger.ms": 0,
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": _DELIVERY_MS,
                    "message.max.bytes": max(1_000_000, settings.limits.max_message_bytes + 65536),
                }
            )
        )
        self._polling = threading.Thread(
            target=self._poll_producer, name="fakecloud producer", daemon=True
        )
        self._polling.start()
        self._release_clock = clock.tie_to_real_time(
            f"the real cluster behind it ({address.where}) lives in real time. Use the in-memory "
            "engine (leave out engine=) to move time"
        )

    # -- names -----------------------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        """What the real names of topics and groups begin with."""
        if self._kept or not self._generation:
            return self._mark
        return f"{self._mark}{self._generation}."

    def _real(self, name: str) -> str:
        return self.prefix + name

    def _shown(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    # -- topics ----------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """Partition counts by topic name, as the cluster has them now."""
        return {name: len(topic.logs) for name, topic in self._topics(fresh=True).items()}

    def _topics(self, *, fresh: bool = False) -> dict[str, Topic]:
        if fresh or monotonic() - self._known_at > _FRESH:
            prefix, found = self.prefix, self._cluster.topics()
            largest = self.settings.limits.max_message_bytes
            with self._lock:
                counts = {self._shown(n): c for n, c in found.items() if n.startswith(prefix)}
                for name in set(self._known) - set(counts):
                    del self._known[name]
                for name, count in counts.items():
                    known = self._known.get(name)
                    if known is None or len(known.logs) != count:
                        topic = Topic(name, count, max_message_bytes=largest)
                        topic.turn = known.turn if known is not None else 0
                        self._known[name] = topic
                self._known_at = monotonic()
        return self._known

    def _check_topic(self, name: str) -> int:
        """The partition count of a topic; raises the refusal for one that is not there."""
        topic = self._topics().get(name) or self._topics(fresh=True).get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self._known))
        return len(topic.logs)

    def _check_partition(self, name: str, partition: int) -> None:
        count = self._check_topic(name)
        if not 0 <= partition < count:
            count = self.topics()[name]
            if not 0 <= partition < count:
                raise errors.unknown_partition(name, partition, count)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        max_message_bytes: int | None = None,
        first_offset: int = 0,
    ) -> None:
        """Create a topic; raises ``ContractError`` for a bad name, an existing one, bad counts."""
        if first_offset:
            raise real_only("first_offset= (an offset forced into the log)")
        real = self._real(name)
        if not errors.TOPIC_NAME.fullmatch(name) or not errors.TOPIC_NAME.fullmatch(real):
            raise ContractError(str(errors.invalid_topic(name if len(real) < 250 else real)))
        if partitions < 1:
            raise ContractError(f"topic {name!r} needs at least one partition, got {partitions}")
        if name in self.topics():
            raise ContractError(f"topic {name!r} exists already; add_partitions() makes it larger")
        limits = self.settings.limits
        config = {
            "retention.ms": retention_ms if retention_ms is not None else limits.retention_ms,
            "retention.bytes": (
                retention_bytes if retention_bytes is not None else limits.retention_bytes
            ),
            "max.message.bytes": max_message_bytes,
        }
        given = {key: str(value) for key, value in config.items() if value is not None}
        self._administer(lambda: self._cluster.create_topic(real, partitions, given))
        self._until(lambda: name in self.topics(), f"topic {name!r} did not appear")

    def add_partitions(self, name: str, count: int) -> int:
        """Give a topic that many more partitions; its count after."""
        if count < 1:
            raise ContractError(f"add_partitions needs a positive count, got {count}")
        total = self._check_topic(name) + count
        self._administer(lambda: self._cluster.add_partitions(self._real(name), total))
        self._until(lambda: self.topics()[name] == total, f"topic {name!r} did not grow")
        return total

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        """Forget the records below an offset, in one partition or all; how many were forgotten."""
        count = self._check_topic(name)
        if partition is not None:
            self._check_partition(name, partition)
        numbers = range(count) if partition is None else [partition]
        starts, ends = self.bounds(name)
        wanted = {
            (self._real(name), number): min(before, ends[number])
            for number in numbers
            if min(before, ends[number]) > starts[number]
        }
        self._administer(lambda: self._cluster.delete_records(wanted))
        return sum(offset - starts[number] for (_, number), offset in wanted.items())

    def _administer(self, act: Any) -> None:
        try:
            act()
        except BrokerError as error:
            raise ContractError(f"the cluster refuses: {error}") from None

    def _until(self, condition: Any, text: str) -> None:
        until = monotonic() + self._address.timeout
        pause = threading.Event()
        while not condition():
            if monotonic() > until:
                raise ContractError(f"{text} within {self._address.timeout} s")
            pause.wait(_STEP)

    # -- producing -------------------------------------------------------------------------------

    def produce(self, messages: Sequence[Message], *, by_client: bool = True) -> list[Metadata]:
        """Append the messages; their places in request order.

        All are checked before any is sent. Raises ``BrokerError`` as the in-memory engine does, and
        503 when the cluster does not confirm them all.
        """
        self._look_up(messages)
        with self._lock:
            places, _, problem = self._placement.plan(messages, self.clock.now_ms())
        if problem is not None and (self.settings.batches == "atomic" or not places):
            raise problem
        sent = _Batch(len(places))
        for index, (message, place) in enumerate(zip(messages, places, strict=False)):
            self._send(sent, index, message, place)
        found = sent.wait(_DELIVERY_MS / 1000 + 5)
        confirmed = [
            Metadata(
                place.topic, m.partition(), m.offset(), _timestamp(m.timestamp(), place.timestamp)
            )
            for place, m in zip(places, found, strict=True)
        ]
        if not by_client:
            self.by_tester.update((at.topic, at.partition, at.offset) for at in confirmed)
        if problem is not None:
            raise problem
        return confirmed

    def _look_up(self, messages: Sequence[Message]) -> None:
        # What is still missing after this is for the placement to refuse, in its order.
        known = self._topics()
        for message in messages:
            topic = known.get(message.topic)
            if topic is None or (message.partition or 0) >= len(topic.logs):
                self._topics(fresh=True)
                return

    def _send(self, sent: _Batch, index: int, message: Message, place: Metadata) -> None:
        key = message.key
        if key == "" and self.settings.empty_key == "absent":
            key = None
        try:
            self._producer.produce(
                self._real(place.topic),
                _bytes(message.value),
                None if key is None else _bytes(key),
                place.partition,
                on_delivery=sent.delivered(index),
                timestamp=place.timestamp,
                headers=[(h.key, _bytes(h.value)) for h in message.headers] or None,
            )
        except (KafkaException, BufferError) as error:
            sent.failed(index, error)

    def _poll_producer(self) -> None:
        while not self.closed:
            self._producer.poll(0.1)

    # -- reading without a group -----------------------------------------------------------------

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Records from the positions on, at most 1 MiB from each; waits for the first."""
        self.check_timeout(timeout_ms)
        wanted = distinct_positions(positions)
        for topic, partition, _ in wanted:
            self._check_partition(topic, partition)
        signal = self.clock.signal()
        self.waiting.append(signal)
        try:
            until = monotonic() + timeout_ms / 1000
            reachable = self._reachable(wanted, until)
            left_ms = max(0, int((until - monotonic()) * 1000))
            return self._fetch(reachable, left_ms if timeout_ms else 0) if reachable else []
        finally:
            self.waiting.remove(signal)

    def _reachable(
        self, wanted: list[TopicPartitionOffset], until: float
    ) -> list[TopicPartitionOffset]:
        """The positions the logs have, waited for where one may lie behind the end."""
        pause, epoch = threading.Event(), self._epoch
        while True:
            found = []
            for at, (start, end) in zip(wanted, self._ends(wanted), strict=True):
                beyond = at.offset > end
                if at.offset < start or (beyond and self.settings.fetch_beyond_end == "error"):
                    raise errors.out_of_range(*at, start, end)
                if not beyond:
                    found.append(at)
            if found or monotonic() > until or epoch != self._epoch:
                return found
            pause.wait(_STEP)

    def _fetch(self, wanted: list[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        reader = Consumer(
            self._address.settings(
                {
                    "group.id": self._real("fetch"),
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": max(1, min(timeout_ms, 500)),
                    "max.partition.fetch.bytes": self.settings.max_partition_bytes,
                }
            )
        )
        with closing(reader):
            reader.assign([Place(self._real(t), p, o) for t, p, o in wanted])
            found = self._read(reader, wanted, timeout_ms)
        if self.settings.fetch_single_topic and found:
            found = [record for record in found if record.topic == found[0].topic]
        return found

    def _ends(self, wanted: Sequence[tuple[Any, ...]]) -> list[tuple[int, int]]:
        places = [(self._real(tp[0]), tp[1]) for tp in wanted]
        starts = self._cluster.offsets(dict.fromkeys(places, "earliest"))
        ends = self._cluster.offsets(dict.fromkeys(places, "latest"))
        return [(starts[place], ends[place]) for place in places]

    def _read(
        self, reader: Any, wanted: Sequence[TopicPartitionOffset], timeout_ms: int
    ) -> list[Record]:
        parts: dict[tuple[str, int], list[Record]] = {(t, p): [] for t, p, _ in wanted}
        sizes = dict.fromkeys(parts, 0)
        open_ends = set(parts)
        # Even a fetch that may not wait gets what the cluster has; that takes one round trip.
        until = monotonic() + max(
            timeout_ms / 1000, self._address.timeout if timeout_ms == 0 else 0
        )
        epoch = self._epoch
        while epoch == self._epoch and (left := until - monotonic()) > 0:
            message = reader.poll(min(left, _STEP))
            if message is None:
                continue
            tp = (self._shown(message.topic() or ""), message.partition())
            problem = message.error()
            if problem is None:
                size = len(message)
                if parts[tp] and sizes[tp] + size > self.settings.max_partition_bytes:
                    open_ends.discard(tp)
                elif tp in open_ends:
                    parts[tp].append(self._record(message))
                    sizes[tp] += size
            elif problem.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(tp)
            elif problem.code() != KafkaError._ALL_BROKERS_DOWN:
                raise translated(problem)
            if not open_ends:
                if timeout_ms == 0 or any(parts.values()):
                    break
                # Nothing anywhere: the first record that comes ends the wait.
                open_ends = set(parts)
        return [record for part in parts.values() for record in part]

    def _record(self, message: Any) -> Record:
        key = message.key()
        return Record(
            self._shown(message.topic()),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            None if key is None else _text(key),
            _text(message.value() or b""),
            tuple(Header(name, _text(value or b"")) for name, value in message.headers() or ()),
        )

    def offsets(
        self,
        at: int | Literal["earliest", "latest"],
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """The first offset at or after a time in ms, or an end of the log, in request order."""
        self.check_timeout(timeout_ms)
        for tp in partitions:
            self._check_partition(*tp)
        found = self._cluster.offsets({(self._real(t), p): at for t, p in partitions})
        absent = self.settings.no_such_time
        offsets = [(tp, found[self._real(tp.topic), tp.partition]) for tp in partitions]
        return [TopicPartitionOffset(*tp, o if o >= 0 else absent) for tp, o in offsets]

    def bounds(self, name: str) -> tuple[list[int], list[int]]:
        """The start and the end of each partition's log."""
        ends = self._ends([(name, number) for number in range(self._check_topic(name))])
        return [start for start, _ in ends], [end for _, end in ends]

    def records(self, name: str) -> list[Record]:
        """All records of a topic in (partition, offset) order."""
        found: list[Record] = []
        starts, ends = self.bounds(name)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            at = start
            while at < end:
                page = self.fetch([TopicPartitionOffset(name, number, at)], 0)
                if not page:
                    break
                found += page
                at = page[-1].offset + 1
        return found

    # -- reading with a group --------------------------------------------------------------------

    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        """The next records for an instance, which the first call creates from the raw ``headers``."""
        self.check_timeout(timeout_ms)
        for topic in topics:
            self._check_topic(topic)
        until = self.clock.now_us() + timeout_ms * 1000
        member = self._enter(group, instance, headers)
        if not member.turn.acquire(blocking=False):
            if self.settings.concurrent_consume == "error":
                raise errors.concurrent_consume(group, instance)
            if not member.turn.acquire(timeout=timeout_ms / 1000):
                return []
        try:
            if not member.topics or self.settings.resubscribe == "rebalance":
                member.subscribe([self._real(topic) for topic in sorted(set(topics))])
            return self._await(member, until)
        finally:
            member.turn.release()

    def _enter(self, group: str, instance: str, headers: Mapping[str, str]) -> KafkaInstance:
        with self._lock:
            member = self._instances.get((group, instance))
            if member is None:
                config = ConsumerConfig.read(
                    headers, session_timeout_ms=self.settings.session_timeout_ms
                )
                self._check_limit(group)
                member = self._make(group, instance, config)
                self._instances[group, instance] = member
                self._groups.add(group)
            return member

    def _check_limit(self, group: str) -> None:
        scope = self.settings.instance_limit
        if scope is None:
            return
        active = sum(scope == "cluster" or name == group for name, _ in self._instances)
        limit = sum(len(topic.logs) for topic in self._known.values())
        if active + 1 > limit:
            raise errors.too_many_instances(active, limit)

    def _make(self, group: str, instance: str, config: ConsumerConfig) -> KafkaInstance:
        reset = "error" if config.auto_offset_reset == "none" else config.auto_offset_reset
        settings: dict[str, Any] = {
            "group.id": self._real(group),
            "partition.assignment.strategy": "range",
            "enable.auto.commit": config.auto_commit,
            "auto.commit.interval.ms": config.auto_commit_interval_ms,
            "enable.auto.offset.store": False,
            "auto.offset.reset": reset,
            "session.timeout.ms": config.session_timeout_ms,
            "max.poll.interval.ms": max(300_000, config.session_timeout_ms),
            "fetch.wait.max.ms": 500,
        }
        if self._address.static:
            settings["group.instance.id"] = instance
        key = (group, instance)

        def tell(kind: str, text: str, data: dict[str, Any]) -> None:
            if self.tell is not None:
                shown = text.replace(self.prefix, "") if self.prefix else text
                self.tell(
                    kind,
                    f"group {group!r}: {instance!r} {kind}: {shown}",
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
                self.clock,
                config,
                self._address.settings(settings),
                keep=self.settings.max_poll_records,
                idle_ms=self.settings.idle_close_ms,
                tell=tell,
                gone=gone,
            )
        except KafkaException as error:
            raise errors.illegal_argument(f"The cluster's client refuses: {error}") from None

    def _await(self, member: KafkaInstance, until: int) -> list[Record]:
        epoch = (self._epoch, member.epoch)

        def poll() -> list[Any] | None:
            if epoch != (self._epoch, member.epoch) or member.stopped:
                return []
            most, most_bytes = self.settings.max_poll_records, self.settings.max_partition_bytes
            try:
                return member.take(most, most_bytes) or None
            except BrokerError as error:
                raise BrokerError(error.kind, self._public(error.message)) from None

        self.waiting.append(member.signal)
        try:
            found = self.clock.wait(member.signal, poll, until) or []
        finally:
            self.waiting.remove(member.signal)
        return [self._record(message) for message in found]

    def _public(self, text: str) -> str:
        return text.replace(self.prefix, "") if self.prefix else text

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Store offsets verbatim, or with none given what was last delivered to the instance."""
        wanted = distinct_positions(offsets)
        for topic, partition, _ in wanted:
            self._check_partition(topic, partition)
        with self._lock:
            member = self._instances.get((group, instance))
        if member is None:
            if self.settings.commit_by_unknown == "error":
                raise errors.unknown_instance(group, instance)
            self.store(group, wanted)
            return
        if member.state == "expired":
            raise errors.unknown_member(group, instance)
        if member.state == "rebalancing":
            raise errors.rebalance_in_progress(group)
        real = {(self._real(t), p): o for t, p, o in wanted} or member.delivered()
        if not real:
            return
        if member.state == "joining":
            # The group takes it from anybody as long as it has no members.
            self.store(
                group, [TopicPartitionOffset(self._shown(t), p, real[t, p]) for t, p in real]
            )
        else:
            assigned = member.assigned
            for topic, partition in real:
                if (topic, partition) not in assigned:
                    raise errors.not_assigned(group, instance, self._shown(topic), partition)
            self._commit(member.ask, real)
        member.committed(real)
        self._told(group, instance, real)

    def store(self, group: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Commit for a group without being a member of it."""
        with self._lock:
            self._groups.add(group)
        with closing(self._outsider(group)) as consumer:
            self._commit(
                lambda what: what(consumer), {(self._real(t), p): o for t, p, o in offsets}
            )

    def _commit(self, ask: Any, real: Mapping[tuple[str, int], int]) -> None:
        places = [Place(*tp, offset) for tp, offset in real.items()]
        try:
            done = ask(lambda consumer: consumer.commit(offsets=places, asynchronous=False))
        except KafkaException as error:
            raise self._public_error(translated(error)) from None
        for place in done or ():
            if place.error is not None:
                raise self._public_error(translated(place.error))

    def _public_error(self, error: BrokerError) -> BrokerError:
        return BrokerError(error.kind, self._public(error.message))

    def _outsider(self, group: str) -> Any:
        return Consumer(
            self._address.settings({"group.id": self._real(group), "enable.auto.commit": False})
        )

    def _told(self, group: str, instance: str, real: Mapping[tuple[str, int], int]) -> None:
        if self.tell is None:
            return
        offsets = [(self._shown(topic), number, at) for (topic, number), at in real.items()]
        shown = ", ".join(f"{topic}-{number}={at}" for topic, number, at in offsets)
        self.tell(
            "commit",
            f"group {group!r}: {instance!r} committed {shown}",
            group=group,
            instance=instance,
            offsets=offsets,
        )

    def delete_consumer(self, group: str, instance: str) -> None:
        """Stop an instance and take it out of its group.

        A static member (``static=true`` in the address) keeps its partitions until its session ends.
        """
        with self._lock:
            member = self._instances.pop((group, instance), None)
        if member is None:
            raise errors.unknown_instance(group, instance)
        member.stop()

    def consumers(self) -> list[GroupAssignments]:
        """The groups with instances known here, by name."""
        with self._lock:
            instances = dict(self._instances)
        found: dict[str, dict[str, dict[str, list[int]]]] = {}
        for (group, name), member in sorted(instances.items()):
            topics: dict[str, list[int]] = {}
            for topic, partition in sorted(member.assigned):
                topics.setdefault(self._shown(topic), []).append(partition)
            found.setdefault(group, {})[name] = topics
        return [GroupAssignments(group, members) for group, members in found.items()]

    def members(self, group: str) -> dict[str, KafkaInstance]:
        """The instances of a group known here, by name."""
        with self._lock:
            return {name: member for (g, name), member in self._instances.items() if g == group}

    def group_names(self) -> list[str]:
        """The groups somebody consumed or committed with here."""
        with self._lock:
            return sorted(self._groups)

    def committed(
        self,
        group: str,
        instance: str,
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """Committed offsets of the group in request order; the instance need not exist."""
        self.check_timeout(timeout_ms)
        for tp in partitions:
            self._check_partition(*tp)
        held = self.all_committed(group)
        if not held and not self.members(group) and self.settings.unknown_group == "error":
            raise errors.unknown_group(group)
        never = self.settings.never_committed
        return [TopicPartitionOffset(*tp, held.get(tp, never)) for tp in partitions]

    def all_committed(self, group: str) -> dict[TopicPartition, int]:
        """Everything a group has committed to topics of this handle."""
        own = [
            (self._real(name), number)
            for name, count in self.topics().items()
            for number in range(count)
        ]
        held = self._cluster.group_offsets(self._real(group), own) if own else {}
        return {TopicPartition(self._shown(t), number): at for (t, number), at in held.items()}

    # -- what a handle asks ----------------------------------------------------------------------

    def check_timeout(self, timeout_ms: int) -> None:
        """Refuse a negative timeout and one that can only be a mistake."""
        if not 0 <= timeout_ms <= self.settings.max_timeout_ms:
            raise errors.illegal_argument(
                f"Invalid timeout {timeout_ms}: expected 0 to {self.settings.max_timeout_ms} ms"
            )

    def tell_to(self, tell: Any) -> None:
        """Tell the events of groups to somebody from now on."""
        self.tell = tell

    def interrupt(self) -> None:
        """End every waiting call now, with nothing found."""
        self._epoch += 1
        for signal in list(self.waiting):
            signal.notify()

    def snapshot(self) -> KafkaCopy:
        """A copy of the handle's topics, records and committed offsets.

        The first one, which a handle takes of itself to return to, is not taken of data that are
        not its own. Raises ``ContractError`` for logs whose offsets could not be made again.
        """
        first, self._first_copy = self._first_copy, False
        if self._kept:
            if first:
                return KafkaCopy(None)
            raise ContractError(
                "a copy can only be taken of data that are this handle's own: leave out prefix= and "
                "isolation='none', or use the in-memory engine"
            )
        topics = self.topics()
        messages: list[Message] = []
        for name in topics:
            if any(self.bounds(name)[0]):
                raise real_only(f"a copy of topic {name!r}, whose first records are gone,")
            messages += [
                Message(r.topic, r.value, r.key, r.partition, r.timestamp, r.headers)
                for r in self.records(name)
            ]
        commits = {group: dict(self.all_committed(group)) for group in self.group_names()}
        return KafkaCopy(topics, messages, cast("Any", commits))

    def restore(self, copy: KafkaCopy) -> None:
        """Put a copy back, in fresh topics and groups of the same names; instances end.

        Raises ``ContractError`` where there is nothing to return to.
        """
        if copy.topics is None:
            raise ContractError(
                "these data are not this handle's own, so there is nothing to return to: leave out "
                "prefix= and isolation='none', or use the in-memory engine"
            )
        self._end_instances()
        self._delete_own()
        self._generation += 1
        self._known_at = float("-inf")
        self.by_tester.clear()
        for name, partitions in copy.topics.items():
            self.create_topic(name, partitions)
        if copy.messages:
            self.produce(copy.messages, by_client=False)
        for group, offsets in copy.commits.items():
            if offsets:
                self.store(group, [TopicPartitionOffset(*tp, at) for tp, at in offsets.items()])
        self.interrupt()

    def _end_instances(self) -> None:
        with self._lock:
            members, self._instances = list(self._instances.values()), {}
        for member in members:
            member.stopped = True
        for member in members:
            member.stop()

    def _delete_own(self) -> None:
        with self._lock:
            groups, self._groups = [self._real(name) for name in self._groups], set()
        topics = [self._real(name) for name in self.topics()]
        if topics or groups:
            self._cluster.delete(topics, groups)

    def close(self) -> None:
        """End instances and waiting calls, and remove what is the handle's own."""
        if self.closed:
            return
        self._release_clock()
        self.interrupt()
        self._end_instances()
        if not self._kept:
            # A cluster that is gone is somebody else's to clean up.
            with suppress(BrokerError):
                self._delete_own()
        self.closed = True
        self._polling.join(5)
        self._producer.flush(1)


class _Batch:
    """The confirmations of one produce call."""

    def __init__(self, count: int) -> None:
        self._found: list[Any] = [None] * count
        self._missing = count
        self._error: Any = None
        self._changed = threading.Condition()

    def delivered(self, index: int) -> Any:
        """The callback for one message."""

        def note(error: Any, message: Any) -> None:
            with self._changed:
                self._found[index] = message
                self._missing -= 1
                self._error = self._error or error
                self._changed.notify_all()

        return note

    def failed(self, index: int, error: Any) -> None:
        """Note a message that could not even be sent."""
        self.delivered(index)(error, None)

    def wait(self, seconds: float) -> list[Any]:
        """All confirmations; raises the first error, or 503 when they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing, seconds):
                raise Unavailable(f"{self._missing} message(s) were not confirmed in time")
        if self._error is not None:
            raise translated(self._error)
        return self._found


def _timestamp(found: tuple[int, int], sent: int) -> int:
    kind, ms = found
    return ms if kind == CREATE_TIME else sent


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _mark() -> str:
    return f"fakecloud-{secrets.token_hex(5)}."


def _check_settings(settings: Settings, *, static: bool) -> None:
    limits = settings.limits
    for name in ("messages_per_day", "messages_per_second", "storage_bytes", "max_partitions"):
        if getattr(limits, name) is not None:
            raise real_only(f"the limit {name}")
    if settings.join_delay_ms:
        raise real_only("join_delay=")
    if not settings.delete_leaves and not static:
        raise real_only("delete_leaves=False without static members (static=false)")
    if settings.heartbeats != "background":
        raise real_only(f"heartbeats={settings.heartbeats!r}")
    if settings.interleave != "rotate":
        raise real_only(f"interleave={settings.interleave!r}")
