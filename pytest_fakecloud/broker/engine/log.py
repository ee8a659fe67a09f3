"""Storage of topics and their partitions, and the partitions and offsets of new records.

A partition stores its records as columns, which use less memory than one object for each record.
Appending a thousand messages extends only a few lists, and a consume request takes only a few
slices. Offsets are not stored: records are never removed from the middle, so the offset of the
first entry determines all others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import accumulate, repeat
from struct import unpack_from
from typing import NamedTuple

from ...core.signals import Signal
from .. import errors
from ..model import Header, Metadata, ProducerRecord, Record

# The columns are compacted when at least this many entries at their front are deleted. Compacting
# moves all later entries, so it should happen rarely.
_WORTH_COMPACTING = 1024


class Columns(NamedTuple):
    """The records to append to one partition, as columns of equal length."""

    timestamps: list[int]
    keys: list[str | None]
    values: list[str]
    headers: list[tuple[Header, ...]]
    sizes: list[int]


class PartitionLog:
    """The records of one partition.

    ``start`` is the offset of the oldest record, ``end`` the offset that the next record will get.
    ``watchers`` are the signals to notify after an append.
    """

    _COLUMNS = ("_by_client", "_ends", "_headers", "_keys", "_peaks", "_timestamps", "_values")
    __slots__ = (*_COLUMNS, "_base", "_before_bytes", "_head", "partition", "topic", "watchers")

    def __init__(self, topic: str, partition: int, first_offset: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.watchers: set[Signal] = set()
        self._base = first_offset
        self._head = 0
        self._before_bytes = 0
        self._timestamps = array("q")
        self._peaks = array("q")
        """The largest timestamp up to each record. Unlike the timestamps, these values are sorted."""
        self._ends = array("q")
        """The total size in bytes of the records up to and including each record."""
        self._keys: list[str | None] = []
        self._values: list[str] = []
        self._headers: list[tuple[Header, ...]] = []
        self._by_client = bytearray()

    @property
    def start(self) -> int:
        return self._base + self._head

    @property
    def end(self) -> int:
        return self._base + len(self._values)

    @property
    def size(self) -> int:
        """Total bytes of keys, values and headers."""
        return self._bytes_until(len(self._values)) - self._bytes_until(self._head)

    def __len__(self) -> int:
        return len(self._values) - self._head

    def append(self, new: Columns, *, by_client: bool) -> None:
        """Append at least one record."""
        peak = self._peaks[-1] if len(self) else new.timestamps[0]
        self._timestamps.extend(new.timestamps)
        peaks = accumulate(new.timestamps, max, initial=peak)
        next(peaks)
        self._peaks.extend(peaks)
        ends = accumulate(new.sizes, initial=self._bytes_until(len(self._values)))
        next(ends)
        self._ends.extend(ends)
        self._keys.extend(new.keys)
        self._values.extend(new.values)
        self._headers.extend(new.headers)
        self._by_client.extend(repeat(by_client, len(new.values)))

    def cut(self, end: int) -> None:
        """Remove the records from an offset on, also those of an interrupted ``append()``."""
        for name in self._COLUMNS:
            del getattr(self, name)[end - self._base :]

    def trim(self, before: int) -> int:
        """Delete the records below an offset and return their number."""
        gone = min(before, self.end) - self.start
        if gone <= 0:
            return 0
        self._head += gone
        # The remaining maxima may come from deleted records. Recompute them until one is already
        # correct, because all later ones are then correct, too.
        peaks, peak = self._peaks, None
        for index in range(self._head, len(peaks)):
            timestamp = self._timestamps[index]
            peak = timestamp if peak is None else max(peak, timestamp)
            if peaks[index] == peak:
                break
            peaks[index] = peak
        if self._head >= _WORTH_COMPACTING and self._head * 2 >= len(self._values):
            self._compact()
        return gone

    def expire(self, cutoff_ms: int) -> int:
        """Delete the records before the first one that is as young as the cutoff; return how many."""
        head = self._head
        if head == len(self._values) or self._peaks[head] >= cutoff_ms:
            return 0
        return self.trim(self._base + bisect_left(self._peaks, cutoff_ms, head))

    def shrink(self, max_bytes: int) -> int:
        """Delete the oldest records until the rest fits or one is left; return how many."""
        if self.size <= max_bytes:
            return 0
        count = len(self._values)
        index = bisect_left(self._ends, self._ends[-1] - max_bytes, self._head)
        return self.trim(self._base + min(index + 1, count - 1))

    def _compact(self) -> None:
        head, before = self._head, self._bytes_until(self._head)
        columns = [getattr(self, name)[head:] for name in self._COLUMNS]
        # No call is between these assignments, so a signal's handler cannot interrupt them.
        (
            self._by_client, self._ends, self._headers, self._keys, self._peaks, self._timestamps,
            self._values,
        ) = columns  # fmt: skip
        self._before_bytes, self._base, self._head = before, self._base + head, 0

    def read(
        self, offset: int, max_records: int | None = None, max_bytes: int | None = None
    ) -> list[Record]:
        """Return records from an offset inside the log on, within the limits, but at least one."""
        low = offset - self._base
        high = len(self._values)
        if max_bytes is not None and low < high:
            cap = self._bytes_until(low) + max_bytes
            high = max(bisect_right(self._ends, cap, low, high), low + 1)
        if max_records is not None:
            high = min(high, low + max_records)
        return self._records(low, high)

    def records(self, *, by_client: bool | None = None) -> list[Record]:
        """Return all records, or only those of clients (True) or of the test (False)."""
        records = self._records(self._head, len(self._values))
        if by_client is None:
            return records
        origins = self._by_client[self._head :]
        return [r for r, origin in zip(records, origins, strict=True) if bool(origin) == by_client]

    def offset_at(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a time, or None if there is none."""
        index = bisect_left(self._peaks, timestamp_ms, self._head)
        return None if index == len(self._peaks) else self._base + index

    def _records(self, low: int, high: int) -> list[Record]:
        # `Record._make` avoids the keyword handling of `Record(...)`, most of the time here.
        rows = zip(
            repeat(self.topic),
            repeat(self.partition),
            range(self._base + low, self._base + high),
            self._timestamps[low:high],
            self._keys[low:high],
            self._values[low:high],
            self._headers[low:high],
            strict=False,
        )
        return list(map(Record._make, rows))

    def _bytes_until(self, index: int) -> int:
        return self._ends[index - 1] if index else self._before_bytes

    def copy(self) -> PartitionLog:
        """Return an independent copy without watchers. Columns are copied, strings are shared."""
        clone = copy(self)
        clone.watchers = set()
        for name in self._COLUMNS:
            setattr(clone, name, getattr(self, name)[:])
        return clone


class Topic:
    """A topic with its partitions and its limits. Sizes are in bytes, retention in milliseconds."""

    def __init__(
        self,
        name: str,
        logs: list[PartitionLog],
        *,
        max_message_bytes: int,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        turn: int = 0,
    ) -> None:
        self.name = name
        self.logs = logs
        self.max_message_bytes = max_message_bytes
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes
        self.turn = turn
        """Number of requests with keyless messages. It selects the partition of the next one."""

    def retain(self, now_ms: int) -> None:
        """Delete the records that exceed the topic's retention in age or size."""
        if self.retention_ms is not None:
            for log in self.logs:
                log.expire(now_ms - self.retention_ms)
        if self.retention_bytes is not None:
            for log in self.logs:
                log.shrink(self.retention_bytes)

    def copy(self) -> Topic:
        clone = copy(self)
        clone.logs = [log.copy() for log in self.logs]
        return clone


# -- positions of new records --------------------------------------------------------------------

# Without a call in Python, because a batch can have thousands of messages.
_make_position: Callable[[tuple[str, int, int, int]], Metadata] = partial(tuple.__new__, Metadata)
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


class ProducePlan(NamedTuple):
    """The positions and the columns of the messages of one request.

    ``positions`` are in request order. ``keyless`` maps topics to the partition of the request's
    messages without a key.
    """

    positions: list[Metadata]
    columns: dict[PartitionLog, Columns]
    keyless: dict[str, int]


def plan_of(
    topics: Mapping[str, Topic], messages: Iterable[ProducerRecord], now_ms: int
) -> ProducePlan:
    """Return a plan for appending messages, which changes nothing yet."""
    plan = ProducePlan([], {}, {})
    for message in messages:
        _add(topics, plan, message, now_ms)
    return plan


def columns_of(records: Iterable[ProducerRecord]) -> Columns:
    """Return records that have a timestamp as columns."""
    columns = Columns([], [], [], [], [])
    for record in records:
        value, size = _storable(record.value)
        key, key_size = (None, 0) if record.key is None else _storable(record.key)
        headers, headers_size = _storable_headers(record.headers)
        columns.timestamps.append(record.timestamp or 0)
        columns.keys.append(key)
        columns.values.append(value)
        columns.headers.append(headers)
        columns.sizes.append(size + key_size + headers_size)
    return columns


def take_turns(topics: Mapping[str, Topic], plan: ProducePlan) -> None:
    """Let the next request's messages without a key go to the next partition of each topic."""
    for name in plan.keyless:
        topics[name].turn += 1


def _add(
    topics: Mapping[str, Topic], plan: ProducePlan, message: ProducerRecord, now_ms: int
) -> None:
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
