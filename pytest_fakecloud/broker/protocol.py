"""What the routes and the handle need of a broker, in memory or real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar

from ..core.timers import Signal
from .model import (
    GroupAssignments,
    GroupView,
    Metadata,
    ProducerRecord,
    Record,
    TopicPartition,
    TopicPartitionOffset,
    TopicView,
)
from .settings import Behaviour

__all__ = ["BrokerEngine"]

T = TypeVar("T")


class BrokerEngine(Protocol):
    """One broker: first what its clients ask for, then what its tester does and looks at.

    Timeouts are milliseconds and bound the call; every method may raise ``BrokerError``. What an
    engine cannot do for a tester raises ``ContractError``.
    """

    settings: Behaviour

    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        """Append messages of a client or of the tester; return their places in request order."""
        ...

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Records from the positions on; waits for the first, ``[]`` at the timeout."""
        ...

    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        """The next records for an instance, created on its first call from the raw ``headers``."""
        ...

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Store offsets verbatim; none given: what was last consumed."""
        ...

    def delete_consumer(self, group: str, instance: str) -> None:
        """Stop and remove an instance."""
        ...

    def topics(self) -> dict[str, int]:
        """Partition counts by topic name."""
        ...

    def consumers(self) -> list[GroupAssignments]:
        """The groups with instances known here."""
        ...

    def committed(
        self, group: str, instance: str, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> list[TopicPartitionOffset]:
        """Committed offsets in request order."""
        ...

    def offsets(
        self,
        at: int | Literal["earliest", "latest"],
        partitions: Sequence[TopicPartition],
        timeout_ms: int,
    ) -> list[TopicPartitionOffset]:
        """The first offset at or after a time in ms, or an end of the log, in request order."""
        ...

    # -- arranging -------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        max_message_bytes: int | None = None,
        first_offset: int = 0,
    ) -> None:
        """Create a topic."""
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all that it holds."""
        ...

    def add_partitions(self, name: str, count: int) -> int:
        """Give a topic that many more partitions and return its partition count."""
        ...

    def set_retention(
        self, name: str, *, retention_ms: int | None, retention_bytes: int | None
    ) -> None:
        """Replace a topic's retention; None keeps for ever."""
        ...

    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create the topics that are missing and append a tester's messages."""
        ...

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        """Forget the records below an offset and count them."""
        ...

    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        """Set a group's committed offset, whoever owns the partition."""
        ...

    # -- making it happen ------------------------------------------------------------------------

    def join(
        self, group: str, instance: str, topics: Sequence[str], auto_offset_reset: str = "latest"
    ) -> None:
        """Let an instance join that no client consumes with."""
        ...

    def crash(self, group: str, instance: str) -> None:
        """Let an instance vanish without a commit."""
        ...

    def expire(self, group: str, instance: str) -> None:
        """End an instance's session now."""
        ...

    def rebalance(self, group: str) -> None:
        """Let a group hand out its partitions anew."""
        ...

    def redeliver(
        self, group: str, last: int, topic: str | None, partition: int | None
    ) -> list[Record]:
        """Deliver a group's last records again and return those that will come."""
        ...

    def reorder(self) -> AbstractContextManager[None]:
        """Mix the records of different partitions within the block."""
        ...

    def fail_batches(self, keep: int, times: int) -> None:
        """Make the next ``times`` larger batches of clients append ``keep`` messages and fail."""
        ...

    # -- looking ---------------------------------------------------------------------------------

    def topic_view(self, name: str) -> TopicView:
        """A topic as it is now."""
        ...

    def group_view(self, name: str) -> GroupView:
        """A group as it is now; ``Dead`` where there is none."""
        ...

    def group_names(self) -> list[str]:
        """The groups that have members or committed offsets, sorted."""
        ...

    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        """The records of a topic by who put them in: clients, and the tester."""
        ...

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        """Return what ``look`` finds, asked whenever a topic changes; None after real seconds."""
        ...

    # -- the handle's own ------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Signal]:
        """The signal of each call that waits now."""
        ...

    def tell_to(self, tell: Callable[..., object]) -> None:
        """Tell the events of groups to somebody from now on."""
        ...

    def snapshot(self) -> Any:
        """A copy of all data."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Put a copy back."""
        ...

    def interrupt(self) -> None:
        """End every waiting call now, with nothing found."""
        ...

    def close(self) -> None:
        """End every waiting call, now and in future."""
        ...
