"""Test the limits of a plan: messages per second and per day, and storage."""

from __future__ import annotations

import pytest

from pytest_fakecloud.broker.engine.producing import BrokerQuota
from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.settings import BrokerLimits

DAY = 86_400_000_000


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
