"""Delivery of records to the instances of consumer groups."""

from __future__ import annotations

from ....core.ids import RandomStream
from ... import errors
from ...model import Record, TopicPartition
from ..log import PartitionLog
from .commits import Commits
from .members import ConsumerGroup, Instance, remember
from .table import GroupTable


class GroupDelivery:
    """Selects the next records for an instance, and advances its positions."""

    def __init__(self, table: GroupTable, commits: Commits, stream: RandomStream) -> None:
        self._table = table
        self._settings = table.settings
        self._commits = commits
        self._stream = stream
        self.random_interleave = table.settings.interleave == "random"

    def take(self, group: ConsumerGroup, instance: Instance, now: int) -> list[Record] | None:
        """Return the next records for an instance, or None if there are no records yet.

        Raises ``BrokerError`` if the reset policy is ``none`` and a partition has no position.
        """
        if instance.state != "active" or group.state != "Stable":
            return None
        assignment = instance.assignment
        for tp in assignment:
            self._check_position(group, instance, tp, now)
        first = instance.turn % len(assignment) if assignment else 0
        left = self._settings.max_poll_records
        parts: list[list[Record]] = []
        for tp in assignment[first:] + assignment[:first]:
            position = instance.positions[tp]
            log = self._table.log(tp)
            if position is None or position >= log.end:
                continue
            records = log.read(position, left, self._settings.max_partition_bytes)
            after = position + len(records)
            instance.positions[tp] = instance.delivered[tp] = after
            remember(group, tp, position, after)
            parts.append(records)
            left -= len(records)
            if left <= 0:
                break
        if not parts:
            return None
        instance.turn += 1
        self._commits.plan_auto_commit(group, instance, now)
        return self._merged(parts)

    def _merged(self, parts: list[list[Record]]) -> list[Record]:
        if len(parts) == 1:
            return parts[0]
        if not self.random_interleave:
            return [record for part in parts for record in part]
        # Shuffle the numbers of the parts instead of the records, to keep the order within each
        # part.
        numbers = [number for number, part in enumerate(parts) for _ in part]
        self._stream.shuffle(numbers)
        sources = [iter(part) for part in parts]
        return [next(sources[number]) for number in numbers]

    # -- positions -------------------------------------------------------------------------------

    def _check_position(
        self, group: ConsumerGroup, instance: Instance, tp: TopicPartition, now: int
    ) -> None:
        log = self._table.topic(tp.topic, now).logs[tp.partition]
        position = instance.positions.get(tp)
        if position is None:
            position = self.start_position(group, instance, tp)
            if position is None:
                committed = group.committed.get(tp)
                if committed is None:
                    raise errors.no_offset(*tp)
                raise errors.out_of_range(*tp, committed, log.start, log.end)
            instance.positions[tp] = position
        elif not log.start <= position <= log.end:
            reset = self._reset_position(instance, log)
            if reset is None:
                raise errors.out_of_range(*tp, position, log.start, log.end)
            instance.positions[tp] = reset
            self._table.tell(
                "reset",
                f"{instance.name} of {group.name} was at {position} of {tp.topic}-{tp.partition}, "
                f"outside {log.start}..{log.end}, and was reset to {reset}",
                now,
                group=group.name,
                instance=instance.name,
            )

    def start_position(
        self, group: ConsumerGroup, instance: Instance, tp: TopicPartition
    ) -> int | None:
        """Return the offset at which an instance starts to read a partition.

        This is the committed offset or, if it is missing or outside the log, the one that the reset
        policy determines. None if the policy is ``none``.
        """
        log = self._table.log(tp)
        committed = group.committed.get(tp)
        if committed is not None and log.start <= committed <= log.end:
            return committed
        return self._reset_position(instance, log)

    @staticmethod
    def _reset_position(instance: Instance, log: PartitionLog) -> int | None:
        reset = instance.config.auto_offset_reset
        return {"earliest": log.start, "latest": log.end}.get(reset)
