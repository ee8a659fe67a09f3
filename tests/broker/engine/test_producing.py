"""Test the production of records: partitions of keys, sizes of messages, and limits of a plan."""

from __future__ import annotations

import pytest

from pytest_fakecloud.broker.engine.producing import BrokerQuota, murmur2, partition_for_key
from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.settings import BrokerLimits
from tests.harness import check_each

DAY = 86_400_000_000
VECTORS = [
    ("", 275646681, 0, 1, 9),
    ("a", 2731586172, 1, 0, 4),
    ("ab", 316155434, 2, 2, 2),
    ("abc", 479470107, 0, 3, 3),
    ("abcd", 2971317748, 2, 0, 8),
    ("21", 3321034988, 0, 0, 0),
    ("city", 4141104759, 1, 3, 7),
    ("foobar", 3504634814, 0, 2, 6),
    ("k0", 3590428993, 2, 1, 5),
    ("k1", 1684045097, 2, 1, 5),
    ("order-42", 501153024, 0, 0, 0),
    ("user:1001", 2333083561, 2, 1, 5),
    ("\u015f", 183743328, 0, 0, 0),
]
"""Results of Kafka's Java client and of librdkafka's murmur2."""


def test_hash_and_partitions() -> None:
    def check(key: str, unsigned: int, of_3: int, of_4: int, of_12: int) -> None:
        data = key.encode()
        assert murmur2(data) == unsigned
        assert [partition_for_key(data, n) for n in (3, 4, 12)] == [of_3, of_4, of_12]

    check_each(check, VECTORS)


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
    quota.reset()
    quota.take(1, 0, int, 0)
