"""Verdicts that say no more than was tried: code that differs between runs is an error."""

from __future__ import annotations

import itertools
import queue
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import (
    Cloud,
    ContractError,
    KVServer,
    always,
    eventually,
    linearizable,
    never,
    sometimes,
)


def error(cloud: Cloud, *args: Any, **options: Any) -> str:
    """Explore, and return the error without source lines."""
    with pytest.raises(ContractError) as found:
        cloud.explore(*args, **options)
    return re.sub(r" \(\w+\.py:\d+\)", "", str(found.value))


def holds() -> None:
    """A check that always passes."""


def _memo(redis: Redis) -> Callable[[], object]:
    known: dict[str, str | None] = {}

    def run() -> None:
        if "k" not in known:
            known["k"] = redis.get("k")

    return run


def _counter(redis: Redis) -> Callable[[], object]:
    numbers = itertools.count()
    return lambda: redis.set("k", next(numbers))


def _longer(redis: Redis) -> Callable[[], object]:
    done: list[int] = []

    def run() -> None:
        redis.incr("k")
        if done:
            redis.incr("other")
        done.append(1)

    return run


@pytest.mark.parametrize(
    ("made", "difference"),
    [
        (_memo, "call 1 was 'client: GET k → null', and there was none the second time"),
        (_counter, "call 1 was 'client: SET k 0 → OK', and 'client: SET k 1 → OK' the second time"),
        (_longer, "call 2 did not exist, and was 'client: INCR other → 1' the second time"),
    ],
)
def test_code_that_remembers_an_earlier_run_is_an_error(
    cloud: Cloud, redis: Redis, made: Callable[[Redis], Any], difference: str
) -> None:
    text = error(cloud, {"client": made(redis)}, holds)
    assert difference in text
    assert "reset it in setup=" in text


def test_answers_from_outside_the_fakes_are_an_error(cloud: Cloud, kv: KVServer) -> None:
    """The calls are the same, but a stored value differs."""
    values = itertools.count()
    redis = Redis(kv.url, kv.token)
    text = error(
        cloud,
        {"client": lambda: redis.get("k")},
        holds,
        setup=lambda: kv.load({"k": str(next(values))}),
    )
    assert "call 1 was 'client: GET k → \"0\"', and 'client: GET k → \"1\"' the second time" in text


def test_code_that_remembers_a_failure_is_an_error(cloud: Cloud, redis: Redis) -> None:
    """A circuit breaker that one schedule opens makes all later runs hollow."""
    opened: list[int] = []

    def run() -> None:
        if opened:
            return
        try:
            redis.incr("n")
        except Exception:
            opened.append(1)

    text = error(cloud, run, holds, kinds="drop", budget=5)
    assert "call 1 was 'run: INCR n → 1', and there was none after the search" in text


def test_a_promise_that_breaks_only_in_the_second_run_is_an_error(
    cloud: Cloud, redis: Redis
) -> None:
    seen: list[int] = []

    def check() -> None:
        assert not seen, "seen before"
        seen.append(1)

    text = error(cloud, lambda: redis.incr("n"), check)
    assert "the promise held, and was broken the second time (seen before)" in text


def test_the_numbers_of_calls_are_ranges_if_they_varied(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        if redis.set("lock", "x", nx=True):
            redis.incr("n")

    def ping() -> None:
        redis.ping()

    clients = {"ann": run, "bob": run, "eve": ping}
    found = cloud.explore(clients, holds, kinds=("switch", "tick"), budget=30)
    assert "\ncalls: ann 1 to 2 calls, bob 1 to 2 calls, eve 1 call\n" in str(found)
    assert found.calls == {"ann": 2, "bob": 2, "eve": 1}


def _never_true() -> bool:
    return False


@pytest.mark.parametrize(
    "returned",
    [(False, "stock is negative"), _never_true, Redis],
    ids=["tuple", "function", "class"],
)
@pytest.mark.parametrize(
    "promise",
    [always, never, sometimes, lambda each: eventually(each, within="1s")],
    ids=["always", "never", "sometimes", "eventually"],
)
def test_a_predicate_returns_a_verdict(
    cloud: Cloud, redis: Redis, promise: Callable[[Any], Any], returned: object
) -> None:
    """``always(lambda: (total == 2, "message"))`` would hold for any total."""
    text = error(cloud, lambda: redis.incr("n"), promise(lambda: returned), budget=2)
    assert "the predicate returned" in text
    assert "which always counts as true" in text


@pytest.mark.parametrize("returned", [(False, "text"), _never_true, (n for n in "")])
def test_the_final_state_of_a_model_is_compared_by_a_verdict(
    cloud: Cloud, redis: Redis, returned: object
) -> None:
    class Model:
        def run(self) -> None:
            """Take effect."""

    promise = linearizable(Model, final=lambda model: returned)

    def run() -> None:
        redis.incr("n")

    assert "final= returned" in error(cloud, run, promise, budget=2)


def test_code_that_has_not_run_is_an_error(cloud: Cloud, redis: Redis) -> None:
    def lazy() -> Iterator[None]:
        redis.incr("n")
        yield

    async def lazy_later() -> AsyncIterator[None]:
        redis.incr("n")
        yield

    clients = {"ann": lambda: redis.incr("n")}
    for function in (lazy, lazy_later, lambda: lazy()):
        assert "bob returned <" in error(cloud, {**clients, "bob": function}, holds)
        assert "setup= returned <" in error(cloud, clients, holds, setup=function)


def test_clients_that_race_over_memory_have_one_order_of_calls(cloud: Cloud, redis: Redis) -> None:
    seen: list[str] = []
    clients = {
        name: lambda name=name: seen.append(f"{name} {redis.get('k')}") for name in ("ann", "bob")
    }
    found = cloud.explore(clients, holds, kinds="switch")
    assert "the only possible interleaving of calls to the fakes (exhaustive)" in str(found)


def test_classes_of_queues_take_a_type(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        redis.ping()
        for kind in (queue.SimpleQueue[int], queue.Queue[int], queue.LifoQueue[int]):
            made = kind()
            made.put(1)
            assert made.get() == 1

    cloud.explore(run, holds, budget=2)
