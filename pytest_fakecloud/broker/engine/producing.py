"""Production of records to a broker in memory, within the limits of its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.ids import RandomStream
from ...core.wording import counted
from .. import errors
from ..errors import BrokerError
from ..model import Metadata, ProducerRecord
from ..settings import BrokerLimits
from .groups.table import GroupTable
from .guard import Guard
from .placement import Placement

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


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
        self._counts: dict[str, tuple[int, int]] = {}

    def take(self, messages: int, size: int, stored: Callable[[], int], now_us: int) -> None:
        """Count messages that are about to be appended.

        ``size`` is the total size of the messages in bytes, and ``stored`` returns the bytes stored
        so far. If the plan is used up, raises ``BrokerError`` (429) and counts nothing.
        """
        counts = {}
        for span, limit, name in self._windows:
            window, used = self._counts.get(name, (-1, 0))
            used = used if window == now_us // span else 0
            if used + messages > limit:
                raise BrokerError(
                    "quota_exceeded",
                    f"Exceeded the plan's limit of {limit} messages per {name}: "
                    f"{used} were produced in this {name}, {messages} more were sent",
                )
            counts[name] = (now_us // span, used + messages)
        if self._storage is not None and stored() + size > self._storage:
            raise BrokerError(
                "quota_exceeded", f"Exceeded the plan's limit of {self._storage} bytes of storage"
            )
        self._counts.update(counts)

    def reset(self) -> None:
        self._counts.clear()


class MemoryProducing:
    """Appends records. ``partial`` contains the number of messages to keep of each batch that will
    fail.
    """

    def __init__(self, table: GroupTable, guard: Guard, stream: RandomStream) -> None:
        self._table = table
        self._guard = guard
        self._settings = table.settings
        self._placement = Placement(table.topics, table.settings, stream)
        self.quota = BrokerQuota(table.settings.limits)
        self.partial: list[int] = []

    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        """Append messages and return their positions in request order.

        All messages are checked before any is appended. ``by_client`` is False for messages of the
        test, which do not count towards the plan's limits. Raises ``BrokerError`` for unknown
        topics and partitions, messages that are too large, negative timestamps, and a plan that is
        used up.
        """
        with self._guard as now_us:
            error: errors.BrokerError | None = None
            failing = self._failing(len(messages)) if by_client and self.partial else None
            if failing is not None:
                messages = messages[:failing]
                error = errors.BrokerError(
                    "not_enough_replicas",
                    "Not enough in-sync replicas after appending "
                    f"{counted(failing, 'message')} of the batch",
                )
            places, problem = self.append(messages, now_us, by_client=by_client)
            if failing is not None:
                self.partial.remove(failing)
            error = problem or error
        if error is not None:
            raise error
        return places

    def _failing(self, size: int) -> int | None:
        """Return how many messages to keep of a batch of this size that fails; None if it succeeds."""
        return next((keep for keep in self.partial if keep < size), None)

    def append(
        self, messages: Sequence[ProducerRecord], now_us: int, *, by_client: bool
    ) -> tuple[list[Metadata], errors.BrokerError | None]:
        """Append messages; return their positions, and the first error if not all were appended.

        Raises the error if no message was appended. With the ``"in order"`` setting, a part of a
        client's batch can be appended. Batches of the test are appended completely or not at all.
        """
        atomic = not by_client or self._settings.batches == "atomic"
        plan = self._placement.plan(messages, now_us // 1000)
        if plan.error is not None and (atomic or not plan.positions):
            raise plan.error
        if by_client:
            size = sum(sum(columns.sizes) for columns in plan.columns.values())
            self.quota.take(len(plan.positions), size, self._stored, now_us)
        self._placement.take_turns(plan)
        woken = self._table.woken
        for log, columns in plan.columns.items():
            log.append(*columns, by_client=by_client)
            woken |= log.watchers
        for name in {log.topic for log in plan.columns}:
            self._table.topics[name].retain(now_us // 1000)
        return plan.positions, plan.error

    def _stored(self) -> int:
        return sum(log.size for topic in self._table.topics.values() for log in topic.logs)

    def fail_batches(self, keep: int, times: int) -> None:
        """Make the next ``times`` client batches of more than ``keep`` messages fail.

        The first ``keep`` messages of each such batch are appended.
        """
        with self._guard:
            self.partial += [keep] * times
