"""Test the complete official Python client of the vector index, sync and async.

Every scenario runs with both clients and an index of its kind. A last test fails for each method,
parameter and option value that no scenario uses and that is not excused.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.vector.fake import VectorIndex
from tests.clients import surface
from tests.clients.surface import Api, Kept, Scenarios

upstash_vector = pytest.importorskip("upstash_vector")

from upstash_vector import AsyncIndex, Index, Vector  # noqa: E402
from upstash_vector.core.index_operations import AsyncResumableQueryHandle, ResumableQueryHandle  # noqa: E402
from upstash_vector.errors import UpstashError  # noqa: E402
from upstash_vector.types import (  # noqa: E402
    Data,
    FusionAlgorithm,
    MetadataUpdateMode,
    QueryMode,
    QueryRequest,
    SparseVector,
    WeightingStrategy,
)

NOW = "2026-01-01T00:00:00Z"
KINDS: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense", "dimension": 2},
    "sparse": {"kind": "sparse"},
    "hybrid": {"kind": "hybrid", "dimension": 2},
    "dense with embedding": {"kind": "dense", "embedding": True, "dimension": 384},
    "hybrid with embedding": {"kind": "hybrid", "embedding": True, "dimension": 384},
}
CLASSES: dict[str, tuple[type, type]] = {
    "index": (Index, AsyncIndex),
    "fake": (ResumableQueryHandle, AsyncResumableQueryHandle),
}
# The asynchronous client has asynchronous names for opening and closing.
ENTRANCES = {"__init__", "__enter__", "__exit__", "__aenter__", "__aexit__"}
EXCUSED = {
    "fake.__init__": "made by resumable_query(), not by users",
    "fake.__init__(exec_fn)": "made by resumable_query(), not by users",
    "fake.__init__(uid)": "made by resumable_query(), not by users",
}
WORDS = (FusionAlgorithm, MetadataUpdateMode, QueryMode, WeightingStrategy)


@dataclass
class Used(surface.Used):
    """What scenarios used, also the keys of queries in batches and the option values."""

    words: set[enum.Enum] = field(default_factory=set)

    def note(self, group: str, name: str, arguments: Mapping[str, Any]) -> None:  # type: ignore[override]
        super().note(group, name, arguments)
        self.words |= {value for value in arguments.values() if isinstance(value, enum.Enum)}
        for query in arguments.get("queries", ()):
            self.note("QueryRequest", "keys", query)


GROUPS = {cls: group for group, classes in CLASSES.items() for cls in classes}


@contextmanager
def entered(api: Api) -> Iterator[None]:
    """Enter a client's with-block, synchronously or asynchronously."""
    sync = hasattr(api._target, "__enter__")
    enter, leave = ("__enter__", "__exit__") if sync else ("__aenter__", "__aexit__")
    assert getattr(api, enter)() is api
    yield
    getattr(api, leave)(None, None, None)


@dataclass
class World:
    """The index and client of one scenario."""

    index: VectorIndex
    api: Api
    flavour: type
    used: Used

    def close(self, client: Any) -> None:
        """Close the connections of a client, synchronously or asynchronously."""
        if isinstance(client, AsyncIndex):
            self.api._loop.run_until_complete(client._client.aclose())
        else:
            client._client.close()


SCENARIOS = scenario = Scenarios()
"""Each needs a kind of index."""


def run(name: str, flavour: type, used: Used) -> None:
    kind, function = SCENARIOS[name]
    with ExitStack() as stack:
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        context = Context.alone(now=NOW)
        index = stack.enter_context(VectorIndex(context, **KINDS[kind]))
        options = {"url": index.url, "token": index.token}
        used.note("index", "__init__", options)
        client = flavour(**options)
        world = World(index, Api(client, GROUPS, used, loop), flavour, used)
        stack.callback(world.close, client)
        function(world)
        assert context.violations == []


def ids(hits: list[Any]) -> list[str]:
    return [hit.id for hit in hits]


# -- every kind of index -------------------------------------------------------------------------


def some_records(kind: str) -> list[Any]:
    if "embedding" in kind:
        return [Data(f"id-{n}", f"text number {n}", {"n": n}) for n in range(5)]
    dense = "sparse" not in kind
    sparse = kind != "dense"
    return [
        Vector(
            f"id-{n}", [1.0, float(n)] if dense else None, {"n": n}, f"text number {n}",
            SparseVector([0, n + 1], [0.5, 1.0]) if sparse else None,
        )
        for n in range(5)
    ]  # fmt: skip


def one_query(kind: str) -> dict[str, Any]:
    if "embedding" in kind:
        return {"data": "text number 3"}
    query: dict[str, Any] = {}
    if "sparse" not in kind:
        query["vector"] = [1.0, 0.0]
    if kind != "dense":
        query["sparse_vector"] = SparseVector([0], [1.0])
    return query


def whole_life(kind: str) -> Callable[[World], None]:
    def life(world: World) -> None:
        api = world.api
        for namespace in ("", "ns"):
            assert api.upsert(vectors=some_records(kind), namespace=namespace) == "Success"
            check_reading(api, kind, namespace)
            check_querying(api, kind, namespace)
        check_info(api, kind)
        for namespace in ("", "ns"):
            check_changing(api, namespace)
        assert api.list_namespaces() == ["", "ns"]
        assert api.delete_namespace(namespace="ns") is None
        assert api.list_namespaces() == [""]
        with pytest.raises(UpstashError, match=r"Namespace ns for the index .* does not exist"):
            api.delete_namespace("ns")
        assert api.reset() == "Success"
        assert api.range(limit=10).vectors == []

    life.__name__ = f"whole_life_of_{kind.replace(' ', '_')}"
    return life


def check_reading(api: Api, kind: str, namespace: str) -> None:
    vectors = api.fetch(
        ids=["id-3", "missing"], include_vectors=True, include_metadata=True, include_data=True,
        namespace=namespace,
    )  # fmt: skip
    assert vectors[1] is None
    record = vectors[0]
    assert (record.id, record.metadata, record.data) == ("id-3", {"n": 3}, "text number 3")
    assert (record.vector is not None) is ("sparse" not in kind)
    assert (record.sparse_vector is not None) is (not kind.startswith("dense"))
    if kind in ("dense", "hybrid"):
        assert record.vector == [1, 3]
    if kind in ("sparse", "hybrid"):
        assert record.sparse_vector == SparseVector([0, 4], [0.5, 1.0])
    bare = api.fetch("id-3", namespace=namespace)[0]
    assert (bare.vector, bare.sparse_vector, bare.metadata, bare.data) == (None,) * 4
    assert ids(api.fetch(prefix="id-", namespace=namespace)) == [f"id-{n}" for n in range(5)]
    page = api.range(
        cursor="", limit=2, include_vectors=True, include_metadata=True, include_data=True,
        namespace=namespace, prefix="id-",
    )  # fmt: skip
    assert (ids(page.vectors), page.next_cursor) == (["id-0", "id-1"], "2")
    assert page.vectors[1].metadata == {"n": 1}
    seen, cursor = [], "0"
    while cursor != "":
        page = api.range(cursor=cursor, limit=2, namespace=namespace)
        seen += ids(page.vectors)
        cursor = page.next_cursor
    assert seen == [f"id-{n}" for n in range(5)]


def check_querying(api: Api, kind: str, namespace: str) -> None:
    query = one_query(kind)
    hits = api.query(
        **query, top_k=3, include_vectors=True, include_metadata=True, include_data=True,
        filter="n >= 1", namespace=namespace,
    )  # fmt: skip
    assert len(hits) == 3
    assert all(hit.metadata["n"] >= 1 and hit.data for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    first = hits[0]
    assert (first.vector is not None) is ("sparse" not in kind)
    assert (first.sparse_vector is not None) is (not kind.startswith("dense"))
    assert api.query(**query, namespace="missing") == []
    many = api.query_many(
        queries=[{**query, "top_k": 1}, {**query, "top_k": 4}], namespace=namespace
    )
    assert [len(hits) for hits in many] == [1, 4]
    assert ids(many[1])[:1] == ids(many[0])
    everything = ids(api.query(**query, top_k=5, namespace=namespace))
    batch, fake = api.resumable_query(**query, top_k=2, namespace=namespace, max_idle=60)
    more = fake.fetch_next(additional_k=2)
    rest = fake.fetch_next(10)
    assert sorted(ids(batch) + ids(more) + ids(rest)) == sorted(everything)
    assert fake.fetch_next(1) == []
    fake.stop()


def check_info(api: Api, kind: str) -> None:
    info = api.info()
    assert (info.vector_count, info.pending_vector_count) == (10, 0)
    assert info.namespaces["ns"].vector_count == 5
    assert info.index_size > 0
    embedded = "embedding" in kind
    if kind == "sparse":
        assert info.dense_index is None
    else:
        assert info.dimension == info.dense_index.dimension == (384 if embedded else 2)
        assert info.dense_index.similarity_function == info.similarity_function == "COSINE"
        assert bool(info.dense_index.embedding_model) is embedded
    if kind.startswith("dense"):
        assert info.sparse_index is None
    else:
        assert bool(info.sparse_index.embedding_model) is embedded


def check_changing(api: Api, namespace: str) -> None:
    assert api.update(id="id-0", metadata={"new": 1}, namespace=namespace) is True
    assert api.update(
        "id-0", metadata={"more": 2}, metadata_update_mode=MetadataUpdateMode.PATCH,
        namespace=namespace,
    )  # fmt: skip
    assert api.fetch("id-0", include_metadata=True, namespace=namespace)[0].metadata == {
        "new": 1,
        "more": 2,
    }
    overwrite = MetadataUpdateMode.OVERWRITE
    assert api.update(
        "id-0", metadata={"n": 9}, metadata_update_mode=overwrite, namespace=namespace
    )
    assert api.update("id-0", data="another text", namespace=namespace)
    assert api.fetch("id-0", include_data=True, namespace=namespace)[0].data == "another text"
    assert api.update("missing", data="x", namespace=namespace) is False
    assert api.delete(ids=["id-1", "missing"], namespace=namespace).deleted == 1
    assert api.delete("id-1", namespace=namespace).deleted == 0
    assert api.delete(filter="n = 9", namespace=namespace).deleted == 1
    assert api.delete(prefix="id-2", namespace=namespace).deleted == 1
    assert ids(api.range(limit=10, namespace=namespace).vectors) == ["id-3", "id-4"]
    assert api.reset(namespace=namespace) == "Success"
    assert api.range(limit=10, namespace=namespace).vectors == []


for _kind in KINDS:
    scenario(_kind)(whole_life(_kind))


# -- dense ---------------------------------------------------------------------------------------


@scenario("dense")
def every_shape_of_a_dense_record(world: World) -> None:
    world.api.upsert(
        vectors=[
            ("tuple", [0.1, 0.2], {"x": 1}, "data"),
            ("array", np.array([1, 2])),
            {"id": "dict", "vector": [1, 2], "metadata": {"x": 2}},
            Vector(id="vector", vector=np.array([1.0, 2.0]), data="text"),
            (33, [1, 2]),
            ("", [1, 2]),
        ]
    )
    vectors = world.index.vectors()
    assert [item["id"] for item in vectors] == ["tuple", "array", "dict", "vector", "33", ""]
    assert vectors[0] == {
        "id": "tuple", "vector": [0.1, 0.2], "metadata": {"x": 1}, "data": "data",
    }  # fmt: skip
    assert world.api.fetch(["33"])[0].id == "33"


@scenario("dense")
def ties_and_self_similarity(world: World) -> None:
    world.api.upsert([("a", [1, 1]), ("b", [2, 2]), ("c", [3, 3])])
    hits = world.api.query(vector=[5, 5], top_k=1)
    assert [(hit.id, hit.score) for hit in hits] == [("a", 1)]


@scenario("dense")
def batches_of_queries(world: World) -> None:
    world.api.upsert([(str(n), [1, n], {"n": n}, f"d{n}") for n in range(4)])
    queries: list[QueryRequest] = [
        {
            "vector": [1, 0], "top_k": 1, "include_vectors": True, "include_metadata": True,
            "include_data": True, "filter": "n > 0",
        },
        {"vector": np.array([0, 1])},
    ]  # fmt: skip
    first, second = world.api.query_many(queries=queries)
    assert (first[0].id, first[0].vector, first[0].metadata, first[0].data) == (
        "1",
        [1, 1],
        {"n": 1},
        "d1",
    )
    assert ids(second) == ["3", "2", "1", "0"]
    assert [ids(hits) for hits in world.api.query_many(queries=queries[:1])] == [["1"]]


@scenario("dense")
def errors_come_as_errors_of_the_client(world: World) -> None:
    api = world.api
    with pytest.raises(UpstashError, match="Invalid vector dimension: 3, expected: 2"):
        api.upsert([("a", [1, 2, 3])])
    with pytest.raises(UpstashError, match="Embedding data for this index is not allowed"):
        api.upsert([("a", "text")])
    with pytest.raises(UpstashError, match="Embedding data for this index is not allowed"):
        api.query(data="text")
    with pytest.raises(UpstashError, match="Only and only one of the ids, prefix, or filter"):
        api.delete(ids="a", prefix="b")
    with pytest.raises(UpstashError, match="Only and only one of the ids, prefix, or filter"):
        api.delete()
    with pytest.raises(UpstashError, match="Only one of ids or prefix must be provided"):
        api.fetch(ids="a", prefix="b")
    with pytest.raises(UpstashError, match=r"Invalid filter\. At line 1:4 token recognition error"):
        api.query(vector=[1, 2], filter="tags[] = 1")
    assert world.index.vectors() == []


@scenario("dense")
def a_wrong_token_is_refused(world: World) -> None:
    world.index.rotate_token()
    with pytest.raises(UpstashError, match="Unauthorized"):
        world.api.info()


@scenario("dense")
def resumable_queries_end_and_expire(world: World) -> None:
    api = world.api
    api.upsert([(str(n), [1, n], {"n": n}, f"d{n}") for n in range(9)])
    hits, fake = api.resumable_query(
        vector=[1, 0], top_k=2, include_vectors=True, include_metadata=True, include_data=True,
        filter="n > 1", max_idle=60,
    )  # fmt: skip
    assert (ids(hits), hits[0].data, hits[0].metadata) == (["2", "3"], "d2", {"n": 2})
    with entered(fake):
        more = fake.fetch_next(2)
        assert (ids(more), more[0].vector) == (["4", "5"], [1, 4])
    with pytest.raises(UpstashError, match="was ended"):
        fake.stop()
    _, fake = api.resumable_query(vector=[1, 0], max_idle=60)
    world.index.clock.advance(61)
    with pytest.raises(UpstashError, match="idle for longer"):
        fake.fetch_next(1)
    hits, fake = api.resumable_query(vector=[1, 0], namespace="missing")
    assert (hits, fake.fetch_next(1)) == ([], [])
    fake.stop()


@scenario("dense")
def namespaces_are_pasted_in_raw(world: World) -> None:
    for namespace in ("with space", "with/slash", "ünï", "trailing/"):
        world.api.upsert([("a", [1, 2])], namespace=namespace)
        assert ids(world.api.fetch("a", namespace=namespace)) == ["a"]
    assert world.api.list_namespaces() == ["", "with space", "with/slash", "ünï", "trailing/"]
    world.api.reset(all=True)
    assert all(space.vector_count == 0 for space in world.api.info().namespaces.values())


OPTIONS = {"retries": 1, "retry_interval": 0.0, "allow_telemetry": False}


@scenario("dense")
def from_env_finds_the_fake(world: World) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.index.env.items():
            patch.setenv(name, value)
        client = world.api.from_env(**OPTIONS)._target
    assert isinstance(client, world.flavour)
    assert client._url == world.index.url
    assert client._headers == world.index.headers
    world.close(client)


@scenario("dense")
def telemetry_and_retries_are_options(world: World) -> None:
    world.api.list_namespaces()
    assert (
        world.index.journal.calls()
        .last.request_headers.get("Upstash-Telemetry-Sdk")
        .startswith("upstash-")
    )
    options = {"url": world.index.url, "token": world.index.token, **OPTIONS}
    world.used.note("index", "__init__", options)
    client = world.flavour(**options)
    api = Api(client, GROUPS, world.used, world.api._loop)
    dropped = world.index.faults.drop(times=1)
    assert api.list_namespaces() == [""]
    assert dropped.hits == 1
    assert world.index.journal.calls().last.request_headers.get("Upstash-Telemetry-Sdk") is None
    world.close(client)


@scenario("dense")
def pending_changes_are_seen_by_fetch_only(world: World) -> None:
    with world.index.holding():
        world.api.upsert([("a", [1, 2])])
        assert world.api.query(vector=[1, 2]) == []
        assert world.api.info().pending_vector_count == 1
        assert ids(world.api.fetch("a")) == ["a"]
    assert ids(world.api.query(vector=[1, 2])) == ["a"]


@scenario("dense")
def a_dropped_connection_is_tried_again(world: World) -> None:
    world.api._target._retry_interval = 0
    fault = world.index.faults.drop(times=2)
    world.api.upsert([("a", [1, 2])])
    assert fault.hits == 2
    world.index.assert_upserted("a", times=1)


# -- sparse and hybrid ---------------------------------------------------------------------------


@scenario("sparse")
def every_shape_of_a_sparse_record(world: World) -> None:
    world.api.upsert(
        [
            ("tuple", ([1, 2], [0.1, 0.2]), {"x": 1}, "data"),
            ("class", SparseVector(np.array([3]), np.array([0.5]))),
            {"id": "dict", "sparse_vector": ([2**31 - 1, -(2**31)], [1, 2])},
            Vector(id="vector", sparse_vector=SparseVector([1, 1], [1, 2])),
        ]
    )
    assert [item["sparseVector"] for item in world.index.vectors()] == [
        {"indices": [1, 2], "values": [0.1, 0.2]}, {"indices": [3], "values": [0.5]},
        {"indices": [2**31 - 1, -(2**31)], "values": [1, 2]}, {"indices": [1, 1], "values": [1, 2]},
    ]  # fmt: skip
    hits = world.api.query(sparse_vector=([1], [1.0]), include_vectors=True)
    assert [(hit.id, hit.score) for hit in hits] == [("vector", 3), ("tuple", 0.1)]
    assert hits[0].sparse_vector == SparseVector([1, 1], [1, 2])
    assert world.api.update("class", sparse_vector=SparseVector([9], [1.0]))
    assert ids(world.api.query(sparse_vector=([9], [1.0]))) == ["class"]


@scenario("sparse")
def sparse_queries_weigh_by_idf(world: World) -> None:
    world.api.upsert(
        [
            ("id0", ([0, 1], [0.1, 0.2])),
            ("id1", ([1, 2], [0.2, 0.3])),
            ("id2", ([2, 3], [0.3, 0.4])),
        ]
    )
    idf = WeightingStrategy.IDF
    hits = world.api.query(sparse_vector=([0, 1], [0.1, 0.2]), weighting_strategy=idf)
    assert [(hit.id, hit.score) for hit in hits] == [("id0", 0.028608438), ("id1", 0.018800145)]
    query: QueryRequest = {"sparse_vector": SparseVector([0], [0.1]), "weighting_strategy": idf}
    assert [ids(hits) for hits in world.api.query_many(queries=[query, query])] == [["id0"]] * 2


@scenario("hybrid")
def hybrid_queries_are_fused(world: World) -> None:
    api = world.api
    api.upsert(
        [
            ("id0", [0.1, 0.2], ([0, 1], [0.1, 0.2])),
            Vector("id1", [0.2, 0.3], sparse_vector=SparseVector([1, 2], [0.2, 0.3])),
            {"id": "id2", "vector": [0.3, 0.4], "sparse_vector": ([2, 3], [0.3, 0.4])},
        ]
    )
    rrf, dbsf, idf = FusionAlgorithm.RRF, FusionAlgorithm.DBSF, WeightingStrategy.IDF

    def scores(hits: list[Any]) -> list[tuple[str, float]]:
        return [(hit.id, hit.score) for hit in hits]

    hits = api.query(
        vector=[0.1, 0.1], sparse_vector=SparseVector([3, 4], [0.1, 0.2]), top_k=1,
        fusion_algorithm=rrf, include_vectors=True,
    )  # fmt: skip
    assert scores(hits) == [("id2", 0.033333335)]
    assert hits[0].vector == [0.3, 0.4]
    assert scores(api.query(vector=[0.5, 0.1], sparse_vector=([0, 1], [0.5, 0.1]), top_k=1)) == [
        ("id0", 0.032795697)
    ]
    alone = api.query(
        sparse_vector=([2, 3], [0.5, 0.5]), weighting_strategy=idf, fusion_algorithm=dbsf, top_k=1,
    )  # fmt: skip
    assert scores(alone) == [("id2", 0.26666638)]
    assert scores(api.query(vector=[0.3, 0.4], top_k=1)) == [("id2", 1)]
    hits, fake = api.resumable_query(
        vector=[0.1, 0.1], sparse_vector=([0], [0.1]), top_k=2, weighting_strategy=idf,
        fusion_algorithm=dbsf,
    )  # fmt: skip
    assert scores(hits) == [("id2", 0.617851), ("id0", 0.5)]
    assert scores(fake.fetch_next(1)) == [("id1", 0.5)]
    query: QueryRequest = {
        "vector": [0.5, 0.1], "sparse_vector": SparseVector([0, 1], [0.5, 0.1]), "top_k": 1,
        "fusion_algorithm": rrf,
    }  # fmt: skip
    assert [ids(hits) for hits in api.query_many(queries=[query, query])] == [["id0"]] * 2


@scenario("hybrid")
def a_hybrid_update_needs_both_vectors(world: World) -> None:
    world.api.upsert([("a", [1, 2], ([1], [1.0]))])
    with pytest.raises(UpstashError, match="both vector and sparseVector, or neither"):
        world.api.update("a", vector=[3, 4])
    assert world.api.update("a", vector=[3, 4], sparse_vector=([2], [1.0]))
    assert ids(world.api.query(sparse_vector=([2], [1.0]))) == ["a"]


# -- embedding -----------------------------------------------------------------------------------


@scenario("dense with embedding")
def texts_are_near_when_they_share_words(world: World) -> None:
    world.api.upsert([Data("a", "Hello world", {"x": 1}), ("b", "Vector databases", {"x": 2})])
    hits = world.api.query(data="Hello", top_k=1, include_metadata=True, include_data=True)
    assert [(hit.id, hit.metadata, hit.data) for hit in hits] == [("a", {"x": 1}, "Hello world")]
    assert world.api.update("b", data="Hello")
    assert ids(world.api.query(data="Hello", top_k=1)) == ["b"]
    queries: list[QueryRequest] = [{"data": "Hello", "top_k": 1}, {"data": "world", "top_k": 1}]
    assert [ids(hits) for hits in world.api.query_many(queries=queries)] == [["b"], ["a"]]


@scenario("hybrid with embedding")
def query_modes_choose_the_component(world: World) -> None:
    api = world.api
    api.upsert([("a", "Hello world"), ("b", "Vector databases")])
    assert ids(api.query(data="hello", query_mode=QueryMode.HYBRID)) == ["a", "b"]
    assert ids(api.query(data="hello", query_mode=QueryMode.DENSE)) == ["a", "b"]
    assert ids(api.query(data="hello", query_mode=QueryMode.SPARSE)) == ["a"]
    hits, fake = api.resumable_query(data="hello", query_mode=QueryMode.SPARSE, top_k=1)
    assert (ids(hits), fake.fetch_next(5)) == (["a"], [])
    # This client omits the mode in batches of more than one query, so the default applies.
    query: QueryRequest = {"data": "hello", "query_mode": QueryMode.SPARSE}
    assert [len(hits) for hits in api.query_many(queries=[query, query])] == [2, 2]
    assert [len(hits) for hits in api.query_many(queries=[query])] == [1]


# -- running -------------------------------------------------------------------------------------

USED = Kept(run, Used)


@pytest.mark.parametrize("flavour", [Index, AsyncIndex])
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenario(name: str, flavour: type) -> None:
    USED.run(name, flavour)


@pytest.mark.parametrize("flavour", [Index, AsyncIndex])
def test_the_whole_surface_was_used(flavour: type) -> None:
    used_words = set().union(*(used.words for used in USED.each(SCENARIOS, flavour)))
    place = 0 if flavour is Index else 1
    wanted = {f"QueryRequest.keys({key})" for key in QueryRequest.__annotations__}
    for group, classes in CLASSES.items():
        wanted |= surface.surface(classes[place], group, special=ENTRANCES)
    surface.check_complete(__file__, wanted - USED.calls(SCENARIOS, flavour) - set(EXCUSED))
    assert set(EXCUSED) <= wanted
    assert {word for words in WORDS for word in words} == used_words


def test_the_surface_is_read_from_the_client() -> None:
    assert "index.query(fusion_algorithm)" in surface.surface(AsyncIndex, "index")
    assert "fake.__aexit__(traceback)" in surface.surface(
        AsyncResumableQueryHandle, "fake", special=ENTRANCES
    )
    assert {"index.upsert", "index.from_env"} <= surface.surface(Index, "index")
