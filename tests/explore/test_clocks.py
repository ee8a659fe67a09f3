"""The monotonic clocks of explored code follow fake time."""

from __future__ import annotations

import concurrent.futures
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns, perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import Cloud, ContractError, KVServer
from pytest_fakecloud.explore.world import clocks

from .conftest import holds

CLOCKS: list[Any] = [
    lambda: time.time(), lambda: time.monotonic(), lambda: perf_counter(),
    lambda: monotonic_ns() / 1e9, lambda: time.perf_counter_ns() / 1e9,
]  # fmt: skip


def spans(start: list[float]) -> list[float]:
    return [round(clock() - began, 3) for clock, began in zip(CLOCKS, start, strict=True)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("run.1 slow 30", [30.0, 35.0, 35.0]),
        ("run.2 delay 30", [0.0, 5.0, 35.0]),
        ("run.1 tick 1s", [1.0, 6.0, 6.0]),
    ],
)
def test_every_clock_moves_by_the_same_time(
    cloud: Cloud, kv: KVServer, schedule: str, expected: list[float]
) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    seen: list[list[float]] = []

    def run() -> None:
        start = [clock() for clock in CLOCKS]
        redis.set("a", 1)
        seen.append(spans(start))
        time.sleep(5)
        seen.append(spans(start))
        redis.set("a", 2)
        seen.append(spans(start))

    cloud.explore(run, lambda: None, schedule=schedule, setup=seen.clear)
    assert seen == [[reading] * len(CLOCKS) for reading in expected]


def by_default(sleep: Any = time.sleep, *, clock: Any = time.monotonic) -> float:
    began: float = clock()
    sleep(5)
    ended: float = clock()
    return round(ended - began, 3)


class Waiter:
    pause = time.sleep


def test_functions_that_were_bound_before_pass_fake_time(cloud: Cloud, redis: Redis) -> None:
    seen: list[float] = []

    def run() -> None:
        redis.ping()
        began = time.time()
        seen.append(by_default())
        Waiter().pause(5)
        seen.append(time.time() - began)

    cloud.explore(run, lambda: None, schedule="", setup=seen.clear)
    assert seen == [5.0, 10.0]
    assert time.sleep in (by_default.__defaults__ or ())


class Held:
    """An object that stored a sleep before the exploration."""

    def __init__(self) -> None:
        self.pause: Any = time.sleep


class Slotted:
    __slots__ = ("pause",)

    def __init__(self) -> None:
        self.pause = time.sleep


@dataclass
class Dated:
    pause: Any = time.sleep


def _closure() -> Callable[[float], None]:
    pause = time.sleep
    return lambda seconds: pause(seconds)


def _calls(holder: Any) -> Callable[[], object]:
    return lambda: holder.pause(7)


def _held_in(kind: str) -> Callable[[], object]:
    """Return a function that sleeps for 7 s with a function that was stored before."""
    if kind in ("object", "slots", "dataclass", "namespace"):
        made = {"object": Held, "slots": Slotted, "dataclass": Dated}.get(kind)
        return _calls(SimpleNamespace(pause=time.sleep) if made is None else made())
    if kind == "object in an object":
        outer = SimpleNamespace(inner=Held())
        return lambda: outer.inner.pause(7)
    if kind == "dictionary":
        table = {"pauses": [time.sleep]}
        return lambda: table["pauses"][0](7)
    if kind == "partial":
        return partial(partial(time.sleep), 7)
    bound = partial(time.sleep, 7)
    return lambda: bound() if kind == "partial in a closure" else _closure()(7)


@pytest.mark.parametrize(
    "kind",
    ["object", "slots", "dataclass", "namespace", "object in an object", "dictionary", "partial",
     "partial in a closure", "closure"],
)  # fmt: skip
def test_a_sleep_that_was_stored_before_passes_fake_time(
    cloud: Cloud, redis: Redis, kind: str
) -> None:
    pause = _held_in(kind)
    seen: list[float] = []

    def run() -> None:
        redis.ping()
        began = time.time()
        pause()
        seen.append(time.time() - began)

    cloud.explore(run, lambda: None, schedule="")
    assert seen == [7.0]


def test_a_clock_that_was_stored_before_shows_fake_time(cloud: Cloud, redis: Redis) -> None:
    timer = SimpleNamespace(now=time.monotonic)
    seen: list[float] = []

    def run() -> None:
        redis.ping()
        began = timer.now()
        time.sleep(7)
        seen.append(round(timer.now() - began, 3))

    cloud.explore(run, lambda: None, schedule="")
    assert seen == [7.0]
    assert timer.now is time.monotonic


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show what a thread does")
def test_a_thread_that_really_sleeps_is_named(cloud: Cloud, redis: Redis) -> None:
    pauses = (time.sleep,)

    def run() -> None:
        redis.ping()
        pauses[0](0.8)

    with pytest.raises(ContractError, match=r"run \(test_clocks.py:\d+\) sleeps in real time"):
        cloud.explore(run, lambda: None, schedule="")


def test_timeouts_of_the_standard_library_pass(cloud: Cloud, redis: Redis) -> None:
    waited: list[float] = []

    def run() -> None:
        redis.ping()
        start = time.monotonic()
        with pytest.raises(queue.Empty):
            queue.Queue[None]().get(timeout=5)
        waited.append(time.monotonic() - start)
        condition = threading.Condition()
        with condition:
            assert not condition.wait_for(lambda: False, timeout=5)
        waited.append(time.monotonic() - start)
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        with pytest.raises(concurrent.futures.TimeoutError):
            list(concurrent.futures.as_completed([future], timeout=5))
        waited.append(time.monotonic() - start)

    cloud.explore(run, lambda: None, budget=3, setup=waited.clear)
    assert waited == pytest.approx([5, 10, 15], abs=1e-3)


def test_a_lock_of_redis_py_gives_up(cloud: Cloud, kv: KVServer) -> None:
    redis_py = pytest.importorskip("redis")
    url = kv.database_url

    def client() -> str:
        with redis_py.Redis.from_url(url) as redis:
            lock = redis.lock("oven", timeout=20, blocking_timeout=5)
            if not lock.acquire():
                return "gave up"
            redis.incr("loaves")
            lock.release()
            return "baked"

    results: dict[str, object] = {}
    cloud.explore(
        {"ann": client, "bob": client},
        lambda history: results.update(history.results),
        schedule="ann.2 crash",
    )
    assert results["bob"] == "gave up"


def test_threads_that_are_not_explored_keep_real_time(cloud: Cloud, redis: Redis) -> None:
    real: list[float] = []
    ask, answered = threading.Event(), threading.Event()

    def read() -> None:
        ask.wait()
        real.append(time.monotonic())
        answered.set()

    thread = threading.Thread(target=read)
    thread.start()
    before, originals = time.monotonic(), (time.monotonic, perf_counter)

    def run() -> None:
        redis.ping()
        time.sleep(3600)

    def check() -> None:
        assert time.monotonic() - before >= 3600
        ask.set()
        answered.wait()

    cloud.explore(run, check, schedule="run.1 slow 30")
    thread.join()
    assert real[0] - before < 3600
    assert (time.monotonic, perf_counter) == originals


def test_modules_that_are_imported_during_a_run_get_the_originals_back(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ModuleType("imported_late")

    def run() -> None:
        redis.ping()
        exec("from time import monotonic, sleep", vars(late))
        monkeypatch.setitem(sys.modules, late.__name__, late)

    originals = time.monotonic, time.sleep
    cloud.explore(run, holds, budget=2)
    assert (vars(late)["monotonic"], vars(late)["sleep"]) == originals


def test_an_exploration_searches_the_modules_for_clocks_only_once(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end, it would search them again if anything still held a replacement."""
    names: list[str] = []
    keeps_originals = clocks.keeps_originals
    monkeypatch.setattr(
        clocks, "keeps_originals", lambda name: names.append(name) or keeps_originals(name)
    )
    cloud.explore(lambda: redis.get("k"), holds, schedule="")
    assert names.count(__name__) == 1
