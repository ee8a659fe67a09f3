"""Test a shop as its developers would, with FastAPI, qstash and upstash-redis.

Orders are published, arrive as webhooks with verified signatures, and are counted in the store.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, Header, HTTPException, Request
from qstash import AsyncQStash, QStash, Receiver
from qstash.errors import SignatureError
from upstash_redis.asyncio import Redis

from pytest_fakecloud import BrokenPromiseError, Cloud, KVServer, Queue

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a warning of the HTTP client
    from fastapi.testclient import TestClient

ORIGIN = "https://shop.example.com"
HOOK = f"{ORIGIN}/hooks/order"
BOOK = """
if redis.call('SET', KEYS[1], '1', 'NX', 'EX', 86400) then
  redis.call('INCRBY', KEYS[2], ARGV[1])
end
return redis.call('GET', KEYS[2])
"""

Booking = Callable[[Redis, str, int], Awaitable[None]]


async def book_in_steps(redis: Redis, order: str, amount: int) -> None:
    """Count an order once; the bug is that marking and counting are two requests."""
    if await redis.set(f"done:{order}", "1", nx=True, ex=86_400):
        await redis.incrby("total", amount)


async def book_at_once(redis: Redis, order: str, amount: int) -> None:
    """Count an order once."""
    await redis.eval(BOOK, keys=[f"done:{order}", "total"], args=[str(amount)])


def make_app(queue: Queue, store: KVServer, book: Booking) -> FastAPI:
    qstash = AsyncQStash(queue.token, base_url=queue.url)
    receiver = Receiver(queue.current_signing_key, queue.next_signing_key)
    redis = Redis(url=store.url, token=store.token)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with redis:
            yield
        await qstash.http._client.aclose()

    app = FastAPI(lifespan=lifespan)

    async def verified(request: Request, signature: str | None) -> Any:
        body = (await request.body()).decode()
        try:
            receiver.verify(body=body, signature=signature or "", url=str(request.url))
        except SignatureError as error:
            raise HTTPException(401, str(error)) from None
        return await request.json()

    @app.post("/orders")
    async def order(request: Request) -> dict[str, Any]:
        body = await request.json()
        answer: Any = await qstash.message.publish_json(
            url=HOOK, body=body, retries=4, deduplication_id=f"order-{body['id']}",
            failure_callback=f"{ORIGIN}/hooks/failed",
        )  # fmt: skip
        return {"message": answer.message_id, "again": answer.deduplicated}

    @app.post("/hooks/order", status_code=204)
    async def hook(request: Request, upstash_signature: str | None = Header(None)) -> None:
        body = await verified(request, upstash_signature)
        if body.get("poison"):
            raise HTTPException(500)
        await book(redis, body["id"], body["amount"])

    @app.post("/hooks/failed", status_code=204)
    async def failed(request: Request, upstash_signature: str | None = Header(None)) -> None:
        body = await verified(request, upstash_signature)
        await redis.rpush("failed", body["sourceMessageId"])

    return app


@pytest.fixture
def web(queue: Queue, kv_server: KVServer) -> Iterator[TestClient]:
    app = make_app(queue, kv_server, book_at_once)
    queue.destinations.asgi(ORIGIN, app, lifespan=False)
    with TestClient(app, base_url=ORIGIN) as client:
        yield client


def test_an_order_that_comes_twice_counts_once(
    web: TestClient, queue: Queue, kv_server: KVServer
) -> None:
    queue.faults.duplicate(times=1)
    order = {"id": "a", "amount": 5}
    assert [web.post("/orders", json=order).json()["again"] for _ in range(2)] == [False, True]
    assert queue.run_until_idle().only().status == 204
    kv_server.assert_called("EVAL", times=2)
    assert kv_server.value("total") == "5"


def test_a_poisoned_order_is_told_and_counts_nothing(
    web: TestClient, queue: Queue, kv_server: KVServer, fakecloud: Cloud
) -> None:
    began = fakecloud.clock.now()
    sent = web.post("/orders", json={"id": "a", "amount": 5, "poison": True}).json()["message"]
    queue.run_until_idle()
    assert len(queue.attempts(id=sent)) == 5
    assert kv_server.value("failed") == [sent]
    assert kv_server.value("total") is None
    assert queue.assert_dead_lettered(times=1).only().id == sent
    assert (fakecloud.clock.now() - began).total_seconds() > 60


def test_forged_tampered_and_signed_with_a_key_that_was_rotated(
    web: TestClient, queue: Queue, kv_server: KVServer
) -> None:
    assert web.post("/hooks/order", json={"id": "forged", "amount": 5}).status_code == 401
    queue.faults.tamper(times=1)
    queue.publish(HOOK, json={"id": "tampered", "amount": 5})
    assert [attempt.status for attempt in queue.run_until_idle()] == [401, 204]
    queue.rotate_keys()
    queue.publish(HOOK, json={"id": "rotated", "amount": 5})
    assert queue.run_until_idle().only().status == 204
    queue.rotate_keys()
    queue.publish(HOOK, json={"id": "rotated again", "amount": 5}, retries=0)
    assert queue.run_until_idle().only().status == 401
    assert kv_server.value("total") == "10"


@pytest.mark.parametrize(("book", "broken"), [(book_in_steps, 3), (book_at_once, 0)])
def test_which_booking_survives_every_failure_of_the_store(
    queue: Queue, kv_server: KVServer, fakecloud: Cloud, book: Booking, broken: int
) -> None:
    queue.destinations.asgi(ORIGIN, make_app(queue, kv_server, book))

    def run() -> None:
        queue.publish(HOOK, json={"id": "a", "amount": 5}, retries=3)
        queue.run_until_idle()

    def check() -> None:
        assert kv_server.value("total") == "5"

    with fakecloud.autojump():
        if not broken:
            assert len(fakecloud.every_failure(run, check=check, services="kv_server")) == 3
            return
        with pytest.raises(
            BrokenPromiseError, match=f"the promise was broken in {broken} of 6 trials"
        ):
            fakecloud.every_failure(run, check=check, services="kv_server")


@pytest.mark.fakecloud(now="2026-03-28T10:00:00Z")
def test_a_nightly_job_over_the_change_of_clocks(queue: Queue, fakecloud: Cloud) -> None:
    client = QStash(queue.token, base_url=queue.url)
    job = queue.destinations.respond(f"{ORIGIN}/nightly", 200)
    client.schedule.create(
        destination=f"{ORIGIN}/nightly",
        cron="CRON_TZ=Europe/Zurich 0 9 * * *",
        schedule_id="nightly",
    )
    fakecloud.clock.advance("48h")
    assert [f"{attempt.at:%d %H:%M}" for attempt in queue.attempts()] == ["29 07:00", "30 07:00"]
    client.schedule.pause("nightly")
    fakecloud.clock.advance("48h")
    assert len(job.deliveries) == 2
    assert client.schedule.get("nightly").paused


def test_mails_keep_their_order_through_retries(queue: Queue) -> None:
    client = QStash(queue.token, base_url=queue.url)
    client.queue.upsert("mails", parallelism=1)
    got = []

    def mail(request: Any) -> int:
        if request.json() == 1 and request.retried < 2:
            return 500
        got.append(request.json())
        return 200

    queue.destinations.call(ORIGIN, mail)
    for number in range(4):
        client.message.enqueue_json(queue="mails", url=f"{ORIGIN}/mail", body=number)
    queue.run_until_idle()
    assert got == [0, 1, 2, 3]
    assert client.queue.get("mails").lag == 0
