"""Random numbers of explored code: other ones in each schedule, and the same when it is replayed."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import secrets
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastapi
import flask
import httpx
import numpy as np
import pytest
import upstash_workflow.fastapi
from qstash import AsyncQStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, ContractError, History, KVServer, Queue
from pytest_fakecloud.explore.values.schedule import Schedule

from .conftest import asgi_app, failure, holds, opened

NUMBERS: dict[str, Callable[[], object]] = {
    "random": random.random,
    "random.Random()": lambda: random.Random().random(),
    "random.seed()": lambda: (random.seed(), random.random()),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "secrets": lambda: secrets.randbelow(10**9),
    "default_rng": lambda: np.random.default_rng().random(),
    "numpy.random": lambda: np.random.rand(),
}
BYTES: dict[str, Callable[[], object]] = {
    "uuid4": uuid.uuid4,
    "urandom": lambda: os.urandom(8),
    "token_hex": lambda: secrets.token_hex(8),
}


def _drawn(draw: Callable[[], object], budget: int = 8, seed: int = 1) -> list[tuple[str, object]]:
    """Return the schedule and the drawn value of each trial."""
    values: list[object] = []
    schedules: list[str] = []
    with opened() as cloud:
        redis = cloud.kv_server().client()

        def run() -> None:
            values.append(draw())
            redis.ping()

        def check(history: object) -> None:
            schedules.append(str(history.schedule))  # type: ignore[attr-defined]

        cloud.explore(run, check, kinds=("delay", "numbers"), budget=budget, seed=seed)
    return list(zip(schedules, values, strict=True))


@pytest.mark.parametrize("name", NUMBERS)
def test_each_schedule_has_its_own_numbers(name: str) -> None:
    first = _drawn(NUMBERS[name])
    assert first == _drawn(NUMBERS[name]), "the same in another search"
    # A schedule that extends another one keeps its numbers.
    values = {Schedule.parse(text).series: value for text, value in first}
    assert len(set(values.values())) == len(values) > 4
    assert first[0] == first[1] == first[-1], "the undisturbed trial"


def test_a_module_that_draws_when_it_is_imported_leads_to_no_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drawing_module.py").write_text("import random\nNUMBER = random.random()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ContractError, match="numbers cannot happen in this code"):
        _drawn(lambda: importlib.import_module("drawing_module").__name__)


def test_identifiers_with_a_time_and_random_bits_depend_on_the_schedule() -> None:
    before = vars(uuid)["_last_timestamp"]
    first = _drawn(uuid.uuid1)
    assert first == _drawn(uuid.uuid1), "the same in another search"
    assert first[0] == first[1] == first[-1], "the undisturbed trial"
    assert len(set(first)) > 4
    assert vars(uuid)["_last_timestamp"] == before


@pytest.mark.parametrize("name", BYTES)
def test_random_bytes_alone_are_the_same_in_every_run(name: str) -> None:
    def draw() -> tuple[object, float]:
        return BYTES[name](), random.random()

    values = [value for _, value in _drawn(draw)]
    assert len(set(values)) > 4, "as a schedule's numbers"
    with opened() as cloud:
        seen: set[object] = set()
        redis = cloud.kv_server().client()

        def run() -> None:
            seen.add(BYTES[name]())
            redis.ping()

        result = cloud.explore({"ann": run}, holds, budget=20)
    assert len(seen) == 1
    assert "numbers" in result.untried


def _function_handler(queue: Queue, handle: Callable[[], None]) -> None:
    queue.destinations.call(f"{SHOP}/hook", lambda request: handle())


def _wsgi_handler(queue: Queue, handle: Callable[[], None]) -> None:
    app = flask.Flask("shop")
    app.post("/hook")(lambda: (handle(), "")[1])
    queue.destinations.wsgi(SHOP, app)


def _asgi_handler(queue: Queue, handle: Callable[[], None]) -> None:
    async def awaited() -> None:
        handle()

    queue.destinations.asgi(SHOP, asgi_app(awaited), lifespan=False)


def _fastapi_async_handler(queue: Queue, handle: Callable[[], None]) -> None:
    app = fastapi.FastAPI()

    @app.post("/hook")
    async def hook() -> None:
        handle()

    queue.destinations.asgi(SHOP, app)


def _fastapi_def_handler(queue: Queue, handle: Callable[[], None]) -> None:
    app = fastapi.FastAPI()
    app.post("/hook")(lambda: handle())
    queue.destinations.asgi(SHOP, app)


def _executor_handler(queue: Queue, handle: Callable[[], None]) -> None:
    async def awaited() -> None:
        await asyncio.get_running_loop().run_in_executor(None, handle)

    queue.destinations.asgi(SHOP, asgi_app(awaited), lifespan=False)


def _workflow_handler(queue: Queue, handle: Callable[[], None]) -> None:
    app = fastapi.FastAPI()
    client = AsyncQStash(queue.token, base_url=queue.url)
    serve = upstash_workflow.fastapi.Serve(app)

    @serve.post("/hook", qstash_client=client, receiver=None, url=f"{SHOP}/hook")
    async def hook(context: Any) -> None:
        async def step() -> None:
            handle()

        await context.run("draw", step)

    queue.destinations.asgi(SHOP, app)


SHOP = "https://shop.example.com"
HANDLERS = [
    _function_handler,
    _wsgi_handler,
    _asgi_handler,
    _fastapi_async_handler,
    _fastapi_def_handler,
    _executor_handler,
    _workflow_handler,
]


@pytest.mark.parametrize("is_awaited", [False, True], ids=["explore()", "aio.explore()"])
@pytest.mark.parametrize("add_handler", HANDLERS)
def test_each_kind_of_handler_draws_the_numbers_of_its_delivery(
    add_handler: Callable[[Queue, Callable[[], None]], None], is_awaited: bool
) -> None:
    """From every source, in whichever thread or event loop the handler runs."""
    searches: list[dict[str, dict[str, object]]] = []
    for _ in range(2):
        drawn: list[dict[str, object]] = []
        schedules: dict[str, dict[str, object]] = {}
        with opened() as cloud:
            redis, queue = cloud.kv_server().client(), cloud.queue()

            def handle(redis: Any = redis, drawn: list[Any] = drawn) -> None:
                values = {name: draw() for name, draw in {**NUMBERS, **BYTES}.items()}
                drawn.append(values)
                redis.set("drawn", repr(values))

            def check(history: History, drawn: list[Any] = drawn) -> None:
                schedules.setdefault(history.schedule, drawn[-1])  # noqa: B023 - called at once

            def publish(queue: Queue = queue) -> None:
                url = f"{queue.url}/v2/publish/{SHOP}/hook"
                httpx.post(url, headers=queue.headers)

            add_handler(queue, handle)
            options: Any = {"kinds": ("delay", "numbers"), "budget": 4, "seed": 1, "trust": False}
            if is_awaited:
                asyncio.run(cloud.aio.explore(publish, check, **options))
            else:
                cloud.explore(publish, check, **options)
        searches.append(schedules)
    first, second = searches
    assert first == second, "the same in another search"
    series = len({str(values) for values in first.values()})
    assert series > 2
    for name in {**NUMBERS, **BYTES}:
        assert len({str(values[name]) for values in first.values()}) == series, name


def test_a_branch_on_a_random_number_is_found_and_replayed(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def run() -> None:
        if random.random() < 0.1:
            redis.incr("n")
        redis.ping()

    def check() -> None:
        assert kv.value("n") is None, "counted"

    error = failure(cloud, run, check)
    assert str(error.schedule).startswith("@random.")
    assert str(error.schedule).endswith(" numbers")
    assert "cause: the code draws other random numbers, of series" in str(error)
    failure(cloud, run, check, schedule=error.schedule, match="by the given schedule")


def test_a_number_and_a_disturbance_break_a_promise_together(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def run() -> None:
        redis.set("lock", "x")
        redis.incr("n" if random.random() < 0.3 else "m")
        redis.delete("lock")

    def check() -> None:
        assert not (kv.value("lock") and kv.value("n")), "locked"

    error = failure(cloud, run, check, kinds=("crash", "numbers"))
    assert len(error.disturbances) == 2
    assert error.schedule.endswith(" numbers, run.3 crash")


def test_orders_with_random_numbers_are_exhaustive_for_these_numbers_only(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def run() -> None:
        redis.incr("n" if random.random() < 0.5 else "m")

    clients = {"ann": run, "bob": run}
    result = cloud.explore(clients, holds, kinds=("switch", "numbers"), budget=30)
    assert not result.is_exhaustive
    assert result.kinds["numbers"] > 10
    result = cloud.explore(clients, holds, kinds="switch", budget=30)
    assert "the random numbers were the same in each trial: kinds= omits 'numbers'" in str(result)


def test_generators_are_restored(cloud: Cloud, redis: Redis) -> None:
    before, before_numpy = random.getstate(), np.random.get_state()
    cloud.explore(lambda: redis.set("k", random.random() + np.random.rand()), holds, budget=2)
    assert random.getstate() == before
    for state, expected in zip(np.random.get_state(), before_numpy, strict=True):
        assert np.array_equal(state, expected)


def test_numbers_are_the_same_in_another_process() -> None:
    """Also in one that has not imported the generators of numpy, which it does late."""
    importlib.import_module("numpy.random")
    names = ("random", "numpy.random")
    drawn = f"[t._drawn(t.NUMBERS[name], 3) for name in {names!r}]"
    draw = f"from tests.explore import test_random as t; print({drawn})"
    done = subprocess.run([sys.executable, "-c", draw], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[_drawn(NUMBERS[name], 3) for name in names]}\n"
