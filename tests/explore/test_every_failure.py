"""every_failure: a preset of explore() in which each call of some code fails once, in each way."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import httpx
import pytest
import requests
import trio
from redis import Redis as PortRedis
from redis import RedisError
from upstash_redis import Redis

from pytest_fakecloud import (
    BrokenPromiseError,
    Broker,
    Cloud,
    ContractError,
    History,
    KVServer,
    replay_schedule,
    sometimes,
)

from .conftest import expects


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

    failures = cloud.every_failure(run)
    assert [(failure.number, failure.fault) for failure in failures] == [
        (1, "respond"), (2, "respond"), (1, "drop"), (2, "drop"),
        (1, "lose_response"), (2, "lose_response"),
    ]  # fmt: skip
    assert all(failure.exception is not None and failure.held for failure in failures)
    assert orders.records("orders") == []
    assert cloud.violations() == []
    send(orders, "fine")
    # The faults, and the restored data, are not the test's actions.
    assert not cloud.journal._recorder.shared.actions


def careless(broker: Broker) -> None:
    try:
        send(broker, "a")
    except requests.RequestException:
        send(broker, "a")


def test_a_broken_promise_lists_its_runs_and_tells_the_story_of_the_first(
    cloud: Cloud, orders: Broker
) -> None:
    def run() -> None:
        careless(orders)

    def once_only() -> None:
        assert len(orders.records("orders")) == 1, "sent twice"

    with pytest.raises(BrokenPromiseError) as caught:
        cloud.every_failure(run, once_only)
    error = caught.value
    listed, _, story = str(error).partition("\nthe first of them:\n")
    assert listed == (
        "the promise was broken in 1 of 3 trials:\n"
        "  <call 1 (broker POST /produce/orders) lose_response: BROKEN: sent twice>"
    )
    assert story.startswith('cause: run\'s produce orders "a"')
    assert story.endswith('replay it with @pytest_fakecloud.replay_schedule("run.1 lose_response")')
    assert [(failure.fault, failure.held) for failure in error.failures] == [
        ("respond", True),
        ("drop", True),
        ("lose_response", False),
    ]
    broken = error.failures.where(held=False).only()
    assert broken.schedule == error.schedule == "run.1 lose_response"
    assert str(error.__cause__) == str(broken.broken)
    # The data is restored after a broken promise, too.
    assert orders.records("orders") == []

    @replay_schedule(error.schedule)
    def test() -> None:
        cloud.every_failure(run, once_only)

    with pytest.raises(BrokenPromiseError, match="by the given schedule"):
        test()


def test_a_long_list_of_runs_is_cut(cloud: Cloud, orders: Broker) -> None:
    def run() -> None:
        for value in "abcdefg":
            try:
                send(orders, value)
            except requests.RequestException:
                raise AssertionError(f"{value} is lost") from None

    with pytest.raises(BrokenPromiseError, match="broken in 21 of 21 trials") as caught:
        cloud.every_failure(run)
    assert "BROKEN: f is lost>\n  ... and 1 more\nthe first of them:\n" in str(caught.value)


def test_the_calls_of_the_run_without_faults_fail(cloud: Cloud, orders: Broker) -> None:
    def stubborn() -> None:
        for _ in range(2):
            try:
                return send(orders, "a")
            except requests.RequestException:
                pass
        raise RuntimeError("gave up")

    failure = cloud.every_failure(stubborn, faults="respond").only()
    assert (failure.number, failure.exception) == (1, None)


def test_a_failure_that_does_not_repeat_is_named(cloud: Cloud, redis: Redis) -> None:
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        redis.ping()
        assert len(runs) != 3, "the third time"

    with pytest.raises(ContractError, match=r"broke the promise \(the third time"):
        cloud.every_failure(run, faults="drop")


def test_services_limits_the_calls(cloud: Cloud, orders: Broker) -> None:
    other = cloud.broker(name="other", topics={"orders": 1})

    def run() -> None:
        send(orders, "a")
        send(other, "b")

    assert len(cloud.every_failure(run, services="other", faults=["drop"])) == 1
    failures = cloud.every_failure(run, services=["other"], faults=["drop"])
    assert [failure.call.fake for failure in failures] == ["other"]
    with pytest.raises(
        ContractError, match=r"'kv_server' is not a fake. Known fakes: broker, other"
    ):
        cloud.every_failure(run, services=["kv_server"])
    cloud.kv_server()
    with pytest.raises(ContractError, match="the code made no call to kv_server"):
        cloud.every_failure(run, services="kv_server")


def test_the_status_of_an_error_is_chosen(cloud: Cloud, orders: Broker) -> None:
    failure = cloud.every_failure(lambda: send(orders, "a"), faults="respond", status=429).only()
    assert (failure.call.status, failure.schedule) == (429, "client.1 respond 429")
    with pytest.raises(BrokenPromiseError, match="is rejected with 429"):
        cloud.explore(
            lambda: send(orders, "a"),
            lambda: len(orders.records("orders")) == 1,
            schedule=failure.schedule,
        )


def test_arguments_are_checked(cloud: Cloud, orders: Broker) -> None:
    run = lambda: send(orders, "a")  # noqa: E731
    with pytest.raises(ContractError, match="pass one or more of respond, drop, lose_response"):
        cloud.every_failure(run, faults=["explode"])  # type: ignore[list-item]
    with pytest.raises(ContractError, match="run='send' is not a function"):
        cloud.every_failure("send")  # type: ignore[arg-type]
    for status in (200, "503", True):
        with pytest.raises(ContractError, match=r"status=.* is not the status of an error"):
            cloud.every_failure(run, status=status)  # type: ignore[arg-type]
    wrong: Any
    for wrong in (5, [], [5]):
        with pytest.raises(ContractError, match=r"services=.* is not valid: pass a name or a list"):
            cloud.every_failure(run, services=wrong)
        with pytest.raises(ContractError, match=r"faults=.* is not valid"):
            cloud.every_failure(run, faults=wrong)
    # Calls of the check do not fail.
    with pytest.raises(ContractError, match="made no call"):
        cloud.every_failure(lambda: None, run)


def test_asynchronous_code_in_a_running_loop(cloud: Cloud, orders: Broker) -> None:
    async def send_once() -> None:
        async with httpx.AsyncClient(headers=orders.headers) as client:
            answer = await client.post(f"{orders.url}/produce/orders", json={"value": "a"})
        answer.raise_for_status()

    async def once_only() -> None:
        assert len(orders.records("orders")) < 2

    async def retry() -> None:
        try:
            await send_once()
        except httpx.HTTPError:
            await send_once()

    with pytest.raises(BrokenPromiseError) as caught:
        asyncio.run(cloud.aio.every_failure(retry, once_only))
    broken = caught.value.failures.where(held=False)
    assert [failure.fault for failure in broken] == ["lose_response"]
    assert len(trio.run(cloud.aio.every_failure, send_once)) == 3

    async def in_a_loop() -> None:
        cloud.every_failure(send_once)

    with pytest.raises(ContractError, match=r"use await .* cloud\.aio\.every_failure"):
        asyncio.run(in_a_loop())


def test_four_services_and_the_data_of_runs_are_restored(cloud: Cloud) -> None:
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    broker, queue = cloud.broker(topics={"orders": 1}), cloud.queue()
    queue.destinations.respond("https://app.test/mail", 200)

    def checkout() -> None:
        httpx.post(kv.url, json=["INCR", "orders"], headers=kv.headers).raise_for_status()
        httpx.post(
            f"{index.url}/upsert", json={"id": "1", "vector": [1, 0]}, headers=index.headers
        ).raise_for_status()
        send(broker, "order")
        httpx.post(
            f"{queue.url}/v2/publish/https://app.test/mail", headers=queue.headers
        ).raise_for_status()

    failures = cloud.every_failure(checkout)
    assert [failure.call.service for failure in failures] == ["kv", "vector", "broker", "queue"] * 3
    assert [failure.number for failure in failures] == [1, 2, 3, 4] * 3
    lost = failures.where(fault="lose_response")
    assert all(failure.call.outcome == "lost" for failure in lost)
    assert kv.contents() == {}
    assert not index.vectors()
    assert broker.records("orders") == []
    assert queue.messages() == []


def test_calls_of_a_destination_handler_fail(cloud: Cloud, redis: Redis) -> None:
    queue = cloud.queue()
    queue.destinations.call("https://app.test/mail", lambda request: redis.incr("mails") and None)

    def run() -> None:
        url = f"{queue.url}/v2/publish/https://app.test/mail"
        httpx.post(url, headers=queue.headers).raise_for_status()

    failures = cloud.every_failure(run, services="kv_server", faults="drop")
    assert failures.only().schedule == "delivery1.1 drop"


def test_a_check_is_a_promise_of_explore(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    errors: list[str] = []

    def check(history: History) -> None:
        errors.extend(history.errors)

    def is_set() -> bool:
        return kv.value("n") == "1"

    assert len(cloud.every_failure(lambda: redis.incr("n"), [check, sometimes(is_set)])) == 3
    assert errors
    with pytest.raises(BrokenPromiseError, match="undisturbed trial"):
        cloud.every_failure(lambda: redis.incr("n"), expects(kv, "0"))


def test_a_later_run_that_does_not_make_the_call_is_an_error(cloud: Cloud, redis: Redis) -> None:
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        redis.get("a")
        if len(runs) < 3:
            redis.get("b")

    with pytest.raises(
        ContractError, match=r"run\.2 drop was to fail, but a further trial did not"
    ):
        cloud.every_failure(run, faults="drop")


def test_commands_that_prepare_a_connection_do_not_fail(cloud: Cloud, kv: KVServer) -> None:
    def run() -> None:
        client = PortRedis.from_url(kv.database_url)
        with contextlib.suppress(RedisError), client, client.pipeline() as pipeline:
            client.set("a", 1)
            pipeline.incr("b").execute()

    failures = cloud.every_failure(run)
    commands = [failure.call.facts["command"][0] for failure in failures]
    assert commands == ["SET", "EXEC"] * 3


def test_no_extra_is_needed(cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("hypothesis", "time_machine"):
        monkeypatch.setitem(sys.modules, module, None)
    assert len(cloud.every_failure(lambda: redis.incr("n"))) == 3
