"""Test the methods that tests call on the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pytest_fakecloud.cloud.fake import Context, Fake
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.settings import read
from pytest_fakecloud.vector.fake import VectorIndex
from pytest_fakecloud.vector.settings import VectorConfig, VectorLimits
from tests.harness import wait_until


@pytest.fixture
def context() -> Context:
    return Context.alone(now="2026-01-01T00:00:00Z", seed=3)


@pytest.fixture
def index(context: Context) -> Iterator[VectorIndex]:
    with VectorIndex(context, dimension=2) as index:
        yield index


def post(index: VectorIndex, path: str, body: object, **options: Any) -> Any:
    answer = httpx.post(index.url + path, json=body, headers=index.headers, **options)
    return answer.json().get("result", answer.json())


def query(index: VectorIndex, **fields: Any) -> list[str]:
    return [hit["id"] for hit in post(index, "/query", {"vector": [1, 0], **fields})]


# -- identity ------------------------------------------------------------------------------------


def test_env_and_clients(index: VectorIndex) -> None:
    assert index.env == {
        "UPSTASH_VECTOR_REST_URL": index.url,
        "UPSTASH_VECTOR_REST_TOKEN": index.token,
    }
    pytest.importorskip("upstash_vector")
    assert index.client().upsert([("a", [1, 0])]) == "Success"
    assert index.aio.client(retries=1)._retries == 1


def test_rotating_refuses_both_old_tokens(index: VectorIndex) -> None:
    old = [index.token, index.read_only_token]
    new = index.rotate_token()
    assert new == index.token
    for token in old:
        answer = httpx.post(index.url + "/info", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
    assert post(index, "/info", None)["vectorCount"] == 0


# -- data ----------------------------------------------------------------------------------------


def test_load_and_vectors(index: VectorIndex) -> None:
    index.load({"a": [0.1, 0.2], "b": {"vector": [1, 0], "metadata": {"x": 1}, "data": "d"}})
    index.load([("c", [1, 1])], namespace="ns")
    vectors = index.vectors()
    assert vectors == [
        {"id": "a", "vector": [0.1, 0.2]},
        {"id": "b", "vector": [1.0, 0.0], "metadata": {"x": 1}, "data": "d"},
    ]
    assert vectors.where(id="b").only()["data"] == "d"
    assert index.vectors("ns").only()["id"] == "c"
    assert index.namespaces() == ["", "ns"]
    assert query(index) == ["b", "a"]
    vectors[1]["metadata"]["x"] = 2
    assert index.vectors()[1]["metadata"] == {"x": 1}


def test_what_vectors_gives_can_be_loaded(context: Context, tmp_path: Path) -> None:
    with VectorIndex(context, kind="hybrid", embedding=True) as first:
        first.load({"a": "hello", "b": {"data": "world", "metadata": {"n": 1}}})
        with VectorIndex(context, kind="hybrid", dimension=384) as second:
            second.load(first.vectors())
            assert second.vectors() == first.vectors()


def test_load_is_all_or_nothing(index: VectorIndex) -> None:
    with pytest.raises(
        ContractError, match=r"does not fit this index: Invalid vector dimension: 1"
    ):
        index.load([{"id": "a", "vector": [1, 2]}, {"id": "b", "vector": [1], "namespace": "ns"}])
    with pytest.raises(ContractError, match="record 1 cannot be loaded"):
        index.load([("a", [1, 2]), ("b", ["x", 2])])
    assert index.vectors() == []
    assert index.namespaces() == [""]


def test_a_limit_of_vectors(index: VectorIndex) -> None:
    index.load({"a": [1, 0], "b": [0, 1]})
    assert [len(index.vectors(limit=limit)) for limit in (None, 0, 1, 9)] == [2, 0, 1, 2]


def test_load_skips_faults_quotas_and_holding(context: Context) -> None:
    with VectorIndex(context, dimension=2, limits={"daily_updates": 0}) as index:
        index.faults.respond(500)
        with index.holding():
            index.load({"a": [1, 0]})
            index.faults.clear()
            assert index.pending() == []
            assert query(index) == ["a"]
        index.assert_upserted(times=0)


def test_namespaces_setting(context: Context) -> None:
    with VectorIndex(context, namespaces=["a", "b"]) as index:
        assert index.namespaces() == ["", "a", "b"]
    with VectorIndex(context, namespaces={"a": {"x": [1, 2]}, "": [("y", [1, 2])]}) as index:
        assert [index.vectors(name).only()["id"] for name in ("a", "")] == ["x", "y"]
        post(index, "/reset?all", None)
        index.reset()
        assert [len(index.vectors(name)) for name in ("a", "")] == [1, 1]


def test_reset_and_snapshots(index: VectorIndex) -> None:
    index.load({"a": [1, 0]})
    index.set_baseline()
    post(index, "/upsert", {"id": "b", "vector": [1, 0]})
    snapshot = index.snapshot()
    index.faults.respond(500)
    index.reset()
    assert query(index) == ["a"]
    index.restore(snapshot)
    assert query(index) == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "elsewhere", "dimension": 2}, {"dimension": 3}, {"dimension": None},
        {"dimension": 2, "similarity": "EUCLIDEAN"}, {"kind": "hybrid", "dimension": 2},
        {"kind": "sparse"}, {"dimension": 2, "embedding": True},
    ],
)  # fmt: skip
def test_the_snapshot_of_another_index_is_refused(
    index: VectorIndex, other: dict[str, Any]
) -> None:
    """Whatever differs, including the name, the error names both indexes, and nothing changes."""
    index.load({"a": [1, 0]})
    with VectorIndex(Context.alone(), **other) as another:
        snapshot = another.snapshot()
    with pytest.raises(
        ContractError, match=r"the snapshot is of the index .*, but this is .*load\(\)"
    ):
        index.restore(snapshot)
    assert query(index) == ["a"]


def test_the_snapshot_of_the_same_index_in_another_cloud_is_taken(index: VectorIndex) -> None:
    """An index that was filled once can be the start of every test."""
    with VectorIndex(Context.alone(), dimension=2) as before:
        before.load({"a": [1, 0]})
        snapshot = before.snapshot()
    index.restore(snapshot)
    assert query(index) == ["a"]


# -- pending -------------------------------------------------------------------------------------


def test_changes_in_a_holding_block_are_pending_until_its_end(index: VectorIndex) -> None:
    with index.holding():
        post(index, "/upsert/ns", {"id": "a", "vector": [1, 0]})
        assert index.pending() == [{"id": "a", "vector": [1.0, 0.0], "namespace": "ns"}]
        assert index.pending().where(namespace="n*").only()["id"] == "a"
    assert index.pending() == []


def test_holding_blocks_inside_one_another_end_at_the_last(index: VectorIndex) -> None:
    with index.holding():
        post(index, "/upsert", {"id": "a", "vector": [1, 0]})
        with index.holding():
            post(index, "/upsert", {"id": "b", "vector": [1, 0]})
        assert [item["id"] for item in index.pending()] == ["a", "b"]
    assert index.pending() == []
    assert query(index) == ["a", "b"]


def test_a_holding_block_ends_when_the_test_fails_in_it(index: VectorIndex) -> None:
    def fail() -> None:
        with index.holding():
            post(index, "/upsert", {"id": "a", "vector": [1, 0]})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert query(index) == ["a"]


def test_restoring_data_neither_begins_nor_ends_a_holding_block(index: VectorIndex) -> None:
    with index.holding():
        post(index, "/upsert", {"id": "a", "vector": [1, 0]})
        inside = index.snapshot()
        index.restore(inside)
        assert index.pending().only()["id"] == "a"
        index.reset()
        post(index, "/upsert", {"id": "b", "vector": [1, 0]})
        assert query(index) == []
    assert query(index) == ["b"]
    index.restore(inside)
    assert (query(index), index.pending()) == (["a"], [])
    post(index, "/upsert", {"id": "c", "vector": [1, 0]})
    assert query(index) == ["a", "c"]


def test_a_change_that_is_due_is_neither_pending_nor_held_back() -> None:
    with VectorIndex(Context.alone(), dimension=2, ready_after="1ms") as index:
        for block in (index.holding, nullcontext):
            post(index, "/upsert", {"id": "a", "vector": [1, 0]})
            sent = index.clock.now_us()
            wait_until(lambda sent=sent: index.clock.now_us() > sent + 1000)  # type: ignore[misc]
            with block():
                assert index.pending() == []


def test_a_namespace_that_does_not_exist_is_an_error(index: VectorIndex) -> None:
    assert index.vectors() == index.vectors("") == []
    index.load({"a": [1, 0]}, namespace="products")
    with pytest.raises(
        ContractError,
        match=r"'product' is not a namespace; did you mean 'products'\? "
        r'Known namespaces: "" \(the default\), products',
    ):
        index.vectors("product")
    post(index, "/delete-namespace/products", None)
    with pytest.raises(ContractError, match="is not a namespace"):
        index.vectors("products")


def test_dir_shows_what_a_test_may_use(index: VectorIndex) -> None:
    own = {name for name in dir(index) if not name.startswith("_")} - set(dir(Fake))
    assert own == {
        "aio", "assert_not_queried", "assert_not_upserted", "assert_queried", "assert_upserted",
        "clock",
        "client", "faults", "holding", "journal", "matches", "namespaces", "pending",
        "read_only_token", "vectors",
    }  # fmt: skip


def test_a_closed_index_leaves_no_timers(context: Context) -> None:
    with VectorIndex(context, ready_after="5s") as index:
        post(index, "/upsert", {"id": "a", "vector": [1, 0]})
        assert context.timekeeper.next_due_us() is not None
    assert context.timekeeper.next_due_us() is None


# -- filters and assertions ----------------------------------------------------------------------


def test_matches(index: VectorIndex) -> None:
    assert index.matches("n > 1 AND HAS FIELD x", {"n": 2, "x": None})
    assert not index.matches("n > 1", {"n": 1})
    assert not index.matches("n > 1", None)
    assert index.matches("", {})
    assert index.matches("tags CONTAINS 'b'", {"tags": ("a", "b")})
    assert index.matches("n = 1 AND v[0] = 2", {"n": np.int64(1), "v": np.array([2.0])}) is True
    assert index.matches("day GLOB '2026-*'", {"day": date(2026, 1, 2)})


def test_assert_upserted(index: VectorIndex) -> None:
    records = [
        {"id": 1, "vector": [1, 0], "metadata": {"x": 1}},
        {"id": "b", "vector": [0, 1], "metadata": None},
    ]
    post(index, "/upsert", records)
    post(index, "/upsert/n%20s", {"id": "c", "vector": [1, 0], "data": "text"})
    post(index, "/upsert", {"id": "bad", "vector": [1]})
    upserted = index.assert_upserted(1, metadata={"x": 1})
    assert upserted == [{"id": "1", "vector": [1.0, 0.0], "metadata": {"x": 1}, "namespace": ""}]
    assert index.assert_upserted("c", namespace="n s", data="text").only()["id"] == "c"
    assert len(index.assert_upserted(times=3)) == 3
    assert index.assert_upserted(vector=[0, 1]).only()["id"] == "b"
    assert index.assert_upserted(metadata=lambda m: m["x"] == 1).only()["id"] == "1"
    assert index.vectors("n s").where(vector=np.float32([1, 0]), id="c*").only() == {
        "id": "c", "vector": [1.0, 0.0], "data": "text",
    }  # fmt: skip
    index.assert_not_upserted("bad")
    with pytest.raises(AssertionError, match="never, found 1"):
        index.assert_not_upserted("b*")
    with pytest.raises(AssertionError, match=r"expected an upsert id='z'.*\n.*id is '1', not 'z'"):
        index.assert_upserted("z")


def test_an_upsert_whose_answer_was_lost_counts(index: VectorIndex) -> None:
    index.faults.lose_response(times=1)
    with pytest.raises(httpx.TransportError):
        post(index, "/upsert", {"id": "a", "vector": [1, 0]})
    assert index.vectors().only()["id"] == "a"
    index.assert_upserted("a", times=1)
    index.faults.drop(times=1)
    with pytest.raises(httpx.TransportError):
        post(index, "/upsert", {"id": "b", "vector": [1, 0]})
    index.assert_upserted("b", times=0)


def test_what_was_refused_is_named_with_the_reason(index: VectorIndex) -> None:
    post(index, "/upsert", [{"id": "a", "vector": [1, 0, 0]}, {"id": "b", "vector": [1, 0]}])
    httpx.post(index.url + "/upsert/ns", content=b"{no", headers=index.headers)
    httpx.post(index.url + "/upsert/ns", json=5, headers=index.headers)
    httpx.post(index.url + "/upsert", json={"id": "c", "vector": "x"})
    with pytest.raises(AssertionError) as caught:
        index.assert_upserted("a", vector=[1, 0, 0])
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "expected an upsert id='a' vector=[1, 0, 0] at least once, found 0",
        "  not id='a' vector=<3 numbers> namespace='': "
        "not carried out: 422 Invalid vector dimension: 3, expected: 2",
    ]
    text = "\n".join(lines)
    assert "not carried out: 400 The request body is not valid JSON" in text
    assert "not carried out: 401 Unauthorized: Invalid auth token" in text
    index.faults.respond(503, times=1)
    post(index, "/query", {"vector": [1, 0], "topK": 3})
    post(index, "/query", {"vector": [1, 0], "filter": "x =="})
    with pytest.raises(AssertionError) as caught:
        index.assert_queried(filter="x ==")
    assert "namespace='': not carried out: 400 Invalid filter" in str(caught.value)
    assert "kept it from the index" in str(caught.value)


def test_ids_of_any_whole_number_are_found(index: VectorIndex) -> None:
    post(index, "/upsert", {"id": 7, "vector": [1, 0]})
    assert index.assert_upserted(np.int64(7)) == index.assert_upserted("7")
    index.assert_queried(top_k=np.int64(7), times=0)  # type: ignore[arg-type]


def test_an_upsert_that_a_fault_answered_in_place_of_the_index_does_not_count(
    index: VectorIndex,
) -> None:
    index.faults.respond(200, {"result": "Success"}, times=1)
    assert post(index, "/upsert", {"id": "a", "vector": [1, 0]}) == "Success"
    assert index.vectors() == []
    index.assert_upserted("a", times=0)


def test_assert_queried(index: VectorIndex) -> None:
    query(index)
    query(index, topK=3, filter="n = 1")
    post(index, "/query/ns", [{"vector": [0, 1], "topK": 3}, {"vector": [1, 1], "topK": 4}])
    post(index, "/resumable-query", {"vector": [1, 0], "topK": 7})
    assert index.assert_queried(top_k=10, filter="", namespace="").only()["vector"] == [1, 0]
    assert index.assert_queried(top_k=3, times=2).last["namespace"] == "ns"
    assert index.assert_queried(filter="n = 1").only()["topK"] == 3
    assert index.assert_queried(filter=lambda text: "n" in text).only()["topK"] == 3
    index.assert_queried(vector=[1, 1], times=1)
    index.assert_queried(top_k=7, times=1)
    index.assert_queried(times=5)
    index.assert_not_queried(data="x")
    with pytest.raises(AssertionError, match="never, found 2"):
        index.assert_not_queried(top_k=3)
    with pytest.raises(AssertionError, match=r"a query filter='n = 2' at least once, found 0"):
        index.assert_queried(filter="n = 2")


# -- settings ------------------------------------------------------------------------------------


def test_words_may_be_in_any_case(context: Context) -> None:
    with VectorIndex(context, kind="HYBRID", similarity="euclidean") as index:  # type: ignore[arg-type]
        info = post(index, "/info", None)
        assert (info["indexType"], info["similarityFunction"]) == ("HYBRID", "EUCLIDEAN")
    with VectorIndex(context, similarity="Dot Product") as index:
        assert post(index, "/info", None)["similarityFunction"] == "DOT_PRODUCT"


def test_an_embedding_of_ones_own(context: Context) -> None:
    def letters(text: str) -> list[float]:
        return [text.count("a"), text.count("b")]

    with VectorIndex(context, embedding=letters) as index:
        post(index, "/upsert-data", [{"id": "a", "data": "aaa"}, {"id": "b", "data": "bb"}])
        assert index.vectors()[0]["vector"] == [3.0, 0.0]
        hits = post(index, "/query-data", {"data": "b", "topK": 1})
        assert hits == [{"id": "b", "score": 1.0}]
        assert post(index, "/info", None)["denseIndex"]["embeddingModel"] == "letters"
    with VectorIndex(context, embedding={"x": [1, 2]}) as index:
        post(index, "/upsert-data", {"id": "a", "data": "x"})
        answer = post(index, "/upsert-data", {"id": "b", "data": "y"})
        assert answer["status"] == 422
        assert "no vector for the text 'y'" in answer["error"]
        assert [violation.kind for violation in context.violations] == []


def test_limits_are_a_mapping_or_an_object() -> None:
    limits = read(VectorConfig, {"limits": {"top_k": 10, "data_bytes": None}}, "vector").limits
    assert vars(limits) == vars(VectorLimits(top_k=10, data_bytes=None))
    assert read(VectorConfig, {"limits": limits}, "vector").limits is limits
