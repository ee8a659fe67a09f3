"""An exception of a signal's handler arrives, and leaves every fake usable and its data whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud import Broker, Cloud, KVServer, Queue, VectorIndex

from .harness import wait_until
from .interruptions import interrupted

# An interrupted delivery leaves coroutines that nobody awaits.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
SHOP = "https://shop.example.com"
DEADLINE = 15.0  # real seconds


class World:
    """A cloud with a frozen clock and a fake of each service, and a cloud whose clock runs."""

    def __init__(self, cloud: Cloud, running: Cloud) -> None:
        self.cloud, self.running = cloud, running
        self.broker: Broker = cloud.broker(topics={"orders": 2})
        self.kv: KVServer = cloud.kv_server()
        self.queue: Queue = cloud.queue(delivery="driven")
        self.index: VectorIndex = cloud.vector_index(dimension=2)
        self.reset()

    def reset(self) -> None:
        for fake in (self.broker, self.kv, self.queue, self.index):
            fake.reset()
        self.queue.destinations.respond(SHOP, 200)

    def check(self) -> None:
        """Use every part that a call could have left locked or half changed."""
        self.broker.produce("orders", "v")
        for partition in range(2):
            records = [one for one in self.broker.records("orders") if one.partition == partition]
            assert [one.offset for one in records] == list(range(len(records)))
        self.kv.execute("SET", "key", "v")
        assert self.kv.execute("GET", "key") == "v"
        self.queue.publish(SHOP, body="x")
        assert len(self.queue.deliver_due()) >= 1
        self.index.load([{"id": "checked", "vector": [1.0, 1.0]}])
        before_us = self.cloud.clock.now_us()
        self.cloud.clock.advance(1)
        assert self.cloud.clock.now_us() == before_us + 1_000_000
        self.running.clock.advance(1)
        self.running.clock.resume()
        before_us = self.running.clock.now_us()
        wait_until(lambda: self.running.clock.now_us() > before_us)
        self.cloud.restore(self.cloud.snapshot())


@pytest.fixture
def world() -> Iterator[World]:
    with Cloud(clock="frozen") as cloud, Cloud(clock="running") as running:
        yield World(cloud, running)


def deliver(world: World, **options: Any) -> None:
    world.queue.publish(SHOP, json={"order": [7]}, **options)
    world.queue.run_until_idle()


def load_during_hold(world: World) -> None:
    with world.index.holding():
        world.index.load([{"id": "1", "vector": [1.0, 2.0]}])


def move_in_event_loop(world: World) -> None:
    async def move() -> None:
        world.queue.publish(SHOP, body="x", delay="5s")
        await world.cloud.clock.aio.advance(10)
        await world.queue.aio.run_until_idle()

    asyncio.run(move())


def expire(world: World) -> None:
    world.kv.execute("SET", "key", "v", "EX", "3")
    world.cloud.clock.advance(10)
    assert world.kv.execute("GET", "key") is None


CALLS: dict[str, Callable[[World], object]] = {
    "broker.records": lambda world: world.broker.records("orders"),
    "broker.produce": lambda world: world.broker.produce("orders", "v", key="k"),
    "broker.load": lambda world: world.broker.load({"orders": ["a", "b"]}),
    "broker.add_partitions": lambda world: world.broker.topic("orders").add_partitions(1),
    "broker.restore": lambda world: world.broker.restore(world.broker.snapshot()),
    "broker.reset": lambda world: world.broker.reset(),
    "kv.load": lambda world: world.kv.load({"price": "7", "cart": {"a": "1"}}),
    "kv.execute": lambda world: world.kv.execute("ZADD", "key", "1", "a", "2", "b"),
    "kv.execute of a script": lambda world: world.kv.execute(
        "EVAL", "pcall(redis.call, 'INCR', 'n') return redis.call('INCR', 'n')", "0"
    ),
    "kv.execute of an expiry": expire,
    "kv.restore": lambda world: world.kv.restore(world.kv.snapshot()),
    "kv.reset": lambda world: world.kv.reset(),
    "kv.rotate_token": lambda world: world.kv.rotate_token(),
    "queue.publish": lambda world: world.queue.publish(SHOP, json={"order": [7]}),
    "queue.run_until_idle": deliver,
    "queue.run_until_idle with a delay": lambda world: deliver(world, delay="5s"),
    "queue.restore": lambda world: world.queue.restore(world.queue.snapshot()),
    "queue.reset": lambda world: world.queue.reset(),
    "queue.aio": move_in_event_loop,
    "index.load": lambda world: world.index.load([{"id": "1", "vector": [1.0, 2.0]}]),
    "index.holding": load_during_hold,
    "index.restore": lambda world: world.index.restore(world.index.snapshot()),
    "clock.advance": lambda world: world.cloud.clock.advance(1),
    "clock.advance of a running clock": lambda world: world.running.clock.advance(1),
    "clock.advance_to_next": lambda world: world.cloud.clock.advance_to_next(),
    "clock.freeze": lambda world: world.running.clock.freeze(),
    "clock.resume": lambda world: world.running.clock.resume(),
    "cloud.restore": lambda world: world.cloud.restore(world.cloud.snapshot()),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interruption_arrives_and_leaves_the_fakes_usable(world: World, name: str) -> None:
    call = CALLS[name]
    call(world)
    failures: list[BaseException] = []

    def use() -> None:
        try:
            call(world)
            world.check()
            world.reset()
        except BaseException as error:
            failures.append(error)

    moment, place = 0, ""
    while place is not None:
        moment += 1
        place, arrived = interrupted(lambda: call(world), moment)
        assert arrived or place is None, f"swallowed in {place}"
        # A lock that this thread has not released stops another thread only.
        user = threading.Thread(target=use, daemon=True)
        user.start()
        user.join(DEADLINE)
        assert not user.is_alive(), f"locked after an interruption in {place}"
        if failures:
            raise AssertionError(f"unusable after an interruption in {place}") from failures[0]
    assert moment > 5


def test_an_interrupted_produce_appends_all_records_or_none(world: World) -> None:
    place, moment = "", 0
    while place is not None:
        moment += 1
        world.broker.reset()
        place, _ = interrupted(lambda: world.broker.load({"orders": ["a", "b", "c"]}), moment)
        values = [one.value for one in world.broker.records("orders")]
        assert len(values) in (0, 3), place
