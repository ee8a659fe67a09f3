"""Test every method and parameter of ``redis.search`` of the official Python client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from tests.clients.surface import Api, Used, check_complete, surface

upstash_redis = pytest.importorskip("upstash_redis")
pytest.importorskip("upstash_redis.search")

from upstash_redis import AsyncRedis, Redis  # noqa: E402
from upstash_redis.errors import UpstashError  # noqa: E402
from upstash_redis.search import DataType, FieldType, Language, Order  # noqa: E402

SCHEMA: dict[str, Any] = {
    "title": "TEXT",
    "code": {"type": "TEXT", "no_tokenize": True},
    "exact": {"type": "TEXT", "no_stem": True, "alias": "title"},
    "price": {"type": FieldType.F64, "fast": True},
    "stock": {"type": "U64", "fast": True},
    "sold": FieldType.BOOL,
    "added": {"type": "DATE", "fast": True},
    "brand": "KEYWORD",
    "place": "FACET",
    "maker.name": "TEXT",
}
PRODUCTS: list[dict[str, Any]] = [
    {
        "title": "Wireless headphones", "code": "A 1", "price": 29.99, "stock": 3, "sold": True,
        "added": "2026-01-01T00:00:00Z", "brand": "acme", "place": "/shop/audio",
        "maker": {"name": "Ann Lee"},
    },
    {
        "title": "Running shoes", "code": "B 2", "price": 40, "stock": 0, "sold": False,
        "added": "2026-02-01T00:00:00Z", "brand": "bolt", "place": "/shop/sport",
        "maker": {"name": "Bob"},
    },
]  # fmt: skip


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(now="2026-01-01T00:00:00Z")) as server:
        yield server
        assert server._context.violations == []


@pytest.fixture
def used() -> Used:
    return Used()


@pytest.fixture(params=[Redis, AsyncRedis], ids=["sync", "async"])
def client(request: pytest.FixtureRequest, server: KVServer, used: Used) -> Iterator[Any]:
    """Return the client; scenarios use its search through ``Api``, which makes both clients
    synchronous.
    """
    loop = asyncio.new_event_loop()
    target = request.param(url=server.url, token=server.token, allow_telemetry=False)
    search = target.search
    groups = {
        type(target): "redis", type(target.json): "json", type(search): "search",
        type(search.index("x")): "index", type(search.alias): "alias",
    }  # fmt: skip
    with ExitStack() as stack:
        stack.callback(loop.close)

        def close() -> None:
            closing = target.close()
            if closing is not None:
                loop.run_until_complete(closing)

        stack.callback(close)
        yield Api(target, groups, used, loop)


@pytest.fixture
def index(client: Any) -> Any:
    client.search.create_index(
        name="products", schema=SCHEMA, data_type=DataType.JSON, prefixes=["p:", "q:"],
        language=Language.ENGLISH, skip_initial_scan=True, exists_ok=True,
    )  # fmt: skip
    for number, product in enumerate(PRODUCTS, 1):
        client.json.set(f"p:{number}", "$", product)
    return client.search.index("products")


def keys(hits: Any) -> list[str]:
    return [hit.key for hit in hits]


def test_the_whole_surface(client: Any, index: Any, used: Used) -> None:
    assert index.wait_indexing() == 1
    described = index.describe()
    assert (described.name, described.data_type) == ("products", DataType.JSON)
    assert (described.prefixes, described.language) == (["p:", "q:"], Language.ENGLISH)
    assert described.schema["exact"].alias == "title"
    assert described.schema["exact"].no_stem
    assert described.schema["code"].no_tokenize
    assert described.schema["price"].fast
    assert list(described.schema) == list(SCHEMA)

    [hit] = index.query(filter={"title": "headphone"})
    assert (hit.key, hit.data) == ("p:1", PRODUCTS[0])
    assert hit.score > 0
    assert keys(index.query(limit=1, offset=1)) == ["p:2"]
    ordered = index.query(order_by={"price": Order.ASC})
    assert [(hit.key, hit.score) for hit in ordered] == [("p:1", 29.99), ("p:2", 40)]
    [hit] = index.query(filter={"price": 40}, select={"title": True, "maker.name": True, "x": True})
    assert hit.data == {"title": "Running shoes", "maker": {"name": "Bob"}}
    assert index.query(filter={"price": 40}, select={})[0].data is None
    [hit] = index.query(
        filter={"title": {"$eq": "shoe"}},
        select={"title": True},
        highlight={"fields": ["title"], "tags": ("<b>", "</b>")},
    )
    assert hit.data == {"title": "Running <b>shoes</b>"}

    assert keys(index.query(score_func="stock")) == ["p:1", "p:2"]
    assert index.count(filter={"brand": {"$in": ["acme", "none"]}}).count == 1
    reply = index.aggregate(
        filter={"stock": {"$gte": 0}},
        aggregations={
            "by": {"$terms": {"field": "brand"}, "$aggs": {"m": {"$avg": {"field": "price"}}}},
            "all": {"$stats": {"field": "price"}},
            "p": {"$percentiles": {"field": "price", "percents": [50]}},
            "f": {"$facet": {"field": "place", "path": "/shop"}},
        },
    )
    assert reply["by"]["buckets"][0] == {"key": "acme", "docCount": 1, "m": {"value": 29.99}}
    assert reply["by"]["sumOtherDocCount"] == reply["by"]["docCountErrorUpperBound"] == 0
    assert reply["all"] == {"count": 2, "sum": 69.99, "min": 29.99, "max": 40, "avg": 34.995}
    assert reply["p"] == {"values": {"50.0": 34.995}}
    assert reply["f"]["path"] == "/shop"

    assert index.add_alias(alias="live") == 1
    assert client.search.alias.add(alias="live", index_name="products") == 2
    assert client.search.alias.list() == {"live": "products"}
    assert client.search.index("live").count(filter={}).count == 2
    assert client.search.alias.delete(alias="live") == 1
    assert client.search.alias.list() == {}
    assert index.drop() == 1
    assert index.drop() == 0

    wanted: set[str] = set()
    for group, target in (
        ("search", client.search),
        ("index", index),
        ("alias", client.search.alias),
    ):
        cls = type(target._target)
        wanted |= surface(cls, group, skip=lambda name: name in ("client", "name"))
    check_complete(__file__, wanted - used.calls)


@pytest.mark.parametrize(
    ("function", "scores"),
    [
        ("price", {"p:1": 30.99, "p:2": 41}),
        ({"field": "price", "modifier": "square", "factor": 2, "missing": 1, "scoreMode": "replace"},
         {"p:1": 1798.8002, "p:2": 3200}),
        ({"fields": ["price", {"field": "stock", "missing": 5, "modifier": "reciprocal"}],
          "combineMode": "multiply", "scoreMode": "multiply"}, {"p:1": 29.99 / 3, "p:2": 8}),
    ],
)  # fmt: skip
def test_score_functions(index: Any, function: Any, scores: dict[str, float]) -> None:
    actual = {hit.key: hit.score for hit in index.query(score_func=function)}
    assert actual == pytest.approx(scores)


def test_without_an_index(client: Any) -> None:
    missing = client.search.index("none")
    assert missing.query() == []
    assert missing.count(filter={}).count == -1
    assert missing.aggregate(aggregations={"a": {"$avg": {"field": "x"}}}) == {}
    assert missing.describe() is None
    assert missing.wait_indexing() == 0


@pytest.mark.parametrize("kind", ["hash", "string"])
def test_other_types_of_keys(client: Any, kind: str) -> None:
    client.search.create_index(
        name="i", schema={"t": "TEXT", "n": {"type": "I64", "fast": True}}, data_type=kind,
        prefixes="p:",
    )  # fmt: skip
    if kind == "hash":
        client.hset("p:1", values={"t": "some words", "n": "7"})
    else:
        client.set("p:1", '{"t": "some words", "n": 7}')
    [hit] = client.search.index("i").query(filter={"t": "word", "n": 7})
    assert hit.data == {"t": "some words", "n": "7" if kind == "hash" else 7}


def test_an_error_is_the_services(index: Any) -> None:
    with pytest.raises(UpstashError, match=r"Unknown field operator: \$not"):
        index.query(filter={"title": {"$not": "x"}})
    with pytest.raises(UpstashError, match="Field `brand` is not a fast field"):
        index.query(order_by={"brand": "ASC"})


def test_in_a_pipeline_and_a_transaction(server: KVServer, index: Any) -> None:
    with Redis(url=server.url, token=server.token) as redis:
        for several in (redis.pipeline(), redis.multi()):
            several.set("x", "1")
            several.execute(["SEARCH.COUNT", "products", "{}"])
            several.execute(["SEARCH.QUERY", "products", '{"price":40}', "NOCONTENT"])
            _, count, hits = several.exec()
            assert count.count == 2
            assert keys(hits) == ["p:2"]
