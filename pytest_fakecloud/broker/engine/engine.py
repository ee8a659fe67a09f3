"""The broker engine in memory.

Sources: the vendor's API specification for the operations and their defaults; Kafka's Java client
for partitioning, range assignment, resets and commits. All other behaviour is decided here.
``BrokerConfig`` lists the behaviour that settings can change. The following cannot be changed:

- Retention removes single records (Kafka removes whole segments). It is applied whenever a log is read.
- A string that is not valid Unicode (a lone surrogate in JSON) is stored with ``?`` instead, as by
  Java's encoder.
- ``CompletingRebalance`` takes no time, so a group is never in that state.
- A commit after a rebalance is checked against the current owner of the partition, because callers
  send no generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ...core.timers import Signal, Timer
from ..errors import BrokerError
from ..model import ProducerRecord
from ..settings import BrokerConfig
from .fetching import MemoryFetching
from .groups.groups import MemoryGroups
from .groups.table import GroupTable
from .guard import GroupListener, Guard, Waits
from .log import Topic
from .producing import MemoryProducing
from .topics import MemoryTopics


class BrokerSnapshot(NamedTuple):
    """All topics and groups at a point in time."""

    topics: list[Topic]
    groups: Any
    partial: list[int]


class MemoryEngine:
    """A broker in memory. It is thread-safe, and its waiting calls wait on the fake clock.

    ``tell`` is called with each event of a group while no lock is held.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        settings: BrokerConfig | None = None,
        *,
        name: str = "broker",
        tell: GroupListener | None = None,
    ) -> None:
        self.settings = settings or BrokerConfig()
        self._clock = clock
        self.table = GroupTable({}, self.settings, clock, self._call_at)
        self._guard = Guard(self.table, clock, tell)
        self._waits = Waits(self.table, self._guard, clock)
        self.interrupt = self._waits.interrupt
        self.close = self._waits.close
        self.groups = MemoryGroups(
            self.table, self._guard, self._waits, ids.stream(name, "interleaving")
        )
        self.topics = MemoryTopics(self.table, self._guard, self.groups.rebalancer)
        self.producing = MemoryProducing(
            self.table, self._guard, ids.stream(name, "keyless partitions")
        )
        self.fetching = MemoryFetching(self.table, self._guard, clock, self._waits)

    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create missing topics and append the test's messages. If an error is raised, nothing has
        changed.

        ``topics`` maps names to numbers of partitions; an existing topic keeps its partitions.
        Raises errors like ``topics.create()`` and ``producing.produce()``.
        """
        with self._guard as now_us:
            made = {
                name: self.topics.new(name, count)
                for name, count in topics.items()
                if name not in self.table.topics
            }
            self.topics.check_limit(sum(len(topic.logs) for topic in made.values()))
            self.table.topics.update(made)
            try:
                self.producing.append(messages, now_us, by_client=False)
            except BrokerError:
                for name in made:
                    del self.table.topics[name]
                raise
            for name in made:
                self.groups.rebalancer.created(name, now_us)

    @property
    def waiting(self) -> list[Signal]:
        """The signals of the waiting calls. Concurrent calls for one instance share a signal."""
        return self._waits.waiting

    def snapshot(self) -> BrokerSnapshot:
        """Return a copy of all topics and groups."""
        with self._guard as now:
            return BrokerSnapshot(
                [topic.copy() for topic in self.table.topics.values()],
                self.groups.coordinator.copy_groups(now),
                list(self.producing.partial),
            )

    def restore(self, snapshot: BrokerSnapshot) -> None:
        """Restore a copy. Waiting calls return an empty result, and timers keep their remaining
        time.

        Raises ``ContractError`` for a copy of a real cluster's data.
        """
        if not isinstance(snapshot, BrokerSnapshot):
            raise ContractError(
                "the snapshot is from a real cluster: pass its records to load() instead"
            )
        with self._guard as now:
            self._waits.end_all()
            self.table.topics.clear()
            self.table.topics.update({topic.name: topic.copy() for topic in snapshot.topics})
            self.producing.partial[:] = snapshot.partial
            self.producing.quota.reset()
            self.groups.coordinator.restore_groups(snapshot.groups, now)

    def tell_to(self, tell: GroupListener) -> None:
        self._guard.tell = tell

    def _call_at(self, due_us: int, callback: Callable[[int], None], label: str) -> Timer:
        def fire(at_us: int) -> None:
            with self._guard:
                callback(at_us)

        return self._clock.call_at(due_us, fire, lane="state", label=label)
