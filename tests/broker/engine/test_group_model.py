"""Compare consumer groups with a simple model, under random joins, leaves, crashes and time.

The model has no timers and no columns: it consists of lists of records, a dictionary of members,
and a loop that searches for the next due event. The test also checks the guarantees of a group: no
record is lost if commits follow processing, each partition keeps its order and has at most one live
owner, and only delivered records are committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_fakecloud.broker.engine.engine import MemoryEngine
from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.model import (
    ConsumeRequest,
    ProducerRecord,
    TopicConfig,
    TopicPartitionOffset,
)
from pytest_fakecloud.broker.settings import BrokerConfig
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids

# The remainders of these numbers by 1000 differ, so no two timers are due at the same time, and the
# model does not need to know the order of equal times.
TICK, SESSION, IDLE = 2001, 6700, 10_500
CAP = 4
GROUPS = {"careful": False, "automatic": True}
NAMES = ["a", "b", "c"]
members = st.tuples(st.sampled_from(sorted(GROUPS)), st.sampled_from(NAMES))


@dataclass
class Member:
    auto: bool
    born: int
    state: str = "live"  # "live", "vanished" (still a member) or "dropped" (live, but not a member)
    seen: int = 0
    vanished: int = 0
    tick: int | None = None
    owned: list[int] = field(default_factory=list)
    position: dict[int, int] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)


class Reference:
    """A model of one group; times are in milliseconds."""

    def __init__(self, log: list[list[str]], auto: bool) -> None:
        self.log = log
        self.auto = auto
        self.members: dict[str, Member] = {}
        self.committed: dict[int, int] = {}
        self.farthest: dict[int, int] = {}

    def rebalance(self) -> None:
        """Live members commit before the rebalance; vanished and dropped ones cannot."""
        for member in self.members.values():
            if member.auto and member.state == "live":
                self.commit_delivered(member)
        names = sorted(name for name, m in self.members.items() if m.state != "dropped")
        count = len(self.log)
        for member in self.members.values():
            member.owned, member.position, member.delivered, member.tick = [], {}, {}, None
        taken = 0
        for index, name in enumerate(names):
            share = count // len(names) + (1 if index < count % len(names) else 0)
            member = self.members[name]
            member.owned = list(range(taken, taken + share))
            taken += share
            if member.state == "live":
                self.start(member)

    def start(self, member: Member) -> None:
        member.position = {n: self.committed.get(n, 0) for n in member.owned}

    def arrive(self, name: str, now: int) -> Member:
        member = self.members.get(name)
        if member is not None and member.state == "live":
            return member
        if member is not None and member.state == "dropped":
            member.state = "live"
            self.rebalance()
        elif member is not None:
            member = self.members[name] = Member(self.auto, now, owned=member.owned)
            self.start(member)
        else:
            member = self.members[name] = Member(self.auto, now)
            self.rebalance()
        return member

    def consumed(self, name: str, got: list[tuple[int, int, str]], now: int) -> None:
        member = self.members[name]
        member.seen = now
        waiting = sum(len(self.log[n]) - member.position[n] for n in member.owned)
        assert len(got) == min(waiting, CAP)
        for partition, offset, value in got:
            assert offset == member.position[partition], "a gap, a repetition, or out of order"
            assert value == self.log[partition][offset]
            member.position[partition] = member.delivered[partition] = offset + 1
            self.farthest[partition] = max(self.farthest.get(partition, 0), offset + 1)
        if got and member.auto and member.tick is None:
            member.tick = member.born
            while member.tick <= now:
                member.tick += TICK

    def leave(self, name: str) -> None:
        if self.members.pop(name).state != "dropped":
            self.rebalance()

    def vanish(self, name: str, now: int) -> None:
        member = self.members[name]
        if member.state == "dropped":
            del self.members[name]
            return
        member.state, member.vanished = "vanished", now
        member.position, member.delivered, member.tick = {}, {}, None

    def drop(self, name: str) -> None:
        self.members[name].state = "dropped"
        self.rebalance()

    def commit_delivered(self, member: Member) -> None:
        self.committed.update(member.delivered)

    def pass_time(self, until: int) -> None:
        while True:
            due: list[tuple[int, str, str]] = []
            for name, m in self.members.items():
                if m.state == "vanished":
                    due.append((m.vanished + SESSION, "session", name))
                else:
                    due.append((m.seen + IDLE, "idle", name))
                if m.tick is not None:
                    due.append((m.tick, "tick", name))
            at, what, name = min(due, default=(until + 1, "", ""))
            if at > until:
                return
            member = self.members[name]
            if what == "session":
                self.leave(name)
            elif what == "tick":
                member.tick = None
                self.commit_delivered(member)
            else:
                if member.auto:
                    self.commit_delivered(member)
                self.vanish(name, at)


class Groups(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 4))
    def begin(self, partitions: int) -> None:
        self.clock = Timekeeper("2026-01-01T00:00:00Z")
        self.began = self.clock.now_ms()
        self.engine = MemoryEngine(
            self.clock,
            Ids(1),
            BrokerConfig(
                idle_close_ms=IDLE,
                session_timeout_ms=SESSION,
                max_poll_records=CAP,
                instance_limit=None,
                offset_retention_ms=None,
            ),
            "broker",
        )
        self.engine.topics.create("t", TopicConfig(partitions))
        self.log: list[list[str]] = [[] for _ in range(partitions)]
        self.references = {name: Reference(self.log, auto) for name, auto in GROUPS.items()}
        self.in_work: dict[str, list[tuple[int, int, str]]] = {name: [] for name in NAMES}
        self.processed: set[str] = set()
        self.serial = 0

    @property
    def now(self) -> int:
        return self.clock.now_ms() - self.began

    @rule(data=st.data(), count=st.integers(1, 6))
    def produce(self, data: st.DataObject, count: int) -> None:
        partition = data.draw(st.integers(0, len(self.log) - 1))
        values = [str(self.serial + index) for index in range(count)]
        self.serial += count
        places = self.engine.records.produce(
            [ProducerRecord("t", v, partition=partition) for v in values]
        )
        assert [p.offset for p in places] == [len(self.log[partition]) + i for i in range(count)]
        self.log[partition] += values

    @rule(who=members)
    def consume(self, who: tuple[str, str]) -> None:
        self.consume_as(*who)

    def consume_as(self, group: str, name: str) -> list[tuple[int, int, str]]:
        reference = self.references[group]
        reference.arrive(name, self.now)
        headers = {
            "auto-offset-reset": "earliest",
            "enable-auto-commit": str(GROUPS[group]),
            "auto-commit-interval": str(TICK),
        }
        records = self.engine.groups.consume(ConsumeRequest(group, name, ["t"], headers))
        got = [(r.partition, r.offset, r.value) for r in records]
        reference.consumed(name, got, self.now)
        if group == "careful":
            self.in_work[name] += got
        return got

    @rule(name=st.sampled_from(NAMES))
    def process_and_commit(self, name: str) -> None:
        """Process the records, then commit; give up if the commit is rejected."""
        got, self.in_work[name] = self.in_work[name], []
        self.processed.update(value for _, _, value in got)
        ends: dict[int, int] = {}
        for partition, offset, _ in got:
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        if not ends:
            return
        reference = self.references["careful"]
        member = reference.members.get(name)
        offsets = [TopicPartitionOffset("t", n, offset) for n, offset in ends.items()]
        if member is None or member.state != "live" or not set(ends) <= set(member.owned):
            with pytest.raises(BrokerError) as refused:
                self.engine.groups.commit("careful", name, offsets)
            assert refused.value.status in (404, 409)
        else:
            self.engine.groups.commit("careful", name, offsets)
            reference.committed.update(ends)

    @rule(who=members)
    def commit_what_was_delivered(self, who: tuple[str, str]) -> None:
        group, name = who
        if group == "careful" and self.in_work[name]:
            return  # A careful application has not finished processing at this time.
        member = self.references[group].members.get(name)
        if member is None or member.state != "live":
            with pytest.raises(BrokerError):
                self.engine.groups.commit(group, name, [])
        else:
            self.engine.groups.commit(group, name, [])
            self.references[group].commit_delivered(member)

    @rule(who=members)
    def delete(self, who: tuple[str, str]) -> None:
        group, name = who
        reference = self.references[group]
        member = reference.members.get(name)
        if member is None or member.state == "vanished":
            with pytest.raises(BrokerError):
                self.engine.groups.delete(group, name)
            return
        self.engine.groups.delete(group, name)
        if member.auto and member.state == "live":
            reference.commit_delivered(member)
        reference.leave(name)

    @rule(who=members)
    def crash(self, who: tuple[str, str]) -> None:
        group, name = who
        member = self.references[group].members.get(name)
        if member is not None and member.state != "vanished":
            self.engine.groups.crash(group, name)
            self.references[group].vanish(name, self.now)
            if group == "careful":
                self.in_work[name] = []

    @rule(who=members)
    def expire(self, who: tuple[str, str]) -> None:
        group, name = who
        member = self.references[group].members.get(name)
        if member is None or member.state == "dropped":
            return
        self.engine.groups.expire(group, name)
        if member.state == "vanished":
            self.references[group].leave(name)
        else:
            self.references[group].drop(name)

    @rule(seconds=st.sampled_from([1, 1, 2, 3, 5, 8, 13, 20]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        for reference in self.references.values():
            reference.pass_time(self.now)

    @precondition(lambda self: len(self.log) < 6)
    @rule()
    def add_partitions(self) -> None:
        self.engine.topics.add_partitions("t", 1)
        self.log.append([])
        for reference in self.references.values():
            if any(m.state != "dropped" for m in reference.members.values()):
                reference.rebalance()

    @rule(group=st.sampled_from(sorted(GROUPS)))
    def rebalance(self, group: str) -> None:
        consumer_group = self.engine.state.groups.get(group)
        if consumer_group is not None:
            self.engine.groups.rebalance(group)
            self.references[group].rebalance()

    @rule()
    def go_back_and_forth(self) -> None:
        """Restoring a snapshot immediately after it was taken changes nothing."""
        self.engine.restore(self.engine.snapshot())

    @invariant()
    def agrees_with_the_reference(self) -> None:
        for group, reference in self.references.items():
            consumer_group = self.engine.state.groups.get(group)
            if consumer_group is None:
                assert not reference.members
                continue
            committed = {tp.partition: offset for tp, offset in consumer_group.committed.items()}
            assert committed == reference.committed
            assert {
                name: [tp.partition for tp in instance.assignment]
                for name, instance in consumer_group.instances.items()
            } == {name: member.owned for name, member in reference.members.items()}

    @invariant()
    def nothing_is_committed_that_was_not_delivered(self) -> None:
        for group, reference in self.references.items():
            consumer_group = self.engine.state.groups.get(group)
            for tp, offset in consumer_group.committed.items() if consumer_group else ():
                assert offset <= reference.farthest.get(tp.partition, 0)

    @invariant()
    def a_partition_has_one_live_owner_at_most(self) -> None:
        listed = self.engine.groups.consumers()
        for group, reference in self.references.items():
            owned = [n for topics in listed.get(group, {}).values() for n in topics.get("t", [])]
            assert len(owned) == len(set(owned))
            states = {m.state for m in reference.members.values()}
            if "live" in states and "vanished" not in states:
                assert sorted(owned) == list(range(len(self.log)))

    def teardown(self) -> None:
        """Check that one careful member, left alone, receives every record."""
        if not hasattr(self, "log"):
            return
        self.clock.advance("60s")
        for reference in self.references.values():
            reference.pass_time(self.now)
        self.in_work = {name: [] for name in NAMES}
        while self.consume_as("careful", "a"):
            self.process_and_commit("a")
        assert self.processed == {value for partition in self.log for value in partition}
        self.engine.close()


TestGroups = Groups.TestCase
TestGroups.settings = settings(stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow])
