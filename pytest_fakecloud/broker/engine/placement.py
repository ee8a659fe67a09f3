"""Checks messages and determines their positions before any of them is appended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...core.ids import RandomStream
from .. import errors
from ..model import Header, Metadata, ProducerRecord
from ..settings import BrokerConfig
from .log import PartitionLog, Topic

# Looked up only once, because a batch can have thousands of messages.
_make_position = Metadata._make


class Columns(NamedTuple):
    """The records to append to one partition, as columns of equal length."""

    timestamps: list[int]
    keys: list[str | None]
    values: list[str]
    headers: list[tuple[Header, ...]]
    sizes: list[int]


class Plan:
    """The messages of one request that can be appended: those before the first invalid one.

    ``positions`` are their positions in request order, ``columns`` the records to append.
    ``error`` is the error of the first invalid message. ``keyless`` maps topics to the partition of
    the request's messages without a key.
    """

    __slots__ = ("columns", "error", "keyless", "positions")

    def __init__(self) -> None:
        self.positions: list[Metadata] = []
        self.columns: dict[PartitionLog, Columns] = {}
        self.error: errors.BrokerError | None = None
        self.keyless: dict[str, int] = {}


class Placement:
    """Checks each message of a request, and chooses its partition, offset and timestamp."""

    def __init__(
        self, topics: Mapping[str, Topic], settings: BrokerConfig, stream: RandomStream
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._stream = stream

    def plan(self, messages: Iterable[ProducerRecord], now_ms: int) -> Plan:
        """Return a plan for appending messages, which changes nothing yet."""
        plan = Plan()
        add = self._add
        try:
            for message in messages:
                add(plan, message, now_ms)
        except errors.BrokerError as error:
            plan.error = error
        return plan

    def take_turns(self, plan: Plan) -> None:
        """Let the next request's messages without a key go to the next partition of each topic."""
        for name in plan.keyless:
            self._topics[name].turn += 1

    def _add(self, plan: Plan, message: ProducerRecord, now_ms: int) -> None:
        name, value, key, partition, timestamp, headers = message
        topic = self._topics.get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self._topics))
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
            if not key and self._settings.empty_key == "absent":
                key = None
        if headers:
            headers, headers_size = _storable_headers(headers)
            size += headers_size
        if size > topic.max_message_bytes:
            raise errors.record_too_large(size, topic.max_message_bytes)
        if partition is None:
            if key is not None:
                partition = topic.partition_for(key)
            else:
                partition = plan.keyless.get(name)
                if partition is None:
                    partition = plan.keyless[name] = self._keyless_partition(topic)
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

    def _keyless_partition(self, topic: Topic) -> int:
        # All messages of a request without a key go to the same partition, as with Kafka's sticky
        # partitioner.
        if self._settings.keyless == "random":
            return self._stream.randrange(len(topic.logs))
        return topic.turn % len(topic.logs)


def _storable(text: str) -> tuple[str, int]:
    try:
        return text, len(text.encode())
    except UnicodeEncodeError:
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
