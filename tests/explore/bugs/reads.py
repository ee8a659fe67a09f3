"""Caches, indexes, topics and pages whose readers miss data or see it twice."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import Cloud, History, nothing_lost

from . import Scenario


def late_cache_fill(cloud: Cloud, corrected: bool) -> Scenario:
    """A process caches a price in memory: it eventually shows the current price."""
    kv = cloud.kv_server()
    kv.load({"price": "30"})
    cache: dict[str, Any] = {}

    async def show(redis: AsyncRedis) -> None:
        generation = cache.get("generation", 0)
        price = await redis.get("price")
        if not corrected or cache.get("generation", 0) == generation:
            cache["price"] = price

    async def change(redis: AsyncRedis) -> None:
        try:
            await redis.set("price", "25")
        finally:
            cache["generation"] = cache.get("generation", 0) + 1
            cache.pop("price", None)

    async def process() -> None:
        async with AsyncRedis(kv.url, kv.token, rest_retries=0) as redis:
            await asyncio.gather(show(redis), change(redis), return_exceptions=True)

    def check() -> None:
        assert cache.get("price") in (None, kv.value("price")), f"shows {cache.get('price')}"

    return Scenario({"shop": process}, check, setup=cache.clear)


def pending_vectors(cloud: Cloud, corrected: bool) -> Scenario:
    """A document that is uploaded twice is stored once."""
    index = cloud.vector_index(dimension=2)
    client = index.client()

    def upload(document: str) -> None:
        vector = [1.0, float(len(document))]
        if corrected:
            client.upsert([(hashlib.sha256(document.encode()).hexdigest(), vector)])
            return
        near = client.query(vector, top_k=1)
        if not near or near[0].score < 0.999:
            client.upsert([(f"{document}-{client.info().vector_count}", vector)])

    def upload_twice() -> None:
        upload("manual")
        upload("manual")

    def check() -> None:
        assert client.info().vector_count <= 1, "kept twice"

    return Scenario({"author": upload_twice}, check)


def cached_vector(cloud: Cloud, corrected: bool) -> Scenario:
    """A page that is rendered from a vector's metadata shows the newest ones."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    index = cloud.vector_index(dimension=2)
    index.load([("kettle", [1.0, 2.0], {"cents": 3000})])
    client = index.client()

    def page() -> str:
        return f"page:{redis.get('edition')}" if corrected else "page"

    def show() -> None:
        name = page()
        if redis.get(name) is None:
            kettle: Any = client.fetch("kettle", include_metadata=True)[0]
            redis.set(name, kettle.metadata["cents"], ex=3600)

    def edit() -> None:
        client.update("kettle", metadata={"cents": 2500})
        if corrected:
            redis.incr("edition")
        else:
            redis.delete("page")

    def check(history: History) -> None:
        has_ended = "editor" in history.results
        assert not has_ended or kv.value(page()) in (None, "2500"), "an old page"

    return Scenario({"visitor": show, "editor": edit}, check)


def commit_past_a_failure(cloud: Cloud, corrected: bool) -> Scenario:
    """Each order of a topic is handled."""
    kv = cloud.kv_server()
    broker = cloud.broker(topics={"orders": 1})
    redis = Redis(kv.url, kv.token, rest_retries=0)
    headers = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
    auth = httpx.BasicAuth(broker.username, broker.password)
    http = httpx.Client(base_url=broker.url, auth=auth, headers=headers)

    def sell() -> None:
        for name in ("kettle", "cup"):
            broker_produce(name)

    def broker_produce(name: str) -> None:
        http.post("/produce/orders", json={"value": name}).raise_for_status()

    def handle() -> None:
        while True:
            answer = http.get("/consume/group/one/orders")
            answer.raise_for_status()
            records = answer.json()
            if not records:
                return
            for record in records:
                try:
                    redis.sadd("handled", record["value"])
                except Exception:
                    if corrected:
                        raise
            last = records[-1]
            place = {"topic": "orders", "partition": 0, "offset": last["offset"] + 1}
            http.post("/commit/group/one", json=place).raise_for_status()

    check = nothing_lost("orders", lambda: kv.value("handled") or [])
    return Scenario({"shop": sell}, check, workers={"clerk": handle})


def page_by_offset(cloud: Cloud, corrected: bool) -> Scenario:
    """A reader sees each entry that exists throughout exactly once."""
    kv = cloud.kv_server()
    kv.load({"feed": ["d", "c", "b", "a"]})
    kv.execute("ZADD", "feed:by time", 1, "a", 2, "b", 3, "c", 4, "d")
    redis = Redis(kv.url, kv.token, rest_retries=0)
    seen: list[str] = []

    def read() -> None:
        if corrected:
            before = "+inf"
            while page := redis.eval(
                "return redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf', "
                "'WITHSCORES', 'LIMIT', 0, 2)",
                keys=["feed:by time"],
                args=[before],
            ):
                seen.extend(page[0::2])
                before = f"({page[-1]}"
        else:
            at = 0
            while page := redis.lrange("feed", at, at + 1):
                seen.extend(page)
                at += 2

    def post() -> None:
        multi = redis.multi()
        multi.lpush("feed", "e")
        multi.zadd("feed:by time", {"e": 5})
        multi.exec()

    def check(history: Any) -> None:
        assert len(seen) == len(set(seen)), f"saw {seen}"
        if "reader" not in history.errors and "reader" not in history.crashed:
            assert set(seen) >= set("abcd")

    return Scenario({"reader": read, "author": post}, check, setup=seen.clear)


def cursor_under_deletion(cloud: Cloud, corrected: bool) -> Scenario:
    """A clean-up visits every file of a folder while other files are deleted."""
    kv = cloud.kv_server()
    kv.load({"files": ["a", "b", "c", "d"]})
    redis = Redis(kv.url, kv.token, rest_retries=0)
    seen: list[str] = []

    def clean() -> None:
        if corrected:
            seen.extend(redis.lrange("files", 0, -1))
            return
        at = 0
        while (name := redis.lindex("files", at)) is not None:
            seen.append(name)
            at += 1

    def delete() -> None:
        redis.lrem("files", 1, "a")

    def check(history: Any) -> None:
        if "cleaner" not in history.errors and "cleaner" not in history.crashed:
            missed = set("bcd") - set(seen)
            assert not missed, f"never looked at {missed}"

    return Scenario({"cleaner": clean, "owner": delete}, check, setup=seen.clear)
