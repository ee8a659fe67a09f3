"""Threads that began before the exploration: the time waits for them, and errors name them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
import redis as redis_py
import redis.asyncio as redis_asyncio
from fastapi import FastAPI
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis
from werkzeug import Request, Response

from pytest_fakecloud import Cloud, History, KVServer, always
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.signals import Signal
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.explore.explore import player_for
from pytest_fakecloud.explore.simulation import outsiders
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.subject.programs import programs_of
from pytest_fakecloud.explore.values.limits import CHECKS_AT_START
from pytest_fakecloud.explore.values.plan import Plan

from ..harness import apart, wait_until
from .conftest import broken, failure, holds, publishes_to_asgi
from .test_verdicts import error

with warnings.catch_warnings():
    # The test client warns about the HTTP client that it is built on.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells whether a thread has run"
)
NOTE = "not explored: the thread early_0, which began before explore()"


@pytest.fixture
def redis(kv: KVServer) -> Redis:
    """A client without retries, before which a thread that is not explored would sleep in real time."""
    return Redis(kv.url, kv.token, rest_retries=0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "early") as pool:
        pool.submit(int).result()
        yield pool


def _busy() -> None:
    """Compute, without a call or a wait, for longer than a thread may keep the interpreter."""
    for _ in range(300_000):
        pass


def test_the_clock_waits_for_a_busy_pool_thread(
    cloud: Cloud, kv: KVServer, pool: ThreadPoolExecutor
) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def work() -> None:
        _busy()
        redis.incr("n")

    def run() -> None:
        redis.set("begun", "yes")
        pool.submit(work).result(timeout=5)

    def check() -> None:
        assert kv.value("n") == "1"

    result = cloud.explore(run, check, kinds="tick", budget=8)
    assert NOTE in result.notes


def test_a_thread_that_has_failed_before_it_began_holds_up_no_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python lists it like a thread that is alive."""
    thread = threading.Thread()
    monkeypatch.setitem(threading._limbo, thread, thread)  # type: ignore[attr-defined]
    assert thread in threading.enumerate()
    others = outsiders.Outsiders(())
    assert thread not in others._idle
    assert thread not in others._all_threads()


@contextlib.contextmanager
def _thread(function: Callable[[], object], end: threading.Event) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    yield thread
    end.set()
    thread.join(30)
    assert not thread.is_alive()


def _checks(others: outsiders.Outsiders, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many checks these threads take until they are idle, or are no longer awaited."""
    naps: list[None] = []
    nap = outsiders.nap
    with monkeypatch.context() as patch:
        patch.setattr(outsiders, "nap", lambda: naps.append(nap()))
        others.await_idle(lambda: False)
    return len(naps)


def test_a_thread_in_a_function_of_the_package_is_idle_where_it_waits_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the thread of an event loop that awaits ``AioCloud.explore()``."""
    inside, is_outside, end = Signal(), threading.Event(), threading.Event()

    def wait() -> None:
        inside.sleep(0, 30)
        is_outside.set()
        end.wait(30)

    with _thread(wait, end):
        wait_until(lambda: inside._sleepers)
        others = outsiders.Outsiders(())
        inside.notify()
        is_outside.wait(30)
        _checks(others, monkeypatch)
        assert _checks(others, monkeypatch) < 10


@linux_only
def test_a_thread_that_never_rests_is_awaited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    is_busy, works, rests, end = (threading.Event() for _ in range(4))

    def work() -> None:
        while not end.is_set():
            if is_busy.is_set():
                works.set()
            else:
                rests.set()
                is_busy.wait(30)

    monkeypatch.setattr(outsiders, "CHECKS_OF_OUTSIDERS", 30)
    with _thread(work, end) as thread:
        rests.wait(30)
        others = outsiders.Outsiders(())

        def has_rested() -> bool:
            return _checks(others, monkeypatch) < 30 and not others._restless

        for _ in range(2):
            wait_until(has_rested)
            works.clear()
            is_busy.set()
            works.wait(30)
            assert _checks(others, monkeypatch) == 30
            assert _checks(others, monkeypatch) < 10
            rests.clear()
            is_busy.clear()
            rests.wait(30)
        wait_until(has_rested)
        works.clear()
        is_busy.set()
        works.wait(30)
        assert _checks(others, monkeypatch) == 30
        others.note_use(thread)
        with pytest.raises(ContractError, match="makes calls for the code and goes on working"):
            others.await_idle(lambda: False)


@linux_only
def test_a_thread_that_stays_idle_holds_up_no_trial(
    cloud: Cloud, kv: KVServer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis, naps = Redis(kv.url, kv.token, rest_retries=0), []
    nap = outsiders.nap
    monkeypatch.setattr(outsiders, "nap", lambda: (naps.append(1), nap()))

    def check() -> None:
        assert kv.value("n") != "0"

    increment = partial(redis.incr, "n")
    result = cloud.explore([increment, increment], check, budget=20)
    assert result.tried > 3
    # One at the first trial's end, besides those at the start, and a few on a busy machine.
    assert len(naps) < CHECKS_AT_START + result.tried


@pytest.mark.parametrize("transport", ["HTTP", "Redis protocol"])
def test_late_calls_of_a_thread_belong_to_their_run(
    cloud: Cloud, kv: KVServer, pool: ThreadPoolExecutor, transport: str
) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def work() -> None:
        _busy()
        if transport == "HTTP":
            redis.incr("n")
        else:
            with redis_py.Redis.from_url(kv.database_url) as own:
                own.incr("n")

    def run() -> None:
        redis.set("begun", "yes")
        pool.submit(work)

    def check() -> None:
        assert kv.value("n") == "1"

    result = cloud.explore(run, check, kinds="tick", budget=8)
    assert NOTE in result.notes


def test_a_thread_that_goes_on_working_is_an_error(
    cloud: Cloud, redis: Redis, pool: ThreadPoolExecutor
) -> None:
    done = threading.Event()

    def work() -> None:
        redis.incr("n")
        done.wait(30)

    def run() -> None:
        redis.get("n")
        pool.submit(work)

    try:
        text = error(cloud, run, holds)
    finally:
        done.set()
    assert "the thread early_0, which began before explore(), makes calls" in text


def test_an_error_about_differing_runs_names_the_thread(
    cloud: Cloud, redis: Redis, pool: ThreadPoolExecutor
) -> None:
    numbers = iter(range(100))

    def run() -> None:
        pool.submit(lambda: redis.set("n", next(numbers))).result()

    assert NOTE in error(cloud, run, holds)


def _application(kv: KVServer) -> FastAPI:
    """Return an application in which the first client becomes the owner of a key."""
    app = FastAPI()

    @app.post("/plain/{name}")
    def plain(name: str) -> None:
        redis = Redis(kv.url, kv.token, rest_retries=0)
        if redis.set("owner", name, nx=True):
            redis.incr("n")

    @app.post("/asynchronous/{name}")
    async def asynchronous(name: str) -> None:
        async with AsyncRedis(kv.url, kv.token, rest_retries=0) as redis:
            if await redis.set("owner", name, nx=True):
                await redis.incr("n")

    @app.post("/protocol/{name}")
    async def protocol(name: str) -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url, retry=None) as redis:
            if await redis.set("owner", name, nx=True):
                await redis.incr("n")

    return app


@pytest.mark.parametrize("kind", ["plain", "asynchronous", "protocol"])
def test_calls_through_a_running_client_of_an_application_are_those_of_the_request(
    cloud: Cloud, kv: KVServer, kind: str
) -> None:
    def post() -> list[int]:
        return [client.post(f"/{kind}/{name}").status_code for name in ("ann", "bob")]

    with TestClient(_application(kv), raise_server_exceptions=False) as client:
        story = failure(cloud, post, broken).story
        result = cloud.explore(post, holds, budget=8)
    assert re.findall(r"(\w+): SET owner ann .*SET owner bob", story) == ["post"]
    assert result.tried == 8
    if kind != "plain":
        loop = "the event loop of a running TestClient, which began before explore()"
        assert f"not explored: the order of calls in {loop}" in result.notes


@pytest.mark.parametrize("late", ["ann", "bob"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_several_clients_of_a_running_application_are_an_error(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch, kind: str, late: str
) -> None:
    """The error is the same whichever request reaches a fake first."""
    monkeypatch.setattr(outsiders, "CHECKS_OF_OUTSIDERS", 2)
    app, redis = FastAPI(), Redis(kv.url, kv.token, rest_retries=0)
    gates: list[threading.Event] = []

    def plain(name: str) -> None:
        # The gate opens when the other request has been answered, or refused.
        if name == late:
            gates[-1].wait(10)
        try:
            redis.incr("n")
        finally:
            if name != late:
                gates[-1].set()

    async def asynchronous(name: str) -> None:
        await asyncio.to_thread(plain, name)

    app.post("/{name}")(plain if kind == "def" else asynchronous)
    texts: list[str] = []
    with TestClient(app, raise_server_exceptions=False) as web:
        clients = {name: partial(web.post, f"/{name}") for name in ("ann", "bob")}
        for _ in range(5):
            gates.append(threading.Event())
            texts.append(error(cloud, clients, holds))
        assert web.post("/a/missing/page").status_code == 404, "the client still runs"
    assert (
        "several clients or threads use the fakes, through the event loop of a running" in texts[0]
    )
    assert "`with TestClient(app) as client:`" in texts[0]
    assert set(texts) == {texts[0]}


def test_several_threads_of_a_client_of_a_running_application_are_an_error(
    cloud: Cloud, kv: KVServer
) -> None:
    """Also if one ends before the other one uses a fake; threads that follow each other are none."""

    def start(*names: str) -> None:
        threads = [threading.Thread(target=web.post, args=(f"/protocol/{name}",)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def start_in_turn() -> None:
        start("ann")
        start("bob")

    with TestClient(_application(kv), raise_server_exceptions=False) as web:
        assert "several clients or threads use the fakes" in error(
            cloud, lambda: start("ann", "bob"), holds
        )
        assert cloud.explore(start_in_turn, holds, budget=2, trust=False).tried == 2


def test_several_clients_of_a_pool_from_before_are_an_error(
    cloud: Cloud, redis: Redis, pool: ThreadPoolExecutor
) -> None:
    def work() -> None:
        pool.submit(redis.incr, "n").result()

    text = error(cloud, {"ann": work, "bob": work}, holds)
    assert (
        "several clients or threads use the fakes, through a thread or an event loop that began"
        in text
    )
    assert "start the thread, or the pool or the event loop that it belongs to, within" in text


@pytest.mark.parametrize("beside", ["client", "thread", "own pool"])
def test_a_pool_from_before_beside_other_calls_of_a_client_is_an_error(
    cloud: Cloud, redis: Redis, pool: ThreadPoolExecutor, beside: str
) -> None:
    """In one order, another strand could make its call while the pool makes one."""

    def work() -> None:
        pool.submit(redis.incr, "n").result()

    def run() -> None:
        if beside == "own pool":
            with ThreadPoolExecutor(2) as own:
                list(own.map(lambda function: function(), [work, lambda: redis.incr("n")]))
            return
        threads = [threading.Thread(target=work)]
        if beside == "thread":
            threads.append(threading.Thread(target=redis.incr, args=("n",)))
        for thread in threads:
            thread.start()
        if beside == "client":
            redis.incr("n")
        for thread in threads:
            thread.join()

    texts = [error(cloud, run, holds, budget=60) for _ in range(2)]
    assert "several clients or threads use the fakes" in texts[0]
    assert "start the thread, or the pool or the event loop that it belongs to" in texts[0]
    assert set(texts) == {texts[0]}


@pytest.mark.parametrize("block", ["with", "without"])
@pytest.mark.parametrize("kind", ["plain", "protocol"])
def test_trials_of_applications_that_clients_open_repeat(
    cloud: Cloud, kv: KVServer, kind: str, block: str
) -> None:
    """As the error about several clients of a running application advises."""
    app, trials = _application(kv), list[tuple[object, ...]]()
    shared = TestClient(app, raise_server_exceptions=False)

    def post(name: str) -> int:
        with contextlib.ExitStack() as stack:
            own = TestClient(app, raise_server_exceptions=False)
            client = stack.enter_context(own) if block == "with" else shared
            return client.post(f"/{kind}/{name}").status_code

    def check(history: History) -> None:
        trials.append((history.schedule, dict(history.results), kv.contents()))

    def explored_once() -> tuple[int, list[tuple[object, ...]]]:
        trials.clear()
        clients = {name: partial(post, name) for name in ("ann", "bob")}
        result = cloud.explore(clients, check, budget=10, trust=False)
        return result.orders, [*trials]

    first = explored_once()
    assert first[0] > 3, "the order of the calls is explored"
    assert explored_once() == first


@pytest.mark.parametrize("kinds", ["lose_response", "drop"])
@pytest.mark.parametrize("sleeper", ["client", "coroutine", "function"])
def test_sleeps_behind_a_running_client_of_an_application_take_fake_time(
    cloud: Cloud, kv: KVServer, sleeper: str, kinds: Any
) -> None:
    """Of the Redis client before its retry, or of the application's own code."""
    app, retries = FastAPI(), int(sleeper == "client")
    redis = Redis(kv.url, kv.token, rest_retries=retries, rest_retry_interval=600)
    asynchronous = AsyncRedis(kv.url, kv.token, rest_retries=retries, rest_retry_interval=600)

    @app.post("/function")
    def function() -> None:
        time.sleep(600)
        redis.incr("taken")

    @app.post("/coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(600)
        await asynchronous.incr("taken")

    @app.post("/client")
    async def client() -> None:
        await asynchronous.incr("taken")

    def check() -> None:
        assert int(kv.value("taken") or 0) <= 2

    before = monotonic()
    with TestClient(app, raise_server_exceptions=False) as web:
        post = partial(web.post, f"/{sleeper}")
        result = cloud.explore(post, check, kinds=kinds, budget=4, trust=False)
        assert result.tried
        assert web.post("/missing").status_code == 404, "the client still runs"
    assert monotonic() - before < 60


def test_the_end_of_a_strand_wakes_a_sleep_in_a_running_client(cloud: Cloud, kv: KVServer) -> None:
    app, redis = FastAPI(), AsyncRedis(kv.url, kv.token)

    @app.post("/")
    async def take() -> None:
        await asyncio.sleep(4)
        await redis.incr("taken")

    def check() -> None:
        assert int(kv.value("taken") or 0) <= 2

    with TestClient(app, raise_server_exceptions=False) as web:
        assert cloud.explore(lambda: web.post("/"), check, budget=12, trust=False).tried


@pytest.mark.parametrize("transport", ["REST", "Redis protocol"])
@pytest.mark.parametrize("starts", ["a thread", "a call of an executor"])
def test_late_calls_for_a_request_of_an_earlier_run_belong_to_no_run(
    cloud: Cloud, kv: KVServer, starts: str, transport: str
) -> None:
    app, redis = FastAPI(), Redis(kv.url, kv.token, rest_retries=0)
    (begin, begins), (end, ends) = os.pipe(), os.pipe()
    errors: list[Exception] = []
    runs: list[int] = []

    def work() -> None:
        os.read(begin, 1)
        try:
            if transport == "REST":
                redis.incr("late")
            else:
                with redis_py.Redis.from_url(kv.database_url, retry=None) as own:
                    own.incr("late")
        except Exception as error:
            errors.append(error)
        finally:
            os.write(ends, b"x")

    @app.post("/")
    async def handler() -> None:
        runs.append(1)
        if len(runs) == 1:
            if starts == "a thread":
                threading.Thread(target=work).start()
            else:
                asyncio.get_running_loop().run_in_executor(None, work)
        elif len(runs) == 2:
            os.write(begins, b"x")
            os.read(end, 1)
        async with AsyncRedis(kv.url, kv.token, rest_retries=0) as own:
            await own.incr("n")

    def check() -> None:
        assert kv.value("late") is None
        assert int(kv.value("n") or 0) < 2

    with TestClient(app, raise_server_exceptions=False) as client:
        cloud.explore(lambda: client.post("/"), check, kinds="respond", budget=3, trust=False)
    assert len(errors) == 1


@pytest.mark.parametrize("where", ["def", "to_thread", "executor"])
def test_threads_of_an_asgi_destination_sleep_in_fake_time(
    cloud: Cloud, kv: KVServer, where: str
) -> None:
    app, queue = FastAPI(), cloud.queue()
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def work() -> None:
        time.sleep(30)
        redis.set("handled", cloud.clock.now().isoformat())

    async def hook() -> None:
        if where == "to_thread":
            await asyncio.to_thread(work)
        else:
            await asyncio.get_running_loop().run_in_executor(None, work)

    app.post("/hook")(work if where == "def" else hook)
    queue.destinations.asgi("https://app.example.com", app)
    publish = partial(queue.publish, "https://app.example.com/hook")

    def check() -> None:
        assert kv.value("handled") == "2026-11-20T12:00:30+00:00"

    before = monotonic()
    for _ in range(2):  # The threads of the first exploration began before the second one.
        cloud.explore(publish, check, schedule="")
    assert monotonic() - before < 20


def test_an_asgi_destination_sleeps_in_fake_time_if_its_loop_starts_in_a_trial(
    cloud: Cloud, kv: KVServer
) -> None:
    async def handle() -> None:
        await asyncio.sleep(30)
        kv.execute("SET", "handled", cloud.clock.now().isoformat())

    publish = publishes_to_asgi(cloud, handle)

    def check() -> None:
        assert kv.value("handled") == "2026-11-20T12:00:30+00:00"

    cloud.explore(publish, check, schedule="")


def test_a_handler_of_a_destination_sleeps_in_fake_time(cloud: Cloud, kv: KVServer) -> None:
    redis, target = Redis(kv.url, kv.token, rest_retries=0), cloud.destination()
    publish = cloud.queue().client().message.publish

    def handler(request: Request) -> Response:
        time.sleep(30)
        redis.set("handled", cloud.clock.now().isoformat())
        return Response("ok")

    target.server.expect_request("/hook").respond_with_handler(handler)

    def check() -> None:
        assert kv.value("handled") == "2026-11-20T12:00:30+00:00"

    before = monotonic()
    cloud.explore(lambda: publish(url=f"{target.url}/hook"), check, schedule="")
    assert monotonic() - before < 20


NAMED = """
import functools
import threading

real_start = threading.Thread.start

@functools.wraps(real_start)
def start(thread):
    run = getattr(thread.run, "__func__", thread.run)
    thread.run = lambda: run(thread)
    real_start(thread)

threading.Thread.start = start
"""
"""A wrapper that names what it wraps."""
UNNAMED = NAMED.replace("@functools.wraps(real_start)\n", "")

WRAPPED = """
import threading
import redis
import redis.asyncio
import wrapper

def explore(fakecloud, kv_server, client):
    clients = {"ann": client, "bob": client}
    fakecloud.explore(clients, lambda: kv_server.value("n") == "2", kinds="switch", budget=5)

def test_threads(fakecloud, kv_server):
    def count():
        with redis.Redis.from_url(kv_server.database_url) as client:
            client.incr("n")
    def work():
        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
    explore(fakecloud, kv_server, work)

def test_event_loops(fakecloud, kv_server):
    async def count():
        async with redis.asyncio.Redis.from_url(kv_server.database_url) as client:
            await client.incr("n")
    explore(fakecloud, kv_server, count)
"""


@pytest.mark.parametrize(
    ("wrapper", "options"), [(NAMED, ()), (UNNAMED, ("-pwrapper",))], ids=["late", "early-unnamed"]
)
def test_a_tool_wraps_the_start_and_the_run_of_threads(
    pytester: pytest.Pytester, wrapper: str, options: tuple[str, ...]
) -> None:
    """Such as sentry-sdk, and the instrumentation of threads of OpenTelemetry."""
    pytester.makepyfile(wrapper=wrapper, test_wrapped=WRAPPED)
    apart(pytester, "-ptimeout", "--timeout=20", *options).assert_outcomes(passed=2)


FIRST = """
import warnings

import pytest
import redis
import redis.asyncio
from fastapi import FastAPI
from pytest_fakecloud.explore.search.player import Player

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

def application(kv_server, kind):
    app, rest = FastAPI(), kv_server.client()
    protocol = redis.Redis.from_url(kv_server.database_url)

    @app.post("/plain")
    def plain():
        client = rest if kind == "rest" else protocol
        for _ in range(3):
            client.incr("n")
        client.get("n")

    @app.post("/asynchronous")
    async def asynchronous():
        async with redis.asyncio.Redis.from_url(kv_server.database_url) as client:
            for _ in range(3):
                await client.incr("n")
            await client.get("n")

    return app

def test_schedules(fakecloud, kv_server, monkeypatch):
    kind = KIND
    path = "/asynchronous" if kind == "asynchronous" else "/plain"
    played, play = [], Player.play

    def noted(player, plan, **options):
        played[-1].append(str(plan.schedule))
        return play(player, plan, **options)

    def check():
        assert kv_server.value("n") != "7"

    monkeypatch.setattr(Player, "play", noted)
    with TestClient(application(kv_server, kind), raise_server_exceptions=False) as web:
        for _ in range(2):
            played.append([])
            fakecloud.explore(lambda: web.post(path), check, budget=10, seed=1)
    assert played[0] == played[1]
"""


@pytest.mark.parametrize("kind", ["rest", "protocol", "asynchronous"])
def test_the_first_exploration_of_a_process_tries_the_same_schedules(
    pytester: pytest.Pytester, kind: str
) -> None:
    pytester.makepyfile(test_first=FIRST.replace("KIND", repr(kind)))
    apart(pytester).assert_outcomes(passed=1)


def test_each_thread_has_a_row(
    cloud: Cloud, kv: KVServer, redis: Redis, pool: ThreadPoolExecutor
) -> None:
    rows: dict[str, set[str]] = {}

    def note(name: str) -> None:
        world = player.world
        origin = "" if world.simulation is None else world.simulation.current_thread.origin()
        rows.setdefault(name, set()).add(origin or world.current_thread.role().name)

    def run() -> None:
        note("client")
        redis.set("k", "v")
        thread = threading.Thread(target=note, args=("its thread",))
        thread.start()
        thread.join()
        pool.submit(note, "thread from before").result(timeout=5)
        pool.submit(copy_context().run, note, "its context").result(timeout=5)

    promise = always(lambda: note("promise") or True)
    setup = Options(setup=partial(note, "setup"))
    with player_for(cloud, programs_of(run, ()), promise, setup) as player:
        player.play(Plan())
        note("check")
    assert rows == {
        "setup": {"setup"},
        "client": {"strand"},
        "its thread": {"strand"},
        "thread from before": {"outsider"},
        "its context": {"outsider"},
        "promise": {"promise", "check"},  # after each step, and at the end
        "check": {"check"},
    }
