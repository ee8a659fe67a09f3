"""every_failure: each call of some code fails once, in each way."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import unittest
from collections.abc import Callable, Iterator

import httpx
import pytest
import requests
import trio

from pytest_fakecloud import Broker, Cloud, ContractError, every_failure
from pytest_fakecloud.core.journal import recorder_of


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
    assert cloud.problems == []
    send(orders, "fine")
    # The faults, and the restored data, are not the test's actions.
    assert not recorder_of(cloud.journal).shared.actions


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

    assert len(cloud.every_failure(run, services="other", faults=["drop"])) == 1
    found = cloud.every_failure(run, services=["other"], faults=["drop"])
    assert [failure.call.handle for failure in found] == ["other"]
    with pytest.raises(
        ContractError, match=r"'kv_server' is not a fake. Known fakes: broker, other"
    ):
        cloud.every_failure(run, services=["kv_server"])


def test_misuse_is_named(cloud: Cloud, orders: Broker) -> None:
    with pytest.raises(ContractError, match="made no call to broker"):
        cloud.every_failure(lambda: None)
    with pytest.raises(ContractError, match="pass one or more of answer, drop, lose_answer"):
        cloud.every_failure(lambda: None, faults=["explode"])
    with pytest.raises(ContractError, match="check=3 is not a function"):
        cloud.every_failure(lambda: None, check=3)
    with pytest.raises(ContractError, match="run='send' is not a function"):
        cloud.every_failure("send")  # type: ignore[arg-type]
    for wrong in (5, [], [5]):
        with pytest.raises(ContractError, match=r"services=.* is not valid: pass a name or a list"):
            cloud.every_failure(lambda: None, services=wrong)
        with pytest.raises(ContractError, match=r"faults=.* is not valid"):
            cloud.every_failure(lambda: None, faults=wrong)
    with pytest.raises(ContractError, match="made no call"):
        cloud.every_failure(lambda: None, faults="drop")


def test_code_that_is_awaited_is_for_the_other_one(cloud: Cloud, orders: Broker) -> None:
    async def run() -> None:
        send(orders, "a")

    with pytest.raises(ContractError, match=r"use cloud\.aio\.every_failure"):
        cloud.every_failure(run)


def test_code_that_is_awaited(cloud: Cloud, orders: Broker) -> None:
    async def asend(client: httpx.AsyncClient) -> None:
        answer = await client.post(
            f"{orders.url}/produce/orders", json={"value": "a"}, headers=orders.headers
        )
        answer.raise_for_status()

    async def careless() -> None:
        async with httpx.AsyncClient() as client:
            try:
                await asend(client)
            except httpx.HTTPError:
                await asend(client)

    async def once_only() -> None:
        assert len(orders.records("orders")) == 1, "sent twice"

    found = asyncio.run(cloud.aio.every_failure(careless, check=once_only))
    assert [(failure.fault, failure.held) for failure in found] == [
        ("answer", True),
        ("drop", True),
        ("lose_answer", False),
    ]
    assert "sent twice" in str(found.broken.only().broken)
    assert trio.run(cloud.aio.every_failure, lambda: send(orders, "a"))

    async def flawed() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(cloud.aio.every_failure(flawed))


def test_a_check_that_fails_by_itself_is_raised(cloud: Cloud, orders: Broker) -> None:
    turns = iter([None, ZeroDivisionError])

    def check() -> None:
        error = next(turns)
        if error is not None:
            raise error

    with pytest.raises(ZeroDivisionError):
        cloud.every_failure(lambda: _calm(orders), faults=["answer"], check=check)
    assert list(orders.faults) == []


def _calm(broker: Broker) -> None:
    with contextlib.suppress(requests.RequestException):
        send(broker, "a")


def test_four_services_and_what_a_run_left_is_taken_back(cloud: Cloud) -> None:
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    broker, queue = cloud.broker(topics={"orders": 1}), cloud.queue()

    def checkout() -> None:
        httpx.post(kv.url, json=["INCR", "orders"], headers=kv.headers).raise_for_status()
        httpx.post(
            f"{index.url}/upsert", json={"id": "1", "vector": [1, 0]}, headers=index.headers
        ).raise_for_status()
        send(broker, "order")
        httpx.post(
            f"{queue.url}/v2/publish/https://app.test/mail", headers=queue.headers
        ).raise_for_status()

    found = cloud.every_failure(checkout)
    assert [failure.call.service for failure in found] == ["kv", "vector", "broker", "queue"] * 3
    assert [failure.number for failure in found] == [1, 2, 3, 4] * 3
    lost = found.where(fault="lose_answer")
    assert all(failure.call.outcome == "lost" for failure in lost)
    assert kv.values() == {}
    assert not index.vectors()
    assert broker.records("orders") == []
    assert queue.messages() == []


def test_an_assertion_within_a_group_is_a_broken_promise(cloud: Cloud, orders: Broker) -> None:
    async def run() -> None:
        async def work() -> None:
            async with httpx.AsyncClient(auth=(orders.username, orders.password)) as client:
                try:
                    await client.post(f"{orders.url}/produce/orders", json={"value": "a"})
                except httpx.HTTPError:
                    raise AssertionError("not sent") from None

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)

    found = trio.run(lambda: cloud.aio.every_failure(run, faults="drop"))
    assert [str(failure.broken) for failure in found] == ["not sent"]


def _group(outcome: BaseException) -> BaseException:
    return BaseExceptionGroup("of tasks", [ValueError("beside it"), outcome])


def _replaced(outcome: BaseException) -> BaseException:
    try:
        try:
            raise outcome
        except BaseException:
            raise ValueError("the application caught everything")  # noqa: B904
    except ValueError as error:
        return error


OUTCOMES = [
    pytest.fail.Exception("Timeout (>2.0s) from pytest-timeout."),
    pytest.skip.Exception("later"),
    pytest.xfail.Exception("known"),
    pytest.exit.Exception("end"),
    unittest.SkipTest("later"),
    KeyboardInterrupt(),
    SystemExit(2),
]


@pytest.mark.parametrize("place", ["run", "check"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda one: type(one).__name__)
def test_what_is_not_the_applications_failure_ends_the_test(
    cloud: Cloud, orders: Broker, outcome: BaseException, place: str
) -> None:
    def run() -> None:
        try:
            send(orders, "a")
        except requests.RequestException:
            if place == "run":
                raise outcome from None

    def check() -> None:
        if not orders.records("orders"):
            raise outcome

    with pytest.raises(type(outcome)) as caught:
        cloud.every_failure(run, check=check, faults="drop")
    assert caught.value is outcome
    assert outcome.__notes__ == [
        "every_failure: in the run that failed broker POST /produce/orders by 'drop'"
    ]
    del outcome.__notes__

    async def both() -> None:
        await cloud.aio.every_failure(run, check=check, faults="drop")

    with pytest.raises(type(outcome)) as caught:
        trio.run(both)
    assert caught.value is outcome
    del outcome.__notes__
    # No fault is left.
    send(orders, "b")


@pytest.mark.parametrize("hidden", [_group, _replaced])
def test_an_outcome_that_the_application_hides_ends_the_test(
    cloud: Cloud, orders: Broker, hidden: Callable[[BaseException], BaseException]
) -> None:
    outcome = pytest.fail.Exception("Timeout (>2.0s) from pytest-timeout.")

    def run() -> None:
        failed = False
        try:
            send(orders, "a")
        except requests.RequestException:
            failed = True
        if failed:
            raise hidden(outcome)

    with pytest.raises(pytest.fail.Exception) as caught:
        cloud.every_failure(run, faults="drop")
    assert caught.value is outcome


def test_an_exit_that_the_application_handles_is_its_own(cloud: Cloud, orders: Broker) -> None:
    def run() -> None:
        try:
            send(orders, "a")
        except requests.RequestException:
            try:
                argparse.ArgumentParser(exit_on_error=True).parse_args(["--unknown"])
            except SystemExit as error:
                raise ValueError("bad arguments") from error

    assert isinstance(cloud.every_failure(run, faults="drop").only().exception, ValueError)


def test_pytest_fail_in_the_undisturbed_run_is_raised(cloud: Cloud, orders: Broker) -> None:
    def run() -> None:
        send(orders, "a")
        pytest.fail("as it is")

    with pytest.raises(pytest.fail.Exception, match="as it is"):
        cloud.every_failure(run)


def test_code_with_too_many_calls_is_refused(
    cloud: Cloud, orders: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(every_failure, "MOST_CALLS", 1)
    with pytest.raises(ContractError, match="made 2 calls, and every_failure"):
        cloud.every_failure(lambda: [send(orders, "a"), send(orders, "b")])
    assert len(cloud.every_failure(lambda: send(orders, "a"))) == 3
