"""The second engine: the same broker operations, carried out by a real Kafka cluster.

It stands behind the same REST face as the in-memory engine: routes, credentials, faults, journal and
the texts of refusals are the fake's; logs, groups and time are the cluster's. Topics are
``kafka_topics``' part, writing ``kafka_producing``'s, reading ``kafka_fetching``'s and
``kafka_groups``'.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from ...core.clock import Clock, Signal
from ...core.errors import ContractError
from ...core.ids import Ids
from .. import errors
from ..engine.engine import distinct_positions
from ..errors import BrokerError
from ..model import (
    GroupAssignments,
    Message,
    Metadata,
    Record,
    TopicPartition,
    TopicPartitionOffset,
)
from ..settings import Settings
from .cluster import Address, Cluster, real_only
from .fetching import KafkaFetching, Waits
from .groups import KafkaGroups
from .instance import KafkaInstance
from .producing import KafkaProducing
from .topics import KafkaTopics

__all__ = ["KafkaCopy", "KafkaEngine"]

_GOODBYE = 0.7
"""Seconds in which a cluster has to answer to be told of the end of a handle."""
_LEFT = 0.3
"""Seconds instances have to end by themselves where the cluster is away."""


P = ParamSpec("P")
R = TypeVar("R")


def _public(
    method: Callable[Concatenate[KafkaEngine, P], R],
) -> Callable[Concatenate[KafkaEngine, P], R]:
    """The operation, with names in the cluster's refusals as the handle knows them."""

    @functools.wraps(method)
    def operation(self: KafkaEngine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except BrokerError as error:
            shown = self.shown(error.message)
            if shown == error.message:
                raise
            raise BrokerError(error.kind, shown) from None

    return operation


class KafkaCopy:
    """Topics, records and committed offsets of a handle at one moment; None when not taken."""

    def __init__(
        self,
        topics: dict[str, int] | None,
        messages: Sequence[Message] = (),
        commits: Mapping[str, Mapping[TopicPartition, int]] | None = None,
    ) -> None:
        self.topics = topics
        self.messages = messages
        self.commits = dict(commits or {})


class KafkaEngine:
    """One broker whose logs and groups are a cluster's.

    ``url`` is ``kafka://host:port,…`` with librdkafka settings in its query (see ``Address``).
    ``isolation="prefix"`` gives topics and groups a prefix of the handle's own, ``"none"`` shows all
    there is. Calls may come from any thread. Raises ``ContractError`` for an address without
    meaning, a cluster that does not answer, settings only the in-memory engine has, and a clock that
    is not real time.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        url: str,
        *,
        name: str = "broker",
        isolation: Literal["prefix", "none"] = "prefix",
        cluster: Any = None,
    ) -> None:
        address = Address(url)
        _check_settings(settings, static=address.static)
        clock.check_real_time()
        self.settings = settings
        self.closed = False
        self._patience = address.timeout
        self._cluster = cluster if cluster is not None else Cluster(address)
        self._first_copy = True
        try:
            self._cluster.topics()
        except BrokerError as error:
            raise ContractError(f"cannot use the cluster at {address.where}: {error}") from None
        self._waits = Waits()
        self._topics = KafkaTopics(self._cluster, address, settings, isolation)
        self._producing = KafkaProducing(
            self._topics, address, settings, clock, ids.stream(name, "keyless partitions")
        )
        self._fetching = KafkaFetching(
            self._topics, self._cluster, address, settings, clock, self._waits
        )
        self._groups = KafkaGroups(
            self._topics, self._cluster, address, settings, clock, self._waits
        )
        self._release_clock = clock.tie_to_real_time(
            f"the real cluster behind it ({address.where}) lives in real time. Use the in-memory "
            "engine (leave out engine=) to move time"
        )

    # -- topics ----------------------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        """What the real names of topics and groups begin with."""
        return self._topics.prefix

    def shown(self, text: str) -> str:
        """A text of the cluster's without the prefix."""
        return self._topics.public(text)

    @_public
    def topics(self) -> dict[str, int]:
        """Partition counts by topic name, as the cluster has them now."""
        return self._topics.counts()

    def create_topic(self, name: str, partitions: int = 1, **options: Any) -> None:
        """Create a topic; raises ``ContractError`` for a bad name, an existing one, bad counts."""
        self._topics.create(name, partitions, **options)

    def add_partitions(self, name: str, count: int) -> int:
        """Give a topic that many more partitions; its count after."""
        return self._topics.add_partitions(name, count)

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        """Forget the records below an offset, in one partition or all; how many were forgotten."""
        return self._topics.delete_records(name, partition, before)

    @_public
    def load(self, topics: Mapping[str, int], messages: Sequence[Message]) -> None:
        """Create the topics that are missing and append a tester's messages.

        With an error the topics it made are gone again; what the cluster has already taken for
        topics that existed stays, since no cluster takes a record back.
        """
        known = self.topics()
        made: list[str] = []
        try:
            for name, count in topics.items():
                if name not in known:
                    self.create_topic(name, count)
                    made.append(name)
            self.produce(messages, by_client=False)
        except (BrokerError, ContractError):
            if made:
                self._cluster.delete([self._topics.real(name) for name in made], [])
            raise

    @_public
    def bounds(self, name: str) -> tuple[list[int], list[int]]:
        """The starts and the ends of a topic's logs, by partition."""
        return self._topics.bounds(name)

    # -- producing -------------------------------------------------------------------------------

    @_public
    def produce(self, messages: Sequence[Message], *, by_client: bool = True) -> list[Metadata]:
        """Append the messages; their places in request order.

        All are checked before any is sent. Raises ``BrokerError`` as the in-memory engine does, and
        503 when the cluster does not confirm them all.
        """
        return self._producing.produce(messages, by_client=by_client)

    @property
    def by_tester(self) -> set[tuple[str, int, int]]:
        """Where the records are that a tester put in."""
        return self._producing.by_tester

    # -- reading without a group -----------------------------------------------------------------

    @_public
    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Records from the positions on, at most 1 MiB from each; waits for the first."""
        self.check_timeout(timeout_ms)
        return self._fetching.fetch(distinct_positions(positions), timeout_ms)

    @_public
    def offsets(
        self,
        at: int | Literal["earliest", "latest"],
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """The first offset at or after a time in ms, or an end of the log, in request order."""
        self.check_timeout(timeout_ms)
        return self._fetching.offsets(at, partitions)

    @_public
    def records(self, name: str) -> list[Record]:
        """All records of a topic in (partition, offset) order."""
        return self._fetching.records(name)

    # -- reading with a group --------------------------------------------------------------------

    @_public
    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        """The next records for an instance, which the first call creates from the raw ``headers``."""
        self.check_timeout(timeout_ms)
        found = self._groups.consume(group, instance, topics, timeout_ms, headers)
        return [self._fetching.record(message) for message in found]

    @_public
    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Store offsets verbatim, or with none given what was last delivered to the instance."""
        self._groups.commit(group, instance, distinct_positions(offsets))

    @_public
    def store(self, group: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Commit for a group without being a member of it."""
        self._groups.store(group, offsets)

    def delete_consumer(self, group: str, instance: str) -> None:
        """Stop an instance and take it out of its group.

        A static member (``static=true`` in the address) keeps its partitions until its session ends.
        """
        self._groups.delete(group, instance)

    def consumers(self) -> list[GroupAssignments]:
        """The groups with instances known here, by name."""
        return self._groups.consumers()

    @_public
    def committed(
        self,
        group: str,
        instance: str,
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """Committed offsets of the group in request order; the instance need not exist."""
        self.check_timeout(timeout_ms)
        return self._groups.committed(group, partitions)

    @_public
    def all_committed(self, group: str) -> dict[TopicPartition, int]:
        """Everything a group has committed to topics of this handle."""
        return self._groups.all_committed(group)

    def members(self, group: str) -> dict[str, KafkaInstance]:
        """The instances of a group known here, by name."""
        return self._groups.members(group)

    def group_names(self) -> list[str]:
        """The groups somebody consumed or committed with here."""
        return self._groups.names()

    # -- waiting ---------------------------------------------------------------------------------

    def check_timeout(self, timeout_ms: int) -> None:
        """Refuse a negative timeout and one that can only be a mistake."""
        if not 0 <= timeout_ms <= self.settings.max_timeout_ms:
            raise errors.illegal_argument(
                f"Invalid timeout {timeout_ms}: expected 0 to {self.settings.max_timeout_ms} ms"
            )

    @property
    def waiting(self) -> list[Signal]:
        """The signal of each call that waits now."""
        return self._waits.waiting

    def tell_to(self, tell: Any) -> None:
        """Tell the events of groups to somebody from now on."""
        self._groups.tell = tell

    def interrupt(self) -> None:
        """End every waiting call now, with nothing found."""
        self._waits.interrupt()

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> KafkaCopy:
        """A copy of the handle's topics, records and committed offsets.

        The first one, which a handle takes of itself to return to, is not taken of data that are
        not its own. Raises ``ContractError`` for logs whose offsets could not be made again.
        """
        first, self._first_copy = self._first_copy, False
        if self._topics.kept:
            if first:
                return KafkaCopy(None)
            raise ContractError(
                "a copy can only be taken of data that are this handle's own: leave out prefix= and "
                "isolation='none', or use the in-memory engine"
            )
        topics = self.topics()
        messages: list[Message] = []
        for name in topics:
            if any(self.bounds(name)[0]):
                raise real_only(f"a copy of topic {name!r}, whose first records are gone,")
            messages += [
                Message(r.topic, r.value, r.key, r.partition, r.timestamp, r.headers)
                for r in self.records(name)
            ]
        return KafkaCopy(topics, messages, {g: self.all_committed(g) for g in self.group_names()})

    def restore(self, copy: KafkaCopy) -> None:
        """Put a copy back, in fresh topics and groups of the same names; instances end.

        Raises ``ContractError`` where there is nothing to return to, and for a copy of the in-memory
        engine's data.
        """
        if not isinstance(copy, KafkaCopy):
            raise ContractError("the snapshot was taken of a broker in memory; load() its records")
        if copy.topics is None:
            raise ContractError(
                "these data are not this handle's own, so there is nothing to return to: leave out "
                "prefix= and isolation='none', or use the in-memory engine"
            )
        self.topics()  # A cluster that is away changes nothing here.
        self._groups.stop_all()(self._patience)
        self._delete_own()
        self._topics.rename()
        self.by_tester.clear()
        for name, partitions in copy.topics.items():
            self.create_topic(name, partitions)
        if copy.messages:
            self.produce(copy.messages, by_client=False)
        for group, offsets in copy.commits.items():
            if offsets:
                self.store(group, [TopicPartitionOffset(*tp, at) for tp, at in offsets.items()])
        self.interrupt()

    def _delete_own(self) -> None:
        groups = self._groups.forget()
        topics = [self._topics.real(name) for name in self.topics()]
        if topics or groups:
            self._cluster.delete(topics, groups)

    def close(self) -> None:
        """End instances and waiting calls, and remove what is the handle's own."""
        if self.closed:
            return
        self.closed = True
        self._release_clock()
        self.interrupt()
        self._producing.interrupt()
        self._cluster.interrupt()
        join = self._groups.stop_all()
        # A cluster that is away is left without a goodbye, and is somebody else's to clean up.
        there = self._cluster.answers(_GOODBYE)
        join(self._patience if there else _LEFT)
        self._producing.close()
        if there and not self._topics.kept:
            with suppress(BrokerError):
                self._delete_own()


def _check_settings(settings: Settings, *, static: bool) -> None:
    limits = settings.limits
    for name in ("messages_per_day", "messages_per_second", "storage_bytes", "max_partitions"):
        if getattr(limits, name) is not None:
            raise real_only(f"the limit {name}")
    if settings.join_delay_ms:
        raise real_only("join_delay=")
    if not settings.delete_leaves and not static:
        raise real_only("delete_leaves=False without static members (static=false)")
    if settings.heartbeats != "background":
        raise real_only(f"heartbeats={settings.heartbeats!r}")
    if settings.interleave != "rotate":
        raise real_only(f"interleave={settings.interleave!r}")
