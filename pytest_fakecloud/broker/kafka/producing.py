"""The producer of a fake on a real cluster.

Partitions are chosen here instead of by librdkafka, so that they equal those of the engine in
memory: Java's murmur2 hash for keys, and one partition for all messages without a key in a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from ...core.ids import RandomStream
from ...core.timekeeper import Timekeeper
from ...core.wording import counted
from ..engine.producing import Placement, Plan
from ..model import Metadata, ProducerRecord
from .client import Unavailable, translated, unsupported
from .topics import KafkaTopics, public_names

OnDelivery = Callable[[Any, Any], None]
CREATE_TIME = 1
_POLL_SECONDS = 0.02
"""Interval at which the producer's thread checks whether it must end."""
_EXTRA_SECONDS = 5.0
"""Time that a request waits beyond the message timeout, because librdkafka rounds it up."""


class KafkaProducing:
    """The producer of a fake and its thread, with the methods of ``MemoryProducing``."""

    def __init__(self, topics: KafkaTopics, clock: Timekeeper, stream: RandomStream) -> None:
        self.by_tester: set[tuple[str, int, int]] = set()
        """Positions of the records that the test produced."""
        self._topics = topics
        self.public = topics.public
        self._settings = settings = topics.settings
        self._clock = clock
        self._stream = stream
        self._lock = threading.Lock()
        self._closed = False
        address = topics.address
        self._confirmation_seconds = address.timeout + _EXTRA_SECONDS
        self._producer = Producer(
            address.settings(
                {
                    "acks": "all",
                    "linger.ms": 0,
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": max(1, int(address.timeout * 1000)),
                    "message.max.bytes": max(1_000_000, settings.limits.max_message_bytes + 65536),
                }
            )
        )
        self._thread = threading.Thread(target=self._run, name="fakecloud producer", daemon=True)
        self._thread.start()

    @public_names
    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        plan = self._plan(messages, atomic=not by_client or self._settings.batches == "atomic")
        batch = _Batch(len(plan.positions))
        # The positions are those of the first messages, up to the first invalid one.
        for index, (message, place) in enumerate(zip(messages, plan.positions, strict=False)):
            self._send(message, place, batch.delivered(index))
        found = batch.wait(self._confirmation_seconds)
        confirmed = [_confirmed(*pair) for pair in zip(plan.positions, found, strict=True)]
        if not by_client:
            self.by_tester.update((at.topic, at.partition, at.offset) for at in confirmed)
        if plan.error is not None:
            raise plan.error
        return confirmed

    def _plan(self, messages: Sequence[ProducerRecord], *, atomic: bool) -> Plan:
        """Choose the positions of messages; raise ``BrokerError`` if none of them can be sent."""
        self._look_up(messages)
        with self._lock:
            placement = Placement(self._topics.known, self._settings, self._stream)
            plan = placement.plan(messages, self._clock.now_ms())
            if plan.error is not None and (atomic or not plan.positions):
                raise plan.error
            placement.take_turns(plan)
        return plan

    def _look_up(self, messages: Sequence[ProducerRecord]) -> None:
        # A topic that is still missing is rejected when positions are chosen in request order.
        known = self._topics.look()
        for message in messages:
            topic = known.get(message.topic)
            if topic is None or (message.partition or 0) >= len(topic.logs):
                self._topics.look(fresh=True)
                return

    def _send(self, message: ProducerRecord, place: Metadata, delivered: OnDelivery) -> None:
        key = message.key
        if key == "" and self._settings.empty_key == "absent":
            key = None
        try:
            self._producer.produce(
                self._topics.real(place.topic),
                _bytes(message.value),
                None if key is None else _bytes(key),
                place.partition,
                on_delivery=delivered,
                timestamp=place.timestamp,
                headers=[(_bytes(h.key).decode(), _bytes(h.value)) for h in message.headers]
                or None,
            )
        except (KafkaException, BufferError) as error:
            # librdkafka does not call the callback of a message that it did not accept.
            delivered(error, None)

    fail_batches = unsupported("partial_produce()")

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


class _Batch:
    """Collects the confirmations of one produce call."""

    def __init__(self, count: int) -> None:
        self._found: list[Any] = [None] * count
        self._missing = count
        self._error: Any = None
        self._changed = threading.Condition()

    def delivered(self, index: int) -> OnDelivery:
        """Return the callback for the message with this number."""

        def note(error: Any, message: Any) -> None:
            with self._changed:
                self._found[index] = message
                self._missing -= 1
                self._error = self._error or error
                self._changed.notify_all()

        return note

    def wait(self, seconds: float) -> list[Any]:
        """Return all confirmations; raise the first error, or 503 if they do not arrive in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing, seconds):
                raise Unavailable(f"{counted(self._missing, 'message')} not confirmed in time")
        if self._error is not None:
            raise translated(self._error)
        return self._found


def _confirmed(place: Metadata, message: Any) -> Metadata:
    """Return the position of a message on the cluster, which may set a timestamp of its own."""
    kind, ms = message.timestamp()
    timestamp = ms if kind == CREATE_TIME else place.timestamp
    return Metadata(place.topic, message.partition(), message.offset(), timestamp)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
