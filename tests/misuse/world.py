"""The names that the calls in the tables of this folder use: the fakes, and unusual values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock

import numpy as np

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.broker.model import ProducerRecord
from pytest_fakecloud.broker.settings import BrokerLimits
from pytest_fakecloud.cloud.base import fixture_fake, start_over
from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.faults.answers import Response, checked_headers, checked_status, checked_type
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.queue.capture.fake import CallbackCapture
from pytest_fakecloud.queue.delivery.destinations import Destinations
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.vector.embedding import Embedder
from pytest_fakecloud.vector.fake import VectorIndex
from pytest_fakecloud.vector.model import IndexKind
from pytest_fakecloud.vector.settings import VectorLimits

from ..demo import Demo
from ..queue.scene import DEST

NOON = "2026-01-01T12:00:00Z"
SELF_CONTAINING: list[Any] = []
SELF_CONTAINING.append(SELF_CONTAINING)
DEEP: list[Any] = []
for _ in range(200_000):
    DEEP = [DEEP]


@dataclass
class Timed:
    at: float


class Asynchronous:
    async def __call__(self, text: str) -> list[float]:
        return [1]


async def awaited(value: object) -> bool:
    return True


def gone_through(value: object) -> Iterator[bool]:
    yield True


def explored(**options: Any) -> None:
    """Explore one call with a budget of one run, in a cloud of its own."""
    with Cloud(delivery="driven") as own:
        own.explore(own.kv_server().client().ping, **{"budget": 1, "trust": False, **options})


def start_with_a_setting_named(name: Any) -> None:
    hashable = type(name).__hash__ is not None
    with Cloud() as own:
        own._start("kv_server", {name if hashable else "": 1})


def _cloud(world: World) -> Cloud:
    return Cloud(seed=1, now=NOON, delivery="driven")


def _broker(world: World) -> Broker:
    broker = Broker(Context.alone(now="2026-01-01T00:00:00Z"), topics={"orders": 3})
    broker.produce("orders", "v", partition=0)
    broker.join("orders", "orders", ["orders"])
    broker.join("workers", "one", ["orders"])
    return broker


def _index(world: World) -> VectorIndex:
    index = VectorIndex(Context.alone(now="2026-01-01T00:00:00Z"), dimension=2)
    index.load({"a": [1, 2]})
    index.load({"a": [1, 2]}, namespace="orders")
    return index


def _index_of_any_dimension(world: World) -> VectorIndex:
    return VectorIndex(Context.alone())


def _queue(world: World) -> Queue:
    queue = Queue(Context.alone(now=NOON, seed=1))
    queue.publish(DEST)
    return queue


def _kv(world: World) -> KVServer:
    kv = KVServer(Context.alone(now=NOON))
    kv.load({"k": "old"})
    return kv


FAKES: Mapping[str, tuple[Callable[[World], Any], Callable[[Any], object]]] = {
    "context": (lambda world: Context.alone(), lambda context: list(context.fakes)),
    "cloud": (_cloud, lambda cloud: ([fake.name for fake in cloud.fakes()], cloud.seed)),
    "broker": (
        _broker,
        lambda broker: (
            [(topic.name, topic.records) for topic in broker.topics()],
            [group._described() for group in broker.groups()],
        ),
    ),
    "index": (_index, lambda index: (index.namespaces(), index.vectors())),
    "index_of_any_dimension": (
        _index_of_any_dimension,
        lambda index: (index.namespaces(), index.vectors()),
    ),
    "queue": (
        _queue,
        lambda queue: (queue.messages(), [schedule.id for schedule in queue.schedules()]),
    ),
    "kv": (_kv, lambda kv: kv.contents()),
    "capture": (
        lambda world: world["cloud"].callback_capture(),
        lambda capture: capture.callbacks(),
    ),
    "demo": (lambda world: Demo(), lambda demo: bool(demo.faults)),
}
"""By name: how a fake is opened, and what a rejected call must not change."""
PARTS: Mapping[str, Callable[[World], Any]] = {
    "topic": lambda world: world["broker"].topic("orders"),
    "group": lambda world: world["broker"].group("orders"),
    "fixture_kv": lambda world: fixture_fake(world["cloud"], "kv_server"),
    "a_schedule": lambda world: world["queue"].schedule(DEST, "* * * * *"),
    "destinations": lambda world: Destinations(),
}


NAMES: tuple[Any, ...] = (
    Asynchronous, AsyncMock, Broker, BrokerLimits, CallbackCapture, Cloud, Context, Embedder,
    Ids, IndexKind, KVServer, ProducerRecord, Queue, Response, Timed, Timekeeper, VectorIndex,
    VectorLimits, start_over, fixture_fake, awaited, checked_headers, checked_status,
    checked_type, explored, gone_through, start_with_a_setting_named, math, re,
)  # fmt: skip


class World(dict[str, Any]):
    """The names of all calls. A fake is opened when a call first names it."""

    def __init__(self) -> None:
        super().__init__({name.__name__: name for name in NAMES})
        self.update(DEST=DEST, DEEP=DEEP, SELF_CONTAINING=SELF_CONTAINING, np=np)

    def __missing__(self, name: str) -> Any:
        if name in FAKES:
            self[name] = FAKES[name][0](self)
        elif name in PARTS:
            self[name] = PARTS[name](self)
        else:
            raise KeyError(name)
        return self[name]

    def state(self, call: str) -> list[object]:
        """Return the state of the fakes that a call names."""
        for name in re.findall(r"\w+", call):
            if name in FAKES or name in PARTS:
                self[name]
        return [shown(self[name]) for name, (_, shown) in FAKES.items() if name in self]

    def close(self) -> None:
        for name in reversed(FAKES):
            if name in self and name != "context":
                self[name].close()
