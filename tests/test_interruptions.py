"""An exception of a signal's handler arrives, and leaves every fake usable and its data whole."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import itertools
import os
import selectors
import socket
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from math import ceil
from operator import ne
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import time_machine

from pytest_fakecloud import _PART_NAMES, _PUBLIC_NAMES, Cloud, KVServer
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.world.patches import explored
from pytest_fakecloud.http import hub
from pytest_fakecloud.http.app import FAULTS
from pytest_fakecloud.kv.engine.limits import Sizes
from pytest_fakecloud.process.surroundings import changes_for
from pytest_fakecloud.queue.delivery.destinations import route_context_of
from pytest_fakecloud.vector.model import VectorQuery

from . import interrupted_calls
from .harness import explore_searches_fewer_modules as explore_searches_fewer_modules
from .harness import wait_until
from .interrupted_calls import CALLS, EXCUSED, LOADED, SHOP, World
from .interruptions import Place, interrupted, places
from .notations import complete
from .vector.building import floats

# An interrupted delivery leaves coroutines that nobody awaits.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
DEADLINE = 15.0  # real seconds
FOLLOWED = {"autojump": (contextlib, time_machine), "close": (contextlib, time_machine)}
"""Modules whose lines are places, too, by the first word of the calls that change the process."""
MOST_PLACES = 3
"""Number of places at which each call is interrupted at most, unless all places are asked for."""
SLOW = {"Cloud": pytest.mark.slow}
START = "2026-01-01T00:00:00Z"
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="closes its listeners")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    changes = changes_for(True, True)
    users = [dict(change.users) for change in changes]
    with Cloud(clock="frozen", now=START) as cloud, Cloud(clock="running", now=START) as running:
        yield World(cloud, running, tmp_path)
    # A cloud that is interrupted between its opening and its ``with`` stays open.
    for change, before in zip(changes, users, strict=True):
        for user in change.users.keys() - before.keys():
            change.leave(change.users[user])


def check_kv(kv: KVServer) -> None:
    """Check that the keys agree with their expiry times and sizes, and with the search index."""
    engine = kv._engine
    for keyspace in engine.databases:
        for index in (keyspace.expires, keyspace.volatile, keyspace.accessed):
            assert set(index) <= set(keyspace.values)
        sizes = engine.sizes.measure(keyspace)
        keyspace.resized = None
        assert Sizes(engine.databases).measure(keyspace) == sizes
        keyspace.resized = None
    keys = kv.keys()
    for key in keys:
        match kv.execute("TYPE", key):
            case "zset":
                members = kv.execute("ZRANGE", key, "0", "-1")
                assert isinstance(members, list)
                assert set(members) == set(kv.scores(key))
                assert len(members) == kv.execute("ZCARD", key) > 0
            case "stream":
                assert len(kv.entries(key)) == kv.execute("XLEN", key)
            case "list":
                assert len(kv.elements(key)) == kv.execute("LLEN", key) > 0
            case "array":
                array = engine.databases[0].values[key.encode()]
                assert dict(array) == array.values
                assert sum(array.slices.values()) == kv.execute("ARCOUNT", key) > 0
            case "vectorset":
                vectors = engine.databases[0].values[key.encode()]
                assert set(vectors._norms) == set(vectors) >= set(vectors.attributes)
                assert len(vectors) == kv.execute("VCARD", key) > 0
            case "hash":
                fields = engine.databases[0].values[key.encode()]
                assert set(fields.expires) <= set(fields.fields)
                assert len(kv.hash(key)) == kv.execute("HLEN", key) > 0
    if "books" in keys:
        results: Any = kv.execute("SEARCH.QUERY", "books", "{}")
        assert sorted(result[0] for result in results) == sorted(kv.keys("book:*"))


def check_queue(world: World) -> None:
    """Check that each message is published wholly: it is delivered, or has a timer."""
    queue = world.queue
    world.stub()
    message = queue.publish(SHOP, body="x")
    queue.run_until_idle()
    assert queue.pending() == []
    assert queue.message(message.id).state == "delivered"
    for message in queue.messages():
        assert message.timeline
    # The identifier of an interrupted message does not swallow the next message.
    message = queue.publish(SHOP, json=7, deduplication_id="7")
    queue.run_until_idle()
    assert queue.message(message.id).state == "delivered"


def check_vectors(world: World) -> None:
    """Check that queries find the vectors that the index lists."""
    for index in (world.index, world.hybrid):
        index.load([{"id": "checked", "vector": [1.0, 1.0], **world.sparse_of(index)}])
        stored = sorted(str(vector["id"]) for vector in index.vectors())
        engine = index._engine
        hits = engine.query("", [VectorQuery(vector=floats(1, 2), top_k=100)])[0]
        assert sorted(hit.record.id for hit in hits) == stored
        assert engine.count("") == len(stored)


def check_broker(world: World) -> None:
    """Check that the offsets of records are consecutive, and that each group knows its topics."""
    broker = world.broker
    broker.load({"orders": ["v"]})
    for partition in range(broker.topic("orders").partitions):
        offsets = [
            record.offset for record in broker.records("orders") if record.partition == partition
        ]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
    for group in broker.groups():
        assert group.members is not None


def check_clocks(world: World) -> None:
    before_us = world.cloud.clock.now_us()
    world.cloud.clock.advance(1)
    assert world.cloud.clock.now_us() == before_us + 1_000_000
    world.running.clock.advance(1)
    world.running.clock.resume()
    before_us = world.running.clock.now_us()
    wait_until(lambda: world.running.clock.now_us() > before_us)


def process() -> list[object]:
    """Return what calls replace in this process."""
    names = "sleep", "time", "monotonic", "perf_counter"
    functions = [getattr(time, name) for name in names]
    functions += [asyncio.sleep, asyncio.BaseEventLoop.call_at, asyncio.new_event_loop]
    of_uuid = [vars(uuid).get(name) for name in ("_generate_time_safe", "_UuidCreate")]
    return [*functions, *of_uuid, threading.Lock, os.environ.get("TZ"), is_time_replaced()]


def is_time_replaced() -> bool:
    try:
        time_machine.escape_hatch.time.time()
    except ValueError:  # because nothing is replaced
        return False
    return True


def check_process(before: list[object]) -> None:
    if process() != before:
        # A cloud that is interrupted before its ``with`` is closed when it is collected.
        gc.collect()
        Cloud().close()
    assert process() == before


def check(world: World) -> None:
    """Use every part that a call could have left locked or half changed."""
    world.cloud.fakes()
    world.cloud.violations()
    world.cloud.journal.calls()
    check_clocks(world)
    check_kv(world.kv)
    check_kv(world.stock)
    check_vectors(world)
    check_broker(world)
    check_queue(world)
    world.capture.callbacks()
    world.cloud.restore(world.cloud.snapshot())


def interrupt(world: World, kind: str, name: str, place: Place) -> None:
    entry = CALLS[kind][name]
    world.reset()
    call = entry(world)
    before = process()
    assert interrupted(call, place, followed(name)), "swallowed"
    check_process(before)
    failures: list[BaseException] = []

    def use() -> None:
        try:
            check(world)
            world.reset()
            entry(world)()
        except BaseException as error:
            failures.append(error)

    # A lock that this thread has not released stops another thread only.
    user = threading.Thread(target=use, daemon=True)
    user.start()
    user.join(DEADLINE)
    assert not user.is_alive(), "locked"
    if failures:
        raise failures[0]


def followed(name: str) -> tuple[ModuleType, ...]:
    return FOLLOWED.get(name.partition(" ")[0], ())


def interrupt_calls(world: World, kinds: Iterable[str], most: int | None = None) -> None:
    """Interrupt the calls of some classes, each at the lines that no earlier one of them has reached,
    or at ``most`` of these lines.
    """
    reached: set[str] = set()
    for kind in kinds:
        for name, entry in CALLS[kind].items():
            world.reset()
            new: dict[str, Place] = {}
            for place in places(entry(world), followed(name)):
                if place.line not in reached:
                    new.setdefault(place.line, place)
            reached.update(new)
            step = 1 if most is None else ceil(len(new) / most) or 1
            for place in list(new.values())[::step]:
                try:
                    interrupt(world, kind, name, place)
                except Exception as error:
                    raise AssertionError(f"{kind}.{name}, interrupted in {place}") from error


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=SLOW.get(kind, ())) for kind in CALLS])
def test_an_interruption_arrives_and_leaves_the_fakes_usable(world: World, kind: str) -> None:
    interrupt_calls(world, [kind], MOST_PLACES)


@pytest.mark.long
def test_an_interruption_at_any_line_arrives_and_leaves_the_fakes_usable(world: World) -> None:
    interrupt_calls(world, CALLS)


@pytest.mark.parametrize("name", [name for name in CALLS["KVServer"] if "EVAL" in name])
def test_a_script_does_not_swallow_an_interruption(world: World, name: str) -> None:
    script = CALLS["KVServer"][name](world)
    swallowed = [place for place in places(script) if not interrupted(script, place)]
    assert not swallowed


def test_an_interrupted_exploration_leaves_nothing_registered_with_the_fakes() -> None:
    with Cloud(clock="frozen", delivery="driven") as cloud:
        queue, kv = cloud.queue(), cloud.kv_server()
        registries: list[Callable[[], Iterable[object]]] = [
            lambda: queue._engine.interceptors.all,
            lambda: queue._engine.interceptors.faults,
            lambda: route_context_of(queue.destinations).around_work,
            lambda: kv._engine.listeners,
            lambda: [*queue._app.chain.members, *kv._app.chain.members],
            lambda: [*queue._app.rejection_listeners, *kv._app.rejection_listeners],
        ]

        def registered() -> list[object]:
            return [list(registry()) for registry in registries]

        def explore() -> None:
            with explored(cloud, (), Options()):
                assert all(map(ne, registered(), before))

        before = registered()
        names = (" watch", " _listen")
        connecting = [
            place
            for place in places(explore)
            if place.line.endswith(names) or place.caller.endswith(names)
        ]
        assert len(connecting) > 20
        for place in connecting:
            assert interrupted(explore, place)
            assert registered() == before, place


def test_after_an_interruption_a_fault_applies_once() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server()

        def add() -> None:
            kv.faults.respond(503)

        reached = places(add)
        kv.faults.clear()
        assert len(reached) > 20
        for place in reached:
            assert interrupted(add, place)
            kv.faults.drop()
            assert [position for position, _ in kv._app.chain.members] == [FAULTS], place
            kv.faults.clear()
            assert kv._app.chain.members == (), place


def check_reachable(kv: KVServer) -> None:
    assert not kv.faults.is_down
    assert all(mount.is_listening for mount in kv._mounts)
    assert httpx.get(f"{kv.url}/ping", headers=kv.headers).is_success
    port = urlsplit(kv.database_url).port
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(1)


OUTAGES: dict[str, Callable[[KVServer], object]] = {
    "up": lambda kv: kv.faults.up(),
    "clear": lambda kv: kv.faults.clear(),
    "reset": lambda kv: kv.reset(),
    "remove": lambda kv: [fault.remove() for fault in kv.faults],
    "down": lambda kv: kv.faults.down(),
}
"""Calls that end an outage, and one that begins an outage."""


@pytest.mark.parametrize("can_stop", [pytest.param(True, marks=linux_only), False])
@pytest.mark.parametrize("name", OUTAGES)
def test_after_an_interrupted_change_of_an_outage_the_fake_can_be_reached_again(
    monkeypatch: pytest.MonkeyPatch, name: str, can_stop: bool
) -> None:
    monkeypatch.setattr(hub, "CAN_STOP_LISTENING", can_stop)
    also = (selectors, contextlib, weakref)
    with Cloud() as cloud:
        kv = cloud.kv_server()
        change = partial(OUTAGES[name], kv)
        restores = [partial(OUTAGES[restore], kv) for restore in ("up", "clear", "reset")]
        if name != "down":
            kv.faults.down()
        reached = places(change, also)
        assert len(reached) > 40
        # Most places of a reset have nothing to do with outages, and the others are those of clear().
        step = 5 if name == "reset" else 1
        for place, restore in zip(reached[::step], itertools.cycle(restores), strict=False):
            restore()
            if name != "down":
                kv.faults.down()
            assert interrupted(change, place, also)
            restore()
            try:
                check_reachable(kv)
            except (AssertionError, OSError, httpx.TransportError) as error:
                raise AssertionError(f"{name} interrupted in {place}, {restore}") from error


READS = ("contents", "keys", "members", "search_index", "string", "ttl", "value")
"""Methods of ``KVServer`` that read while no other thread changes the keys."""


@pytest.mark.parametrize("name", READS)
def test_an_interrupted_read_holds_no_lock_while_its_exception_lives(
    world: World, name: str
) -> None:
    read = CALLS["KVServer"][name](world)
    for place in places(read, (contextlib,)):
        errors: list[BaseException] = []
        assert interrupted(read, place, (contextlib,), errors.append)
        user = threading.Thread(target=world.kv.execute, args=("PING",), daemon=True)
        user.start()
        user.join(DEADLINE)
        assert not user.is_alive(), place


CONTENTS: dict[str, Callable[[Any], object]] = {
    "broker": lambda broker: {
        topic.name: [record.value for record in broker.records(topic.name)]
        for topic in broker.topics()
    },
    "queue": lambda queue: (
        [message.url for message in queue.messages()],
        [schedule.id for schedule in queue.schedules()],
        [*queue._engine.url_groups.by_name],
        [*queue._engine.queues.by_name],
    ),
    "index": lambda index: {name: list(index.vectors(name)) for name in index.namespaces()},
}


@pytest.mark.parametrize("name", CONTENTS)
def test_an_interrupted_load_loads_everything_or_nothing(world: World, name: str) -> None:
    fake, contents = getattr(world, name), CONTENTS[name]
    load = partial(fake.load, LOADED[name])
    before = contents(fake)
    load()
    after = contents(fake)
    assert before != after
    world.reset()
    for place in places(load)[:: MOST_PLACES * 2]:
        world.reset()
        assert interrupted(load, place), "swallowed"
        assert contents(fake) in (before, after), place


def public_calls() -> Iterator[str]:
    """Yield the names of the public functions, and of the methods of public classes."""
    names = {**_PUBLIC_NAMES, **_PART_NAMES, **AWAITABLE}
    for name, module in names.items():
        value = getattr(import_module(f"pytest_fakecloud.{module}"), name)
        if inspect.isfunction(value):
            yield name
        elif isinstance(value, type) and not issubclass(value, BaseException):
            yield from (
                f"{name}.{member}"
                for member, method in inspect.getmembers(value, inspect.isroutine)
                if not member.startswith("_")
                and str(getattr(method, "__module__", "")).startswith("pytest_fakecloud.")
            )


AWAITABLE = {
    "AioBroker": "broker.fake",
    "AioClock": "core.clock",
    "AioCloud": "cloud.cloud",
    "AwaitableCapture": "queue.capture.fake",
    "QueueAio": "queue.actions",
}


@pytest.mark.completeness
def test_each_public_method_is_interrupted() -> None:
    calls = {
        f"{kind}.{name.partition(' ')[0]}" for kind, entries in CALLS.items() for name in entries
    }
    missing = [
        name
        for name in public_calls()
        if name not in calls and not {name, name.partition(".")[0]} & EXCUSED.keys()
    ]
    complete(
        Path(interrupted_calls.__file__), (f"CALLS: {name}" for name in missing), "EXCUSED there"
    )
