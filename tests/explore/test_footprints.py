"""Footprints of every service: the reduction reaches the outcomes of brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
import redis as redis_py
from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore.values.footprint import touches_of_request
from pytest_fakecloud.http.messages import Request
from pytest_fakecloud.kv.touches import touches_of_command
from pytest_fakecloud.queue.touches import touches_of_delivery
from pytest_fakecloud.vector.fake import hold

from ..budget import cases
from .test_dpor import Clients, compared, random_clients

HOOK = "https://app.example.com/hook"


def scans(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    return {"a": lambda: (redis.set("x", 1), redis.set("y", 1)), "b": lambda: redis.scan(0)}


def keys_of_a_script(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    script = "return redis.call('INCR', redis.call('GET', 'name') or 'n')"
    return {"a": lambda: (redis.set("name", "m"), redis.get("m")), "b": lambda: redis.eval(script)}


def transactions(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    return {
        "a": lambda: redis.multi().incr("x").incr("y").exec(),  # type: ignore[attr-defined]
        "b": lambda: (redis.get("y"), redis.get("x")),
    }


def sorting_by_keys(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    kv.load({"l": ["1", "2"], "w_1": "9"})
    return {
        "a": lambda: redis.execute(["SORT", "l", "BY", "w_*"]),
        "b": lambda: redis.set("w_2", "0"),
        "c": lambda: redis.get("other"),
    }


def searches(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    kv.execute(
        *["SEARCH.CREATE", "i", "ON", "JSON", "PREFIX", "1", "p:", "SCHEMA", "n", "U64", "FAST"]
    )
    return {
        "a": lambda: redis.execute(["SEARCH.COUNT", "i", "{}"]),
        "b": lambda: redis.execute(["JSON.SET", "p:1", "$", '{"n":1}']),
        "c": lambda: redis.get("other"),
    }


def subscriptions(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    port = redis_py.Redis.from_url(kv.database_url, decode_responses=True)

    def listens() -> object:
        with port.pubsub(ignore_subscribe_messages=True) as listener:
            listener.subscribe("news")
            for _ in range(2):
                message = listener.get_message(timeout=5)
            return message and message["data"]

    return {"a": listens, "b": lambda: port.publish("news", "hello")}


def watching(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    port = redis_py.Redis.from_url(kv.database_url, decode_responses=True)

    def adds() -> object:
        with port.pipeline() as pipeline:
            pipeline.watch("n")
            value = int(pipeline.get("n") or 0)
            pipeline.multi()
            pipeline.set("n", value + 1)
            try:
                return pipeline.execute()
            except redis_py.WatchError:
                return "changed"

    return {"a": adds, "b": lambda: port.set("n", 5)}


def blocking_pops(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    port = redis_py.Redis.from_url(kv.database_url, decode_responses=True)
    return {
        "a": lambda: port.blpop("queue", timeout=5),
        "b": lambda: port.rpush("queue", "x"),
        "c": lambda: port.llen("queue"),
    }


def _broker(cloud: Cloud, topics: int) -> Callable[[str], str]:
    broker = cloud.broker()
    for number in range(topics):
        broker.create_topic(f"t{number}", partitions=1)
    client = httpx.Client(base_url=broker.url, auth=(broker.username, broker.password))
    return lambda path: client.get(path).text


def joining_a_group(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    get = _broker(cloud, 1)
    return {
        "a": lambda: get("/produce/t0/x"),
        "b": lambda: get("/consume/g/one/t0"),
        "c": lambda: get("/consume/g/two/t0"),
    }


def commits(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    get = _broker(cloud, 1)
    get("/produce/t0/x")
    return {
        "a": lambda: (get("/consume/g/one/t0"), get("/commit/g/one")),
        "b": lambda: get("/delete-consumer/g/one"),
    }


def _publisher(cloud: Cloud, redis: Redis) -> QStash:
    queue = cloud.queue()
    queue.destinations.call(HOOK, lambda request: redis.rpush("log", request.body.decode()) and 200)
    return QStash(queue.token, base_url=queue.url)


def deduplication(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    client = _publisher(cloud, redis)

    def publish(body: str) -> Callable[[], object]:
        def run() -> object:
            sent: Any = client.message.publish(
                url=HOOK, body=body, retries=0, deduplication_id="one"
            )
            return sent.deduplicated

        return run

    return {"a": publish("1"), "b": publish("2")}


def _enqueue(client: QStash) -> None:
    client.message.enqueue(queue="q", url=HOOK, body="1", retries=0)


def ordered_queues(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    enqueue = partial(_enqueue, _publisher(cloud, redis))
    return {"a": enqueue, "b": enqueue}


def pausing_a_queue(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    client = _publisher(cloud, redis)
    return {"a": partial(_enqueue, client), "b": lambda: client.queue.pause("q")}


def callbacks(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    client = _publisher(cloud, redis)

    def publish() -> None:
        client.message.publish(url=HOOK, body="1", callback=f"{HOOK}/done", retries=0)

    return {"a": publish, "b": lambda: redis.llen("log")}


def namespaces(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    index = cloud.vector_index(dimension=2).client()
    return {
        "a": lambda: (index.upsert([("v", [1.0, 0.0])], namespace="x"), index.reset(all=True)),
        "b": lambda: index.fetch(["v"], namespace="x")[0] is None,
        "c": lambda: index.list_namespaces(),
    }


def pending_vectors(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    held = cloud.vector_index(dimension=2)
    hold(held)
    index = held.client()
    return {
        "a": lambda: index.upsert([("v", [1.0, 0.0])]),
        "b": lambda: (len(index.query([1.0, 0.0], top_k=1)), index.info().pending_vector_count),
    }


def locks_that_end(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    def client(name: str, milliseconds: int) -> Callable[[], object]:
        return lambda: (redis.set("lock", name, nx=True, px=milliseconds), redis.get("lock"))

    return {"a": client("a", 500), "b": client("b", 700)}


def ends_that_are_taken_away(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    return {
        "a": lambda: (redis.set("k", "v", ex=5), redis.persist("k")),
        "b": lambda: redis.exists("k"),
    }


def fields_that_end(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    kv.load({"h": {"f": "1"}})
    return {
        "a": lambda: redis.execute(["HEXPIRE", "h", "5", "FIELDS", "1", "f"]),
        "b": lambda: redis.hget("h", "f"),
        "c": lambda: redis.get("other"),
    }


def watched_keys_that_end(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    kv.load({"n": "1"})
    redis.expire("n", 10)
    return {"a": watching(cloud, kv, redis)["a"], "b": lambda: redis.incr("other")}


def delayed_messages_that_are_cancelled(cloud: Cloud, kv: KVServer, redis: Redis) -> Clients:
    client = _publisher(cloud, redis)

    def cancels() -> object:
        sent: Any = client.message.publish(url=HOOK, body="1", retries=0, delay="10s")
        try:
            client.message.cancel(sent.message_id)
            return "cancelled"
        except Exception as error:
            return type(error).__name__

    return {"a": cancels}


@pytest.mark.parametrize(
    "make",
    [
        scans, keys_of_a_script, transactions, sorting_by_keys, searches, subscriptions, watching,
        blocking_pops, joining_a_group, commits, deduplication, pausing_a_queue, callbacks,
        namespaces, pending_vectors, ordered_queues,
    ],
)  # fmt: skip
def test_orders_of_calls_reach_what_brute_force_reaches(
    cloud: Cloud, kv: KVServer, redis: Redis, make: Callable[..., Clients]
) -> None:
    few, many = compared(cloud, kv, make(cloud, kv, redis))
    assert 1 < few < many


@pytest.mark.parametrize(
    "make",
    [
        locks_that_end, ends_that_are_taken_away, fields_that_end, watched_keys_that_end,
        delayed_messages_that_are_cancelled,
    ],
)  # fmt: skip
def test_orders_of_calls_and_timers_reach_what_brute_force_reaches(
    cloud: Cloud, kv: KVServer, redis: Redis, make: Callable[..., Clients]
) -> None:
    few, many = compared(cloud, kv, make(cloud, kv, redis), moves_clock=True)
    assert 1 < few <= many


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("SORT_RO l BY w_*", {("key of db0", "l", False), ("key of db0", "*", False)}),
        (
            "SEARCH.QUERY i {}",
            {("key of db0", "i", False), ("key of db0", "*", False), ("clock", "*", False)},
        ),
        (
            "SEARCH.WAITINDEXING i",
            {("key of db0", "i", True), ("key of db0", "*", False), ("clock", "*", False)},
        ),
        ("EVAL_RO script 0", set()),
        ("PUBLISH news hello", {("channel", "news", True)}),
        ("PSUBSCRIBE news* a?", {("channel", "*", True)}),
        ("DBSIZE", {("key of db0", "*", False)}),
        ("CONFIG GET maxmemory", {("setting", "*", False)}),
        ("CONFIG SET maxmemory 1", {("setting", "*", True)}),
    ],
)
def test_a_command_without_known_keys_touches_all_that_it_may_use(
    kv: KVServer, line: str, expected: set[tuple[str, str, bool]]
) -> None:
    engine: Any = kv._engine
    argv = line.encode().split()
    touches = touches_of_command("kv", 0, 1, engine.table.resolve(argv), argv)
    assert {(touch.kind, touch.name, touch.writes) for touch in touches} == expected


def test_a_resumable_query_changes_its_cursor(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    request = Request("POST", "/resumable-query", (), b"")
    request.route = "resumable-query"
    touches = touches_of_request(index, request)
    assert ("cursor", "*", True) in {(touch.kind, touch.name, touch.writes) for touch in touches}


def test_deliveries_of_a_flow_control_key_wait_for_each_other(cloud: Cloud) -> None:
    queue = cloud.queue()
    client = QStash(queue.token, base_url=queue.url)
    client.message.publish(url=HOOK, flow_control={"key": "slow", "parallelism": 1})
    [message] = queue._engine.data.messages.values()
    touches = touches_of_delivery("queue", "m1", message)
    assert ("flow-control key", "slow", True) in {(t.kind, t.name, t.writes) for t in touches}


# -- random clients of every service ----------------------------------------------------------------

Calls = Callable[[str, str], list[Callable[[], object]]]


def calls_of_a_broker(cloud: Cloud, redis: Redis) -> Calls:
    """Return calls of a consumer group with one member for each of two topics, ``x`` and ``y``."""
    broker = cloud.broker()
    for topic in "xy":
        broker.create_topic(topic, partitions=1)
    client = httpx.Client(base_url=broker.url, auth=(broker.username, broker.password))

    def get(path: str) -> Callable[[], object]:
        return lambda: client.get(path).text

    return lambda topic, other: [
        get(f"/produce/{topic}/v"),
        get(f"/consume/g/{topic}/{topic}"),
        get(f"/consume/g/{other}/{topic}"),
        get(f"/commit/g/{topic}"),
        get(f"/fetch/{topic}/0/0"),
        get(f"/delete-consumer/g/{other}"),
        get("/topics"),
    ]


def calls_of_a_queue(cloud: Cloud, redis: Redis) -> Calls:
    """Return calls that publish to a handler with an effect on a key, and change what it receives."""
    client = _publisher(cloud, redis)

    def published(**settings: Any) -> Callable[[], object]:
        def publish() -> object:
            sent: Any = client.message.publish(url=HOOK, body="1", retries=0, **settings)
            return sent.deduplicated

        return publish

    return lambda name, other: [
        published(),
        published(deduplication_id=name),
        published(flow_control={"key": name, "parallelism": 1}),
        partial(_enqueue, client),
        lambda: client.queue.pause("q"),
        lambda: len(client.dlq.list().messages),
        lambda: redis.llen("log"),
    ]


def calls_of_an_index(cloud: Cloud, redis: Redis) -> Calls:
    """Return calls on two namespaces."""
    index = cloud.vector_index(dimension=2).client()
    return lambda space, other: [
        lambda: index.upsert([("v", [1.0, 0.0])], namespace=space),
        lambda: index.fetch(["v"], namespace=space)[0] is None,
        lambda: len(index.query([1.0, 0.0], top_k=1, namespace=other)),
        lambda: index.delete("v", namespace=space),
        lambda: index.reset(all=True),
        lambda: index.list_namespaces(),
        lambda: index.info().vector_count,
    ]


def calls_with_delays(cloud: Cloud, redis: Redis) -> Calls:
    """Return calls that publish delayed messages, and calls that meet their deliveries."""
    client = _publisher(cloud, redis)

    def later(delay: str) -> object:
        sent: Any = client.message.publish(url=HOOK, body="1", retries=0, delay=delay)
        return sent.deduplicated

    return lambda name, other: [
        lambda: later("10s"),
        lambda: redis.llen("log"),
        lambda: redis.set(name, "1", ex=5),
        lambda: redis.get(other),
        lambda: len(client.dlq.list().messages),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [calls_of_a_broker, calls_of_a_queue, calls_of_an_index])
@pytest.mark.parametrize("seed", range(cases(4)))
def test_random_clients_of_every_service_reach_what_brute_force_reaches(
    cloud: Cloud, kv: KVServer, redis: Redis, calls: Callable[..., Calls], seed: int
) -> None:
    chance = random.Random(seed)
    # Each message adds a delivery, and each of these a call.
    count, most = (2, 1) if calls is calls_of_a_queue else chance.choice([(2, 2), (3, 1)])
    compared(cloud, kv, random_clients(chance, calls(cloud, redis), "xy", count, most))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(4)))
def test_random_clients_of_a_queue_with_timers_reach_what_brute_force_reaches(
    cloud: Cloud, kv: KVServer, redis: Redis, seed: int
) -> None:
    clients = random_clients(random.Random(seed), calls_with_delays(cloud, redis), "xy", 2, 2)
    compared(cloud, kv, clients, moves_clock=True)
