"""The ready-made promises: each passes correct code and fails broken code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest
import redis as redis_py
import trio
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import (
    Cloud,
    ContractError,
    History,
    KVServer,
    always,
    linearizable,
    monotonic_reads,
    nothing_lost,
    observed,
    once,
)
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.explore.values.history import Operation

from .conftest import expects, failure


class Register:
    """A model of a register."""

    def __init__(self) -> None:
        self.value: int | None = None

    def read(self) -> int | None:
        return self.value

    def write(self, value: int) -> None:
        self.value = value

    def add(self, amount: int) -> int:
        self.value = (self.value or 0) + amount
        return self.value


def history(*operations: tuple[str, str, tuple[Any, ...], Any, int, int | None]) -> History:
    made = History(cloud=None, schedule="")  # type: ignore[arg-type]
    for client, name, args, result, began, ended in operations:
        made.operations.append(Operation(client, name, args, {}, began, ended, result))
    return made


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [("a", "write", (1,), None, 0, 1), ("a", "read", (), 1, 2, 3)],
        # Concurrent writes may take effect in either order.
        [("a", "write", (1,), None, 0, 3), ("b", "read", (), None, 1, 2)],
        [("a", "write", (1,), None, 0, 3), ("b", "read", (), 1, 1, 2)],
        # A call without an answer may take effect immediately, later or never.
        [("a", "write", (1,), None, 0, None), ("b", "read", (), 1, 1, 2)],
        [("a", "write", (1,), None, 0, None), ("b", "read", (), None, 1, 2),
         ("b", "read", (), 1, 3, 4)],
        [("a", "add", (1,), 1, 0, 5), ("b", "add", (1,), 2, 1, 4), ("c", "read", (), 1, 2, 3)],
    ],
)  # fmt: skip
def test_histories_that_an_order_explains(operations: list[Any]) -> None:
    linearizable(Register)(history(*operations))


@pytest.mark.parametrize(
    "operations",
    [
        [("a", "write", (1,), None, 0, 1), ("b", "read", (), None, 2, 3)],
        [("a", "read", (), 7, 0, 1)],
        [("a", "add", (1,), 1, 0, 3), ("b", "add", (1,), 1, 1, 2)],
        # Both orders lead to the same state before the unexplained read.
        [("a", "write", (1,), None, 0, 3), ("b", "write", (1,), None, 1, 3),
         ("c", "read", (), 5, 4, 5)],
        # A value that was read must have been written before.
        [("a", "write", (1,), None, 0, 9), ("b", "read", (), 1, 1, 2), ("c", "read", (), None, 3, 4)],
        [("a", "write", (1,), None, 0, None), ("b", "read", (), 1, 1, 2),
         ("b", "read", (), None, 3, 4)],
    ],
)  # fmt: skip
def test_histories_that_no_order_explains(operations: list[Any]) -> None:
    with pytest.raises(AssertionError, match="no order of these operations explains"):
        linearizable(Register)(history(*operations))


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("unpicklable", [0, iter(lambda: 0, 1)], ids=["local class", "iterator"])
def test_model_states_with_equal_repr_are_distinguished(last: int, unpicklable: object) -> None:
    class Box:
        def __init__(self, value: int) -> None:
            self.value, self.other = value, unpicklable

        def __deepcopy__(self, memo: object) -> Box:
            return Box(self.value)

        def __repr__(self) -> str:
            return "a box"

    class Boxed:
        def __init__(self) -> None:
            self.box = Box(0)

        def write(self, value: int) -> None:
            self.box = Box(value)

        def read(self) -> int:
            return self.box.value

    writes = [("a", "write", (1,), None, 0, 3), ("b", "write", (2,), None, 1, 2)]
    linearizable(Boxed)(history(*writes, ("c", "read", (), last, 4, 5)))


class DictRegister(dict[str, int]):
    def write(self, value: int) -> None:
        self["value"] = value

    def read(self) -> int:
        return self["value"]


class SlotsRegister(Register):
    __slots__ = ("value",)


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("model", [DictRegister, SlotsRegister])
def test_states_outside_of_an_objects_dictionary_differ(model: type, last: int) -> None:
    writes = [("a", "write", (1,), None, 0, 3), ("b", "write", (2,), None, 1, 2)]
    linearizable(model)(history(*writes, ("c", "read", (), last, 4, 5)))


def test_the_end_of_the_order_is_compared_with_the_fakes() -> None:
    operations = [("a", "add", (1,), 1, 0, 1), ("b", "add", (2,), 3, 2, None)]
    for end in (1, 3):
        linearizable(Register, final=lambda model, end=end: model.value == end)(
            history(*operations)
        )
    with pytest.raises(AssertionError, match="explains their results and the fakes' data"):
        linearizable(Register, final=lambda model: model.value == 2)(history(*operations))


def counting(redis: Redis, *, safe: bool) -> dict[str, Callable[[], None]]:
    @observed
    def add(amount: int) -> int:
        if safe:
            return redis.incrby("total", amount)
        total = int(redis.get("total") or 0) + amount
        redis.set("total", str(total))
        return total

    return {"one": lambda: add(1) and None, "two": lambda: add(2) and None}


def test_clients_that_overwrite_each_other_are_found(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    error = failure(
        cloud, counting(redis, safe=False), linearizable(Register), match=r"one: add\(1\) -> 1"
    )
    assert (error.schedule, error.tried) == ("one.2 switch two", 2)


def test_operations_of_asynchronous_clients_are_noted(cloud: Cloud, kv: KVServer) -> None:
    redis = AsyncRedis(kv.url, kv.token, rest_retries=0)

    @observed
    async def add(amount: int) -> int:
        total = int(await redis.get("total") or 0) + amount
        await redis.set("total", str(total))
        return total

    clients = {"one": lambda: add(1), "two": lambda: add(2)}
    failure(cloud, clients, linearizable(Register), match="no order of these operations explains")
    cloud.explore({"one": lambda: add(1)}, linearizable(Register), kinds="crash")


def test_clients_that_count_in_one_step_hold(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    kinds = ("switch", "drop", "lose_response", "respond", "crash", "delay")
    check = linearizable(Register, final=lambda model: str(model.value or 0) == total(kv))
    cloud.explore(counting(redis, safe=True), check, kinds=kinds, budget=80)


def total(kv: KVServer) -> str:
    return str(kv.value("total") or 0)


def test_clients_themselves_are_operations_where_none_is_marked(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    class Switch:
        def __init__(self) -> None:
            self.on = False

        def take(self) -> bool:
            taken, self.on = not self.on, True
            return taken

        def take2(self) -> bool:
            return self.take()

    def take() -> bool:
        if redis.get("on"):
            return False
        redis.set("on", "1")
        return True

    failure(cloud, [take, take], linearizable(Switch), match="take2")


def test_a_check_after_an_asynchronous_one_runs_too(cloud: Cloud, kv: KVServer) -> None:
    async def holds() -> None:
        pass

    failure(
        cloud,
        kv.client().ping,
        [holds, expects(kv, "2")],
        budget=1,
        match="no disturbance was applied",
    )


def test_observed_leaves_functions_as_they_are() -> None:
    @observed
    def double(number: int) -> int:
        """Return twice a number."""
        return 2 * number

    @observed
    async def later(number: int) -> int:
        return 2 * number

    assert (double(4), double.__doc__, asyncio.run(later(4))) == (8, "Return twice a number.", 8)
    with pytest.raises(ContractError, match="is not a function"):
        observed("double")  # type: ignore[arg-type]


def test_models_without_the_operation_are_refused() -> None:
    with pytest.raises(ContractError, match="has no method drop"):
        linearizable(Register)(history(("a", "drop", (), None, 0, 1)))
    with pytest.raises(ContractError, match="is not a class"):
        linearizable(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("effect", "times"),
    [
        ("INCR k", 1), ("RPUSH k a", 1), ("SADD k a", 1), ("HSET k a 1", 1), ("ZADD k 1 a", 1),
        ("XADD k * a 1", 1), ("INCRBY k 2", 2), ("RPUSH k a a", 2),
    ],
)  # fmt: skip
def test_once_counts_what_a_key_holds(cloud: Cloud, kv: KVServer, effect: str, times: int) -> None:
    kv.execute(*effect.split())
    seen = History(cloud, "")
    if times == 1:
        once("k")(seen)
    else:
        with pytest.raises(AssertionError, match="k counts 2 effects instead of one"):
            once("k")(seen)


def test_once_lets_those_who_gave_up_do_nothing(cloud: Cloud, kv: KVServer) -> None:
    seen = History(cloud, "")
    with pytest.raises(AssertionError, match="no effect, although no client gave up"):
        once("k")(seen)
    seen.errors["client"] = TimeoutError()
    once("k")(seen)
    kv.execute("SET", "k", "text")
    with pytest.raises(ContractError, match="is not a count"):
        once("k")(seen)
    kv.close()
    with pytest.raises(ContractError, match="no key-value server is open"):
        once("k")(seen)


def test_nothing_lost_compares_sent_and_handled_values(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1})
    broker.produce("orders", "a")
    seen = History(cloud, "")
    nothing_lost("orders", lambda: ["a", "a"])(seen)
    nothing_lost(lambda: ["b"], lambda: {"b"})(seen)
    # A repeated produce request is not a loss for a consumer that handles each value once.
    nothing_lost(lambda: ["c", "c"], lambda: {"c"})(seen)
    with pytest.raises(AssertionError, match=r"lost: 'a'$"):
        nothing_lost("orders", list)(seen)
    with pytest.raises(AssertionError, match=r"lost: 'a'\. None of it is equal to .*: 'b', 1$"):
        nothing_lost("orders", lambda: ["b", 1])(seen)
    with pytest.raises(ContractError, match="no broker has the topic"):
        nothing_lost("others", list)(seen)


def test_monotonic_reads_never_go_back() -> None:
    check = monotonic_reads("read")
    check(
        history(
            ("a", "read", (), None, 0, 1), ("a", "read", (), 1, 2, 3), ("b", "read", (), 0, 4, 5)
        )
    )
    with pytest.raises(AssertionError, match="a read 2, and later the smaller 1"):
        check(history(("a", "read", (), 2, 0, 1), ("a", "read", (), 1, 2, 3)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: once(3), r"once\(\) expects the name of a key, got 3"),  # type: ignore[arg-type]
        (lambda: nothing_lost(3, list), "sent=3 is neither"),  # type: ignore[arg-type]
        (lambda: nothing_lost("orders", 3), "handled=3 is not a function"),  # type: ignore[arg-type]
        (lambda: monotonic_reads(3), "expects the name of an operation"),  # type: ignore[arg-type]
    ],
)
def test_promises_about_something_else_are_rejected(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        make()


def _waits(kv: KVServer, how: str) -> None:
    """Wait until a time-out, because nothing happens."""
    if how == "asyncio.run()":
        asyncio.run(asyncio.sleep(60))
    elif how == "a new loop":
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(asyncio.sleep(60))
    elif how == "a loop of its own":
        with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
            loop.run_until_complete(asyncio.sleep(60))
    elif how == "anyio.run()":
        anyio.run(anyio.sleep, 60)
    elif how == "trio.run()":
        trio.run(trio.sleep, 60)
    elif how == "anyio.run() with trio":
        anyio.run(anyio.sleep, 60, backend="trio")
    elif how == "a time-out of trio":
        with pytest.raises(trio.TooSlowError):
            trio.run(_forever_in_trio)
    elif how == "a thread of trio":
        trio.run(trio.to_thread.run_sync, time.sleep, 60)
    elif how == "a thread":
        asyncio.run(asyncio.to_thread(time.sleep, 60))
    elif how == "a time-out":
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(_forever(), 60))
    elif how == "a subscription":
        with redis_py.Redis.from_url(kv.database_url) as client, client.pubsub() as listener:
            listener.subscribe("news")
            listener.get_message(timeout=60)
            assert listener.get_message(timeout=60) is None
    elif how == "a blocking command":
        with redis_py.Redis.from_url(kv.database_url) as client:
            assert client.blpop(["jobs"], 60) is None
    elif how == "an event":
        assert not threading.Event().wait(60)
    elif how == "a condition":
        with (condition := threading.Condition()):
            assert not condition.wait_for(lambda: False, 60)
    elif how == "a queue":
        with pytest.raises(queue.Empty):
            queue.Queue[int]().get(timeout=60)
    elif how == "a future":
        with pytest.raises(TimeoutError):
            concurrent.futures.Future[int]().result(60)
    elif how == "a lock":
        assert (lock := threading.Lock()).acquire()
        assert not lock.acquire(timeout=60)
    else:
        assert how == "a stream of events"
        headers = {"Authorization": f"Bearer {kv.token}", "Accept": "text/event-stream"}
        url = f"{kv.url}/subscribe/news"
        with (
            httpx.stream("POST", url, headers=headers, timeout=10) as answer,
            pytest.raises(httpx.ReadTimeout),
        ):
            [*answer.iter_lines()]


async def _forever_in_trio() -> None:
    with trio.fail_after(60):
        await trio.sleep_forever()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        ("asyncio.run()", 60), ("a new loop", 60), ("a loop of its own", 60), ("anyio.run()", 60),
        ("a thread", 60), ("a time-out", 60), ("a subscription", 60), ("a blocking command", 60),
        ("a stream of events", 10), ("an event", 60), ("a condition", 60), ("a queue", 60),
        ("a future", 60), ("a lock", 60), ("trio.run()", 60), ("anyio.run() with trio", 60),
        ("a time-out of trio", 60), ("a thread of trio", 60),
    ],
)  # fmt: skip
def test_waits_of_a_check_take_fake_time(
    cloud: Cloud, kv: KVServer, redis: Redis, how: str, seconds: int
) -> None:
    spans: list[timedelta] = []

    def check() -> None:
        assert kv.value("n") == "1"
        before = cloud.clock.now()
        _waits(kv, how)
        spans.append(cloud.clock.now() - before)

    before = monotonic()
    cloud.explore(lambda: redis.incr("n"), check, schedule="")
    assert spans == [timedelta(seconds=seconds)]
    assert monotonic() - before < 9


def test_an_idle_thread_from_before_does_not_hold_up_the_wait_of_a_check(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    ends = threading.Event()
    idle = threading.Thread(target=ends.wait, daemon=True)
    idle.start()
    try:
        test_waits_of_a_check_take_fake_time(cloud, kv, redis, "an event", 60)
    finally:
        ends.set()
        idle.join()


def test_a_thread_from_before_ends_the_wait_of_a_check(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    work = queue.SimpleQueue[threading.Event | None]()

    def serve() -> None:
        while (event := work.get()) is not None:
            event.set()

    server = threading.Thread(target=serve, daemon=True)
    server.start()

    def check() -> None:
        before = cloud.clock.now()
        work.put(event := threading.Event())
        assert event.wait(60)
        assert cloud.clock.now() == before

    try:
        cloud.explore(lambda: redis.incr("n"), check, schedule="")
    finally:
        work.put(None)
        server.join()


@pytest.mark.parametrize("how", ["a time-out", "a subscription", "a blocking command"])
def test_clocks_and_waits_in_a_thread_of_a_check_are_those_of_the_check(
    cloud: Cloud, kv: KVServer, redis: Redis, how: str
) -> None:
    spans: list[float] = []

    def work() -> None:
        before = time.monotonic()
        _waits(kv, how)
        spans.append(time.monotonic() - before)

    def check() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()

    before = monotonic()
    cloud.explore(lambda: redis.incr("n"), check, schedule="")
    assert spans == [60]
    assert monotonic() - before < 9


def test_a_thread_of_a_check_ends_a_wait_before_its_time_out(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def check() -> None:
        before = cloud.clock.now()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(kv.value, "n").result(timeout=60) == "1"
        assert cloud.clock.now() == before

    cloud.explore(lambda: redis.incr("n"), check, schedule="")


def test_a_subscription_of_a_check_sees_what_a_delivery_publishes(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    qstash = cloud.queue()

    def handler(_: object) -> None:
        redis.publish("news", "sent")

    qstash.destinations.call("https://app.example.com", handler)
    client = qstash.client()

    def run() -> None:
        redis.incr("n")
        client.message.publish(url="https://app.example.com/hook", delay="30s")

    def check() -> None:
        assert kv.value("n") == "1"
        client.message.publish(url="https://app.example.com/hook", delay="30s")
        before = cloud.clock.now()
        with redis_py.Redis.from_url(kv.database_url) as own, own.pubsub() as listener:
            listener.subscribe("news")
            assert listener.get_message(timeout=60)["type"] == "subscribe"
            assert listener.get_message(timeout=60)["data"] == b"sent"
        assert cloud.clock.now() - before == timedelta(seconds=30)

    cloud.explore(run, check, schedule="")


@pytest.mark.parametrize(
    "how",
    ["time.sleep()", "asyncio.run()", "a subscription", "a time-out", "trio.run()",
     "a time-out of trio"],
)  # fmt: skip
def test_a_promise_of_every_step_that_waits_is_an_error(
    cloud: Cloud, kv: KVServer, redis: Redis, how: str
) -> None:
    def predicate() -> bool:
        if how == "time.sleep()":
            time.sleep(60)
        else:
            _waits(kv, how)
        return True

    with pytest.raises(ContractError, match="a promise that is checked after every step waits"):
        cloud.explore(lambda: redis.incr("n"), always(predicate), schedule="")


def test_a_promise_of_every_step_may_limit_the_time_of_a_call(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    async def value() -> str | None:
        async with asyncio.timeout(60), AsyncRedis(kv.url, kv.token) as client:
            return await client.get("n")

    def predicate() -> bool:
        return asyncio.run(value()) in (None, "1")

    cloud.explore(lambda: redis.incr("n"), always(predicate), schedule="")


def _read_over_rest(kv: KVServer) -> list[Any]:
    pipeline = Redis(kv.url, kv.token).pipeline()
    return pipeline.get("first").get("second").exec()


def _read_transaction_over_rest(kv: KVServer) -> list[Any]:
    transaction = Redis(kv.url, kv.token).multi()
    return transaction.get("first").get("second").exec()


def _read_over_the_protocol(kv: KVServer) -> list[Any]:
    with contextlib.closing(redis_py.Redis.from_url(kv.database_url)) as client:
        return client.pipeline(transaction=False).get("first").get("second").execute()


@pytest.mark.parametrize(
    "read", [_read_over_rest, _read_transaction_over_rest, _read_over_the_protocol]
)
def test_a_promise_of_every_step_may_send_several_commands_together(
    cloud: Cloud, kv: KVServer, redis: Redis, read: Callable[[KVServer], list[Any]]
) -> None:
    """No strand runs between the commands of a promise."""

    def run() -> None:
        redis.set("first", "1")
        redis.set("second", "1")

    def ordered() -> bool:
        first, second = read(kv)
        return bool(first) or not second

    assert cloud.explore([run, run], always(ordered), budget=5).tried == 5
