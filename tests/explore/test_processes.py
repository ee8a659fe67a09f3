"""Several processes find what one finds: the same verdict, and the same first failing schedule."""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis
import redis.asyncio
from upstash_redis import Redis

from pytest_fakecloud import BrokenPromiseError, Cloud, KVServer, sometimes
from pytest_fakecloud.explore.guests import ahead
from pytest_fakecloud.explore.guests.ahead import Ahead

from .bugs.deep import open_breaker
from .bugs.ten import commit_before_work, exactly_once, lost_update, scheduler
from .conftest import asgi_app, opened, publishes_to_asgi

pytestmark = pytest.mark.skipif(not ahead.CAN_FORK, reason="the search runs in one process here")
BUDGET = 30


def by_rest(kv: KVServer, exits: ExitStack) -> Callable[[], object]:
    client = Redis(kv.url, kv.token)
    return lambda: client.incr("n") + client.incr("n")


def by_protocol(kv: KVServer, exits: ExitStack) -> Callable[[], object]:
    # The same connection in all trials.
    client = exits.enter_context(redis.Redis.from_url(kv.database_url))
    return lambda: client.incr("n") and client.incr("n")


def by_asyncio(kv: KVServer, exits: ExitStack) -> Callable[[], object]:
    async def run() -> None:
        async with redis.asyncio.Redis.from_url(kv.database_url) as client:
            await asyncio.gather(client.incr("n"), client.incr("n"))

    return run


def by_sockets(kv: KVServer, exits: ExitStack) -> Callable[[], object]:
    host, port = kv.url.removeprefix("http://").split(":")

    def run() -> None:
        connection = http.client.HTTPConnection(host, int(port))
        headers = {"Authorization": f"Bearer {kv.token}"}
        for _ in range(2):
            connection.request("POST", "/", '["INCR","n"]', headers)
            connection.getresponse().read()
        connection.close()

    return run


async def nothing() -> None:
    """The work of an application."""


def few(kv: KVServer) -> Callable[[], None]:
    """Return a check that reads the counter and always holds."""

    def check() -> None:
        assert int(kv.value("n") or 0) < 20

    return check


@pytest.fixture
def ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each planned schedule, whether another process has played it."""
    flags: list[bool] = []
    take = Ahead.take

    def noted(self: Ahead, *args: Any, **options: Any) -> Any:
        run = take(self, *args, **options)
        flags.append(run is not None)
        return run

    monkeypatch.setattr(Ahead, "take", noted)
    return flags


@pytest.mark.parametrize("client", [by_rest, by_protocol, by_asyncio, by_sockets])
def test_the_verdict_is_that_of_one_process(
    client: Callable[[KVServer, ExitStack], Any], ahead_of_time: list[bool]
) -> None:
    texts = []
    for processes in (1, 3):
        with opened() as cloud, ExitStack() as exits:
            kv = cloud.kv_server()
            run = client(kv, exits)
            result = cloud.explore([run, run], few(kv), budget=BUDGET, processes=processes)
            texts.append(str(result).partition(" s (")[2])
    assert texts[1] == texts[0]
    assert sum(ahead_of_time) > BUDGET * 3 / 4, "the process that decides played too many itself"


@pytest.mark.parametrize(
    "make", [lost_update, commit_before_work, exactly_once, scheduler, open_breaker]
)
def test_the_first_failing_schedule_is_that_of_one_process(make: Callable[..., Any]) -> None:
    failures = []
    for processes in (1, 2):
        with opened() as cloud:
            of = make(cloud, False)
            options = {**of.options, "processes": processes}
            with pytest.raises(BrokenPromiseError) as raised:
                cloud.explore(of.run, of.check, workers=of.workers, setup=of.setup, **options)
            failures.append((raised.value.schedule, raised.value.tried, raised.value.cause))
    assert failures[1] == failures[0]


def test_anomalies_seen_by_another_process_are_reported(cloud: Cloud, kv: KVServer) -> None:
    client = Redis(kv.url, kv.token)
    lost = sometimes(lambda: kv.value("n") == "1")

    def run() -> None:
        client.set("n", int(client.get("n") or 0) + 1)

    result = cloud.explore([run, run], [few(kv), lost], budget=BUDGET, processes=2)
    assert any(text.startswith("not serializable (n)") for text in result.anomalies)


@pytest.mark.timeout(20)  # Without a loop, a trial ends after 30 s.
def test_a_process_has_its_own_loop_for_applications_that_the_undisturbed_run_does_not_reach(
    cloud: Cloud, kv: KVServer, ahead_of_time: list[bool]
) -> None:
    client, queue = Redis(kv.url, kv.token), cloud.queue()
    queue.destinations.call("https://shop.test", lambda _: 200 if client.incr("n") else 500)
    queue.destinations.asgi("https://alerts.test", asgi_app(nothing), lifespan=False)
    publish = queue.client().message.publish
    publish(url="https://alerts.test/")
    queue.run_until_idle()  # starts the loop in this process

    def run() -> None:
        publish(url="https://shop.test/paid", retries=0, failure_callback="https://alerts.test/")

    result = cloud.explore(run, few(kv), budget=60, processes=2)
    assert result.tried == 60
    assert any(ahead_of_time)


def test_schedules_of_a_process_that_ended_are_played_in_the_search(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_unremarkable", lambda *_: os._exit(3))
    result = cloud.explore(by_rest(kv, ExitStack()), few(kv), budget=60, processes=2)
    assert result.tried == 60


@pytest.mark.parametrize(("workers", "processes"), [("", 6), ("2", 3), ("4", 1), ("12", 1)])
def test_auto_is_the_number_of_cores_that_xdist_leaves(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch, workers: str, processes: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", workers)
    if not workers:
        monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT")
    started: list[int] = []
    monkeypatch.setattr(
        Ahead, "_start", lambda self: started.append(self.processes) or no_more(self)
    )
    result = cloud.explore(by_rest(kv, ExitStack()), few(kv), budget=20, processes="auto")
    assert result.tried == 20
    assert (started[0] if started else 1) == processes


def no_more(ahead: Ahead) -> None:
    """Start none of the processes."""
    ahead._missing = 0


def test_processes_end_with_the_search(cloud: Cloud, kv: KVServer) -> None:
    cloud.explore(by_rest(kv, ExitStack()), few(kv), budget=60, processes=3)
    assert not multiprocessing.active_children()


def test_the_result_says_why_the_search_used_one_process(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Redis(kv.url, kv.token)

    def reason(run: Callable[[], object]) -> str:
        result = cloud.explore(run, few(kv), budget=20, processes=2)
        return str(result).partition("searched in one process: ")[2]

    assert "behave differently (not explored: signals" in reason(
        lambda: (signal.alarm(0), client.incr("n"))
    )
    assert "random numbers" in reason(lambda: client.incrby("n", random.randint(1, 3)))
    publish = publishes_to_asgi(cloud, nothing)
    assert "ASGI" in reason(lambda: (client.incr("n"), publish()))
    monkeypatch.setattr(ahead, "CAN_FORK", False)
    assert "Linux" in reason(lambda: client.incr("n"))
