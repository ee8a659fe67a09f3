"""every_failure: each call of a piece of code fails once, in each way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from pytest_fakecloud import Broker, Cloud, ContractError


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, delivery="driven") as opened:
        yield opened


@pytest.fixture
def orders(cloud: Cloud) -> Broker:
    return cloud.broker(topics={"orders": 1})


def send(broker: Broker, value: str) -> None:
    requests.post(
        f"{broker.url}/produce/orders",
        json={"value": value},
        auth=(broker.username, broker.password),
        timeout=5,
    ).raise_for_status()


def test_each_call_fails_once_in_each_way(cloud: Cloud, orders: Broker) -> None:
    def run() -> None:
        send(orders, "a")
        send(orders, "b")

    found = cloud.every_failure(run)
    assert [(failure.number, failure.fault) for failure in found] == [
        (1, "answer"), (2, "answer"), (1, "drop"), (2, "drop"), (1, "lose_answer"), (2, "lose_answer"),
    ]  # fmt: skip
    assert all(failure.exception is not None and failure.held for failure in found)
    found.assert_held()
    assert orders.records("orders") == []


def test_a_broken_promise_is_told_with_its_call(cloud: Cloud, orders: Broker) -> None:
    def careless() -> None:
        try:
            send(orders, "a")
        except requests.RequestException:
            send(orders, "a")

    def once_only() -> None:
        assert len(orders.records("orders")) == 1, "sent twice"

    found = cloud.every_failure(careless, check=once_only)
    broken = found.broken.only()
    assert (broken.number, broken.fault) == (1, "lose_answer")
    assert "sent twice" in str(broken.broken)
    with pytest.raises(AssertionError, match=r"broken in 1 of 3 runs"):
        found.assert_held()


def test_a_retry_makes_more_calls_to_fail(cloud: Cloud, orders: Broker) -> None:
    def stubborn() -> None:
        for _ in range(2):
            try:
                return send(orders, "a")
            except requests.RequestException:
                pass
        raise RuntimeError("gave up")

    found = cloud.every_failure(stubborn, faults=["answer"])
    assert [failure.number for failure in found] == [1]
    assert found.only().exception is None


def test_a_flaw_without_any_fault_is_raised_as_it_is(cloud: Cloud, orders: Broker) -> None:
    def flawed() -> None:
        send(orders, "a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cloud.every_failure(flawed)


def test_services_limits_the_calls(cloud: Cloud, orders: Broker) -> None:
    other = cloud.broker(name="other", topics={"orders": 1})

    def run() -> None:
        send(orders, "a")
        send(other, "b")

    found = cloud.every_failure(run, services=["other"], faults=["drop"])
    assert [failure.call.handle for failure in found] == ["other"]
    with pytest.raises(ContractError, match="kv_server is not open; open are: broker, other"):
        cloud.every_failure(run, services=["kv_server"])


def test_misuse_is_named(cloud: Cloud, orders: Broker) -> None:
    with pytest.raises(ContractError, match="made no call to broker"):
        cloud.every_failure(lambda: None)
    with pytest.raises(ContractError, match="give names out of answer, drop, lose_answer"):
        cloud.every_failure(lambda: None, faults=["explode"])


def test_no_fault_is_left_and_none_counts_as_forgotten(cloud: Cloud, orders: Broker) -> None:
    cloud.every_failure(lambda: send(orders, "a"))
    assert cloud.problems == []
    send(orders, "fine")
