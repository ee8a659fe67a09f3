from typing import Any

import pytest
from orders import Broker, place_orders, place_with_retry, totals_since

from pytest_fakecloud import Broker as FakeBroker
from pytest_fakecloud import Cloud

pytestmark = pytest.mark.fakecloud(broker={"topics": {"orders": 3}})


@pytest.fixture
def log(broker: FakeBroker) -> Broker:
    return Broker(broker.url, broker.username, broker.password)


def order(number: int, customer: str, amount: int) -> dict[str, Any]:
    return {"id": f"o{number}", "customer": customer, "amount": amount}


def test_all_orders_of_a_customer_share_a_partition(log: Broker) -> None:
    places = place_orders(log, [order(n, "ada", 10) for n in range(5)])
    assert len({partition for partition, _ in places}) == 1
    assert [offset for _, offset in places] == [0, 1, 2, 3, 4]


def test_only_todays_orders_count(log: Broker, fakecloud: Cloud) -> None:
    place_orders(log, [order(1, "ada", 10)])
    fakecloud.clock.advance("1d")
    midnight = fakecloud.clock.now_ms()
    place_orders(log, [order(2, "ada", 7), order(3, "bob", 5)])
    assert totals_since(log, midnight, 3) == {"ada": 7, "bob": 5}


def test_an_order_whose_answer_was_lost_is_in_the_log_twice_but_counts_once(
    log: Broker, broker: FakeBroker
) -> None:
    with broker.faults.lose_response(route="produce", times=1):
        place_with_retry(log, order(1, "ada", 10))
    assert len(broker.records("orders")) == 2
    assert totals_since(log, 0, 3) == {"ada": 10}


def test_what_was_produced_can_be_asserted(log: Broker, broker: FakeBroker) -> None:
    place_orders(log, [order(1, "ada", 10)])
    broker.assert_produced("orders", key="ada", headers={"order-id": "o1"}, times=1)


def test_a_topic_that_does_not_exist_is_named(log: Broker) -> None:
    with pytest.raises(RuntimeError, match="refunds"):
        log.post("produce/refunds", {"value": "x"})
