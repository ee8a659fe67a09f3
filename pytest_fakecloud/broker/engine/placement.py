"""Checks messages and determines their positions before any of them is appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.ids import RandomStream
from .. import errors
from ..model import Header, Metadata, ProducerRecord
from ..settings import BrokerConfig
from .log import PartitionLog, Topic

Columns = tuple[list[int], list[str | None], list[str], list[tuple[Header, ...]], list[int]]
"""The records to append to one partition: timestamps, keys, values, headers and sizes."""


class Placement:
    """Checks each message of a request, and chooses its partition, offset and timestamp."""

    def __init__(
        self, topics: Mapping[str, Topic], settings: BrokerConfig, stream: RandomStream
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._stream = stream

    def plan(
        self, messages: Sequence[ProducerRecord], now_ms: int, *, whole: bool
    ) -> tuple[list[Metadata], dict[PartitionLog, Columns], errors.BrokerError | None]:
        """Return the messages' positions, the records to append, and the first message's error, if
        any.

        Stops at the first invalid message. If ``whole`` is true, such a message causes the whole
        request to be rejected.
        """
        topics = self._topics
        empty_is_absent = self._settings.empty_key == "absent"
        keyless: dict[str, int] = {}
        columns: dict[PartitionLog, Columns] = {}
        places: list[Metadata] = []
        place = Metadata._make
        problem: errors.BrokerError | None = None
        for name, value, key, partition, timestamp, headers in messages:
            topic = topics.get(name)
            if topic is None:
                problem = errors.missing_topic(name, sorted(topics))
                break
            # Fast path: ASCII strings are by far the most common, and have as many bytes as
            # characters.
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
                if empty_is_absent and not key:
                    key = None
            if headers:
                headers, headers_size = _storable_headers(headers)
                size += headers_size
            if size > topic.max_message_bytes:
                problem = errors.record_too_large(size, topic.max_message_bytes)
                break
            if partition is not None:
                if not 0 <= partition < len(topic.logs):
                    problem = errors.unknown_partition(name, partition, len(topic.logs))
                    break
            elif key is not None:
                partition = topic.partition_for(key)
            else:
                # All messages of a request without a key go to the same partition, as with Kafka's
                # sticky partitioner.
                partition = keyless.get(name, -1)
                if partition < 0:
                    partition = keyless[name] = self._keyless_partition(topic)
            if timestamp is None:
                timestamp = now_ms
            elif timestamp < 0:
                problem = errors.illegal_argument(
                    f"Invalid timestamp: {timestamp}. Timestamp should be a non-negative number of "
                    "milliseconds or left out"
                )
                break
            log = topic.logs[partition]
            column = columns.get(log)
            if column is None:
                columns[log] = column = ([], [], [], [], [])
            timestamps, keys, values, header_lists, sizes = column
            places.append(place((name, partition, log.end + len(values), timestamp)))
            timestamps.append(timestamp)
            keys.append(key)
            values.append(value)
            header_lists.append(headers)
            sizes.append(size)
        if problem is None or not whole:
            for name in keyless:
                topics[name].turn += 1
        return places, columns, problem

    def _keyless_partition(self, topic: Topic) -> int:
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
