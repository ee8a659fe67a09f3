"""``Broker`` over a real cluster: the same handle, less what only the in-memory engine can do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from ...core.journal import Found
from ...core.timeparse import monotonic
from ..errors import as_misuse
from ..handle import Broker
from ..matching import Sought
from ..model import (
    INT64_MAX,
    Record,
    TopicPartition,
    TopicPartitionOffset,
)
from ..settings import string, whole
from ..views import GroupView, MemberView, TopicView
from .cluster import real_only
from .engine import KafkaEngine
from .instance import KafkaInstance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...handle import Context, Snapshot
    from ..engine.engine import Engine
    from ..settings import Settings

__all__ = ["KafkaBroker"]

_STEP = 0.05
"""Seconds between two looks for a record that is waited for."""


class KafkaBroker(Broker):
    """A broker whose topics and groups are a cluster's.

    What only the in-memory engine can do raises ``ContractError`` saying so.
    """

    def _make_engine(
        self, context: Context, settings: Settings, name: str, url: str | None, isolation: str
    ) -> Engine:
        self._kafka = KafkaEngine(
            context.clock,
            context.ids,
            settings,
            cast("str", url),
            name=name,
            isolation=cast("Literal['prefix', 'none']", isolation),
        )
        return cast("Engine", self._kafka)

    # -- arranging -------------------------------------------------------------------------------

    def set_retention(self, topic: str, *args: Any, **options: Any) -> NoReturn:
        """Not with a real cluster: say it when the topic is created."""
        raise real_only("set_retention() of a topic that exists")

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Set a group's committed offset; the cluster refuses while the group has members."""
        string("group", group)
        string("topic", topic)
        whole("partition", partition, 0)
        whole("offset", offset, 0, INT64_MAX)
        with as_misuse():
            self._kafka.offsets("earliest", [TopicPartition(topic, partition)])
            self._kafka.store(group, [TopicPartitionOffset(topic, partition, offset)])

    def join(self, group: str, instance: str, topics: Sequence[str]) -> GroupView:
        """Let an instance join that no client consumes with; it idles like any other."""
        wanted = self._joining(group, instance, topics)
        with as_misuse():
            self._kafka.consume(group, instance, wanted, 0, {})
        return self.group(group)

    def crash(self, group: str, instance: str) -> NoReturn:
        """Not with a real cluster: its client always leaves."""
        raise real_only("crash() of an instance")

    def expire(self, group: str, instance: str) -> NoReturn:
        """Not with a real cluster, which ends sessions itself."""
        raise real_only("expire() of a session")

    def rebalance(self, group: str) -> NoReturn:
        """Not with a real cluster: let an instance join() or leave() instead."""
        raise real_only("rebalance() without a reason")

    def redeliver(self, group: str, *args: Any, **options: Any) -> NoReturn:
        """Not with a real cluster, where only the members decide what they read."""
        raise real_only("redeliver()")

    @contextmanager
    def reorder(self) -> Iterator[None]:
        """Not with a real cluster."""
        raise real_only("reorder()")
        yield

    def partial_produce(self, keep: int, *, times: int = 1) -> NoReturn:
        """Not with a real cluster."""
        raise real_only("partial_produce()")

    def snapshot(self) -> Snapshot:
        """The present data, to ``restore()`` later."""
        with as_misuse():
            return super().snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Put the data of a snapshot back, in fresh topics and groups; instances end."""
        with as_misuse():
            super().restore(snapshot)

    # -- looking ---------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicView:
        """A topic with its records and the ends of its logs, read from the cluster."""
        string("topic", name)
        with as_misuse():
            starts, ends = self._kafka.bounds(name)
            return TopicView(name, len(ends), Found(self._kafka.records(name)), starts, ends)

    def group(self, name: str) -> GroupView:
        """A group as far as this server knows: the members that are its own, and all commits."""
        string("group", name)
        members = self._kafka.members(name)
        with as_misuse():
            committed = self._kafka.all_committed(name)
            lag = self._lag(members, committed)
        views = Found(self._member(each, members[each]) for each in sorted(members))
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
        assigned = sorted(member.assigned)
        delivered = {self._public(tp): at for tp, at in member.delivered().items()}
        return MemberView(
            name,
            member.state if member.state in ("active", "expired") else "joining",
            tuple(self._public((topic, 0)).topic for topic in member.topics),
            [self._public(tp) for tp in assigned],
            dict(delivered),
            delivered,
            member.config,
        )

    def _public(self, tp: tuple[str, int]) -> TopicPartition:
        return TopicPartition(tp[0].removeprefix(self._kafka.prefix), tp[1])

    def _lag(
        self, members: Mapping[str, KafkaInstance], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        topics = {tp.topic for tp in committed}
        for member in members.values():
            topics |= {self._public((topic, 0)).topic for topic in member.topics}
        lag = {}
        for topic in sorted(topics):
            starts, ends = self._kafka.bounds(topic)
            for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
                tp = TopicPartition(topic, number)
                lag[tp] = max(0, end - max(committed.get(tp, start), start))
        return lag

    def groups(self) -> list[str]:
        """The names of the groups somebody consumed or committed with here."""
        return self._kafka.group_names()

    def _client_records(self, topic: str) -> tuple[Sequence[Record], int]:
        records, own = self.records(topic), self._kafka.by_tester
        by_clients = [r for r in records if (r.topic, r.partition, r.offset) not in own]
        return by_clients, len(records) - len(by_clients)

    def _committed_now(self, group: str) -> Mapping[TopicPartition, int] | None:
        held = self._kafka.all_committed(group)
        return held if held or group in self.groups() else None

    def wait_for_record(
        self,
        topic: str,
        predicate: Callable[[Record], object] | None = None,
        *,
        timeout: float = 5.0,
    ) -> Record:
        """The first record of a topic that satisfies the predicate, now or as soon as one comes."""
        __tracebackhide__ = True
        sought = Sought(topic, predicate, timeout)
        until = monotonic() + timeout
        pause = threading.Event()
        while True:
            records = self.records(topic)
            found = sought.among(records)
            if found is not None:
                return found
            if monotonic() > until:
                raise AssertionError(sought.missing(records))
            pause.wait(_STEP)
