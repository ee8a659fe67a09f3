"""every_failure: each call of some code fails once, in each way."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import unittest
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import httpx
import pytest
import redis
import requests
import trio

from pytest_fakecloud import BrokenRunsError, Broker, Cloud, ContractError, KVServer
from pytest_fakecloud.cloud import every_failure


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


def test_a_broken_promise_raises_with_all_runs(cloud: Cloud, orders: Broker) -> None:
    def careless() -> None:
        try:
            send(orders, "a")
        except requests.RequestException:
            send(orders, "a")

    def once_only() -> None:
        assert len(orders.records("orders")) == 1, "sent twice"

    with pytest.raises(BrokenRunsError) as caught:
        cloud.every_failure(careless, check=once_only)
    assert str(caught.value) == (
        "the promise was broken in 1 of 3 runs:\n"
        "  <call 1 (broker POST /produce/orders) lose_response: BROKEN: sent twice>"
    )
    failures = caught.value.failures
    assert [(one.fault, one.held) for one in failures] == [
        ("respond", True),
        ("drop", True),
        ("lose_response", False),
    ]
    broken = caught.value.broken.only()
    assert broken is failures.where(held=False).only()
    assert caught.value.__cause__ is broken.broken
    # The data is restored after a broken promise, too.
    assert orders.records("orders") == []


def test_a_long_list_of_runs_is_cut(cloud: Cloud, orders: Broker) -> None:
    def run() -> None:
        for value in "abcdefg":
            try:
                send(orders, value)
            except requests.RequestException:
                raise AssertionError(f"{value} is lost") from None

    with pytest.raises(BrokenRunsError, match="broken in 21 of 21 runs") as caught:
        cloud.every_failure(run)
    assert str(caught.value).endswith("BROKEN: f is lost>\n  ... and 1 more")


def test_a_retry_makes_more_calls_to_fail(cloud: Cloud, orders: Broker) -> None:
    def stubborn() -> None:
        for _ in range(2):
            try:
                return send(orders, "a")
            except requests.RequestException:
                pass
        raise RuntimeError("gave up")

    failures = cloud.every_failure(stubborn, faults=["respond"])
    assert [failure.number for failure in failures] == [1]
    assert failures.only().exception is None


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
    failures = cloud.every_failure(run, services=["other"], faults=["drop"])
    assert [failure.call.fake for failure in failures] == ["other"]
    with pytest.raises(
        ContractError, match=r"'kv_server' is not a fake. Known fakes: broker, other"
    ):
        cloud.every_failure(run, services=["kv_server"])


def test_misuse_is_named(cloud: Cloud, orders: Broker) -> None:
    with pytest.raises(ContractError, match="made no call to broker"):
        cloud.every_failure(lambda: None)
    with pytest.raises(ContractError, match="pass one or more of respond, drop, lose_response"):
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
    # Calls of the check do not fail.
    with pytest.raises(ContractError, match="made no call"):
        cloud.every_failure(lambda: None, check=lambda: send(orders, "a"))


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

    with pytest.raises(BrokenRunsError, match="sent twice") as caught:
        asyncio.run(cloud.aio.every_failure(careless, check=once_only))
    assert [failure.fault for failure in caught.value.broken] == ["lose_response"]
    failures = asyncio.run(cloud.aio.every_failure(careless, faults=["respond", "drop"]))
    assert [failure.fault for failure in failures] == ["respond", "drop"]
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
        cloud.every_failure(lambda: _calm(orders), faults=["respond"], check=check)
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

    failures = cloud.every_failure(checkout)
    assert [failure.call.service for failure in failures] == ["kv", "vector", "broker", "queue"] * 3
    assert [failure.number for failure in failures] == [1, 2, 3, 4] * 3
    lost = failures.where(fault="lose_response")
    assert all(failure.call.outcome == "lost" for failure in lost)
    assert kv.contents() == {}
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

    with pytest.raises(BrokenRunsError) as caught:
        trio.run(lambda: cloud.aio.every_failure(run, faults="drop"))
    assert [str(failure.broken) for failure in caught.value.failures] == ["not sent"]


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


# -- what a check returns --------------------------------------------------------------------------


def holds_in_words() -> str:
    return "fine"


def holds_lazily() -> Iterator[None]:
    yield
    raise AssertionError("never reached")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda: False, "check returned False, which is neither None nor True"),
        (holds_in_words, "check returned 'fine', which is neither"),
        (holds_lazily, "check returned <generator .*, whose code has not run"),
    ],
)
def test_a_check_asserts(
    cloud: Cloud, orders: Broker, check: Callable[[], object], text: str
) -> None:
    with pytest.raises(ContractError, match=text):
        cloud.every_failure(lambda: _calm(orders), check=check)

    async def awaited() -> object:
        return check()

    with pytest.raises(ContractError, match=text):
        asyncio.run(cloud.aio.every_failure(lambda: _calm(orders), check=awaited))


def test_a_check_that_is_false_after_a_failure_only_is_rejected_too(
    cloud: Cloud, orders: Broker
) -> None:
    with pytest.raises(ContractError, match="check returned False"):
        cloud.every_failure(
            lambda: _calm(orders), check=lambda: bool(orders.records("orders")), faults="drop"
        )
    assert len(cloud.every_failure(lambda: _calm(orders), check=lambda: True)) == 3


# -- runs that make other calls --------------------------------------------------------------------


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@dataclass
class Shuffled:
    """Code that makes its calls in another order in each run, as several threads may do."""

    steps: Sequence[Callable[[], None]]
    runs: int = 0

    def __call__(self) -> None:
        at = self.runs % len(self.steps)
        self.runs += 1
        for step in (*self.steps[at:], *self.steps[:at]):
            with contextlib.suppress(httpx.HTTPError):
                step()


def command(kv: KVServer, *words: str) -> None:
    httpx.post(kv.url, json=words, headers=kv.headers)


def produce(orders: Broker, path: str, body: object) -> None:
    httpx.post(f"{orders.url}/produce{path}", json=body, headers=orders.headers)


CALLS: dict[str, list[tuple[str, ...]]] = {
    "commands": [("SADD", "a", "1"), ("SREM", "a", "1"), ("LPUSH", "b", "1")],
    "keys": [("SET", "a", "1"), ("SET", "b", "1"), ("SET", "c", "1")],
    "values": [("LPUSH", "jobs", "a"), ("LPUSH", "jobs", "b"), ("LPUSH", "jobs", "c")],
    "alike": [("GET", "a"), ("SET", "a", "1"), ("GET", "a"), ("SET", "b", "1")],
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_each_call_fails_whatever_the_order(
    cloud: Cloud, kv: KVServer, calls: list[tuple[str, ...]]
) -> None:
    run = Shuffled([partial(command, kv, *words) for words in calls])
    failures = cloud.every_failure(run, faults=["drop", "respond"])
    failed = [tuple(failure.call.facts["words"][0]) for failure in failures]
    assert failed == [*calls, *calls]
    assert [failure.number for failure in failures] == [*range(1, len(calls) + 1)] * 2
    # No run was needed besides one for each fault, and the one without.
    assert run.runs == 2 * len(calls) + 1


def test_each_record_fails_whatever_the_order(cloud: Cloud, orders: Broker) -> None:
    orders.create_topic("mails", partitions=1)
    calls: list[tuple[str, object]] = [
        ("/orders", {"value": "a"}),
        ("/mails", {"value": "a"}),
        ("/orders", {"value": "b"}),
        ("", {"topic": "orders", "value": "a"}),
        ("", {"topic": "mails", "value": "a"}),
    ]
    run = Shuffled([partial(produce, orders, *call) for call in calls])
    failures = cloud.every_failure(run, faults="drop")
    assert [
        (one.call.path.removeprefix("/produce"), one.call.request_json()) for one in failures
    ] == calls


def test_equal_parts_of_identifiers_do_not_confuse_two_calls(cloud: Cloud, kv: KVServer) -> None:
    numbers = itertools.count()

    def publish(kind: str) -> None:
        # The second group of digits is that of another call in the run before.
        number = next(numbers)
        command(kv, "SET", f"{kind}:{uuid.UUID(int=(number % 2 << 80) + number)}", "1")

    run = Shuffled([partial(publish, "task"), partial(publish, "lock"), partial(publish, "mail")])
    failures = cloud.every_failure(run, faults=["drop", "lose_response"])
    failed = [failure.call.facts["words"][0][1].partition(":")[0] for failure in failures]
    assert failed == ["task", "lock", "mail"] * 2


@pytest.mark.parametrize("value", ["1", "{}"], ids=["same value", "other value"])
def test_words_that_differ_between_runs_do_not_hide_a_call(
    cloud: Cloud, kv: KVServer, value: str
) -> None:
    numbers = itertools.count()

    def publish(kind: str) -> None:
        # The number of the words differs, too.
        task = "-".join(str(uuid.uuid4()) for _ in range(next(numbers) % 5 + 1))
        command(kv, "SET", f"{kind}:{task}", value.format(task))

    run = Shuffled([partial(publish, "task"), partial(publish, "lock"), partial(publish, "mail")])
    failures = cloud.every_failure(run, faults=["drop", "lose_response"])
    failed = [failure.call.facts["words"][0][1].partition(":")[0] for failure in failures]
    assert failed == ["task", "lock", "mail"] * 2


def test_a_value_of_another_call_in_another_run_does_not_hide_a_call(
    cloud: Cloud, kv: KVServer
) -> None:
    def step(key: str) -> None:
        command(kv, "SET", key, "1" if run.runs == 1 and key == "a" else "2")

    run = Shuffled([partial(step, "a"), partial(step, "b"), partial(step, "c")])
    failures = cloud.every_failure(run, faults="drop")
    assert [failure.call.facts["words"][0][1] for failure in failures] == ["a", "b", "c"]


def test_keys_that_are_drawn_from_a_few_are_counted(cloud: Cloud, kv: KVServer) -> None:
    shards = itertools.chain("ab", itertools.repeat("a"))

    def run() -> None:
        for _ in range(2):
            _calmly(kv, "INCR", f"shard-{next(shards)}")

    failures = cloud.every_failure(run, faults=["drop", "respond"])
    assert [failure.number for failure in failures] == [1, 2, 1, 2]


def test_keys_without_a_common_word_are_counted(cloud: Cloud, kv: KVServer) -> None:
    names = itertools.count()

    def run() -> None:
        for _ in range(2):
            with contextlib.suppress(httpx.HTTPError):
                command(kv, "SET", f"k{next(names)}", "1")
        _calmly(kv, "GET", "end")

    failures = cloud.every_failure(run, faults="drop")
    assert [failure.call.facts["command"] for failure in failures] == [["SET"], ["SET"], ["GET"]]


def _calmly(kv: KVServer, *words: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        command(kv, *words)


def test_more_background_traffic_does_not_disturb(cloud: Cloud, kv: KVServer) -> None:
    beats = itertools.count()

    def run() -> None:
        for _ in range(next(beats) % 3 + 1):
            _calmly(kv, "INCR", "beats")
        _calmly(kv, "LPUSH", "jobs", "a")
        _calmly(kv, "GET", "beats")

    failures = cloud.every_failure(run, faults="drop")
    assert [failure.call.facts["command"] for failure in failures] == [["INCR"], ["LPUSH"], ["GET"]]


def test_a_call_that_no_later_run_makes_is_an_error(cloud: Cloud, kv: KVServer) -> None:
    cache: list[bool] = []

    def run() -> None:
        _calmly(kv, "GET", "other")
        if not cache:
            _calmly(kv, "GET", "settings")
            cache.append(True)
        _calmly(kv, "SET", "a", "1")

    with pytest.raises(
        ContractError, match=r"call 2 \(kv_server GET settings\) of the run"
    ) as caught:
        cloud.every_failure(run, check=lambda: None)
    assert "by 'respond', but 3 further runs did not make this call" in str(caught.value)
    assert "first call that differs is call 2 (kv_server GET settings)" in str(caught.value)
    # It works after a first call, as the message says.
    assert len(cloud.every_failure(run, faults="drop")) == 2
    assert list(kv.faults) == []


def test_the_first_call_that_differs_is_named(cloud: Cloud, kv: KVServer) -> None:
    runs = itertools.count()

    def run() -> None:
        names = ["a", "b", "c"] if next(runs) < 2 else ["a"]
        for name in names:
            _calmly(kv, "SET", name, "1")

    with pytest.raises(ContractError, match=r"call 2 .* differs is call 2 \(kv_server SET b\)"):
        cloud.every_failure(run)


def test_a_broken_promise_is_raised_before_a_call_that_is_missing(
    cloud: Cloud, kv: KVServer
) -> None:
    runs = itertools.count()

    def run() -> None:
        _calmly(kv, "SET", "a", "1")
        if next(runs) < 2:
            _calmly(kv, "SET", "b", "1")

    def check() -> None:
        assert kv.value("a") == "1"

    with pytest.raises(BrokenRunsError, match="broken in 1 of 1 run:") as caught:
        cloud.every_failure(run, check=check, faults="drop")
    assert "call 2 (kv_server SET b)" in caught.value.__notes__[0]


def test_a_run_that_does_not_come_to_the_call_is_repeated(cloud: Cloud, kv: KVServer) -> None:
    is_open = [True]

    def step(name: str) -> None:
        # As a pool does: the next use of a connection that was closed fails.
        if not is_open[0]:
            is_open[0] = True
            raise RuntimeError("closed")
        try:
            command(kv, "SET", name, "1")
        except httpx.HTTPError:
            is_open[0] = False
            raise

    run = Shuffled([partial(step, "a"), partial(step, "b"), partial(step, "c")])
    failures = cloud.every_failure(run, faults=["drop", "lose_response"])
    assert [failure.call.facts["words"][0][1] for failure in failures] == ["a", "b", "c"] * 2


def test_a_promise_that_is_broken_without_a_fault_is_raised(cloud: Cloud, kv: KVServer) -> None:
    runs = itertools.count()

    def run() -> None:
        assert next(runs) == 0, "not repeatable"
        _calmly(kv, "SET", "a", "1")

    with pytest.raises(AssertionError, match="not repeatable") as caught:
        cloud.every_failure(run)
    assert caught.value.__notes__ == ["every_failure: in a run without faults"]


def test_commands_that_prepare_a_connection_do_not_fail(cloud: Cloud, kv: KVServer) -> None:
    with redis.Redis.from_url(kv.database_url) as client:

        def run() -> None:
            with contextlib.suppress(redis.RedisError), client.pipeline() as pipeline:
                client.set("a", 1)
                pipeline.incr("b").execute()

        failures = cloud.every_failure(run)
    # A connection that a fault has closed is prepared again in the next run.
    commands = [failure.call.facts["command"][0] for failure in failures]
    assert commands == ["SET", "INCRBY", "EXEC"] * 3


def test_a_fault_of_the_test_hides_calls_from_kinds_of_faults(cloud: Cloud, kv: KVServer) -> None:
    kv.faults.respond(503, command="GET")

    def run() -> None:
        _calmly(kv, "GET", "a")
        _calmly(kv, "SET", "a", "1")

    failures = cloud.every_failure(run, faults=["drop", "respond"])
    failed = [(failure.fault, failure.call.facts["command"][0]) for failure in failures]
    assert failed == [("drop", "GET"), ("drop", "SET"), ("respond", "SET")]
