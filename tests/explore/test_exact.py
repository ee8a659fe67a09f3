"""Exactness of the simulation: turns over every transport, time, threads, and no false alarms."""

from __future__ import annotations

import asyncio
import logging.handlers
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import redis as redis_py
import redis.asyncio as redis_asyncio
from qstash import QStash
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import BrokenPromiseError, Cloud, ContractError, DeliveredRequest, KVServer
from pytest_fakecloud.explore.values.disturbances import KINDS

from .bugs import locks, queues
from .conftest import expects, failure, holds, publishes_to_asgi

HOOK = "https://app.example.com/hook"
ORDERS: Any = ("switch", "late", "wake")


@pytest.fixture
def port(kv: KVServer) -> Any:
    with redis_py.Redis.from_url(kv.database_url, decode_responses=True) as client:
        yield client


# -- the Redis protocol ----------------------------------------------------------------------------


def test_clients_of_the_redis_protocol_take_turns(cloud: Cloud, kv: KVServer, port: Any) -> None:
    def client() -> None:
        port.set("n", int(port.get("n") or 0) + 1)

    error = failure(
        cloud, {"ann": client, "bob": client}, expects(kv, "2"), kinds="switch", match="n is 1"
    )
    assert error.schedule == "ann.2 switch bob"
    assert re.fullmatch(
        r"bob's SET n 1 \(\S+\) came between ann's GET n \(\S+\) and ann's SET n 1 \(\S+\), "
        "on key n",
        error.cause,
    )


def test_asynchronous_clients_of_the_redis_protocol_take_turns(cloud: Cloud, kv: KVServer) -> None:
    async def client() -> None:
        redis = redis_asyncio.Redis.from_url(kv.database_url)
        await redis.set("n", int(await redis.get("n") or 0) + 1)
        await redis.aclose()

    error = failure(
        cloud, {"ann": client, "bob": client}, expects(kv, "2"), kinds="switch", match="n is 1"
    )
    assert error.schedule == "ann.2 switch bob"


def test_a_read_before_watch_is_found_and_one_after_it_holds(cloud: Cloud) -> None:
    of = locks.read_before_watch(cloud, corrected=False)
    error = failure(
        cloud, of.run, of.check, setup=of.setup, kinds="switch", match="2 sold, 1 taken"
    )
    assert len(error.disturbances) == 1, (
        "one switch replaces the two of the first schedule that failed"
    )
    of = locks.read_before_watch(cloud, corrected=True)
    assert cloud.explore(of.run, of.check, setup=of.setup, kinds="switch").is_exhaustive


def test_a_refused_exec_changes_nothing(cloud: Cloud, kv: KVServer, port: Any) -> None:
    seen: list[str] = []

    def run() -> None:
        try:
            port.pipeline().set("a", "1").set("b", "1").execute()
        except redis_py.RedisError as error:
            seen.append(str(error))

    def check() -> None:
        assert (kv.value("a"), kv.value("b")) in ((None, None), ("1", "1"))

    cloud.explore(run, check, budget=40, setup=seen.clear)
    kinds: Any = ("respond", "drop", "lose_response")
    result = cloud.explore(run, check, budget=20, kinds=kinds, setup=seen.clear)
    assert result.points == {"run": 1}, "only EXEC is a point"
    with pytest.raises(ContractError, match="duplicate cannot happen"):
        cloud.explore(run, check, kinds=("duplicate", "drop"), setup=seen.clear)
    cloud.explore(run, schedule="run.1 respond", setup=seen.clear)
    assert "Transaction discarded" in seen[0]


def test_a_blocking_pop_waits_for_another_client(cloud: Cloud, port: Any) -> None:
    popped: list[Any] = []

    def check() -> None:
        assert popped == [("queue", "job")]

    clients = {
        "taker": lambda: popped.append(port.blpop("queue", timeout=60)),
        "giver": lambda: (time.sleep(5), port.rpush("queue", "job")),
    }
    # The giver may also wake before the taker calls, but only if time passes in between.
    result = cloud.explore(clients, check, kinds=ORDERS, setup=popped.clear)
    assert not result.is_exhaustive
    failure(cloud, clients, check, kinds=("switch", "jump"), setup=popped.clear)


def test_orders_that_need_time_to_pass_are_not_all_orders(cloud: Cloud, kv: KVServer) -> None:
    redis = kv.client()

    def view(after: float) -> None:
        time.sleep(after)
        redis.set("views", int(redis.get("views") or 0) + 1)

    clients = {"ann": lambda: view(0), "bob": lambda: view(0.001)}
    result = cloud.explore(clients, lambda: None, kinds="switch", trust=False)
    assert not result.is_exhaustive
    assert "exhaustive" not in str(result)
    # Without the kind jump, there are no others to draw.
    assert result.tried < 10
    assert "(in which the clock moves only when all wait; seed" in str(result)


def test_a_listener_waits_for_a_message(cloud: Cloud, port: Any) -> None:
    heard: list[Any] = []

    def listens() -> None:
        with port.pubsub(ignore_subscribe_messages=True) as listener:
            listener.subscribe("news")
            for _ in range(3):
                message = listener.get_message(timeout=10)
                if message is not None:
                    heard.append(message["data"])
                    return

    def check() -> None:
        assert heard == ["hello"]

    def tells() -> None:
        time.sleep(1)
        port.publish("news", "hello")

    with pytest.raises(BrokenPromiseError, match="assert"):
        # The message is lost if it is published before the subscription.
        cloud.explore({"ann": listens, "bob": tells}, check, setup=heard.clear, kinds="delay")
    cloud.explore({"ann": listens, "bob": tells}, check, setup=heard.clear, schedule="")


def test_the_reference_names_every_disturbance_of_every_transport() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "exploration.md").read_text("utf-8")
    rows = re.findall(r"^\| (HTTP|Redis protocol|delivery) \| `(\w+)` \| \S", page, re.M)
    assert len(rows) == len(set(rows))
    documented: dict[str, set[str]] = {}
    for transport, kind in rows:
        documented.setdefault(transport, set()).add(kind)
    possible: dict[str, set[str]] = {}
    faults = {"respond", "drop", "lose_response", "duplicate", "crash_after_response", "fail"}
    faults |= {"unreachable"}
    with Cloud(seed=1, delivery="driven") as cloud:
        kv, queue = cloud.kv_server(), cloud.queue()
        redis = Redis(kv.url, kv.token, rest_retries=0)
        queue.destinations.accept()
        with redis_py.Redis.from_url(kv.database_url, retry=None) as port:
            for transport, run in (
                ("HTTP", redis.ping),
                ("Redis protocol", port.dbsize),
                ("delivery", redis.ping),
            ):
                kinds = possible[transport] = set()
                if transport == "delivery":
                    queue.client().message.publish(url=HOOK, body="x")
                for kind in KINDS:
                    if kind not in faults:
                        continue
                    try:
                        explored = cloud.explore(
                            run, holds, kinds=kind, budget=5, services=_service(transport)
                        )
                    except ContractError:
                        continue
                    if explored.kinds.get(kind):
                        kinds.add(kind)
    assert documented == possible


def _service(transport: str) -> str:
    return "queue" if transport == "delivery" else "kv_server"


# -- time ------------------------------------------------------------------------------------------


def test_a_delay_delays_one_client(cloud: Cloud, redis: Redis) -> None:
    seen: dict[str, float] = {}
    start = cloud.clock.now().timestamp()

    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            redis.incr(name)
            seen[name] = cloud.clock.now().timestamp() - start

        return run

    clients = {"ann": client("ann"), "bob": client("bob")}
    cloud.explore(clients, schedule="ann.1 delay 30")
    assert seen == {"ann": 30, "bob": 0}
    cloud.explore(clients, schedule="ann.1 slow 30")
    assert seen == {"ann": 30, "bob": 0}


def test_schedules_fire_at_their_times_while_a_client_sleeps(cloud: Cloud) -> None:
    queue = cloud.queue()
    fired: list[float] = []
    start = cloud.clock.now().timestamp()
    queue.destinations.call(
        HOOK, lambda request: fired.append(cloud.clock.now().timestamp() - start)
    )
    client = QStash(queue.token, base_url=queue.url)

    def run() -> None:
        created = client.schedule.create(destination=HOOK, cron="@every 1m")
        time.sleep(200)
        client.schedule.delete(created)

    cloud.explore(run, schedule="", setup=fired.clear)
    assert fired == [60, 120, 180]

    def creates() -> None:
        client.schedule.create(destination=HOOK, cron="@every 1m")

    cloud.explore(creates, schedule="", setup=fired.clear)
    assert fired == [60, 120, 180]
    cloud.explore(creates, schedule="", setup=fired.clear, horizon="5m")
    assert fired == [60, 120, 180, 240, 300]


def test_retries_do_not_let_schedules_fire_for_hours(cloud: Cloud) -> None:
    queue = cloud.queue()
    attempts: Counter[str | None] = Counter()

    def fails(request: DeliveredRequest) -> int:
        attempts[request.headers.get("Upstash-Message-Id")] += 1
        return 503

    queue.destinations.call(HOOK, fails)
    client = QStash(queue.token, base_url=queue.url)

    def check() -> None:
        assert sorted(attempts.values()) == [4, 4, 4]
        cloud.clock.advance("1m")
        assert len(attempts) > 3, "schedules fire again when the trial has ended"

    def creates() -> None:
        client.schedule.create(destination=HOOK, cron="* * * * *")

    cloud.explore(creates, check, schedule="", setup=attempts.clear)


def test_clients_arrive_at_different_times(cloud: Cloud, redis: Redis) -> None:
    granted: list[float] = []
    cloud.clock.move_to("2030-01-01T00:00:00.5Z")

    def client() -> None:
        now = time.time()
        if redis.incr(f"window:{int(now)}") == 1:
            granted.append(now)

    def check() -> None:
        assert len(granted) < 2 or abs(granted[0] - granted[1]) >= 1, "two grants within a second"

    error = failure(
        cloud, {"ann": client, "bob": client}, check, setup=granted.clear, match="two grants"
    )
    assert error.cause in ("ann starts 0.5 s later", "bob starts 0.5 s later")
    assert error.schedule in ("ann.0 jump edge", "bob.0 jump edge")


def test_the_last_retry_is_reached_with_one_disturbance(cloud: Cloud) -> None:
    of = queues.short_idempotency_key(cloud, corrected=False)
    kinds: Any = ("crash_after_response", "fail", "unreachable", "nearly", "delay")
    error = failure(cloud, of.run, of.check, kinds=kinds, budget=300, match="charged twice")
    assert len(error.disturbances) == 1


def test_patience_bounds_how_slow_a_client_can_be(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        redis.set("k", "v", ex=600)
        redis.incr("n")
        assert redis.get("k") == "v", "gone"

    failure(cloud, run, kinds=("jump", "nearly"), match="gone")
    with pytest.raises(ContractError, match="no schedule was possible"):
        cloud.explore(run, kinds="jump", patience="5m")


# -- tasks and threads -----------------------------------------------------------------------------


def test_tasks_of_one_client_interleave(cloud: Cloud, kv: KVServer) -> None:
    async def add(redis: AsyncRedis, after: float) -> None:
        await asyncio.sleep(after)
        value = int(await redis.get("n") or 0)
        await redis.set("n", str(value + 1))

    async def client() -> None:
        async with AsyncRedis(kv.url, kv.token) as redis:
            await asyncio.gather(add(redis, 0), add(redis, 1))

    error = failure(cloud, client, expects(kv, "2"), kinds=("delay", "slow"), match="n is 1")
    assert error.schedule == "client:add.2 delay 30"
    # Tasks that start together take turns at each call in the undisturbed trial.
    both = {"ann": client}
    failure(cloud, both, expects(kv, "1"), kinds=ORDERS, match="by the undisturbed trial")


def test_calls_of_a_library_that_gather_runs_interleave(cloud: Cloud, kv: KVServer) -> None:
    seen: set[tuple[object, ...]] = set()

    async def client() -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url) as connection:
            calls = (connection.incr("n") for _ in range(2))
            seen.add(tuple(await asyncio.gather(*calls)))

    cloud.explore(client, holds, kinds=ORDERS, budget=20, trust=False)
    assert seen == {(1, 2), (2, 1)}


def test_threads_of_the_code_are_strands(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def add() -> None:
        redis.set("n", str(int(redis.get("n") or 0) + 1))

    def client() -> None:
        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    error = failure(cloud, client, expects(kv, "2"), kinds="switch", match="n is 1")
    assert "client+add2" in error.story

    def pooled() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: add(), range(2)))

    failure(cloud, pooled, expects(kv, "2"), kinds="switch", match="n is 1")


@pytest.mark.parametrize("starts", ["thread", "to_thread"])
def test_one_switch_lets_a_client_make_the_calls_of_its_thread(
    cloud: Cloud, kv: KVServer, redis: Redis, starts: str
) -> None:
    def add() -> None:
        redis.set("n", str(int(redis.get("n") or 0) + 1))

    def client() -> None:
        if starts == "to_thread":
            asyncio.run(asyncio.to_thread(add))
        else:
            thread = threading.Thread(target=add)
            thread.start()
            thread.join()
        redis.incr("done")

    clients = {"ann": client, "bob": client}
    error = failure(cloud, clients, expects(kv, "2"), kinds="switch", match="n is 1")
    (disturbance,) = error.disturbances
    assert re.fullmatch(r"ann\+\w+\.2 switch bob", disturbance)
    pattern = r"bob\+\w+'s SET n 1 .* came between ann\+\w+'s GET n .* and ann\+\w+'s SET n 1 .*"
    assert re.fullmatch(f"{pattern}, on key n", error.cause)


def test_a_deadlock_is_a_finding_with_its_story(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    first, second = threading.Lock(), threading.Lock()

    def client(lock: Any, other: Any) -> Callable[[], None]:
        def run() -> None:
            with lock:
                redis.incr("n")
                with other:
                    redis.incr("n")

        return run

    clients = {"ann": client(first, second), "bob": client(second, first)}
    error = failure(cloud, clients, expects(kv, "4"), kinds=ORDERS)
    assert "deadlock: ann waits forever at test_exact.py" in str(error)
    assert str(error).count(": with other:") == 2


def test_a_strand_that_waits_for_a_lock_that_it_holds_is_reported(
    cloud: Cloud, redis: Redis
) -> None:
    box = SimpleNamespace(lock=threading.Lock())

    def client() -> None:
        with box.lock:
            redis.ping()
            with box.lock:
                pass

    failure(cloud, client, holds, match=r"stuck: client waits forever at .*: with box\.lock:")
    assert not box.lock.locked(), "the strand has ended"


@pytest.mark.parametrize("many", [1, 2])
def test_a_run_that_is_stuck_is_reported(cloud: Cloud, redis: Redis, many: int) -> None:
    def client() -> None:
        redis.ping()
        threading.Event().wait()

    failure(
        cloud,
        {f"c{n}": client for n in range(many)},
        holds,
        match=r"waits forever at test_exact.py:\d+: threading.Event",
    )


@pytest.mark.parametrize("starter", ["library", "application"])
def test_a_daemon_that_waits_outside_of_the_exploration_does_not_block_it(
    cloud: Cloud, redis: Redis, starter: str
) -> None:
    inbox: SimpleQueue[Any] = SimpleQueue()

    def run() -> None:
        redis.ping()
        if starter == "library":
            logging.handlers.QueueListener(inbox).start()
        else:
            threading.Thread(target=lambda: inbox.get(), daemon=True).start()
        redis.ping()

    summary = str(cloud.explore({"ann": run, "bob": redis.ping}, holds, schedule=""))
    assert "the code waited for a lock that explore() does not control" in summary
    assert "the daemon thread ann+" in summary
    for _ in threading.enumerate():
        inbox.put(None)


def test_the_result_notes_code_that_is_not_explored(cloud: Cloud, redis: Redis) -> None:
    def starts_a_process() -> None:
        redis.ping()
        subprocess.run([sys.executable, "-c", ""], check=True)

    def leaves_a_thread() -> None:
        redis.ping()
        thread = threading.Thread(target=lambda: time.sleep(10**6), daemon=True)
        thread.start()

    def exits() -> None:
        redis.ping()
        import os

        os._exit(3)

    def explored(run: Callable[[], None]) -> str:
        return str(cloud.explore(run, holds, budget=3))

    assert "a child process that starts_a_process started at test_exact.py" in explored(
        starts_a_process
    )
    assert "the daemon thread leaves_a_thread+thread was still running" in explored(leaves_a_thread)
    with pytest.raises(ContractError, match=r"exits calls os\._exit at test_exact"):
        explored(exits)


# -- what ends the test ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, pytest.skip.Exception, pytest.exit.Exception]
)
def test_outcomes_of_pytest_and_interrupts_end_the_test(
    cloud: Cloud, redis: Redis, error: type[BaseException]
) -> None:
    def run() -> None:
        redis.ping()
        raise error("enough")

    with pytest.raises(error, match="enough"):
        cloud.explore(run, holds)

    def check() -> None:
        raise error("enough")

    with pytest.raises(error, match="enough"):
        cloud.explore(redis.ping, check)


def test_a_timeout_of_the_test_ends_it(cloud: Cloud, redis: Redis) -> None:
    """pytest-timeout calls pytest.fail() from a signal handler, which may interrupt any code."""
    scope: dict[str, Any] = {"__name__": "pytest_timeout", "pytest": pytest}
    exec("def timeout_sigalrm():\n    pytest.fail('Timeout >2.0s')", scope)

    def run() -> None:
        redis.ping()
        scope["timeout_sigalrm"]()

    with pytest.raises(pytest.fail.Exception, match="Timeout") as raised:
        cloud.explore(run, holds)
    assert not isinstance(raised.value, BrokenPromiseError)
    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        cloud.explore(redis.ping, scope["timeout_sigalrm"])


# -- nothing passes vacuously ----------------------------------------------------------------------


def test_handlers_must_be_called_and_succeed(cloud: Cloud, redis: Redis) -> None:
    queue = cloud.queue()
    route = queue.destinations.call(HOOK, lambda request: None)
    with pytest.raises(ContractError, match="no handler was ever called"):
        cloud.explore(redis.ping, holds, budget=5)
    route.remove()

    def fails(request: DeliveredRequest) -> None:
        raise LookupError("always")

    queue.destinations.call(HOOK, fails)
    # Another handler that succeeds does not hide the one that fails.
    queue.destinations.call(f"{HOOK}/works", lambda request: None)
    publisher = QStash(queue.token, base_url=queue.url)

    def run() -> None:
        publisher.message.publish(url=f"{HOOK}/works", body="x", retries=0)
        publisher.message.publish(url=HOOK, body="x", retries=0)

    with pytest.raises(
        ContractError, match=rf"handler given to destinations.call\('{HOOK}'\) raised"
    ):
        cloud.explore(run, holds, budget=5)


def test_the_result_lists_calls_points_and_kinds(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    result = cloud.explore({"ann": redis.ping, "bob": redis.dbsize}, holds, budget=60)
    assert result.calls == {"ann": 1, "bob": 1}
    assert result.points["ann"] >= 1
    assert result.kinds["drop"] >= 2
    assert "rebalance" in result.untried
    assert "ann 0 to 1 call, bob 0 to 1 call" in str(result)


def test_disturbances_end_before_the_check(cloud: Cloud, kv: KVServer) -> None:
    token = kv.token
    redis = Redis(kv.url, token, rest_retries=0)
    index = cloud.vector_index(dimension=2)
    vectors = index.client()

    def run() -> None:
        try:
            redis.incr("n")
        except Exception:
            redis_failed.append(1)
        vectors.upsert([("a", [1.0, 0.0])])

    redis_failed: list[int] = []

    def check() -> None:
        assert kv.token == token
        redis.ping()
        assert len(vectors.query([1.0, 0.0], top_k=1)) <= 1
        if vectors.fetch(["a"])[0] is not None:
            assert vectors.query([1.0, 0.0], top_k=1)

    kinds: Any = ("rotate_token", "hold", "partition")
    result = cloud.explore(run, check, budget=30, kinds=kinds, setup=redis_failed.clear)
    assert {"rotate_token", "hold", "partition"} <= result.kinds.keys()


def test_an_asgi_application_is_explored_at_its_calls(cloud: Cloud, kv: KVServer) -> None:
    async def increments() -> None:
        async with AsyncRedis(kv.url, kv.token) as redis:
            await redis.incr("n")

    error = failure(
        cloud,
        publishes_to_asgi(cloud, increments),
        expects(kv, "1"),
        kinds="crash_after_response",
        match="n is 2",
    )
    assert error.schedule == "delivery1.0 crash_after_response"


def test_deliveries_that_share_an_asynchronous_client_interleave(
    cloud: Cloud, kv: KVServer
) -> None:
    redis = AsyncRedis(kv.url, kv.token)
    began: list[str] = []

    async def increments() -> None:
        began.append("increments")
        await redis.incr("n")

    publish = publishes_to_asgi(cloud, increments)

    def check() -> None:
        assert len(began) == 2, "a delivery was retried, because it could not run"
        raise AssertionError("done")

    schedule = "publish.1 duplicate, delivery1.1 switch delivery2"
    error = failure(cloud, publish, check, setup=began.clear, schedule=schedule, match="done")
    assert "delivery2: runs before delivery1 continues" in error.story
    # The story shows the application's line for both calls, although another thread made them.
    assert len(re.findall(r"[:;] INCR n → \d \(test_exact.py:\d+\)", error.story)) == 2


# -- what every trial has in common ------------------------------------------------------------------


def test_a_client_may_set_signal_handlers(cloud: Cloud, redis: Redis) -> None:
    handler = signal.getsignal(signal.SIGTERM)

    def run() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        redis.ping()

    result = cloud.explore(run, holds, budget=3)
    assert "not explored: signals" in str(result)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_timers_are_part_of_an_exhaustive_search(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def run() -> None:
        redis.set("lock", "x", ex=10)
        redis.get("lock")

    seen: set[Any] = set()
    kinds: Any = (*ORDERS, "jump")
    result = cloud.explore(run, lambda: seen.add(kv.value("lock")), kinds=kinds)
    assert result.is_exhaustive
    assert result.orders == 2
    assert seen == {"x", None}
    cloud.explore(run, lambda: seen.clear(), schedule="run.2 switch @clock", setup=seen.clear)
    clients = {"a": run, "b": lambda: redis.get("lock")}
    assert cloud.explore(clients, holds, kinds=kinds, budget=150).is_exhaustive
