"""The topics of a fake on a real cluster, and writing and reading their records without a group.

Topics are looked up in the list of all topics before use, because requesting a topic by name may
create it. The list is considered current for a second.

Partitions are chosen here instead of by librdkafka, so that they equal those of the engine in
memory: Java's murmur2 hash for keys, and one partition for all messages without a key in a request.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, Literal, TypeVar

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClusterPartition

from ...core.clock import Timekeeper
from ...core.errors import ContractError, counted
from ...core.settings import whole
from ...core.threads import DaemonThread
from ...core.timers import monotonic
from .. import errors
from ..engine.engine import checked_config, topic_exists
from ..engine.log import PartitionLog, Topic, plan_of, take_turns
from ..engine.state import Waits
from ..errors import AsMisuse
from ..model import (
    NO_OFFSET,
    Header,
    Metadata,
    ProducerRecord,
    Record,
    TopicConfig,
    TopicPartition,
    TopicPartitionOffset,
    distinct_positions,
)
from ..settings import BrokerConfig
from .cluster import (
    POLL_SECONDS,
    Cluster,
    Unavailable,
    look_for,
    real_only,
    unsupported,
    when_disconnected,
)

_FRESH = 1.0
"""Seconds for which the list of topics is considered current."""
_POLL_SECONDS = 0.02
"""Interval at which the producer's thread checks whether it must end."""
_EXTRA_SECONDS = 5.0
"""Time that a request waits beyond the message timeout, because librdkafka rounds it up."""
T = TypeVar("T")


class KafkaTopics:
    """The topics of a fake, with the methods of ``MemoryTopics``, which wait until the cluster
    lists the changed topic.

    ``known`` contains the topics as last listed by the cluster, with empty logs, which is enough to
    choose positions for messages; it is replaced and never modified.
    """

    def __init__(self, cluster: Cluster, settings: BrokerConfig) -> None:
        self.known: dict[str, Topic] = {}
        self.cluster = cluster
        self.settings = settings
        self._names = cluster.names
        self._known_at = float("-inf")
        self._lock = threading.Lock()
        self._requests = itertools.count(1)
        self._answered = 0
        """The number of the latest request whose list of topics is in ``known``."""

    def rename(self) -> None:
        """Use a new prefix from now on, so that all topics and groups get new real names."""
        with self._lock:
            self._names.renew()
            self._known_at = float("-inf")

    def counts(self) -> dict[str, int]:
        return {name: len(topic.logs) for name, topic in self.look(fresh=True).items()}

    def look(self, *, fresh: bool = False) -> dict[str, Topic]:
        """Return the known topics, requested again if they are old or with ``fresh``."""
        if fresh or monotonic() - self._known_at > _FRESH:
            prefix, number = self._names.prefix, next(self._requests)
            counts_by_name = self.cluster.topics()
            counts = {
                n.removeprefix(prefix): c for n, c in counts_by_name.items() if n.startswith(prefix)
            }
            with self._lock:
                # Ignore a response if a later one was faster, or if the prefix has changed.
                if number > self._answered and prefix == self._names.prefix:
                    self._answered = number
                    self.known = {name: self._topic(name, count) for name, count in counts.items()}
                    self._known_at = monotonic()
        return self.known

    def _topic(self, name: str, partitions: int) -> Topic:
        topic = self.known.get(name)
        if topic is not None and len(topic.logs) == partitions:
            return topic
        largest = self.settings.limits.max_message_bytes
        logs = [PartitionLog(name, number) for number in range(partitions)]
        turn = topic.turn if topic is not None else 0
        return Topic(name=name, logs=logs, max_message_bytes=largest, turn=turn)

    def check(self, name: str) -> int:
        topic = self.look().get(name) or self.look(fresh=True).get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self.known))
        return len(topic.logs)

    def check_partition(self, name: str, partition: int) -> None:
        """Raise ``BrokerError`` if the topic or its partition does not exist."""
        if not 0 <= partition < self.check(name):
            self.look(fresh=True)
            count = self.check(name)
            if not 0 <= partition < count:
                raise errors.unknown_partition(name, partition, count)

    def ends(self, wanted: Sequence[tuple[Any, ...]]) -> list[tuple[int, int]]:
        """Return the start and end offset of the partition in each tuple ``(topic, partition, …)``."""
        real = [(self._names.real(tp[0]), tp[1]) for tp in wanted]
        starts = self.cluster.offsets(dict.fromkeys(real, "earliest"))
        ends = self.cluster.offsets(dict.fromkeys(real, "latest"))
        return [(starts[tp], ends[tp]) for tp in real]

    def bounds(self, name: str) -> list[tuple[int, int]]:
        """Return the start offset and the end offset of each of a topic's logs, by partition."""
        return self.ends([(name, number) for number in range(self.check(name))])

    def create(self, name: str, config: TopicConfig) -> None:
        if config.first_offset:
            raise real_only("first_offset=")
        config = checked_config(name, config, self.settings.limits)
        real = self._names.real(name)
        if not re.fullmatch(errors.TOPIC_NAME, real):
            raise ContractError(str(errors.invalid_topic(real)))
        whole(1).read("partitions", config.partitions, f"topic {name!r}")
        if name in self.counts():
            raise topic_exists(name)
        settings = {
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
            "max.message.bytes": config.max_message_bytes,
        }
        configuration = {key: str(value) for key, value in settings.items() if value is not None}
        with AsMisuse():
            self.cluster.create_topic(real, config.partitions, configuration)
        self._wait(lambda: name in self.counts(), f"topic {name!r} did not appear")

    def delete(self, name: str) -> None:
        self.check(name)
        self.cluster.delete([self._names.real(name)], [])
        self._wait(lambda: name not in self.counts(), f"topic {name!r} did not disappear")

    def add_partitions(self, name: str, count: int) -> int:
        whole(1).read("count", count, "add_partitions()")
        total = self.check(name) + count
        with AsMisuse():
            self.cluster.add_partitions(self._names.real(name), total)
        self._wait(
            lambda: self.counts().get(name) == total,
            f"topic {name!r} did not get its new partitions",
        )
        return total

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        count = self.check(name)
        if partition is not None:
            self.check_partition(name, partition)
        bounds, wanted, deleted = self.bounds(name), {}, 0
        for number in range(count) if partition is None else [partition]:
            start, end = bounds[number]
            if (offset := min(before, end)) > start:
                wanted[self._names.real(name), number] = offset
                deleted += offset - start
        with AsMisuse():
            self.cluster.delete_records(wanted)
        return deleted

    set_retention = unsupported("set_retention() of an existing topic")

    def _wait(self, condition: Callable[[], bool], failure: str) -> None:
        seconds = self.cluster.address.timeout
        if look_for(seconds, lambda: condition() or None) is None:
            raise ContractError(f"{failure} within {seconds} s")


class KafkaRecords:
    """Writes and reads records, and reads offsets, with the methods of ``MemoryRecords``.

    It has one producer with a thread, but a reading client for each call, because that is faster
    than moving an existing client to other offsets.
    """

    def __init__(self, topics: KafkaTopics, clock: Timekeeper, waits: Waits) -> None:
        self.by_test: set[tuple[str, int, int]] = set()
        """Positions of the records that the test produced."""
        self.topics = topics
        self._cluster = topics.cluster
        self._names = topics.cluster.names
        self._clock = clock
        self._waits = waits
        self._lock = threading.Lock()
        self._closed = False
        address = topics.cluster.address
        max_message_bytes = topics.settings.limits.max_message_bytes
        self._confirmation_seconds = address.timeout + _EXTRA_SECONDS
        self._producer = Producer(
            address.settings(
                {
                    "acks": "all",
                    "linger.ms": 0,
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": max(1, int(address.timeout * 1000)),
                    "message.max.bytes": max(1_000_000, max_message_bytes + 65536),
                }
            )
        )
        self._thread = DaemonThread("producer", self._run)
        self._thread.start()

    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        self._look_up(messages)
        with self._lock:
            topics = self.topics.known
            plan = plan_of(topics, messages, self._clock.now_ms())
            take_turns(topics, plan)
        sent = list(map(self._send, messages, plan.positions))
        unconfirmed = wait(sent, self._confirmation_seconds).not_done
        if unconfirmed:
            raise Unavailable(f"{counted(len(unconfirmed), 'message')} not confirmed in time")
        confirmed = [future.result() for future in sent]
        if not by_client:
            self.by_test.update((at.topic, at.partition, at.offset) for at in confirmed)
        return confirmed

    def check(self, messages: Sequence[ProducerRecord]) -> None:
        self._look_up(messages)
        with self._lock:
            plan_of(self.topics.known, messages, 0)

    def _look_up(self, messages: Sequence[ProducerRecord]) -> None:
        # A topic that is still missing is rejected when positions are chosen in request order.
        topics = self.topics.look()
        for message in messages:
            topic = topics.get(message.topic)
            if topic is None or (message.partition or 0) >= len(topic.logs):
                self.topics.look(fresh=True)
                return

    def _send(self, message: ProducerRecord, position: Metadata) -> Future[Metadata]:
        """Send a message; return its future position, which the cluster confirms."""
        sent: Future[Metadata] = Future()

        def delivered(error: Any, confirmation: Any) -> None:
            if error:
                sent.set_exception(self._cluster.translated(error))
            else:
                kind, ms = confirmation.timestamp()  # The cluster may set a timestamp of its own.
                timestamp = ms if kind == TIMESTAMP_CREATE_TIME else position.timestamp
                partition, offset = confirmation.partition(), confirmation.offset()
                sent.set_result(Metadata(position.topic, partition, offset, timestamp))

        key = message.key
        try:
            self._producer.produce(
                self._names.real(position.topic),
                _bytes(message.value),
                None if key is None else _bytes(key),
                position.partition,
                on_delivery=delivered,
                timestamp=position.timestamp,
                headers=[(_bytes(h.key).decode(), _bytes(h.value)) for h in message.headers]
                or None,
            )
        except (KafkaException, BufferError) as error:
            # librdkafka does not call the callback of a message that it did not accept.
            delivered(error, None)
        return sent

    def _run(self) -> None:
        while not self._closed:
            self._producer.poll(_POLL_SECONDS)

    def interrupt(self) -> None:
        """Fail all messages that the cluster has not confirmed yet."""
        self._producer.purge()

    def close(self) -> None:
        self._closed = True
        self._thread.join(1)
        self._producer.flush(0.1)

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        wanted = distinct_positions(positions)
        if not wanted:
            return []
        for topic, partition, _ in wanted:
            self.topics.check_partition(topic, partition)
        for at, (start, end) in zip(wanted, self.topics.ends(wanted), strict=True):
            if not start <= at.offset <= end:
                raise errors.out_of_range(*at, start, end)
        signal = self._clock.signal()
        self._waits.waiting.append(signal)
        try:
            return self._fetch_from(wanted, timeout_ms)
        finally:
            self._waits.waiting.remove(signal)

    def _fetch_from(self, wanted: list[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        away = threading.Event()
        reader = Consumer(
            self._cluster.address.settings(
                {
                    "error_cb": when_disconnected(away.set),
                    "group.id": self._names.real("fetch"),
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": max(1, min(timeout_ms, 500)),
                    "max.partition.fetch.bytes": self.topics.settings.max_partition_bytes,
                }
            )
        )
        with closing(reader):
            reader.assign([ClusterPartition(self._names.real(t), p, o) for t, p, o in wanted])
            records = self._read(reader, wanted, timeout_ms, away)
        if self.topics.settings.fetch_single_topic and records:
            records = [record for record in records if record.topic == records[0].topic]
        return records

    def _read(
        self,
        reader: Any,
        wanted: Sequence[TopicPartitionOffset],
        timeout_ms: int,
        away: threading.Event,
    ) -> list[Record]:
        parts: dict[tuple[str, int], list[Record]] = {(t, p): [] for t, p, _ in wanted}
        sizes = dict.fromkeys(parts, 0)
        done: set[tuple[str, int]] = set()
        # Allow one round trip even with a timeout of 0, to return the records that are available.
        until = monotonic() + (timeout_ms / 1000 or self._cluster.address.timeout)
        epoch = self._waits.epoch
        while epoch == self._waits.epoch and (seconds_left := until - monotonic()) > 0:
            message = reader.poll(min(seconds_left, POLL_SECONDS))
            if away.is_set():
                away.clear()
                self.topics.look(fresh=True)
            if message is None:
                continue
            tp = (self._names.shown(message.topic() or ""), message.partition())
            problem = message.error()
            if problem is None:
                sizes[tp] += len(message)
                if parts[tp] and sizes[tp] > self.topics.settings.max_partition_bytes:
                    done.add(tp)
                else:
                    parts[tp].append(self.record(message))
            elif problem.code() == KafkaError._PARTITION_EOF:
                done.add(tp)
            else:
                raise self._cluster.translated(problem)
            # If all ends were reached without a record, return when the first record arrives.
            if len(done) == len(parts) and (timeout_ms == 0 or any(parts.values())):
                break
        return [record for part in parts.values() for record in part]

    def record(self, message: Any) -> Record:
        key = message.key()
        return Record(
            self._names.shown(message.topic()),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            None if key is None else _text(key),
            _text(message.value() or b""),
            tuple(Header(name, _text(value or b"")) for name, value in message.headers() or ()),
        )

    def offsets(
        self, at: int | Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        for tp in partitions:
            self.topics.check_partition(*tp)
        real = [(self._names.real(topic), partition) for topic, partition in partitions]
        offsets = self._cluster.offsets(dict.fromkeys(real, at))
        return [
            TopicPartitionOffset(*tp, offsets[real_tp] if offsets[real_tp] >= 0 else NO_OFFSET)
            for tp, real_tp in zip(partitions, real, strict=True)
        ]

    def all(self, name: str) -> list[Record]:
        """Return all records of a topic in (partition, offset) order."""
        records: list[Record] = []
        for number, (at, end) in enumerate(self.topics.bounds(name)):
            while at < end:
                page = self.fetch([TopicPartitionOffset(name, number, at)], 0)
                if not page:
                    break
                records += page
                at = page[-1].offset + 1
        return records

    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        records: dict[bool, list[Record]] = {True: [], False: []}
        for record in self.all(topic):
            is_own = (record.topic, record.partition, record.offset) in self.by_test
            records[is_own].append(record)
        return records[False], records[True]

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        return look_for(seconds, look)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
