"""Each kind of disturbance: its effect on the code, its replay, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis
import requests
from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import (
    Broker,
    Cloud,
    ContractError,
    DeliveredRequest,
    Fake,
    History,
    KVServer,
    Queue,
)
from pytest_fakecloud.explore.fakes.lasting_events import LastingEvents
from pytest_fakecloud.explore.simulation.call_disturbances import HAPPEN, SERVE
from pytest_fakecloud.explore.simulation.delivery_strands import (
    AT_DELIVERIES,
    LOST_ATTEMPTS,
    OF_DELIVERIES,
)
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.values.disturbances import EVENTS, FAULTS, KINDS, PAUSES, SWITCHES
from pytest_fakecloud.explore.values.schedule import Schedule
from pytest_fakecloud.explore.world.patches import explored

from .conftest import failure, holds


class Seen:
    """Records the values that the code sees in a trial; as a promise, it checks that a value is not
    among them.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []

    def never(self, value: object) -> Callable[[], None]:
        def check() -> None:
            assert value not in self.values, f"saw {value}"

        return check


@pytest.fixture
def seen() -> Seen:
    return Seen()


def played(cloud: Cloud, run: Any, seen: Seen, schedule: str, **options: Any) -> list[Any]:
    """Return what the code sees under a schedule."""
    cloud.explore(run, schedule=schedule, setup=seen.values.clear, **options)
    return list(seen.values)


def get(kv: KVServer, path: str, seen: Seen) -> None:
    try:
        answer = httpx.get(f"{kv.url}{path}", headers=kv.headers)
        seen.values.append(answer.json().get("result", answer.status_code))
    except httpx.HTTPError as error:
        seen.values.append(type(error).__name__)


def test_a_kind_is_applied_in_one_place_and_perhaps_to_deliveries() -> None:
    places = [SWITCHES, PAUSES, EVENTS, FAULTS, {"slow", "numbers"}]
    others = {kind for kind in KINDS if sum(kind in [*place] for place in places) != 1}
    assert others == OF_DELIVERIES - {"duplicate"}
    assert {*HAPPEN} == EVENTS
    assert {*SERVE} == FAULTS
    assert {*AT_DELIVERIES, *LOST_ATTEMPTS} == OF_DELIVERIES


@pytest.mark.parametrize("name", ["due", "edge", "9999ms"])
def test_the_name_of_a_client_is_no_time(cloud: Cloud, redis: Redis, name: str) -> None:
    """The details of some kinds are words, which a client can have as its name."""

    def add() -> None:
        redis.incr("n")
        redis.expire("n", 60)

    def tried(name: str) -> list[list[tuple[object, ...]]]:
        """Return the disturbances of each trial, in which the second client is bob."""
        schedules: list[Schedule] = []

        def check(history: History) -> None:
            schedules.append(Schedule.parse(history.schedule))

        cloud.explore({"ann": add, name: add}, check, budget=150, seed=1)
        named = {name: "bob"}
        return [
            [(named.get(d.strand, d.strand), d.point, d.kind, named.get(d.runs_first, d.detail))
             for d in schedule]
            for schedule in schedules
        ]  # fmt: skip

    assert len(tried("bob")) >= 150
    assert tried(name) == tried("bob")


def test_faults_on_a_call(cloud: Cloud, kv: KVServer, seen: Seen) -> None:
    def run() -> None:
        get(kv, "/incr/n", seen)
        get(kv, "/get/n", seen)

    assert played(cloud, run, seen, "") == [1, "1"]
    assert played(cloud, run, seen, "run.1 respond") == [503, None]
    assert played(cloud, run, seen, "run.1 drop") == ["RemoteProtocolError", None]
    assert played(cloud, run, seen, "run.1 lose_response") == ["RemoteProtocolError", "1"]
    assert played(cloud, run, seen, "run.1 duplicate") == [2, "2"]
    assert played(cloud, run, seen, "run.2 crash") == [1]
    assert kv.value("n") is None, "the baseline is back"


def test_time_goes_to_the_end_of_a_key(cloud: Cloud, kv: KVServer, seen: Seen) -> None:
    def run() -> None:
        get(kv, "/set/lock/mine/EX/10", seen)
        get(kv, "/get/lock", seen)
        seen.values.append(time.time())

    start = cloud.clock.now().timestamp()
    assert played(cloud, run, seen, "run.2 jump") == ["OK", None, start + 10]
    assert played(cloud, run, seen, "run.2 nearly") == ["OK", "mine", start + 9.999]
    assert played(cloud, run, seen, "run.1 delay 25") == ["OK", "mine", start + 25]
    assert cloud.clock.now().timestamp() == start


def test_a_rotated_token_is_restored_after_its_span(cloud: Cloud, kv: KVServer, seen: Seen) -> None:
    token = kv.token
    redis = Redis(kv.url, token, rest_retries=0)

    def run() -> None:
        for _ in range(3):
            try:
                seen.values.append(redis.ping())
            except Exception:
                seen.values.append("refused")
                time.sleep(11)

    assert played(cloud, run, seen, "run.1 rotate_token") == ["PONG", "refused", "PONG"]
    assert kv.token == token


def test_code_that_reads_the_token_from_the_fake_uses_the_rotated_token(
    cloud: Cloud, kv: KVServer, seen: Seen
) -> None:
    def run() -> None:
        get(kv, "/incr/n", seen)
        get(kv, "/incr/n", seen)

    assert played(cloud, run, seen, "run.1 rotate_token") == [1, 2]


def test_held_vectors_become_visible_after_the_hold(cloud: Cloud, seen: Seen) -> None:
    index = cloud.vector_index(dimension=2)
    client = index.client()

    def run() -> None:
        client.upsert([("a", [1.0, 0.0])])
        seen.values.append([hit.id for hit in client.query([1.0, 0.0], top_k=1)])
        time.sleep(60)
        seen.values.append([hit.id for hit in client.query([1.0, 0.0], top_k=1)])

    assert played(cloud, run, seen, "") == [["a"], ["a"]]
    assert played(cloud, run, seen, "run.1 hold") == [[], ["a"]]
    error = failure(cloud, run, check=seen.never([]), setup=seen.values.clear)
    assert error.schedule == "run.1 hold"


# -- others ----------------------------------------------------------------------------------------


def test_another_client_comes_between_two_calls(cloud: Cloud, kv: KVServer, seen: Seen) -> None:
    def reader() -> None:
        get(kv, "/get/n", seen)
        get(kv, "/get/n", seen)

    def writer() -> None:
        get(kv, "/set/n/1", seen)

    both = [reader, writer]
    assert played(cloud, both, seen, "") == [None, None, "OK"]
    assert played(cloud, both, seen, "reader.2 switch writer") == [None, "OK", "1"]
    assert played(cloud, both, seen, "reader.1 switch writer") == ["OK", "1", "1"]


def test_several_switches_alternate_two_clients(cloud: Cloud, kv: KVServer, seen: Seen) -> None:
    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(3):
                httpx.get(f"{kv.url}/ping", headers=kv.headers)
                seen.values.append(f"{name}{number}")

        return run

    both = {"a": client("a"), "b": client("b")}
    schedule = "a.2 switch b, b.2 switch a, a.3 switch b, b.3 switch a"
    assert played(cloud, both, seen, schedule) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_another_client_comes_between_two_commands_of_a_pipeline(
    cloud: Cloud, redis: Redis, seen: Seen
) -> None:
    def reader() -> None:
        pipeline = redis.pipeline()
        seen.values.append(pipeline.get("n").get("n").exec())

    def writer() -> None:
        redis.set("n", "1")

    def check() -> None:
        for first, second in seen.values[:1]:
            assert first == second, "two answers for one question"

    error = failure(cloud, [reader, writer], check, setup=seen.values.clear, match="two answers")
    assert error.schedule == "reader.2 switch writer"


def test_gaps_in_pipelines_of_an_excluded_fake_have_no_disturbances(
    cloud: Cloud, redis: Redis
) -> None:
    other = cloud.kv_server(name="other").client()

    def run() -> None:
        redis.pipeline().get("a").get("b").exec()
        other.get("n")

    result = cloud.explore(
        {"ann": run, "bob": run}, holds, kinds=("switch", "tick"), services="other"
    )
    assert result.points == {"ann": 2, "bob": 2}, "the start, and the call of the other server"


def test_an_interruption_that_the_test_planned_happens_in_each_run(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    other = cloud.kv_server(name="other").client()
    runs = []

    def ann() -> None:
        # Planned inside a trial, so that the interruption meets the hooks of the simulation.
        with kv.between(("SET", "PING"), run=["SET", "pinged", "1"]):
            if redis.get("seat") is None:
                redis.set("seat", "ann")
            redis.ping()

    def check() -> None:
        runs.append((kv.value("seat"), kv.value("pinged")))

    with kv.between(("GET", "SET"), run=["INCR", "races"]) as between:
        clients = {"ann": ann, "bob": other.ping}
        cloud.explore(clients, check, kinds="switch", trust=False)
    assert set(runs) == {("ann", "1")}
    assert between.hits == len(runs)


def test_no_client_runs_within_a_transaction(cloud: Cloud, redis: Redis, seen: Seen) -> None:
    def reader() -> None:
        seen.values.append(redis.multi().get("n").get("n").exec())

    def check() -> None:
        for pair in seen.values:
            assert pair[0] == pair[1]

    result = cloud.explore(
        {"reader": reader, "writer": lambda: redis.set("n", "1")},
        check,
        setup=seen.values.clear,
        budget=70,
    )
    assert result.singles == result.all_singles


# -- deliveries ------------------------------------------------------------------------------------

HOOK = "https://app.example.com/hook"


@pytest.fixture
def queue(cloud: Cloud) -> Queue:
    return cloud.queue()


def publishes(queue: Queue, *bodies: str) -> Callable[[], None]:
    client = QStash(queue.token, base_url=queue.url)

    def run() -> None:
        for body in bodies:
            client.message.publish(url=HOOK, body=body)

    return run


def test_deliveries_are_part_of_a_run(cloud: Cloud, queue: Queue, seen: Seen) -> None:
    queue.destinations.call(HOOK, lambda request: seen.values.append(request.body.decode()))
    run = publishes(queue, "one", "two")
    assert played(cloud, run, seen, "") == ["one", "two"]
    assert played(cloud, run, seen, "delivery1.0 duplicate") == ["one", "one", "two"]
    again = played(cloud, run, seen, "delivery1.0 crash_after_response")
    assert sorted(again) == ["one", "one", "two"]
    assert played(cloud, run, seen, "delivery1.0 switch delivery2") == ["two", "one"]
    assert played(cloud, run, seen, "run.2 switch delivery1") == ["one", "two"]
    assert queue.messages() == []


@pytest.mark.parametrize(
    ("retries", "losses"),
    [
        (0, {"fail 1", "unreachable 1"}),
        (1, {"fail 2", "unreachable 1", "unreachable 2"}),
        (2, {"fail 2", "fail 3", "unreachable 1", "unreachable 2", "unreachable 3"}),
    ],
)
def test_a_delivery_loses_one_attempt_all_retries_or_all_attempts(
    cloud: Cloud, queue: Queue, retries: int, losses: set[str]
) -> None:
    queue.destinations.accept()
    schedules: set[str] = set()
    cloud.explore(
        lambda: queue.client().message.publish(url=HOOK, body="x", retries=retries),
        lambda history: schedules.add(history.schedule),
        kinds=("fail", "unreachable"),
        budget=len(losses),
    )
    assert schedules == {"", *(f"delivery1.0 {loss}" for loss in losses)}


def test_a_handler_may_be_overtaken_in_the_middle(
    cloud: Cloud, queue: Queue, kv: KVServer, seen: Seen
) -> None:
    def handle(request: DeliveredRequest) -> None:
        seen.values.append(f"{request.body.decode()} begins")
        httpx.get(f"{kv.url}/ping", headers=kv.headers)
        seen.values.append(f"{request.body.decode()} ends")

    queue.destinations.call(HOOK, handle)
    events = played(cloud, publishes(queue, "1", "2"), seen, "delivery1.1 switch delivery2")
    assert events == ["1 begins", "2 begins", "2 ends", "1 ends"]


def test_a_handler_that_crashes_is_tried_again(
    cloud: Cloud, queue: Queue, kv: KVServer, seen: Seen
) -> None:
    def handle(request: DeliveredRequest) -> None:
        try:
            httpx.get(f"{kv.url}/incr/n", headers=kv.headers)
        except Exception:
            seen.values.append("a crash is nothing to catch")
        seen.values.append(cloud.clock.now().timestamp())

    queue.destinations.call(HOOK, handle)
    events = played(cloud, publishes(queue, "1"), seen, "delivery1.1 crash")
    assert len(events) == 1
    assert events[0] > cloud.clock.now().timestamp()


def test_an_ordered_queue_keeps_its_order(cloud: Cloud, queue: Queue, seen: Seen) -> None:
    client = QStash(queue.token, base_url=queue.url)
    queue.destinations.call(HOOK, lambda request: seen.values.append(request.body.decode()))

    def run() -> None:
        for body in ("1", "2"):
            client.message.enqueue(queue="orders", url=HOOK, body=body)

    def check() -> None:
        firsts = list(dict.fromkeys(seen.values))
        assert firsts == sorted(firsts)

    result = cloud.explore(run, check, setup=seen.values.clear, budget=60)
    assert result.singles == result.all_singles


# -- consumers -------------------------------------------------------------------------------------


@pytest.fixture
def orders(cloud: Cloud) -> Broker:
    return cloud.broker(topics={"orders": 2})


def polls(broker: Broker, seen: Seen, instance: str = "one") -> Callable[[], bool]:
    """Return a function that consumes once, and returns whether there were records."""
    headers = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
    auth = (broker.username, broker.password)

    def poll() -> bool:
        place = f"{broker.url}/consume/readers/{instance}/orders"
        records = requests.get(place, headers=headers, auth=auth, timeout=5).json()
        seen.values += [record["value"] for record in records]
        return bool(records)

    return poll


def consumes(broker: Broker, seen: Seen, instance: str = "one") -> Callable[[], None]:
    poll, auth = polls(broker, seen, instance), (broker.username, broker.password)

    def consume() -> None:
        while poll():
            place = f"{broker.url}/commit/readers/{instance}"
            requests.post(place, auth=auth, timeout=5).raise_for_status()

    return consume


def test_a_consumer_that_crashes_starts_again_where_it_had_committed(
    cloud: Cloud, orders: Broker, seen: Seen
) -> None:
    orders.produce("orders", "1", partition=0)
    consume = consumes(orders, seen)
    assert played(cloud, (), seen, "", workers=consume) == ["1"]
    assert played(cloud, (), seen, "consume.2 crash", workers=consume) == ["1", "1"]
    assert played(cloud, (), seen, "consume.3 crash", workers=consume) == ["1"]
    assert played(cloud, (), seen, "consume.2 rebalance", workers=consume) == ["1", "1"]
    assert played(cloud, (), seen, "consume.3 redeliver", workers=consume) == ["1", "1"]


def test_two_consumers_of_a_group_handle_every_record(
    cloud: Cloud, orders: Broker, seen: Seen
) -> None:
    for number in range(4):
        orders.produce("orders", str(number), partition=number % 2)
    workers = {"first": consumes(orders, seen, "one"), "second": consumes(orders, seen, "two")}

    def check() -> None:
        assert set(seen.values) == {"0", "1", "2", "3"}

    result = cloud.explore((), check, workers=workers, setup=seen.values.clear, budget=110)
    assert result.singles == result.all_singles


def test_a_record_that_is_never_committed_restarts_its_consumer_three_times(
    cloud: Cloud, orders: Broker, seen: Seen
) -> None:
    orders.produce("orders", "1", partition=0)
    assert played(cloud, (), seen, "", workers=polls(orders, seen)) == ["1"] * 4


def test_each_worker_of_one_function_starts_again(cloud: Cloud, kv: KVServer) -> None:
    queue, redis = cloud.queue(), Redis(kv.url, kv.token)

    def handle(request: DeliveredRequest) -> None:
        redis.incr("handled")

    def work() -> None:
        if redis.incr("starts") <= 2:
            queue.publish("https://app.example.com", delay=60)

    def check() -> None:
        assert redis.get("starts") == "4"

    queue.destinations.call("https://app.example.com", handle)

    cloud.explore((), check, workers=[work, work], schedule="")


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_repeated_hold_lasts_for_its_whole_span(cloud: Cloud, has_ended: bool) -> None:
    """The timer of the first hold does not end the second one, whether the first has ended or not."""
    index = cloud.vector_index(dimension=2)

    def pending_after(seconds: int) -> list[str]:
        cloud.clock.advance(seconds)
        return [str(record["id"]) for record in index.pending()]

    with explored(cloud, (), Options()) as world:
        held = LastingEvents(world.fakes.clock, [index])
        held.hold(index)
        index.client().upsert([("a", [1.0, 0.0])])
        assert pending_after(40) == ["a"]
        if has_ended:
            held.end()
            assert pending_after(0) == []
        held.hold(index)
        index.client().upsert([("a", [0.0, 1.0])])
        assert pending_after(40) == ["a"]
        assert pending_after(20) == []


def test_signing_keys_that_the_application_rotates_are_kept(cloud: Cloud) -> None:
    queue = cloud.queue()
    with explored(cloud, (), Options()) as world:
        rotated = LastingEvents(world.fakes.clock, [queue])
        rotated.rotate(queue)
        with rotated.old_tokens():
            keys = queue.rotate_keys()
        cloud.clock.advance(10)
        assert (queue.current_signing_key, queue.next_signing_key) == keys


def test_tokens_of_every_service_return_after_their_rotation(cloud: Cloud) -> None:
    fakes: list[Fake] = [cloud.kv_server(), cloud.vector_index(), cloud.broker(), cloud.queue()]
    before = [dict(fake.env) for fake in fakes]
    read_only = [getattr(fake, "read_only_token", None) for fake in fakes]
    with explored(cloud, (), Options()) as world:
        rotated = LastingEvents(world.fakes.clock, fakes)
        for fake in fakes * 2:
            rotated.rotate(fake)
        after = [dict(fake.env) for fake in fakes]
        assert all(old != new for old, new in zip(before, after, strict=True))
        with rotated.old_tokens():
            assert [dict(fake.env) for fake in fakes] == before
        assert [dict(fake.env) for fake in fakes] == after
        cloud.clock.advance(10)
        assert [dict(fake.env) for fake in fakes] == before
        assert [getattr(fake, "read_only_token", None) for fake in fakes] == read_only
        for fake in fakes:
            rotated.rotate(fake)
        rotated.reset()
        assert [dict(fake.env) for fake in fakes] == before


@pytest.fixture
def shards(cloud: Cloud) -> KVServer:
    return cloud.kv_server(name="shards", dialect="redis", cluster=3)


def test_nodes_of_a_cluster(cloud: Cloud, shards: KVServer, seen: Seen) -> None:
    url = shards.database_url

    def run() -> None:
        # Each trial opens a connection to the first node, which has the slot.
        with redis.Redis.from_url(url, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)) as b:
            for _ in range(2):
                try:
                    seen.values.append(b.incr("b"))
                except redis.RedisError as error:
                    seen.values.append(str(error).partition(" ")[0])

    assert played(cloud, run, seen, "") == [1, 2]
    # redis-py cuts off the code of an error.
    assert played(cloud, run, seen, "run.1 moved") == ["3300", "3300"]
    assert played(cloud, run, seen, "run.2 ask") == [1, "3300"]
    assert played(cloud, run, seen, "run.1 cluster_down")[1:] == [1]
    lost, redirected = played(cloud, run, seen, "run.1 failover")
    assert isinstance(lost, str)
    assert redirected == "3300"
    assert shards.contents() == {}
    assert played(cloud, run, seen, "") == [1, 2]


def test_a_cluster_client_survives_every_failure(cloud: Cloud, shards: KVServer) -> None:
    def run() -> None:
        with redis.RedisCluster.from_url(shards.database_url) as client:
            client.set("b", 1)

    def check() -> None:
        assert shards.contents() == {"b": "1"}

    kinds = ("failover", "moved", "ask", "cluster_down")
    failures = cloud.every_failure(run, check, faults=kinds)
    assert [failure.fault for failure in failures] == list(kinds)
    assert all(failure.held and failure.exception is None for failure in failures)


def test_a_client_without_a_cluster_does_not_survive(cloud: Cloud, shards: KVServer) -> None:
    def run() -> None:
        with redis.Redis.from_url(shards.database_url) as client:
            client.set("b", 1)

    failure = cloud.every_failure(run, faults="moved").only()
    assert isinstance(failure.exception, redis.exceptions.MovedError)
    with pytest.raises(ContractError, match="no command with keys"):
        cloud.every_failure(
            lambda: redis.Redis.from_url(shards.database_url).dbsize(), faults="ask"
        )
