"""Test third-party libraries on the fakes: task queues, caches, limiters, tools for language
models.

``tox -e libraries`` installs all of them and runs only these tests, because sockets that a library
leaves open can affect later tests, and its warnings are not ours to fix. Elsewhere, a test is
skipped if its library is not installed; no extra of this package installs them.
"""

# mypy: disable-error-code="import-untyped,import-not-found"
from __future__ import annotations

import asyncio
import gc
import importlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_fakecloud import Cloud, KVServer, Queue, VectorIndex

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
NOW = pytest.mark.fakecloud(process_time=True, now="2026-01-01T00:00:00Z")
"""Libraries that use the process's own time."""


def library(name: str) -> Any:
    """Import a library; skip the test if it is missing, unless all libraries are required."""
    if os.environ.get("PYTEST_FAKECLOUD_LIBRARIES") == "all":
        return importlib.import_module(name)
    return pytest.importorskip(name)


@pytest.fixture
def redis(kv_server: KVServer) -> Iterator[Any]:
    """Return a redis-py client of the database port."""
    with library("redis").Redis.from_url(kv_server.database_url) as client:
        yield client


def double(number: int) -> int:
    return number * 2


def fail() -> None:
    raise ValueError("no")


TRIES: list[int] = []


@pytest.fixture(autouse=True)
def no_tries() -> None:
    TRIES.clear()


def fail_twice() -> int:
    TRIES.append(1)
    if len(TRIES) < 3:
        raise ValueError("no")
    return len(TRIES)


NOTED: list[str] = []


def note(word: str) -> None:
    """A job that a store refers to by name."""
    NOTED.append(word)


# -- tasks ---------------------------------------------------------------------------------------


@pytest.fixture
def celery(kv_server: KVServer) -> Iterator[Any]:
    """Yield a Celery application that disconnects from its store before the store closes.

    A result that outlives the test tries to reach the store when it is garbage collected, twenty
    times, once a second.
    """
    module = library("celery")
    app = module.Celery("shop", broker=kv_server.database_url, backend=kv_server.database_url)
    yield app
    gc.collect()
    app.backend.result_consumer.stop()
    app.close()


def test_celery_works_and_keeps_its_result(celery: Any) -> None:
    from celery.contrib.testing.worker import start_worker

    task = celery.task(double)
    with start_worker(celery, perform_ping_check=False, pool="solo"):
        assert task.delay(4).get(timeout=10) == 8


def test_celery_retries_and_joins_a_chord(celery: Any) -> None:
    from celery import chord
    from celery.contrib.testing.worker import start_worker

    tries = []

    @celery.task(bind=True, max_retries=2)
    def one(self: Any, number: int) -> int:
        tries.append(number)
        if len(tries) == 1:
            raise self.retry(countdown=0)
        return number

    @celery.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with start_worker(celery, perform_ping_check=False, pool="solo"):
        assert chord([one.s(1), one.s(2)])(total.s()).get(timeout=10) == 3
    assert sorted(tries) == [1, 1, 2]


def test_what_celery_has_sent_can_be_looked_at(celery: Any, kv_server: KVServer) -> None:
    task = celery.task(double)
    task.delay(1)
    task.delay(2)
    assert len(kv_server.value("celery")) == 2


def done_by_celery(url: str, options: dict[str, Any]) -> object:
    """Return the result of a task whose broker and backend are at a URL."""
    from celery.contrib.testing.worker import start_worker

    app = library("celery").Celery("shop", broker=url, backend=url)
    app.conf.broker_transport_options = app.conf.result_backend_transport_options = options
    try:
        task = app.task(double)
        with start_worker(app, perform_ping_check=False, pool="solo"):
            return task.delay(21).get(timeout=10)
    finally:
        gc.collect()
        app.backend.result_consumer.stop()
        app.close()


def test_celery_with_a_cluster_of_one_node(fakecloud: Cloud) -> None:
    library("celery")
    server = fakecloud.kv_server(dialect="redis", cluster=True)
    # All keys are in one slot, because Celery does not know clusters.
    assert done_by_celery(server.database_url, {"global_keyprefix": "{shop}:"}) == 42
    assert server.keys("{shop}:*") == server.keys()


def test_celery_with_a_sentinel(fakecloud: Cloud) -> None:
    library("celery")
    server = fakecloud.kv_server(dialect="redis", sentinel=True, database_password="")
    host, port = server.sentinel_address
    assert done_by_celery(f"sentinel://{host}:{port}", {"master_name": "mymaster"}) == 42


def test_rq_with_a_sentinel_and_not_with_a_cluster(fakecloud: Cloud) -> None:
    rq, redis = library("rq"), library("redis")
    server = fakecloud.kv_server(dialect="redis", sentinel=True, database_password="")
    connection = redis.Sentinel([server.sentinel_address]).master_for("mymaster")
    queue = rq.Queue(connection=connection)
    job = queue.enqueue(double, 21)
    rq.SimpleWorker([queue], connection=connection).work(burst=True)
    assert job.return_value() == 42
    cluster = fakecloud.kv_server(dialect="redis", cluster=True)
    refused = pytest.raises(redis.exceptions.ClusterCrossSlotError)
    with redis.Redis.from_url(cluster.database_url) as client, refused:
        rq.Queue(connection=client).enqueue(double, 21)


def test_a_result_of_celery_ends_on_the_clock(
    celery: Any, kv_server: KVServer, fakecloud: Cloud
) -> None:
    from celery.contrib.testing.worker import start_worker

    celery.conf.result_expires = 600
    result = celery.task(double).delay(7)
    with start_worker(celery, perform_ping_check=False, pool="solo"):
        assert result.get(timeout=10) == 14
    key = f"celery-task-meta-{result.id}"
    assert 590 < kv_server.ttl(key) <= 600
    fakecloud.clock.advance("10m")
    assert kv_server.value(key) is None
    result.forget()


def test_rq_works(redis: Any) -> None:
    rq = library("rq")
    queue = rq.Queue(connection=redis)
    result = queue.enqueue(double, 4)
    rq.SimpleWorker([queue], connection=redis).work(burst=True)
    assert result.return_value() == 8


def test_rq_keeps_what_failed(redis: Any) -> None:
    rq = library("rq")
    queue = rq.Queue(connection=redis)
    queue.enqueue(fail)
    rq.SimpleWorker([queue], connection=redis).work(burst=True)
    assert queue.failed_job_registry.count == 1


def test_rq_works_on_what_failed_again(redis: Any) -> None:
    rq = library("rq")
    queue = rq.Queue(connection=redis)
    job = queue.enqueue(fail_twice, retry=rq.Retry(max=1))
    worker = rq.SimpleWorker([queue], connection=redis)
    worker.work(burst=True)
    assert queue.failed_job_registry.get_job_ids() == [job.id]
    assert "ValueError: no" in job.latest_result().exc_string
    queue.failed_job_registry.requeue(job.id)
    worker.work(burst=True)
    assert queue.failed_job_registry.get_job_ids() == []
    assert job.return_value(refresh=True) == 3


def test_rq_keeps_a_result_for_its_time(redis: Any, fakecloud: Cloud) -> None:
    rq = library("rq")
    queue = rq.Queue(connection=redis)
    first = queue.enqueue(double, 1, result_ttl=60)
    second = queue.enqueue(double, 2, depends_on=first)
    rq.SimpleWorker([queue], connection=redis).work(burst=True)
    assert second.return_value() == 4
    fakecloud.clock.advance("61s")
    assert (redis.exists(first.key), redis.exists(second.key)) == (0, 1)


@NOW
def test_rq_scheduler_fires_on_the_clock(redis: Any, fakecloud: Cloud) -> None:
    scheduler = library("rq_scheduler").Scheduler(queue_name="reports", connection=redis)
    scheduler.cron("0 6 * * *", double, args=[1])
    queue = library("rq").Queue("reports", connection=redis)
    for moved, count in (("5h", 0), ("2h", 1), ("24h", 2)):
        fakecloud.clock.advance(moved)
        scheduler.enqueue_jobs()
        assert len(queue) == count


@NOW
def test_rq_schedules_on_the_clock(redis: Any, fakecloud: Cloud) -> None:
    rq = library("rq")
    from rq.scheduler import RQScheduler

    queue = rq.Queue(connection=redis)
    queue.enqueue_in(timedelta(hours=1), double, 2)
    scheduler = RQScheduler([queue], connection=redis)
    scheduler.acquire_locks()
    scheduler.enqueue_scheduled_jobs()
    assert len(queue) == 0
    fakecloud.clock.advance("61m")
    scheduler.enqueue_scheduled_jobs()
    assert len(queue) == 1


@NOW
def test_huey_schedules_on_the_clock(kv_server: KVServer, fakecloud: Cloud) -> None:
    huey = library("huey").RedisHuey("shop", url=kv_server.database_url)
    result = huey.task()(double).schedule((4,), delay=3600)
    huey.execute(huey.dequeue())
    assert result() is None
    fakecloud.clock.advance("2h")
    [due] = huey.read_schedule()
    huey.enqueue(due)
    huey.execute(huey.dequeue())
    assert result() == 8


def test_huey_tries_again_and_locks(kv_server: KVServer) -> None:
    huey = library("huey").RedisHuey("shop", url=kv_server.database_url)
    from huey.exceptions import TaskLockedException

    result = huey.task(retries=2)(fail_twice)()
    for _ in range(3):
        huey.execute(huey.dequeue())
    assert result() == 3
    with huey.lock_task("import"), pytest.raises(TaskLockedException), huey.lock_task("import"):
        pass


def test_dramatiq_works(kv_server: KVServer) -> None:
    dramatiq = library("dramatiq")
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=kv_server.database_url)
    dramatiq.set_broker(broker)
    done: list[int] = []

    @dramatiq.actor(broker=broker)
    def note(number: int) -> None:
        done.append(number)

    worker = dramatiq.Worker(broker, worker_timeout=50)
    worker.start()
    note.send(3)
    broker.join("default", timeout=10_000)
    worker.join()
    worker.stop()
    broker.close()
    assert done == [3]


def test_dramatiq_tries_again(kv_server: KVServer) -> None:
    dramatiq = library("dramatiq")
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=kv_server.database_url)
    actor = dramatiq.actor(fail_twice, broker=broker, max_retries=2, min_backoff=1, max_backoff=1)
    worker = dramatiq.Worker(broker, worker_timeout=50)
    worker.start()
    try:
        actor.send()
        broker.join("default", timeout=10_000)
        worker.join()
    finally:
        worker.stop()
        broker.close()
    assert len(TRIES) == 3


async def worked(arq: Any, pool: Any, function: Any, job: Any) -> Any:
    """Return the result of a job after a worker has done all available jobs."""
    worker = arq.Worker(
        functions=[function], redis_pool=pool, burst=True, poll_delay=0.01, handle_signals=False,
    )  # fmt: skip
    await worker.main()
    return await job.result(timeout=5)


def test_arq_works(kv_server: KVServer) -> None:
    arq = library("arq")

    async def twice(context: Any, number: int) -> int:
        return double(number)

    async def scenario() -> Any:
        pool = await arq.create_pool(arq.connections.RedisSettings.from_dsn(kv_server.database_url))
        job = await pool.enqueue_job("twice", 4)
        return await worked(arq, pool, arq.func(twice, name="twice"), job)

    assert asyncio.run(scenario()) == 8


def test_arq_takes_a_job_once_and_tries_it_again(kv_server: KVServer) -> None:
    arq = library("arq")
    tries = []

    async def charge(context: Any) -> int:
        tries.append(context["job_try"])
        if len(tries) < 3:
            raise arq.Retry(defer=0)
        return len(tries)

    async def scenario() -> Any:
        pool = await arq.create_pool(arq.connections.RedisSettings.from_dsn(kv_server.database_url))
        job = await pool.enqueue_job("charge", _job_id="once")
        assert await pool.enqueue_job("charge", _job_id="once") is None
        return await worked(arq, pool, arq.func(charge, name="charge"), job)

    assert asyncio.run(scenario()) == 3
    assert tries == [1, 2, 3]


@pytest.mark.parametrize("name", ["ListQueueBroker", "RedisStreamBroker", "PubSubBroker"])
def test_taskiq(kv_server: KVServer, name: str) -> None:
    module = library("taskiq_redis")
    from taskiq.api import run_receiver_task

    results = module.RedisAsyncResultBackend(kv_server.database_url, result_ex_time=60)
    broker = getattr(module, name)(kv_server.database_url).with_result_backend(results)

    @broker.task
    async def twice(number: int) -> int:
        return double(number)

    async def scenario() -> Any:
        broker.is_worker_process = True
        await broker.startup()
        worker = asyncio.create_task(run_receiver_task(broker))
        if name == "PubSubBroker":
            while not kv_server.execute("PUBSUB", "CHANNELS"):
                await asyncio.sleep(0.01)
        task = await twice.kiq(4)
        result = await task.wait_result(check_interval=0.01, timeout=10)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()
        return result.return_value

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == 8


def test_saq_takes_a_job_once_and_tries_it_again(kv_server: KVServer) -> None:
    saq = library("saq")
    tries: list[int] = []

    async def work(context: Any, *, number: int) -> int:
        tries.append(number)
        if len(tries) < 3:
            raise ValueError("no")
        return double(number)

    async def scenario() -> Any:
        queue = saq.Queue.from_url(kv_server.database_url)
        await queue.connect()
        job = await queue.enqueue("work", number=4, key="once", retries=3)
        assert await queue.enqueue("work", number=4, key="once") is None
        # worker.start() sweeps at once, and may take a job that has just been dequeued for stuck.
        worker = saq.Worker(queue, [("work", work)])
        while not job.completed:
            await worker.process()
            await job.refresh()
        await queue.disconnect()
        return job

    job = asyncio.run(asyncio.wait_for(scenario(), 20))
    assert (job.status, job.result, tries) == ("complete", 8, [4, 4, 4])


@NOW
def test_saq_finds_a_job_due_on_the_clock(kv_server: KVServer, fakecloud: Cloud) -> None:
    saq = library("saq")

    async def scenario() -> None:
        queue = saq.Queue.from_url(kv_server.database_url)
        await queue.connect()
        await queue.enqueue("work", scheduled=saq.utils.now_seconds() + 3600)
        assert await queue.schedule() == []
        fakecloud.clock.advance("61m")
        [due] = await queue.schedule()
        assert await queue.count("queued") == 1
        assert (await queue.dequeue(timeout=1)).id == due
        await queue.disconnect()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@NOW
def test_apscheduler_finds_its_jobs_due_on_the_clock(kv_server: KVServer, fakecloud: Cloud) -> None:
    stores = library("apscheduler.jobstores.redis")
    from apscheduler.executors.debug import DebugExecutor
    from apscheduler.schedulers.base import BaseScheduler

    class Stepped(BaseScheduler):  # type: ignore[misc]
        """A scheduler without its own loop."""

        def wakeup(self) -> None:
            """Do nothing, because nothing sleeps."""

        def shutdown(self, wait: bool = True) -> None:
            super().shutdown(wait)

        def step(self) -> None:
            self._process_jobs()

    def scheduler() -> Any:
        place = urlsplit(kv_server.database_url)
        made = Stepped(timezone="UTC")
        made.add_jobstore(
            stores.RedisJobStore(host=place.hostname, port=place.port, password=place.password)
        )
        made.add_executor(DebugExecutor())
        made.start()
        return made

    NOTED.clear()
    first = scheduler()
    options = {"misfire_grace_time": None, "coalesce": False}
    first.add_job(note, "interval", hours=1, args=["hourly"], id="hourly", **options)
    first.add_job(note, "date", run_date="2026-01-01T02:30:00", args=["once"], **options)
    first.step()
    assert NOTED == []
    first.shutdown()
    fakecloud.clock.advance("2h")
    second = scheduler()  # Another process would find the stored jobs like this.
    second.step()
    assert NOTED == ["hourly", "hourly"]
    fakecloud.clock.advance("45m")
    second.step()
    assert NOTED[2:] == ["once"]
    assert [job.id for job in second.get_jobs()] == ["hourly"]
    second.remove_job("hourly")
    assert kv_server.keys() == []
    second.shutdown()


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["core.RedisChannelLayer", "pubsub.RedisPubSubChannelLayer"])
def test_channels_redis(kv_server: KVServer, kind: str) -> None:
    library("channels_redis")
    module, _, name = kind.partition(".")
    layers = importlib.import_module(f"channels_redis.{module}")

    async def scenario() -> None:
        layer = getattr(layers, name)(hosts=[kv_server.database_url])
        ada, ben = await layer.new_channel(), await layer.new_channel()
        await layer.send(ada, {"type": "alone", "number": 1})
        assert await layer.receive(ada) == {"type": "alone", "number": 1}
        for member in (ada, ben):
            await layer.group_add("room", member)
        await layer.group_send("room", {"type": "all"})
        assert [await layer.receive(channel) for channel in (ada, ben)] == [{"type": "all"}] * 2
        await layer.group_discard("room", ada)
        await layer.group_send("room", {"type": "rest"})
        await layer.send(ada, {"type": "last"})
        assert await layer.receive(ben) == {"type": "rest"}
        assert await layer.receive(ada) == {"type": "last"}
        await layer.flush()
        await (layer.close_pools() if module == "core" else layer.flush())

    asyncio.run(scenario())


@NOW
def test_a_message_of_channels_redis_is_too_old_on_the_clock(
    kv_server: KVServer, fakecloud: Cloud
) -> None:
    layers = library("channels_redis.core")

    async def scenario() -> Any:
        layer = layers.RedisChannelLayer(hosts=[kv_server.database_url], expiry=60)
        await layer.send("channel", {"type": "old"})
        fakecloud.clock.advance("61s")
        await layer.send("channel", {"type": "new"})
        received = await layer.receive("channel")
        await layer.close_pools()
        return received

    assert asyncio.run(scenario()) == {"type": "new"}


# -- locks, limits -------------------------------------------------------------------------------


def test_the_lock_of_redis_py_is_lost_on_the_clock(redis: Any, fakecloud: Cloud) -> None:
    from redis.exceptions import LockNotOwnedError

    lock = redis.lock("billing", timeout=10)
    assert lock.acquire(blocking=False)
    fakecloud.clock.advance("11s")
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_python_redis_lock(redis: Any, fakecloud: Cloud) -> None:
    module = library("redis_lock")
    assert module.Lock(redis, "billing", expire=10).acquire(blocking=False)
    assert not module.Lock(redis, "billing").acquire(blocking=False)
    fakecloud.clock.advance("11s")
    assert module.Lock(redis, "billing", expire=5).acquire(blocking=False)


def test_pottery(redis: Any) -> None:
    pottery = library("pottery")
    stock = pottery.RedisDict({"kettle": 1}, redis=redis, key="stock")
    stock["cup"] = 2
    assert stock == {"kettle": 1, "cup": 2}
    with pottery.Redlock(key="billing", masters={redis}, auto_release_time=5) as lock:
        assert lock.locked()


@NOW
def test_limits_moves_its_window(kv_server: KVServer, fakecloud: Cloud) -> None:
    limits = library("limits")
    store = limits.storage.storage_from_string(kv_server.database_url)
    limiter = limits.strategies.MovingWindowRateLimiter(store)
    rate = limits.parse("2/minute")
    assert [limiter.hit(rate, "ada") for _ in range(3)] == [True, True, False]
    fakecloud.clock.advance("61s")
    assert limiter.hit(rate, "ada")


def test_limits_in_a_loop(kv_server: KVServer) -> None:
    limits = library("limits")
    from limits.aio import storage, strategies

    async def scenario() -> list[bool]:
        store = storage.RedisStorage(f"async+{kv_server.database_url}", implementation="redispy")
        limiter = strategies.FixedWindowRateLimiter(store)
        return [await limiter.hit(limits.parse("1/minute"), "ada") for _ in range(2)]

    assert asyncio.run(scenario()) == [True, False]


def test_flask_limiter(kv_server: KVServer) -> None:
    from flask import Flask

    module = library("flask_limiter")
    app = Flask("shop")
    url = kv_server.database_url
    module.Limiter(lambda: "ada", app=app, storage_uri=url, default_limits=["2/minute"])
    app.get("/")(lambda: "ok")
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


def test_slowapi(kv_server: KVServer) -> None:
    slowapi = library("slowapi")
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from slowapi.errors import RateLimitExceeded
    from starlette.requests import Request

    limiter = slowapi.Limiter(key_func=lambda request: "ada", storage_uri=kv_server.database_url)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, slowapi._rate_limit_exceeded_handler)

    @limiter.limit("2/minute")  # type: ignore[misc]
    async def index(request: Request) -> str:
        return "ok"

    index.__annotations__["request"] = Request
    app.get("/")(index)
    client = TestClient(app)
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


@NOW
def test_pyrate_limiter(redis: Any, fakecloud: Cloud) -> None:
    module = library("pyrate_limiter")
    rate = module.Rate(2, module.Duration.MINUTE)
    limiter = module.Limiter(module.RedisBucket.init([rate], redis, "bucket"))
    assert [limiter.try_acquire("ada", blocking=False) for _ in range(3)] == [True, True, False]
    fakecloud.clock.advance("61s")
    assert limiter.try_acquire("ada", blocking=False)


# -- caches and sessions -------------------------------------------------------------------------


def test_dogpile(kv_server: KVServer, fakecloud: Cloud) -> None:
    module = library("dogpile.cache")
    arguments = {"url": kv_server.database_url, "redis_expiration_time": 60}
    region = module.make_region().configure("dogpile.cache.redis", arguments=arguments)
    made: list[str] = []

    def make() -> str:
        made.append("made")
        return "value"

    for _ in range(2):
        assert region.get_or_create("key", make) == "value"
    assert len(made) == 1
    fakecloud.clock.advance("61s")
    region.get_or_create("key", make)
    assert len(made) == 2


def test_fastapi_cache(kv_server: KVServer, fakecloud: Cloud) -> None:
    module = library("fastapi_cache")
    from fastapi_cache.backends.redis import RedisBackend
    from fastapi_cache.decorator import cache

    asked: list[int] = []

    async def scenario() -> None:
        async with library("redis.asyncio").from_url(kv_server.database_url) as client:
            module.FastAPICache.init(RedisBackend(client), prefix="shop")

            @cache(expire=60)
            async def price(number: int) -> int:
                asked.append(number)
                return double(number)

            assert [await price(number) for number in (1, 1, 2)] == [2, 2, 4]
            fakecloud.clock.advance("60s")
            await price(1)
            await module.FastAPICache.clear()
        module.FastAPICache.reset()

    asyncio.run(scenario())
    assert asked == [1, 2, 1]
    assert kv_server.keys() == []


def test_walrus(kv_server: KVServer, fakecloud: Cloud) -> None:
    database = library("walrus").Database.from_url(kv_server.database_url)
    cache = database.cache()
    cache.set("k", [1], 10)
    assert cache.get("k") == [1]
    fakecloud.clock.advance("11s")
    assert cache.get("k") is None
    with database.lock("import", ttl=1000):
        assert not database.lock("import", ttl=1000).acquire(block=False)
    index = database.autocomplete()
    for number, text in enumerate(["green tea", "black tea", "oak chair"]):
        index.store(number, text)
    assert len(list(index.search("tea"))) == 2
    limit = database.rate_limit("calls", limit=2, per=10)
    assert [limit.limit("ada") for _ in range(3)] == [False, False, True]
    bloom = database.bloom_filter("seen")
    bloom.add("x")
    assert ("x" in bloom, "y" in bloom) == (True, False)
    database.close()


def test_cashews(kv_server: KVServer) -> None:
    module = library("cashews")

    async def scenario() -> list[int]:
        cache = module.Cache()
        cache.setup(kv_server.database_url)
        seen = []

        @cache(ttl="1m", key="double:{number}")
        async def slow(number: int) -> int:
            seen.append(number)
            return double(number)

        assert [await slow(4), await slow(4)] == [8, 8]
        await cache.close()
        return seen

    assert asyncio.run(scenario()) == [4]


def test_aiocache(kv_server: KVServer, fakecloud: Cloud) -> None:
    aiocache = library("aiocache")
    place = urlsplit(kv_server.database_url)

    async def scenario() -> None:
        from aiocache.lock import RedLock
        from aiocache.serializers import JsonSerializer

        options = {
            "endpoint": place.hostname, "port": place.port, "password": place.password,
            "serializer": JsonSerializer(), "namespace": "shop:",
        }  # fmt: skip
        cache = aiocache.Cache(aiocache.Cache.REDIS, **options)
        seen = []

        @aiocache.cached(ttl=60, cache=aiocache.Cache.REDIS, **options)
        async def slow(number: int) -> int:
            seen.append(number)
            return double(number)

        assert [await slow(4), await slow(4)] == [8, 8]
        fakecloud.clock.advance("61s")
        assert await slow(4) == 8
        assert seen == [4, 4]
        await cache.multi_set([("a", 1), ("b", {"c": 2})], ttl=60)
        assert await cache.multi_get(["a", "b", "none"]) == [1, {"c": 2}, None]
        assert await cache.increment("visits", 2) == 2
        with pytest.raises(ValueError, match="already exists"):
            await cache.add("a", 2)
        async with RedLock(cache, "billing", lease=10):
            assert len(kv_server.keys("*billing-lock")) == 1
        assert await cache.clear(namespace="shop:")
        assert kv_server.keys() == []
        await slow.cache.close()
        await cache.close()

    asyncio.run(scenario())


def test_django_redis(kv_server: KVServer, fakecloud: Cloud) -> None:
    module = library("django_redis.cache")
    from django.conf import settings

    if not settings.configured:
        settings.configure()
    cache = module.RedisCache(kv_server.database_url, {})
    cache.set("basket", {"kettle": 1}, 60)
    assert cache.get("basket") == {"kettle": 1}
    fakecloud.clock.advance("61s")
    assert cache.get("basket") is None
    cache.close()


def test_flask_session(redis: Any, kv_server: KVServer) -> None:
    from flask import Flask, session

    module = library("flask_session")
    app = Flask("shop")
    app.config.update(SESSION_TYPE="redis", SESSION_REDIS=redis)
    module.Session(app)

    @app.get("/")
    def index() -> str:
        session["visits"] = session.get("visits", 0) + 1
        return str(session["visits"])

    client = app.test_client()
    assert [client.get("/").text for _ in range(2)] == ["1", "2"]
    assert len(kv_server.keys("session:*")) == 1


# -- LangChain and LlamaIndex --------------------------------------------------------------------


def test_langchain_chat_history_over_rest(kv_server: KVServer, fakecloud: Cloud) -> None:
    module = library("langchain_community.chat_message_histories")
    history = module.UpstashRedisChatMessageHistory(
        session_id="s", url=kv_server.url, token=kv_server.token, ttl=60
    )
    history.add_user_message("hi")
    history.add_ai_message("hello")
    assert [message.content for message in history.messages] == ["hi", "hello"]
    fakecloud.clock.advance("61s")
    assert history.messages == []


def test_langchain_chat_history_on_the_database_port(kv_server: KVServer) -> None:
    module = library("langchain_community.chat_message_histories")
    history = module.RedisChatMessageHistory("s", url=kv_server.database_url)
    history.add_user_message("hi")
    assert [message.content for message in history.messages] == ["hi"]


def test_langchain_byte_store(kv_server: KVServer) -> None:
    module = library("langchain_community.storage")
    store = module.UpstashRedisByteStore(client=kv_server.client(), ttl=None, namespace="ns")
    store.mset([("a", b"1"), ("b", b"2")])
    assert store.mget(["a", "b", "c"]) == [b"1", b"2", None]
    assert sorted(store.yield_keys()) == ["a", "b"]
    store.mdelete(["a"])
    assert store.mget(["a"]) == [None]


def test_langchain_cache_of_answers(kv_server: KVServer, fakecloud: Cloud) -> None:
    module = library("langchain_community.cache")
    from langchain_core.outputs import Generation

    cache = module.UpstashRedisCache(redis_=kv_server.client(), ttl=60)
    cache.update("prompt", "model", [Generation(text="42")])
    assert cache.lookup("prompt", "model")[0].text == "42"
    fakecloud.clock.advance("2m")
    assert cache.lookup("prompt", "model") is None


def test_langchain_rate_limit_handler(kv_server: KVServer) -> None:
    module = library("langchain_community.callbacks")
    from langchain_core.runnables import RunnableLambda
    from upstash_ratelimit import FixedWindow, Ratelimit

    window = FixedWindow(max_requests=1, window=60)
    limit = Ratelimit(redis=kv_server.client(), limiter=window)

    def invoke() -> Any:
        handler = module.UpstashRatelimitHandler("ada", request_ratelimit=limit)
        return RunnableLambda(str).invoke("a", config={"callbacks": [handler]})

    assert invoke() == "a"
    with pytest.raises(module.UpstashRatelimitError):
        invoke()


@pytest.fixture
def langchain_store(vector_index: VectorIndex) -> Any:
    module = library("langchain_community.vectorstores.upstash")
    options = {"index_url": vector_index.url, "index_token": vector_index.token}
    return module.UpstashVectorStore(embedding=True, namespace="notes", **options)


@pytest.mark.fakecloud(vector_index={"embedding": True})
def test_langchain_vector_store(langchain_store: Any, vector_index: VectorIndex) -> None:
    kinds = [{"kind": "drink"}, {"kind": "thing"}]
    ids = langchain_store.add_texts(["green tea", "tea pot"], metadatas=kinds)
    assert langchain_store.similarity_search("green tea", k=1)[0].page_content == "green tea"
    documents = langchain_store.similarity_search("tea", k=2, filter="kind = 'thing'")
    assert [document.page_content for document in documents] == ["tea pot"]
    langchain_store.delete(ids[:1])
    assert len(vector_index.vectors("notes")) == 1


@pytest.mark.fakecloud(vector_index={"embedding": True})
def test_langchain_retriever(langchain_store: Any, vector_index: VectorIndex) -> None:
    langchain_store.add_texts(["green tea", "wooden chair", "tea pot"])
    documents = langchain_store.as_retriever(search_kwargs={"k": 2}).invoke("tea")
    assert {document.page_content for document in documents} == {"green tea", "tea pot"}
    vector_index.assert_queried(top_k=2, namespace="notes", times=1)


@pytest.mark.fakecloud(vector_index={"embedding": True})
def test_langchain_in_a_loop(langchain_store: Any) -> None:
    async def scenario() -> Any:
        await langchain_store.aadd_texts(["green tea", "wooden chair"])
        return await langchain_store.asimilarity_search("tea", k=1)

    assert asyncio.run(scenario())[0].page_content == "green tea"


@pytest.mark.fakecloud(vector_index={"embedding": True})
def test_langchain_keeps_tenants_apart(vector_index: VectorIndex) -> None:
    module = library("langchain_community.vectorstores.upstash")
    options = {"index_url": vector_index.url, "index_token": vector_index.token}
    ours, theirs = (
        module.UpstashVectorStore(embedding=True, namespace=tenant, **options)
        for tenant in ("acme", "bolt")
    )
    ours.add_texts(["our secret recipe"], ids=["1"])
    theirs.add_texts(["their other recipe"], ids=["1"])
    [document] = theirs.similarity_search("secret recipe", k=3)
    assert document.page_content == "their other recipe"
    ours.delete(delete_all=True)
    assert (len(vector_index.vectors("acme")), len(vector_index.vectors("bolt"))) == (0, 1)


@pytest.fixture
def llama_store(vector_index: VectorIndex) -> Any:
    module = library("llama_index.vector_stores.upstash")
    return module.UpstashVectorStore(url=vector_index.url, token=vector_index.token)


def llama_nodes(count: int) -> list[Any]:
    from llama_index.core.schema import TextNode

    return [
        TextNode(text=str(n), id_=str(n), embedding=[1.0, float(n)], metadata={"n": n})
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [("==", 2, ["2"]), (">", 1, ["2", "3"]), ("in", [0, 3], ["0", "3"])],
)
def test_llama_index_filters(
    llama_store: Any, operator: str, value: object, expected: list[str]
) -> None:
    from llama_index.core.vector_stores.types import (
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
    )

    llama_store.add(llama_nodes(4))
    asked = MetadataFilter(key="n", value=value, operator=FilterOperator(operator))
    result = llama_store.query(
        VectorStoreQuery(
            query_embedding=[1.0, 0.0],
            similarity_top_k=10,
            filters=MetadataFilters(filters=[asked]),
        )
    )
    assert sorted(node.get_content() for node in result.nodes) == expected


def test_llama_index_as_a_whole(llama_store: Any, vector_index: VectorIndex) -> None:
    from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex

    index = VectorStoreIndex.from_documents(
        [Document(text="tea"), Document(text="chair")],
        storage_context=StorageContext.from_defaults(vector_store=llama_store),
        embed_model=MockEmbedding(4),
    )
    assert len(index.as_retriever(similarity_top_k=1).retrieve("tea")) == 1
    assert len(vector_index.vectors()) == 2


def test_llama_index_deletes(llama_store: Any, vector_index: VectorIndex) -> None:
    llama_store.add(llama_nodes(2))
    llama_store.client.delete("1")
    assert [item["id"] for item in vector_index.vectors()] == ["0"]


def test_llama_index_remembers_a_chat_on_both_ports(kv_server: KVServer, fakecloud: Cloud) -> None:
    rest = library("llama_index.storage.chat_store.upstash").UpstashChatStore(
        redis_url=kv_server.url, redis_token=kv_server.token, ttl=300
    )
    port = library("llama_index.storage.chat_store.redis").RedisChatStore(
        redis_url=kv_server.database_url
    )
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    memory = ChatMemoryBuffer.from_defaults(chat_store=rest, chat_store_key="ada")
    for text in ("one", "two"):
        memory.put(ChatMessage(role="user", content=text))
    assert [message.content for message in port.get_messages("ada")] == ["one", "two"]
    port.delete_last_message("ada")
    assert [message.content for message in memory.get()] == ["one"]
    fakecloud.clock.advance("5m")
    assert memory.get() == port.get_messages("ada") == []


# -- LangGraph -----------------------------------------------------------------------------------


def graph_of_two_steps(saver: Any) -> Any:
    """Return a graph that waits for a human between its steps."""
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    class State(TypedDict):
        total: int

    def add(state: State) -> State:
        return {"total": state["total"] + 1}

    def approve(state: State) -> State:
        return {"total": state["total"] * interrupt("by how much?")}

    graph = StateGraph(State)
    graph.add_node("add", add)
    graph.add_node("approve", approve)
    graph.add_edge(START, "add")
    graph.add_edge("add", "approve")
    graph.add_edge("approve", END)
    return graph.compile(checkpointer=saver)


def test_langgraph_checkpoints_over_rest(kv_server: KVServer, fakecloud: Cloud) -> None:
    module = library("langgraph.checkpoint.upstash_redis")
    from langgraph.types import Command

    def graph() -> Any:  # Another process would find the checkpoints like this.
        return graph_of_two_steps(module.UpstashRedisSaver(kv_server.client(), ttl=3600))

    thread = {"configurable": {"thread_id": "1"}}
    assert graph().invoke({"total": 6}, thread)["__interrupt__"][0].value == "by how much?"
    assert graph().get_state(thread).values == {"total": 7}
    assert graph().invoke(Command(resume=3), thread) == {"total": 21}
    totals = [state.values.get("total") for state in graph().get_state_history(thread)]
    assert totals == [21, 7, 6, None]
    fakecloud.clock.advance("61m")
    assert graph().get_state(thread).values == {}
    assert kv_server.keys("checkpoint:*") == []


def test_langgraph_store_over_rest(kv_server: KVServer, fakecloud: Cloud) -> None:
    store = library("langgraph_store_upstash").UpstashStore(client=kv_server.client())
    for user, likes in (("ada", "tea"), ("ben", "coffee")):
        store.put(("users", user), "taste", {"likes": likes}, ttl=5)
    store.put(("shop",), "open", {"since": 1999})
    assert store.get(("users", "ada"), "taste").value == {"likes": "tea"}
    found = store.search(("users",), filter={"likes": {"$eq": "coffee"}})
    assert [item.namespace for item in found] == [("users", "ben")]
    assert store.list_namespaces(max_depth=1) == [("shop",), ("users",)]
    store.delete(("shop",), "open")
    assert store.get(("shop",), "open") is None
    fakecloud.clock.advance("5m")
    assert store.get(("users", "ada"), "taste") is None


def test_langgraph_with_the_query_engine_of_redis_is_not_offered(kv_server: KVServer) -> None:
    saver = library("langgraph.checkpoint.redis").RedisSaver(kv_server.database_url)
    store = library("langgraph.store.redis").RedisStore
    with pytest.raises(Exception, match=r"FT\."):
        saver.setup()
    with (
        store.from_conn_string(kv_server.database_url) as items,
        pytest.raises(Exception, match=r"FT\."),
    ):
        items.setup()


def test_semantic_cache(fakecloud: Cloud) -> None:
    index = fakecloud.vector_index(embedding=True)
    cache = library("upstash_semantic_cache").SemanticCache(
        url=index.url, token=index.token, min_proximity=0.6, namespace="answers"
    )
    cache.set(["capital of Turkey", "green tea temperature"], ["Ankara", "80 °C"])
    assert cache.get("the capital of Turkey") == "Ankara"
    assert cache.get("wooden chairs") is None
    cache.delete("capital of Turkey")
    assert cache.get("capital of Turkey") is None
    cache.flush()
    assert cache.get("green tea temperature") is None


# -- the vendor's own, from their variables ------------------------------------------------------


def test_a_workflow_finds_everything_in_the_environment(
    queue: Queue, fakecloud_env: object
) -> None:
    serve = library("upstash_workflow.flask").Serve
    from flask import Flask

    app = Flask("shop")
    done: list[int] = []

    @serve(app).route("/flow", url="https://app.test/flow")
    def flow(context: Any) -> None:
        first = context.run("one", lambda: 1)
        context.sleep("nap", "3d")
        context.run("two", lambda: done.append(first + 1))

    queue.destinations.wsgi("https://app.test", app)
    queue.publish("https://app.test/flow", json={})
    queue.clock.advance("1d")
    assert done == []
    queue.clock.advance("3d")
    assert done == [2]


@NOW
@pytest.mark.parametrize("name", ["FixedWindow", "SlidingWindow", "TokenBucket"])
def test_a_limiter_lets_through_again(kv_server: KVServer, fakecloud: Cloud, name: str) -> None:
    upstash_ratelimit = library("upstash_ratelimit")
    options: dict[str, int] = {"max_requests": 2, "window": 10}
    if name == "TokenBucket":
        options = {"max_tokens": 2, "refill_rate": 1, "interval": 10}
    limiter = getattr(upstash_ratelimit, name)(**options)
    limit = upstash_ratelimit.Ratelimit(redis=kv_server.client(), limiter=limiter)
    assert [limit.limit("ada").allowed for _ in range(3)] == [True, True, False]
    fakecloud.clock.advance("20s")
    assert limit.limit("ada").allowed
