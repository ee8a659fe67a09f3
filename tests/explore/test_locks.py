"""Locks, queues and joins of explored code: they wait in fake time, and answer like the originals."""

from __future__ import annotations

import _thread
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.subject.programs import Program
from pytest_fakecloud.explore.world import patches

from .conftest import failure, holds

ARGUMENTS: list[tuple[Any, ...]] = [(), (True, 0), (True, 5), (False,), (True, -5), (False, 5)]
"""Arguments of ``acquire()``: no time-out, several time-outs, and two that raise ValueError."""


def outcome(function: Callable[..., object], *args: object) -> object:
    """Return what a function returns, or the type of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error)


def explored(cloud: Cloud, redis: Redis, waits: Callable[[], object]) -> tuple[object, int]:
    """Return the outcome of a function in explored code, and the fake seconds that it takes."""
    seen: list[Any] = []

    def run() -> None:
        redis.ping()
        before = cloud.clock.now()
        seen.append(outcome(waits))
        seen.append(round((cloud.clock.now() - before).total_seconds(), 3))

    cloud.explore(run, schedule="", setup=seen.clear)
    result, seconds = seen
    return result, round(seconds, 3)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
@pytest.mark.parametrize("args", ARGUMENTS)
def test_a_lock_that_another_client_holds_answers_like_the_original(
    cloud: Cloud, redis: Redis, make: Callable[[], Any], args: tuple[Any, ...]
) -> None:
    lock = make()
    seen: list[Any] = []

    def holder() -> None:
        with lock:
            redis.get("a")
            time.sleep(30)

    def other() -> None:
        redis.get("b")
        before = cloud.clock.now()
        seen.append(outcome(lock.acquire, *args))
        seen.append(round((cloud.clock.now() - before).total_seconds(), 3))

    cloud.explore(
        {"holder": holder, "other": other}, schedule="holder.1 switch other", setup=seen.clear
    )
    assert seen == {
        (): [True, 30],
        (True, 0): [False, 0],
        (True, 5): [False, 5],
        (False,): [False, 0],
    }.get(args, [ValueError, 0])


@pytest.mark.parametrize("name", ["Lock", "RLock", "Condition", "Semaphore"])
def test_locks_that_the_code_creates_are_explored(cloud: Cloud, redis: Redis, name: str) -> None:
    def client() -> None:
        lock = getattr(threading, name)()

        def add() -> None:
            with lock:
                redis.set("n", int(redis.get("n") or 0) + 1)

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check() -> None:
        assert redis.get("n") == "2"

    result = cloud.explore(client, check, kinds="switch", budget=20)
    assert result.is_exhaustive
    assert "not all interleavings" not in str(result)


@pytest.mark.parametrize("name", ["Lock", "RLock", "Condition", "Semaphore"])
def test_locks_that_a_setup_creates_are_explored(cloud: Cloud, redis: Redis, name: str) -> None:
    locks: list[Any] = []

    def setup() -> None:
        locks[:] = [getattr(threading, name)()]

    def add() -> None:
        with locks[0]:
            redis.set("n", int(redis.get("n") or 0) + 1)

    def check() -> None:
        assert redis.get("n") == "2"

    result = cloud.explore([add, add], check, setup=setup, kinds="switch", budget=20)
    assert result.is_exhaustive
    assert "not all interleavings" not in str(result)


def test_both_orders_of_attempts_to_acquire_a_lock_are_explored(cloud: Cloud, redis: Redis) -> None:
    lock = threading.Lock()
    seen: set[tuple[str, ...]] = set()
    order: list[str] = []

    def waits() -> None:
        redis.get("a")
        with lock:
            order.append("waits")
            redis.get("b")

    def tries() -> None:
        redis.get("c")
        order.append("tries" if lock.acquire(False) else "fails")
        if order[-1] == "tries":
            redis.get("d")
            lock.release()

    def check() -> None:
        seen.add(tuple(order))

    clients = {"waits": waits, "tries": tries}
    result = cloud.explore(
        clients, [check, lambda: None], setup=order.clear, kinds="switch", budget=20
    )
    assert result.is_exhaustive
    assert seen == {("waits", "tries"), ("tries", "waits"), ("waits", "fails")}


def test_a_reentrant_lock_is_not_free_while_its_owner_runs(cloud: Cloud, redis: Redis) -> None:
    lock = threading.RLock()

    def client() -> None:
        redis.get("a")
        with lock:
            redis.get("b")
            redis.get("c")

    with pytest.raises(ContractError, match=r"not applied: ann.3 switch bob\."):
        cloud.explore({"ann": client, "bob": client}, schedule="ann.2 switch bob, ann.3 switch bob")


def test_a_condition_acquires_its_lock_again_in_a_turn(cloud: Cloud, redis: Redis) -> None:
    lock = threading.RLock()
    conditions: list[threading.Condition] = []
    order: list[str] = []

    def setup() -> None:
        conditions[:] = [threading.Condition(lock)]
        order.clear()

    def waiter() -> None:
        redis.get("a")
        with lock, conditions[0]:
            order.append(f"notified: {conditions[0].wait(60)}")

    def notifier() -> None:
        redis.get("b")
        with lock, conditions[0]:
            conditions[0].notify()
            time.sleep(5)
            order.append("releases")

    clients = {"waiter": waiter, "notifier": notifier}
    result = cloud.explore(clients, holds, kinds="switch", setup=setup, budget=3)
    assert order[0] == "releases"
    assert "not all interleavings" not in str(result)


@pytest.mark.slow
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("is_released", [True, False])
def test_a_lock_that_is_not_explored_is_released_in_its_time_or_reported(
    cloud: Cloud, redis: Redis, is_released: bool, others: int
) -> None:
    locks = [_thread.allocate_lock()]

    def setup() -> None:
        locks[:] = [_thread.allocate_lock()]

    def holder() -> None:
        redis.get("a")
        locks[0].acquire()
        if is_released:
            time.sleep(60)
            locks[0].release()

    def other() -> None:
        redis.get("b")
        with locks[0]:
            pass

    clients = {"holder": holder, **{f"other{n}": other for n in range(others)}}
    if is_released:
        assert cloud.explore(clients, setup=setup, schedule="").tried == 1
        return
    failure(
        cloud,
        clients,
        setup=setup,
        schedule="",
        match=r"other\d waits forever at .*with locks\[0\]",
    )


class Holder:
    """An object that refers to others, and whose property must not run."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    @property
    def func(self) -> object:
        raise NotImplementedError

    def use(self) -> None:
        """Do nothing: what matters is that a client may be a method."""


def test_locks_of_the_object_of_a_method_are_found(cloud: Cloud) -> None:
    holder = Holder(lock=threading.Lock())
    real = holder.lock
    with patches.explored(cloud, [Program("method", holder.use)], Options()):
        assert holder.lock is not real
    assert holder.lock is real


@pytest.mark.parametrize("order", [1, -1])
def test_locks_are_found_by_the_shortest_way(cloud: Cloud, order: int) -> None:
    inner = Holder(lock=threading.Lock())
    near = Holder(inner=inner)
    far = Holder(a=Holder(b=Holder(c=near)))
    programs = [Program("far", lambda: far), Program("near", lambda: near)]
    real = inner.lock
    with patches.explored(cloud, programs[::order], Options()):
        assert inner.lock is not real
    assert inner.lock is real


@pytest.mark.parametrize(
    ("waits", "expected", "seconds"),
    [
        (lambda: threading.Semaphore(0).acquire(timeout=5), False, 5),
        (lambda: threading.Event().wait(5), False, 5),
        (lambda: queue.Queue[int]().get(timeout=5), queue.Empty, 5),
        (lambda: queue.SimpleQueue[int]().get(timeout=5), queue.Empty, 5),
        (lambda: queue.SimpleQueue().get(timeout=0), queue.Empty, 0),
        (lambda: threading.current_thread().join(), RuntimeError, 0),
    ],
)
def test_waits_of_the_standard_library_end_at_their_time_out(
    cloud: Cloud, redis: Redis, waits: Callable[[], object], expected: object, seconds: int
) -> None:
    assert explored(cloud, redis, waits) == (expected, seconds)

    def in_a_thread() -> object:
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(outcome(waits)))
        thread.start()
        thread.join()
        return seen[0]

    assert explored(cloud, redis, in_a_thread) == (expected, seconds)
