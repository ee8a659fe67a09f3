"""Test cases of group membership that ``test_group_rules`` does not cover, without HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.broker.engine.engine import MemoryEngine
from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.model import (
    GroupView,
    ProducerRecord,
    TopicPartition,
    TopicPartitionOffset,
)
from pytest_fakecloud.broker.settings import BrokerConfig
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timekeeper import Timekeeper
from tests.harness import wait_until

from ..conftest import START, Parked

MANUAL = {"auto-offset-reset": "earliest", "enable-auto-commit": "false"}


@pytest.fixture
def clock() -> Timekeeper:
    return Timekeeper(START)


def engine(clock: Timekeeper, **settings: Any) -> MemoryEngine:
    made = MemoryEngine(clock, Ids(1), BrokerConfig(**settings))
    made.topics.create("t", 2)
    made.topics.create("u", 2)
    return made


def consume(broker: MemoryEngine, name: str, *topics: str, timeout: int = 0) -> list[str]:
    records = broker.groups.consume("g", name, topics or ["t"], timeout, MANUAL)
    return [record.value for record in records]


def view(broker: MemoryEngine) -> GroupView:
    return broker.groups.view("g")


def owned(broker: MemoryEngine) -> dict[str, list[str]]:
    return {
        name: [f"{topic}{partition}" for topic, partition in share]
        for name, share in view(broker).assignment.items()
    }


def crash(broker: MemoryEngine, name: str) -> None:
    broker.groups.crash("g", name)


def expire(broker: MemoryEngine, name: str) -> None:
    broker.groups.expire("g", name)


def test_without_idle_close_and_offset_retention_nothing_ends(clock: Timekeeper) -> None:
    broker = engine(clock, idle_close_ms=None, offset_retention_ms=None)
    consume(broker, "a")
    clock.advance("365d")
    broker.restore(broker.snapshot())
    assert owned(broker) == {"a": ["t0", "t1"]}
    broker.groups.commit("g", "a", [TopicPartitionOffset("t", 0, 1)])
    broker.groups.delete("g", "a")
    clock.advance("365d")
    assert view(broker).committed == {("t", 0): 1}


def test_an_instance_that_returns_with_other_topics_rebalances(clock: Timekeeper) -> None:
    broker = engine(clock)
    consume(broker, "a")
    consume(broker, "b")
    crash(broker, "b")
    consume(broker, "b", "u")
    assert owned(broker) == {"a": ["t0", "t1"], "b": ["u0", "u1"]}
    assert view(broker).generation == 3
    clock.advance("121s")
    assert owned(broker) == {"a": ["t0", "t1"], "b": ["u0", "u1"]}


def test_an_expired_instance_that_never_comes_back_is_closed_without_a_session(
    clock: Timekeeper,
) -> None:
    broker = engine(clock)
    consume(broker, "a")
    expire(broker, "a")
    assert view(broker).state == "Empty"
    assert [m.state for m in view(broker).members] == ["expired"]
    assert broker.groups.consumers() == {"g": {"a": {}}}
    clock.advance("300s")
    assert view(broker).members == []
    assert broker.groups.consumers() == {}


def test_an_expired_instance_can_be_deleted_and_expires_only_once(clock: Timekeeper) -> None:
    broker = engine(clock)
    consume(broker, "a")
    expire(broker, "a")
    with pytest.raises(BrokerError):
        expire(broker, "a")
    generation = view(broker).generation
    broker.groups.delete("g", "a")
    assert view(broker).generation == generation


def test_an_instance_that_rejoins_may_not_commit_what_it_lost(clock: Timekeeper) -> None:
    broker = engine(clock, join_delay_ms=3000)
    consume(broker, "a")
    clock.advance("3s")
    expire(broker, "a")
    consume(broker, "a")
    with pytest.raises(BrokerError, match="rebalancing"):
        broker.groups.commit("g", "a", [TopicPartitionOffset("t", 0, 1)])
    clock.advance("3s")
    broker.groups.commit("g", "a", [TopicPartitionOffset("t", 0, 1)])


def test_a_long_poll_keeps_a_session_that_only_consume_keeps(clock: Timekeeper) -> None:
    broker = engine(clock, heartbeats="consume", session_timeout_ms=10_000)
    clock.wait_cap = 10
    consume(broker, "a")
    poll = Parked(lambda: consume(broker, "a", timeout=60_000))
    wait_until(lambda: broker.waiting)
    clock.advance("20s")
    assert poll.waiting
    assert owned(broker) == {"a": ["t0", "t1"]}
    broker.producing.produce([ProducerRecord("t", "x")])
    assert poll.result() == ["x"]
    clock.advance("9s")
    assert owned(broker) == {"a": ["t0", "t1"]}
    clock.advance("1s")
    assert owned(broker) == {}


def test_members_that_join_during_a_rebalance_share_it(clock: Timekeeper) -> None:
    broker = engine(clock, join_delay_ms=3000)
    consume(broker, "a")
    clock.advance("2s")
    consume(broker, "b")
    assert view(broker).state == "PreparingRebalance"
    clock.advance("1s")
    assert (owned(broker), view(broker).generation) == ({"a": ["t0"], "b": ["t1"]}, 1)


def test_an_instance_that_returns_during_a_rebalance_waits_for_its_end(clock: Timekeeper) -> None:
    broker = engine(clock, join_delay_ms=3000)
    broker.producing.produce([ProducerRecord("t", "x", partition=0)])
    consume(broker, "a")
    clock.advance("3s")
    crash(broker, "a")
    consume(broker, "b")
    assert consume(broker, "a") == []
    with pytest.raises(BrokerError, match="rebalancing"):
        broker.groups.commit("g", "a", [TopicPartitionOffset("t", 1, 1)])
    clock.advance("3s")
    assert consume(broker, "a") == ["x"]


def test_a_rebalance_that_loses_its_last_member_ends_empty(clock: Timekeeper) -> None:
    broker = engine(clock, join_delay_ms=3000)
    consume(broker, "a")
    broker.groups.delete("g", "a")
    assert view(broker).state == "Empty"
    clock.advance("3s")
    assert view(broker).state == "Empty"
    consume(broker, "a")
    clock.advance("3s")
    assert owned(broker) == {"a": ["t0", "t1"]}


def test_offset_retention_goes_on_after_a_restore(clock: Timekeeper) -> None:
    broker = engine(clock, offset_retention_ms=10_000)
    consume(broker, "a")
    broker.groups.commit("g", "a", [TopicPartitionOffset("t", 0, 1)])
    broker.groups.delete("g", "a")
    clock.advance("4s")
    saved = broker.snapshot()
    clock.advance("6s")
    assert view(broker).state == "Dead"
    broker.restore(saved)
    clock.advance("5s")
    assert view(broker).committed == {("t", 0): 1}
    clock.advance("1s")
    assert view(broker).state == "Dead"


def test_groups_do_not_disturb_each_other(clock: Timekeeper) -> None:
    broker = engine(clock)
    broker.producing.produce([ProducerRecord("t", "x", partition=0)])
    assert consume(broker, "a") == ["x"]
    records = broker.groups.consume("other", "a", ["t"], 0, MANUAL)
    assert [record.value for record in records] == ["x"]
    assert view(broker).generation == 1
    broker.groups.commit("other", "a", [])
    with pytest.raises(BrokerError):
        broker.groups.committed("nobody", [TopicPartition("t", 0)])
    assert view(broker).committed == {}


def test_new_partitions_leave_groups_of_other_topics_alone(clock: Timekeeper) -> None:
    broker = engine(clock)
    consume(broker, "a", "u")
    broker.topics.add_partitions("t", 1)
    assert view(broker).generation == 1
    broker.topics.add_partitions("u", 1)
    assert owned(broker) == {"a": ["u0", "u1", "u2"]}
