from collections import Counter
from collections.abc import Callable

import pytest
from worker import Record, Worker

from pytest_fakecloud import Broker, Cloud

pytestmark = pytest.mark.fakecloud(clock="frozen", broker={"topics": {"jobs": 4}})

Hire = Callable[[str], Worker]


@pytest.fixture
def handled() -> Counter[str]:
    """How often each job was done, by any worker."""
    return Counter()


@pytest.fixture
def hire(broker: Broker, handled: Counter[str]) -> Hire:
    def handle(record: Record) -> None:
        handled[record["value"]] += 1

    def new(name: str) -> Worker:
        credentials = (broker.username, broker.password)
        return Worker(broker.url, credentials, "workers", name, "jobs", handle)

    return new


def jobs(broker: Broker, count: int) -> set[str]:
    """Put jobs into the topic, in turns over its partitions."""
    for number in range(count):
        broker.produce("jobs", f"job {number}", partition=number % 4)
    return {f"job {number}" for number in range(count)}


def test_two_workers_share_the_jobs(broker: Broker, hire: Hire, handled: Counter[str]) -> None:
    one, two = hire("one"), hire("two")
    one.poll(0), two.poll(0)
    expected = jobs(broker, 8)
    one.run_until_empty()
    assert sum(handled.values()) == 4
    two.run_until_empty()
    assert handled == dict.fromkeys(expected, 1)
    broker.assert_caught_up("workers")


def test_jobs_of_a_crashed_worker_are_done_by_the_other(
    broker: Broker, fakecloud: Cloud, hire: Hire, handled: Counter[str]
) -> None:
    one, two = hire("one"), hire("two")
    one.poll(0), two.poll(0)
    expected = jobs(broker, 8)
    assert len(two.poll()) == 4
    broker.faults.crash("workers", "two")
    one.run_until_empty()
    assert sum(handled.values()) == 4, "the partitions of the crashed one wait for its session"
    fakecloud.clock.advance("120s")
    one.run_until_empty()
    assert set(handled) == expected
    broker.assert_caught_up("workers")


def test_a_worker_that_comes_back_in_time_goes_on_where_it_had_committed(
    broker: Broker, fakecloud: Cloud, hire: Hire, handled: Counter[str]
) -> None:
    one, two = hire("one"), hire("two")
    one.poll(0), two.poll(0)
    expected = jobs(broker, 8)
    two.poll()
    broker.faults.crash("workers", "two")
    fakecloud.clock.advance("60s")
    one.run_until_empty()
    hire("two").run_until_empty()
    assert handled == dict.fromkeys(expected, 1)
    assert broker.group("workers").generation == 2


def test_a_rebalance_in_the_middle_of_work_repeats_but_loses_nothing(
    broker: Broker, hire: Hire, handled: Counter[str]
) -> None:
    one, two = hire("one"), hire("two")
    expected = jobs(broker, 8)
    records = one.poll()
    assert len(records) == 8
    two.run_until_empty()
    assert one.work(records) is False
    one.run_until_empty()
    two.run_until_empty()
    assert set(handled) == expected
    assert max(handled.values()) == 2
    broker.assert_caught_up("workers")


def test_work_that_outlives_its_session_is_refused_and_done_by_the_other(
    broker: Broker, hire: Hire, handled: Counter[str]
) -> None:
    one, two = hire("one"), hire("two")
    one.poll(0), two.poll(0)
    expected = jobs(broker, 4)
    slow = one.poll()
    broker.group("workers").expire("one")
    two.run_until_empty()
    assert one.work(slow) is False
    one.run_until_empty()
    assert set(handled) == expected
    assert handled[slow[0]["value"]] == 2


def test_a_commit_that_fails_brings_its_records_again(
    broker: Broker, hire: Hire, handled: Counter[str]
) -> None:
    one = hire("one")
    jobs(broker, 4)
    records = one.poll()
    with broker.faults.respond(409, route="commit", times=1):
        assert one.work(records) is False
    broker.group("workers").rebalance()
    one.run_until_empty()
    assert max(handled.values()) == 1, "its own work is not repeated"
    broker.assert_caught_up("workers")


def test_jobs_delivered_twice_are_done_once(
    broker: Broker, hire: Hire, handled: Counter[str]
) -> None:
    one = hire("one")
    jobs(broker, 4)
    one.run_until_empty()
    assert len(broker.faults.redeliver("workers", last=2)) == 2
    one.run_until_empty()
    assert max(handled.values()) == 1


def test_a_worker_that_leaves_hands_over_at_once(
    broker: Broker, hire: Hire, handled: Counter[str]
) -> None:
    one, two = hire("one"), hire("two")
    one.poll(0), two.poll(0)
    two.leave()
    expected = jobs(broker, 4)
    one.run_until_empty()
    assert handled == dict.fromkeys(expected, 1)
