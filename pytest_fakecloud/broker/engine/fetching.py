"""Reading from a broker in memory without a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from ...core.timeparse import monotonic
from .. import errors
from ..model import NO_OFFSET, Record, TopicPartition, TopicPartitionOffset
from .log import PartitionLog
from .state import BrokerState
from .waits import ClockWaits

T = TypeVar("T")
_LONGEST_SLEEP = 3600.0
"""Maximum duration of a single sleep, in seconds. Every platform supports this value."""


class MemoryFetching:
    """Reads records and offsets."""

    def __init__(self, state: BrokerState, waits: ClockWaits) -> None:
        self._state = state
        self._clock = state.clock
        self._waits = waits
        self._settings = state.settings

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Return the records from each position on; wait until there is at least one record.

        Returns ``[]`` at the timeout. Raises ``BrokerError`` for positions outside the logs.
        """
        wanted = distinct_positions(positions)
        signal = self._clock.signal()
        with self._state:
            epoch = self._waits.epoch
            found = self._read(wanted)
            if found or not timeout_ms or not wanted:
                return found
            logs = [self._state.partition(topic, partition) for topic, partition, _ in wanted]
            for log in logs:
                log.watchers.add(signal)

        def poll() -> list[Record] | None:
            with self._state:
                if self._waits.epoch != epoch:
                    return []
                return self._read(wanted) or None

        try:
            return self._waits.wait(signal, poll, timeout_ms) or []
        finally:
            with self._state:
                for log in logs:
                    log.watchers.discard(signal)

    def _read(self, wanted: Sequence[TopicPartitionOffset]) -> list[Record]:
        parts: list[list[Record]] = []
        for topic, partition, offset in wanted:
            log = self._state.partition(topic, partition)
            if not log.start <= offset <= log.end:
                raise errors.out_of_range(topic, partition, offset, log.start, log.end)
            if offset < log.end:
                parts.append(log.read(offset, None, self._settings.max_partition_bytes))
        if self._settings.fetch_single_topic and parts:
            first = parts[0][0].topic
            parts = [part for part in parts if part[0].topic == first]
        return [record for part in parts for record in part]

    def offsets(
        self, at: int | Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> list[TopicPartitionOffset]:
        """Return one offset for each partition, in request order.

        ``at`` is ``"earliest"`` or ``"latest"`` for the start or end of the log, or a time in ms
        for the first record at or after it.
        """
        found = []
        with self._state:
            for tp in partitions:
                log = self._state.partition(*tp)
                if at == "earliest":
                    offset: int | None = log.start
                elif at == "latest":
                    offset = log.end
                else:
                    offset = log.offset_at(at)
                found.append(TopicPartitionOffset(*tp, NO_OFFSET if offset is None else offset))
        return found

    def records(self, name: str) -> list[Record]:
        """Return all records of a topic in (partition, offset) order."""
        with self._state:
            return [record for log in self._state.topic(name).logs for record in log.records()]

    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        """Return a topic's records in two lists: those produced by clients and those of the test."""
        with self._state:
            logs = self._state.topic(topic).logs
            return (
                [record for log in logs for record in log.records(by_client=True)],
                [record for log in logs for record in log.records(by_client=False)],
            )

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        """Call ``look`` after each change of a topic, until it returns a result or for ``seconds``."""
        signal = self._clock.signal()
        watched: list[PartitionLog] = []
        until = monotonic() + seconds
        self._waits.waiting.append(signal)
        try:
            while True:
                version = signal.version
                with self._state:
                    # Watch again after each change: a restore, for example, replaces all logs.
                    watched = list(self._state.topic(topic).logs)
                    for log in watched:
                        log.watchers.add(signal)
                found = look()
                left = until - monotonic()
                if found is not None or left <= 0:
                    return found
                signal.sleep(version, min(left, _LONGEST_SLEEP))
        finally:
            self._waits.waiting.remove(signal)
            with self._state:
                for log in watched:
                    log.watchers.discard(signal)


def distinct_positions(positions: Sequence[TopicPartitionOffset]) -> list[TopicPartitionOffset]:
    """Return the positions without duplicates; raise ``BrokerError`` if two contradict."""
    found: dict[TopicPartition, int] = {}
    for topic, partition, offset in positions:
        tp = TopicPartition(topic, partition)
        if found.setdefault(tp, offset) != offset:
            raise errors.BrokerError(
                "conflicting_offsets",
                f"Partition {topic}-{partition} is given twice with different offsets: "
                f"{found[tp]} and {offset}",
            )
    return [TopicPartitionOffset(*tp, offset) for tp, offset in found.items()]
