"""Test the operations of the index without HTTP."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.vector.engine import VectorEngine, merge_patch
from pytest_fakecloud.vector.engine import namespace as namespace_module
from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.model import (
    Include,
    Kind,
    NamespaceInfo,
    Similarity,
    UpdateMode,
    VectorQuery,
    VectorRecord,
)
from pytest_fakecloud.vector.settings import VectorLimits
from tests.harness import check_each

from ..building import NOW, ask, engine, floats, ids, put, rejects, scored, sparse


def all_ids(index: VectorEngine, namespace: str = "") -> list[str]:
    return [record.id for record in index.range(namespace, 0, None).records]


# -- upsert --------------------------------------------------------------------------------------


def test_upsert_replaces_the_whole_record_in_its_place() -> None:
    index = engine()
    index.upsert(
        "",
        [VectorRecord("a", floats(1, 0), None, {"x": 1}, "text"), VectorRecord("b", floats(1, 0))],
    )
    put(index, a=(0, 1))
    (record,) = index.fetch("", ["a"])
    assert record is not None
    assert (record.metadata, record.data) == (None, None)
    assert record.vector is not None
    assert record.vector.tolist() == [0, 1]
    assert all_ids(index) == ["a", "b"]


def test_the_last_of_one_id_in_a_batch_wins() -> None:
    index = engine()
    index.upsert("", [VectorRecord("a", floats(1, 0)), VectorRecord("a", floats(0, 1))])
    assert index.describe().namespaces[""] == NamespaceInfo(1, 0)
    assert ask(index, 0, 1)[0].score == 1


def test_a_bad_record_leaves_the_whole_batch_out() -> None:
    index = engine()
    for bad in (floats(1, 2, 3), floats()):
        with rejects(422, f"Invalid vector dimension: {len(bad)}, expected: 2"):
            index.upsert("new", [VectorRecord("a", floats(1, 2)), VectorRecord("x", bad)])
    assert index.namespaces() == [""]


def test_an_index_without_a_dimension_takes_the_first_vectors() -> None:
    index = engine(dimension=None)
    index.create_namespace("early")
    assert index.describe().dimension == 0
    assert ask(index, 1, 2, 3) == []
    with pytest.raises(VectorError, match="dimension: 2, expected: 3"):
        index.upsert("", [VectorRecord("a", floats(1, 2, 3)), VectorRecord("b", floats(1, 2))])
    assert index.describe().dimension == 0
    with pytest.raises(VectorError, match="dimension: 0, expected: at least 1"):
        index.upsert("", [VectorRecord("a", floats())])
    put(index, a=(1, 2, 3))
    assert index.describe().dimension == 3
    put(index, "early", b=(1, 2, 3))
    with pytest.raises(VectorError, match="Invalid vector dimension: 2, expected: 3"):
        ask(index, 1, 2)
    index.reset_all()
    with pytest.raises(VectorError, match="dimension: 2, expected: 3"):
        put(index, a=(1, 2))


def test_an_empty_batch_changes_nothing() -> None:
    index = engine()
    index.upsert("new", [])
    assert index.namespaces() == [""]


# -- update --------------------------------------------------------------------------------------


def test_update_changes_what_is_given() -> None:
    index = engine()
    index.upsert("", [VectorRecord("a", floats(1, 0), None, {"x": 1}, "text")])
    assert index.update("", VectorRecord("a", vector=floats(0, 1)))
    assert index.update("", VectorRecord("a", data="new"))
    [record] = index.range("", 0, None).records
    assert (record.metadata, record.data) == ({"x": 1}, "new")
    assert scored(ask(index, 0, 1)) == [("a", "1.0")]


def test_update_overwrites_or_patches_metadata() -> None:
    index = engine()
    metadata = {"x": 1, "deep": {"a": 1, "b": 2}}
    index.upsert(
        "", [VectorRecord("a", floats(1, 0), None, metadata), VectorRecord("none", floats(1, 0))]
    )
    patch = {"x": None, "deep": {"b": 3, "c": 4}, "new": [1]}
    index.update("", VectorRecord("a", metadata=patch), UpdateMode.PATCH)
    index.update("", VectorRecord("none", metadata={"x": None, "y": 1}), UpdateMode.PATCH)
    a, none = index.range("", 0, None).records
    assert a.metadata == {"deep": {"a": 1, "b": 3, "c": 4}, "new": [1]}
    assert none.metadata == {"y": 1}
    assert metadata == {"x": 1, "deep": {"a": 1, "b": 2}}
    index.update("", VectorRecord("a", metadata={"only": 1}))
    assert index.fetch("", ["a"])[0].metadata == {"only": 1}  # type: ignore[union-attr]


def test_a_patch_may_not_make_metadata_larger_than_its_limit() -> None:
    index = engine()
    before = {"a": "x" * 40_000}
    index.upsert("", [VectorRecord("a", floats(1, 0), None, before, "text")])
    patch = VectorRecord("a", metadata={"b": "x" * 40_000}, data="new")
    with rejects(400, "Metadata size limit exceeded: 80015 bytes"):
        index.update("", patch, UpdateMode.PATCH)
    [record] = index.range("", 0, None).records
    assert (record.metadata, record.data) == (before, "text")
    replacing = VectorRecord("a", metadata={"a": None, "b": "y"})
    assert index.update("", replacing, UpdateMode.PATCH)
    unlimited = engine(limits=VectorLimits(metadata_bytes=None))
    unlimited.upsert("", [VectorRecord("a", floats(1, 0), None, before)])
    assert unlimited.update("", patch, UpdateMode.PATCH)


def test_update_of_a_missing_record_is_false() -> None:
    index = engine()
    assert not index.update("", VectorRecord("a", data="x"))
    assert not index.update("missing", VectorRecord("a", data="x"))
    assert index.namespaces() == [""]


def test_a_hybrid_update_carries_both_vectors_or_neither() -> None:
    index = engine(kind=Kind.HYBRID)
    index.upsert("", [VectorRecord("a", floats(1, 0), sparse({1: 1.0}))])
    for change in (
        VectorRecord("a", vector=floats(0, 1)),
        VectorRecord("a", sparse=sparse({2: 1.0})),
    ):
        with pytest.raises(VectorError, match="both vector and sparseVector, or neither"):
            index.update("", change)
    assert index.update("", VectorRecord("a", data="text"))
    assert index.update("", VectorRecord("a", vector=floats(0, 1), sparse=sparse({2: 1.0})))
    assert ids(index.query("", [VectorQuery(None, sparse({2: 1.0}))])[0]) == ["a"]
    assert ids(index.query("", [VectorQuery(None, sparse({1: 1.0}))])[0]) == []


def test_update_checks_dimension_and_kind() -> None:
    index = engine()
    put(index, a=(1, 0))
    with pytest.raises(VectorError, match="dimension: 1, expected: 2"):
        index.update("", VectorRecord("a", vector=floats(1)))
    with pytest.raises(VectorError, match="The update with id 'a' has a sparseVector"):
        index.update("", VectorRecord("a", sparse=sparse({1: 1.0})))


RFC_7396: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}), ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]), ({"a": "foo"}, None, None), ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]  # fmt: skip
"""The test cases of RFC 7396, appendix A."""


def test_merge_patch_is_rfc_7396() -> None:
    def check(target: Any, patch: Any, merged: Any) -> None:
        before = repr((target, patch))
        assert merge_patch(target, patch) == merged
        assert repr((target, patch)) == before

    check_each(check, RFC_7396)


# -- delete and reset ----------------------------------------------------------------------------


def filled() -> VectorEngine:
    index = engine()
    for namespace in ("", "ns"):
        records = [
            VectorRecord(f"{'even' if n % 2 == 0 else 'odd'}-{n}", floats(1, n), None, {"n": n})
            for n in range(6)
        ]
        index.upsert(namespace, records)
    return index


def test_delete_by_ids_prefix_and_filter() -> None:
    index = filled()
    assert index.delete("", ["even-0", "missing", "even-0"]) == 1
    assert index.delete_prefix("", "odd-") == 3
    assert index.delete_matching("", "n >= 4") == 1
    assert all_ids(index) == ["even-2"]
    assert len(all_ids(index, "ns")) == 6
    assert index.delete("missing", ["a"]) == 0
    assert index.delete_prefix("missing", "") == 0
    assert index.delete_matching("missing", "n = 1") == 0
    assert index.delete_prefix("ns", "") == 6
    assert index.namespaces() == ["", "ns"]


def test_delete_by_filter_sees_pending_metadata() -> None:
    index = filled()
    index.readiness.hold()
    index.update("", VectorRecord("even-0", metadata={"n": 99}))
    assert index.delete_matching("", "n = 99") == 1
    assert "even-0" not in all_ids(index)


@pytest.mark.parametrize("text", ["", "  ", "n ="])
def test_a_bad_filter_deletes_nothing(text: str) -> None:
    index = filled()
    with rejects(400):
        index.delete_matching("", text)
    assert len(all_ids(index)) == 6


# -- namespaces ----------------------------------------------------------------------------------


def test_namespaces_are_apart() -> None:
    index = engine()
    put(index, "b", x=(1, 0))
    put(index, "a", x=(0, 1))
    assert index.namespaces() == ["", "b", "a"]
    assert scored(ask(index, 1, 0, namespace="b")) == [("x", "1.0")]
    assert scored(ask(index, 1, 0, namespace="a")) == [("x", "0.5")]
    assert ask(index, 1, 0) == []
    assert ask(index, 1, 0, namespace="missing") == []
    assert index.fetch("missing", ["x"]) == [None]
    assert index.range("missing", 0, 5).next_cursor == ""
    assert index.random("missing") is None


def test_rename_namespace() -> None:
    index = filled()
    put(index, "other", z=(1, 1))
    assert index.rename_namespace("ns", "new")
    assert index.namespaces() == ["", "new", "other"]
    assert len(all_ids(index, "new")) == 6
    assert not index.rename_namespace("new", "other")
    assert all_ids(index, "other") == ["z"]
    assert index.rename_namespace("new", "new")
    assert index.rename_namespace("new", "other", delete_existing=True)
    assert index.namespaces() == ["", "other"]
    assert len(all_ids(index, "other")) == 6
    with pytest.raises(VectorError, match="Namespace new for the index"):
        index.rename_namespace("new", "x")
    for old, new in (("", "x"), ("other", "")):
        with rejects(400):
            index.rename_namespace(old, new)


# -- fetch, range, random ------------------------------------------------------------------------


def test_range_by_prefix_ends_when_no_match_remains() -> None:
    index = filled()
    page = index.range("", 0, 2, "even-")
    assert ([r.id for r in page.records], page.next_cursor) == (["even-0", "even-2"], "3")
    page = index.range("", 3, 1, "even-")
    assert ([r.id for r in page.records], page.next_cursor) == (["even-4"], "")


SCAN_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("page"), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("insert"), st.integers(31, 60)),
    ),
    max_size=40,
)


@given(SCAN_STEPS)
def test_a_scan_under_changes_misses_and_repeats_nothing(steps: list[tuple[str, int]]) -> None:
    """Records that exist during the whole scan are returned exactly once."""
    index = engine()
    index.upsert("", [VectorRecord(str(n), floats(1, n)) for n in range(30)])
    old, namespace_module.MINIMUM_HOLES = namespace_module.MINIMUM_HOLES, 2
    try:
        deleted: set[str] = set()
        seen: list[str] = []
        cursor = "0"
        for word, number in [*steps, *[("page", 7)] * 10]:
            if word == "delete":
                index.delete("", [str(number)])
                deleted.add(str(number))
            elif word == "insert":
                index.upsert("", [VectorRecord(str(number), floats(1, number))])
            elif cursor:
                page = index.range("", int(cursor), number)
                seen += [record.id for record in page.records]
                cursor = page.next_cursor
        assert len(seen) == len(set(seen))
        throughout = [str(n) for n in range(30) if str(n) not in deleted]
        assert [id for id in seen if id in throughout] == throughout
    finally:
        namespace_module.MINIMUM_HOLES = old


def test_random_picks_every_record_from_the_seed() -> None:
    picks = []
    for _ in range(2):
        index = filled()
        index.delete("", ["even-2"])
        picks.append([index.random("").id for _ in range(60)])  # type: ignore[union-attr]
    assert picks[0] == picks[1]
    assert set(picks[0]) == {"even-0", "odd-1", "odd-3", "even-4", "odd-5"}
    assert engine().random("") is None


# -- query ---------------------------------------------------------------------------------------


def test_a_batch_of_queries_answers_each() -> None:
    index = filled()
    queries = [
        VectorQuery(floats(1, 0), top_k=1),
        VectorQuery(floats(0, 1), top_k=2),
        VectorQuery(floats(1, 0), top_k=5, filter="n = 5"),
    ]
    assert [ids(hits) for hits in index.query("", queries)] == [
        ["even-0"],
        ["odd-5", "even-4"],
        ["odd-5"],
    ]
    assert index.query("", []) == []


@pytest.mark.parametrize(
    ("kind", "query", "text"),
    [
        (Kind.DENSE, VectorQuery(), "needs the field vector, which is missing in the query"),
        (Kind.SPARSE, VectorQuery(), "needs the field sparseVector, which"),
        (Kind.HYBRID, VectorQuery(), "needs the field vector and/or sparseVector, which"),
        (Kind.DENSE, VectorQuery(None, sparse({1: 1})), "The query has a sparseVector"),
        (Kind.SPARSE, VectorQuery(floats(1, 2)), "The query has a vector, but this is a sparse"),
        (Kind.HYBRID, VectorQuery(floats(1, 2, 3)), "dimension: 3, expected: 2"),
    ],
)
def test_queries_need_vectors_of_the_kind(kind: Kind, query: VectorQuery, text: str) -> None:
    index = engine(kind=kind)
    for run in (lambda: index.query("", [query]), lambda: index.start_query("", query, 1)):
        with rejects(422, text):
            run()


def test_hits_carry_what_was_stored_then() -> None:
    index = engine()
    put(index, a=(1, 0))
    hit = ask(index, 1, 0)[0]
    put(index, a=(0, 1))
    assert hit.record.vector is not None
    assert hit.record.vector.tolist() == [1, 0]
    assert ask(index, 1, 0, include=Include())[0].record.vector is None


# -- quotas and limits ---------------------------------------------------------------------------


def test_daily_quotas_end_with_the_day() -> None:
    clock = Timekeeper("2026-01-01T22:00:00Z")
    index = engine(clock, limits=VectorLimits(daily_queries=2, daily_updates=3))
    put(index, a=(1, 0), b=(1, 0))
    index.update("", VectorRecord("a", data="x"))
    with rejects(429, "Exceeded daily update limit: 3"):
        put(index, c=(1, 0))
    assert all_ids(index) == ["a", "b"]
    ask(index, 1, 0)
    with pytest.raises(VectorError, match="Exceeded daily query limit: 2"):
        index.query("", [VectorQuery(floats(1, 0))] * 2)
    ask(index, 1, 0)
    with pytest.raises(VectorError, match="daily query"):
        ask(index, 1, 0)
    clock.advance("2h")
    put(index, c=(1, 0))
    ask(index, 1, 0)


def test_limits_on_namespaces_dimension_and_filters() -> None:
    index = engine(dimension=None, limits=VectorLimits(namespaces=2, dimension=3, filter_bytes=20))
    put(index, "one", a=(1, 0))
    with pytest.raises(VectorError, match="Namespace count limit exceeded: 3, maximum: 2"):
        put(index, "two", a=(1, 0))
    with pytest.raises(VectorError, match="Vector dimension limit exceeded: 4, maximum: 3"):
        put(engine(dimension=None, limits=VectorLimits(dimension=3)), a=(1, 0, 0, 0))
    with pytest.raises(VectorError, match="Filter size limit exceeded: 24 bytes, maximum: 20"):
        ask(index, 1, 0, filter="a = 'ééééééééé'")


# -- snapshots -----------------------------------------------------------------------------------


def test_a_snapshot_is_independent_of_what_comes_after() -> None:
    index = engine(dimension=None, limits=VectorLimits(daily_updates=3))
    empty = index.snapshot()
    put(index, "ns", a=(1, 0, 0))
    full = index.snapshot()
    index.delete("ns", ["a"])
    put(index, "ns", b=(0, 1, 0), c=(0, 0, 1))
    for _ in range(2):
        index.restore(full)
        assert all_ids(index, "ns") == ["a"]
        assert scored(ask(index, 1, 0, 0, namespace="ns")) == [("a", "1.0")]
        put(index, "ns", d=(0, 1, 0))
    index.restore(empty)
    assert index.namespaces() == [""]
    assert index.describe().dimension == 0
    index.upsert("", [VectorRecord(str(n), floats(1, 0)) for n in range(3)])
    with pytest.raises(VectorError, match="daily update"):
        put(index, more=(1, 0))


# -- the whole against a model -------------------------------------------------------------------

COORDINATES = st.integers(-2, 2)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.integers(0, 7), COORDINATES, COORDINATES),
        st.tuples(st.just("delete"), st.integers(0, 7)),
        st.tuples(st.just("update"), st.integers(0, 7), COORDINATES, COORDINATES),
        st.tuples(st.just("query"), st.integers(1, 9), COORDINATES, COORDINATES),
        st.tuples(st.just("reset")),
        st.tuples(st.just("roundtrip")),
    ),
    max_size=50,
)


@given(OPERATIONS)
def test_any_sequence_of_operations_answers_like_a_dict(operations: list[tuple[Any, ...]]) -> None:
    index = engine(similarity=Similarity.EUCLIDEAN)
    model: dict[str, tuple[int, int]] = {}
    for word, *rest in operations:
        if word == "upsert":
            model[str(rest[0])] = (rest[1], rest[2])
            put(index, **{str(rest[0]): (rest[1], rest[2])})
        elif word == "delete":
            assert index.delete("", [str(rest[0])]) == int(str(rest[0]) in model)
            model.pop(str(rest[0]), None)
        elif word == "update":
            there = str(rest[0]) in model
            assert index.update("", VectorRecord(str(rest[0]), floats(*rest[1:]))) is there
            if there:
                model[str(rest[0])] = (rest[1], rest[2])
        elif word == "reset":
            index.reset("")
            model.clear()
        elif word == "roundtrip":
            index.restore(index.snapshot())
        else:
            top_k, x, y = rest
            places = {id: place for place, id in enumerate(model)}
            far = {id: (px - x) ** 2 + (py - y) ** 2 for id, (px, py) in model.items()}
            best = sorted(model, key=lambda id: (far[id], places[id]))[:top_k]
            expected = [(id, str(np.float32(1 / (1 + far[id])))) for id in best]
            assert scored(ask(index, x, y, top_k=top_k)) == expected
        assert all_ids(index) == list(model)


# -- threads -------------------------------------------------------------------------------------


def test_threads_may_do_everything_at_once() -> None:
    index = engine(Timekeeper(NOW))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(60):
                id = f"{number}-{step}"
                put(index, **{id: (1, step)})
                hits = ask(index, 1, step, top_k=5)
                assert hits == sorted(hits, key=lambda hit: -hit.score)
                index.range("", 0, 10)
                if step % 2:
                    assert index.delete("", [id]) == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert sorted(all_ids(index)) == sorted(f"{n}-{s}" for n in range(6) for s in range(0, 60, 2))


def test_an_upsert_over_the_quota_leaves_no_namespace_behind() -> None:
    index = engine(limits=VectorLimits(daily_updates=1))
    with pytest.raises(VectorError, match="Exceeded daily update limit"):
        put(index, "new", a=(1, 0), b=(0, 1))
    assert index.namespaces() == [""]


def test_a_count_is_that_of_a_whole_range() -> None:
    index = engine()
    put(index, a=(0, 1), b=(1, 0), c=(1, 1))
    index.delete("", ["b"])
    index.readiness.hold()
    put(index, a=(1, 0), d=(0, 1))
    assert index.count("") == len(all_ids(index)) == 3
    assert index.count("nowhere") == 0
