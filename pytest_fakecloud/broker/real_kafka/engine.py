"""The broker engine on a real Kafka cluster (extra ``kafka``).

The REST API, credentials, faults, journal and error messages are the same as with the engine in
memory. The cluster provides logs, groups and time. ``topics`` manages topics, and writes and reads
records; ``groups`` reads them with consumer groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ...core.clock import Timekeeper
from ...core.errors import ContractError
from ..engine.state import GroupListener, Waits
from ..errors import AsMisuse, BrokerError
from ..model import ProducerRecord, TopicConfig, TopicPartition
from ..settings import BrokerConfig
from .cluster import Cluster, KafkaAddress, Names, real_only
from .groups import KafkaGroups
from .topics import KafkaRecords, KafkaTopics

_CLOSE_SECONDS = 0.7
"""Maximum time to wait for a response of the cluster when the fake is closed."""
_STOP_SECONDS = 0.3
"""Maximum time to wait for instances to end if the cluster does not respond."""


@dataclass(frozen=True, slots=True)
class KafkaCopy:
    """A fake's topics (None if nothing was copied), records and committed offsets at some time."""

    topics: dict[str, int] | None
    messages: Sequence[ProducerRecord] = ()
    commits: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)


class KafkaEngine:
    """A broker whose logs and groups are on a real cluster. It is thread-safe.

    ``url`` is ``kafka://host:port,…`` with librdkafka settings in its query (see ``KafkaAddress``).
    Raises ``ContractError`` for an invalid address, a cluster that does not respond, and a clock
    that is not the wall clock.
    """

    def __init__(self, clock: Timekeeper, settings: BrokerConfig, url: str) -> None:
        address = KafkaAddress(url)
        if settings.isolation == "none" and address.prefix is not None:
            raise ContractError(
                "isolation='none' uses names without a prefix, but the address in engine= has "
                f"prefix={address.prefix}: pass only one of them"
            )
        clock.check_real_time()
        self.settings = settings
        self.closed = False
        self._names = Names(settings.isolation, address.prefix)
        self._cluster = Cluster(address, self._names)
        self._first_copy = True
        try:
            self._cluster.topics()
        except BrokerError as error:
            raise ContractError(f"cannot use the cluster at {address.where}: {error}") from None
        self._waits = Waits()
        self.topics = KafkaTopics(self._cluster, settings)
        self.interrupt = self._waits.interrupt
        self.records = KafkaRecords(self.topics, clock, self._waits)
        self.groups = KafkaGroups(self.records, clock, self._waits)
        self._release_clock = clock.tie_to_real_time(
            f"the real cluster behind it ({address.where}) runs in real time. To move the clock, "
            "use the in-memory engine (leave out engine=)"
        )

    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create missing topics and append messages of the test.

        After an error, new topics are deleted again. Records already stored in existing topics
        remain, because a cluster cannot remove single records.
        """
        counts = self.topics.counts()
        created: list[str] = []
        try:
            for name, count in topics.items():
                if name not in counts:
                    self.topics.create(name, TopicConfig(count))
                    created.append(name)
            self.records.produce(messages, by_client=False)
        except (BrokerError, ContractError):
            if created:
                self._cluster.delete([self._names.real(name) for name in created], [])
            raise

    def set_listener(self, listener: GroupListener) -> None:
        self.groups.add_event = listener

    def snapshot(self) -> KafkaCopy:
        """Return a copy of the fake's topics, records and committed offsets.

        Data that is shared with others cannot be copied. In this case, the first copy (the fake's
        baseline) is empty, and later copies raise ``ContractError``. Logs whose offsets could not
        be recreated also raise ``ContractError``.
        """
        first, self._first_copy = self._first_copy, False
        if self._names.shared:
            if first:
                return KafkaCopy(None)
            raise _shared("copied")
        with AsMisuse():
            topics = self.topics.counts()
            messages: list[ProducerRecord] = []
            for name in topics:
                if any(start for start, _ in self.topics.bounds(name)):
                    raise real_only(f"a copy of topic {name!r}, whose first records were deleted,")
                messages += [
                    ProducerRecord(r.topic, r.value, r.key, r.partition, r.timestamp, r.headers)
                    for r in self.records.all(name)
                ]
            commits = {group: self.groups.all_committed(group) for group in self.groups.names()}
            return KafkaCopy(topics, messages, commits)

    def restore(self, copy: KafkaCopy) -> None:
        """Restore a copy into new topics and groups, whose names are the same for clients.

        Ends all instances. Raises ``ContractError`` if there is nothing to restore, or if the copy
        was made by the in-memory engine.
        """
        if not isinstance(copy, KafkaCopy):
            raise ContractError(
                "this snapshot is of the in-memory broker: pass its records to load()"
            )
        if copy.topics is None:
            raise _shared("restored")
        with AsMisuse():
            self.topics.counts()  # Raises before anything has changed if the cluster is unavailable.
            self.groups.stop_all()(self._cluster.address.timeout)
            self._delete_own()
            self.topics.rename()
            self.records.by_test.clear()
            for name, partitions in copy.topics.items():
                self.topics.create(name, TopicConfig(partitions))
            if copy.messages:
                self.records.produce(copy.messages, by_client=False)
            for group, offsets in copy.commits.items():
                self.groups.store(group, offsets)
            self.interrupt()

    def _delete_own(self) -> None:
        groups = self.groups.forget()
        topics = [self._names.real(name) for name in self.topics.counts()]
        if topics or groups:
            self._cluster.delete(topics, groups)

    def close(self) -> None:
        """End all instances and waiting calls, and delete the fake's own topics and groups."""
        if self.closed:
            return
        self.closed = True
        self._release_clock()
        self.interrupt()
        self.records.interrupt()
        self._cluster.interrupt()
        join = self.groups.stop_all()
        # Check first, because an unavailable cluster cannot delete topics and groups.
        there = self._cluster.is_reachable(_CLOSE_SECONDS)
        join(self._cluster.address.timeout if there else _STOP_SECONDS)
        self.records.close()
        if there and not self._names.shared:
            with suppress(BrokerError):
                self._delete_own()


def _shared(verb: str) -> ContractError:
    return ContractError(
        f"data that this broker shares with others cannot be {verb}: remove prefix= and "
        "isolation='none', or use the in-memory engine"
    )
