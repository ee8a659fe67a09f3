"""Producing records on a real cluster, and reading records and offsets without a consumer group.

Partitions are chosen here instead of by librdkafka, so that they equal those of the engine in
memory: Java's murmur2 hash for keys, and one partition for all messages without a key in a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, Literal, TypeVar

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClusterPartition

from ...core.errors import counted
from ...core.timekeeper import Timekeeper
from ...core.timers import monotonic
from .. import errors
from ..engine.producing import plan_of, take_turns
from ..engine.state import Waits
from ..model import (
    NO_OFFSET,
    Header,
    Metadata,
    ProducerRecord,
    Record,
    TopicPartition,
    TopicPartitionOffset,
    distinct_positions,
)
from .cluster import POLL_SECONDS, Unavailable, look_until, translated, when_disconnected
from .topics import KafkaTopics, public_names

_POLL_SECONDS = 0.02
"""Interval at which the producer's thread checks whether it must end."""
_EXTRA_SECONDS = 5.0
"""Time that a request waits beyond the message timeout, because librdkafka rounds it up."""


class KafkaProducing:
    """The producer of a fake and its thread, with the methods of ``MemoryProducing``."""

    def __init__(self, topics: KafkaTopics, clock: Timekeeper) -> None:
        self.by_test: set[tuple[str, int, int]] = set()
        """Positions of the records that the test produced."""
        self._topics = topics
        self.public = topics.public
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        address = topics.address
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
        self._thread = threading.Thread(target=self._run, name="fakecloud producer", daemon=True)
        self._thread.start()

    @public_names
    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        self._look_up(messages)
        with self._lock:
            known = self._topics.known
            plan = plan_of(known, messages, self._clock.now_ms())
            take_turns(known, plan)
        sent = list(map(self._send, messages, plan.positions))
        unconfirmed = wait(sent, self._confirmation_seconds).not_done
        if unconfirmed:
            raise Unavailable(f"{counted(len(unconfirmed), 'message')} not confirmed in time")
        confirmed = [future.result() for future in sent]
        if not by_client:
            self.by_test.update((at.topic, at.partition, at.offset) for at in confirmed)
        return confirmed

    @public_names
    def check(self, messages: Sequence[ProducerRecord]) -> None:
        self._look_up(messages)
        with self._lock:
            plan_of(self._topics.known, messages, 0)

    def _look_up(self, messages: Sequence[ProducerRecord]) -> None:
        # A topic that is still missing is rejected when positions are chosen in request order.
        known = self._topics.look()
        for message in messages:
            topic = known.get(message.topic)
            if topic is None or (message.partition or 0) >= len(topic.logs):
                self._topics.look(fresh=True)
                return

    def _send(self, message: ProducerRecord, position: Metadata) -> Future[Metadata]:
        """Send a message; return its future position, which the cluster confirms."""
        sent: Future[Metadata] = Future()

        def delivered(error: Any, confirmation: Any) -> None:
            if error:
                sent.set_exception(translated(error))
            else:
                kind, ms = confirmation.timestamp()  # The cluster may set a timestamp of its own.
                timestamp = ms if kind == TIMESTAMP_CREATE_TIME else position.timestamp
                partition, offset = confirmation.partition(), confirmation.offset()
                sent.set_result(Metadata(position.topic, partition, offset, timestamp))

        key = message.key
        try:
            self._producer.produce(
                self._topics.real(position.topic),
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


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


T = TypeVar("T")


class KafkaFetching:
    """Reads records and offsets, with the methods of ``MemoryFetching``.

    It creates a client for each call, because that is faster than moving an existing client to
    other offsets. ``by_test`` contains the positions of records that the test produced.
    """

    def __init__(
        self,
        topics: KafkaTopics,
        clock: Timekeeper,
        waits: Waits,
        by_test: Collection[tuple[str, int, int]],
    ) -> None:
        self._topics = topics
        self.public = topics.public
        self._clock = clock
        self._waits = waits
        self._by_test = by_test

    @public_names
    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        wanted = distinct_positions(positions)
        if not wanted:
            return []
        for topic, partition, _ in wanted:
            self._topics.check_partition(topic, partition)
        for at, (start, end) in zip(wanted, self._topics.ends(wanted), strict=True):
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
            self._topics.address.settings(
                {
                    "error_cb": when_disconnected(away.set),
                    "group.id": self._topics.real("fetch"),
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": max(1, min(timeout_ms, 500)),
                    "max.partition.fetch.bytes": self._topics.settings.max_partition_bytes,
                }
            )
        )
        with closing(reader):
            reader.assign([ClusterPartition(self._topics.real(t), p, o) for t, p, o in wanted])
            found = self._read(reader, wanted, timeout_ms, away)
        if self._topics.settings.fetch_single_topic and found:
            found = [record for record in found if record.topic == found[0].topic]
        return found

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
        until = monotonic() + (timeout_ms / 1000 or self._topics.address.timeout)
        epoch = self._waits.epoch
        while epoch == self._waits.epoch and (left := until - monotonic()) > 0:
            message = reader.poll(min(left, POLL_SECONDS))
            if away.is_set():
                away.clear()
                self._topics.look(fresh=True)
            if message is None:
                continue
            tp = (self._topics.shown(message.topic() or ""), message.partition())
            problem = message.error()
            if problem is None:
                sizes[tp] += len(message)
                if parts[tp] and sizes[tp] > self._topics.settings.max_partition_bytes:
                    done.add(tp)
                else:
                    parts[tp].append(self.record(message))
            elif problem.code() == KafkaError._PARTITION_EOF:
                done.add(tp)
            else:
                raise translated(problem)
            # If all ends were reached without a record, return when the first record arrives.
            if len(done) == len(parts) and (timeout_ms == 0 or any(parts.values())):
                break
        return [record for part in parts.values() for record in part]

    def record(self, message: Any) -> Record:
        key = message.key()
        return Record(
            self._topics.shown(message.topic()),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            None if key is None else _text(key),
            _text(message.value() or b""),
            tuple(Header(name, _text(value or b"")) for name, value in message.headers() or ()),
        )

    @public_names
    def offsets(
        self, at: int | Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        for tp in partitions:
            self._topics.check_partition(*tp)
        real = [(self._topics.real(topic), partition) for topic, partition in partitions]
        found = self._topics.cluster.offsets(dict.fromkeys(real, at))
        return [
            TopicPartitionOffset(*tp, found[real_tp] if found[real_tp] >= 0 else NO_OFFSET)
            for tp, real_tp in zip(partitions, real, strict=True)
        ]

    def records(self, name: str) -> list[Record]:
        """Return all records of a topic in (partition, offset) order."""
        found: list[Record] = []
        starts, ends = self._topics.bounds(name)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            at = start
            while at < end:
                page = self.fetch([TopicPartitionOffset(name, number, at)], 0)
                if not page:
                    break
                found += page
                at = page[-1].offset + 1
        return found

    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        found: dict[bool, list[Record]] = {True: [], False: []}
        for record in self.records(topic):
            is_own = (record.topic, record.partition, record.offset) in self._by_test
            found[is_own].append(record)
        return found[False], found[True]

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        return look_until(monotonic() + seconds, look)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
