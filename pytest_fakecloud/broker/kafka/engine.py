"""The broker engine on a real Kafka cluster.

The REST API, credentials, faults, journal and error messages are the same as with the engine in
memory. The cluster provides logs, groups and time. ``topics`` manages topics, ``producing`` writes
records, ``fetching`` and ``groups`` read them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar, Unpack

from ...core.errors import ContractError
from ...core.found import found_of
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ...core.timeparse import monotonic
from ...core.timers import Signal
from .. import errors
from ..engine.engine import distinct_positions
from ..errors import BrokerError, as_misuse
from ..model import (
    GroupAssignments,
    GroupView,
    MemberView,
    Metadata,
    ProducerRecord,
    Record,
    TopicOptions,
    TopicPartition,
    TopicPartitionOffset,
    TopicView,
    found_members,
    record_fields,
)
from ..settings import BrokerConfig
from .cluster import Address, Cluster, real_only
from .fetching import KafkaFetching, Waits
from .groups import KafkaGroups
from .instance import KafkaInstance
from .producing import KafkaProducing
from .topics import KafkaTopics

_GOODBYE = 0.7
"""Maximum seconds to wait for a response of the cluster when the fake is closed."""
_LEFT = 0.3
"""Maximum seconds to wait for instances to end if the cluster does not respond."""
_STEP = 0.05
"""Seconds between two polls of a waiting call."""

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _public(
    method: Callable[Concatenate[KafkaEngine, P], R],
) -> Callable[Concatenate[KafkaEngine, P], R]:
    """Decorate a method so that its errors contain the names of the fake, without the prefix."""

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
    """Topics, records and committed offsets of a fake at a point in time.

    ``topics`` is None if nothing was copied.
    """

    def __init__(
        self,
        topics: dict[str, int] | None,
        messages: Sequence[ProducerRecord] = (),
        commits: Mapping[str, Mapping[TopicPartition, int]] | None = None,
    ) -> None:
        self.topics = topics
        self.messages = messages
        self.commits = dict(commits or {})


class KafkaEngine:
    """A broker whose logs and groups are on a real cluster. It is thread-safe.

    ``url`` is ``kafka://host:port,…`` with librdkafka settings in its query (see ``Address``). With
    ``isolation="prefix"``, the fake adds its own prefix to the names of topics and groups.
    ``"none"`` gives access to all of the cluster's topics and groups. Raises ``ContractError`` for
    an invalid address, a cluster that does not respond, settings of the engine in memory, and a
    clock that is not the wall clock.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        settings: BrokerConfig,
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
            f"the real cluster behind it ({address.where}) runs in real time. To move the clock, "
            "use the in-memory engine (leave out engine=)"
        )

    # -- topics ----------------------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        """The prefix of the fake's topics and groups on the cluster."""
        return self._topics.prefix

    def shown(self, text: str) -> str:
        """Remove the prefix from all names in a message of the cluster."""
        return self._topics.public(text)

    @_public
    def topics(self) -> dict[str, int]:
        """Return the current partition counts by topic name."""
        return self._topics.counts()

    def create_topic(self, name: str, partitions: int = 1, **options: Unpack[TopicOptions]) -> None:
        """Create a topic; raise ``ContractError`` for invalid arguments and for an existing topic."""
        self._topics.create(name, partitions, **options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        self._topics.delete(name)

    def add_partitions(self, name: str, count: int) -> int:
        """Add partitions to a topic and return the new partition count."""
        return self._topics.add_partitions(name, count)

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        """Delete the records below an offset in one partition or in all of them; return their
        number.
        """
        return self._topics.delete_records(name, partition, before)

    def set_retention(
        self, name: str, *, retention_ms: object, retention_bytes: object
    ) -> NoReturn:
        """Raise ``ContractError``, because a real cluster's topics keep the retention they were
        created with.
        """
        raise real_only("set_retention() of an existing topic")

    @_public
    def load(self, topics: Mapping[str, int], messages: Sequence[ProducerRecord]) -> None:
        """Create missing topics and append messages of the test.

        After an error, new topics are deleted again. Records already stored in existing topics
        remain, because a cluster cannot remove single records.
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

    # -- producing -------------------------------------------------------------------------------

    @_public
    def produce(
        self, messages: Sequence[ProducerRecord], *, by_client: bool = True
    ) -> list[Metadata]:
        """Append messages and return their positions in request order.

        All messages are checked before any is sent. Raises ``BrokerError`` like the engine in
        memory, and with status 503 if the cluster does not confirm all of them.
        """
        return self._producing.produce(messages, by_client=by_client)

    @_public
    def produced(self, topic: str) -> tuple[list[Record], list[Record]]:
        """Return a topic's records in two lists: those produced by others and those of the test."""
        own: list[Record] = []
        others: list[Record] = []
        for record in self._fetching.records(topic):
            place = record.topic, record.partition, record.offset
            (own if place in self._producing.by_tester else others).append(record)
        return others, own

    def fail_batches(self, keep: int, times: int) -> NoReturn:
        """Raise ``ContractError``, because a real cluster cannot store a part of a batch on
        purpose.
        """
        raise real_only("partial_produce()")

    # -- reading without a group -----------------------------------------------------------------

    @_public
    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Return the records from each position on; wait until there is at least one record.

        Returns at most ``max_partition_bytes`` per position.
        """
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        return self._fetching.fetch(distinct_positions(positions), timeout_ms)

    @_public
    def offsets(
        self,
        at: int | Literal["earliest", "latest"],
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """Return one offset for each partition, in request order.

        ``at`` is ``"earliest"`` or ``"latest"`` for the start or end of the log, or a time in ms
        for the first record at or after it.
        """
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        return self._fetching.offsets(at, partitions)

    @_public
    def topic_view(self, name: str) -> TopicView:
        """Return a topic with its records and its start and end offsets, read from the cluster."""
        starts, ends = self._topics.bounds(name)
        return TopicView(
            name,
            len(ends),
            found_of(self._fetching.records(name), record_fields(len(ends)), "record"),
            starts,
            ends,
        )

    def wait_for(self, topic: str, look: Callable[[], T | None], seconds: float) -> T | None:
        """Call ``look`` every 50 ms, and return its first result that is not None.

        Returns None after ``seconds``.
        """
        until = monotonic() + seconds
        pause = threading.Event()
        while True:
            found = look()
            if found is not None or monotonic() > until:
                return found
            pause.wait(_STEP)

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
        """Return the next records for an instance. The first call creates it, configured by
        ``headers``.
        """
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        found = self._groups.consume(group, instance, topics, timeout_ms, headers)
        return [self._fetching.record(message) for message in found]

    @_public
    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Commit the given offsets or, if there are none, those of the records last delivered to
        the instance.
        """
        self._groups.commit(group, instance, distinct_positions(offsets))

    @_public
    def set_committed(self, group: str, offset: TopicPartitionOffset) -> None:
        """Set a group's committed offset. The cluster rejects this while the group has members."""
        self._fetching.offsets("earliest", [TopicPartition(offset.topic, offset.partition)])
        self._groups.store(group, [offset])

    def delete_consumer(self, group: str, instance: str) -> None:
        """Stop an instance and remove it from its group.

        A static member (``static=true`` in the address) keeps its partitions until its session
        expires.
        """
        self._groups.delete(group, instance)

    def consumers(self) -> list[GroupAssignments]:
        """Return the groups that have instances in this process, sorted by name."""
        return self._groups.consumers()

    @_public
    def committed(
        self,
        group: str,
        instance: str,
        partitions: Sequence[TopicPartition],
        timeout_ms: int = 0,
    ) -> list[TopicPartitionOffset]:
        """Return a group's committed offsets in request order. The instance need not exist."""
        errors.check_timeout(timeout_ms, self.settings.max_timeout_ms)
        return self._groups.committed(group, partitions)

    @_public
    def group_view(self, name: str) -> GroupView:
        """Return a group with all its committed offsets, and with the members in this process."""
        members = self._groups.members(name)
        committed = self._groups.all_committed(name)
        lag = self._lag(members, committed)
        views = found_members(self._member(each, members[each]) for each in sorted(members))
        state = "Stable" if members else "Empty" if committed else "Dead"
        if any(not view.assignment for view in views):
            state = "PreparingRebalance"
        return GroupView(
            name,
            state,
            sum(member.epoch for member in members.values()),
            views,
            {view.name: view.assignment for view in views},
            dict(sorted(committed.items())),
            {tp: at for view in views for tp, at in view.position.items()},
            lag,
        )

    def _member(self, name: str, member: KafkaInstance) -> MemberView:
        delivered = {self._own(tp): at for tp, at in member.delivered().items()}
        return MemberView(
            name,
            member.state if member.state in ("active", "expired") else "joining",
            tuple(self._own((topic, 0)).topic for topic in member.topics),
            [self._own(tp) for tp in sorted(member.assigned)],
            dict(delivered),
            delivered,
            member.config,
        )

    def _own(self, tp: tuple[str, int]) -> TopicPartition:
        return TopicPartition(tp[0].removeprefix(self.prefix), tp[1])

    def _lag(
        self, members: Mapping[str, KafkaInstance], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        topics = {tp.topic for tp in committed}
        for member in members.values():
            topics |= {self._own((topic, 0)).topic for topic in member.topics}
        lag = {}
        for topic in sorted(topics):
            starts, ends = self._topics.bounds(topic)
            for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
                tp = TopicPartition(topic, number)
                lag[tp] = max(0, end - max(committed.get(tp, start), start))
        return lag

    def group_names(self) -> list[str]:
        """Return the names of the groups that this fake has used to consume or commit, sorted."""
        return self._groups.names()

    # -- actions of tests ------------------------------------------------------------------------

    def join(
        self, group: str, instance: str, topics: Sequence[str], auto_offset_reset: str = "latest"
    ) -> None:
        """Add an instance to a group without a client's request. It is closed when idle, like any
        other.
        """
        self.consume(group, instance, topics, 0, {"auto-offset-reset": auto_offset_reset})

    def crash(self, group: str, instance: str) -> NoReturn:
        """Raise ``ContractError``, because a Kafka client always leaves its group when it is
        closed.
        """
        raise real_only("crash() of an instance")

    def expire(self, group: str, instance: str) -> NoReturn:
        """Raise ``ContractError``, because only the cluster itself ends sessions."""
        raise real_only("expire() of a session")

    def rebalance(self, group: str) -> NoReturn:
        """Raise ``ContractError``, because a real cluster rebalances only after a change of
        members.
        """
        raise real_only("rebalance()")

    def redeliver(self, group: str, *which: object) -> NoReturn:
        """Raise ``ContractError``, because only the members of a real group determine what they
        read.
        """
        raise real_only("redeliver()")

    def reorder(self) -> NoReturn:
        """Raise ``ContractError``, because the fake does not control the order on a real cluster."""
        raise real_only("reorder()")

    # -- waiting ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Signal]:
        """The signals of the waiting calls."""
        return self._waits.waiting

    def tell_to(self, tell: Any) -> None:
        """Set the callback for events of groups."""
        self._groups.tell = tell

    def interrupt(self) -> None:
        """Make every waiting call return an empty result immediately."""
        self._waits.interrupt()

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> KafkaCopy:
        """Return a copy of the fake's topics, records and committed offsets.

        Data that is shared with others cannot be copied. In this case, the first copy (the fake's
        baseline) is empty, and later copies raise ``ContractError``. Logs whose offsets could not
        be recreated also raise ``ContractError``.
        """
        first, self._first_copy = self._first_copy, False
        if self._topics.kept:
            if first:
                return KafkaCopy(None)
            raise ContractError(
                "data that this broker shares with others cannot be copied: remove prefix= and "
                "isolation='none', or use the in-memory engine"
            )
        with as_misuse():
            return self._copied()

    @_public
    def _copied(self) -> KafkaCopy:
        topics = self.topics()
        messages: list[ProducerRecord] = []
        for name in topics:
            if any(self._topics.bounds(name)[0]):
                raise real_only(f"a copy of topic {name!r}, whose first records were deleted,")
            messages += [
                ProducerRecord(r.topic, r.value, r.key, r.partition, r.timestamp, r.headers)
                for r in self._fetching.records(name)
            ]
        groups = self.group_names()
        return KafkaCopy(topics, messages, {g: self._groups.all_committed(g) for g in groups})

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
            raise ContractError(
                "data that this broker shares with others cannot be restored: remove prefix= and "
                "isolation='none', or use the in-memory engine"
            )
        with as_misuse():
            self._put_back(copy, copy.topics)

    @_public
    def _put_back(self, copy: KafkaCopy, topics: Mapping[str, int]) -> None:
        self.topics()  # Raises before anything has changed if the cluster is unavailable.
        self._groups.stop_all()(self._patience)
        self._delete_own()
        self._topics.rename()
        self._producing.by_tester.clear()
        for name, partitions in topics.items():
            self.create_topic(name, partitions)
        if copy.messages:
            self.produce(copy.messages, by_client=False)
        for group, offsets in copy.commits.items():
            if offsets:
                self._groups.store(
                    group, [TopicPartitionOffset(*tp, at) for tp, at in offsets.items()]
                )
        self.interrupt()

    def _delete_own(self) -> None:
        groups = self._groups.forget()
        topics = [self._topics.real(name) for name in self.topics()]
        if topics or groups:
            self._cluster.delete(topics, groups)

    def close(self) -> None:
        """End all instances and waiting calls, and delete the topics and groups that belong to the
        fake.
        """
        if self.closed:
            return
        self.closed = True
        self._release_clock()
        self.interrupt()
        self._producing.interrupt()
        self._cluster.interrupt()
        join = self._groups.stop_all()
        # Check first, because an unavailable cluster cannot delete topics and groups.
        there = self._cluster.answers(_GOODBYE)
        join(self._patience if there else _LEFT)
        self._producing.close()
        if there and not self._topics.kept:
            with suppress(BrokerError):
                self._delete_own()


def _check_settings(settings: BrokerConfig, *, static: bool) -> None:
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
