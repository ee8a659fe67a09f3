"""The producer of a fake on a real cluster.

Partitions are chosen here instead of by librdkafka, so that they equal those of the engine in
memory: Java's murmur2 hash for keys, and one partition for all messages without a key in a request.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaException, Producer

from ...core.timekeeper import Timekeeper
from ...core.wording import counted
from ..engine.producing import Placement
from ..model import Metadata, ProducerRecord
from .client import Unavailable, translated
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
        positions = self._plan(messages)
        sent = list(map(self._send, messages, positions))
        unconfirmed = wait(sent, self._confirmation_seconds).not_done
        if unconfirmed:
            raise Unavailable(f"{counted(len(unconfirmed), 'message')} not confirmed in time")
        confirmed = [future.result() for future in sent]
        if not by_client:
            self.by_test.update((at.topic, at.partition, at.offset) for at in confirmed)
        return confirmed

    def _plan(self, messages: Sequence[ProducerRecord]) -> list[Metadata]:
        """Choose the positions of messages; raise ``BrokerError`` if they cannot be sent."""
        self._look_up(messages)
        with self._lock:
            placement = Placement(self._topics.known)
            plan = placement.plan(messages, self._clock.now_ms())
            placement.take_turns(plan)
        return plan.positions

    @public_names
    def check(self, messages: Sequence[ProducerRecord]) -> None:
        self._look_up(messages)
        with self._lock:
            Placement(self._topics.known).plan(messages, 0)

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
                sent.set_result(_confirmed(position, confirmation))

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


def _confirmed(position: Metadata, message: Any) -> Metadata:
    """Return the position of a message on the cluster, which may set a timestamp of its own."""
    kind, ms = message.timestamp()
    timestamp = ms if kind == TIMESTAMP_CREATE_TIME else position.timestamp
    return Metadata(position.topic, message.partition(), message.offset(), timestamp)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
