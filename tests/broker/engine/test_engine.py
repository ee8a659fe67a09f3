"""Test the engine without HTTP: behaviour that the routes cannot show, and many threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from pytest_fakecloud.broker.engine.engine import BrokerQuota, MemoryEngine
from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.model import (
    ConsumeRequest,
    Header,
    ProducerRecord,
    TopicConfig,
    TopicPartition,
    TopicPartitionOffset,
)
from pytest_fakecloud.broker.settings import BrokerConfig, BrokerLimits
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from tests.harness import wait_until

from ..conftest import START, Parked

DAY = 86_400_000_000
EARLIEST = {"auto-offset-reset": "earliest"}
MANUAL = {**EARLIEST, "enable-auto-commit": "false"}


def engine(
    partitions: int = 3, *, clock: Timekeeper | None = None, **settings: Any
) -> MemoryEngine:
    made = MemoryEngine(clock or Timekeeper(START), Ids(1), BrokerConfig(**settings), "broker")
    made.topics.create("t", TopicConfig(partitions))
    return made


def test_events_are_reported_without_the_lock() -> None:
    clock = Timekeeper(START)
    broker = engine(clock=clock)
    reported: list[str] = []

    def listener(kind: str, text: str, **data: Any) -> None:
        broker.topics.counts()
        reported.append(kind)

    broker.set_listener(listener)
    broker.groups.consume(ConsumeRequest("g", "i", ["t"], EARLIEST))
    clock.advance("1h")
    assert reported == ["join", "rebalance", "close", "expire", "rebalance"]


def test_interrupt_ends_calls_but_not_later_ones() -> None:
    broker = engine(clock=Timekeeper())
    polls = [
        Parked(lambda: broker.records.fetch([TopicPartitionOffset("t", 0, 0)], 30_000)),
        Parked(lambda: broker.groups.consume(ConsumeRequest("g", "i", ["t"], {}, 30_000))),
    ]
    wait_until(lambda: len(broker._waits.waiting) == 2)
    broker.interrupt()
    assert [poll.result() for poll in polls] == [[], []]
    later = Parked(lambda: broker.records.fetch([TopicPartitionOffset("t", 0, 0)], 30_000))
    wait_until(lambda: broker._waits.waiting)
    broker.records.produce([ProducerRecord("t", "x", partition=0)])
    assert len(later.result()) == 1
    broker.close()
    assert broker.records.fetch([TopicPartitionOffset("t", 1, 0)], 30_000) == []
    assert broker.groups.consume(ConsumeRequest("h", "i", ["t"], {}, 30_000)) == []


def test_watchers_are_taken_off_again() -> None:
    broker = engine(1)
    broker.groups.consume(ConsumeRequest("g", "i", ["t"], {}))
    broker.groups.delete("g", "i")
    clock_cap = 0.001
    broker.state.clock.wait_cap = clock_cap
    broker.records.fetch([TopicPartitionOffset("t", 0, 0)], 1000)
    assert broker.state.partition("t", 0).watchers == set()
    assert broker._waits.waiting == []


def test_many_threads_lose_nothing_and_keep_order() -> None:
    """Run producers, and consumers of one group that join, commit, crash and leave, in parallel."""
    broker = engine(4, clock=Timekeeper(), session_timeout_ms=20, instance_limit=None)
    total, producers = 1500, 3
    seen: dict[int, set[int]] = defaultdict(set)
    lock = threading.Lock()
    stop = threading.Event()

    def produce(number: int) -> None:
        for serial in range(total):
            broker.records.produce([ProducerRecord("t", f"{number}:{serial}", f"k{serial % 7}")])

    def consume(name: str) -> None:
        turns = 0
        while not stop.is_set():
            turns += 1
            records = broker.groups.consume(ConsumeRequest("g", name, ["t"], MANUAL, 20))
            for before, after in pairwise(records):
                assert before.partition != after.partition or before.offset + 1 == after.offset
            with lock:
                for record in records:
                    seen[record.partition].add(record.offset)
            try:
                broker.groups.commit("g", name, [])
                if turns % 9 == 0:
                    broker.groups.crash("g", name)
                elif turns % 5 == 0:
                    broker.groups.delete("g", name)
            except BrokerError as error:
                if error.status not in (404, 409):
                    raise

    workers = [Parked(lambda n=n: produce(n)) for n in range(producers)]
    members = [Parked(lambda n=n: consume(f"c{n}")) for n in range(3)]
    for worker in workers:
        worker.result(30)
    tps = [TopicPartition("t", n) for n in range(4)]
    ends = {tp.partition: tp.offset for tp in broker.records.offsets("latest", tps)}
    assert sum(ends.values()) == total * producers
    wait_until(lambda: all(len(seen[n]) == end for n, end in ends.items()), 30)
    stop.set()
    for member in members:
        member.result(10)
    assert broker._waits.waiting == []


def test_keys_and_headers_count_towards_the_size_of_a_message() -> None:
    broker = engine()
    broker.topics.create("small", TopicConfig(max_message_bytes=10))
    fits = ProducerRecord("small", "12", "345", headers=(Header("6", "789\u00e9"),))
    with pytest.raises(BrokerError, match="The message is 11 bytes"):
        broker.records.produce([fits])
    assert broker.records.produce([fits._replace(headers=(Header("6", "7890"),))])[0].offset == 0
    with pytest.raises(BrokerError, match="The message is 11 bytes") as caught:
        broker.records.produce([fits._replace(headers=(Header("6", "7890"), Header("", "1")))])
    assert caught.value.status == 413
    assert broker.records.offsets("latest", [TopicPartition("small", 0)])[0].offset == 1


def test_messages_of_a_second_and_of_a_day() -> None:
    quota = BrokerQuota(BrokerLimits(messages_per_second=2, messages_per_day=3))
    quota.take(2, 0, int, 0)
    with pytest.raises(BrokerError, match="2 messages per second"):
        quota.take(1, 0, int, 999_999)
    quota.take(1, 0, int, 1_000_000)
    with pytest.raises(BrokerError, match="3 messages per day") as caught:
        quota.take(1, 0, int, 2_000_000)
    assert caught.value.status == 429
    quota.take(2, 0, int, DAY)


def test_storage() -> None:
    quota = BrokerQuota(BrokerLimits(storage_bytes=10))
    quota.take(1, 4, lambda: 6, 0)
    with pytest.raises(BrokerError, match="10 bytes of storage"):
        quota.take(1, 4, lambda: 7, 0)


def test_reset_forgets_what_was_taken_and_a_refusal_takes_nothing() -> None:
    quota = BrokerQuota(BrokerLimits(messages_per_day=1))
    with pytest.raises(BrokerError, match="1 messages per day"):
        quota.take(2, 0, int, 0)
    quota.take(1, 0, int, 0)
    quota.counts.clear()
    quota.take(1, 0, int, 0)
