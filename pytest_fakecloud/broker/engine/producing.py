"""Production of records to a broker in memory: their positions, the plan's limits, and appending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import unpack_from

from .. import errors
from ..errors import BrokerError
from ..model import Header, Metadata, ProducerRecord
from ..settings import BrokerLimits
from .log import Columns, PartitionLog, Topic
from .state import BrokerState

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
# Looked up only once, because a batch can have thousands of messages.
_make_position = Metadata._make
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@dataclass(eq=False, slots=True)
class Plan:
    """The positions and the columns of the messages of one request.

    ``positions`` are in request order. ``keyless`` maps topics to the partition of the request's
    messages without a key.
    """

    positions: list[Metadata] = field(default_factory=list)
    columns: dict[PartitionLog, Columns] = field(default_factory=dict)
    keyless: dict[str, int] = field(default_factory=dict)


def plan_of(topics: Mapping[str, Topic], messages: Iterable[ProducerRecord], now_ms: int) -> Plan:
    """Return a plan for appending messages, which changes nothing yet."""
    plan = Plan()
    for message in messages:
        _add(topics, plan, message, now_ms)
    return plan


def take_turns(topics: Mapping[str, Topic], plan: Plan) -> None:
    """Let the next request's messages without a key go to the next partition of each topic."""
    for name in plan.keyless:
        topics[name].turn += 1


def _add(topics: Mapping[str, Topic], plan: Plan, message: ProducerRecord, now_ms: int) -> None:
    """Check a message, and add its partition, offset and timestamp to the plan."""
    name, value, key, partition, timestamp, headers = message
    topic = topics.get(name)
    if topic is None:
        raise errors.missing_topic(name, sorted(topics))
    # Fast path: ASCII strings are by far the most common, and have as many bytes as characters.
    if value.isascii():
        size = len(value)
    else:
        value, size = _storable(value)
    if key is not None:
        if key.isascii():
            size += len(key)
        else:
            key, key_size = _storable(key)
            size += key_size
    if headers:
        headers, headers_size = _storable_headers(headers)
        size += headers_size
    if size > topic.max_message_bytes:
        raise errors.record_too_large(size, topic.max_message_bytes)
    if partition is None:
        if key is not None:
            partition = partition_for_key(key.encode(), len(topic.logs))
        else:
            partition = plan.keyless.get(name)
            if partition is None:
                # As in Kafka's sticky partitioner, the request's other messages get the same one.
                partition = plan.keyless[name] = topic.turn % len(topic.logs)
    elif not 0 <= partition < len(topic.logs):
        raise errors.unknown_partition(name, partition, len(topic.logs))
    if timestamp is None:
        timestamp = now_ms
    elif timestamp < 0:
        raise errors.illegal_argument(
            f"Invalid timestamp: {timestamp}. Timestamp should be a non-negative number of "
            "milliseconds or left out"
        )
    log = topic.logs[partition]
    column = plan.columns.get(log)
    if column is None:
        column = plan.columns[log] = Columns([], [], [], [], [])
    timestamps, keys, values, header_lists, sizes = column
    plan.positions.append(_make_position((name, partition, log.end + len(values), timestamp)))
    timestamps.append(timestamp)
    keys.append(key)
    values.append(value)
    header_lists.append(headers)
    sizes.append(size)


def _storable(text: str) -> tuple[str, int]:
    data = text.encode("utf-8", "replace")
    return data.decode(), len(data)


def _storable_headers(headers: Sequence[Header]) -> tuple[tuple[Header, ...], int]:
    size = 0
    stored = []
    for name, value in headers:
        name, name_size = _storable(name)
        value, value_size = _storable(value)
        size += name_size + value_size
        stored.append(Header(name, value))
    return tuple(stored), size


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash, with the seed of Kafka's Java client.

    Source: the Java producer's documented default partitioner; librdkafka calls it ``murmur2``.
    The package murmurhash2 is five times faster, but a hash takes only 2.2 us of a request.
    """
    length = len(data)
    h = _SEED ^ length
    for k in unpack_from(f"<{length >> 2}I", data):
        k = k * _M & _MASK
        h = (h * _M ^ (k ^ (k >> 24)) * _M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[length & ~3 :], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition for a key: its hash without the sign bit, modulo the partition count."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class BrokerQuota:
    """Counts produced messages per second and per UTC day of the fake clock.

    The vendor does not document when these periods start. Whole seconds and UTC days are decided
    here.
    """

    def __init__(self, limits: BrokerLimits) -> None:
        self._windows = [
            (span, limit, name)
            for span, limit, name in (
                (_SECOND_US, limits.messages_per_second, "second"),
                (_DAY_US, limits.messages_per_day, "day"),
            )
            if limit is not None
        ]
        self._storage = limits.storage_bytes
        self._counts: dict[tuple[str, int], int] = {}

    def take(self, messages: int, size: int, stored: Callable[[], int], now_us: int) -> None:
        """Count messages that are about to be appended.

        ``size`` is the total size of the messages in bytes, and ``stored`` returns the bytes stored
        so far. If the plan is used up, raises ``BrokerError`` (429) and counts nothing.
        """
        counts = {}
        for span, limit, name in self._windows:
            period = name, now_us // span
            used = self._counts.get(period, 0)
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
        self._counts = counts

    def reset(self) -> None:
        self._counts.clear()


class MemoryProducing:
    """Appends records."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.quota = BrokerQuota(state.settings.limits)

    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        """Append messages and return their positions in request order.

        ``by_client`` is False for messages of the test, which do not use up the plan. Raises
        ``BrokerError`` for invalid or too large messages, and for a plan that is used up.
        """
        with self._state:
            return self.append(messages, by_client=by_client)

    def check(self, messages: Sequence[ProducerRecord]) -> None:
        """Raise ``BrokerError`` if a client's messages cannot be appended."""
        with self._state:
            plan_of(self._state.topics, messages, 0)

    def append(self, messages: Sequence[ProducerRecord], *, by_client: bool) -> list[Metadata]:
        """Append messages and return their positions while the state is locked."""
        now_us, topics = self._state.now_us, self._state.topics
        plan = plan_of(topics, messages, now_us // 1000)
        if by_client:
            size = sum(sum(columns.sizes) for columns in plan.columns.values())
            self.quota.take(len(plan.positions), size, self._stored, now_us)
        take_turns(topics, plan)
        woken = self._state.woken
        for log, columns in plan.columns.items():
            log.append(columns, by_client=by_client)
            woken |= log.watchers
        for name in {log.topic for log in plan.columns}:
            topics[name].retain(now_us // 1000)
        return plan.positions

    def _stored(self) -> int:
        return sum(log.size for topic in self._state.topics.values() for log in topic.logs)
