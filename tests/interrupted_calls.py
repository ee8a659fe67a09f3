"""A call of each public method that does something, for the tests of interruptions.

``CALLS`` has the calls by class, then by method. A text behind the method's name distinguishes several
calls of a method. An entry prepares what it needs, and returns the call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from pytest_fakecloud import Cloud, Fake, PublishedMessage, Response, VectorIndex
from pytest_fakecloud.cloud.base import fixture_fake

SHOP = "https://shop.example.com"
LATE = "https://late.example.com"
BROKEN = "https://broken.example.com"
SPARSE = {"indices": [1, 2], "values": [0.5, 1.5]}
DOCUMENT = json.dumps({"title": "a book", "price": 7})


class World:
    """A cloud with a frozen clock and a fake of each service, and a cloud whose clock runs."""

    def __init__(self, cloud: Cloud, running: Cloud, folder: Path) -> None:
        self.cloud, self.running, self.folder = cloud, running, folder
        self.broker = cloud.broker(topics={"orders": 2})
        self.kv = cloud.kv_server()
        self.stock = cloud.kv_server(name="stock", dialect="redis", version="8.8")
        self.queue = cloud.queue(delivery="driven")
        self.index = cloud.vector_index(dimension=2)
        self.hybrid = cloud.vector_index(name="hybrid", dimension=2, kind="hybrid")
        self.capture = cloud.callback_capture()
        self.destination = cloud.destination()
        self.fakes = list(cloud.fakes())
        # An interception that is interrupted before the ``with`` stays until its fake closes.
        self.numbers = count()
        self._fill()
        self.start = cloud.snapshot()

    def _fill(self) -> None:
        kv, queue = self.kv, self.queue
        kv.load({"text": "v", "n": "7", "cart": {"a": "1"}, "list": ["a"], "set": {"a", "b"}})
        kv.execute("ZADD", "scores", "1", "a")
        kv.execute("XADD", "stream", "1-1", "a", "1")
        kv.execute("ARINSERT", "array", "a")
        kv.execute("JSON.SET", "book:1", "$", DOCUMENT)
        kv.execute(
            *("SEARCH.CREATE", "books", "ON", "JSON", "PREFIX", "1", "book:", "SCHEMA"),
            *("title", "TEXT", "price", "F64", "FAST"),
        )
        kv.execute("SEARCH.QUERY", "books", "{}")
        self.stock.execute("VADD", "vectors", "VALUES", "2", "1", "0", "a", "SETATTR", "{}")
        self.broker.produce("orders", "first", key="k", partition=0)
        self.broker.join("workers", "a", ["orders"])
        self.broker.commit("workers", "orders", 0, 1)
        self.stub()
        queue.publish(SHOP, callback=self.capture.callback_url)
        queue.publish(BROKEN, retries=0, failure_callback=self.capture.failure_url)
        queue.run_until_idle()
        queue.publish(LATE, delay="1h")
        queue.schedule(SHOP, "0 0 1 1 *", id="yearly")
        self.index.load([{"id": "1", "vector": [1.0, 2.0], "metadata": {"price": 7}}])
        self.hybrid.load([{"id": "1", "vector": [1.0, 2.0], "sparseVector": SPARSE}])

    def stub(self) -> None:
        self.queue.destinations.clear()
        self.queue.destinations.respond(SHOP, 200)
        self.queue.destinations.respond(LATE, 200)
        self.queue.destinations.respond(BROKEN, 500)

    def reset(self) -> None:
        for fake in self.cloud.fakes():
            if fake not in self.fakes:
                fake.close()
        for fake in self.fakes:
            fake.faults.clear()
        self.cloud.restore(self.start)
        self.cloud.journal.clear()
        self.stub()
        self.running.clock.resume()

    def sparse_of(self, index: VectorIndex) -> dict[str, object]:
        return {"sparseVector": SPARSE} if index is self.hybrid else {}

    def request(self) -> None:
        httpx.get(f"{self.kv.url}/get/text", headers=self.kv.headers)

    def soon(self) -> datetime:
        return self.cloud.clock.now() + timedelta(minutes=10)

    def pending(self) -> PublishedMessage:
        return self.queue.pending().only()


RECORDING: Mapping[str, Any] = {
    "log": {
        "entries": [
            {
                "startedDateTime": "2026-01-01T00:00:00Z",
                "request": {
                    "method": "POST",
                    "url": "https://kv.example/",
                    "headers": [],
                    "postData": {"mimeType": "application/json", "text": '["PING"]'},
                },
                "response": {"status": 200, "content": {"size": 17, "text": '{"result":"PONG"}'}},
            }
        ]
    }
}

Entry = Callable[[World], Callable[[], object]]


def entered(context: Callable[[], AbstractContextManager[object]]) -> Callable[[], object]:
    """Return a call that enters and leaves a context manager."""

    def call() -> None:
        with context():
            pass

    return call


def awaited(function: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], object]:
    """Return a call that runs a coroutine in an event loop."""
    return lambda: asyncio.run(function())


def closed(make: Callable[[], Any]) -> Callable[[], object]:
    """Return a call that makes an object and closes it."""

    def call() -> None:
        make().close()

    return call


def move(world: World) -> Callable[[], object]:
    world.queue.publish(SHOP, body="x", delay="5s")
    return partial(world.cloud.clock.advance, 10)


def expire(world: World) -> Callable[[], object]:
    world.kv.execute("SET", "short", "v", "EX", "3")

    def call() -> None:
        world.cloud.clock.advance(10)
        assert world.kv.execute("GET", "short") is None

    return call


def load_during_hold(world: World) -> Callable[[], object]:
    def call() -> None:
        with world.index.holding():
            world.index.load([{"id": "3", "vector": [1.0, 2.0]}])

    return call


def between(world: World) -> Callable[[], object]:
    client = world.kv.client()

    def call() -> None:
        with world.kv.between(("GET", "SET"), run=["SET", "text", "w"]):
            client.get("text")
            client.set("text", "x")

    return call


def autojump(world: World) -> Callable[[], object]:
    import time

    def call() -> None:
        with world.running.autojump():
            time.sleep(1)

    return call


def jump_in_event_loop(world: World) -> Callable[[], object]:
    def call() -> None:
        with world.running.autojump():
            asyncio.run(asyncio.sleep(1))

    return call


EXPLORED: Any = {"kinds": ("drop",), "budget": 1, "trust": False}


def explored(world: World) -> Callable[[], object]:
    return partial(world.cloud.explore, world.request, lambda: None, **EXPLORED)


def opened(**settings: Any) -> Callable[[], object]:
    """Return a call that opens and closes a cloud."""

    def call() -> None:
        with Cloud(**settings) as cloud:
            cloud.kv_server()
            cloud.clock.advance(1)

    return call


def fake_calls(name: str, data: object) -> dict[str, Entry]:
    """Return calls of the methods that all fakes have, for the fake with this name in ``World``."""

    def call(method: str, *arguments: object) -> Entry:
        return lambda world: partial(getattr(getattr(world, name), method), *arguments)

    def asserted(world: World) -> Callable[[], object]:
        fake: Fake = getattr(world, name)
        httpx.get(f"{fake.url}/nothing", headers=fake.headers)
        return fake.assert_called

    return {
        "assert_called": asserted,
        "assert_not_called": call("assert_not_called", "/nothing"),
        "close": lambda world: closed(partial(fixture_fake, world.cloud, FIXTURES[name])),
        "intercept": lambda world: entered(
            partial(getattr(world, name).intercept, f"https://{next(world.numbers)}.example.com")
        ),
        "load": call("load", data),
        "on_close": call("on_close", int),
        "reset": call("reset"),
        "restore": lambda world: partial(
            getattr(world, name).restore, getattr(world, name).snapshot()
        ),
        "rotate_token": call("rotate_token"),
        "set_baseline": call("set_baseline"),
        "snapshot": call("snapshot"),
    }


def without_data(name: str) -> dict[str, Entry]:
    calls = fake_calls(name, None)
    del calls["load"]
    return calls


LOADED: Mapping[str, Any] = {
    "broker": {"orders": ["a", "b"], "new": ["c"]},
    "queue": {
        "url_groups": {"shops": [SHOP]},
        "queues": {"lane": {"parallelism": 2}},
        "schedules": [{"url": SHOP, "cron": "0 0 1 1 *", "id": "loaded"}],
        "messages": [{"url": SHOP}, {"url": LATE, "delay": "1h"}],
    },
    "index": [
        {"id": "1", "vector": [3.0, 4.0]},
        {"id": "3", "vector": [1.0, 2.0]},
        {"id": "4", "vector": [1.0, 2.0], "namespace": "new"},
    ],
}
"""Data for ``load()``, by the name of the fake in ``World``."""
FIXTURES = {
    "broker": "broker",
    "kv": "kv_server",
    "queue": "queue",
    "index": "vector_index",
    "capture": "callback_capture",
    "destination": "destination",
}


def fault_calls(name: str) -> dict[str, Entry]:
    """Return calls of the methods that the faults of all fakes have."""

    def call(method: str, *arguments: object) -> Entry:
        return lambda world: partial(getattr(getattr(world, name).faults, method), *arguments)

    def in_use(method: str, *arguments: object) -> Entry:
        def prepare(world: World) -> Callable[[], object]:
            faults = getattr(world, name).faults
            faults.drop()
            faults.down()
            return partial(getattr(faults, method), *arguments)

        return prepare

    return {
        "call": call("call", int),
        "clear": in_use("clear"),
        "delay": call("delay", 1),
        "down": call("down"),
        "down without an address": call("down", 503),
        "drop": call("drop"),
        "hang": call("hang"),
        "lose_response": call("lose_response"),
        "random": call("random", 0.5),
        "rate_limit": call("rate_limit", 3),
        "respond": call("respond", 500),
        "sequence": call("sequence", [503, 200]),
        "truncate": call("truncate", 3),
        "unused": in_use("unused"),
        "up": in_use("up"),
    }


def kv(*command: str) -> Entry:
    return lambda world: partial(world.kv.execute, *command)


def stock(*command: str) -> Entry:
    return lambda world: partial(world.stock.execute, *command)


def queue_fault(method: str, *arguments: object) -> Entry:
    return lambda world: partial(getattr(world.queue.faults, method), *arguments)


def delivered(**options: Any) -> Entry:
    def prepare(world: World) -> Callable[[], object]:
        world.queue.publish(SHOP, json={"order": [7]}, **options)
        return world.queue.run_until_idle

    return prepare


CALLS: dict[str, dict[str, Entry]] = {
    "Between": {"remove": lambda world: world.kv.between(1, run=int).remove},
    "Broker": {
        **fake_calls("broker", LOADED["broker"]),
        "assert_caught_up": lambda world: caught_up(world),
        "assert_committed": lambda world: partial(world.broker.assert_committed, "workers"),
        "assert_not_committed": lambda world: partial(
            world.broker.assert_not_committed, "workers", offset=9
        ),
        "assert_not_produced": lambda world: partial(
            world.broker.assert_not_produced, "orders", "none"
        ),
        "assert_produced": lambda world: produced(world),
        "client": lambda world: closed(world.broker.client),
        "commit": lambda world: partial(world.broker.commit, "workers", "orders", 0, 0),
        "create_topic": lambda world: partial(world.broker.create_topic, "new", 2, retention="1h"),
        "group": lambda world: partial(world.broker.group, "workers"),
        "groups": lambda world: world.broker.groups,
        "join": lambda world: partial(world.broker.join, "workers", "b", ["orders"]),
        "produce": lambda world: partial(world.broker.produce, "orders", "v", key="k"),
        "records": lambda world: partial(world.broker.records, "orders"),
        "topic": lambda world: partial(world.broker.topic, "orders"),
        "topics": lambda world: world.broker.topics,
        "wait_for_record": lambda world: partial(world.broker.wait_for_record, "orders"),
    },
    "BrokerFaults": {
        **fault_calls("broker"),
        "crash": lambda world: partial(world.broker.faults.crash, "workers", "a"),
        "partial_produce": lambda world: partial(world.broker.faults.partial_produce, 1),
        "redeliver": lambda world: partial(world.broker.faults.redeliver, "workers"),
        "reorder": lambda world: world.broker.faults.reorder,
    },
    "CallbackCapture": {
        **without_data("capture"),
        "assert_callback": lambda world: world.capture.assert_callback,
        "assert_failure": lambda world: world.capture.assert_failure,
        "assert_no_callback": lambda world: partial(world.capture.assert_no_callback, status=418),
        "assert_no_failure": lambda world: partial(world.capture.assert_no_failure, status=418),
        "callbacks": lambda world: world.capture.callbacks,
        "failures": lambda world: world.capture.failures,
        "wait_for_callback": lambda world: world.capture.wait_for_callback,
        "wait_for_failure": lambda world: world.capture.wait_for_failure,
    },
    "Clock": {
        "advance": move,
        "advance of a running clock": lambda world: partial(world.running.clock.advance, 1),
        "advance beyond an expiry": expire,
        "advance_to_next": lambda world: world.cloud.clock.advance_to_next,
        "freeze": lambda world: world.running.clock.freeze,
        "move_to": lambda world: partial(world.cloud.clock.move_to, world.soon()),
        "next_due": lambda world: world.cloud.clock.next_due,
        "now": lambda world: world.cloud.clock.now,
        "now_ms": lambda world: world.cloud.clock.now_ms,
        "now_us": lambda world: world.cloud.clock.now_us,
        "resume": lambda world: world.running.clock.resume,
    },
    "AioClock": {
        "advance": lambda world: awaited(partial(world.cloud.clock.aio.advance, 10)),
        "advance_to_next": lambda world: awaited(world.cloud.clock.aio.advance_to_next),
        "move_to": lambda world: awaited(partial(world.cloud.clock.aio.move_to, world.soon())),
    },
    "Cloud": {
        "allow": lambda world: partial(world.cloud.allow, "unused_fault"),
        "autojump": autojump,
        "autojump in an event loop": jump_in_event_loop,
        "close": lambda world: opened(clock="frozen"),
        "close with process_time": lambda world: opened(process_time=True),
        "close with autojump": lambda world: opened(process_time="autojump"),
        **{
            fixture: lambda world, fixture=fixture: closed(
                partial(fixture_fake, world.cloud, fixture)
            )
            for fixture in FIXTURES.values()
        },
        "every_failure": lambda world: partial(
            world.cloud.every_failure, world.request, faults="drop"
        ),
        "explore": explored,
        "fakes": lambda world: world.cloud.fakes,
        "violations": lambda world: world.cloud.violations,
        "replay": lambda world: partial(world.cloud.replay, RECORDING, into=world.kv),
        "reset": lambda world: world.cloud.reset,
        "restore": lambda world: partial(world.cloud.restore, world.start),
        "snapshot": lambda world: world.cloud.snapshot,
    },
    "AioBroker": {
        "client": lambda world: world.broker.aio.client,
        "wait_for_record": lambda world: awaited(
            partial(world.broker.aio.wait_for_record, "orders")
        ),
    },
    "AioCloud": {
        "explore": lambda world: awaited(
            partial(world.cloud.aio.explore, world.request, lambda: None, **EXPLORED)
        ),
        "replay": lambda world: awaited(partial(world.cloud.aio.replay, RECORDING, into=world.kv)),
        "every_failure": lambda world: awaited(
            partial(world.cloud.aio.every_failure, world.request, faults="drop")
        ),
    },
    "AwaitableCapture": {
        "wait_for_callback": lambda world: awaited(world.capture.aio.wait_for_callback),
        "wait_for_failure": lambda world: awaited(world.capture.aio.wait_for_failure),
    },
    "DeadLetterView": {
        "delete": lambda world: world.queue.dead_letters().only().delete,
        "retry": lambda world: world.queue.dead_letters().only().retry,
    },
    "Destination": without_data("destination"),
    "DestinationRoute": {
        "remove": lambda world: world.queue.destinations.accept("https://new.example.com").remove
    },
    "Destinations": {
        "accept": lambda world: partial(world.queue.destinations.accept, "*"),
        "asgi": lambda world: partial(world.queue.destinations.asgi, SHOP, asgi, lifespan=False),
        "call": lambda world: partial(world.queue.destinations.call, SHOP, int),
        "clear": lambda world: world.queue.destinations.clear,
        "forward": lambda world: partial(
            world.queue.destinations.forward, SHOP, "http://127.0.0.1:9"
        ),
        "hang": lambda world: partial(world.queue.destinations.hang, SHOP),
        "refuse": lambda world: partial(world.queue.destinations.refuse, SHOP),
        "remove": lambda world: partial(
            world.queue.destinations.remove, world.queue.destinations.routes()[0]
        ),
        "respond": lambda world: partial(
            world.queue.destinations.respond, SHOP, Response(500), 200
        ),
        "routes": lambda world: world.queue.destinations.routes,
        "wsgi": lambda world: partial(world.queue.destinations.wsgi, SHOP, int),
    },
    "Fault": {"remove": lambda world: world.kv.faults.drop().remove},
    "FaultPlan": fault_calls("kv"),
    "GroupView": {
        "expire": lambda world: partial(world.broker.group("workers").expire, "a"),
        "leave": lambda world: partial(world.broker.group("workers").leave, "a"),
        "rebalance": lambda world: world.broker.group("workers").rebalance,
    },
    "Journal": {
        "assert_called": lambda world: requested(world),
        "assert_not_called": lambda world: partial(
            world.cloud.journal.assert_not_called, "/nothing"
        ),
        "calls": lambda world: world.cloud.journal.calls,
        "clear": lambda world: world.kv.journal.clear,
        "events": lambda world: world.cloud.journal.events,
    },
    "KVServer": {
        **fake_calls("kv", {"price": "7", "cart": {"a": "1"}}),
        "assert_not_searched": lambda world: partial(world.kv.assert_not_searched, "none"),
        "assert_searched": lambda world: searched(world),
        "between": between,
        "array": lambda world: partial(world.kv.array, "array"),
        "client": lambda world: closed(world.kv.client),
        "contents": lambda world: world.kv.contents,
        "dump_rdb": lambda world: dump(world),
        "elements": lambda world: partial(world.kv.elements, "list"),
        "entries": lambda world: partial(world.kv.entries, "stream"),
        "execute": kv("SET", "text", "w", "EX", "3"),
        "execute DEL": kv("DEL", "text", "cart"),
        "execute RENAME": kv("RENAME", "cart", "basket"),
        "execute COPY": kv("COPY", "cart", "basket"),
        "execute PERSIST": kv("EXPIRE", "text", "3"),
        "execute HSET": kv("HSET", "cart", "b", "2", "c", "3"),
        "execute HPEXPIRE": kv("HPEXPIRE", "cart", "3", "FIELDS", "1", "a"),
        "execute RPUSH": kv("RPUSH", "list", "b", "c"),
        "execute SADD": kv("SADD", "set", "c", "d"),
        "execute SMOVE": kv("SMOVE", "set", "other", "a"),
        "execute ZADD": kv("ZADD", "scores", "1", "b", "2", "c", "3", "a"),
        "execute ZREM": kv("ZREM", "scores", "a"),
        "execute ZPOPMIN": kv("ZPOPMIN", "scores"),
        "execute XADD": kv("XADD", "stream", "MAXLEN", "1", "*", "a", "1"),
        "execute XGROUP": kv("XGROUP", "CREATE", "stream", "g", "0"),
        "execute INCRBYFLOAT": kv("INCRBYFLOAT", "n", "0.5"),
        "execute ARSET": kv("ARSET", "array", "1", "b", "c"),
        "execute ARDELRANGE": kv("ARDELRANGE", "array", "0", "1"),
        "execute ARRING": kv("ARRING", "array", "2", "d"),
        "execute VADD": stock("VADD", "vectors", "VALUES", "2", "0", "1", "b", "SETATTR", "[]"),
        "execute VREM": stock("VREM", "vectors", "a"),
        "execute JSON.SET": kv("JSON.SET", "book:2", "$", DOCUMENT),
        "execute JSON.DEL": kv("JSON.DEL", "book:1"),
        "execute SEARCH.QUERY": kv("SEARCH.QUERY", "books", '{"title": "book"}'),
        "execute FLUSHALL": kv("FLUSHALL"),
        "execute EVAL": kv(
            "EVAL", "pcall(redis.call, 'INCR', 'n') return redis.call('INCR', 'n')", "0"
        ),
        "execute EVAL of a coroutine": kv(
            "EVAL",
            "local run = coroutine.create(function() redis.call('INCR', 'n') end) "
            "return coroutine.resume(run)",
            "0",
        ),
        "execute EVAL of a wrapped coroutine": kv(
            "EVAL", "return pcall(coroutine.wrap(function() redis.call('INCR', 'n') end))", "0"
        ),
        "hash": lambda world: partial(world.kv.hash, "cart"),
        "integer": lambda world: partial(world.kv.integer, "n"),
        "keys": lambda world: world.kv.keys,
        "members": lambda world: partial(world.kv.members, "set"),
        "rotate_password": lambda world: world.kv.rotate_password,
        "scores": lambda world: partial(world.kv.scores, "scores"),
        "search_index": lambda world: partial(world.kv.search_index, "books"),
        "searches": lambda world: world.kv.searches,
        "string": lambda world: partial(world.kv.string, "text"),
        "ttl": lambda world: partial(world.kv.ttl, "text"),
        "value": lambda world: partial(world.kv.value, "cart"),
    },
    "PublishedMessage": {"cancel": lambda world: world.pending().cancel},
    "Queue": {
        **fake_calls("queue", LOADED["queue"]),
        "assert_dead_lettered": lambda world: world.queue.assert_dead_lettered,
        "assert_delivered": lambda world: world.queue.assert_delivered,
        "assert_idle": lambda world: idle(world),
        "assert_not_dead_lettered": lambda world: partial(
            world.queue.assert_not_dead_lettered, SHOP
        ),
        "assert_not_delivered": lambda world: partial(world.queue.assert_not_delivered, LATE),
        "assert_not_published": lambda world: partial(
            world.queue.assert_not_published, "https://none.example.com"
        ),
        "assert_published": lambda world: world.queue.assert_published,
        "attempts": lambda world: world.queue.attempts,
        "client": lambda world: partial(world.queue.client),
        "dead_letters": lambda world: world.queue.dead_letters,
        "deliver_due": lambda world: due(world),
        "explain_signature": lambda world: partial(
            world.queue.explain_signature, "a.b.c", body=b"", url=SHOP
        ),
        "message": lambda world: partial(world.queue.message, world.pending().id),
        "messages": lambda world: world.queue.messages,
        "pending": lambda world: world.queue.pending,
        "publish": lambda world: partial(
            world.queue.publish, SHOP, json={"order": [7]}, deduplication_id="7"
        ),
        "publish to a lane": lambda world: partial(
            world.queue.publish, SHOP, body="x", queue="lane"
        ),
        "publish with flow control": lambda world: partial(
            world.queue.publish, SHOP, body="x", flow_control={"key": "k", "parallelism": 1}
        ),
        "rotate_keys": lambda world: world.queue.rotate_keys,
        "run_until_idle": delivered(),
        "run_until_idle with a delay": delivered(delay="5s"),
        "schedule": lambda world: partial(world.queue.schedule, SHOP, "0 * * * *", id="hourly"),
        "schedules": lambda world: world.queue.schedules,
    },
    "QueueAio": {
        "client": lambda world: world.queue.aio.client,
        "deliver_due": lambda world: awaited(due(world, world.queue.aio.deliver_due)),
        "run_until_idle": lambda world: awaited(due(world, world.queue.aio.run_until_idle)),
    },
    "QueueFaults": {
        **fault_calls("queue"),
        "burst_limit": queue_fault("burst_limit", 3),
        "crash_after_response": queue_fault("crash_after_response"),
        "daily_limit": queue_fault("daily_limit", 3),
        "drop_callback": queue_fault("drop_callback"),
        "duplicate": queue_fault("duplicate"),
        "expired_token": queue_fault("expired_token"),
        "next_key": queue_fault("next_key"),
        "reorder": queue_fault("reorder"),
        "tamper": queue_fault("tamper"),
        "unsigned": queue_fault("unsigned"),
        "wrong_key": queue_fault("wrong_key"),
    },
    "ScheduleView": {
        "delete": lambda world: world.queue.schedules().only().delete,
        "fire": lambda world: world.queue.schedules().only().fire,
        "next_runs": lambda world: partial(world.queue.schedules().only().next_runs, 2),
    },
    "SearchIndexView": {
        "explain": lambda world: partial(world.kv.search_index("books").explain, "book:1", {})
    },
    "TopicView": {
        "add_partitions": lambda world: world.broker.topic("orders").add_partitions,
        "delete": lambda world: world.broker.topic("orders").delete,
        "delete_records": lambda world: partial(
            world.broker.topic("orders").delete_records, before=1
        ),
        "set_retention": lambda world: partial(world.broker.topic("orders").set_retention, "1h"),
    },
    "VectorIndex": {
        **fake_calls("index", LOADED["index"]),
        "assert_not_queried": lambda world: partial(world.index.assert_not_queried, top_k=99),
        "assert_not_upserted": lambda world: partial(world.index.assert_not_upserted, "none"),
        "assert_queried": lambda world: queried(world).assert_queried,
        "assert_upserted": lambda world: queried(world).assert_upserted,
        "client": lambda world: partial(world.index.client),
        "holding": load_during_hold,
        "load of an existing record": lambda world: partial(
            world.index.load, [{"id": "1", "vector": [3.0, 4.0]}]
        ),
        "load of sparse vectors": lambda world: partial(
            world.hybrid.load,
            [
                {
                    "id": str(number),
                    "vector": [3.0, 4.0],
                    "sparseVector": {"indices": [2, 7], "values": [1.0, 0.25]},
                }
                for number in (1, 2)
            ],
        ),
        "matches": lambda world: partial(world.index.matches, "price < 10", {"price": 7}),
        "namespaces": lambda world: world.index.namespaces,
        "pending": lambda world: world.index.pending,
        "vectors": lambda world: world.index.vectors,
    },
}


async def asgi(scope: Any, receive: Any, send: Any) -> None: ...


def dump(world: World) -> Callable[[], object]:
    world.kv.execute("SEARCH.DROP", "books")
    return partial(world.kv.dump_rdb, world.folder / "dump.rdb")


def caught_up(world: World) -> Callable[[], object]:
    for partition in range(2):
        world.broker.commit("workers", "orders", partition, 1 - partition)
    return partial(world.broker.assert_caught_up, "workers")


def requested(world: World) -> Callable[[], object]:
    world.request()
    return world.cloud.journal.assert_called


def produced(world: World) -> Callable[[], object]:
    broker = world.broker
    httpx.post(
        f"{broker.url}/produce/orders", json={"value": "v"}, headers=broker.headers
    ).raise_for_status()
    return partial(broker.assert_produced, "orders")


def searched(world: World) -> Callable[[], object]:
    command = ["SEARCH.QUERY", "books", "{}"]
    httpx.post(world.kv.url, json=command, headers=world.kv.headers).raise_for_status()
    return world.kv.assert_searched


def queried(world: World) -> VectorIndex:
    client = world.index.client()  # Not an older one, because other calls change the token.
    client.upsert([("2", [1.0, 0.0])])
    client.query([1.0, 1.0], top_k=1)
    return world.index


def idle(world: World) -> Callable[[], object]:
    world.pending().cancel()
    return world.queue.assert_idle


def due(world: World, deliver: Callable[[], Any] | None = None) -> Callable[[], Any]:
    world.queue.publish(SHOP, body="x")
    return world.queue.deliver_due if deliver is None else deliver


OBJECTS: dict[str, Callable[[World], object]] = {
    "Broker": lambda world: world.broker,
    "CallbackCapture": lambda world: world.capture,
    "Clock": lambda world: world.cloud.clock,
    "Cloud": lambda world: world.cloud,
    "DeadLetterView": lambda world: world.queue.dead_letters().only(),
    "Destination": lambda world: world.destination,
    "DestinationRoute": lambda world: world.queue.destinations.routes()[0],
    "Fault": lambda world: world.kv.faults.drop(),
    "GroupView": lambda world: world.broker.group("workers"),
    "KVServer": lambda world: world.kv,
    "PublishedMessage": lambda world: world.pending(),
    "Queue": lambda world: world.queue,
    "ScheduleView": lambda world: world.queue.schedules().only(),
    "SearchIndexView": lambda world: world.kv.search_index("books"),
    "TopicView": lambda world: world.broker.topic("orders"),
    "VectorIndex": lambda world: world.index,
}
"""Objects whose public properties are read, too."""


def read_properties(kind: str, world: World) -> Callable[[], object]:
    owner = OBJECTS[kind](world)
    names = [
        name
        for name in dir(type(owner))
        if not name.startswith("_")
        and isinstance(getattr(type(owner), name), property)
        and name != "sentinel_address"  # an error without a sentinel
    ]

    def call() -> None:
        for name in names:
            getattr(owner, name)

    return call


for kind in OBJECTS:
    CALLS[kind]["its properties"] = partial(read_properties, kind)

_VALUE = "a value without a lock"
_IN_EXPLORE = "returns a function that explore() calls"
EXCUSED: Mapping[str, str] = {
    "Attempts": _VALUE,
    "Attempt": _VALUE,
    "Call": _VALUE,
    "Callback": _VALUE,
    "CallbackCapture.load": "always an error",
    "DeadLetterView.json": _VALUE,
    "DeliveredRequest": _VALUE,
    "Destination.load": "always an error",
    "Fake": "an abstract class",
    "Headers": _VALUE,
    "PublishedMessage.json": _VALUE,
    "Record": _VALUE,
    "Response": _VALUE,
    "Results": _VALUE,
    "always": _IN_EXPLORE,
    "at_most_one": _IN_EXPLORE,
    "drawn": _IN_EXPLORE,
    "eventually": _IN_EXPLORE,
    "follows": _IN_EXPLORE,
    "isolated": _IN_EXPLORE,
    "linearizable": _IN_EXPLORE,
    "monotonic_reads": _IN_EXPLORE,
    "never": _IN_EXPLORE,
    "nothing_lost": _IN_EXPLORE,
    "observed": _IN_EXPLORE,
    "once": _IN_EXPLORE,
    "operations": _IN_EXPLORE,
    "replay_schedule": "marks a test",
    "sometimes": _IN_EXPLORE,
    "transactions": _IN_EXPLORE,
}
"""The public classes, functions and methods without a call, with the reason."""
