"""Asynchronous clients: each schedule repeats, and the simulation waits for nothing in vain."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import httpx
import httpx2
import pytest
import redis
import redis.asyncio as redis_asyncio

from pytest_fakecloud import Cloud, History, KVServer
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.explore.fakes.gate import Aside, Gate
from pytest_fakecloud.explore.simulation.simulation import Simulation
from pytest_fakecloud.explore.values.trial import Trial

from .conftest import broken_if_disturbed, expects, failure, holds

Call = Callable[..., Awaitable[Any]]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The waits that ended only because their time was over."""
    resume = Aside.resume
    names: list[str] = []

    def noted(aside: Aside, go: Callable[[], None]) -> None:
        before = monotonic()
        resume(aside, go)
        if monotonic() - before > 5:
            names.append("for a fake")

    monkeypatch.setattr(Aside, "resume", noted)
    return names


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The disturbances, calls and points of each trial, in order."""
    make_trial = Simulation.make_trial
    results: list[Any] = []

    def noted(simulation: Simulation, *arguments: Any) -> Trial:
        trial = make_trial(simulation, *arguments)
        calls = [
            (line.strand, line.at_us, line.words if line.call is None else line.call.request_body)
            for line in trial.lines
        ]
        points = [(reached.strand, reached.point) for reached in trial.points]
        results.append(
            (list(map(str, trial.applied)), calls, points, list(map(repr, trial.errors)))
        )
        return trial

    monkeypatch.setattr(Simulation, "make_trial", noted)
    return results


def test_an_answer_that_is_not_read_is_not_awaited(
    cloud: Cloud, kv: KVServer, waits: list[str]
) -> None:
    async def client() -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url) as own:
            # redis-py 5.2 requires the name of a command, which later versions deprecate.
            command = ["INCR"] if redis.__version__.startswith("5.2.") else []
            given_up: Any = await own.connection_pool.get_connection(*command)
            given_up._writer.transport.pause_reading()
            await given_up.send_command("INCR", "n")
            await own.ping()
            await given_up.disconnect(nowait=True)
            await asyncio.sleep(1)
            await own.ping()

    result = cloud.explore(client, expects(kv, "1"), kinds="lose_response", budget=3)
    assert result.points == {"client": 3}, "the setup of a connection has no points"
    assert not waits


def test_an_answer_that_does_not_fit_into_the_sockets_buffers_is_read(
    cloud: Cloud, kv: KVServer, waits: list[str]
) -> None:
    kv.load({"large": "x" * 9_000_000})
    read: list[int] = []

    async def client() -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url) as own:
            value, _ = await asyncio.gather(own.get("large"), own.incr("n"))
            read.append(len(value))

    cloud.explore(client, schedule="")
    assert read == [9_000_000]
    assert not waits


def test_an_object_of_another_event_loop_is_explained(cloud: Cloud) -> None:
    shared = asyncio.Event()

    async def client() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(shared.wait(), 1)

    with pytest.raises(RuntimeError, match="different event loop") as raised:
        cloud.explore({"ann": client, "bob": client}, holds)
    (note,) = raised.value.__notes__
    assert "raised by bob in the undisturbed trial" in note
    assert "so create its connections inside it" in note


def test_a_request_whose_client_gave_up_is_handled(cloud: Cloud, kv: KVServer) -> None:
    async def client() -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url) as own:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(own.incr("n"), 1)

    cloud.explore(client, expects(kv, "1"), schedule="client.1 delay 30")


def test_a_blocking_client_in_a_coroutine_takes_turns(
    cloud: Cloud, kv: KVServer, waits: list[str]
) -> None:
    with redis.Redis.from_url(kv.database_url) as own:

        async def client() -> None:
            own.set("n", int(own.get("n") or 0) + 1)

        error = failure(cloud, {"ann": client, "bob": client}, expects(kv, "2"), kinds="switch")
    assert error.schedule == "ann.2 switch bob"
    assert not waits


def test_a_blocked_request_ends_with_its_event_loop(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    unblock = kv._engine.unblock

    def slowly(waiter: Any) -> Any:
        Gate().acquire(0.05)  # so that a thread that does not wait goes on first
        return unblock(waiter)

    async def wait() -> None:
        own = redis_asyncio.Redis.from_url(kv.database_url)
        waiting = asyncio.create_task(own.blpop(["jobs"], 60))
        await asyncio.sleep(1)
        waiting.cancel()

    def client() -> None:
        asyncio.run(wait())
        assert kv.journal.calls(command="BLPOP")[-1].outcome != "open"

    monkeypatch.setattr(kv._engine, "unblock", slowly)
    cloud.explore(client, holds, schedule="")


# -- repetition ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _redis(kv: KVServer) -> AsyncIterator[Call]:
    async with redis_asyncio.Redis.from_url(kv.database_url) as client:
        yield client.execute_command


@contextlib.asynccontextmanager
async def _httpx(kv: KVServer) -> AsyncIterator[Call]:
    async with httpx.AsyncClient(headers=kv.headers) as client:

        async def call(*words: str) -> object:
            return (await client.post(kv.url, json=words)).json()

        yield call


@contextlib.asynccontextmanager
async def _httpx2(kv: KVServer) -> AsyncIterator[Call]:
    async with httpx2.AsyncClient(headers=kv.headers) as client:

        async def call(*words: str) -> object:
            return (await client.post(kv.url, json=words)).json()

        yield call


@contextlib.asynccontextmanager
async def _aiohttp(kv: KVServer) -> AsyncIterator[Call]:
    aiohttp: Any = pytest.importorskip("aiohttp")
    async with aiohttp.ClientSession(headers=kv.headers) as client:

        async def call(*words: str) -> object:
            async with client.post(kv.url, json=words) as answer:
                return await answer.json()

        yield call


@contextlib.asynccontextmanager
async def _streams(kv: KVServer) -> AsyncIterator[Call]:
    url = httpx.URL(kv.url)

    async def call(*words: str) -> object:
        body = json.dumps(words)
        headers = {**kv.headers, "Host": "fake", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(f"POST / HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            writer.write(body.encode())
            return await reader.read()
        finally:
            writer.close()

    yield call


@contextlib.asynccontextmanager
async def _threads(kv: KVServer) -> AsyncIterator[Call]:
    with redis.Redis.from_url(kv.database_url) as client:
        yield functools.partial(asyncio.to_thread, client.execute_command)


@pytest.mark.parametrize(
    ("connect", "options"),
    [
        *((connect, {"budget": 4}) for connect in (_redis, _httpx, _httpx2, _aiohttp, _streams)),
        # The search may depend on the time at which the threads of a pool end.
        (_threads, {"schedule": ""}),
    ],
)
def test_the_schedules_of_an_asynchronous_client_repeat(
    cloud: Cloud,
    kv: KVServer,
    waits: list[str],
    trials: list[Any],
    connect: Callable[[KVServer], contextlib.AbstractAsyncContextManager[Call]],
    options: Any,
) -> None:
    if connect is _aiohttp:
        pytest.importorskip("aiohttp")

    async def add(call: Call, key: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await call("GET", key)
                await asyncio.sleep(1)
                await call("INCR", key)

    async def client() -> None:
        async with connect(kv) as call:
            await asyncio.gather(*(add(call, key) for key in "aab"))
            async with asyncio.TaskGroup() as group:
                group.create_task(add(call, "c"))
                group.create_task(add(call, "a"))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(call("SET", "d", "1"), 20)
            await call("GET", "d")

    clients = {"ann": client, "bob": client}
    explored = []
    for _ in range(2):
        trials.clear()
        cloud.explore(clients, holds, **options)
        explored.append(list(trials))
    assert len(explored[0]) >= options.get("budget", 1)
    assert explored[0] == explored[1]
    assert not waits


def test_a_call_that_timed_out_has_its_own_events(cloud: Cloud, kv: KVServer) -> None:
    async def run() -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url) as client:
            try:
                await asyncio.wait_for(client.incr("n"), 2)
            except TimeoutError:
                with contextlib.suppress(redis.ConnectionError):
                    await client.set("gave", "up")

    error = failure(cloud, run, broken_if_disturbed, schedule="run.1 delay 30")
    assert error.cause.startswith("run pauses for 30 s before its call: INCRBY n 1 ")
    failure(cloud, run, broken_if_disturbed, schedule="run.1 delay 30, run.2 drop")


# -- task groups -----------------------------------------------------------------------------------

Work = Callable[[str], Coroutine[Any, Any, object]]


async def _gathered(work: Work) -> None:
    await asyncio.gather(work("a"), work("b"))


async def _in_group_of_asyncio(work: Work) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        group.create_task(work("b"))


async def _in_group_of_anyio(work: Work) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(work, "a")
        group.start_soon(work, "b")


async def _in_group_of_trio(work: Work) -> None:
    import trio

    async with trio.open_nursery() as group:  # trio takes tasks in a random order
        group.start_soon(work, "a")


def _start(group: Callable[[Work], Coroutine[Any, Any, None]], work: Work) -> None:
    if group is _in_group_of_trio:
        pytest.importorskip("trio").run(group, work)
    else:
        asyncio.run(group(work))


@pytest.mark.parametrize("group", [_gathered, _in_group_of_asyncio, _in_group_of_anyio])
def test_every_order_of_the_tasks_of_a_group_is_tried(
    group: Callable[[Work], Coroutine[Any, Any, None]], cloud: Cloud, kv: KVServer
) -> None:
    seen = set()

    async def client() -> None:
        async with httpx.AsyncClient(headers=kv.headers) as http:

            async def push(name: str) -> None:
                for _ in range(2):
                    await http.post(kv.url, json=["RPUSH", "log", name])

            await group(push)

    def check() -> None:
        seen.add("".join(kv.value("log") or ()))

    result = cloud.explore(client, check, kinds="switch", trust=False)
    assert seen == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}
    assert "(exhaustive)" in str(result)


@pytest.mark.parametrize("keys", [("a", "b"), ("n", "n")], ids=["two keys", "one connection"])
def test_tasks_with_timers_have_the_only_possible_interleaving(
    keys: tuple[str, str], cloud: Cloud, kv: KVServer
) -> None:
    """Clients of the Redis protocol have time-outs, so moves of the clock would be further orders."""

    async def client() -> None:
        is_shared = keys == ("n", "n")
        async with redis_asyncio.Redis.from_url(
            kv.database_url, single_connection_client=is_shared
        ) as database:
            await asyncio.gather(*map(database.incr, keys))

    result = cloud.explore(client, holds, kinds=("switch",), trust=False)
    assert str(result).startswith(
        "the promise held in the only possible interleaving of calls to the fakes in "
    )
    assert "(in which the clock moves only when all wait; seed" in str(result)
    assert (result.orders, result.is_exhaustive) == (1, False)


@pytest.mark.parametrize(
    "group", [_gathered, _in_group_of_asyncio, _in_group_of_anyio, _in_group_of_trio]
)
def test_a_crash_in_a_group_of_tasks_is_a_crash_of_the_client(
    group: Callable[[Work], Coroutine[Any, Any, None]], cloud: Cloud, kv: KVServer
) -> None:
    def client() -> None:
        async def add(name: str) -> None:
            async with httpx.AsyncClient(headers=kv.headers) as http:
                (await http.post(kv.url, json=["SADD", "done", name])).raise_for_status()

        _start(group, add)

    def check(history: History) -> None:
        if "client" in history.results:
            assert "a" in kv.value("done")

    result = cloud.explore({"client": client}, check, kinds="crash", budget=40)
    assert result.kinds["crash"]
