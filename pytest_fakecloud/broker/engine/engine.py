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
- A batch with an invalid message appends no messages. Messages without a key use the partitions in
  turn, a new one for each request. ``""`` is a key like any other.
- A fetch beyond the end of a log fails. ``/committed`` and ``/offsets`` return -1 if nothing was
  committed, or no record is at or after the time. Both a commit by an unknown instance and
  ``/committed`` of an unknown group are rejected.
- Sessions are kept alive in the background. A consume request with other topics changes the
  subscription, a second one on a busy instance waits, and delete-consumer removes the instance
  immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ...core.timers import Signal
from ..errors import BrokerError
from ..model import ProducerRecord, TopicConfig
from ..settings import BrokerConfig
from .fetching import MemoryFetching
from .groups import MemoryGroups
from .log import Topic
from .members import GroupCopy
from .producing import MemoryProducing
from .state import BrokerState, GroupListener
from .topics import MemoryTopics
from .waits import ClockWaits


class BrokerSnapshot(NamedTuple):
    """A copy of all topics and groups."""

    topics: list[Topic]
    groups: list[GroupCopy]


class MemoryEngine:
    """A broker in memory. It is thread-safe, and its waiting calls wait on the fake clock."""

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        settings: BrokerConfig | None = None,
        *,
        name: str = "broker",
    ) -> None:
        self.settings = settings or BrokerConfig()
        self.state = state = BrokerState(self.settings, clock)
        self._waits = ClockWaits(clock)
        self.interrupt = self._waits.interrupt
        self.close = self._waits.close
        self.groups = MemoryGroups(state, self._waits, ids.stream(name, "interleaving"))
        self.topics = MemoryTopics(state, self.groups.rebalancer)
        self.producing = MemoryProducing(state)
        self.fetching = MemoryFetching(state, self._waits)

    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create missing topics and append the test's messages, or change nothing and raise.

        ``topics`` maps names to numbers of partitions; an existing topic keeps its partitions.
        """
        rebalancer = self.groups.rebalancer
        with self.state:
            made = {
                name: self.topics.new(name, TopicConfig(count))
                for name, count in topics.items()
                if name not in self.state.topics
            }
            self.topics.check_limit(sum(len(topic.logs) for topic in made.values()))
            self.state.topics.update(made)
            try:
                self.producing.append(messages, by_client=False)
            except BrokerError:
                for name in made:
                    del self.state.topics[name]
                raise
            for name in made:
                rebalancer.rebalance_subscribers(name, f"{name} was created")

    @property
    def waiting(self) -> list[Signal]:
        """The signals of the waiting calls. Concurrent calls for one instance share a signal."""
        return self._waits.waiting

    def snapshot(self) -> BrokerSnapshot:
        with self.state:
            return BrokerSnapshot(
                [topic.copy() for topic in self.state.topics.values()],
                self.groups.coordinator.copy_groups(),
            )

    def restore(self, snapshot: BrokerSnapshot) -> None:
        """Restore a copy. Waiting calls return nothing, and timers keep their remaining time."""
        if not isinstance(snapshot, BrokerSnapshot):
            raise ContractError(
                "the snapshot is from a real cluster: pass its records to load() instead"
            )
        with self.state:
            self._waits.interrupt()
            self.state.topics.clear()
            self.state.topics.update({topic.name: topic.copy() for topic in snapshot.topics})
            self.producing.quota.reset()
            self.groups.coordinator.restore_groups(snapshot.groups)

    def set_listener(self, listener: GroupListener) -> None:
        """Call ``listener`` with each event of a group from now on, while no lock is held."""
        self.state.listener = listener
