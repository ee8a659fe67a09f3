"""Workers of job libraries are explored like other clients; each planted bug is found."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pytest_fakecloud import BrokenPromiseError, Cloud, ContractError, History, KVServer

from .conftest import expects, holds


def library(name: str) -> Any:
    """Import a library; skip the test if it is not installed."""
    if os.environ.get("PYTEST_FAKECLOUD_LIBRARIES") == "all":
        return importlib.import_module(name)
    return pytest.importorskip(name)


_clients: list[redis.Redis] = []


def add_in_two_steps(amount: int) -> None:
    (client,) = _clients
    client.set("total", int(client.get("total") or 0) + amount)


def add_in_one_step(amount: int) -> None:
    (client,) = _clients
    client.incrby("total", amount)


@pytest.fixture
def client(kv: KVServer) -> Iterator[redis.Redis]:
    """A Redis client for the jobs."""
    with redis.Redis.from_url(kv.database_url) as client:
        _clients.append(client)
        yield client
        _clients.clear()


def test_a_thread_that_reads_a_shared_subscription_gives_its_turn_away(
    cloud: Cloud, kv: KVServer
) -> None:
    def listen() -> None:
        with redis.Redis.from_url(kv.database_url) as client, client.pubsub() as pubsub:
            pubsub.subscribe(news=lambda message: None)
            thread = pubsub.run_in_thread(sleep_time=60, daemon=True)
            client.incr("heard")
            pubsub.unsubscribe()
            thread.stop()
            thread.join(timeout=1)

    result = cloud.explore([listen, listen], expects(kv, "2", "heard"), kinds="switch", budget=10)
    assert result.tried == 10
    assert result.seconds < 30, "no strand waits in real time for another strand's turn"


def test_random_names_are_the_same_in_every_run(cloud: Cloud, kv: KVServer) -> None:
    names: list[str] = []

    def name() -> None:
        names.append(str(uuid.uuid4()))
        kv.client().sadd("names", names[-1], os.urandom(2).hex())

    cloud.explore([name, name], holds, kinds="switch", budget=5)
    assert len(set(names)) == 2
    assert uuid.uuid4() != uuid.uuid4()


def total_is(kv: KVServer, wanted: int) -> Callable[[History], None]:
    def check(history: History) -> None:
        if not history.errors and not history.crashed:
            total = int(str(kv.value("total") or 0))
            assert total == wanted, f"the total is {total}"

    return check


@pytest.mark.slow
def test_two_workers_of_rq_take_jobs_that_overwrite_each_other(
    cloud: Cloud, kv: KVServer, client: redis.Redis
) -> None:
    rq = library("rq")

    def work() -> None:
        with redis.Redis.from_url(kv.database_url) as own:
            rq.SimpleWorker([rq.Queue(connection=own)], connection=own).work(burst=True)

    def causes(job: Callable[[int], None]) -> Iterator[str]:
        kv.reset()
        queue = rq.Queue(connection=client)
        queue.enqueue(job, 3)
        queue.enqueue(job, 4)
        # A worker makes 72 calls; the job's own calls are in the middle.
        for point in range(24, 40):
            schedule = f"one.{point} switch two"
            try:
                cloud.explore({"one": work, "two": work}, total_is(kv, 7), schedule=schedule)
            except BrokenPromiseError as broken:
                yield broken.cause

    (cause,) = causes(add_in_two_steps)
    assert "two's SET total 4" in cause
    assert "came between one's GET total" in cause
    assert not list(causes(add_in_one_step))


@pytest.fixture
def celery(kv: KVServer) -> Iterator[Any]:
    """A Celery application without a result store."""
    with library("celery").Celery("shop", broker=kv.database_url) as app:
        app.task(add_in_two_steps, name="two steps")
        app.task(add_in_one_step, name="one step")
        app.finalize()
        yield app


@pytest.mark.slow
def test_tasks_of_celery_overwrite_each_other(
    cloud: Cloud, kv: KVServer, client: redis.Redis, celery: Any
) -> None:
    def work() -> None:
        with celery.connection() as connection, connection.channel() as channel:
            while (message := channel.basic_get("celery")) is not None:
                args, kwargs, _ = message.payload
                celery.tasks[message.headers["task"]](*args, **kwargs)
                message.ack()

    def explored(task: str, budget: int) -> None:
        kv.reset()
        celery.tasks[task].delay(3)
        celery.tasks[task].delay(4)
        workers = {"one": work, "two": work}
        cloud.explore(workers, total_is(kv, 7), kinds="switch", budget=budget)

    with pytest.raises(
        BrokenPromiseError, match=r"two's SET total .* came between one's GET total"
    ):
        explored("two steps", 500)
    explored("one step", 100)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:(?s).*superuser privileges")
def test_a_worker_of_celery_is_an_error_that_says_what_to_do(cloud: Cloud, celery: Any) -> None:
    def work() -> None:
        celery.Worker(pool="solo", quiet=True).start()

    with pytest.raises(ContractError, match=r"work calls Worker.start of Celery .*basic_get"):
        cloud.explore(work, holds)
